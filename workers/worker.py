"""The worker process: its start, its connection to the supervisor, its end.

Owns the child side of the IPC: dispatching frames to the object host, the host's `Port`, liveness, logging and
the way to stop. It must not know objects (`sojourn.spots.host`) or where records go.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import socket
from typing import Any, NamedTuple, Protocol

import msgspec
from sojourn.control import (
    CallNode,
    CallNodeResult,
    Control,
    ErrorBody,
    Grant,
    Ping,
    Pong,
    Stop,
    Stopped,
    Welcome,
    WorkerFailed,
    WorkerReady,
)
from sojourn.errors import InternalFailure, ProtocolError, SojournError, error_from_fields
from sojourn.frames import KIND_RECORD
from sojourn.spots.app import App
from sojourn.spots.ports import Port
from sojourn.workers.framing import attach
from sojourn.workers.ipc import Connection
from sojourn.workers.logs import LogForwarder
from sojourn.workers.process import ORPHANED
from sojourn.workers.program import ProgramReference, enter_worker, load_program
from sojourn.workers.waiters import Waiters
from sojourn.workers.worker_start import STACK_SIGNAL

__all__ = [
    "Host",
    "HostFactory",
    "Prepared",
    "SupervisorPort",
    "prepare_worker",
    "run_worker",
]

OUTBOUND_OCTETS_MAX = 1024 * 1024
"""Octets of records a worker may have on the way out before new messages wait (B3.1, B5.2). What is ahead of a
path marker is bounded by it too, so a marker is back in time (B9.4)."""
OUTBOUND_OCTETS_LOW = OUTBOUND_OCTETS_MAX // 2
"""Where messages go on after they had to wait: not at every record that leaves."""
GRANT_KEPT_BACK_S = 0.005
"""How long a permit may wait for others to go back with, unless a quarter of all waits (B5.1)."""
TERMINATE_TIMEOUT_MS = 5_000
"""Time a worker gives its objects when it was ended by a signal instead of a message."""

logger = logging.getLogger("sojourn.worker")


class Host(Protocol):
    """What the objects' side offers (`sojourn.spots.host.ObjectHost`)."""

    def receive_record(self, body: bytes) -> None: ...
    def receive_reply(self, body: bytes) -> None: ...
    def receive_control(self, message: Control) -> object: ...
    def receive_bulk(self, handoff: int, last: bool, chunk: memoryview) -> None: ...
    def figures(self) -> dict[str, int]: ...

    @property
    def stopped(self) -> asyncio.Event:
        """Set when a `Stop` given to `receive_control` was carried out and `Stopped` was submitted."""
        ...

    async def close(self) -> None:
        """End every task at once."""
        ...


class HostFactory(Protocol):
    """Makes the host once the node's identity is known; module-level, so that it can be named in a child."""

    def __call__(self, app: App, port: Port, welcome: Welcome) -> Host: ...


class Prepared(NamedTuple):
    """What was made before the event loop started."""

    program: App | SojournError
    log: LogForwarder
    stacks: socket.socket


def prepare_worker(stacks: socket.socket, program: ProgramReference, log_level: str) -> Prepared:
    """Import the user's program, outside of any event loop: a missing main guard may start one of its own."""
    stacks.setblocking(False)
    faulthandler.enable(stacks.fileno(), all_threads=True)
    faulthandler.register(STACK_SIGNAL, stacks.fileno(), all_threads=True, chain=False)
    log = LogForwarder()
    logging.getLogger().addHandler(log)
    logging.getLogger().setLevel(log_level)
    enter_worker()
    try:
        return Prepared(load_program(program), log, stacks)
    except SojournError as error:
        return Prepared(error, log, stacks)


async def run_worker(
    lifeline: socket.socket, prepared: Prepared, index: int, host_factory: HostFactory
) -> None:
    """Serve the supervisor at the other end of `lifeline` until it says stop."""
    worker = _Worker(index, prepared, host_factory)
    await worker.serve(lifeline)


