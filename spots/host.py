"""The object host: everything that lives in one worker's event loop.

Owns the table of objects and hands every frame and control message from the supervisor to the part it
concerns. It must not know sockets or processes: it speaks to a `Port`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from sojourn import frames
from sojourn.control import (
    Admission,
    AskFigures,
    AwaitBoundary,
    Control,
    CreateObject,
    DropObject,
    Figures,
    OpenObject,
    RequestsLost,
    Restore,
    Seal,
    Stop,
    Stopped,
    Unseal,
    Welcome,
)
from sojourn.errors import InvalidOperation, ShuttingDown, SojournError
from sojourn.ids import ObjectKey, describe_key
from sojourn.spots.acceptance import Acceptance
from sojourn.spots.answers import answer_error
from sojourn.spots.cell import Cell, Phase
from sojourn.spots.groups import lead_of
from sojourn.spots.jobs import RecordCall
from sojourn.spots.local import LocalSender
from sojourn.spots.making import Making
from sojourn.spots.moving import Moving
from sojourn.spots.origin import Origin
from sojourn.spots.outbox import Outbox
from sojourn.spots.outside import Outside
from sojourn.spots.ports import Clock, LoopClock, Port, within
from sojourn.spots.references import NodeName, destination
from sojourn.spots.scheduler import Scheduler
from sojourn.spots.settings import SpotSettings
from sojourn.spots.timers import Timers
from sojourn.spots.turns import current_turn

if TYPE_CHECKING:
    from sojourn.spots.app import App

__all__ = ["Counters", "ObjectHost"]

_logger = logging.getLogger("sojourn.spots")
_ENVELOPE_HEAD = 5
_STOPPING = "HostShutdown"
_STOP_SHARE = 0.8
"""Part of the stop timeout that turns and closing callbacks get; the rest is for saying so."""


class Counters:
    """What happened to the messages of a host (B3.5).

    Attributes:
        taken: records that came from the supervisor, whatever they were.
        accepted: messages for an object: taken into its mailbox, or ended at once. Each ends as one of the next three.
        handled: handlers that ended well.
        failed: messages that ended by an exception: of their handler, or before it could begin.
        dead: messages that ended without a handler.
        duplicates: messages dropped as repeats.
        ticks: timer callbacks started.
    """

    __slots__ = ("accepted", "dead", "duplicates", "failed", "handled", "taken", "ticks")

    def values(self) -> dict[str, int]:
        """Every counter by name."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __init__(self) -> None:
        self.taken = self.accepted = self.handled = self.failed = self.dead = self.duplicates = self.ticks = 0


