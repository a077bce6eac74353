"""Who waits for what is in a restored queue: its supervisor is told, and answers if the worker ends (B7.1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import sojourn as sj
from sojourn.control import Restored
from sojourn.frames import FLAG_LOOP, KIND_RECORD, parse_record_header, set_hops
from sojourn.ids import actor_key
from sojourn.workers.records import unbind_frame, unbind_payload

from tests.unit.spots.worlds import World, settle

app = sj.App("saved")
GATES: list[asyncio.Event] = []
"""The gate of the running test; an event belongs to one event loop."""


@app.actor
class Clerk(sj.Actor):
    @sj.request
    async def wait(self) -> str:
        await GATES[-1].wait()
        return self.id

    @sj.request
    async def ask(self, number: int) -> int:
        return number

    @sj.send
    async def tell(self, number: int) -> None:
        pass


@pytest.fixture
async def world() -> AsyncIterator[World]:
    GATES[:] = [asyncio.Event()]
    it = World(app)
    yield it
    await it.close()


async def test_the_requests_of_a_restored_queue_are_told(world: World) -> None:
    here, there, third = world.host("a"), world.host("b"), world.host("c")
    world.make(here, Clerk, "c")
    local, remote = (host.references.actor(Clerk, "c") for host in (here, third))
    running = asyncio.ensure_future(local.request(Clerk.wait))
    await settle()
    asked = [asyncio.ensure_future(local.request(Clerk.ask, 1))]
    await settle()
    await remote.send(Clerk.tell, 2)
    asked.append(asyncio.ensure_future(remote.request(Clerk.ask, 3)))
    await settle()
    world.seal(here, Clerk, "c")
    GATES[-1].set()
    await running
    await settle()
    world.restore(there, Clerk, "c", world.captured(here))
    await settle()
    (restored,) = world.port("b").controls(Restored)
    first, second = restored.requests
    assert (first.key, first.rid, first.order) == (b"ac", b"a", 1)
    assert (second.key, second.rid, second.order) == (b"ac", b"c", 3)
    header = parse_record_header(world.port("c").frames(KIND_RECORD)[-1])
    operation = (header.reply_route, header.operation_high, header.operation_low)
    assert (second.reply_route, second.operation_high, second.operation_low) == operation
    world.open(there, Clerk, "c")
    world.drop(here, Clerk, "c")
    assert await asyncio.gather(*asked) == [1, 3]


async def test_an_unbind_that_a_peer_had_queued_goes_to_the_supervisor_in_its_place(world: World) -> None:
    """Nothing of ours queues one; a peer may, as it is an ordinary record (B11.1). No handler is looked for."""
    here, there = world.host("a"), world.host("b")
    world.make(here, Clerk, "c")
    local = here.references.actor(Clerk, "c")
    running = asyncio.ensure_future(local.request(Clerk.wait))
    await settle()
    body = unbind_frame(here.outbox.node_source, actor_key("c"), b"the six fields", (1, 2))
    world.deliver(b"a", set_hops(body, 0, 0, FLAG_LOOP))
    asked = asyncio.ensure_future(local.request(Clerk.ask, 1))
    await settle()
    world.seal(here, Clerk, "c")
    GATES[-1].set()
    await running
    await settle()
    world.restore(there, Clerk, "c", world.captured(here))
    await settle()
    assert unbinds(world, "b") == []
    world.open(there, Clerk, "c")
    world.drop(here, Clerk, "c")
    assert await asked == 1
    assert unbinds(world, "b") == [b"the six fields"]
    assert unbinds(world, "a") == []
    assert there.counters.dead == 0
    assert there.counters.handled == 2


def unbinds(world: World, name: str) -> list[bytes]:
    """What a worker gave back to its supervisor."""
    bodies = world.port(name).frames(KIND_RECORD)
    found = [unbind_payload(body, parse_record_header(body)) for body in bodies]
    return [fields for fields in found if fields is not None]
