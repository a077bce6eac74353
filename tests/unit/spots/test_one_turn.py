"""An object runs one handler or timer callback at a time, first come, first served (B1.6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import sojourn as sj
from sojourn.spots.host import ObjectHost

from tests.unit.spots.worlds import World, settle

app = sj.App("one-turn")
STORY: list[str] = []
GATES: dict[str, asyncio.Event] = {}


async def turn(name: str) -> None:
    """Begin, wait until the test opens the gate, end."""
    STORY.append(f"{name} begins")
    await GATES.setdefault(name, asyncio.Event()).wait()
    STORY.append(f"{name} ends")


class Slow:
    """Handlers that wait in the middle of their turns."""

    @sj.request
    async def ask(self, name: str) -> str:
        await turn(name)
        return name

    @sj.send
    async def tell(self, name: str) -> None:
        await turn(name)

    @sj.timer(every=1, repeat=1)
    async def tick(self, tick: sj.Tick) -> None:
        await turn("tick")


@app.actor
class Player(sj.Actor, Slow):
    """An Actor."""


@app.spot
class Place(sj.InstanceSpot, Slow):
    """An Instance Spot."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(app)
    STORY.clear()
    GATES.clear()
    yield world
    await world.close()


def made(world: World, host: ObjectHost, kind: str) -> sj.ActorRef[Player] | sj.SpotRef[Place]:
    """An object of that kind, asked from another node."""
    far = world.host("b")
    if kind == "actor":
        world.make(host, Player, "p")
        return far.references.actor(Player, "p")
    world.make(host, Place, "p")
    return far.references.spot(Place, "p")


@pytest.mark.parametrize("kind", ["actor", "spot"])
async def test_no_turn_begins_before_the_one_before_has_ended(world: World, kind: str) -> None:
    """Requests, sends and timer callbacks alike, however long each waits in its middle."""
    reference = made(world, world.host("a"), kind)
    handlers = Player if kind == "actor" else Place
    asked = [asyncio.ensure_future(reference.request(handlers.ask, "first"))]  # type: ignore[arg-type]
    await settle()
    await reference.send(handlers.tell, "second")  # type: ignore[arg-type]
    await world.clock.advance(1.5)
    asked.append(asyncio.ensure_future(reference.request(handlers.ask, "third")))  # type: ignore[arg-type]
    await settle()
    expected: list[str] = []
    for name in ("first", "second", "tick", "third"):
        expected.append(f"{name} begins")
        assert expected == STORY
        GATES[name].set()
        await settle()
        expected.append(f"{name} ends")
        assert expected == STORY[: len(expected)]
    assert await asyncio.gather(*asked) == ["first", "third"]
