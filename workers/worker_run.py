"""One run of one worker process, as its supervisor sees it: from start to death.

Owns the process, its connection, its unanswered calls, its liveness and its stacks. It must not know what the
node does with a ready or a lost worker (`sojourn.workers.pool`).
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from sojourn.control import (
    BoundaryReached,
    Captured,
    Control,
    Created,
    Figures,
    LogLine,
    Opened,
    Ping,
    Pong,
    Restored,
    SealRefused,
    Stop,
    Stopped,
    WorkerFailed,
    WorkerReady,
)
from sojourn.errors import NotConfigured, SojournError, Unavailable, error_from_fields
from sojourn.workers.exits import ExitWatch
from sojourn.workers.framing import attach
from sojourn.workers.ipc import Connection
from sojourn.workers.logs import write_log_line
from sojourn.workers.process import WorkerProcess, end_process
from sojourn.workers.program import ProgramReference
from sojourn.workers.worker_start import STACK_SIGNAL, object_host, prepare_worker, run_worker

if TYPE_CHECKING:
    from sojourn.workers.worker import HostFactory

__all__ = ["RunEvents", "WorkerPlan", "WorkerRun", "describe_exit"]

END_OF_FILE_S = 0.5
"""How long after its end a worker's last frames may take to arrive (a child of its own may hold the socket)."""
EXIT_S = 0.2
"""How long a process may go on after its connection ended, before it is killed: most are just exiting."""
STACK_S = 0.5
"""How long a stack may take to arrive before a worker is given up."""
TERMINATE_S = 0.5
"""Limit of SIGTERM within the deadline of a stop."""

logger = logging.getLogger("sojourn.workers")


@dataclass(frozen=True)
class WorkerPlan:
    """What every worker of a node is started with. Durations in seconds; no `log_level` = that of this process."""

    program: ProgramReference
    host_factory: HostFactory = object_host
    node: str = "node"
    log_level: str = ""
    start_s: float = 30.0
    silent_s: float = 1.0
    unresponsive_s: float = 30.0


@dataclass(frozen=True)
class RunEvents:
    """What a run tells its pool; see `sojourn.workers.pool.PoolEvents`. `ended(run, reason)` comes last, once."""

    frame: Callable[[int, bytes], object]
    control: Callable[[int, Control], object]
    bulk: Callable[[int, int, bool, memoryview], object]
    ended: Callable[[WorkerRun, str], object]


@dataclass
class _Stacks(asyncio.Protocol):
    """Text that the worker's fault handler writes, whole dumps at a time."""

    write: Callable[[str], object]
    text: str = ""
    transport: asyncio.Transport | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if not self.text:
            asyncio.get_running_loop().call_later(0.05, self._tell)
        self.text += data.decode("utf-8", "replace")

    def connection_lost(self, exc: Exception | None) -> None:
        self._tell()

    def _tell(self) -> None:
        text, self.text = self.text, ""
        if text:
            self.write(text)
            self.arrived.set()


