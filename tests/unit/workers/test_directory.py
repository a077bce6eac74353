"""Who becomes the owner: creation races, unknown outcomes, what dead runs left (B6.5, B6.6, B6.8)."""

from __future__ import annotations

import asyncio

import pytest
from sojourn.control import RegistryEntry
from sojourn.errors import Unavailable
from sojourn.ids import NodeRun, ObjectKind, spot_key
from sojourn.location import Condition, Delete, Mutation, ReadResult, ScanPage, StoreUnknown, WriteResult
from sojourn.ownership import put_lease
from sojourn.rows import NodeDescriptor, Owner, OwnerLease, authority_row_key
from sojourn.store.memory import MemoryLocationStore, MemoryRows
from sojourn.workers.directory import READS_AT_ONCE, CreatedRow, Directory, OwnedElsewhere

KEY = spot_key("s")
ENTRY = RegistryEntry("Device", ObjectKind.INSTANCE_SPOT, "preserve", 1)


class DoubtfulStore(MemoryLocationStore):
    """A store whose next writes lose their answer, carried out or not."""

    def __init__(self, rows: MemoryRows) -> None:
        super().__init__(rows)
        self.doubts: list[bool] = []
        self.hold: asyncio.Event | None = None

    async def write(self, conditions: list[Condition], mutations: list[Mutation]) -> WriteResult:
        if self.hold is not None:
            await self.hold.wait()
        if any(mutation.key == authority_row_key(KEY) for mutation in mutations) and self.doubts:
            if self.doubts.pop(0):
                await super().write(conditions, mutations)
            raise StoreUnknown("no answer", applied="unknown")
        return await super().write(conditions, mutations)


class Node:
    def __init__(self, rows: MemoryRows, name: str, alive: set[NodeRun]) -> None:
        self.run = NodeRun(name.encode(), 7)
        self.owner = Owner(self.run.rid, 7, f"{name}@7", 7)
        self.store = DoubtfulStore(rows)
        self.may_write = True
        self.directory = Directory(
            self.store, lambda: self.owner, lambda run: run in alive, lambda: self.may_write
        )
        alive.add(self.run)

    async def take_lease(self) -> None:
        lease = OwnerLease(self.run.rid, 7, self.owner.owner_id, 7)
        descriptor = NodeDescriptor(
            rid=self.run.rid,
            generation=7,
            owner_id=self.owner.owner_id,
            lease_generation=7,
            application="app",
            application_version=1,
        )
        write = put_lease(lease, descriptor, 60_000)
        await self.store.write(write.conditions, write.mutations)

    async def lose_lease(self) -> None:
        page = await self.store.scan("lease:")
        mine = [row.key for row in page.rows if self.owner.owner_id in row.key]
        await self.store.write([], [Delete(key) for key in mine])


class Pair:
    def __init__(self) -> None:
        self.alive: set[NodeRun] = set()
        rows = MemoryRows()
        self.a, self.b = Node(rows, "a", self.alive), Node(rows, "b", self.alive)


async def test_of_two_that_create_at_once_one_owns_and_the_other_learns_who() -> None:
    pair = Pair()
    pair.a.store.hold = pair.b.store.hold = asyncio.Event()
    both = [asyncio.create_task(node.directory.create(KEY, ENTRY)) for node in (pair.a, pair.b)]
    await asyncio.sleep(0)
    pair.a.store.hold.set()
    outcomes = await asyncio.gather(*both)
    (made,) = [outcome for outcome in outcomes if isinstance(outcome, CreatedRow)]
    (other,) = [outcome for outcome in outcomes if isinstance(outcome, OwnedElsewhere)]
    winner = (pair.a, pair.b)[outcomes.index(made)]
    assert other.run == winner.run
    assert other.object_generation == made.object_generation


@pytest.mark.parametrize("carried_out", [True, False])
async def test_a_creation_whose_answer_is_lost_is_looked_at_not_guessed(carried_out: bool) -> None:
    pair = Pair()
    pair.a.store.doubts = [carried_out]
    made = await pair.a.directory.create(KEY, ENTRY)
    assert isinstance(made, CreatedRow)
    found = await pair.a.directory.read(KEY)
    assert found is not None
    assert (found.version, found.row.object_generation) == (made.version, made.object_generation)


async def test_a_creation_that_never_gets_an_answer_ends() -> None:
    pair = Pair()
    pair.a.store.doubts = [False] * 100
    with pytest.raises(Unavailable):
        await pair.a.directory.create(KEY, ENTRY)


