"""Messages inside one host and between two: results, errors, order, dedupe, permits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import sojourn as sj
from sojourn import frames
from sojourn.control import ErrorBody, FirstHandled, RequestsLost
from sojourn.frames import FLAG_FIRST, FLAG_FOLLOW

from tests.unit.spots.worlds import World, settle

app = sj.App("messages")


@app.actor
class Counter(sj.Actor):
    def __init__(self, start: int = 0) -> None:
        self.total = start
        self.seen: list[Any] = []
        self.gate: asyncio.Event | None = None

    @sj.request
    async def add(self, number: int, *, twice: bool = False) -> int:
        self.total += number * (2 if twice else 1)
        return self.total

    @sj.request
    async def keep(self, value: Any) -> Any:
        self.seen.append(value)
        return value

    @sj.request
    async def all_seen(self) -> list[Any]:
        return self.seen

    @sj.request
    async def fail(self) -> None:
        raise ValueError("broken on purpose")

    @sj.request
    async def wait(self) -> str:
        self.gate = asyncio.Event()
        await self.gate.wait()
        return "waited"

    @sj.request
    async def timed(self, seconds: float) -> str:
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()
        return "never"

    @sj.send
    async def note(self, value: Any) -> None:
        self.seen.append(value)

    @sj.send
    async def note_badly(self) -> None:
        raise RuntimeError("nobody waits for this")

    @sj.request
    async def tell(self, other: str, value: Any) -> None:
        await self.actor(Counter, other).send(Counter.note, value)

    @sj.request
    async def tell_in_background(self, other: str, value: Any) -> None:
        self.telling = asyncio.create_task(self.actor(Counter, other).send(Counter.note, value))
        await asyncio.sleep(0)

    @sj.request
    async def ask(self, other: str, number: int) -> int:
        return await self.actor(Counter, other).request(Counter.add, number)

    @sj.request
    async def ask_around(self, names: list[str]) -> list[int]:
        asked = [self.actor(Counter, name).request(Counter.add, 1) for name in names]
        return list(await asyncio.gather(*asked))

    @sj.request
    async def pay(self, amount: int) -> Paid | Declined:
        return Paid(f"r{amount}") if amount > 0 else Declined("less than nothing")

    @sj.request
    async def ask_self(self) -> int:
        return await self.actor(Counter, self.id).request(Counter.add, 1)

    @sj.request
    async def ask_chain(self, names: list[str]) -> int:
        if not names:
            return 0
        return 1 + await self.actor(Counter, names[0]).request(Counter.ask_chain, names[1:])

    @sj.request
    async def leave_behind(self, other: str) -> str:
        self.left = asyncio.create_task(self.ask(other, 1))
        return "left"

    @sj.request
    async def end_process(self) -> None:
        raise SystemExit(3)


@app.actor
class Other(sj.Actor):
    @sj.request
    async def other(self) -> int:
        return 1


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(app)
    yield world
    await world.close()


@pytest.fixture(params=["same worker", "other worker"])
async def counter(world: World, request: pytest.FixtureRequest) -> sj.ActorRef[Counter]:
    """A reference to a Counter `c`, from the worker that holds it or from another."""
    here = world.host("a")
    world.make(here, Counter, "c")
    world.make(here, Counter, "d")
    caller = here if request.param == "same worker" else world.host("b")
    return caller.references.actor(Counter, "c")


async def test_request_returns_the_result(counter: sj.ActorRef[Counter]) -> None:
    assert await counter.request(Counter.add, 3) == 3
    assert await counter.request(Counter.add, 4, twice=True) == 11


async def test_turns_keep_the_order_of_the_messages(counter: sj.ActorRef[Counter]) -> None:
    for number in range(50):
        if number % 2:
            await counter.send(Counter.note, number)
        else:
            counter.send_nowait(Counter.note, number)
    assert await counter.request(Counter.all_seen) == list(range(50))


async def test_exception_reaches_the_caller_typed(counter: sj.ActorRef[Counter]) -> None:
    with pytest.raises(sj.InternalFailure, match="broken on purpose") as caught:
        await counter.request(Counter.fail)
    assert caught.value.remote_traceback is not None
    assert "raise ValueError" in caught.value.remote_traceback
    assert "sojourn/spots" not in caught.value.remote_traceback
    assert await counter.request(Counter.add, 1) == 1


async def test_failed_send_is_logged(counter: sj.ActorRef[Counter], caplog: pytest.LogCaptureFixture) -> None:
    await counter.send(Counter.note_badly)
    assert await counter.request(Counter.add, 1) == 1
    assert "nobody waits for this" in caplog.text


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        2**80,
        "text",
        b"bytes",
        1.5,
        (1, (2, 3)),
        {1: {2}},
        [1, [2]],
        {"a": (1,)},
        frozenset({1}),
        {1, 2},
    ],
)
async def test_values_arrive_equal_and_of_the_same_type(counter: sj.ActorRef[Counter], value: Any) -> None:
    answer = await counter.request(Counter.keep, value)
    assert answer == value
    assert type(answer) is type(value)


async def test_nothing_aliases(world: World) -> None:
    host = world.host()
    world.make(host, Counter, "c")
    counter = host.references.actor(Counter, "c")
    given = [1, [2]]
    answer = await counter.request(Counter.keep, given)
    given[0] = 100
    answer[1].append(3)
    assert await counter.request(Counter.all_seen) == [[1, [2]]]


async def test_what_cannot_change_is_passed_by_reference(world: World) -> None:
    host = world.host()
    world.make(host, Counter, "c")
    text = "x" * 1000 + str(host)
    answer = await host.references.actor(Counter, "c").request(Counter.keep, (text, 1))
    assert answer[0] is text


async def test_cancelled_request_is_forgotten(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    world.make(here, Counter, "c")
    waiting = asyncio.ensure_future(there.references.actor(Counter, "c").request(Counter.wait))
    await settle()
    waiting.cancel()
    await settle()
    assert waiting.cancelled()
    assert len(world.port("b").forgotten) == 1
    assert len(there.outbox.pending) == 0


async def test_unknown_handler_is_named(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    world.make(here, Counter, "c")
    world.held = []
    asked = asyncio.ensure_future(there.references.actor(Other, "c").request(Other.other))
    await settle()
    world.release()
    with pytest.raises(sj.NotConfigured, match="no handler 'other'"):
        await asked


async def test_wrong_type_in_the_same_worker(world: World) -> None:
    here = world.host("a")
    world.make(here, Counter, "c")
    with pytest.raises(sj.TypeMismatch, match="is a Counter, not a Other"):
        await here.references.actor(Other, "c").request(Other.other)


async def test_wrong_arguments_are_refused_at_the_sender(counter: sj.ActorRef[Counter]) -> None:
    with pytest.raises(sj.InvalidOperation, match=r"Counter\.add.*missing a required argument: 'number'"):
        await counter.request(Counter.add)  # type: ignore[call-arg]
    with pytest.raises(sj.InvalidOperation, match="unexpected keyword"):
        await counter.send(Counter.note, 1, more=2)  # type: ignore[call-arg]
    with pytest.raises(sj.InvalidOperation, match=r"declared with @send.*use ref\.send"):
        await counter.request(Counter.note, 1)  # type: ignore[arg-type]
    with pytest.raises(sj.InvalidOperation, match="takes a declared handler"):
        await counter.request(lambda: 1)  # type: ignore[arg-type]


async def test_argument_that_cannot_be_sent_is_named(counter: sj.ActorRef[Counter]) -> None:
    with pytest.raises(sj.InvalidOperation, match="argument 'value' of type generator"):
        await counter.request(Counter.keep, (number for number in [1]))


async def test_own_queue_is_refused_at_once(counter: sj.ActorRef[Counter]) -> None:
    with pytest.raises(sj.InternalFailure, match="would wait for its own queue"):
        await counter.request(Counter.ask_self)


async def test_cycle_is_refused_at_once(world: World) -> None:
    here = world.host("a")
    for name in "cde":
        world.make(here, Counter, name)
    reference = here.references.actor(Counter, "c")
    assert await reference.request(Counter.ask_chain, ["d", "e"]) == 2
    with pytest.raises(sj.InternalFailure, match="whose turn waits for this one"):
        await reference.request(Counter.ask_chain, ["d", "e", "c"])


class Stranger(sj.Actor):
    @sj.request
    async def secret(self) -> str:
        return f"ran on {type(self).__name__}"

    @sj.send
    async def shout(self) -> None:
        self.shouted = True


@pytest.mark.parametrize("asker", ["a", "b"], ids=["same worker", "another node"])
async def test_a_handler_of_another_class_never_runs(world: World, asker: str) -> None:
    """Type checkers refuse it; at run time it is refused wherever the object is, with what there is."""
    host = world.host("a")
    world.make(host, Counter, "c")
    reference: Any = (host if asker == "a" else world.host("b")).references.actor(Counter, "c")
    with pytest.raises(sj.NotConfigured, match="Counter has no handler 'secret'; it has: add, "):
        await reference.request(Stranger.secret)
    await reference.send(Stranger.shout)
    assert await reference.request(Counter.add, 1) == 1
    assert not hasattr(host.cells[b"ac"].instance, "shouted")
    assert host.counters.failed == 2


async def test_a_method_of_the_object_called_on_its_reference(counter: sj.ActorRef[Counter]) -> None:
    reference: Any = counter
    with pytest.raises(AttributeError, match=r"write ref\.request\(Counter\.add, \.\.\.\)"):
        reference.add(1)
    with pytest.raises(AttributeError, match=r"write ref\.send\(Counter\.note, \.\.\.\)"):
        reference.note(1)
    with pytest.raises(AttributeError, match="'ActorRef' object has no attribute 'nothing'"):
        reference.nothing  # noqa: B018
    assert not hasattr(object.__new__(sj.ActorRef), "key")


async def test_a_circle_through_two_workers_ends_by_its_timeouts(world: World) -> None:
    """Nobody sees such a circle as a whole; the first request of it to time out ends it, and all serve on."""
    here, there = world.host("a"), world.host("b")
    world.make(here, Counter, "c")
    world.make(there, Counter, "d")
    asked = asyncio.ensure_future(here.references.actor(Counter, "c").request(Counter.ask_chain, ["d", "c"]))
    await world.clock.advance(29)
    assert not asked.done()
    await world.clock.advance(2)
    with pytest.raises(sj.DeadlineExceeded, match="no reply from actor 'c'"):
        await asked
    for name in "cd":
        assert await here.references.actor(Counter, name).request(Counter.keep, name) == name


@dataclass
class Paid:
    receipt: str


@dataclass
class Declined:
    reason: str


async def test_an_answer_that_callers_tell_apart_is_a_result(world: World) -> None:
    """What the reference says to do instead of raising: one class for each case, here and from another node."""
    world.make(world.host("a"), Counter, "till")
    till = world.host("b").references.actor(Counter, "till")
    assert await till.request(Counter.pay, 5) == Paid("r5")
    assert await till.request(Counter.pay, -5) == Declined("less than nothing")


async def test_requests_of_one_turn_run_side_by_side(world: World) -> None:
    here = world.host("a")
    for name in "cdef":
        world.make(here, Counter, name)
    reference = here.references.actor(Counter, "c")
    assert await reference.request(Counter.ask_around, ["d", "e", "f", "d"]) == [1, 1, 1, 2]


async def test_task_left_behind_is_cancelled_with_its_turn(world: World) -> None:
    here = world.host("a")
    world.make(here, Counter, "c")
    world.make(here, Counter, "d")
    assert await here.references.actor(Counter, "c").request(Counter.leave_behind, "d") == "left"
    instance: Any = here.cells[b"ac"].instance
    with pytest.raises(sj.InvalidOperation, match="is over"):
        await instance.left


async def test_timeouts_of_the_standard_library_work_in_a_turn(counter: sj.ActorRef[Counter]) -> None:
    with pytest.raises(sj.InternalFailure, match="TimeoutError"):
        await counter.request(Counter.timed, 0.001)
    assert await counter.request(Counter.add, 2) == 2


async def test_system_exit_ends_the_process(world: World, counter: sj.ActorRef[Counter]) -> None:
    with pytest.raises(sj.InternalFailure, match="SystemExit"):
        await counter.request(Counter.end_process)
    (error,) = world.port("a").ended_by
    assert isinstance(error, SystemExit)


async def test_unknown_object(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    world.owner[b"anobody"] = b"a"
    with pytest.raises(sj.NotFound, match="nobody"):
        await there.references.actor(Counter, "nobody").request(Counter.add, 1)
    assert len(world.port("a").granted) == 1
    assert here.counters.dead == 1


async def test_other_incarnation(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    world.make(here, Counter, "c")
    world.held = []
    asked = asyncio.ensure_future(there.references.actor(Counter, "c").request(Counter.add, 1))
    await settle()
    here.cells[b"ac"].object_generation = 9
    body = world.held[0]
    header = frames.parse_record_header(body)
    here.receive_record(
        frames.complete_record(body, header, here.outbox.origin.route_fence(header.key, 5, 6), 5)
    )
    with pytest.raises(sj.InvalidOperation, match="another incarnation"):
        await asked


async def test_permit_is_returned_right_before_the_handler_starts(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    world.make(here, Counter, "c")
    reference = there.references.actor(Counter, "c")
    first = asyncio.ensure_future(reference.request(Counter.wait))
    second = asyncio.ensure_future(reference.request(Counter.add, 1))
    await settle()
    sizes = [len(body) for body in world.port("b").frames(frames.KIND_RECORD)]
    assert len(world.port("a").granted) == 1
    instance: Any = here.cells[b"ac"].instance
    instance.gate.set()
    await asyncio.gather(first, second)
    assert [records for records, _ in world.port("a").granted] == [1, 1]
    assert all(octets > size for (_, octets), size in zip(world.port("a").granted, sizes, strict=True))


async def test_followed_message_is_accepted_once(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    world.make(here, Counter, "c")
    world.held = []
    await there.references.actor(Counter, "c").send(Counter.note, 1)
    (body,) = world.held
    for _ in range(3):
        world.deliver(b"a", body, FLAG_FOLLOW)
    await settle()
    assert here.counters.duplicates == 2
    assert len(world.port("a").granted) == 3
    world.held = None
    assert await there.references.actor(Counter, "c").request(Counter.all_seen) == [1]


async def test_the_end_of_a_first_message_is_told(world: World) -> None:
    """Its record in the Relocation Store goes when its handler has ended, well or not (B7.1)."""
    here, there = world.host("a"), world.host("b")
    world.make(here, Counter, "c")
    world.held = []
    reference = there.references.actor(Counter, "c")
    await reference.send(Counter.note, 1)
    await reference.send(Counter.note_badly)
    await reference.send(Counter.note, 2)
    first, second, ordinary = world.held
    told: list[FirstHandled] = []
    for body in (first, second):
        world.deliver(b"a", body, FLAG_FIRST)
        assert world.port("a").controls(FirstHandled) == told, "not before its handler has ended"
        await settle()
        header = frames.parse_record_header(body)
        told.append(FirstHandled(header.key, header.operation_high, header.operation_low))
        assert world.port("a").controls(FirstHandled) == told
    world.deliver(b"a", ordinary)
    await settle()
    assert world.port("a").controls(FirstHandled) == told


async def test_requests_lost(world: World) -> None:
    there = world.host("b")
    asked = asyncio.ensure_future(there.references.actor(Counter, "c").request(Counter.add, 1))
    await settle()
    header = frames.parse_record_header(world.port("b").frames(frames.KIND_RECORD)[0])
    error = sj.Unavailable("the link broke", applied="unknown")
    there.receive_control(
        RequestsLost([(header.reply_route, header.operation_low)], ErrorBody(error.kind, error.fields()))
    )
    with pytest.raises(sj.Unavailable, match="the link broke") as caught:
        await asked
    assert caught.value.applied == "unknown"


async def test_congested_port_makes_senders_wait(world: World) -> None:
    there = world.host("b")
    port = world.port("b")
    reference = there.references.actor(Counter, "c")
    port.congested = True
    sent = asyncio.ensure_future(reference.send(Counter.note, 1))
    await settle()
    assert not port.frames(frames.KIND_RECORD)
    with pytest.raises(sj.Unavailable):
        reference.send_nowait(Counter.note, 2)
    port.congested = False
    port.room.set()
    await sent
    assert len(port.frames(frames.KIND_RECORD)) == 1


async def test_admission_timeout(world: World) -> None:
    there = world.host("b")
    world.port("b").congested = True
    sent = asyncio.ensure_future(there.references.actor(Counter, "c").request(Counter.add, 1))
    await world.clock.advance(1.1)
    with pytest.raises(sj.Unavailable, match="stayed full for 1000 ms") as caught:
        await sent
    assert caught.value.applied == "no"
    assert len(there.outbox.pending) == 0


@pytest.mark.parametrize("asks", [False, True])
async def test_a_lease_that_ended_while_a_sender_waited_for_room(
    world: World, counter: sj.ActorRef[Counter], asks: bool
) -> None:
    """A machine that slept: its lease is over before the timer of the admission deadline fires (B6.4)."""
    port = world.port("a")
    port.congested = True
    if asks:
        waiting: asyncio.Future[Any] = asyncio.ensure_future(counter.request(Counter.ask, "away", 1))
    else:
        waiting = asyncio.ensure_future(counter.request(Counter.tell, "away", 1))
    await settle()
    world.clock.suspended_ns += 3600 * 10**9
    port.congested = False
    port.room.set()
    with pytest.raises(sj.InternalFailure, match="lease is over: nothing is sent"):
        await waiting
    assert not port.frames(frames.KIND_RECORD)


async def test_a_turn_that_ended_while_its_task_waited_for_room(
    world: World, counter: sj.ActorRef[Counter]
) -> None:
    port = world.port("a")
    port.congested = True
    await counter.request(Counter.tell_in_background, "away", 1)
    instance: Any = world.hosts[b"a"].cells[b"ac"].instance
    port.congested = False
    port.room.set()
    with pytest.raises(sj.InvalidOperation, match="is over: a task it started cannot send"):
        await instance.telling
    assert not port.frames(frames.KIND_RECORD)


async def test_message_above_the_frame_limit(world: World) -> None:
    there = world.host("b")
    with pytest.raises(sj.InvalidOperation, match="max_frame_bytes"):
        await there.references.actor(Counter, "c").send(Counter.note, b"x" * (1 << 20))


async def test_admission_deadline(world: World, counter: sj.ActorRef[Counter]) -> None:
    here = world.hosts[b"a"]
    running = asyncio.ensure_future(counter.with_timeout(10**6).request(Counter.wait))
    await settle()
    await world.clock.advance(3600)
    with pytest.raises(sj.Unavailable, match="lease is over"):
        await running
    asked = asyncio.ensure_future(counter.request(Counter.add, 1))
    await settle()
    assert not asked.done()
    from sojourn.control import Admission

    here.receive_control(Admission(world.clock.boottime_ns() + 10**9))
    assert await asked == 1
    here.receive_control(Admission(0))  # the lease turned out to be over before its time
    asked = asyncio.ensure_future(counter.request(Counter.add, 1))
    await settle()
    assert not asked.done()
    here.receive_control(Admission(world.clock.boottime_ns() + 10**9))
    assert await asked == 2
