"""Deadlines of requests and handlers, and what is known of the work when one is over (B3.1, B3.4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import sojourn as sj
from sojourn import frames
from sojourn.control import decode_error

from tests.unit.spots.worlds import World, settle

app = sj.App("deadlines")


@app.actor
class Counter(sj.Actor):
    def __init__(self) -> None:
        self.total = 0
        self.gate = asyncio.Event()

    @sj.request
    async def add(self, number: int) -> int:
        self.total += number
        return self.total

    @sj.request
    async def wait(self) -> str:
        await self.gate.wait()
        return "waited"


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


async def test_timeout(world: World, counter: sj.ActorRef[Counter]) -> None:
    with pytest.raises(TypeError):
        counter.with_timeout()  # type: ignore[call-arg]
    waiting = asyncio.ensure_future(counter.with_timeout(5).request(Counter.wait))
    await world.clock.advance(4.9)
    assert not waiting.done()
    await world.clock.advance(0.2)
    with pytest.raises(sj.DeadlineExceeded, match="within 5 s") as late:
        await waiting
    assert late.value.applied == "unknown"


async def test_late_reply_is_dropped_and_the_node_is_told(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    world.make(here, Counter, "c")
    waiting = asyncio.ensure_future(
        there.references.actor(Counter, "c").with_timeout(1).request(Counter.wait)
    )
    await world.clock.advance(2)
    assert isinstance(waiting.exception(), sj.DeadlineExceeded)
    (frame,) = world.port("b").frames(frames.KIND_RECORD)
    assert world.port("b").forgotten == [frames.parse_record_header(frame).reply_route]
    instance: Any = here.cells[b"ac"].instance
    instance.gate.set()
    await settle()
    assert len(world.port("a").frames(frames.KIND_REPLY)) == 1
    assert len(there.outbox.pending) == 0


async def test_queued_request_past_its_deadline_is_not_run(
    world: World, counter: sj.ActorRef[Counter]
) -> None:
    here = world.hosts[b"a"]
    blocked = asyncio.ensure_future(counter.with_timeout(60).request(Counter.wait))
    late = asyncio.ensure_future(counter.with_timeout(1).request(Counter.add, 5))
    await world.clock.advance(2)
    with pytest.raises(sj.DeadlineExceeded):
        await late
    instance: Any = here.cells[b"ac"].instance
    instance.gate.set()
    assert await blocked == "waited"
    assert await counter.request(Counter.add, 1) == 1
    assert here.counters.dead == 1


async def test_whoever_hears_that_a_request_was_not_started_may_repeat_it(world: World) -> None:
    """The requester's clock is behind: the answer of the other side comes first."""
    here, there = world.host("a"), world.host("b")
    world.make(here, Counter, "c")
    counter = there.references.actor(Counter, "c")
    blocked = asyncio.ensure_future(counter.with_timeout(60).request(Counter.wait))
    late = asyncio.ensure_future(counter.with_timeout(1).request(Counter.add, 5))
    await world.clock.advance(2)
    instance: Any = here.cells[b"ac"].instance
    instance.gate.set()
    assert await blocked == "waited"
    assert isinstance(late.exception(), sj.DeadlineExceeded)
    _, answer = world.port("a").frames(frames.KIND_REPLY)
    body = decode_error(memoryview(answer)[frames.parse_reply_header(answer).body_at :])
    assert (body.kind, body.fields["phase"], body.fields["applied"]) == ("DeadlineExceeded", "expired", "no")


async def test_a_handler_past_its_deadline_is_cancelled_and_may_have_done_a_part(world: World) -> None:
    world.options = {"handler_deadline_ms": 2_000}
    world.make(world.host(), Counter, "c")
    counter = world.hosts[b"a"].references.actor(Counter, "c")
    waiting = asyncio.ensure_future(counter.request(Counter.wait))
    await world.clock.advance(3)
    with pytest.raises(sj.DeadlineExceeded, match=r"Counter.wait did not end within 2 s") as cut:
        await waiting
    assert cut.value.applied == "unknown"
    assert await counter.request(Counter.add, 1) == 1
