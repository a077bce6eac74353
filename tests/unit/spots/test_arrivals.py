"""What the supervisor of an arriving object is told: the end of every restore, and the requests in its queue; and how
soon one that came back may leave again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import sojourn as sj
from sojourn.control import Captured, DropObject, Restore, Restored, SealRefused
from sojourn.spots.cell import Phase

from tests.unit.spots.worlds import World, settle

app = sj.App("arrivals", version=2)


@app.actor
class Guest(sj.Actor):
    def __init__(self) -> None:
        self.calls = 0

    @sj.request
    async def wait(self) -> int:
        await GATE.wait()
        return self.calls

    @sj.request
    async def call(self) -> int:
        self.calls += 1
        return self.calls


GATE = asyncio.Event()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    it = World(app)
    yield it
    await it.close()


async def test_a_payload_that_no_memory_can_hold_is_refused_alone(world: World) -> None:
    """The memory is taken with the first piece, for the length that was announced: what the system does not give
    fails this restore, and not the worker with everything else in it."""
    there = world.host("b")
    there.receive_control(Restore(1, b"at", 4, 1, "Guest", 5, 7, 2**62))
    there.receive_bulk(4, False, memoryview(b"x" * 50))
    (told,) = world.port("b").controls(Restored)
    assert told.error is not None
    assert told.error.kind == "Unavailable"
    assert f"no memory for the {2**62} bytes" in told.error.fields["message"]
    assert b"at" not in there.cells
    there.receive_bulk(4, True, memoryview(b"x" * 50))
    assert len(world.port("b").controls(Restored)) == 1


async def test_restore_dropped_before_it_was_complete(world: World) -> None:
    """The supervisor's call does not wait for ever, and that of another attempt goes on."""
    there = world.host("b")
    there.receive_control(Restore(1, b"at", 4, 1, "Guest", 5, 7, 100))
    there.receive_bulk(4, False, memoryview(b"x" * 50))
    there.receive_control(DropObject(b"at", "", 3))
    assert world.port("b").controls(Restored) == []
    there.receive_control(DropObject(b"at", "", 4))
    there.receive_bulk(4, True, memoryview(b"x" * 50))
    assert there.cells == {}
    (answer,) = world.port("b").controls(Restored)
    assert (answer.call, answer.handoff) == (1, 4)
    assert answer.error is not None
    assert answer.error.kind == "Unavailable"


async def test_the_requests_of_saved_work_are_named(world: World) -> None:
    """So that somebody can end them when the process that has them is gone."""
    GATE.clear()
    here, there = world.host("a"), world.host("b")
    world.make(here, Guest, "t")
    reference = world.host("c").references.actor(Guest, "t")
    running = asyncio.ensure_future(reference.request(Guest.wait))
    await settle()
    asked = asyncio.ensure_future(reference.request(Guest.call))
    await settle()
    world.seal(here, Guest, "t")
    GATE.set()
    await running
    await settle()
    assert world.restore(there, Guest, "t", world.captured(here)).error is None
    caller = world.host("c").outbox.origin
    (captured,) = world.port("a").controls(Captured)
    (restored,) = world.port("b").controls(Restored)
    (request,) = captured.requests
    (saved,) = restored.requests
    assert (saved.rid, saved.generation, saved.reply_route) == (
        request.rid,
        request.generation,
        request.reply_route,
    )
    assert (request.rid, request.generation) == (caller.rid, caller.generation)
    assert request.reply_route
    asked.cancel()


async def test_the_next_move_may_follow_a_failed_one_at_once(world: World) -> None:
    """Parts of the state may still be on their way out: the second seal waits for them, it is not refused."""
    here = world.host("a")
    world.make(here, Guest, "t")
    port = world.port("a")
    world.seal(here, Guest, "t", 1)
    world.unseal(here, Guest, "t", 1)
    assert here.cells[b"at"].phase is Phase.CLOSED
    world.seal(here, Guest, "t", 2)
    await settle()
    assert port.controls(SealRefused) == []
    assert [each.handoff for each in port.controls(Captured)] == [1, 2]
    assert here.cells[b"at"].phase is Phase.CAPTURED
    world.unseal(here, Guest, "t", 2)
    world.seal(here, Guest, "t", 3)
    world.unseal(here, Guest, "t", 3)  # given up before it began
    await settle()
    assert [each.handoff for each in port.controls(Captured)] == [1, 2]
    assert here.cells[b"at"].phase is Phase.OPEN
    assert await here.references.actor(Guest, "t").request(Guest.call) == 1