class ObjectHost:
    """Hosts the objects of one worker.

    Made inside a running event loop. The `receive_*` methods take what comes from the supervisor, in order.

    Args:
        app: the application.
        port: the way to the supervisor.
        welcome: who the node is.
        clock: times; the loop's own when left out.
    """

    def __init__(self, app: App, port: Port, welcome: Welcome, clock: Clock | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.app = app
        self.port = port
        self.clock: Clock = LoopClock(loop) if clock is None else clock
        self.worker = welcome.worker
        self.settings = SpotSettings.from_options(welcome.options)
        self.reply_octets_max = self.settings.max_frame_bytes - _ENVELOPE_HEAD
        self.handler_limit_s = self.settings.handler_deadline_ms / 1000
        self.cells: dict[ObjectKey, Cell] = {}
        self.counters = Counters()
        self.sender = LocalSender(self)
        origin = Origin(welcome.rid, welcome.generation, welcome.owner_id, welcome.lease_generation)
        self.outbox = Outbox(app, port, self.clock, origin, welcome.worker, self.settings, self.sender)
        self.outbox.recheck = self.sender.check_turn
        self.references = self.outbox.references
        self.scheduler = Scheduler(
            self.clock,
            welcome.admission_deadline_ns,
            self._turn_over,
            self.outbox.pending.cancel_turn,
            port,
        )
        self.acceptance = Acceptance()
        self.outside = Outside(self)
        self.timers = Timers(self)
        self.making = Making(self)
        self.moving = Moving(self)
        self.stopped = asyncio.Event()
        self._emptied: asyncio.Event | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # from the supervisor

    def receive_record(self, body: bytes) -> None:
        """Take a message for one of the objects here; it waits while the object is not open.

        Raises:
            ProtocolError: the routing header is malformed.
        """
        header = frames.parse_record_header(body)
        self.counters.taken += 1
        cell = self.cells.get(header.key)
        if header.flags & frames.FLAG_LOOP:
            self.port.grant(1, len(body))
            self.outside.came_back(cell, header, body)
            return
        if cell is None:
            self._refuse(header, body, self.making.missing(header.key))
            return
        if header.object_generation not in (0, cell.object_generation) and cell.object_generation:
            name = describe_key(header.key)
            error = InvalidOperation(f"{name} is another incarnation than the one called", object_id=name)
            self._refuse(header, body, error)
            return
        if header.flags & frames.FLAG_FOLLOW and not self.acceptance.first(header):
            self.counters.duplicates += 1
            self.port.grant(1, len(body))
            return
        self.counters.accepted += 1
        cell.put(RecordCall(cell, header, body, credited=True))
        self.scheduler.ready(cell)

    def _refuse(self, header: frames.RecordHeader, body: bytes, error: SojournError) -> None:
        self.port.grant(1, len(body))
        self.counters.accepted += 1
        self.dead_letter(header.key, "a record", error.kind)
        answer_error(self.port, header, body, error)

    def receive_reply(self, body: bytes) -> None:
        """Take the reply to a request of an object here; a late one is dropped.

        Raises:
            ProtocolError: the header is malformed.
        """
        self.outbox.receive_reply(body)

    def receive_bulk(self, handoff: int, last: bool, chunk: memoryview) -> None:
        """Take a part of an envelope that is on its way in; the bytes are copied."""
        self.moving.bulk(handoff, last, chunk)

    def figures(self) -> dict[str, int]:
        """What has become of the messages here so far (B3.5)."""
        return self.counters.values()

    def receive_control(self, message: Control) -> bool:
        """Carry out a control message; False if it does not concern objects."""
        match message:
            case CreateObject():
                self.making.create(message)
            case OpenObject():
                self.making.open(message)
            case AwaitBoundary():
                self.moving.await_boundary(message)
            case Seal():
                self.moving.seal(message)
            case Unseal():
                self.moving.unseal(message)
            case Restore():
                self.moving.restore(message)
            case DropObject():
                self.moving.drop_assembly(message)
                self.making.drop(message)
            case AskFigures(call=call):
                self.port.submit_control(Figures(call, self.counters.values()))
            case Admission():
                self.scheduler.extend_admission(message.deadline_ns)
                self.timers.wake()
            case RequestsLost():
                self.outbox.requests_lost(message)
            case Stop():
                self.start_task(self._stop(message))
            case _:
                return False
        return True

    # for the parts

    def _turn_over(self, cell: Cell) -> None:
        """A turn ended: what was asked for its boundary happens now, else the next turn may come."""
        if cell.boundary is not None:
            self.moving.boundary_reached(cell)
        if cell.phase is Phase.OPEN:
            if cell.move_to is not None:
                where, cell.move_to = cell.move_to, None
                self.start_task(self._own_move(cell, where))
            if cell.queue is not None:
                self.scheduler.ready(cell)
        elif cell.phase is Phase.SEALING:
            cell = lead_of(cell)
            if cell.closing is not None:
                self.making.end(cell, cell.closing.reason)
            elif cell.seal is not None:
                self.moving.capture(cell)

    def ask_own_move(self, cell: Cell, to: NodeName | None, worker: int | None) -> None:
        """Note that an object wants to move after its turn (B8.8).

        Raises:
            InvalidOperation: outside a turn of the object, or its type never moves.
        """
        turn = current_turn.get()
        name = describe_key(cell.key)
        if turn is None or turn.ended or turn.cell is not cell:
            raise InvalidOperation(f"{name} asks for its own move outside its turn: use ref.relocate(...)")
        if cell.type.policy == "disabled":
            raise InvalidOperation(
                f"{name}: objects of type {cell.type.stable_type} never move", phase="RelocationDisabled"
            )
        cell.move_to = destination(to, worker)

    async def _own_move(self, cell: Cell, where: dict[str, Any]) -> None:
        try:
            await self.port.call_node("relocate", {"key": cell.key, **where})
        except SojournError as error:
            self.log_warning("own_move_failed", object=describe_key(cell.key), error=str(error))

    def dead_letter(self, key: ObjectKey, name: str, reason: str) -> None:
        """Count and log a message that ends without a handler (B3.5)."""
        self.counters.dead += 1
        self.log_warning("dead_letter", object=describe_key(key), message=name, reason=reason)

    def handler_failed(self, cell: Cell, name: str, error: BaseException, logged: bool) -> None:
        """Count a handler that raised; log it where nobody waits for its reply."""
        self.counters.failed += 1
        if logged:
            _logger.error(
                "handler_failed object=%s handler=%s",
                describe_key(cell.key),
                name,
                exc_info=error if isinstance(error, Exception) else None,
            )

    def log_warning(self, event: str, **fields: object) -> None:
        """Write one event with its fields."""
        text = " ".join(f"{name}={value}" for name, value in fields.items())
        _logger.warning("%s %s", event, text)

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that waits, owned by this host."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # end

    async def _stop(self, message: Stop) -> None:
        """Take no more turns, run closing callbacks, then say `Stopped`."""
        error = ShuttingDown(f"the node is stopping ({message.reason})")
        if not await within(self.clock, message.timeout_ms / 1000 * _STOP_SHARE, self._close_objects()):
            self.log_warning("stop_timeout", timeout_ms=message.timeout_ms)
        await self._end(error)
        self.port.submit_control(Stopped(self.worker))
        self.stopped.set()

    async def _close_objects(self) -> None:
        """End every object, the busy ones after their running turn."""
        for cell in list(self.cells.values()):
            if lead_of(cell) is not cell:
                continue  # it ends with its Spot
            if cell.phase in (Phase.OPEN, Phase.SEALING):
                self.making.drop(DropObject(cell.key, _STOPPING))
            elif cell.phase < Phase.ENDING:
                self.making.forget(cell, _STOPPING)  # it never ran here, or does not run here any more
        if self.cells:
            self._emptied = asyncio.Event()
            await self._emptied.wait()

    def forgotten(self, cell: Cell) -> None:
        """An object is gone."""
        if self.cells.get(cell.key) is cell:
            del self.cells[cell.key]
        if self._emptied is not None and not self.cells:
            self._emptied.set()

    async def close(self) -> None:
        """End every task and open request of this host; for tests and for a worker that leaves at once."""
        await self._end(ShuttingDown("the worker is closing"))
        mine = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not mine]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _end(self, error: SojournError) -> None:
        self.timers.close()
        self.outbox.close(error)
        await self.scheduler.close(error)
        self.cells.clear()
