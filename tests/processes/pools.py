"""A pool of real worker processes around the fake host, and a record of everything it reports."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sojourn.control import Control, Welcome, WorkerReady
from sojourn.workers.pool import PoolEvents, WorkerPool
from sojourn.workers.program import ProgramReference
from sojourn.workers.worker_run import WorkerPlan

from tests.processes.fake_host import make_host

__all__ = ["ARENA", "Story", "arena", "running_pool", "welcome"]

ARENA = """
import sojourn.spots.app, sojourn.spots.objects as objects
app = sojourn.spots.app.App("arena", version=3)

@app.actor
class Player(objects.Actor):
    pass
"""


def arena(folder: Path, text: str = ARENA, name: str = "arena") -> ProgramReference:
    """A program in a file of its own."""
    (folder / f"{name}.py").write_text(text)
    return ProgramReference(
        attribute="app", module=name, directory=str(folder), sys_path=[str(folder), *sys.path], argv=["arena"]
    )


def welcome(worker: int) -> Welcome:
    return Welcome(
        rid=b"n1",
        generation=7,
        owner_id="n1@7",
        lease_generation=7,
        worker=worker,
        permits=16,
        admission_deadline_ns=2**62,
        options={},
    )


class Story:
    """What a pool told, with a way to wait for more of it."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []
        self.controls: list[tuple[int, Control]] = []
        self.bulk: list[bytes] = []
        self.ready: list[int] = []
        self.lost: list[tuple[int, str]] = []
        self._changed = asyncio.Condition()
        self._waiting: list[tuple[Callable[[], Any], asyncio.Future[None]]] = []
        self.events = PoolEvents(
            frame=lambda worker, body: self._note(self.frames, (worker, body)),
            control=lambda worker, message: self._note(self.controls, (worker, message)),
            bulk=lambda worker, handoff, last, chunk: self._note(self.bulk, bytes(chunk)),
            ready=self._on_ready,
            lost=lambda worker, reason: self._note(self.lost, (worker, reason)),
        )

    def _on_ready(self, worker: int, message: WorkerReady) -> None:
        assert message.worker == worker
        self._note(self.ready, worker)

    def _note(self, place: list[Any], what: Any) -> None:
        place.append(what)
        for condition, waiter in self._waiting:
            if not waiter.done() and condition():
                waiter.set_result(None)

    async def until(self, condition: Callable[[], Any], timeout_s: float = 20) -> None:
        """Wait until what was told makes `condition` true."""
        if not condition():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((condition, waiter))
            async with asyncio.timeout(timeout_s):
                await waiter

    def said(self, worker: int = 0) -> list[str]:
        """Texts of the frames of one worker."""
        return [body[1:].decode() for sender, body in self.frames if sender == worker]


@asynccontextmanager
async def running_pool(
    program: ProgramReference, workers: int = 1, **settings: Any
) -> AsyncIterator[tuple[WorkerPool, Story]]:
    story = Story()
    plan = WorkerPlan(program, node="n1", host_factory=make_host, **settings)
    pool = WorkerPool(plan, workers, story.events)
    await pool.start()
    try:
        pool.welcome(welcome)
        yield pool, story
    finally:
        await pool.stop(3)
