"""Who waits for what is in a restored queue: its supervisor is told, and answers if the worker ends (B7.1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import sojourn as sj
from sojourn.control import Restored
from sojourn.frames import KIND_RECORD, parse_record_header

from tests.unit.spots.worlds import World, settle

app = sj.App("saved")
GATE = asyncio.Event()


@app.actor
class Clerk(sj.Actor):
    @sj.request
    async def wait(self) -> str:
        await GATE.wait()
        return self.id

    @sj.request
    async def ask(self, number: int) -> int:
        return number

    @sj.send
    async def tell(self, number: int) -> None:
        pass


@pytest.fixture
async def world() -> AsyncIterator[World]:
    GATE.clear()
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
    GATE.set()
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
