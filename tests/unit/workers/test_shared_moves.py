"""Two callers that want one object at different nodes, in every order of the event loop (B10.4)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sojourn.ids import NodeRun
from sojourn.options import Options
from sojourn.workers.coordinator import Coordinator
from sojourn.workers.host_move import MoveResult
from sojourn.workers.objects import Place

KEY = b"sdesk"
TURNS_MAX = 50


class Moves(Coordinator):
    """Moves that fail when the test says so, and leave the object here."""

    def __init__(self, node: Any) -> None:
        super().__init__(node)
        self.running = asyncio.Event()
        self.gate = asyncio.Event()
        self.begun: list[bytes | None] = []
        self.workers: list[int | None] = []
        self.asked = 0

    async def _move(self, held: Any, goal: Any, deadline: float) -> MoveResult:
        self.begun.append(goal.to)
        self.running.set()
        await self.gate.wait()
        self.workers.append(goal.worker)
        target = "" if goal.to is None else goal.to.decode()
        return MoveResult(
            "failed", "TargetUnavailable", target=target, worker=-1 if goal.worker is None else goal.worker
        )

    async def _result_of(self, task: asyncio.Task[MoveResult]) -> MoveResult:
        self.asked += 1
        assert self.asked < TURNS_MAX, "it awaits the same move again and again"
        return await super()._result_of(task)


@pytest.mark.parametrize("turns", range(4))
async def test_a_second_caller_may_come_while_the_first_move_ends(turns: int) -> None:
    """Between the end of a move and its callbacks the loop runs others; they must not wait for what is over."""
    loop = asyncio.get_running_loop()
    held = SimpleNamespace(key=KEY, place=Place.ACTIVE, lead=None)
    router = SimpleNamespace(objects={KEY: held})
    run = NodeRun(b"here", 1)
    node = SimpleNamespace(options=Options(), router=router, loop=loop, retention=None, run=run)
    moves = Moves(cast(Any, node))
    first = loop.create_task(moves.move(KEY, b"east", 5.0))
    async with asyncio.timeout(5):
        await moves.running.wait()
        moves.gate.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        second = loop.create_task(moves.move(KEY, b"west", 5.0))
        assert (await first).target == "east"
        assert (await second).target == "west"
    assert moves.begun == [b"east", b"west"]


@pytest.mark.parametrize(
    ("wanted", "begun"),
    [
        ((None, 1), [1]),  # the same worker: shared
        ((b"here", 1), [1]),
        ((None, 0), [1, 0]),
        ((b"west", None), [1, None]),
        ((b"west", 1), [1, None]),  # there first, and within that node then
        ((None, None), [1, None]),  # a host move is not done with it
        ((b"here", None), [1, None]),  # here it is in any case
    ],
)
async def test_who_shares_a_move_to_another_worker(
    wanted: tuple[bytes | None, int | None], begun: list[int | None]
) -> None:
    """B8.7, B10.4: the same goal only; whoever wants another waits for its end."""
    loop = asyncio.get_running_loop()
    held = SimpleNamespace(key=KEY, place=Place.ACTIVE, lead=None)
    router = SimpleNamespace(objects={KEY: held})
    run = NodeRun(b"here", 1)
    node = SimpleNamespace(options=Options(), router=router, loop=loop, retention=None, run=run)
    moves = Moves(cast(Any, node))
    first = loop.create_task(moves.move(KEY, None, 5.0, 1))
    async with asyncio.timeout(5):
        await moves.running.wait()
        to, worker = wanted
        second = loop.create_task(moves.move(KEY, to, 5.0, worker))
        await asyncio.sleep(0)
        moves.gate.set()
        await asyncio.gather(first, second)
    assert moves.workers == begun
