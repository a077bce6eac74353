"""The rows of a unit: read in the order that proves something, written all at once or not at all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sojourn.handoff import events
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, actor_key, spot_key
from sojourn.location import Applied, Found, StoreUnavailable, StoreUnknown
from sojourn.ownership import VersionedRow, create_object, move_unit, recognise_commit, rewrite_object
from sojourn.rows import (
    AuthorityRow,
    Binding,
    MarkOutcome,
    Membership,
    Owner,
    RowState,
    authority_row_key,
    decode_authority,
    without_member,
)
from sojourn.store.memory import MemoryLocationStore
from sojourn.workers.directory import Directory
from sojourn.workers.handoff_store import lose_unit, read_facts, write_fence, write_owner
from sojourn.workers.unit_rows import UnitRows

A = Owner(b"a", 1, "a@1", 1)
B = Owner(b"b", 1, "b@1", 1)
ROOM, OTHER = spot_key("room"), spot_key("other")
P1, P2 = actor_key("p1"), actor_key("p2222222222")
MOVE = (0, 7)
NO_CHANGE: dict[str, Membership] = {}
BINDING = Binding(b"c", 1, "c@1", 1, b"s", 1)


def row(key: ObjectKey, owner: Owner = A, **more: Any) -> AuthorityRow:
    actor = key[:1] == b"a"
    return AuthorityRow(
        kind=ObjectKind.ACTOR if actor else ObjectKind.USER_SPOT,
        object_id=key[1:].decode(),
        stable_type="Player" if actor else "Room",
        object_generation=3,
        owner_generation=1,
        owner=owner,
        membership=Membership(ObjectKind.USER_SPOT, "room", 3) if actor else None,
        **more,
    )


class Bench:
    """A store with a room and two players, and a directory that notes what it reads."""

    def __init__(self) -> None:
        self.store = MemoryLocationStore()
        self.read: list[ObjectKey] = []
        self.directory = Directory(self.store, lambda: B, lambda run: True, lambda: True)
        reading = self.directory.read

        async def noted(key: ObjectKey) -> VersionedRow | None:
            self.read.append(key)
            return await reading(key)

        self.directory.read = noted  # type: ignore[method-assign]

    async def furnish(self) -> Bench:
        for each in (row(ROOM, members=("p2222222222", "p1")), row(P1), row(P2)):
            await self.write(create_object(each))
        return self

    async def write(self, write: Any) -> None:
        assert isinstance(await self.store.write(*write), Applied)

    async def found(self, key: ObjectKey) -> VersionedRow:
        found = await self.store.read(authority_row_key(key))
        assert isinstance(found, Found)
        return VersionedRow(decode_authority(found.value), found.version)

    async def touch(self, key: ObjectKey, **changes: Any) -> None:
        found = await self.found(key)
        await self.write(rewrite_object(found, msgspec.structs.replace(found.row, **changes)))

    def unit(self, key: ObjectKey = ROOM, *, shared: bool = True, **spots: ObjectKey) -> UnitRows:
        return UnitRows(self.directory, key, lambda row: shared, **spots)


@pytest.fixture
async def bench() -> Bench:
    return await Bench().furnish()


async def facts(rows: UnitRows) -> Any:
    event = await read_facts(rows)
    assert isinstance(event, events.RowRead)
    return event.row


def conditions(found: Any) -> tuple[tuple[ObjectKey, str], ...]:
    return tuple(each.condition for each in found.others)


async def test_the_inventory_is_what_the_spot_lists_in_the_order_of_authority_keys(bench: Bench) -> None:
    """R4.2.2: `zla1:a:11:...` comes before `zla1:a:2:...`."""
    found = await facts(bench.unit())
    assert [each.key for each in found.others] == [P2, P1]
    assert {each.owner for each in found.others} == {NodeRun(b"a", 1)}
    assert (found.object_generation, found.owner_generation, found.bound) == (3, 1, False)


async def test_the_own_row_is_read_last(bench: Bench) -> None:
    rows = bench.unit()
    await rows.read()
    assert bench.read[-1] == ROOM
    bench.read.clear()
    await rows.read()
    assert bench.read == [P2, P1, ROOM]


@pytest.mark.parametrize(("key", "shared"), [(ROOM, False), (P1, True)], ids=["PerActor", "Actor"])
async def test_a_unit_of_one_is_one_read(bench: Bench, key: ObjectKey, shared: bool) -> None:
    found = await facts(bench.unit(key, shared=shared))
    assert found.others == ()
    assert bench.read == [key]


async def test_members_that_change_while_they_are_read_are_read_again(bench: Bench) -> None:
    rows = bench.unit()
    await rows.read()
    room = await bench.found(ROOM)
    await bench.write(rewrite_object(room, without_member(room.row, "p1")))
    assert [each.key for each in (await facts(rows)).others] == [P2]
    assert rows.first == room, "the own row as first read stays"


async def test_a_member_without_a_row_is_seen_as_missing(bench: Bench) -> None:
    room = await bench.found(ROOM)
    await bench.write(rewrite_object(room, msgspec.structs.replace(room.row, members=("ghost",))))
    (ghost,) = (await facts(bench.unit())).others
    assert (ghost.key, ghost.version) == (actor_key("ghost"), "")


async def test_one_write_moves_all_and_keeps_what_another_wrote(bench: Bench) -> None:
    rows = bench.unit()
    found = await facts(rows)
    await bench.touch(P1, binding=BINDING)
    write = (found.version, conditions(found), B, MOVE, NO_CHANGE)
    assert await write_owner(rows, *write) == events.OwnerWriteConflicted()
    assert [(await bench.found(key)).row.owner for key in (ROOM, P1, P2)] == [A, A, A]
    again = await facts(rows)
    assert again.version == found.version
    assert (
        await write_owner(rows, found.version, conditions(again), B, MOVE, NO_CHANGE) == events.OwnerWritten()
    )
    for key in (ROOM, P1, P2):
        now = (await bench.found(key)).row
        assert recognise_commit(now, 1, MOVE)
        assert now.owner == B
    assert (await bench.found(P1)).row.binding == BINDING
    assert (await bench.found(P2)).row.membership == row(P2).membership


async def test_versions_that_were_not_read_are_never_written(bench: Bench) -> None:
    rows = bench.unit()
    found = await facts(rows)
    stale = ((P2, "elsewhere"), (P1, conditions(found)[1][1]))
    assert await write_owner(rows, found.version, stale, B, MOVE, NO_CHANGE) == events.OwnerWriteConflicted()
    assert await write_fence(rows, stale, MOVE) == events.FenceConflicted()
    assert await lose_unit(rows, found.version, stale) == events.LostConflicted()


async def test_the_own_row_is_written_under_the_named_version_only(bench: Bench) -> None:
    rows = bench.unit()
    found = await facts(rows)
    await bench.touch(ROOM)
    again = await facts(rows)
    assert again.version != found.version
    expected = (found.version, conditions(again), B, MOVE, NO_CHANGE)
    assert await write_owner(rows, *expected) == events.OwnerWriteConflicted()


async def test_fence_and_lost_mark_stand_in_every_row(bench: Bench) -> None:
    rows = bench.unit()
    found = await facts(rows)
    assert await write_fence(rows, conditions(found), MOVE) == events.FenceApplied()
    for key in (ROOM, P1, P2):
        mark = (await bench.found(key)).row.relocation
        assert mark is not None
        assert mark.outcome is MarkOutcome.FENCED
    found = await facts(rows)
    assert await lose_unit(rows, found.version, conditions(found)) == events.LostMarked()
    assert {(await bench.found(key)).row.state for key in (ROOM, P1, P2)} == {RowState.LOST}
    assert await lose_unit(rows, found.version, ()) == events.LostConflicted()


async def test_what_the_store_does_not_tell_is_told_as_unknown(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = bench.unit()
    found = await facts(rows)

    async def silent(*_: Any) -> Any:
        raise StoreUnknown("no answer", applied="unknown")

    async def away(*_: Any) -> Any:
        raise StoreUnavailable("away", applied="no")

    expected = (found.version, conditions(found))
    monkeypatch.setattr(bench.store, "write", silent)
    assert await write_owner(rows, *expected, B, MOVE, NO_CHANGE) == events.OwnerWriteUnknown()
    assert await write_fence(rows, conditions(found), MOVE) == events.FenceUnknown()
    assert await lose_unit(rows, *expected) == events.LostUnknown()
    monkeypatch.setattr(bench.store, "write", away)
    assert await write_owner(rows, *expected, B, MOVE, NO_CHANGE) == events.OwnerWriteFailed()
    monkeypatch.setattr(bench.store, "read", away)
    assert await read_facts(rows) == events.RowReadFailed()


# a cross-node join (section 8): owner and both memberships in one write


async def test_a_join_changes_owner_membership_and_both_lists_at_once(bench: Bench) -> None:
    await bench.write(create_object(row(OTHER, B, members=("zoe",))))
    rows = bench.unit(P1, joined=OTHER)
    found = await facts(rows)
    assert [(each.key, each.moves) for each in found.others] == [(ROOM, False), (OTHER, False)]
    assert [each.row.key for each in rows.present()] == [P1], "Spots take no part in the move itself"
    await bench.touch(OTHER)
    written = (found.version, conditions(found), B, MOVE, NO_CHANGE)
    assert await write_owner(rows, *written) == events.OwnerWriteConflicted()
    assert (await bench.found(ROOM)).row.members == ("p2222222222", "p1")
    again = await facts(rows)
    assert (
        await write_owner(rows, found.version, conditions(again), B, MOVE, NO_CHANGE) == events.OwnerWritten()
    )
    actor, left, joined = [(await bench.found(key)).row for key in (P1, ROOM, OTHER)]
    assert (actor.owner, actor.owner_generation) == (B, 2)
    assert actor.membership == Membership(ObjectKind.USER_SPOT, "other", 3)
    assert (left.owner, left.owner_generation, left.members) == (A, 1, ("p2222222222",))
    assert (joined.owner, joined.owner_generation, joined.members) == (B, 1, ("p1", "zoe"))


async def test_a_join_from_an_entry_spot_changes_one_list(bench: Bench) -> None:
    loner = actor_key("loner")
    entry = Membership(ObjectKind.ENTRY_SPOT, "a", 1)
    await bench.write(create_object(msgspec.structs.replace(row(loner), membership=entry)))
    rows = bench.unit(loner, joined=ROOM)
    found = await facts(rows)
    written = (found.version, conditions(found), B, MOVE, NO_CHANGE)
    assert await write_owner(rows, *written) == events.OwnerWritten()
    assert (await bench.found(loner)).row.membership == Membership(ObjectKind.USER_SPOT, "room", 3)
    assert (await bench.found(ROOM)).row.members == ("p2222222222", "p1", "loner")


async def test_moved_rows_are_those_of_the_plain_write_without_spots(bench: Bench) -> None:
    rows = bench.unit()
    await rows.read()
    unit = list(rows.present())
    assert rows.moved(unit, B, MOVE, NO_CHANGE) == move_unit(unit, B, MOVE, NO_CHANGE)
