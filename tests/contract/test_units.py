"""CT-01 for User Spots: a Spot with members moves as one unit, or each of them as one of its own (R3.2, R3.3).

The units are made by hand: the peer owns a Spot and its members, and gives them to a real node.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sojourn.ids import ObjectKey, ObjectKind, actor_key, spot_key
from sojourn.ownership import VersionedRow, create_object, move_unit, rewrite_object
from sojourn.rows import AuthorityRow, MarkOutcome, Membership, Owner, RowState
from sojourn.wire import (
    ActorIdentity,
    ApplicationState,
    Envelope,
    RelocationFailed,
    RelocationId,
    SavedWork,
    UserSpotIdentity,
)
from sojourn.workers.local_node import LocalNode

from tests.contract.hands import HandSource, HandTarget, Taken, move_to, source
from tests.contract.peer import Peer
from tests.contract.stand import Stand, fresh
from tests.runtime.cluster import gate

pytestmark = pytest.mark.asyncio(loop_scope="module")
OPTIONS = {"relocation_cutover_wait_ms": 4_000}
NAMES = ("ann", "bob")


class Party:
    """A Spot and its members, all owned by the peer."""

    def __init__(self, peer: Peer, stable_type: str) -> None:
        self.peer = peer
        self.stable_type = stable_type
        self.spot = spot_key(fresh("spot"))
        self.ann, self.bob = (actor_key(fresh(name)) for name in NAMES)
        self.book = fresh("book")

    @property
    def keys(self) -> tuple[ObjectKey, ...]:
        """Everybody, in the order of their authority keys."""
        return (self.ann, self.bob, self.spot)

    async def made(self) -> Party:
        """Write the rows."""
        members = [self._row(key) for key in (self.ann, self.bob)]
        spot = self._row(self.spot)
        await self.peer.write(create_object(spot) + create_object(members[0]) + create_object(members[1]))
        for key in self.keys:
            self.peer.generations[key] = 1
        return self

    def _row(self, key: ObjectKey) -> AuthorityRow:
        owner, spot_id = self.peer.owner, self.spot[1:].decode()
        if key == self.spot:
            return AuthorityRow(
                kind=ObjectKind.USER_SPOT,
                object_id=spot_id,
                stable_type=self.stable_type,
                object_generation=1,
                owner_generation=1,
                owner=owner,
                members=tuple(member[1:].decode() for member in (self.ann, self.bob)),
            )
        return AuthorityRow(
            kind=ObjectKind.ACTOR,
            object_id=key[1:].decode(),
            stable_type="Guest",
            object_generation=1,
            owner_generation=1,
            owner=owner,
            membership=Membership(ObjectKind.USER_SPOT, spot_id, 1),
        )

    async def rows(self) -> dict[ObjectKey, VersionedRow]:
        """What stands in the store."""
        found = {key: await self.peer.stand.row(key) for key in self.keys}
        return {key: row for key, row in found.items() if row is not None}

    async def handed(self, key: ObjectKey, participants: int) -> Taken:
        """What a move of this object starts from: no state, no timers."""
        row = await self.peer.stand.row(key)
        assert row is not None
        name = key[1:].decode()
        identity: Any = UserSpotIdentity(name, 1, 1) if key == self.spot else ActorIdentity(name, 1, 1)
        states = tuple(ApplicationState(number, None) for number in range(1, participants + 1))
        return Taken(key, row, Envelope(RelocationId(1, 1), identity, 1, states))

    def message(self, key: ObjectKey, text: str) -> bytes:
        """A request to one of them that is already under way."""
        return self.peer.saved(key, "add", self.book, text, route=self.peer.new_route())

    async def give(self, node: LocalNode) -> HandSource:
        """Move the whole unit to a node."""
        move = await source(self.peer, node, await self.handed(self.spot, 3))
        await move.give()
        return move


async def owners(party: Party) -> set[tuple[bytes, int]]:
    """Owner and owner generation of every row."""
    return {(each.row.owner.rid, each.row.owner_generation) for each in (await party.rows()).values()}


async def test_ct_01_spot_wide_spot_and_members_change_owner_in_one_write(stand: Stand, peer: Peer) -> None:
    """R3.3, B6.5: also when a member's row was rewritten behind the target's back. One order for all (B1.6)."""
    party = await Party(peer, "Hall").made()
    ann, bob, spot = party.keys
    saved = [
        SavedWork(1, 2, party.message(ann, "2")),
        SavedWork(2, 1, party.message(bob, "1")),
        SavedWork(2, 4, party.message(bob, "4")),
        SavedWork(3, 3, party.message(spot, "3")),
    ]
    move = await source(peer, stand.a, await party.handed(spot, 3), saved)
    await move.ready()
    direct = peer.submit(stand.a, bob, "add", party.book, "8")
    move.relay(party.message(spot, "5"), party.message(ann, "6"), party.message(spot, "7"))
    await peer.settle(stand.a)
    before = await party.rows()
    assert {each.row.owner for each in before.values()} == {peer.owner}
    await peer.write(rewrite_object(before[bob], before[bob].row))  # B6.5: only another row changed
    move.cutover()
    await move.committed()
    after = await party.rows()
    assert {(each.row.owner.rid, each.row.owner_generation) for each in after.values()} == {
        (stand.a.rid.encode(), 2)
    }
    assert {each.row.relocation for each in after.values()} == {after[spot].row.relocation}
    assert after[ann].row.membership == before[ann].row.membership
    assert after[spot].row.members == before[spot].row.members
    assert (await peer.answer(direct)).value == 3
    assert stand.ran(party.book) == [
        "bob 1", "ann 2", "hall 3", "bob 4", "hall 5", "ann 6", "hall 7", "bob 8"
    ]  # fmt: skip


@pytest.mark.parametrize("asked", ["spot", "member"])
async def test_a_node_gives_a_unit_on_whole_whoever_of_it_is_asked_for(
    stand: Stand, peer: Peer, asked: str
) -> None:
    party = await Party(peer, "Hall").made()
    await party.give(stand.a)
    for key in party.keys:
        assert await peer.ask(stand.a, key, "add", party.book, "there") == 1
    arguments = {"key": party.spot if asked == "spot" else party.ann, "to": stand.b.rid, "deadline_s": 10.0}
    result = await stand.a.call("relocate", arguments, timeout_s=30.0)
    assert result["outcome"] == "moved", result
    assert await owners(party) == {(stand.b.rid.encode(), 3)}
    for key in party.keys:  # followed from the old owner, with the state that moved
        assert await peer.ask(stand.a, key, "add", party.book, "on") == 2
    assert await peer.ask(stand.b, party.bob, "add", party.book, "direct") == 3


async def test_a_source_fences_every_row_of_a_unit(stand: Stand, peer: Peer) -> None:
    """B6.7: the target never answers; the unit serves on where it was."""
    party = await Party(peer, "Hall").made()
    await party.give(stand.a)
    target = HandTarget(peer, stand.a, party.spot)
    moving = move_to(peer, stand.a, party.spot, deadline_s=3.0)
    prepare = await target.prepared()
    assert prepare.object == UserSpotIdentity(party.spot[1:].decode(), 1, 2)
    waiting = peer.submit(stand.a, party.ann, "add", party.book, "held")
    assert (await moving)["outcome"] == "failed"
    rows = await party.rows()
    assert await owners(party) == {(stand.a.rid.encode(), 2)}
    marks = {each.row.relocation for each in rows.values()}
    assert len(marks) == 1
    mark = marks.pop()
    assert mark is not None
    assert mark.outcome is MarkOutcome.FENCED
    assert (await peer.answer(waiting)).value == 1


async def test_a_unit_is_lost_with_its_worker_as_a_whole(stand: Stand, peer: Peer) -> None:
    """B6.8: Spot and members are marked in one write."""
    party = await Party(peer, "Hall").made()
    await party.give(stand.b)
    peer.submit(stand.b, party.spot, "break_off", request=False)
    lost = await stand.row_when(party.bob, lambda found: found.row.state is RowState.LOST)
    rows = await party.rows()
    assert {each.row.state for each in rows.values()} == {RowState.LOST}
    assert {each.row.owner_generation for each in rows.values()} == {2}
    assert rows[party.bob] == lost
    answer = await peer.answer(peer.submit(stand.b, party.ann, "add", party.book, "late"))
    assert answer.error in ("DataLost", "NotFound")


async def test_a_unit_that_ends_while_it_is_sealed_leaves_no_request_open(stand: Stand, peer: Peer) -> None:
    """B6.6, B3.1: nothing is captured yet, so what the members had queued ends as what the Spot had."""
    party = await Party(peer, "Hall").made()
    await party.give(stand.b)
    async with gate() as entrance:
        peer.submit(stand.b, party.spot, "break_off_at", entrance.port, request=False)
        await entrance.arrived()
        queued = [peer.submit(stand.b, key, "add", party.book, "queued") for key in party.keys]
        await peer.settle(stand.b)
        before = await stand.started(stand.b)
        moving = move_to(peer, stand.b, party.spot)
        await stand.sealing(stand.b, before)
        held = [peer.submit(stand.b, key, "add", party.book, "held") for key in party.keys]
        await peer.settle(stand.b)
        entrance.open()
    assert (await moving)["outcome"] == "failed"
    async with asyncio.timeout(10):
        assert [(await peer.answer(each)).error for each in queued] == ["Unavailable"] * 3
        assert [(await peer.answer(each)).error for each in held] == ["DataLost"] * 3
    await stand.row_when(party.bob, lambda found: found.row.state is RowState.LOST)
    assert {each.row.state for each in (await party.rows()).values()} == {RowState.LOST}


async def test_a_unit_takes_the_place_of_a_member_that_was_staged_alone(stand: Stand, peer: Peer) -> None:
    """B8.16: one temporary queue, two rows, and both stand: what came for the member goes on with the unit."""
    party = await Party(peer, "Hall").made()
    alone = await source(peer, stand.a, await party.handed(party.ann, 1))
    alone.prepare()
    waiting = peer.submit(stand.a, party.ann, "add", party.book, "direct")
    await peer.settle(stand.a)
    unit = await source(peer, stand.a, await party.handed(party.spot, 3))
    unit.offer()
    refused = await alone.replied()
    assert isinstance(refused, RelocationFailed)
    assert int(refused.failure_code) == 21
    await unit.ready()
    later = peer.submit(stand.a, party.ann, "add", party.book, "later")
    await unit.give(party.message(party.bob, "relayed"))
    assert [(await peer.answer(each)).value for each in (waiting, later)] == [1, 2]
    assert stand.ran(party.book) == ["bob relayed", "ann direct", "ann later"]
    assert await owners(party) == {(stand.a.rid.encode(), 2)}


async def test_a_unit_gives_way_to_a_member_that_sent_relay_ready(stand: Stand, peer: Peer) -> None:
    """B8.16: its source may be past the boundary. The unit ends with an explicit failure and stages nobody."""
    party = await Party(peer, "Hall").made()
    alone = await source(peer, stand.a, await party.handed(party.ann, 1))
    await alone.ready()
    unit = await source(peer, stand.a, await party.handed(party.spot, 3))
    unit.offer()
    refused = await unit.replied()
    assert isinstance(refused, RelocationFailed)
    assert int(refused.failure_code) == 33
    waiting = peer.submit(stand.a, party.ann, "add", party.book, "direct")
    await peer.settle(stand.a)
    await alone.give(party.message(party.ann, "relayed"))
    assert (await peer.answer(waiting)).value == 2
    assert {key: found.row.owner.rid for key, found in (await party.rows()).items()} == {
        party.ann: stand.a.rid.encode(),
        party.bob: peer.run.rid,
        party.spot: peer.run.rid,
    }


async def test_a_unit_whose_own_row_has_changed_ends_no_attempt_of_its_members(
    stand: Stand, peer: Peer
) -> None:
    party = await Party(peer, "Hall").made()
    alone = await source(peer, stand.a, await party.handed(party.ann, 1))
    alone.prepare()
    stale = await source(peer, stand.a, await party.handed(party.spot, 3))
    spot = (await party.rows())[party.spot]
    await peer.write(rewrite_object(spot, spot.row))
    stale.offer()
    assert isinstance(await stale.replied(), RelocationFailed)
    alone.chunk(0)
    await alone.give()
    assert (await party.rows())[party.ann].row.owner.rid == stand.a.rid.encode()


async def test_a_restore_request_is_refused_when_a_member_is_elsewhere(stand: Stand, peer: Peer) -> None:
    """R4.5.1 does not hold for the unit: an explicit failure, nothing of it is left."""
    party = await Party(peer, "Hall").made()
    found = (await party.rows())[party.bob]
    other = await stand.descriptor(stand.b)
    elsewhere = Owner(other.rid, other.generation, other.owner_id, other.lease_generation)
    await peer.write(move_unit([found], elsewhere, (7, 7)))
    move = await source(peer, stand.a, await party.handed(party.spot, 3))
    move.offer()
    answer = await move.replied()
    assert isinstance(answer, RelocationFailed)
    assert int(answer.failure_code) == 33


async def test_ct_01_per_actor_authority_and_members_are_units_of_their_own(stand: Stand, peer: Peer) -> None:
    """R3.2: each by the same flow, and each in the Spot it was in (section 8)."""
    party = await Party(peer, "Arena").made()
    ann, bob, spot = party.keys
    before = await party.rows()
    shell = await source(peer, stand.a, await party.handed(spot, 1), [party.message(spot, "1")])
    await shell.give(party.message(spot, "2"))
    rows = await party.rows()
    assert rows[spot].row.owner.rid == stand.a.rid.encode()
    assert (rows[ann], rows[bob]) == (before[ann], before[bob])
    member = await source(peer, stand.b, await party.handed(ann, 1))
    await member.give(party.message(ann, "3"))
    rows = await party.rows()
    assert rows[ann].row.owner.rid == stand.b.rid.encode()
    assert rows[ann].row.membership == before[ann].row.membership
    assert rows[bob] == before[bob]
    async with asyncio.timeout(10):
        assert await peer.ask(stand.a, spot, "add", party.book, "4") == 3
        assert await peer.ask(stand.b, ann, "add", party.book, "5") == 2
    assert sorted(stand.ran(party.book)) == ["ann 3", "ann 5", "arena 1", "arena 2", "arena 4"]