class SupervisorPort:
    """The host's way out (`sojourn.spots.ports.Port`): frames to the supervisor, in the order submitted."""

    def __init__(self, connection: Connection, ended: asyncio.Future[int]) -> None:
        self._connection = connection
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._last_call = 0
        self._granted_records = 0
        self._granted_octets = 0
        self._grant_records = 1
        self._grant_timer: asyncio.TimerHandle | None = None
        self._outbound_octets = 0
        self._full = False
        self._waiters = Waiters()

    def permits(self, records: int) -> None:
        """How many records the supervisor may have here before their handlers start (B5.1)."""
        self._grant_records = max(1, records // 4)

    @property
    def congested(self) -> bool:
        """Too much is on the way out: in the socket, or kept by the supervisor for somebody slow (B5.2).

        From then on until much has left, so that those who waited get their turn.
        """
        return self._full or self._connection.congested

    def submit(self, frame_body: bytes) -> None:
        """Send a record or a reply. Records count until the supervisor gives their credit back."""
        if frame_body[0] == KIND_RECORD:
            self._outbound_octets += len(frame_body)
            if self._outbound_octets > OUTBOUND_OCTETS_MAX:
                self._full = True
        self._connection.send(frame_body)

    def returned(self, octets: int) -> None:
        """Records of this worker left the node's supervisor."""
        self._outbound_octets -= octets
        if self._full and self._outbound_octets <= OUTBOUND_OCTETS_LOW:
            self._full = False
            self._waiters.wake()

    async def wait_uncongested(self) -> None:
        """Wait until `congested` is False."""
        while self.congested:
            if self._full:
                await self._waiters.wait()
            else:
                await self._connection.wait_uncongested()

    def submit_control(self, message: Control) -> None:
        """Send one control message."""
        self._connection.send_control(message)

    def submit_bulk(self, handoff: int, last: bool, chunk: bytes | memoryview) -> None:
        """Send captured state. A large chunk is not copied: it must not change until `wait_written` returns."""
        self._connection.send_bulk(handoff, last, chunk)

    @property
    def bulk_room(self) -> bool:
        """A further chunk of state may be submitted."""
        return self._connection.bulk_room

    async def wait_bulk_room(self) -> None:
        """Return, in another turn of the loop, when there is `bulk_room`."""
        await self._connection.wait_bulk_room()

    async def wait_written(self) -> None:
        """Return when everything submitted has left this process."""
        await self._connection.wait_written()

    def grant(self, records: int, octets: int) -> None:
        """Give credit back, in few messages: one for each record would cost more than the record."""
        if self._grant_timer is None:
            self._grant_timer = self._loop.call_later(GRANT_KEPT_BACK_S, self._send_grant)
        self._granted_records += records
        self._granted_octets += octets
        if self._granted_records >= self._grant_records:
            self._send_grant()

    def _send_grant(self) -> None:
        if self._grant_timer is not None:
            self._grant_timer.cancel()
            self._grant_timer = None
        message = Grant(self._granted_records, self._granted_octets)
        self._granted_records = self._granted_octets = 0
        self.submit_control(message)

    async def call_node(self, operation: str, arguments: dict[str, Any]) -> Any:
        """Ask the node for something; raises the typed error it answers with."""
        self._last_call = call = self._last_call + 1
        answer = self._calls[call] = self._loop.create_future()
        try:
            self.submit_control(CallNode(call, operation, msgspec.msgpack.encode(arguments)))
            return await answer
        finally:
            del self._calls[call]

    def answered(self, result: CallNodeResult) -> None:
        """The node's answer to `call_node`; nobody waits for it any more when the caller was cancelled."""
        answer = self._calls.get(result.call)
        if answer is None or answer.done():
            return
        if result.error is not None:
            answer.set_exception(error_from_fields(result.error.kind, result.error.fields))
        else:
            answer.set_result(msgspec.msgpack.decode(result.value) if result.value else None)

    def hold(self) -> None:
        """A round of turns begins."""
        self._connection.hold()

    def release(self) -> None:
        """The round is over: write what it submitted, without another turn of the loop."""
        self._connection.release()

    def fatal(self, error: BaseException) -> None:
        """End this process; the supervisor reports its objects as lost and starts another."""
        logger.critical("the worker ends: %s: %s", type(error).__name__, error)
        code = error.code if isinstance(error, SystemExit) else 1
        if not self._ended.done():
            self._ended.set_result(code if isinstance(code, int) else int(code is not None))


class _Worker:
    def __init__(self, index: int, prepared: Prepared, host_factory: HostFactory) -> None:
        self._index = index
        self._prepared = prepared
        self._host_factory = host_factory
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._stop_requested: asyncio.Future[Stop] = self._loop.create_future()
        self._host: Host | None = None
        self._leaving = False
        self._port: SupervisorPort
        self._connection: Connection

    async def serve(self, lifeline: socket.socket) -> None:
        self._connection = connection = Connection(
            on_record=_too_early,
            on_reply=_too_early,
            on_control=self._control,
            on_bulk=_too_early,
            on_closed=self._closed,
        )
        await attach((lifeline, connection))
        self._port = SupervisorPort(connection, self._ended)
        self._prepared.log.attach(lambda: self._loop.call_soon_threadsafe(self._send_log))
        program = self._prepared.program
        if isinstance(program, SojournError):
            self._send_log()
            self._port.submit_control(WorkerFailed(self._index, ErrorBody.of(program)))
            await self._leave(connection)
            return
        self._loop.add_signal_handler(signal.SIGTERM, self._terminate)
        self._port.submit_control(
            WorkerReady(self._index, os.getpid(), program.name, program.version, program.registry())
        )
        await asyncio.wait((self._ended, self._stop_requested), return_when=asyncio.FIRST_COMPLETED)
        if not self._ended.done():
            await self._stop(self._stop_requested.result())
        await self._leave(connection)
        if self._ended.done() and self._ended.result():
            raise SystemExit(self._ended.result())

    async def _stop(self, stop: Stop) -> None:
        if self._host is None:
            self._port.submit_control(Stopped(self._index))
            return
        self._host.receive_control(stop)
        stopping = asyncio.ensure_future(self._host.stopped.wait())
        await asyncio.wait((stopping, self._ended), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        await self._host.close()

    async def _leave(self, connection: Connection) -> None:
        self._leaving = True
        self._send_log()
        await connection.wait_written()
        connection.close()
        await connection.wait_closed()

    def _terminate(self) -> None:
        self._request_stop(Stop(TERMINATE_TIMEOUT_MS, "HostShutdown"))

    def _request_stop(self, stop: Stop) -> None:
        if not self._stop_requested.done():
            self._stop_requested.set_result(stop)

    def _send_log(self) -> None:
        for line in self._prepared.log.take():
            self._port.submit_control(line)

    # what the supervisor sends

    def _control(self, message: Control) -> None:
        if type(message) is Ping:
            self._port.submit_control(
                Pong(message.number, {} if self._host is None else self._host.figures())
            )
        elif type(message) is CallNodeResult:
            self._port.answered(message)
        elif type(message) is Grant:
            self._port.returned(message.octets)
        elif type(message) is Welcome:
            self._welcome(message)
        elif type(message) is Stop:
            self._request_stop(message)
        elif self._host is not None:
            self._host.receive_control(message)
        else:
            _too_early(message)

    def _welcome(self, welcome: Welcome) -> None:
        program = self._prepared.program
        assert isinstance(program, App)
        self._port.permits(welcome.permits)
        self._host = host = self._host_factory(program, self._port, welcome)
        self._connection.on_record = host.receive_record
        self._connection.on_reply = host.receive_reply
        self._connection.on_bulk = host.receive_bulk

    def _closed(self, failure: BaseException | None) -> None:
        if self._leaving:
            return
        if failure is None:
            os._exit(ORPHANED)  # the supervisor is gone
        logger.critical("the connection to the supervisor failed", exc_info=failure)
        self._port.fatal(failure if isinstance(failure, SojournError) else InternalFailure(repr(failure)))


def _too_early(*work: object) -> None:
    raise ProtocolError(f"a supervisor sent work before its welcome: {work!r:.80}")
