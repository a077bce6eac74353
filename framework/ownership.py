"""The store writes that change who owns what, as pure functions.

Owns, for each action on objects and leases, the exact conditions and mutations of its one write, and how
a row that was re-read is judged. It must not know how a write is carried out: each builder returns a
`StoreWrite`, and writes are joined with `+` where one action spans several rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from sojourn.errors import DataLost, InvalidOperation
from sojourn.ids import GENERATION_MAX, describe_key
from sojourn.location import Delete, IfMissing, IfVersion, Put, StoreWrite
from sojourn.rows import (
    COUNTER_KEY,
    AuthorityRow,
    CounterRow,
    MarkOutcome,
    Membership,
    NodeDescriptor,
    Owner,
    OwnerLease,
    RelocationMark,
    RowState,
    check_generation,
    decode_counter,
    descriptor_row_key,
    encode_authority,
    encode_counter,
    encode_descriptor,
    encode_lease,
    lease_row_key,
)

__all__ = [
    "BLOCK_AGE_MS",
    "BLOCK_SIZE",
    "GenerationBlock",
    "GenerationSource",
    "RelocationId",
    "VersionedRow",
    "create_object",
    "delete_object",
    "fence_unit",
    "mark_lost",
    "move_unit",
    "moved_row",
    "publish_descriptor",
    "put_lease",
    "recognise_commit",
    "release_lease",
    "renew_lease",
    "reserve_generations",
    "rewrite_object",
]

BLOCK_SIZE = 1_000
"""ObjectGenerations a node reserves at one time."""

BLOCK_AGE_MS = 1_000
"""A block older than this is dropped: see `GenerationSource`."""

RelocationId = tuple[int, int]
"""A RelocationId as (high, low)."""


class VersionedRow(NamedTuple):
    """An authority row together with the store version it was read or must be found under."""

    row: AuthorityRow
    version: str


def create_object(row: AuthorityRow, previous: VersionedRow | None = None) -> StoreWrite:
    """Write the first row of a new incarnation (B6.6, B6.8).

    Without `previous` the id must be free. A lost row is replaced under its version alone; a live one
    under its version AND only when the lease its owner recorded is over.

    Raises:
        InvalidOperation: the row is no first row, or its ObjectGeneration does not follow the previous one.
    """
    check_generation(row.object_generation, "ObjectGeneration")
    if row.owner_generation != 1 or row.state is not RowState.LIVE or row.relocation is not None:
        raise InvalidOperation(
            f"{describe_key(row.key)}: a new incarnation starts live at owner generation 1"
        )
    key = row.row_key
    put = Put(key, encode_authority(row))
    if previous is None:
        return StoreWrite([IfMissing(key)], [put])
    if row.object_generation <= previous.row.object_generation or row.key != previous.row.key:
        raise InvalidOperation(
            f"{describe_key(row.key)}: ObjectGeneration {row.object_generation} does not follow "
            f"{previous.row.object_generation} of {describe_key(previous.row.key)}"
        )
    write = StoreWrite([IfVersion(key, previous.version)], [put])
    if previous.row.state is RowState.LIVE:
        former = previous.row.owner
        write.conditions.append(IfMissing(lease_row_key(former.owner_id, former.lease_generation)))
    return write


def rewrite_object(expected: VersionedRow, row: AuthorityRow) -> StoreWrite:
    """Change a row without changing its owner: members, membership, binding (B6.3)."""
    before = expected.row
    if (row.key, row.object_generation, row.owner_generation, row.owner) != (
        before.key,
        before.object_generation,
        before.owner_generation,
        before.owner,
    ):
        raise InvalidOperation(f"{describe_key(before.key)}: only a move changes an owner")
    return StoreWrite([IfVersion(row.row_key, expected.version)], [Put(row.row_key, encode_authority(row))])


def delete_object(expected: VersionedRow) -> StoreWrite:
    """Remove an object's row under its version."""
    key = expected.row.row_key
    return StoreWrite([IfVersion(key, expected.version)], [Delete(key)])


def moved_row(
    row: AuthorityRow, owner: Owner, relocation: RelocationId, membership: Membership | None = None
) -> AuthorityRow:
    """The row after its move: new owner, owner generation + 1, RelocationId committed; the binding stays.

    `membership` is given where it changes with the move; None keeps it.
    """
    check_generation(row.owner_generation + 1, "AuthorityOwnerGeneration")
    return msgspec.structs.replace(
        row,
        owner=owner,
        owner_generation=row.owner_generation + 1,
        membership=row.membership if membership is None else membership,
        relocation=RelocationMark(*relocation, MarkOutcome.COMMITTED),
    )


def move_unit(
    unit: Sequence[VersionedRow],
    owner: Owner,
    relocation: RelocationId,
    memberships: Mapping[str, Membership] | None = None,
) -> StoreWrite:
    """The CAS of a move, the only store write of a target (B6.5).

    The version of the unit's own row is the one of the coordinator fence, never one the target read; the
    other participants of a SpotWide unit carry the versions they were read under. `memberships` names, by
    object id, the Actors whose Spot changes. Rows of Spots that gain or lose a member are joined by
    `rewrite_object`.
    """
    changes = memberships or {}
    write = StoreWrite([], [])
    for row, version in unit:
        if row.state is not RowState.LIVE:
            raise DataLost(f"{describe_key(row.key)} is lost and cannot move")
        after = moved_row(row, owner, relocation, changes.get(row.object_id))
        key = row.row_key
        write.conditions.append(IfVersion(key, version))
        write.mutations.append(Put(key, encode_authority(after)))
    return write


