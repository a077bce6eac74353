"""The process of a node: `python -m sojourn.workers.node`, the supervisor and nothing of the user's code.

Owns the life of that process: its configuration, how it reports to its launcher, how it stops within its limit
whatever happens. It must not know what a supervisor does.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

import uvloop
from sojourn.control import ErrorBody
from sojourn.errors import SojournError
from sojourn.ids import NodeRun
from sojourn.workers.framing import FrameChannel, attach
from sojourn.workers.logs import set_up_node_log
from sojourn.workers.node_control import (
    Configure,
    NodeAnswer,
    NodeCall,
    NodeConfig,
    NodeFailed,
    NodeMessage,
    NodeReady,
    NodeStopped,
    StopNode,
    decode_node_message,
    encode_node_message,
)
from sojourn.workers.process import check_platform, die_with_parent, exit_on_hang_up
from sojourn.workers.signals import StopRequests

__all__ = ["NodeConfig", "NodeSupervisor", "SupervisorFactory", "main", "run_node"]

QUICK_S = 0.5
"""Time of a quick stop."""
OVERTIME_S = 2.0
"""How long after its limit a stop that hangs is ended by force, loop or no loop."""
ORPHAN_S = 1.5
"""How long a node whose launcher died may take to stop."""

logger = logging.getLogger("sojourn.node")


class NodeSupervisor(Protocol):
    """What runs in the process (`sojourn.workers.supervisor.Supervisor`)."""

    @property
    def run(self) -> NodeRun: ...
    @property
    def endpoint(self) -> str: ...
    @property
    def failed(self) -> asyncio.Future[None]: ...
    async def start_node(self) -> None: ...
    async def stop(self, timeout_s: float) -> bool | None: ...
    async def call(self, operation: str, arguments: dict[str, Any]) -> Any: ...


SupervisorFactory = Callable[[NodeConfig], NodeSupervisor]


def real_supervisor(config: NodeConfig) -> NodeSupervisor:
    """The supervisor of a real node."""
    from sojourn.workers.supervisor import Supervisor

    return Supervisor(config)


class _Launcher:
    """The connection to the program that launched this node."""

    def __init__(self) -> None:
        self.configured: asyncio.Future[Configure] = asyncio.get_running_loop().create_future()
        self.stops: StopRequests | None = None
        self.supervisor: NodeSupervisor | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self.channel = FrameChannel(self._frame, self._closed)

    async def connect(self, end: socket.socket) -> Configure:
        await attach((end, self.channel))
        return await self.configured

    def tell(self, message: NodeMessage) -> None:
        self.channel.send(encode_node_message(message))

    def _frame(self, body: bytes) -> None:
        match decode_node_message(body):
            case Configure() as message:
                self.configured.set_result(message)
            case StopNode(timeout_s=timeout_s):
                if self.stops is not None:
                    self.stops.request("the launcher asks", timeout_s)
            case NodeCall() as call:
                task = asyncio.ensure_future(self._answer(call))
                self._calls.add(task)
                task.add_done_callback(self._calls.discard)

    async def _answer(self, call: NodeCall) -> None:
        try:
            if self.supervisor is None:
                raise RuntimeError("called before the node is ready")
            answer = NodeAnswer(call.call, await self.supervisor.call(call.operation, call.arguments))
        except Exception as error:
            if not isinstance(error, SojournError):
                logger.exception("operation %s failed", call.operation)
            answer = NodeAnswer(call.call, None, ErrorBody.of(error))
        self.tell(answer)

    def _closed(self, failure: BaseException | None) -> None:
        if not self.configured.done():
            self.configured.cancel()
        if self.stops is not None:
            self.stops.request_quick("the launcher is gone")

    async def close(self) -> None:
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        self.channel.close()
        await self.channel.wait_closed()


async def run_node(
    config: NodeConfig,
    stops: StopRequests,
    *,
    make_supervisor: SupervisorFactory,
    on_ready: Callable[[NodeSupervisor], object],
) -> bool:
    """Run a node until it is asked to stop; returns whether it stopped without force.

    Raises:
        SojournError: the node could not start or cannot go on.
    """
    supervisor = make_supervisor(config)
    starting = asyncio.ensure_future(supervisor.start_node())
    asked = asyncio.ensure_future(stops.graceful.wait())
    try:
        await asyncio.wait((starting, asked), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            on_ready(supervisor)
            await asyncio.wait((supervisor.failed, asked), return_when=asyncio.FIRST_COMPLETED)
            if supervisor.failed.done():
                supervisor.failed.result()
    finally:
        asked.cancel()
        starting.cancel()
        await asyncio.wait((starting,), timeout=QUICK_S)
        if (
            stops.graceful.is_set()
            and starting.done()
            and not starting.cancelled()
            and starting.exception() is not None
        ):
            logger.info("the start that was cut short had failed: %s", starting.exception())
        in_time = await _stop(supervisor, stops, config.options.stop_deadline_ms / 1000)
    return in_time


async def _stop(supervisor: NodeSupervisor, stops: StopRequests, default_s: float) -> bool:
    """Stop gracefully, then quickly when asked again or when time is over; False: work was cut off."""
    limit_s = QUICK_S if stops.quick.is_set() else default_s if stops.timeout_s is None else stops.timeout_s
    # A thread of the interpreter ends the process if the loop cannot: workers die with it.
    faulthandler.dump_traceback_later(limit_s + QUICK_S + OVERTIME_S, exit=True)
    stopping = asyncio.ensure_future(supervisor.stop(limit_s))
    hurry = asyncio.ensure_future(stops.quick.wait())
    already_quick = stops.quick.is_set()
    waited_for = (stopping,) if already_quick else (stopping, hurry)
    await asyncio.wait(waited_for, timeout=limit_s + QUICK_S, return_when=asyncio.FIRST_COMPLETED)
    hurry.cancel()
    in_time = stopping.done()
    if not in_time:
        stopping.cancel()
        faulthandler.dump_traceback_later(QUICK_S + OVERTIME_S, exit=True)
        await asyncio.wait((stopping,), timeout=QUICK_S)
        await supervisor.stop(0)
    elif stopping.exception() is not None:
        logger.error("stopping the node failed", exc_info=stopping.exception())
    elif stopping.result() is False:
        in_time = False
    faulthandler.cancel_dump_traceback_later()
    return in_time and not already_quick


async def _serve_launcher(end: socket.socket, make_supervisor: SupervisorFactory) -> int:
    finished = threading.Event()
    directory: list[str] = []

    def remove_directory() -> None:
        for path in directory:
            shutil.rmtree(path, ignore_errors=True)

    def last_words() -> None:
        if not finished.wait(ORPHAN_S):
            remove_directory()

    exit_on_hang_up(end, last_words)
    launcher = _Launcher()
    with StopRequests(interrupt=False) as stops:
        launcher.stops = stops
        message = await launcher.connect(end)
        config = message.config
        if message.directory:
            directory.append(message.directory)
        die_with_parent(message.launcher, signal.SIGTERM, remove_directory)
        set_up_node_log(config.rid, config.log_level)
        try:
            return await _report(config, stops, launcher, make_supervisor)
        finally:
            orphaned = launcher.channel.ended or os.getppid() != message.launcher
            await launcher.close()
            if orphaned:
                remove_directory()
            finished.set()


async def _report(
    config: NodeConfig, stops: StopRequests, launcher: _Launcher, make_supervisor: SupervisorFactory
) -> int:
    def on_ready(supervisor: NodeSupervisor) -> None:
        launcher.supervisor = supervisor
        run = supervisor.run
        launcher.tell(NodeReady(config.rid, run.generation, supervisor.endpoint, os.getpid()))

    try:
        in_time = await run_node(config, stops, make_supervisor=make_supervisor, on_ready=on_ready)
    except Exception as error:
        if not isinstance(error, SojournError):
            logger.exception("the node failed")
        launcher.tell(NodeFailed(ErrorBody.of(error)))
        return 1
    launcher.tell(NodeStopped(forced=not in_time))
    return 0


def main(arguments: list[str] | None = None, make_supervisor: SupervisorFactory = real_supervisor) -> int:
    """Entry of the process; the one argument is the number of the inherited control socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher decides
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    check_platform()
    (number,) = sys.argv[1:] if arguments is None else arguments
    end = socket.socket(fileno=int(number))
    os.set_inheritable(end.fileno(), False)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve_launcher(end, make_supervisor))


if __name__ == "__main__":
    sys.exit(main())
