"""Making and ending objects: hooks, their deadlines, failures, admission of Actors, a clean stop (B2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
import sojourn as sj
from sojourn import frames
from sojourn.control import Created, CreateObject, Opened, OpenObject, Stop, Stopped, encode_error
from sojourn.ids import NodeRun, ObjectKind
from sojourn.spots.cell import Phase
from sojourn.workers.admission import admission_frame, read_admission
from sojourn.workers.objects import LocalObject, Place

from tests.unit.spots.worlds import World, settle

app = sj.App("lifecycle")
STORY: list[str] = []
GATES: dict[str, asyncio.Event] = {}


@app.spot
class Room(sj.InstanceSpot):
    failing: ClassVar[str] = ""

    async def on_initialize(self) -> None:
        STORY.append("on_initialize")
        if self.id in GATES:
            await GATES[self.id].wait()
        if self.id == "asks itself":
            await self.spot(Room, self.id).request(Room.name)
        if self.id == "sends itself":
            await self.spot(Room, self.id).send(Room.note, "to myself")
        if self.id == "fails":
            raise ValueError("not today")

    @sj.request
    async def name(self) -> str:
        STORY.append("name")
        return self.id

    @sj.send
    async def note(self, text: str) -> None:
        STORY.append(text)

    @sj.request
    async def wait(self) -> None:
        await GATES[self.id].wait()

    async def on_closing(self, reason: str, deadline: float) -> None:
        STORY.append(f"on_closing {reason}")
        if self.id == "closes badly":
            raise ValueError("cannot close")
        if self.id in GATES:
            await GATES[self.id].wait()


@app.actor
class Guest(sj.Actor):
    def __init__(self, name: str, age: int = 30) -> None:
        if age < -1:
            raise sj.Rejected(f"too young: {name}", object_id=name, remote_traceback=name)
        if age < 0:
            raise ValueError("too young")
        self.name, self.age = name, age
        self.made_as = self.id

    @sj.request
    async def get(self) -> tuple[str, int, str]:
        return self.name, self.age, self.made_as

    @sj.request
    async def ask_in_background(self, other: str) -> str:
        self.asking = asyncio.create_task(self._ask(other))
        await asyncio.sleep(0)
        return "not awaited"

    async def _ask(self, other: str) -> None:
        await self.spot(Room, other).request(Room.wait)

    @sj.request
    async def greet(self, room: str) -> str:
        return await self.spot(Room, room).request(Room.name)


@app.spot
class Lobby(sj.EntrySpot):
    async def on_create_actor(self, actor_id: str, actor_type: str) -> bool:
        if actor_id == "late":
            raise sj.Rejected("the doors are closed")
        if actor_id == "odd":
            raise ValueError("no such list")
        return actor_type == "Guest" and actor_id != "barred"

    @sj.request
    async def turn_away(self) -> None:
        raise sj.Rejected("not from an ordinary handler")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    STORY.clear()
    GATES.clear()
    world = World(app)
    yield world
    for gate in GATES.values():
        gate.set()
    await world.close()


async def test_creation_arguments(world: World) -> None:
    host = world.host()
    assert world.make(host, Guest, "g", "Ann", age=31).error is None
    assert await host.references.actor(Guest, "g").request(Guest.get) == ("Ann", 31, "g")


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [(("Ann", -1), "InternalFailure", "too young"), ((), "InternalFailure", "missing 1 required")],
)
async def test_failing_init(world: World, arguments: tuple[Any, ...], kind: str, text: str) -> None:
    host = world.host()
    error = world.make(host, Guest, "g", *arguments).error
    assert error is not None
    assert error.kind == kind
    assert text in error.fields["message"]
    assert host.cells == {}


async def test_unknown_type_and_second_creation(world: World) -> None:
    host = world.host()
    host.receive_control(CreateObject(1, b"sx", 3, "Nothing", 5, 6, True))
    world.make(host, Room, "r")
    world.make(host, Room, "r")
    kinds = [answer.error and answer.error.kind for answer in world.port().controls(Created)]
    assert kinds == ["NotConfigured", None, "AlreadyExists"]


async def test_messages_wait_for_initialize(world: World) -> None:
    host = world.host()
    GATES["r"] = asyncio.Event()
    assert world.make(host, Room, "r").call == 0  # not answered yet
    asked = asyncio.ensure_future(host.references.spot(Room, "r").request(Room.name))
    await settle()
    assert STORY == ["on_initialize"]
    GATES["r"].set()
    assert await asked == "r"
    assert world.port().controls(Created)[0].error is None


async def test_dispatch_opens_when_told(world: World) -> None:
    host = world.host()
    world.make(host, Room, "r", opened=False)
    asked = asyncio.ensure_future(host.references.spot(Room, "r").request(Room.name))
    await settle()
    assert not asked.done()
    host.receive_control(OpenObject(7, b"sr", 6, 0, 9))
    assert await asked == "r"
    assert host.cells[b"sr"].object_generation == 9
    assert world.port().controls(Opened)[0].call == 7


async def test_failing_initialize_fails_what_waits(world: World) -> None:
    host = world.host()
    GATES["fails"] = asyncio.Event()
    world.make(host, Room, "fails")
    asked = asyncio.ensure_future(host.references.spot(Room, "fails").request(Room.name))
    await settle()
    GATES["fails"].set()
    with pytest.raises(sj.InternalFailure, match="not today"):
        await asked
    error = world.port().controls(Created)[0].error
    assert error is not None
    assert host.cells == {}


async def test_initialize_that_never_returns_is_named(world: World) -> None:
    host = world.host()
    GATES["r"] = asyncio.Event()
    world.make(host, Room, "r")
    await world.clock.advance(31)
    error = world.port().controls(Created)[0].error
    assert error is not None
    assert error.kind == "DeadlineExceeded"
    assert "Room.on_initialize did not end within 30 s" in error.fields["message"]


async def test_request_to_itself_while_opening_is_refused(world: World) -> None:
    host = world.host()
    error = world.make(host, Room, "asks itself").error
    assert error is not None
    assert "its own queue" in error.fields["message"]


async def test_send_to_itself_while_opening_is_queued(world: World) -> None:
    host = world.host()
    world.make(host, Room, "sends itself")
    await settle()
    assert STORY == ["on_initialize", "to myself"]


async def test_drop_runs_the_closing_callback_after_the_turn(world: World) -> None:
    host = world.host()
    GATES["r"] = asyncio.Event()
    GATES["r"].set()
    world.make(host, Room, "r")
    GATES["r"].clear()
    running = asyncio.ensure_future(host.references.spot(Room, "r").request(Room.wait))
    late = asyncio.ensure_future(host.references.spot(Room, "r").request(Room.name))
    await settle()
    world.drop(host, Room, "r", "ExplicitClose")
    assert STORY == ["on_initialize"]
    GATES["r"].set()
    await running
    with pytest.raises(sj.NotFound, match="closed before this message ran"):
        await late
    await settle()
    assert STORY == ["on_initialize", "on_closing ExplicitClose"]
    assert host.cells == {}


async def test_failing_and_endless_closing_callbacks_change_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    host = world.host()
    world.make(host, Room, "closes badly")
    world.drop(host, Room, "closes badly", "ExplicitClose")
    world.make(host, Room, "r")
    GATES["r"] = asyncio.Event()
    world.drop(host, Room, "r", "ExplicitClose")
    await world.clock.advance(31)
    assert host.cells == {}
    assert "cannot close" in caplog.text
    assert "Room.on_closing did not end within 30 s" in caplog.text


async def test_drop_while_it_is_made(world: World) -> None:
    host = world.host()
    GATES["r"] = asyncio.Event()
    world.make(host, Room, "r")
    await settle()
    world.drop(host, Room, "r", "ExplicitClose")
    await settle()
    assert host.cells == {}
    assert world.port().controls(Created)[0].error is not None
    assert STORY == ["on_initialize"]


async def test_request_not_awaited_ends_with_its_turn(world: World) -> None:
    host = world.host()
    world.make(host, Guest, "g", "Ann")
    world.make(host, Room, "r")
    GATES["r"] = asyncio.Event()
    answer = await host.references.actor(Guest, "g").request(Guest.ask_in_background, "r")
    assert answer == "not awaited"
    await settle()
    instance: Any = host.cells[b"ag"].instance
    assert instance.asking.cancelled()


def test_an_entry_spot_with_an_admission_callback_says_so() -> None:
    assert app.type_of(Lobby).policy == "disabled"
    assert [entry.has_admission for entry in app.registry()] == [False, False, True]


async def test_an_admission_callback_may_say_why_it_rejects(world: World) -> None:
    """`Rejected` raised by a callback that may reject is its answer; of any other handler it is a failure (B3.3)."""
    host, elsewhere = world.host(), world.host("b")
    world.make(host, Lobby, "entry")
    entry = LocalObject(b"sentry", ObjectKind.ENTRY_SPOT, "Lobby", Place.ACTIVE)
    entry.settle(5, 6, NodeRun(b"a", 7), 3)

    async def asked(actor_id: str) -> bool | None:
        host.receive_record(admission_frame(elsewhere.outbox.node_source, entry, 1, actor_id, "Guest"))
        await settle()
        return read_admission(world.port().frames(frames.KIND_REPLY)[-1])

    assert await asked("someone") is True
    assert await asked("barred") is False
    with pytest.raises(sj.Rejected, match="the doors are closed"):
        await asked("late")
    assert host.counters.failed == 0
    with pytest.raises(sj.InternalFailure, match="ValueError: no such list"):
        await asked("odd")
    with pytest.raises(sj.InternalFailure, match="Rejected: not from an ordinary handler"):
        await elsewhere.references.spot(Lobby, "entry").request(Lobby.turn_away)


async def test_open_is_answered_where_there_is_nothing_to_open(world: World) -> None:
    host = world.host()
    world.make(host, Room, "r")
    for key in (b"sr", b"sgone"):
        host.receive_control(OpenObject(9, key, 7, 3))
        host.receive_control(OpenObject(0, key, 7, 0))  # nobody asked for an answer
    opened, gone = world.port().controls(Opened)
    assert opened.error is not None
    assert gone.error is not None
    assert (opened.call, gone.call) == (9, 9)
    assert "spot 'r' could not be opened in its worker: it is OPEN" in opened.error.fields["message"]
    assert "it is missing" in gone.error.fields["message"]


async def test_an_error_of_any_length_fits_into_a_frame(world: World) -> None:
    host = world.host()
    error = world.make(host, Guest, "g", "x" * 5_000_000, age=-2).error
    assert error is not None
    assert "too young" in error.fields["message"]
    assert len(encode_error(error)) < 20_000


async def test_stop_closes_objects_and_ends_requests(world: World) -> None:
    host = world.host()
    GATES["busy"] = asyncio.Event()
    GATES["busy"].set()
    world.make(host, Room, "idle")
    world.make(host, Room, "busy")
    GATES["busy"].clear()
    running = asyncio.ensure_future(host.references.spot(Room, "busy").request(Room.wait))
    outside = asyncio.ensure_future(host.references.spot(Room, "elsewhere").request(Room.name))
    await settle()
    host.receive_control(Stop(1000, "HostShutdown"))
    await world.clock.advance(1.1)
    await host.stopped.wait()
    for ended in (running, outside):
        with pytest.raises((sj.ShuttingDown, sj.Unavailable)):
            await ended
    assert "on_closing HostShutdown" in STORY
    assert world.port().sent[-1] == Stopped(0)
    with pytest.raises(sj.ShuttingDown):
        await host.references.spot(Room, "idle").request(Room.name)


async def test_stop_lets_a_short_turn_end(world: World) -> None:
    host = world.host()
    world.make(host, Room, "r")
    GATES["r"] = asyncio.Event()
    running = asyncio.ensure_future(host.references.spot(Room, "r").request(Room.wait))
    await settle()
    host.receive_control(Stop(60_000, "HostShutdown"))
    await settle()
    GATES["r"].set()
    await running
    await host.stopped.wait()
    assert STORY == ["on_initialize", "on_closing HostShutdown"]


async def test_objects_made_by_hand_say_what_to_do() -> None:
    with pytest.raises(sj.InvalidOperation, match="made by the framework"):
        _ = Guest("Ann").name


async def test_message_in_flight_when_the_object_is_dropped(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    world.make(here, Room, "r", opened=False)
    asked = asyncio.ensure_future(there.references.spot(Room, "r").request(Room.name))
    await settle()
    world.drop(here, Room, "r", "")
    with pytest.raises(sj.Unavailable):
        await asked
    assert len(world.port("a").granted) == 1
    assert here.cells == {}
    assert STORY == ["on_initialize"]
    assert len(world.port("a").frames(frames.KIND_REPLY)) == 1
    assert Phase.OPEN > Phase.CLOSED
