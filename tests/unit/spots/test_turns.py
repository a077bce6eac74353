"""Runners: a turn that was taken over always ends, whenever its task is cancelled."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any, cast

import pytest
from sojourn.spots.turns import Job, Runner, first_step


class Turn:
    """A turn that waits forever, begun the way the scheduler begins one, and how it ended."""

    def __init__(self) -> None:
        self.ends: list[BaseException | None] = []
        self.released = asyncio.Event()
        self.runner = self.new_runner()

    def new_runner(self) -> Runner:
        return Runner(asyncio.get_running_loop(), self._settle, self._release)

    def begin(self) -> None:
        job = Job(cast(Any, None))
        context = contextvars.copy_context()
        coroutine = asyncio.Event().wait()
        self.runner.take_over(job, coroutine, context.run(first_step, job, coroutine), context)

    def _settle(self, job: Job, value: Any, error: BaseException | None) -> None:
        self.ends.append(error)

    def _release(self, runner: Runner) -> bool:
        self.released.set()
        return False


@pytest.mark.parametrize("steps", range(4))
async def test_cancelled_after_any_number_of_steps(steps: int) -> None:
    """Before the first step of the runner's own task too, which is when a due timeout may strike."""
    turn = Turn()
    turn.begin()
    for _ in range(steps):
        await asyncio.sleep(0)
    turn.runner.task.cancel()
    await turn.released.wait()
    assert [type(end) for end in turn.ends] == [asyncio.CancelledError]
