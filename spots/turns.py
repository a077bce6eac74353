"""Turns: one piece of work of one object, and the tasks that carry those that have to wait.

Owns `Job` (what stands in a mailbox), the context variable that says whose turn is running, and `Runner`,
the reusable task behind a turn. A turn costs no task unless it suspends: its first step runs at once under
the identity of a parked task, which takes the rest over only if the step did not end it. It must not know
what kinds of jobs exist.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from sojourn.errors import DeadlineExceeded
from sojourn.ids import describe_key

if TYPE_CHECKING:
    from sojourn.errors import SojournError
    from sojourn.spots.cell import Cell
    from sojourn.spots.ports import Cancellable

__all__ = ["Job", "Runner", "current_turn", "first_step"]

current_turn: ContextVar[Job | None] = ContextVar("sojourn_current_turn", default=None)
"""The turn that runs here; tasks started in a turn inherit it."""


class Job:
    """One entry of a mailbox. Subclasses say what is run and what its end means.

    Attributes:
        cell: the object it is for.
        caller: the turn that waits for this job, in this process; the chain finds cycles.
        waiting: open requests of the running turn.
        ended: the turn is over.
        runner: the task that carries the suspended turn.
        stopped: why the turn is being cancelled.
        alarm: the timer of its longest duration.
    """

    __slots__ = ("alarm", "caller", "cell", "ended", "runner", "stopped", "waiting")

    def __init__(self, cell: Cell, caller: Job | None = None) -> None:
        self.cell = cell
        self.caller = caller
        self.alarm: Cancellable | None = None
        self.waiting = 0
        self.ended = False
        self.runner: Runner | None = None
        self.stopped: SojournError | None = None

    def begin(self) -> Coroutine[Any, Any, Any] | None:
        """Take what the job needs and make its coroutine; None when there is nothing to run."""
        raise TypeError(f"{type(self).__name__} cannot run")

    def succeed(self, value: Any) -> None:
        """The turn returned."""

    def fail(self, error: BaseException) -> None:
        """The turn, or its beginning, raised."""

    @property
    def limit_s(self) -> float:
        """Longest time of the turn in seconds, 0 = none (B2.9)."""
        return self.cell.host.handler_limit_s

    @property
    def name(self) -> str:
        """What runs, for error texts."""
        return type(self).__name__

    def overdue(self) -> None:
        """Its longest time is over."""
        self.alarm = None
        self.stop(
            DeadlineExceeded(
                f"{self.name} did not end within {self.limit_s:g} s and was cancelled",
                object_id=describe_key(self.cell.key),
                applied="unknown",
            )
        )

    def stop(self, error: SojournError) -> None:
        """Cancel the running turn; it ends with `error`."""
        if self.runner is not None and not self.ended:
            self.stopped = error
            self.runner.task.cancel()


def first_step(job: Job, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a turn up to its first suspension, inside its own context."""
    current_turn.set(job)
    return coroutine.send(None)


class Runner:
    """A task that carries suspended turns, one after the other.

    Args:
        settle: called with the job and its result or exception when a turn it carried is over.
        release: called when the runner is free again; False ends it.
    """

    __slots__ = ("_context", "_coroutine", "_parked", "_release", "_settle", "_yielded", "job", "task")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settle: Callable[[Job, Any, BaseException | None], None],
        release: Callable[[Runner], bool],
    ) -> None:
        self._settle = settle
        self._release = release
        self.job: Job | None = None
        self._coroutine: Coroutine[Any, Any, Any] | None = None
        self._yielded: Any = None
        self._context: contextvars.Context | None = None
        self._parked: asyncio.Future[None] = loop.create_future()
        carrier = self._run(loop)
        carrier.send(None)
        self.task = loop.create_task(carrier, context=contextvars.Context())

    def take_over(
        self, job: Job, coroutine: Coroutine[Any, Any, Any], yielded: Any, context: contextvars.Context
    ) -> None:
        """Carry a turn from the future (or None) that its first step waits for."""
        self.job, self._coroutine, self._yielded, self._context = job, coroutine, yielded, context
        job.runner = self
        if not self._parked.done():
            self._parked.set_result(None)

    async def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        started = False
        while True:
            cancelled: asyncio.CancelledError | None = None
            try:
                if not started:
                    started = True
                    await _Pause()
                await self._parked
            except asyncio.CancelledError as error:
                if self._coroutine is None:
                    raise
                cancelled = error  # it reached the task before the turn did
            await self._carry(cancelled)
            while self.task.cancelling():
                self.task.uncancel()
            self._parked = loop.create_future()
            if not self._release(self):
                return

    async def _carry(self, cancelled: asyncio.CancelledError | None) -> None:
        job, coroutine, context = self.job, self._coroutine, self._context
        assert job is not None
        assert coroutine is not None
        assert context is not None
        value: Any = None
        error: BaseException | None = None
        try:
            value = await _Rest(coroutine, self._yielded, context, cancelled)
        except GeneratorExit:
            raise
        except BaseException as raised:
            error = raised
        self.job = self._coroutine = self._yielded = self._context = None
        job.runner = None
        self._settle(job, value, error)


class _Pause:
    """Where a new runner stands before its task's first step.

    A task that is cancelled before that step never enters a fresh coroutine, and the turn it had taken over
    (a timeout that was due at once, on a busy machine) would wait forever. Here the cancellation arrives.
    """

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield


class _Rest:
    """Awaitable for the rest of a coroutine whose first step was driven by someone else."""

    __slots__ = ("_cancelled", "_context", "_coroutine", "_yielded")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        yielded: Any,
        context: contextvars.Context,
        cancelled: asyncio.CancelledError | None,
    ) -> None:
        self._coroutine = coroutine
        self._yielded = yielded
        self._context = context
        self._cancelled = cancelled

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine, yielded, run = self._coroutine, self._yielded, self._context.run
        error: BaseException | None = self._cancelled
        while True:
            value = None
            if error is None:
                try:
                    value = yield yielded
                except BaseException as raised:
                    error = raised
            try:
                if error is None:
                    yielded = run(coroutine.send, value)
                else:
                    thrown, error = error, None
                    yielded = run(coroutine.throw, thrown)
            except StopIteration as stop:
                return stop.value
