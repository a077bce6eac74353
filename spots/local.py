"""The sender of a worker: mailbox to mailbox where the object is here, else out through the outbox.

Owns the decision where a message goes and the refusal of calls that would wait for themselves (B1.6). It
must not know frames.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sojourn.errors import InvalidOperation, TypeMismatch, Unavailable
from sojourn.ids import ObjectKey, describe_key
from sojourn.spots.cell import Cell
from sojourn.spots.jobs import LocalCall
from sojourn.spots.turns import Job, current_turn

if TYPE_CHECKING:
    from sojourn.spots.app import App
    from sojourn.spots.declarations import Declaration
    from sojourn.spots.host import ObjectHost
    from sojourn.spots.references import Reference

__all__ = ["LocalSender"]

_QUEUE_YIELD_LENGTH = 1024
"""A sender whose target has this many messages waiting lets other turns run first."""


class LocalSender:
    """`Sender` for the objects of one host."""

    __slots__ = ("_host", "_loop")

    def __init__(self, host: ObjectHost) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()

    @property
    def app(self) -> App:
        """The application."""
        return self._host.app

    async def request(
        self,
        reference: Reference[Any],
        handler: Declaration,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Send a request and wait for its one terminal."""
        host, key = self._host, reference.key
        turn = current_turn.get()
        if turn is not None:
            if turn.ended:
                raise _turn_over(turn)
            _refuse_cycle(turn, key)
        cell = host.cells.get(key)
        outbox = host.outbox
        if cell is None or not host.outside.reaches(cell):
            self._check_admission(turn)
            host.outside.sent(key)
            source = None if turn is None else turn.cell.source or turn.cell.message_source
            content_type, payload = outbox.encode(handler, args, kwargs)
            if outbox.congested:
                await outbox.admit(reference, turn)
            reply = outbox.ask(reference, handler, content_type, payload, source, turn)
            try:
                return await reply
            finally:
                outbox.pending.ended(reply)
        if outbox.closed:
            outbox.check_open()
        if cell.type is not reference.type:
            _check_type(cell, reference)
        args, kwargs = handler.bind(args, kwargs)
        args, kwargs = outbox.codec.isolate_arguments(handler, args, kwargs)
        timeout_s = reference.timeout_s or outbox.default_timeout_s
        job = LocalCall(cell, handler, args, kwargs, host.clock.monotonic() + timeout_s, turn)
        host.counters.accepted += 1
        host.scheduler.offer(job)
        if job.settled:
            return job.outcome()
        reply = job.reply = outbox.pending.open(self._loop, handler, key, turn, timeout_s)
        try:
            return await reply
        finally:
            outbox.pending.ended(reply)

    async def send(
        self, reference: Reference[Any], handler: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Send one way."""
        turn, cell = self._place(reference)
        if cell is None:
            outbox = self._host.outbox
            source = None if turn is None else turn.cell.source or turn.cell.message_source
            content_type, payload = outbox.encode(handler, args, kwargs)
            if outbox.congested:
                await outbox.admit(reference, turn)
            outbox.tell(reference, handler, content_type, payload, source)
            return
        self._put(turn, cell, reference, handler, args, kwargs)
        if cell.queue is not None and len(cell.queue) > _QUEUE_YIELD_LENGTH:
            await asyncio.sleep(0)

    def send_nowait(
        self, reference: Reference[Any], handler: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Send one way without waiting."""
        turn, cell = self._place(reference)
        if cell is None:
            source = None if turn is None else turn.cell.message_source
            self._host.outbox.send_nowait(reference, handler, args, kwargs, source)
            return
        self._put(turn, cell, reference, handler, args, kwargs)

    async def call_node(self, operation: str, arguments: dict[str, Any]) -> Any:
        """Ask the node for something."""
        turn = current_turn.get()
        if turn is not None:
            if turn.ended:
                raise _turn_over(turn)
            if operation == "relocate" and arguments["key"] == turn.cell.key:
                raise InvalidOperation(
                    "an object cannot wait for its own move in its own turn: use self.relocate(...), "
                    "which moves it after the turn",
                    object_id=describe_key(turn.cell.key),
                )
        return await self._host.outbox.call_node(operation, arguments)

    def _place(self, reference: Reference[Any]) -> tuple[Job | None, Cell | None]:
        """Whose turn sends, and the cell if the object is here and takes messages from here."""
        turn = current_turn.get()
        if turn is not None and turn.ended:
            raise _turn_over(turn)
        cell = self._host.cells.get(reference.key)
        if cell is None or not self._host.outside.reaches(cell):
            self._check_admission(turn)
            self._host.outside.sent(reference.key)
            return turn, None
        return turn, cell

    def _put(
        self,
        turn: Job | None,
        cell: Cell,
        reference: Reference[Any],
        handler: Declaration,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        host = self._host
        host.outbox.check_open()
        _check_type(cell, reference)
        args, kwargs = host.outbox.codec.isolate_arguments(handler, *handler.bind(args, kwargs))
        cell.put(LocalCall(cell, handler, args, kwargs, 0.0, turn))
        host.counters.accepted += 1
        host.scheduler.ready(cell)

    def check_turn(self, turn: Job | None) -> None:
        """Whether a turn may send to another process now.

        Raises:
            InvalidOperation: it is over.
            Unavailable: the node's lease is over (B6.4).
        """
        if turn is not None and turn.ended:
            raise _turn_over(turn)
        self._check_admission(turn)

    def _check_admission(self, turn: Job | None) -> None:
        """Refuse to send for a turn when the node's lease is over (B6.4); what stays here waits instead."""
        if turn is not None and not self._host.scheduler.admitted:
            raise Unavailable("the node's lease is over: nothing is sent", applied="no")


def _turn_over(turn: Job) -> InvalidOperation:
    return InvalidOperation(
        f"the turn {turn.name} is over: a task it started cannot send messages in its name; "
        "await the task inside the handler, or use a timer",
        object_id=describe_key(turn.cell.key),
    )


def _refuse_cycle(turn: Job, key: ObjectKey) -> None:
    """Refuse a request to an object whose own turn waits for this one (B1.6)."""
    waiting: Job | None = turn
    while waiting is not None:
        group = waiting.cell.group
        if waiting.cell.key == key or (group is not None and key in group):
            way = "its own queue" if waiting is turn else "a queue whose turn waits for this one"
            raise InvalidOperation(
                f"{turn.name} of {describe_key(turn.cell.key)} would wait for {way} forever: "
                "use send, or call the method directly",
                object_id=describe_key(key),
            )
        waiting = waiting.caller


def _check_type(cell: Cell, reference: Reference[Any]) -> None:
    if cell.type is not reference.type and not issubclass(cell.type.cls, reference.type.cls):
        raise TypeMismatch(
            f"{describe_key(cell.key)} is a {cell.type.stable_type}, not a {reference.type.stable_type}",
            object_id=describe_key(cell.key),
        )
