"""One node of a local cluster, as the program that launched it sees it.

Owns the node's supervisor process and the control connection to it. It must not know other nodes, the client or
where the store is.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from sojourn.control import ErrorBody
from sojourn.errors import DeadlineExceeded, InvalidOperation, SojournError, Unavailable, error_from_fields
from sojourn.workers.exits import ExitWatch
from sojourn.workers.framing import FrameChannel, attach
from sojourn.workers.node_control import (
    Configure,
    NodeAnswer,
    NodeCall,
    NodeConfig,
    NodeFailed,
    NodeReady,
    NodeStopped,
    StopNode,
    decode_node_message,
    encode_node_message,
)
from sojourn.workers.node_operations import NodeOperations
from sojourn.workers.process import end_process, interpreter_arguments
from sojourn.workers.worker_run import describe_exit

__all__ = ["NODE_COMMAND", "LocalNode"]


NODE_COMMAND = ("-P", "-m", "sojourn.workers.node")
"""What a node's interpreter runs. `-P`: modules beside the user's program do not stand in for the library's."""

START_S = 60.0
"""Longest start of a node."""
START_END_S = 1.0
"""How long a node that cannot go on starting, since another failed, has to end by itself."""
FORCE_S = 3.0
"""How long after its limit a stopping node is ended by force."""

logger = logging.getLogger("sojourn.cluster")


class LocalNode(NodeOperations):
    """A node process on this machine. Made by `LocalCluster`.

    Attributes:
        rid: the node's RID; stays over `restart`.
        generation: of the present run, 0 while it does not run.
        endpoint: `host:port` where peers reach the present run.
    """

    def __init__(
        self, config: NodeConfig, *, directory: str = "", command: Sequence[str] = NODE_COMMAND
    ) -> None:
        self.rid = config.rid
        self.generation = 0
        self.endpoint = ""
        self._config = config
        self._directory = directory
        self._command = command
        self._run: _Run | None = None

    def __repr__(self) -> str:
        return f"<LocalNode {self.rid} {'pid ' + str(self.pid) if self.running else 'not running'}>"

    @property
    def running(self) -> bool:
        """The node's supervisor process is alive."""
        return self._run is not None and self._run.watch.exit_code is None

    @property
    def pid(self) -> int:
        """Process id of the supervisor.

        Raises:
            Unavailable: it does not run.
        """
        return self._running().watch.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code of the last run, None while it runs and before the first."""
        return self._run.watch.exit_code if self._run is not None else None

    def _running(self) -> _Run:
        if self._run is None or self._run.watch.exit_code is not None:
            raise Unavailable(f"node {self.rid} is not running", applied="no")
        return self._run

    # life

    async def start(self) -> None:
        """Start the node; returns when it serves.

        Raises:
            SojournError: what stood in its way, for example a port in use or a program that cannot be imported.
        """
        if self.running:
            raise InvalidOperation(f"node {self.rid} runs already")
        run = self._run = _Run(self._config, self._directory, self._command)
        try:
            ready = await run.start()
        except BaseException:
            # Not by force at once: a worker whose node ends in the middle of starting it complains for itself.
            await run.end(0, terminate_s=START_END_S)
            raise
        self.generation, self.endpoint = ready.generation, ready.endpoint

    async def stop(self, deadline: float = 30.0) -> bool:
        """Stop the node within `deadline` seconds; what it hosts loses its state (B13.3).

        Returns:
            True if it stopped cleanly, False if work was cut off or the process had to be killed.
        """
        run, self.generation = self._run, 0
        return run is None or await run.end(deadline)

    async def kill(self) -> None:
        """End the node's supervisor by SIGKILL, as a crash would; its workers die with it."""
        run, self.generation = self._run, 0
        if run is not None:
            run.watch.send_signal(signal.SIGKILL)
            await run.end(0)

    def kill_nowait(self) -> None:
        """Send SIGKILL and wait for nothing."""
        if self._run is not None:
            self._run.watch.send_signal(signal.SIGKILL)

    async def restart(self) -> None:
        """Start the node again, after `stop`, `kill` or a crash: same RID, new run."""
        if self._run is not None:
            await self._run.end(0)
        await self.start()

    # operations

    async def call(
        self, operation: str, arguments: dict[str, Any] | None = None, *, timeout_s: float = 30.0
    ) -> Any:
        """Ask the node for an operation by name; the named methods are made of this.

        Raises:
            SojournError: the node's own answer.
            Unavailable: the node is not running, or ended before it answered.
            DeadlineExceeded: no answer within `timeout_s`.
        """
        return await self._running().call(operation, arguments or {}, timeout_s)