class WorkerRun:
    """One worker process. Every callback of `events` comes from the event loop; `ended` once, as the last."""

    def __init__(self, index: int, plan: WorkerPlan, events: RunEvents) -> None:
        self.index = index
        self._plan = plan
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._last_call = 0
        self._ready: asyncio.Future[WorkerReady] = self._loop.create_future()
        self._stopping = False
        self._reason = ""
        self._exited = False
        self._ended = False
        self._silence_s = 0.0
        self._unanswered = 0
        self._last_ping = 0
        self._stack_logged = False
        self._stack_text = ""
        self.connection = Connection(
            on_record=partial(events.frame, index),
            on_reply=partial(events.frame, index),
            on_control=self._control,
            on_bulk=partial(events.bulk, index),
            on_closed=self._connection_closed,
        )
        self._stacks = _Stacks(self._stack_arrived)
        self._watch: ExitWatch | None = None

    async def start(self) -> WorkerReady:
        """Start the process; returns when it has imported the program. Who calls this calls `stop` in the end.

        Raises:
            NotConfigured: the program cannot be used by a worker, or its import took longer than `start_s`.
            Unavailable: the process ended before that.
        """
        ours, our_stacks = self._start_process()
        await attach((ours, self.connection), (our_stacks, self._stacks))
        await asyncio.wait((self._ready,), timeout=self._plan.start_s)
        if not self._ready.done():
            raise await self._never_ready()
        return self._ready.result()

    def _start_process(self) -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair()
        our_stacks, their_stacks = socket.socketpair()
        plan = self._plan
        try:
            process = WorkerProcess(
                run_worker,
                (self.index, plan.host_factory),
                lifeline=theirs,
                prepare=prepare_worker,
                prepare_args=(their_stacks, plan.program, plan.log_level or _own_log_level()),
                name=f"{plan.node}/{self.index}",
            )
            self._watch = process.start()
        except BaseException:
            ours.close()
            our_stacks.close()
            raise
        finally:
            theirs.close()
            their_stacks.close()
        self._watch.when_done(self._process_ended)
        return ours, our_stacks

    async def _never_ready(self) -> SojournError:
        text = await self.stack()
        return NotConfigured(
            f"worker {self.index} has not finished importing {self._plan.program} within {self._plan.start_s:g} s: "
            "is the part that runs outside of a main guard, or does the import wait for something?",
            remote_traceback=text,
        )

    async def stack(self) -> str | None:
        """The stacks of the worker's threads as text, None when it does not write them in time."""
        self._stack_text = ""
        self._stacks.arrived.clear()
        self._signal(STACK_SIGNAL)
        try:
            async with asyncio.timeout(STACK_S):
                await self._stacks.arrived.wait()
        except TimeoutError:
            return None
        return self._stack_text

    @property
    def pid(self) -> int:
        """Process id, 0 before the start."""
        return self._watch.pid if self._watch is not None else 0

    @property
    def report(self) -> WorkerReady:
        """What the worker reported when it became ready."""
        return self._ready.result()

    def _signal(self, number: int) -> None:
        if self._watch is not None:
            self._watch.send_signal(number)

    @property
    def alive(self) -> bool:
        """Neither the process nor the connection has ended."""
        return not self._ended and not self.connection.ended

    # requests

    def call(self, make: Callable[[int], Control]) -> asyncio.Future[Any]:
        """Send the message that `make(call number)` builds, now; the future is its answer.

        It fails with Unavailable when the worker is lost: `applied` tells whether the worker may have acted.
        """
        answer: asyncio.Future[Any] = self._loop.create_future()
        if not self.alive:
            answer.set_exception(Unavailable(f"worker {self.index} is not running", applied="no"))
            return answer
        self._last_call = call = self._last_call + 1
        self._calls[call] = answer
        self.connection.send_control(make(call))
        return answer

    def _control(self, message: Control) -> None:
        match message:
            case (
                Created() | Opened() | BoundaryReached() | Captured() | SealRefused() | Restored() | Figures()
            ):
                answer = self._calls.pop(message.call, None)
                if answer is not None:
                    if not answer.done():
                        answer.set_result(message)
                    return
            case Pong():
                self._pong(message)
            case LogLine():
                write_log_line(message, self.index)
                return
            case WorkerReady():
                self._became_ready(message)
                return
            case WorkerFailed():
                self._became_failed(error_from_fields(message.error.kind, message.error.fields))
                return
            case Stopped():
                self._stopping = True
                return
        self._events.control(self.index, message)

    def _became_ready(self, message: WorkerReady) -> None:
        if not self._ready.done():
            self._ready.set_result(message)

    def _became_failed(self, error: SojournError) -> None:
        self._stopping = True  # it ends by itself now
        if not self._ready.done():
            self._ready.set_exception(error)

    # liveness (B2.9)

    def tick(self, passed_s: float) -> None:
        """Called by the pool at a steady pace; `passed_s` is the pool's own time since the last call.

        Only time that this process itself lived through counts as a worker's silence: a suspended machine or a
        busy supervisor is no fault of its workers.
        """
        if not self._ready.done() or self._stopping or not self.alive:
            return
        if self._unanswered:
            self._silence_s += passed_s
            self._react_to_silence()
        else:
            self._last_ping += 1
            self._unanswered = self._last_ping
            self._silence_s = 0.0
            self.connection.send_control(Ping(self._last_ping))

    def _pong(self, message: Pong) -> None:
        if message.number == self._unanswered:
            if self._stack_logged:
                logger.warning("worker %d answers again after %.1f s", self.index, self._silence_s)
            self._unanswered = 0
            self._stack_logged = False

    def _react_to_silence(self) -> None:
        if self._silence_s >= self._plan.unresponsive_s:
            self.lose(f"it did not answer for {self._plan.unresponsive_s:g} s")
        elif self._silence_s >= self._plan.silent_s and not self._stack_logged:
            self._stack_logged = True
            self._signal(STACK_SIGNAL)

    def _stack_arrived(self, text: str) -> None:
        self._stack_text += text
        if self._ready.done() and not self._ready.cancelled():
            about = f"is silent for {self._silence_s:.1f} s" if self._unanswered else "wrote"
            logger.warning(
                "worker %d (pid %d) %s; its stacks:\n%s", self.index, self.pid, about, text.rstrip()
            )

    # the end

    def lose(self, reason: str) -> None:
        """Kill the worker; `ended` follows when it is dead."""
        self._reason = self._reason or reason
        self._signal(signal.SIGKILL)

    async def stop(self, deadline_s: float, reason: str) -> bool:
        """Ask the worker to close its objects and end; whatever happens it is dead soon after `deadline_s`.

        Returns:
            True when it ended by itself, False when running work was cut off.
        """
        self._stopping = True
        if self._watch is None:
            return True
        ask_s = max(0.0, deadline_s - TERMINATE_S)

        def ask() -> None:
            self.connection.send_control(Stop(max(1, int(ask_s * 1000)), reason))
            self.connection.flush()

        try:
            code = await end_process(
                self._watch,
                ask=ask if ask_s else None,
                ask_s=ask_s,
                terminate_s=min(TERMINATE_S, deadline_s),
            )
        finally:
            self._signal(signal.SIGKILL)
            await self._close_connection()
        return code == 0

    async def _close_connection(self) -> None:
        """Take what the dead worker still sent, its last log lines, then close."""
        if self.connection.transport is not None:
            await asyncio.wait((asyncio.ensure_future(self.connection.wait_closed()),), timeout=END_OF_FILE_S)
            self.connection.abort()
            await self.connection.wait_closed()
        self._close_stacks()

    def _process_ended(self, code: int) -> None:
        self._exited = True
        self._reason = self._reason or describe_exit(code)
        if not self._ready.done():
            self._ready.set_exception(
                Unavailable(
                    f"worker {self.index} ended before it was ready: {describe_exit(code)}", applied="no"
                )
            )
        if self.connection.ended or self.connection.transport is None:
            self._end()
        else:
            self._loop.call_later(END_OF_FILE_S, self.connection.abort)

    def _connection_closed(self, failure: BaseException | None) -> None:
        if self._exited:
            self._end()
        elif isinstance(failure, SojournError):
            self.lose(f"its connection failed: {failure}")
        elif not self._stopping:
            self._loop.call_later(EXIT_S, self._lose_unless_exited)

    def _lose_unless_exited(self) -> None:
        if not self._exited:
            self.lose("it closed its connection")

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._close_stacks()
        calls, self._calls = self._calls, {}
        for answer in calls.values():
            if not answer.done():
                answer.set_exception(
                    Unavailable(f"worker {self.index} was lost: {self._reason}", applied="unknown")
                )
        if self._ready.done():
            self._ready.exception()  # its failure is told by `start`, or by `ended`
        self._events.ended(self, self._reason)

    def _close_stacks(self) -> None:
        if self._stacks.transport is not None:
            self._stacks.transport.close()


def _own_log_level() -> str:
    return logging.getLevelName(logging.getLogger().getEffectiveLevel())


def describe_exit(code: int) -> str:
    """An exit code as people read it."""
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"
