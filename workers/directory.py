"""Who owns what, as one node reads and writes it in the Location Store (B6).

Owns the store calls around authority rows: look-ups, creation, takeover of what a dead run left, marking
lost. Which write changes what is decided by `sojourn.ownership`; moves are written by the coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from sojourn.control import RegistryEntry
from sojourn.errors import Unavailable
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, describe_key, key_id
from sojourn.location import (
    Applied,
    Found,
    LocationStore,
    Mutation,
    StoreUnavailable,
    StoreUnknown,
    StoreWrite,
)
from sojourn.ownership import (
    GenerationSource,
    VersionedRow,
    create_object,
    delete_object,
    mark_lost,
    reserve_generations,
)
from sojourn.rows import (
    AUTHORITY_PREFIX,
    COUNTER_KEY,
    AuthorityRow,
    Membership,
    Owner,
    RowState,
    authority_row_key,
    decode_authority,
)
from sojourn.workers.lease_keeper import boot_ms
from sojourn.workers.objects import route_fence

__all__ = ["Beside", "CreatedRow", "Directory", "OwnedElsewhere"]

Beside = Callable[[VersionedRow | None, int], Awaitable[Sequence[Mutation]]]

CREATE_ATTEMPTS = 8
"""How often a creation that keeps meeting other writers is tried again before it ends as Unavailable."""


READS_AT_ONCE = 64
"""So many rows are read at the same time."""
SCAN_ROWS = 1000


@dataclass(frozen=True, slots=True)
class CreatedRow:
    """This node owns the object under a new incarnation."""

    object_generation: int
    owner_generation: int
    version: str


@dataclass(frozen=True, slots=True)
class OwnedElsewhere:
    """The row names a run (which may be this one): where the object is, or was."""

    run: NodeRun
    kind: int
    object_generation: int
    owner_generation: int
    fence: bytes
    lost: bool

    @classmethod
    def of(cls, key: ObjectKey, row: AuthorityRow) -> OwnedElsewhere:
        """What a row says."""
        fence = route_fence(
            key,
            row.kind,
            row.object_generation,
            row.owner.run,
            row.owner_generation,
            row.owner.lease_generation,
        )
        return cls(
            row.owner.run,
            int(row.kind),
            row.object_generation,
            row.owner_generation,
            fence,
            row.state is RowState.LOST,
        )


class Directory:
    """See the module text. `owner()` is this run's owner block, `alive(run)` whether a run is connected."""

    def __init__(
        self,
        store: LocationStore,
        owner: Callable[[], Owner],
        alive: Callable[[NodeRun], bool],
        may_write: Callable[[], bool],
    ) -> None:
        self._store = store
        self._owner = owner
        self._alive = alive
        self._may_write = may_write
        self._generations = GenerationSource()
        self._reserving = asyncio.Lock()

    async def read(self, key: ObjectKey) -> VersionedRow | None:
        """The authority row of an object with its version, or None.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        found = await self._store.read(authority_row_key(key))
        if not isinstance(found, Found):
            return None
        return VersionedRow(decode_authority(found.value), found.version)

    async def read_many(self, keys: Collection[ObjectKey]) -> dict[ObjectKey, VersionedRow | None]:
        """The rows of some objects, those of a unit for example: what it costs does not depend on what else the
        store holds.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        found: dict[ObjectKey, VersionedRow | None] = {}
        left = list(keys)
        for start in range(0, len(left), READS_AT_ONCE):
            some = left[start : start + READS_AT_ONCE]
            found.update(zip(some, await asyncio.gather(*map(self.read, some)), strict=True))
        return found

    async def read_most(self, keys: Collection[ObjectKey]) -> dict[ObjectKey, VersionedRow | None]:
        """The rows of what a whole node holds (B6.4), found by a scan of all rows: some thousand in one call.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        wanted = {authority_row_key(key): key for key in keys}
        found: dict[ObjectKey, VersionedRow | None] = {}
        cursor: str | None = None
        while len(wanted) > READS_AT_ONCE:
            page = await self._store.scan(AUTHORITY_PREFIX, cursor, SCAN_ROWS)
            for row in page.rows:
                key = wanted.pop(row.key, None)
                if key is not None:
                    found[key] = VersionedRow(decode_authority(row.value), row.version)
            cursor = page.cursor
            if cursor is None:
                break
        # A row that no page showed may have been written while the scan went on.
        return found | await self.read_many(wanted.values())

    async def owner_of(self, key: ObjectKey) -> OwnedElsewhere | None:
        """Which run the row names, or None when there is no row."""
        found = await self.read(key)
        return None if found is None else OwnedElsewhere.of(key, found.row)

    async def create(
        self, key: ObjectKey, entry: RegistryEntry, beside: Beside | None = None
    ) -> CreatedRow | OwnedElsewhere:
        """Become the owner of an object that nobody has, or say who has it.

        A row of this very run whose object is not here counts as lost (B6.8). A row of a dead run is taken
        over once its lease is over (B6.6). `beside` gives what is written together with the row, for the row
        that it replaces and the incarnation it makes.

        Raises:
            Unavailable: the store does not answer, or this node's own lease does not allow a write now.
        """
        unknown: set[int] = set()
        previous: VersionedRow | None = None
        for attempt in range(CREATE_ATTEMPTS):
            # Who sends a first message has just seen that there is no row: the write alone decides.
            if attempt:
                previous = await self.read(key)
            if previous is not None:
                kept = self._judge(key, previous, unknown)
                if kept is not None:
                    return kept
            generation = await self._take_generation(previous)
            row = self._first_row(key, entry, generation)
            write = create_object(row, previous)
            if beside is not None:
                write.mutations.extend(await beside(previous, generation))
            try:
                result = await self._write(write)
            except StoreUnknown:
                unknown.add(generation)
                continue
            if isinstance(result, Applied):
                return CreatedRow(generation, 1, result.versions[write.mutations[0].key])
            if previous is None:
                continue
            again = await self.read(key)
            if again is not None and again.version == previous.version:
                return OwnedElsewhere.of(key, again.row)
        raise Unavailable(
            f"{describe_key(key)} could not be created: other writers kept changing its row; try again",
            object_id=describe_key(key),
            applied="no",
        )

    def _judge(
        self, key: ObjectKey, found: VersionedRow, unknown: set[int]
    ) -> CreatedRow | OwnedElsewhere | None:
        """What an existing row means for a creation; None = it may be replaced. `unknown`: the incarnations it
        tried to write without learning the outcome."""
        row = found.row
        if row.state is RowState.LOST:
            return None
        if row.owner == self._owner():
            if row.object_generation in unknown and row.owner_generation == 1 and row.relocation is None:
                return CreatedRow(row.object_generation, 1, found.version)
            return OwnedElsewhere.of(key, row)
        return OwnedElsewhere.of(key, row) if self._alive(row.owner.run) else None

    def _first_row(self, key: ObjectKey, entry: RegistryEntry, generation: int) -> AuthorityRow:
        kind = ObjectKind(entry.kind)
        owner = self._owner()
        membership = None
        if kind is ObjectKind.ACTOR:
            membership = Membership(ObjectKind.ENTRY_SPOT, owner.rid.decode("utf-8", "backslashreplace"), 1)
        return AuthorityRow(
            kind=kind,
            object_id=key_id(key),
            stable_type=entry.stable_type,
            object_generation=generation,
            owner_generation=1,
            owner=owner,
            membership=membership,
        )

    async def _take_generation(self, previous: VersionedRow | None) -> int:
        above = 0 if previous is None else previous.row.object_generation
        taken = self._generations.take(boot_ms(), above=above)
        while taken is None:
            async with self._reserving:
                taken = self._generations.take(boot_ms(), above=above)
                if taken is None:
                    await self._reserve()
                    taken = self._generations.take(boot_ms(), above=above)
        return taken

    async def _reserve(self) -> None:
        asked_ms = boot_ms()
        found = await self._store.read(COUNTER_KEY)
        stored, version = (found.value, found.version) if isinstance(found, Found) else (None, None)
        block = reserve_generations(stored, version)
        try:
            result = await self._write(block.write)
        except StoreUnknown:
            return
        if isinstance(result, Applied):
            self._generations.add(block, asked_ms)

    async def remove(self, key: ObjectKey, version: str) -> bool:
        """Delete the row of an object that did not come to be, under the version it was created with."""
        found = await self.read(key)
        if found is None or found.version != version:
            return False
        return isinstance(await self._write(delete_object(found)), Applied)

    async def lose(self, *unit: VersionedRow) -> bool:
        """Write state `lost` into every row of a unit under the versions just read (B6.8); True when it stands."""
        left = [found for found in unit if found.row.state is not RowState.LOST]
        return not left or isinstance(await self._write(mark_lost(left)), Applied)

    async def _write(self, write: StoreWrite) -> object:
        if not self._may_write():
            raise StoreUnavailable(
                "this node's own lease is over or not yet confirmed: it changes nothing in the store (B6.4)",
                applied="no",
            )
        return await self._store.write(write.conditions, write.mutations)

    async def write(self, write: StoreWrite) -> object:
        """Carry out a write of the coordinator under the same lease rule."""
        return await self._write(write)
