"""Moves that a test plays by hand through a `Peer`: the source's half or the target's, one step at a time."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import crc32c
import msgspec
from sojourn import mesh
from sojourn.handoff.terms import HandoffIdentity, Manifest
from sojourn.ids import ObjectKey, ObjectKind, describe_key, spot_key
from sojourn.ownership import VersionedRow, move_unit
from sojourn.rows import Membership
from sojourn.wire import (
    ActorIdentity,
    Envelope,
    MessageFollow,
    RelocationCutover,
    RelocationData,
    RelocationFailed,
    RelocationId,
    RelocationPrepare,
    RelocationReady,
    RelocationState,
    ReplyRelay,
    SavedWork,
    SessionRelocationRoute,
    SessionRelocationSeal,
    TargetFence,
    decode_envelope,
    encode_envelope,
)
from sojourn.workers.handoff_wire import HandoffWire
from sojourn.workers.link import Link
from sojourn.workers.local_node import LocalNode

from tests.contract.peer import Arrival, Peer
from tests.contract.stand import fresh

__all__ = [
    "HandSource",
    "HandTarget",
    "Taken",
    "checksum_of",
    "ledger_at",
    "move_to",
    "source",
    "take",
    "taken_by",
]

RELOCATION = (RelocationReady, RelocationFailed)


def checksum_of(records: Iterable[bytes]) -> int:
    """CRC-32C over records joined."""
    value = 0
    for record in records:
        value = crc32c.crc32c(record, value)
    return value


async def ledger_at(peer: Peer, node: LocalNode, name: str = "ledger") -> ObjectKey:
    """A new Ledger on this node."""
    key = spot_key(fresh(name))
    await peer.ask(node, key, "history", create="Ledger")
    found = await peer.stand.row(key)
    assert found is not None
    peer.generations[key] = found.row.object_generation
    return key


def move_to(peer: Peer, node: LocalNode, key: ObjectKey, deadline_s: float = 10.0) -> asyncio.Task[Any]:
    """Have a node move one of its objects to the peer."""
    arguments = {"key": key, "to": peer.name, "deadline_s": deadline_s}
    return asyncio.ensure_future(node.call("relocate", arguments, timeout_s=60.0))


def _same_object(command: Any, key: ObjectKey) -> bool:
    named = command.object
    name = named.actor_id if isinstance(named, ActorIdentity) else named.spot_id
    return bool(name == key[1:].decode())


class HandTarget:
    """The target's half of a move whose source is a real node."""

    def __init__(self, peer: Peer, node: LocalNode, key: ObjectKey) -> None:
        self.peer = peer
        self.node = node
        self.key = key
        self._since = len(peer.arrivals)

    def arrived(self, *kinds: type[Any], connection: int = 0) -> list[Arrival]:
        """What came for this object since the move began."""
        return [
            each
            for each in self.peer.arrivals[self._since :]
            if not isinstance(
                each.command, MessageFollow | ReplyRelay | SessionRelocationSeal | SessionRelocationRoute
            )
            and (not kinds or isinstance(each.command, kinds))
            and _same_object(each.command, self.key)
            and connection in (0, each.connection)
        ]

    async def prepared(self) -> RelocationPrepare:
        """The Restore request, once every chunk behind it is here too."""
        await self.peer.until(self._whole)
        return self.prepare

    def _whole(self) -> bool:
        requests = self.arrived(RelocationPrepare)
        if not requests:
            return False
        chunks = self.arrived(RelocationState, connection=requests[-1].connection)
        return len(chunks) == requests[-1].command.payload_chunk_count

    @property
    def prepare(self) -> RelocationPrepare:
        """The latest Restore request."""
        command: RelocationPrepare = self.arrived(RelocationPrepare)[-1].command
        return command

    @property
    def connection(self) -> int:
        """The connection of the latest Restore request."""
        return self.arrived(RelocationPrepare)[-1].connection

    def payload(self) -> bytes:
        """The assembled chunks, checked against the manifest."""
        chunks = [each.command for each in self.arrived(RelocationState, connection=self.connection)]
        assert [chunk.chunk_ordinal for chunk in chunks] == list(range(len(chunks)))
        payload = b"".join(bytes(chunk.chunk_data) for chunk in chunks)
        assert len(payload) == self.prepare.payload_total_length
        assert crc32c.crc32c(payload) == self.prepare.payload_checksum_crc32c
        return payload

    @property
    def wire(self) -> HandoffWire:
        """Makes our answers."""
        return HandoffWire(self.prepare.identity, self.prepare.target, self.prepare.object)

    def _link(self) -> Link:
        link = self.peer.links.get(self.peer.stand.run_of(self.node))
        assert link is not None
        return link

    def ready(self) -> None:
        """Answer relay-ready."""
        self._link().send_contract((self.wire.frames.ready,))

    def failed(self, code: int = 17) -> None:
        """Answer with an explicit failure."""
        self._link().send_contract(self.wire.failed(code))

    async def cutover(self, connection: int = 0) -> RelocationCutover:
        """The cutover, checked against the relay before it."""
        ask = lambda: self.arrived(RelocationCutover, connection=connection)  # noqa: E731
        arrival = (await self.peer.until(ask))[-1]
        command: RelocationCutover = arrival.command
        relay = self.relay(arrival.connection)
        assert command.boundary_record_count == len(relay)
        assert command.boundary_checksum_crc32c == checksum_of(relay)
        return command

    def relay(self, connection: int = 0) -> list[bytes]:
        """The frozen records of the relay, in order of arrival."""
        return [bytes(each.command.record) for each in self.arrived(RelocationData, connection=connection)]

    async def commit(self) -> VersionedRow:
        """Run the target's CAS, and be the owner."""
        prepare = self.prepare
        found = await self.peer.stand.row(self.key)
        assert found is not None
        fence = prepare.identity.coordinator_fence
        unit = VersionedRow(found.row, fence.expected_authority_store_version)
        memberships = None
        if found.row.kind is ObjectKind.ACTOR:
            entry = Membership(ObjectKind.ENTRY_SPOT, self.peer.name, 1)
            memberships = {found.row.object_id: entry}
        relocation = (prepare.identity.relocation_id.high, prepare.identity.relocation_id.low)
        await self.peer.write(move_unit([unit], self.peer.owner, relocation, memberships))
        self._link().send_control(mesh.HandoffTimes(*relocation, time.monotonic_ns(), time.monotonic_ns()))
        now = await self.peer.stand.row(self.key)
        assert now is not None
        self.peer.generations[self.key] = now.row.object_generation
        return now