class _Run:
    """One run of the node process."""

    def __init__(self, config: NodeConfig, directory: str, command: Sequence[str]) -> None:
        self._config = config
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[NodeReady] = self._loop.create_future()
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._last_call = 0
        self._forced = True
        self._ending = False
        self._channel = FrameChannel(self._frame, self._closed)
        self._end_of_connection, theirs = socket.socketpair()
        try:
            process = self._start_process(theirs, command)
        except BaseException:
            self._end_of_connection.close()
            raise
        finally:
            theirs.close()
        self.watch = ExitWatch(process.pid, process.wait)
        self.watch.when_done(self._process_ended)

    @staticmethod
    def _start_process(theirs: socket.socket, command: Sequence[str]) -> subprocess.Popen[bytes]:
        # Ctrl-C goes to the whole terminal; until the node ignores it, it must not reach it.
        previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return subprocess.Popen(
                [sys.executable, *interpreter_arguments(), *command, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous)

    async def start(self) -> NodeReady:
        await attach((self._end_of_connection, self._channel))
        message = Configure(self._config, os.getpid(), self._directory)
        self._channel.send(encode_node_message(message))
        await asyncio.wait((self._ready,), timeout=START_S)
        if not self._ready.done():
            raise DeadlineExceeded(f"node {self._config.rid} has not started within {START_S:g} s")
        return self._ready.result()

    async def call(self, operation: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        self._last_call = call = self._last_call + 1
        answer = self._calls[call] = self._loop.create_future()
        try:
            self._channel.send(encode_node_message(NodeCall(call, operation, arguments)))
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            text = f"node {self._config.rid} did not answer {operation} within {timeout_s:g} s"
            raise DeadlineExceeded(text, applied="unknown") from None
        finally:
            self._calls.pop(call, None)

    async def end(self, deadline_s: float, terminate_s: float = 0.0) -> bool:
        """Stop within `deadline_s`; 0 = by force, after `terminate_s` for a SIGTERM. Returns whether it was clean.
        Idempotent."""
        self._ending = True

        def ask() -> None:
            self._channel.send(encode_node_message(StopNode(deadline_s)))
            self._channel.flush()

        try:
            await end_process(
                self.watch,
                ask=ask if deadline_s else None,
                ask_s=deadline_s + FORCE_S,
                terminate_s=1.0 if deadline_s else terminate_s,
            )
        finally:
            self.watch.send_signal(signal.SIGKILL)
            self._channel.abort()
            if self._channel.transport is None:
                self._end_of_connection.close()
            else:
                await self._channel.wait_closed()
        return not self._forced

    # events

    def _frame(self, body: bytes) -> None:
        match decode_node_message(body):
            case NodeReady() as ready:
                self._ready.set_result(ready)
            case NodeFailed(error=error):
                self._failed(error)
            case NodeAnswer() as message:
                self._answered(message)
            case NodeStopped(forced=forced):
                self._forced = forced

    def _failed(self, body: ErrorBody) -> None:
        error = error_from_fields(body.kind, body.fields)
        if not self._ready.done():
            self._ready.set_exception(error)
        else:
            logger.error("node %s failed: %s", self._config.rid, error)

    def _answered(self, message: NodeAnswer) -> None:
        answer = self._calls.get(message.call)
        if answer is None or answer.done():
            return
        if message.error is not None:
            answer.set_exception(error_from_fields(message.error.kind, message.error.fields))
        else:
            answer.set_result(message.value)

    def _closed(self, failure: BaseException | None) -> None:
        self._fail_all(f"node {self._config.rid} ended")

    def _process_ended(self, code: int) -> None:
        text = f"node {self._config.rid}: {describe_exit(code)}"
        if not self._ending and self._ready.done() and self._ready.exception() is None:
            logger.error("%s", text)
        if self._channel.ended:
            self._fail_all(text)

    def _fail_all(self, text: str) -> None:
        error: SojournError = Unavailable(text, applied="unknown")
        if not self._ready.done():
            self._ready.set_exception(error)
        self._ready.exception()
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(error)
