"""The scheduler: which object takes its next turn.

Owns the list of ready cells, the running of first steps and the admission deadline (B6.4). One turn per cell
and round: objects take turns in the order in which they became ready. It must not know what jobs do or how
objects come and go; it is told through callbacks when a turn is over.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio.tasks import _enter_task, _leave_task
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from sojourn.errors import SojournError, Unavailable
from sojourn.spots.cell import Cell, Phase
from sojourn.spots.turns import Job, Runner, first_step

if TYPE_CHECKING:
    from sojourn.spots.ports import Cancellable, Clock, Port

__all__ = ["Scheduler"]

_TURNS_PER_ROUND_MAX = 256
"""Turns run before the event loop gets to look at its sockets again."""
_SPARE_RUNNERS_MAX = 128
_NS_PER_S = 1e9


class Scheduler:
    """Runs the turns of one event loop.

    Args:
        clock: times.
        admission_deadline_ns: CLOCK_BOOTTIME ns past which no turn starts.
        turn_over: called after every turn, when the cell may take another.
        end_requests: called with a turn that ended with open requests.
        port: told when rounds of turns begin and end, and when a handler asks the process to end.
    """

    def __init__(
        self,
        clock: Clock,
        admission_deadline_ns: int,
        turn_over: Callable[[Cell], None],
        end_requests: Callable[[Job], None],
        port: Port,
    ) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._turn_over = turn_over
        self._end_requests = end_requests
        self._port = port
        self._ready: deque[Cell] = deque()
        self._draining = False
        self._scheduled = False
        self._inline_left = _TURNS_PER_ROUND_MAX
        self._spare: list[Runner] = []
        self._lent: Runner | None = None
        self._carrying: set[Runner] = set()
        self._base_context = contextvars.copy_context()
        self._admission_deadline_ns = admission_deadline_ns
        self._admission_timer: Cancellable | None = None
        self._stopped = False
        self._watch_admission()

    # admission

    @property
    def admitted(self) -> bool:
        """True while turns may start (B6.4)."""
        return not self._stopped and self._clock.boottime_ns() < self._admission_deadline_ns

    def extend_admission(self, deadline_ns: int) -> None:
        """Set the admission deadline: turns that waited for a later one go on. A lease that is known to be over
        takes it back (0), and nothing goes on then."""
        self._admission_deadline_ns = deadline_ns
        self._watch_admission()
        if self._ready:
            self.wake()

    def _watch_admission(self) -> None:
        if self._admission_timer is not None:
            self._admission_timer.cancel()
        left_s = (self._admission_deadline_ns - self._clock.boottime_ns()) / _NS_PER_S
        self._admission_timer = self._clock.call_at(
            self._clock.monotonic() + max(0.0, left_s), self._admission_over
        )

    def _admission_over(self) -> None:
        self._admission_timer = None
        if self._clock.boottime_ns() < self._admission_deadline_ns:
            self._watch_admission()
            return
        for job in self.running():
            job.stop(
                Unavailable("the node's lease is over: the running turn was cancelled", applied="unknown")
            )

    # ready cells

    def ready(self, cell: Cell) -> None:
        """List a cell if it has work and may take a turn."""
        if cell.listed or cell.running is not None or cell.queue is None or cell.phase is not Phase.OPEN:
            return
        cell.listed = True
        self._ready.append(cell)
        if not self._scheduled and not self._draining:
            self._scheduled = True
            self._loop.call_soon(self._round)

    def wake(self) -> None:
        """See to it that ready cells get their turns."""
        if not self._scheduled and not self._draining:
            self._scheduled = True
            self._loop.call_soon(self._round)

    def offer(self, job: Job) -> None:
        """Take a job for its cell, and run it at once where nobody waits before it.

        A request to an idle object in the same worker is then answered before its caller suspends. Every
        round of the event loop has room for a number of such turns; one that comes from inside another
        turn's first step waits for that step's end.
        """
        cell = job.cell
        if (
            self._draining
            or self._ready
            or self._inline_left <= 0
            or cell.running is not None
            or cell.queue is not None
            or cell.phase is not Phase.OPEN
            or not self.admitted
        ):
            cell.put(job)
            self.ready(cell)
            if not self._draining and self._inline_left > 0:
                self.run_now()
            return
        self._inline_left -= 1
        if not self._scheduled:
            self._scheduled = True  # the next round gives new room
            self._loop.call_soon(self._round)
        self.run(job)
        if self._ready:
            self.run_now()

    def run_now(self) -> None:
        """Run ready turns at once, while this round of the event loop has room for it."""
        if self._draining or self._inline_left <= 0:
            return
        task = asyncio.current_task(self._loop)
        if task is None:
            self._inline_left -= self._drain(self._inline_left)
            return
        _leave_task(self._loop, task)
        try:
            self._inline_left -= self._drain(self._inline_left)
        finally:
            _enter_task(self._loop, task)

    def _round(self) -> None:
        self._scheduled = False
        self._inline_left = _TURNS_PER_ROUND_MAX
        if self._ready and not self._draining:
            self._port.hold()
            try:
                self._drain(_TURNS_PER_ROUND_MAX)
            finally:
                self._port.release()

    def _drain(self, turns_max: int) -> int:
        """Run up to `turns_max` turns and tell how many. No task is current meanwhile but a runner's."""
        self._draining = True
        ready, loop, turns = self._ready, self._loop, 0
        now_ns = self._clock.boottime_ns
        runner = self._lend_runner()
        _enter_task(loop, runner.task)
        try:
            while (
                ready and turns < turns_max and now_ns() < self._admission_deadline_ns and not self._stopped
            ):
                turns += 1
                cell = ready.popleft()
                cell.listed = False
                if cell.queue is None or cell.running is not None or cell.phase is not Phase.OPEN:
                    continue
                if self._start(cell.take(), runner):
                    _leave_task(loop, runner.task)
                    runner = self._lend_runner()
                    _enter_task(loop, runner.task)
        finally:
            _leave_task(loop, runner.task)
            self._draining = False
        if ready and self.admitted:
            self.wake()
        return turns

    # turns

    def run(self, job: Job) -> None:
        """Run a job's first step at once, past the mailbox."""
        loop = self._loop
        task = asyncio.current_task(loop)
        if task is not None:
            _leave_task(loop, task)
        runner = self._lend_runner()
        _enter_task(loop, runner.task)
        draining, self._draining = self._draining, True
        try:
            self._start(job, runner)
        finally:
            self._draining = draining
            _leave_task(loop, runner.task)
            if task is not None:
                _enter_task(loop, task)
        if self._ready:
            self.wake()

    def _start(self, job: Job, runner: Runner) -> bool:
        """Run the first step of a job; True if its runner may not be used for another one."""
        cell = job.cell
        cell.running = job
        try:
            coroutine = job.begin()
        except Exception as error:
            self._finish(job, None, error)
            return False
        if coroutine is None:
            job.ended = True
            cell.running = None
            self._turn_over(cell)
            return False
        context = self._base_context.copy()
        try:
            yielded = context.run(first_step, job, coroutine)
        except StopIteration as stop:
            self._finish(job, stop.value, None)
        except BaseException as error:
            self._finish(job, None, error)
        else:
            self._carrying.add(runner)
            limit_s = job.limit_s
            if limit_s:
                job.alarm = self._clock.call_at(self._clock.monotonic() + limit_s, job.overdue)
            runner.take_over(job, coroutine, yielded, context)
            self._lent = None
            return True
        if runner.task.cancelling():
            self._lent = None  # the step cancelled the task it ran under, which ends now
            return True
        return False

    def _finish(self, job: Job, value: Any, error: BaseException | None) -> None:
        cell = job.cell
        job.ended = True
        cell.running = None
        if job.alarm is not None:
            job.alarm.cancel()
        if job.waiting:
            self._end_requests(job)
        if error is None:
            try:
                job.succeed(value)
            except Exception as unsuitable:  # the result cannot be encoded
                job.fail(unsuitable)
        else:
            if isinstance(error, (SystemExit, KeyboardInterrupt)):
                self._port.fatal(error)
            elif isinstance(error, asyncio.CancelledError) and job.stopped is not None:
                error = job.stopped
            job.fail(error)
        self._turn_over(cell)

    # runners

    def _lend_runner(self) -> Runner:
        """The runner under whose identity first steps run; nested ones share it."""
        if self._lent is None:
            self._lent = self._spare.pop() if self._spare else Runner(self._loop, self._finish, self._release)
        return self._lent

    def _release(self, runner: Runner) -> bool:
        self._carrying.discard(runner)
        if self._stopped or len(self._spare) >= _SPARE_RUNNERS_MAX:
            return False
        self._spare.append(runner)
        return True

    def running(self) -> Iterator[Job]:
        """Turns that are suspended now."""
        return iter([runner.job for runner in self._carrying if runner.job is not None])

    async def close(self, error: SojournError) -> None:
        """Start no more turns, cancel the suspended ones with `error` and end all tasks."""
        self._stopped = True
        if self._admission_timer is not None:
            self._admission_timer.cancel()
            self._admission_timer = None
        tasks = [runner.task for runner in self._spare] + [runner.task for runner in self._carrying]
        for job in self.running():
            job.stop(error)
        for runner in self._spare:
            runner.task.cancel()
        self._spare.clear()
        if self._lent is not None:
            self._lent.task.cancel()
            tasks.append(self._lent.task)
            self._lent = None
        if tasks:
            await asyncio.wait(tasks)