@dataclass(frozen=True)
class Taken:
    """An object that the peer owns: its row, and everything it needs to run."""

    key: ObjectKey
    row: VersionedRow
    envelope: Envelope


async def take(peer: Peer, node: LocalNode, key: ObjectKey) -> Taken:
    """Have a node move an object to the peer, all the way."""
    target = HandTarget(peer, node, key)
    moving = move_to(peer, node, key)
    await target.prepared()
    envelope = decode_envelope(target.payload())
    target.ready()
    await target.cutover()
    row = await target.commit()
    assert (await moving)["outcome"] == "moved"
    return Taken(key, row, envelope)


async def taken_by(target: HandTarget) -> Taken:
    """What the peer got by a move that it has played step by step and committed."""
    row = await target.peer.stand.row(target.key)
    assert row is not None
    return Taken(target.key, row, decode_envelope(target.payload()))


class HandSource:
    """The source's half of a move whose target is a real node."""

    def __init__(
        self,
        peer: Peer,
        node: LocalNode,
        taken: Taken,
        saved: Iterable[bytes | SavedWork] = (),
        *,
        version: str | None = None,
        chunk_octets: int = 256 * 1024,
    ) -> None:
        self.peer = peer
        self.node = node
        self.taken = taken
        self.relocation = (secrets.randbits(64) | 1, secrets.randbits(64))
        self.identity = HandoffIdentity(
            self.relocation,
            1,
            peer.owner.owner_id,
            peer.owner.lease_generation,
            peer.run,
            taken.row.version if version is None else version,
        )
        work = tuple(
            each if isinstance(each, SavedWork) else SavedWork(1, order, each)
            for order, each in enumerate(saved, 1)
        )
        envelope = msgspec.structs.replace(
            taken.envelope, relocation=RelocationId(*self.relocation), saved_work=work
        )
        self.payload = encode_envelope(envelope)
        self.chunks = [
            self.payload[at : at + chunk_octets] for at in range(0, len(self.payload), chunk_octets)
        ]
        self.manifest = Manifest(len(self.payload), len(self.chunks), crc32c.crc32c(self.payload), 1)
        self.wire: HandoffWire
        self.relayed: list[bytes] = []
        self._since = len(peer.arrivals)

    @property
    def name(self) -> str:
        """The object as logs name it."""
        return describe_key(self.taken.key)

    async def begin(self) -> HandSource:
        """Learn the target's fence; nothing is sent."""
        target = await self.peer.stand.descriptor(self.node)
        row = self.taken.row.row
        self.wire = HandoffWire.of_source(
            self.identity,
            TargetFence(target.rid, target.generation, target.owner_id, target.lease_generation),
            self.taken.key,
            row.kind,
            row.stable_type,
            row.object_generation,
            row.owner_generation,
        )
        return self

    def link(self) -> Link:
        """The present link to the target."""
        link = self.peer.links.get(self.peer.stand.run_of(self.node))
        assert link is not None
        return link

    def prepare(self, deadline_ms: int = 10_000, manifest: Manifest | None = None) -> None:
        """Send the Restore request."""
        self.link().send_contract(self.wire.prepare(self.peer.run, manifest or self.manifest), deadline_ms)

    def chunk(self, ordinal: int, data: bytes | None = None) -> None:
        """Send one chunk."""
        piece = self.chunks[ordinal] if data is None else data
        self.link().send_contract([[self.wire.frames.state_head(ordinal, len(piece)), piece]])

    def offer(self, deadline_ms: int = 10_000) -> None:
        """Send the Restore request and every chunk."""
        self.prepare(deadline_ms)
        for ordinal in range(len(self.chunks)):
            self.chunk(ordinal)

    def replies(self) -> list[RelocationReady | RelocationFailed]:
        """Every answer to this identity so far."""
        return [
            each.command
            for each in self.peer.arrivals[self._since :]
            if isinstance(each.command, RELOCATION) and each.command.identity == self.wire.identity
        ]

    async def replied(self, number: int = 1) -> RelocationReady | RelocationFailed:
        """The answer of this number."""
        await self.peer.until(lambda: len(self.replies()) >= number)
        return self.replies()[number - 1]

    async def ready(self) -> None:
        """Offer the object and wait for relay-ready."""
        if not self.replies():
            self.offer()
        answer = await self.replied()
        assert isinstance(answer, RelocationReady), answer

    def relay(self, *records: bytes) -> None:
        """Relay records."""
        for record in records:
            self.relayed.append(record)
            self.link().send_contract([[self.wire.frames.relay_head, record]])

    def cutover(self, count: int | None = None, checksum: int | None = None) -> None:
        """Send the cutover: of what was relayed, unless the test lies."""
        frame = self.wire.frames.cutover(
            len(self.relayed) if count is None else count,
            checksum_of(self.relayed) if checksum is None else checksum,
        )
        self.link().send_contract((frame,))

    async def committed(self) -> VersionedRow:
        """The row, once the target owns the object."""
        return await self.peer.stand.owned_by(self.taken.key, self.peer.stand.run_of(self.node))

    async def give(self, *relay: bytes) -> VersionedRow:
        """The whole move without a fault."""
        await self.ready()
        self.relay(*relay)
        self.cutover()
        return await self.committed()


async def source(
    peer: Peer, node: LocalNode, taken: Taken, saved: Iterable[bytes | SavedWork] = (), **more: Any
) -> HandSource:
    """A move of an object that the peer owns to a real node, ready to be played."""
    return await HandSource(peer, node, taken, saved, **more).begin()