async def test_a_dead_run_s_object_is_taken_over_when_its_lease_is_over() -> None:
    pair = Pair()
    await pair.a.take_lease()
    first = await pair.a.directory.create(KEY, ENTRY)
    assert isinstance(first, CreatedRow)
    assert isinstance(await pair.b.directory.create(KEY, ENTRY), OwnedElsewhere)  # it lives
    pair.alive.discard(pair.a.run)
    still = await pair.b.directory.create(KEY, ENTRY)  # no connection proves nothing
    assert isinstance(still, OwnedElsewhere)
    await pair.a.lose_lease()
    second = await pair.b.directory.create(KEY, ENTRY)
    assert isinstance(second, CreatedRow)
    assert second.object_generation > first.object_generation


async def test_a_lost_object_is_made_anew_whoever_owned_it() -> None:
    pair = Pair()
    await pair.a.take_lease()
    first = await pair.a.directory.create(KEY, ENTRY)
    assert isinstance(first, CreatedRow)
    found = await pair.a.directory.read(KEY)
    assert found is not None
    assert await pair.a.directory.lose(found)
    owned = await pair.b.directory.owner_of(KEY)
    assert owned is not None
    assert owned.lost
    second = await pair.b.directory.create(KEY, ENTRY)
    assert isinstance(second, CreatedRow)
    assert second.object_generation > first.object_generation


async def test_the_row_of_this_very_run_is_no_new_object() -> None:
    """Its caller has to judge whether the object is here, or lost (B6.8)."""
    pair = Pair()
    assert isinstance(await pair.a.directory.create(KEY, ENTRY), CreatedRow)
    again = await pair.a.directory.create(KEY, ENTRY)
    assert isinstance(again, OwnedElsewhere)
    assert again.run == pair.a.run


async def test_only_the_row_that_was_made_is_removed() -> None:
    pair = Pair()
    made = await pair.a.directory.create(KEY, ENTRY)
    assert isinstance(made, CreatedRow)
    assert not await pair.a.directory.remove(KEY, "another version")
    assert await pair.a.directory.remove(KEY, made.version)
    assert await pair.a.directory.owner_of(KEY) is None


async def test_without_a_lease_of_its_own_a_run_changes_nothing() -> None:
    pair = Pair()
    pair.a.may_write = False
    with pytest.raises(Unavailable):
        await pair.a.directory.create(KEY, ENTRY)
    assert await pair.b.directory.owner_of(KEY) is None


class CountingStore(MemoryLocationStore):
    """Counts calls, and shows the first pages without the rows that it hides."""

    def __init__(self, rows: MemoryRows) -> None:
        super().__init__(rows)
        self.reads = self.scans = self.under_way = self.most = 0
        self.hidden: set[str] = set()

    async def read(self, key: str) -> ReadResult:
        self.reads += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(0)
            return await super().read(key)
        finally:
            self.under_way -= 1

    async def scan(self, prefix: str, cursor: str | None = None, limit: int = 1000) -> ScanPage:
        self.scans += 1
        page = await super().scan(prefix, cursor, limit)
        shown = tuple(row for row in page.rows if row.key not in self.hidden)
        return ScanPage(shown, page.cursor, page.store_now_ms)


async def test_many_rows_are_read_in_few_calls() -> None:
    """What a node rechecks after its lease was over (B6.4): not one call for each object."""
    node = Node(MemoryRows(), "n", set())
    await node.take_lease()
    keys = [spot_key(f"s{number:04}") for number in range(1500)]
    for key in keys:
        await node.directory.create(key, ENTRY)
    store = CountingStore(node.store._open())
    directory = Directory(store, lambda: node.owner, lambda run: True, lambda: True)
    store.hidden = {authority_row_key(keys[7])}
    missing = spot_key("nobody")
    found = await directory.read_most([*keys[:1200], missing])
    assert (store.reads, store.scans) == (2, 2)
    assert found[missing] is None
    rows = [found[key] for key in keys[:1200]]
    assert [None if row is None else row.row.object_id for row in rows] == [
        f"s{number:04}" for number in range(1200)
    ]
    few = await directory.read_most(keys[:3])
    assert (store.reads, store.scans, len(few)) == (5, 2, 3)


async def test_the_rows_of_a_large_unit_cost_nothing_for_what_else_the_store_holds() -> None:
    node = Node(MemoryRows(), "n", set())
    await node.take_lease()
    keys = [spot_key(f"s{number:04}") for number in range(300)]
    for key in keys:
        await node.directory.create(key, ENTRY)
    store = CountingStore(node.store._open())
    directory = Directory(store, lambda: node.owner, lambda run: True, lambda: True)
    missing = spot_key("nobody")
    unit = [*keys[:200], missing]
    found = await directory.read_many(unit)
    assert list(found) == unit
    assert (store.reads, store.scans, store.most) == (201, 0, READS_AT_ONCE)
    assert found[missing] is None
    assert all(row is not None and row.row.key == key for key, row in found.items() if key != missing)
    assert await directory.read_many(()) == {}
