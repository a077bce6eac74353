"""The workers of one node: all started together, watched, replaced when they die, stopped within a limit.

Owns the slots and who runs in them. It must not know objects or routes: frames and control messages go to the
callbacks of the supervisor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sojourn.control import Control, RegistryEntry, Welcome, WorkerReady, encode_control
from sojourn.errors import NotConfigured, SojournError, Unavailable
from sojourn.frames import control_frame
from sojourn.workers.ipc import Connection
from sojourn.workers.worker_run import RunEvents, WorkerPlan, WorkerRun

__all__ = ["Application", "PoolEvents", "WorkerPool"]

RESTART_DELAYS_S = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)
"""Pause before a slot's next start, by the number of starts that did not last."""
LASTING_S = 10.0
"""A worker that lived this long has proved that its slot works."""

logger = logging.getLogger("sojourn.workers")


@dataclass(frozen=True)
class PoolEvents:
    """What the supervisor is told; every callback runs in its event loop and must not block.

    `frame(worker, body)`: a record or reply. `bulk(worker, handoff, last, chunk)`: `chunk` is a view that is
    valid only during the call. `control(worker, message)`: what is neither the pool's own nor the answer to a
    call. `ready(worker, message)`: after its Welcome was sent, also for a replacement. `lost(worker, reason)`: the
    process is dead, nothing more comes from it.
    """

    frame: Callable[[int, bytes], object]
    control: Callable[[int, Control], object]
    bulk: Callable[[int, int, bool, memoryview], object]
    ready: Callable[[int, WorkerReady], object] = lambda worker, message: None
    lost: Callable[[int, str], object] = lambda worker, reason: None


@dataclass(frozen=True)
class Application:
    """What the workers of this node can host, as each of them reported it."""

    name: str
    version: int
    registry: tuple[RegistryEntry, ...]

    @classmethod
    def of(cls, ready: WorkerReady) -> Application:
        """What one worker reported."""
        registry = sorted(ready.registry, key=lambda entry: (entry.kind, entry.stable_type))
        return cls(ready.application, ready.application_version, tuple(registry))

    def difference(self, other: Application) -> str:
        """What is not the same in `other`, as people read it."""
        if (self.name, self.version) != (other.name, other.version):
            return f"{self.name!r} version {self.version} became {other.name!r} version {other.version}"
        ours = {entry.stable_type for entry in self.registry}
        theirs = {entry.stable_type for entry in other.registry}
        changed = sorted(ours ^ theirs) or ["the same types with other settings"]
        return f"its registered types changed: {', '.join(changed)}"


@dataclass
class _Slot:
    index: int
    run: WorkerRun | None = None
    short_lives: int = 0
    started_at: float = 0.0


