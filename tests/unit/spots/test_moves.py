"""Capture and restore: state, queue, timers and requests in flight survive; refusals leave the object serving."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
import sojourn as sj
from sojourn import frames
from sojourn.control import (
    AwaitBoundary,
    BoundaryReached,
    Opened,
    OpenObject,
    Restored,
    SealRefused,
)
from sojourn.frames import FLAG_FOLLOW
from sojourn.spots.cell import Phase
from sojourn.spots.host import ObjectHost
from sojourn.wire.envelope import decode_envelope
from sojourn.wire.envelope_rules import validate_envelope

from tests.unit.spots.worlds import START_UNIX_MS, World, settle

app = sj.App("moves", version=2)
GATES: dict[str, asyncio.Event] = {}


@app.actor
class Traveller(sj.Actor):
    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: list[Any] = []
        self.closed = ""

    @sj.request
    async def note(self, value: Any) -> int:
        self.seen.append(value)
        return len(self.seen)

    @sj.send
    async def tell(self, value: Any) -> None:
        self.seen.append(value)

    @sj.request
    async def wait(self) -> str:
        await GATES.setdefault(self.id, asyncio.Event()).wait()
        return self.name

    @sj.request
    async def all_seen(self) -> list[Any]:
        return self.seen

    @sj.request
    async def set(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    @sj.request
    async def get(self, name: str) -> Any:
        return getattr(self, name)

    @sj.request
    async def start(self, settings: dict[str, Any]) -> None:
        self.start_timer(Traveller.tick, **settings)

    @sj.timer
    async def tick(self, tick: sj.Tick) -> None:
        self.seen.append((tick.delivery_index, tick.scheduled_index, tick.payload))

    @sj.request
    async def move(self, node: str) -> str:
        self.relocate(to=node)
        return "asked"

    @sj.request
    async def move_and_wait(self, node: str) -> None:
        await self.actor(Traveller, self.id).relocate(to=node)

    @sj.request
    async def ask(self, other: str) -> int:
        return await self.actor(Traveller, other).request(Traveller.note, f"from {self.id}")


@app.spot(policy="recreate")
class Fresh(sj.InstanceSpot):
    def __init__(self) -> None:
        self.count = 0

    @sj.request
    async def add(self) -> int:
        self.count += 1
        return self.count

    @sj.timer(every=1)
    async def tick(self, tick: sj.Tick) -> None:
        self.count += 100


@app.spot(policy="disabled")
class Rooted(sj.InstanceSpot):
    @sj.request
    async def stay(self) -> None:
        self.relocate(to="b")


@app.spot
class Own(sj.InstanceSpot):
    closings: ClassVar[list[tuple[str, str]]] = []

    def capture(self) -> bytes:
        return b"mine"

    def restore(self, state: bytes) -> None:
        self.got = state

    @sj.request
    async def get(self) -> Any:
        return self.got

    async def on_closing(self, reason: str, deadline: float) -> None:
        Own.closings.append((self.id, reason))


@pytest.fixture(params=[True, False], ids=["fenced", "unfenced"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    world = World(app, fenced=request.param)
    GATES.clear()
    Own.closings.clear()
    yield world
    await world.close()


async def test_state_moves(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    world.make(here, Traveller, "t", "Tea")
    reference = here.references.actor(Traveller, "t")
    values = {"tuple": (1, (2,)), "set": {1, 2}, "bytes": b"\x00" * 5000, "int keys": {1: "a"}, "none": None}
    await reference.request(Traveller.set, "values", values)
    await reference.request(Traveller.set, "friend", here.references.actor(Traveller, "other"))
    world.move(here, there, Traveller, "t")
    assert b"at" not in here.cells
    assert await reference.request(Traveller.get, "name") == "Tea"
    assert await reference.request(Traveller.get, "values") == values
    moved: Any = there.cells[b"at"].instance
    assert moved.friend.id == "other"
    assert moved.friend._sender is there.sender
    assert type(moved.values["tuple"]) is tuple


async def test_queue_moves_in_order_and_replies_come_back(world: World) -> None:
    here, there, third = world.host("a"), world.host("b"), world.host("c")
    world.make(here, Traveller, "t", "Tea")
    local, remote = (host.references.actor(Traveller, "t") for host in (here, third))
    running = asyncio.ensure_future(local.request(Traveller.wait))
    await settle()
    asked = []
    for number in range(20):
        reference = local if number % 3 else remote
        if number % 2:
            await reference.send(Traveller.tell, number)
        else:
            asked.append(asyncio.ensure_future(reference.request(Traveller.note, number)))
        await settle()
    world.seal(here, Traveller, "t")
    GATES["t"].set()
    assert await running == "Tea"
    await settle()
    envelope = decode_envelope(world.captured(here))
    validate_envelope(envelope, participants=1)
    assert [work.order for work in envelope.saved_work] == list(range(1, 21))
    granted = len(world.port("a").granted)
    world.restore(there, Traveller, "t", world.captured(here))
    assert there.cells[b"at"].phase is Phase.CLOSED
    await settle()
    assert not any(request.done() for request in asked)
    world.open(there, Traveller, "t")
    world.drop(here, Traveller, "t")
    assert await asyncio.gather(*asked) == list(range(1, 21, 2))
    assert await remote.request(Traveller.all_seen) == list(range(20))
    # What was captured kept its permit until the object was dropped here.
    assert len(world.port("a").granted) - granted == 7
    assert len(here.outbox.pending) == 0
    (opened,) = world.port("b").controls(Opened)
    assert opened.first_turn_ns > 0


async def test_message_to_a_sealed_object_leaves_the_worker(world: World) -> None:
    here = world.host("a")
    world.make(here, Traveller, "t", "Tea")
    reference = here.references.actor(Traveller, "t")
    world.seal(here, Traveller, "t")
    world.held = []
    await reference.send(Traveller.tell, 1)
    assert len(world.port("a").frames(frames.KIND_RECORD)) == 1


async def test_unseal_goes_on_in_order(world: World) -> None:
    here = world.host("a")
    world.make(here, Traveller, "t", "Tea")
    reference = here.references.actor(Traveller, "t")
    running = asyncio.ensure_future(reference.request(Traveller.wait))
    await settle()
    for number in range(5):
        await reference.send(Traveller.tell, number)
    asked = asyncio.ensure_future(reference.request(Traveller.note, 5))
    await settle()
    world.seal(here, Traveller, "t")
    GATES["t"].set()
    await running
    await settle()
    assert here.cells[b"at"].phase is Phase.CAPTURED
    world.held = []
    await reference.send(Traveller.tell, 6)
    world.unseal(here, Traveller, "t")
    world.release()
    assert await asked == 6
    assert await reference.request(Traveller.all_seen) == list(range(7))
    assert world.port("a").forgotten == []


async def test_unseal_before_the_running_turn_ended(world: World) -> None:
    here = world.host("a")
    world.make(here, Traveller, "t", "Tea")
    reference = here.references.actor(Traveller, "t")
    running = asyncio.ensure_future(reference.request(Traveller.wait))
    await settle()
    world.seal(here, Traveller, "t")
    world.unseal(here, Traveller, "t")
    GATES["t"].set()
    assert await running == "Tea"
    assert await reference.request(Traveller.note, 1) == 1


async def test_seal_gives_up_on_a_turn_that_outlasts_the_move(world: World) -> None:
    here = world.host("a")
    world.make(here, Traveller, "t", "Tea")
    reference = here.references.actor(Traveller, "t")
    running = asyncio.ensure_future(reference.request(Traveller.wait))
    await settle()
    world.seal(here, Traveller, "t", wait_ms=3000)
    await world.clock.advance(2.9)
    assert world.port("a").controls(SealRefused) == []
    await world.clock.advance(0.2)
    (refused,) = world.port("a").controls(SealRefused)
    assert refused.error.kind == "DeadlineExceeded"
    assert "Traveller.wait" in refused.error.fields["message"]
    GATES["t"].set()
    assert await running == "Tea"
    assert await reference.request(Traveller.note, 1) == 1


async def test_a_turn_boundary_is_told_and_nothing_stops(world: World) -> None:
    here, port = world.host("a"), world.port("a")
    world.make(here, Traveller, "t", "Tea")

    def told() -> list[int]:
        return [message.call for message in port.controls(BoundaryReached)]

    here.receive_control(AwaitBoundary(7, b"at"))
    assert told() == [7]
    reference = here.references.actor(Traveller, "t")
    running = asyncio.ensure_future(reference.request(Traveller.wait))
    await settle()
    here.receive_control(AwaitBoundary(8, b"at"))
    here.receive_control(AwaitBoundary(9, b"at"))
    await settle()
    assert told() == [7]
    GATES["t"].set()
    assert await running == "Tea"
    assert told() == [7, 8, 9]
    here.receive_control(AwaitBoundary(10, b"anobody"))
    assert told() == [7, 8, 9, 10], "whoever asks next learns that it is gone"


async def test_state_that_cannot_be_captured_names_the_attribute(world: World) -> None:
    here = world.host("a")
    world.make(here, Traveller, "t", "Tea")
    instance: Any = here.cells[b"at"].instance
    instance.task = (number for number in [1])
    world.seal(here, Traveller, "t")
    (refused,) = world.port("a").controls(SealRefused)
    assert "Traveller.task" in refused.error.fields["message"]
    assert await here.references.actor(Traveller, "t").request(Traveller.note, 1) == 1


async def test_pickle_switched_off() -> None:
    world = World(app, allow_pickle=False)
    here = world.host("a")
    world.make(here, Traveller, "t", "Tea")
    instance: Any = here.cells[b"at"].instance
    instance.loose = {1, 2}
    world.seal(here, Traveller, "t")
    (refused,) = world.port("a").controls(SealRefused)
    assert refused.error.kind == "NotConfigured"
    assert "Traveller.loose" in refused.error.fields["message"]
    with pytest.raises(sj.NotConfigured, match=r"arguments of Traveller\.note would need pickle"):
        await here.references.actor(Traveller, "t").request(Traveller.note, {1})
    await world.close()


@pytest.mark.parametrize("case", ["missing", "disabled", "other incarnation", "sealed twice"])
async def test_seal_refusals(world: World, case: str) -> None:
    here = world.host("a")
    world.make(here, Rooted, "r")
    world.make(here, Traveller, "t", "Tea")
    if case == "missing":
        world.seal(here, Traveller, "nobody")
    elif case == "disabled":
        world.seal(here, Rooted, "r")
    elif case == "other incarnation":
        here.cells[b"at"].object_generation = 6
        world.seal(here, Traveller, "t")
    else:
        world.seal(here, Traveller, "t")
        world.seal(here, Traveller, "t", handoff=9)
    assert len(world.port("a").controls(SealRefused)) == 1


async def test_recreate_moves_queue_and_timers_but_no_state(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    world.make(here, Fresh, "f")
    reference = here.references.spot(Fresh, "f")
    await world.clock.advance(0.5)
    assert await reference.request(Fresh.add) == 1
    world.move(here, there, Fresh, "f")
    assert await reference.request(Fresh.add) == 1
    await world.clock.advance(0.6)
    assert await reference.request(Fresh.add) == 102


async def test_own_capture_and_closing(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    world.make(here, Own, "o")
    world.move(here, there, Own, "o")
    await settle()
    assert await here.references.spot(Own, "o").request(Own.get) == b"mine"
    assert Own.closings == [("o", "RelocationOut")]


async def test_large_state_is_not_joined(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    world.make(here, Traveller, "t", "Tea")
    instance: Any = here.cells[b"at"].instance
    instance.blob = bytes(range(256)) * 4096
    instance.array = bytearray(instance.blob)
    world.seal(here, Traveller, "t", chunk_limit=1 << 18)
    envelope = world.captured(here)
    assert len(world.port("a").frames(frames.KIND_BULK)) == -(-len(envelope) // (1 << 18))
    world.restore(there, Traveller, "t", envelope, chunk=1 << 18)
    moved: Any = there.cells[b"at"].instance
    assert moved.blob == instance.blob
    assert moved.array == instance.array
    assert type(moved.array) is bytearray


async def test_bulk_waits_while_the_port_is_congested(world: World) -> None:
    here = world.host("a")
    world.make(here, Traveller, "t", "Tea" * 1000)
    port = world.port("a")
    port.congested = True
    world.seal(here, Traveller, "t")
    assert len(port.frames(frames.KIND_BULK)) == 1
    port.congested = False
    port.room.set()
    await settle()
    world.captured(here)


@pytest.mark.parametrize("overrun", ["skip_late", "catch_up", "delay_next"])
async def test_timer_over_two_moves_ticks_without_gap_or_repeat(world: World, overrun: str) -> None:
    hosts = [world.host("a"), world.host("b")]
    world.make(hosts[0], Traveller, "t", "Tea")
    reference = hosts[0].references.actor(Traveller, "t")
    await reference.request(
        Traveller.start, {"every": 0.2, "payload": {"a": (1,)}, "overrun": overrun, "repeat": 40}
    )
    for number, wait in enumerate((1.3, 2.5)):
        await world.clock.advance(wait)
        world.move(hosts[number], hosts[1 - number], Traveller, "t", handoff=number)
    await world.clock.advance(10)
    seen = await reference.request(Traveller.all_seen)
    assert seen == [(index, index, {"a": (1,)}) for index in range(1, 41)]


async def test_pending_tick_moves_in_its_place(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    world.make(here, Traveller, "t", "Tea")
    reference = here.references.actor(Traveller, "t")
    await reference.request(Traveller.start, {"every": 1})
    await reference.request(Traveller.start, {"every": 1, "name": "gone"})
    running = asyncio.ensure_future(reference.request(Traveller.wait))
    await settle()
    await reference.send(Traveller.tell, "before")
    await world.clock.advance(1.1)
    await reference.send(Traveller.tell, "after")
    here.timers.cancel(here.cells[b"at"], "gone")
    world.seal(here, Traveller, "t")
    GATES["t"].set()
    await running
    await settle()
    envelope = decode_envelope(world.captured(here))
    validate_envelope(envelope, participants=1)
    (tick,) = envelope.pending_timer_ticks
    (timer,) = envelope.timer_registrations
    assert (tick.order, tick.delivery_index, tick.scheduled_at_unix_milliseconds) == (
        2,
        1,
        START_UNIX_MS + 1000,
    )
    assert timer.next_scheduled_at_unix_milliseconds == START_UNIX_MS + 2000
    world.restore(there, Traveller, "t", world.captured(here))
    await world.clock.advance(2)  # no tick before dispatch opens
    assert there.counters.ticks == 0
    world.open(there, Traveller, "t")
    await world.clock.advance(0)
    moved: Any = there.cells[b"at"].instance
    assert moved.seen == ["before", (1, 1, None), "after", (2, 3, None)]


async def test_big_backlog_keeps_its_order(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    world.make(here, Traveller, "t", "Tea")
    reference = here.references.actor(Traveller, "t")
    running = asyncio.ensure_future(reference.request(Traveller.wait))
    await settle()
    many = 100_000
    for number in range(many):
        reference.send_nowait(Traveller.tell, number)
    world.seal(here, Traveller, "t", chunk_limit=1 << 18)
    GATES["t"].set()
    await running
    await settle()
    world.restore(there, Traveller, "t", world.captured(here), chunk=1 << 18)
    world.open(there, Traveller, "t")
    world.drop(here, Traveller, "t")
    assert await reference.request(Traveller.all_seen) == list(range(many))


async def test_there_and_back_again_loses_no_message(world: World) -> None:
    here, there, third = world.host("a"), world.host("b"), world.host("c")
    world.make(here, Traveller, "t", "Tea")
    world.held = []
    await third.references.actor(Traveller, "t").send(Traveller.tell, "followed")
    (body,) = world.held
    here.cells[b"at"].phase = Phase.CLOSED
    world.deliver(b"a", body, FLAG_FOLLOW)
    here.cells[b"at"].phase = Phase.OPEN
    world.move(here, there, Traveller, "t", 1)
    there.cells[b"at"].phase = Phase.CLOSED
    there.cells[b"at"].phase = Phase.OPEN
    moved: Any = there.cells[b"at"].instance
    if not moved.seen:
        await settle()
    assert moved.seen == ["followed"]
    world.deliver(b"b", body, FLAG_FOLLOW)  # a repeat of what came with the object
    await settle()
    assert moved.seen == ["followed"]
    assert there.counters.duplicates == 1


async def test_failed_restore_discards_the_instance(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    world.make(here, Traveller, "t", "Tea")
    world.seal(here, Traveller, "t")
    envelope = world.captured(here)
    restored = world.restore(there, Traveller, "t", envelope[:-3])
    assert restored.error is not None
    assert restored.error.kind == "ProtocolError"
    assert there.cells == {}
    assert world.restore(there, Traveller, "t", envelope).error is None


async def staged_with_one_request(world: World) -> tuple[ObjectHost, ObjectHost, asyncio.Future[int]]:
    """A request waits in the queue of an object that was captured at `a` and is restored, closed, at `b`."""
    here, there = world.host("a"), world.host("b")
    world.make(here, Traveller, "t", "Tea")
    reference = world.host("c").references.actor(Traveller, "t")
    running = asyncio.ensure_future(reference.request(Traveller.wait))
    await settle()
    asked = asyncio.ensure_future(reference.request(Traveller.note, 1))
    await settle()
    world.seal(here, Traveller, "t")
    GATES["t"].set()
    await running
    await settle()
    assert world.restore(there, Traveller, "t", world.captured(here)).error is None
    return here, there, asked


async def test_a_dropped_arrival_leaves_its_saved_work_to_the_source(world: World) -> None:
    here, there, asked = await staged_with_one_request(world)
    world.drop(there, Traveller, "t", reason="")
    assert there.cells == {}
    await settle()
    assert not asked.done()
    world.unseal(here, Traveller, "t")
    assert await asked == 1


async def test_behind_the_boundary_a_dropped_arrival_ends_its_saved_work(world: World) -> None:
    _, there, asked = await staged_with_one_request(world)
    world.drop(there, Traveller, "t", reason="", end_work=True)
    with pytest.raises(sj.Unavailable):
        await asked


async def test_own_move_starts_after_the_turn(world: World) -> None:
    here = world.host("a")
    world.make(here, Traveller, "t", "Tea")
    port = world.port("a")
    assert await here.references.actor(Traveller, "t").request(Traveller.move, "b") == "asked"
    await settle()
    assert port.calls == [("relocate", {"key": b"at", "to": "b"})]
    with pytest.raises(sj.InternalFailure, match=r"use self\.relocate"):
        await here.references.actor(Traveller, "t").request(Traveller.move_and_wait, "b")


async def test_own_move_of_a_type_that_never_moves(world: World) -> None:
    here = world.host("a")
    world.make(here, Rooted, "r")
    with pytest.raises(sj.InternalFailure, match="never move"):
        await here.references.spot(Rooted, "r").request(Rooted.stay)


async def test_relocate_from_a_reference(world: World) -> None:
    here = world.host("a")
    world.port("a").answers["relocate"] = {"outcome": "moved", "node": "b"}
    moved = await here.references.actor(Traveller, "t").relocate(to="b")
    assert moved == sj.Relocation("moved", node="b")


async def test_request_in_flight_from_the_moving_object_ends_its_turn_first(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    world.make(here, Traveller, "t", "Tea")
    world.make(there, Traveller, "other", "Other")
    world.held = []
    asked = asyncio.ensure_future(here.references.actor(Traveller, "t").request(Traveller.ask, "other"))
    await settle()
    world.seal(here, Traveller, "t")
    assert here.cells[b"at"].phase is Phase.SEALING
    world.release(b"b")
    assert await asked == 1
    await settle()
    assert here.cells[b"at"].phase is Phase.CAPTURED


class TestVersions:
    """State of another application version (B1.9)."""

    @staticmethod
    def apps() -> tuple[sj.App, sj.App, sj.App, type[sj.Actor]]:
        old, new, bare = sj.App("v", version=1), sj.App("v", version=2), sj.App("v", version=2)

        @old.actor(type="Item")
        class ItemOne(sj.Actor):
            def __init__(self) -> None:
                self.price = 5

        @new.actor(type="Item")
        class ItemTwo(sj.Actor):
            price_cents: int

            @sj.request
            async def get(self) -> int:
                return self.price_cents

            def upgrade(self, old_version: int, state: dict[str, Any]) -> dict[str, Any]:
                assert old_version == 1
                return {"price_cents": state["price"] * 100}

        @bare.actor(type="Item")
        class ItemThree(sj.Actor):
            pass

        return old, new, bare, ItemOne

    async def test_upgrade(self) -> None:
        old, new, bare, item = self.apps()
        world = World(old)
        here, there, unable = world.host("a"), world.host("b", new), world.host("c", bare)
        world.make(here, item, "i")
        world.seal(here, item, "i")
        envelope = world.captured(here)
        for host, failing in ((unable, True), (there, False)):
            record = host.app.types()[0]
            restored = world.restore(host, record.cls, "i", envelope)
            assert (restored.error is not None) is failing
        error = world.port("c").controls(Restored)[0].error
        assert error is not None
        assert "write upgrade" in error.fields["message"]
        there.receive_control(OpenObject(0, b"ai", 7))
        cls: Any = new.types()[0].cls
        assert await there.references.actor(cls, "i").request(cls.get) == 500
        await world.close()
