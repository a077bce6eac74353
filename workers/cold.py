"""Cold-activation records: the first message of an Instance Spot outlives the node that was to handle it (B7.1).

Owns the records of this node's creations in the Relocation Store: what is written together with the row, what an
earlier incarnation left, and their deletion once the handler has ended. It must not know how objects are made.

Only sends are recorded: a request that cannot be handled ends as `Unavailable` at its requester, who decides
whether to repeat it. See `docs/decisions/first-messages.md`.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sojourn import frames
from sojourn.errors import ProtocolError, SojournError
from sojourn.frames import FLAG_FIRST, FLAG_FOLLOW, FLAG_INTENT, FLAG_REQUEST, RecordHeader
from sojourn.ids import ObjectKey, describe_key
from sojourn.location import DeleteBlob, Mutation, PutBlob, StoreWrite
from sojourn.wire.store_envelope import StoredChunk, decode_stored_chunk, encode_stored_chunk
from sojourn.workers.objects import Arrival, LocalObject

if TYPE_CHECKING:
    from sojourn.ownership import VersionedRow
    from sojourn.workers.supervisor import Supervisor

__all__ = [
    "ColdActivation",
    "ColdRecords",
    "blob_of_records",
    "cold_reference",
    "is_first",
    "records_of_blob",
]

RECORDS_MAX = 64
"""Most messages one record holds: a chain of nodes that died before any handler ended. Older ones are reported."""
DELETED_AT_ONCE = 1_000
DELETIONS_MAX = 65_536
"""Records that wait to be deleted while the store is away; beyond it they end by their retention."""
RETRY_S = 1.0
CLOSE_S = 1.0
_LENGTH = struct.Struct(">I")


def cold_reference(key: ObjectKey, object_generation: int) -> str:
    """Where the record of an incarnation is kept."""
    return f"cold:{object_generation:016x}:{key.decode('utf-8')}"


def blob_of_records(bodies: Sequence[bytes]) -> bytes:
    """Record frame bodies, oldest first, as one blob (ZLTC, order 0)."""
    pieces: list[bytes] = []
    for body in bodies:
        pieces += (_LENGTH.pack(len(body)), body)
    return encode_stored_chunk(StoredChunk(0, b"".join(pieces)))


def records_of_blob(blob: bytes) -> list[bytes]:
    """The record frame bodies inside a blob.

    Raises:
        ProtocolError: damaged, or something else.
    """
    data = decode_stored_chunk(blob).data
    bodies: list[bytes] = []
    at = 0
    while at < len(data):
        if at + _LENGTH.size > len(data):
            raise ProtocolError("a stored first message is cut short")
        (length,) = _LENGTH.unpack_from(data, at)
        body = data[at + _LENGTH.size : at + _LENGTH.size + length]
        if len(body) != length or not body or body[0] != frames.KIND_RECORD:
            raise ProtocolError("a stored first message is none")
        bodies.append(body)
        at += _LENGTH.size + length
    return bodies


class ColdActivation:
    """One creation: the message that asks for it, and what earlier incarnations could not handle.

    Attributes:
        bodies: recorded with the row, oldest first.
    """

    def __init__(self, records: ColdRecords, held: LocalObject) -> None:
        self._records = records
        self._key = held.key
        self._own: list[bytes] = []
        self.bodies: list[bytes] = []
        for body, header, _ in (held.waiting or ())[:1]:
            if header.flags & FLAG_INTENT and not header.flags & FLAG_REQUEST:
                self._own = [body]

    async def beside(self, previous: VersionedRow | None, generation: int) -> list[Mutation]:
        """What is written together with the row of this incarnation, instead of the row it replaces."""
        earlier = [] if previous is None else await self._records.left_by(self._key, previous)
        self.bodies = [*earlier, *self._own]
        mutations: list[Mutation] = []
        if self.bodies:
            retention_ms = self._records.retention_ms
            reference = cold_reference(self._key, generation)
            mutations.append(PutBlob(reference, blob_of_records(self.bodies), retention_ms))
        if earlier:
            assert previous is not None
            mutations.append(DeleteBlob(cold_reference(self._key, previous.row.object_generation)))
        return mutations

    def queue(self, held: LocalObject) -> None:
        """The row stands: put everything recorded in front of what waits for the object, marked so that the
        worker tells when its handler has ended."""
        if not self.bodies:
            return
        waiting = list(held.waiting or ())
        first: list[Arrival] = []
        operations: set[tuple[int, int]] = set()
        own = self._own[0] if self._own else None
        for body in self.bodies:
            debt = waiting.pop(0)[2] if body is own else None
            # A followed message would be taken for a repeat of the one that was accepted by a dead worker.
            marked = frames.set_hops(body, body[2], FLAG_FIRST, FLAG_FOLLOW)
            header = frames.parse_record_header(marked)
            operations.add((header.operation_high, header.operation_low))
            first.append((marked, header, debt))
        held.cold = operations
        held.waiting = first + waiting
        if len(self.bodies) > len(self._own):
            self._records.found(self._key, len(self.bodies) - len(self._own))


class ColdRecords:
    """See the module text. One for each node."""

    def __init__(self, node: Supervisor) -> None:
        self._node = node
        self._ended: list[str] = []
        self._deleting = False

    @property
    def retention_ms(self) -> int:
        """How long a record is kept."""
        return self._node.options.reply_retention_ms

    def found(self, key: ObjectKey, number: int) -> None:
        """Messages of an earlier incarnation are run now."""
        self._node.count("first_messages_recovered", number)
        self._node.log("first_messages_recovered", "info", object_id=describe_key(key), number=number)

    async def left_by(self, key: ObjectKey, previous: VersionedRow) -> list[bytes]:
        """The first messages that an incarnation did not handle: one that moved had taken them along.

        Raises:
            Unavailable: the store does not answer; then nothing may be made either.
        """
        row = previous.row
        if row.owner_generation != 1:
            return []
        blob = await self._node.blobs.read(cold_reference(key, row.object_generation))
        if blob is None:
            return []
        try:
            bodies = records_of_blob(blob)
        except ProtocolError as error:
            self._node.count("dead_letters")
            self._node.log("dead_letter", "warning", object_id=describe_key(key), reason=str(error))
            return []
        kept = bodies[-(RECORDS_MAX - 1) :]
        for body in bodies[: len(bodies) - len(kept)]:
            self._report(body, key)
        return kept

    def _report(self, body: bytes, key: ObjectKey) -> None:
        header = frames.parse_record_header(body)
        self._node.count("dead_letters")
        self._node.log(
            "dead_letter",
            "warning",
            object_id=describe_key(key),
            reason=f"no node lived long enough to handle first message {header.operation_low:016x}",
        )

    # endings ------------------------------------------------------------------------------------

    def handled(self, held: LocalObject | None, operation: tuple[int, int]) -> None:
        """The handler of a first message has ended; with the last one the record goes."""
        if held is None or held.cold is None:
            return
        held.cold.discard(operation)
        if not held.cold:
            self.forget(held)

    def forget(self, held: LocalObject) -> None:
        """The record is not needed any more: handled, told otherwise, or part of what has moved."""
        if held.cold is None:
            return
        held.cold = None
        if len(self._ended) >= DELETIONS_MAX:
            self._node.count("first_messages_not_deleted")
            return
        self._ended.append(cold_reference(held.key, held.object_generation))
        if not self._deleting:
            self._deleting = True
            self._node.start(self._delete())

    async def _delete(self) -> None:
        """Delete what ended, all of it in one write; again and again while the store does not help. A record
        that stays would be run by the next incarnation although it was handled."""
        try:
            while self._ended:
                try:
                    await self._delete_some()
                except SojournError as error:
                    self._node.log("first_messages_not_deleted", "info", error=str(error))
                    await asyncio.sleep(RETRY_S)
        finally:
            self._deleting = False

    async def _delete_some(self) -> None:
        some = self._ended[:DELETED_AT_ONCE]
        mutations: list[Mutation] = [DeleteBlob(reference) for reference in some]
        await self._node.directory.write(StoreWrite([], mutations))
        done = set(some)
        self._ended = [reference for reference in self._ended if reference not in done]

    async def close(self) -> None:
        """The node stops in order: what its workers handled is deleted before it gives its lease back, if the store
        does so within `CLOSE_S`."""
        try:
            async with asyncio.timeout(CLOSE_S):
                while self._ended:
                    await self._delete_some()
        except (SojournError, TimeoutError) as error:
            self._node.log("first_messages_not_deleted", "warning", number=len(self._ended), error=str(error))


def is_first(header: RecordHeader) -> bool:
    """Whether a message is kept in the Relocation Store until its handler has ended."""
    return bool(header.flags & FLAG_FIRST)
