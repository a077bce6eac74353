"""What a move waits for before its object is sealed: memory, budget and marker at one moment (B5.3, R5.4, B9.4)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sojourn.ids import NodeRun, spot_key
from sojourn.options import Options
from sojourn.workers.coordinator import Coordinator
from sojourn.workers.debt import Retention

KEY = spot_key("d")
THERE = NodeRun(b"there", 9)
LIMIT = 10


class Budget:
    """A budget with room once the test says so."""

    def __init__(self) -> None:
        self.room = asyncio.Event()
        self.asked: list[NodeRun] = []

    async def wait_room(self, peer: NodeRun) -> None:
        self.asked.append(peer)
        await self.room.wait()


class Scene:
    def __init__(self) -> None:
        self.retention = Retention(LIMIT)
        self.marker_out = False
        senders = SimpleNamespace(marker_out=lambda key: self.marker_out)
        node = SimpleNamespace(options=Options(), retention=self.retention, senders=senders)
        self.coordinator = Coordinator(cast(Any, node))
        self.budget = Budget()
        self.coordinator.budget = cast(Any, self.budget)
        self.held = cast(Any, SimpleNamespace(key=KEY))

    def wait(self, target: NodeRun | None) -> asyncio.Task[None]:
        return asyncio.ensure_future(self.coordinator._room(self.held, target))


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_move_that_waited_for_the_budget_waits_for_memory_behind_it() -> None:
    scene = Scene()
    waiting = scene.wait(THERE)
    await settle()
    scene.retention.keep(LIMIT + 1)  # another move captured meanwhile
    scene.budget.room.set()
    await settle()
    assert not waiting.done()
    scene.retention.free(1)
    await asyncio.wait_for(waiting, 5.0)
    assert scene.budget.asked == [THERE]


@pytest.mark.parametrize("target", [THERE, None], ids=["another node", "the own node"])
async def test_a_move_that_waited_for_its_marker_looks_at_the_memory_again(target: NodeRun | None) -> None:
    scene = Scene()
    scene.budget.room.set()
    scene.marker_out = True
    waiting = scene.wait(target)
    await settle()
    scene.retention.keep(LIMIT + 1)
    scene.marker_out = False
    scene.coordinator.following.marker_back()
    await settle()
    assert not waiting.done()
    scene.retention.free(1)
    await asyncio.wait_for(waiting, 5.0)


async def test_a_move_with_room_waits_for_nothing() -> None:
    scene = Scene()
    scene.retention.keep(LIMIT)
    scene.budget.room.set()
    await asyncio.wait_for(scene.wait(THERE), 5.0)