def fence_unit(unit: Sequence[VersionedRow], relocation: RelocationId) -> StoreWrite:
    """The fence write of a source (B6.7): the same owner and generations under new versions, the RelocationId
    as `fenced`. From then on the target's CAS can only conflict."""
    mark = RelocationMark(*relocation, MarkOutcome.FENCED)
    write = StoreWrite([], [])
    for row, version in unit:
        fenced = msgspec.structs.replace(row, relocation=mark)
        key = row.row_key
        write.conditions.append(IfVersion(key, version))
        write.mutations.append(Put(key, encode_authority(fenced)))
    return write


def mark_lost(unit: Sequence[VersionedRow]) -> StoreWrite:
    """State `lost` under the versions just read (B6.8); the owner and the relocation block stay for the reader."""
    write = StoreWrite([], [])
    for row, version in unit:
        lost = msgspec.structs.replace(row, state=RowState.LOST)
        key = row.row_key
        write.conditions.append(IfVersion(key, version))
        write.mutations.append(Put(key, encode_authority(lost)))
    return write


def recognise_commit(row: AuthorityRow, expected_owner_generation: int, relocation: RelocationId) -> bool:
    """Whether this row was written by that move: expected + 1 AND this RelocationId, committed (B6.5)."""
    return row.owner_generation == expected_owner_generation + 1 and row.relocation == RelocationMark(
        *relocation, MarkOutcome.COMMITTED
    )


def put_lease(lease: OwnerLease, descriptor: NodeDescriptor | None, ttl_ms: int) -> StoreWrite:
    """Write a lease that is not there; the descriptor goes with it (B6.4)."""
    key = lease_row_key(lease.owner_id, lease.lease_generation)
    write = StoreWrite([IfMissing(key)], [Put(key, encode_lease(lease), ttl_ms)])
    return write if descriptor is None else write + publish_descriptor(descriptor, ttl_ms)


def renew_lease(
    lease: OwnerLease, version: str, descriptor: NodeDescriptor | None, ttl_ms: int
) -> StoreWrite:
    """Renew a lease under the version of its row."""
    key = lease_row_key(lease.owner_id, lease.lease_generation)
    write = StoreWrite([IfVersion(key, version)], [Put(key, encode_lease(lease), ttl_ms)])
    return write if descriptor is None else write + publish_descriptor(descriptor, ttl_ms)


def release_lease(lease: OwnerLease, version: str) -> StoreWrite:
    """Compare-and-delete a lease, and its descriptor with it."""
    key = lease_row_key(lease.owner_id, lease.lease_generation)
    return StoreWrite([IfVersion(key, version)], [Delete(key), Delete(descriptor_row_key(lease.owner.run))])


def publish_descriptor(descriptor: NodeDescriptor, ttl_ms: int) -> StoreWrite:
    """Write a descriptor; its key names the run, so nobody else writes it and no condition is needed."""
    return StoreWrite([], [Put(descriptor_row_key(descriptor.run), encode_descriptor(descriptor), ttl_ms)])


class GenerationBlock(NamedTuple):
    """ObjectGenerations `first` to `last` that belong to this node alone once `write` is applied."""

    first: int
    last: int
    write: StoreWrite


def reserve_generations(
    stored: bytes | None, version: str | None, *, size: int = BLOCK_SIZE
) -> GenerationBlock:
    """Advance the store-wide counter by one block (B1.3). `stored` and `version` are None when the row is missing.

    Applied: the block is ours. Conflict: re-read and try again. Unknown: the block is never used, re-read.
    """
    last = 0 if stored is None else decode_counter(stored).last
    if last + size > GENERATION_MAX:
        raise InvalidOperation("the counter of ObjectGenerations is used up")
    condition = IfMissing(COUNTER_KEY) if version is None else IfVersion(COUNTER_KEY, version)
    counter = CounterRow(last + size)
    return GenerationBlock(
        last + 1, last + size, StoreWrite([condition], [Put(COUNTER_KEY, encode_counter(counter))])
    )


class GenerationSource:
    """Hands out the ObjectGenerations of reserved blocks.

    No generation is handed out twice in a cluster, since a block belongs to one node and what it does not
    use is skipped. Route caches order incarnations by generation (B9.1), so a block also ages: what is
    handed out was reserved less than `BLOCK_AGE_MS` ago, and an incarnation made by another node after
    that time always carries a greater one.
    """

    def __init__(self) -> None:
        self._next = 1
        self._last = 0
        self._reserved_ms = 0

    def add(self, block: GenerationBlock, asked_ms: int) -> None:
        """A block whose write was applied; `asked_ms` is the moment before it was sent."""
        self._next, self._last, self._reserved_ms = block.first, block.last, asked_ms

    def take(self, now_ms: int, *, above: int = 0) -> int | None:
        """The next generation greater than `above`; None when a new block has to be reserved first."""
        if now_ms - self._reserved_ms >= BLOCK_AGE_MS:
            self._last = 0
        generation = max(self._next, above + 1)
        if generation > self._last:
            return None
        self._next = generation + 1
        return generation