class WorkerPool:
    """See the module text. `workers` is 1 to 1024; the order of the calls is start, welcome, stop."""

    def __init__(self, plan: WorkerPlan, workers: int, events: PoolEvents) -> None:
        self._plan = plan
        self._events = events
        self._slots = [_Slot(index) for index in range(workers)]
        self._connections: list[Connection | None] = [None] * workers
        self._loop = asyncio.get_running_loop()
        self._application: Application | None = None
        self._make_welcome: Callable[[int], Welcome] | None = None
        self._replacing: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._ticker: asyncio.TimerHandle | None = None
        self._last_tick = 0.0
        self._run_events = RunEvents(events.frame, events.control, events.bulk, self._run_ended)

    # life

    async def start(self) -> Application:
        """Start every worker; returns when all have imported the program.

        Raises:
            NotConfigured: the program cannot be imported, or differs between workers; its text says why.
            Unavailable: a worker process ended before it was ready.
        """
        starts = [self._loop.create_task(self._start_slot(slot)) for slot in self._slots]
        try:
            await asyncio.wait(starts, return_when=asyncio.FIRST_EXCEPTION)
            failures = [task.exception() for task in starts if task.done()]
            if any(failures):
                raise _worst(failures)
            reports = [Application.of(start.result()) for start in starts]
            self._check_alike(reports)
        except BaseException:
            for start in starts:
                start.cancel()
            await asyncio.gather(self.stop(0), *starts, return_exceptions=True)
            raise
        self._application = reports[0]
        self._last_tick = self._loop.time()
        self._schedule_tick()
        return reports[0]

    def _check_alike(self, reports: list[Application]) -> None:
        for index, report in enumerate(reports):
            if report != reports[0]:
                raise NotConfigured(
                    f"workers 0 and {index} imported different programs from {self._plan.program}: "
                    f"{reports[0].difference(report)}"
                )

    def welcome(self, make: Callable[[int], Welcome]) -> None:
        """Tell every worker who its node is; `make(worker)` is asked again for each replacement."""
        self._make_welcome = make
        for slot in self._slots:
            if slot.run is not None and slot.run.alive:
                self._admit(slot, slot.run)
            else:
                self._replace_later(slot)

    async def stop(self, deadline_s: float, reason: str = "HostShutdown") -> bool:
        """Ask every worker to end, and end those that do not; bounded by `deadline_s` and what a kill takes.

        Zero kills at once. Idempotent; a later call with a shorter deadline cuts an earlier one short.

        Returns:
            True when every worker ended by itself, False when running work was cut off.
        """
        self._stopping = True
        if self._ticker is not None:
            self._ticker.cancel()
        for task in self._replacing:
            task.cancel()
        runs = {slot.run for slot in self._slots if slot.run is not None}
        self._connections = [None] * len(self._slots)
        ends = await asyncio.gather(*(run.stop(deadline_s, reason) for run in runs), return_exceptions=True)
        await asyncio.gather(*self._replacing, return_exceptions=True)
        return all(end is True for end in ends)

    # use

    def send(self, worker: int, body: bytes) -> bool:
        """Send a frame body to a worker. False: the slot is empty, nothing was sent."""
        connection = self._connections[worker]
        if connection is None:
            return False
        connection.send(body)
        return True

    def sender(self, worker: int) -> Callable[[bytes], object]:
        """The quick way to `send` for as long as this run of the worker lasts; later bodies are dropped."""
        connection = self._connections[worker]
        assert connection is not None
        return connection.send

    def control(self, worker: int, message: Control) -> bool:
        """Send a one-way control message. False: the slot is empty, nothing was sent."""
        connection = self._connections[worker]
        if connection is None:
            return False
        connection.send_control(message)
        return True

    def send_bulk(self, worker: int, handoff: int, last: bool, chunk: bytes | memoryview) -> bool:
        """Send a piece of state; a large chunk must not change until `wait_written` returns."""
        connection = self._connections[worker]
        if connection is None:
            return False
        connection.send_bulk(handoff, last, chunk)
        return True

    @staticmethod
    def encode(message: Control) -> bytes:
        """The frame body of a control message, for who sends it later in a certain place among records."""
        return control_frame(encode_control(message))

    def call(self, worker: int, make: Callable[[int], Control]) -> asyncio.Future[Any]:
        """Send the request that `make(call number)` builds, at once, and return the future of its answer.

        The future fails with Unavailable: `applied` is `no` when the slot is empty, `unknown` when the worker is
        lost before it answers.
        """
        run = self._slots[worker].run
        if run is None or self._connections[worker] is None:
            answer: asyncio.Future[Any] = self._loop.create_future()
            answer.set_exception(Unavailable(f"worker {worker} is not running", applied="no"))
            return answer
        return run.call(make)

    def congested(self, worker: int) -> bool:
        """More waits to be written to this worker than it takes."""
        connection = self._connections[worker]
        return connection is not None and connection.congested

    async def wait_uncongested(self, worker: int) -> None:
        """Return when the worker takes more, or is gone."""
        connection = self._connections[worker]
        if connection is not None:
            await connection.wait_uncongested()

    def bulk_room(self, worker: int) -> bool:
        """The worker takes a piece of state now, or is gone."""
        connection = self._connections[worker]
        return connection is None or connection.bulk_room

    async def wait_bulk_room(self, worker: int) -> None:
        """Return, in another turn of the loop, when the worker takes a piece of state, or is gone."""
        connection = self._connections[worker]
        if connection is None:
            await asyncio.sleep(0)
        else:
            await connection.wait_bulk_room()

    async def wait_written(self, worker: int) -> None:
        """Return when everything sent to the worker has left this process, or it is gone."""
        connection = self._connections[worker]
        if connection is not None:
            await connection.wait_written()

    def running(self) -> list[int]:
        """Workers that were welcomed and are alive."""
        return [index for index, connection in enumerate(self._connections) if connection is not None]

    def pids(self) -> list[int]:
        """Process ids of the workers that are alive, by slot."""
        return [slot.run.pid for slot in self._slots if slot.run is not None and slot.run.alive]

    def kill(self, worker: int, reason: str) -> None:
        """Kill a worker, for example one that broke the protocol; `lost` follows, then a replacement."""
        run = self._slots[worker].run
        if run is not None:
            run.lose(reason)

    # slots

    async def _start_slot(self, slot: _Slot) -> WorkerReady:
        slot.run = run = WorkerRun(slot.index, self._plan, self._run_events)
        slot.started_at = self._loop.time()
        return await run.start()

    def _admit(self, slot: _Slot, run: WorkerRun, ready: WorkerReady | None = None) -> None:
        assert self._make_welcome is not None
        run.connection.send_control(self._make_welcome(slot.index))
        self._connections[slot.index] = run.connection
        self._events.ready(slot.index, ready or run.report)

    def _run_ended(self, run: WorkerRun, reason: str) -> None:
        slot = self._slots[run.index]
        if slot.run is not run:
            return  # discarded before
        slot.run = None
        was_admitted = self._connections[run.index] is not None
        self._connections[run.index] = None
        if was_admitted and not self._stopping:
            logger.error("worker %d (pid %d) was lost: %s", run.index, run.pid, reason)
            self._events.lost(run.index, reason)
            self._replace_later(slot)

    def _replace_later(self, slot: _Slot) -> None:
        if self._stopping:
            return
        lasted = self._loop.time() - slot.started_at >= LASTING_S
        slot.short_lives = 0 if lasted else slot.short_lives + 1
        task = self._loop.create_task(self._replace(slot))
        self._replacing.add(task)
        task.add_done_callback(self._replacing.discard)

    async def _replace(self, slot: _Slot) -> None:
        while True:
            await asyncio.sleep(
                RESTART_DELAYS_S[min(max(0, slot.short_lives - 1), len(RESTART_DELAYS_S) - 1)]
            )
            try:
                ready = await self._start_slot(slot)
                report = Application.of(ready)
                if report != self._application:
                    assert self._application is not None
                    raise NotConfigured(
                        f"the program changed while its node runs: {self._application.difference(report)}; "
                        "restart the node to use the new one"
                    )
            except (SojournError, OSError) as error:
                slot.short_lives += 1
                logger.error("worker %d cannot be started again: %s", slot.index, error)
                await self._discard(slot)
                continue
            run = slot.run
            if run is not None and run.alive:
                logger.warning("worker %d was replaced (pid %d)", slot.index, run.pid)
                self._admit(slot, run, ready)
                return
            slot.short_lives += 1

    async def _discard(self, slot: _Slot) -> None:
        run = slot.run
        if run is not None:
            await run.stop(0, "")
            slot.run = None

    # liveness

    def _schedule_tick(self) -> None:
        self._ticker = self._loop.call_later(self._plan.silent_s / 4, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        passed_s = min(now - self._last_tick, self._plan.silent_s / 2)
        self._last_tick = now
        for slot in self._slots:
            if slot.run is not None:
                slot.run.tick(passed_s)
        self._schedule_tick()


def _worst(failures: list[BaseException | None]) -> BaseException:
    """The error to show of several workers that failed: one that names the user's mistake, if any."""
    errors = [error for error in failures if error is not None]
    return next((error for error in errors if isinstance(error, NotConfigured)), errors[0])
