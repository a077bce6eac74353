"""A Spot and the Actors that share its turn: one mailbox, one turn, one unit of a move (B1.6, R3.3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
import sojourn as sj
from sojourn.control import DropObject, Restored, SealRefused, UnitMember
from sojourn.ids import actor_key, spot_key
from sojourn.spots.cell import Cell, Phase
from sojourn.spots.groups import MemberCell, in_unit_order, join_turn
from sojourn.spots.host import ObjectHost
from sojourn.wire.envelope import decode_envelope
from sojourn.wire.envelope_rules import validate_envelope

from tests.unit.spots.worlds import World, settle

app = sj.App("rooms")
SEEN: list[str] = []
GATES: dict[str, asyncio.Event] = {}


@app.spot
class Room(sj.UserSpot):
    def __init__(self) -> None:
        self.notes: list[str] = []

    @sj.send
    async def note(self, text: str) -> None:
        self.notes.append(text)
        SEEN.append(f"room {text}")

    @sj.request
    async def hold(self) -> list[str]:
        await GATES.setdefault("room", asyncio.Event()).wait()
        return self.notes

    @sj.request
    async def ask_member(self, name: str) -> int:
        return await self.actor(Player, name).request(Player.count)

    @sj.request
    async def ask_outside(self, name: str) -> int:
        return await self.actor(Friend, name).request(Friend.ask_back, "p1")


@app.actor
class Player(sj.Actor):
    def __init__(self, points: int = 0) -> None:
        self.points = points
        self.big = bytes(points * 1000)

    @sj.send
    async def note(self, text: str) -> None:
        self.points += 1
        SEEN.append(f"{self.id} {text}")

    @sj.request
    async def count(self) -> int:
        return self.points

    @sj.request
    async def begin(self) -> None:
        self.start_timer(Player.tick, every=1)

    @sj.timer
    async def tick(self, tick: sj.Tick) -> None:
        SEEN.append(f"{self.id} tick {tick.delivery_index}")

    def __getstate__(self) -> Any:
        return self.__dict__


@app.actor
class Stubborn(sj.Actor):
    fails: ClassVar[bool] = True

    def capture(self) -> bytes:
        if Stubborn.fails:
            raise ValueError("not now")
        return b""

    def restore(self, state: bytes) -> None:
        raise ValueError("not here")


@app.actor
class Friend(sj.Actor):
    @sj.request
    async def ask_back(self, name: str) -> int:
        return await self.actor(Player, name).request(Player.count)


def member(name: str, stable_type: str = "Player", owner_generation: int = 6) -> UnitMember:
    return UnitMember(actor_key(name), stable_type, 5, owner_generation)


PLAYERS = (member("p1"), member("p2222222222"))
P2 = "p2222222222"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(app)
    SEEN.clear()
    GATES.clear()
    Stubborn.fails = True
    yield world
    await world.close()


def furnish(world: World, host: ObjectHost) -> Cell:
    """A room with two players of 3 and 70 points."""
    assert world.make(host, Room, "room").error is None
    for name, points in (("p1", 3), (P2, 70)):
        world.make(host, Player, name, points)
    room = host.cells[spot_key("room")]
    for name in ("p1", P2):
        join_turn(room, host.cells[actor_key(name)])
    return room


async def test_spot_and_members_take_turns_in_one_order(world: World) -> None:
    host = world.host()
    furnish(world, host)
    room = host.references.spot(Room, "room")
    one, two = (host.references.actor(Player, name) for name in ("p1", P2))
    running = asyncio.ensure_future(room.request(Room.hold))
    await settle()
    for number in range(3):
        await two.send(Player.note, str(number))
        await room.send(Room.note, str(number))
        await one.send(Player.note, str(number))
    await settle()
    assert SEEN == [], "a member ran while a turn of its Spot was running"
    GATES["room"].set()
    assert await running == []
    await settle()
    assert [f"{who} {number}" for number in range(3) for who in (P2, "room", "p1")] == SEEN


async def test_a_timer_of_a_member_waits_for_the_turn_of_its_spot(world: World) -> None:
    host = world.host()
    furnish(world, host)
    await host.references.actor(Player, "p1").request(Player.begin)
    running = asyncio.ensure_future(host.references.spot(Room, "room").request(Room.hold))
    await world.clock.advance(2.5)
    assert SEEN == []
    GATES["room"].set()
    await running
    await settle()
    assert SEEN == ["p1 tick 1"]


@pytest.mark.parametrize("way", ["member", "outside"])
async def test_awaiting_the_own_turn_is_refused_at_once(world: World, way: str) -> None:
    """B1.6: also through an object outside that asks back."""
    host = world.host()
    furnish(world, host)
    world.make(host, Friend, "f")
    room = host.references.spot(Room, "room")
    handler, name = (Room.ask_member, "p1") if way == "member" else (Room.ask_outside, "f")
    with pytest.raises(sj.InternalFailure, match=r"would wait for .* forever"):
        await room.request(handler, name)
    assert await host.references.actor(Player, "p1").request(Player.count) == 3


async def test_only_an_idle_actor_of_no_group_can_join(world: World) -> None:
    host = world.host()
    room = furnish(world, host)
    with pytest.raises(sj.InvalidOperation, match="in a group already"):
        join_turn(room, host.cells[actor_key("p1")])
    world.make(host, Player, "p3")
    with pytest.raises(sj.InvalidOperation, match="in a group already"):
        join_turn(host.cells[actor_key("p1")], host.cells[actor_key("p3")])
    world.make(host, Player, "p4", opened=False)
    with pytest.raises(sj.InvalidOperation, match="between turns"):
        join_turn(room, host.cells[actor_key("p4")])


async def test_what_waited_for_the_actor_stands_behind_what_waited_for_the_spot(world: World) -> None:
    host = world.host()
    world.make(host, Room, "room", opened=False)
    world.make(host, Player, "p1", opened=False)
    await host.references.actor(Player, "p1").send(Player.note, "early")
    await host.references.spot(Room, "room").send(Room.note, "late")
    room = host.cells[spot_key("room")]
    join_turn(room, host.cells[actor_key("p1")])
    world.open(host, Room, "room", 0)
    await settle()
    assert SEEN == ["room late", "p1 early"]


async def test_the_unit_moves_whole_in_one_order(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    furnish(world, here)
    far = there.references
    running = asyncio.ensure_future(here.references.spot(Room, "room").request(Room.hold))
    await settle()
    await here.references.actor(Player, "p1").send(Player.note, "0")
    for number in range(1, 4):
        await here.references.spot(Room, "room").send(Room.note, str(number))
        await far.actor(Player, P2).send(Player.note, str(number))
        await here.references.actor(Player, "p1").send(Player.note, str(number))
    answer = asyncio.ensure_future(far.actor(Player, "p1").request(Player.count))
    await settle()
    world.seal(here, Room, "room", members=PLAYERS)
    GATES["room"].set()
    await running
    await settle()
    stream = world.captured(here)
    envelope = decode_envelope(stream)
    validate_envelope(envelope, participants=3)
    # `zla1:a:11:p2222222222` comes before `zla1:a:2:p1`, and Actors come before Spots.
    assert [(work.participant_id, work.order) for work in envelope.saved_work] == [
        (1, 3), (1, 6), (1, 9), (2, 1), (2, 4), (2, 7), (2, 10), (2, 11), (3, 2), (3, 5), (3, 8)
    ]  # fmt: skip
    moved = tuple(member(each.key[1:].decode(), owner_generation=7) for each in PLAYERS)
    assert world.restore(there, Room, "room", stream, members=moved).error is None
    unit = in_unit_order(there.cells[spot_key("room")])
    assert [each.key for each in unit] == [actor_key(P2), actor_key("p1"), spot_key("room")]
    assert [each.owner_generation for each in unit] == [7, 7, 7]
    assert {each.phase for each in unit} == {Phase.CLOSED}
    for each in unit:
        world.owner[each.key] = b"b"
    world.open(there, Room, "room")
    world.drop(here, Room, "room")
    assert not here.cells
    assert await answer == 7
    await settle()
    expected = ["p1 0"]
    expected += [f"{who} {number}" for number in range(1, 4) for who in ("room", P2, "p1")]
    assert expected == SEEN
    assert await far.actor(Player, P2).request(Player.count) == 73
    instance: Any = there.cells[actor_key(P2)].instance
    assert len(instance.big) == 70_000


async def test_timers_and_due_ticks_of_a_member_move_with_it(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    furnish(world, here)
    await here.references.actor(Player, "p1").request(Player.begin)
    running = asyncio.ensure_future(here.references.spot(Room, "room").request(Room.hold))
    await world.clock.advance(1.5)
    world.seal(here, Room, "room", members=PLAYERS)
    GATES["room"].set()
    await running
    await settle()
    envelope = decode_envelope(world.captured(here))
    assert [timer.participant_id for timer in envelope.timer_registrations] == [2]
    assert [tick.participant_id for tick in envelope.pending_timer_ticks] == [2]
    assert world.restore(there, Room, "room", world.captured(here), members=PLAYERS).error is None
    world.open(there, Room, "room")
    world.drop(here, Room, "room")
    await world.clock.advance(1)
    assert SEEN == ["p1 tick 1", "p1 tick 2"]


@pytest.mark.parametrize("moved", [False, True])
async def test_a_unit_goes_on_where_it_was_when_the_move_ends_early(world: World, moved: bool) -> None:
    """Under the next owner generation where that was written before the other worker ended (B8.7)."""
    host = world.host()
    room = furnish(world, host)
    one = host.references.actor(Player, "p1")
    world.seal(host, Room, "room", members=PLAYERS)
    assert {each.phase for each in in_unit_order(room)} == {Phase.CAPTURED}
    before = [each.owner_generation for each in in_unit_order(room)]
    world.unseal(host, Room, "room", moved=moved)
    assert [each.owner_generation - moved for each in in_unit_order(room)] == before
    await settle()
    await one.send(Player.note, "again")
    await settle()
    assert SEEN == ["p1 again"]


def refusal(world: World) -> str:
    (refused,) = world.port().controls(SealRefused)
    return str(refused.error.fields["message"])


@pytest.mark.parametrize("members", [(), PLAYERS[:1], (*PLAYERS, member("p3"))], ids=len)
async def test_a_seal_for_other_members_than_the_spot_has_is_refused(
    world: World, members: tuple[UnitMember, ...]
) -> None:
    host = world.host()
    room = furnish(world, host)
    world.seal(host, Room, "room", members=members)
    assert "members of" in refusal(world)
    assert room.phase is Phase.OPEN


async def test_a_member_does_not_move_without_its_spot(world: World) -> None:
    host = world.host()
    furnish(world, host)
    world.seal(host, Player, "p1")
    assert "moves with" in refusal(world)


async def test_one_member_that_cannot_be_captured_keeps_the_unit_here(world: World) -> None:
    host = world.host()
    room = furnish(world, host)
    world.make(host, Stubborn, "p3")
    join_turn(room, host.cells[actor_key("p3")])
    world.seal(host, Room, "room", members=(*PLAYERS, member("p3", "Stubborn")))
    assert "not now" in refusal(world)
    assert await host.references.actor(Player, "p1").request(Player.count) == 3


async def test_one_member_that_cannot_be_restored_drops_the_unit(world: World) -> None:
    """R4.5.4: the Spot scope and its staged Actors."""
    here, there = world.host("a"), world.host("b")
    room = furnish(world, here)
    Stubborn.fails = False
    world.make(here, Stubborn, "p3")
    join_turn(room, here.cells[actor_key("p3")])
    members = (*PLAYERS, member("p3", "Stubborn"))
    world.seal(here, Room, "room", members=members)
    restored = world.restore(there, Room, "room", world.captured(here), members=members)
    assert isinstance(restored, Restored)
    assert restored.error is not None
    assert not there.cells


async def test_a_member_that_is_here_already_ends_the_arrival(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    furnish(world, here)
    world.make(there, Player, "p1")
    world.seal(here, Room, "room", members=PLAYERS)
    restored = world.restore(there, Room, "room", world.captured(here), members=PLAYERS)
    assert restored.error is not None
    assert list(there.cells) == [actor_key("p1")]


async def test_a_spot_ends_with_its_members_and_not_before_its_turn(world: World) -> None:
    host = world.host()
    room = furnish(world, host)
    host.receive_control(DropObject(actor_key("p1"), ""))
    assert isinstance(host.cells[actor_key("p1")], MemberCell), "a member ends with its Spot"
    running = asyncio.ensure_future(host.references.spot(Room, "room").request(Room.hold))
    await settle()
    await host.references.actor(Player, "p1").send(Player.note, "never")
    world.drop(host, Room, "room", "ExplicitClose")
    assert room.phase is Phase.SEALING
    GATES["room"].set()
    await running
    await settle()
    assert not host.cells
    assert SEEN == []
    assert host.counters.dead == 1
