"""The jobs of a mailbox that carry messages: calls from the same worker and records from outside.

Owns what beginning and ending such a turn means: permit, deadline, decoding, reply. It must not know how
turns are scheduled.
"""

from __future__ import annotations

import struct
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from sojourn.control import FirstHandled
from sojourn.errors import DeadlineExceeded, InvalidOperation, ProtocolError, Rejected, SojournError
from sojourn.frames import (
    ADMISSION_PACKET,
    FLAG_COMPLETE,
    FLAG_FIRST,
    FLAG_LOOP,
    KIND_REPLY,
    UNBIND_PACKET,
    record_frame,
)
from sojourn.ids import describe_key
from sojourn.spots.answers import answer_error
from sojourn.spots.failures import failure_of
from sojourn.spots.pending import Reply
from sojourn.spots.turns import Job
from sojourn.wire.errors import WireError
from sojourn.wire.fast_record import Call, payload_prefix, read_call, read_record

if TYPE_CHECKING:
    from sojourn.frames import RecordHeader
    from sojourn.spots.cell import Cell
    from sojourn.spots.declarations import Declaration

__all__ = ["HookCall", "LocalCall", "RecordCall"]

_REPLY = struct.Struct(">BBQQQ")
_ENVELOPE = struct.Struct(">BI")
_LENGTH = struct.Struct(">I")


class LocalCall(Job):
    """A message from the same worker: arguments shared or already copied.

    Its outcome waits in the job itself: a caller whose call was carried out at once needs no future.

    Attributes:
        deadline: loop time after which a request is not started any more; 0 for a send.
        reply: the future of a caller that had to wait.
        sender: the object whose turn sent it, None outside a turn.
        settled: the outcome is known.
    """

    __slots__ = ("_error", "_value", "args", "deadline", "handler", "kwargs", "reply", "sender", "settled")

    def __init__(
        self,
        cell: Cell,
        handler: Declaration,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        deadline: float,
        turn: Job | None,
    ) -> None:
        # Written out instead of super().__init__: this runs once per message of the quickest path.
        self.cell = cell
        self.caller = turn if deadline else None
        self.sender = None if turn is None else turn.cell
        self.alarm = None
        self.waiting = 0
        self.ended = False
        self.runner = None
        self.stopped = None
        self.handler = handler
        self.args = args
        self.kwargs = kwargs
        self.deadline = deadline
        self.reply: Reply | None = None
        self.settled = False
        self._value: Any = None
        self._error: SojournError | None = None

    @property
    def name(self) -> str:
        """Class and handler."""
        return f"{self.handler.owner_name}.{self.handler.name}"

    def begin(self) -> Coroutine[Any, Any, Any] | None:
        """The handler's coroutine, None when its time is over or the object has no such handler."""
        cell = self.cell
        host = cell.host
        if self.deadline and self.deadline <= host.clock.monotonic():
            host.dead_letter(cell.key, self.name, "expired")
            self.refuse(_expired(cell, self.name))
            return None
        own = cell.type.handlers.get(self.handler.name)
        if own is None:
            self._not_handled(cell.type.no_handler(self.handler.name))
            return None
        function = own.function
        if self.kwargs:
            return function(cell.instance, *self.args, **self.kwargs)
        return function(cell.instance, *self.args)

    def succeed(self, value: Any) -> None:
        """Hand the result to the caller, copied where it could change."""
        self.caller = None
        host = self.cell.host
        if not self.deadline:
            host.counters.handled += 1
            return
        value = host.outbox.codec.isolate_result(self.handler, value)
        host.counters.handled += 1
        self.settled = True
        reply = self.reply
        if reply is None:
            self._value = value
        elif not reply.done():
            reply.set_result(value)

    def _not_handled(self, error: SojournError) -> None:
        self.cell.host.handler_failed(self.cell, self.name, error, logged=not self.deadline)
        self.refuse(error)

    def fail(self, error: BaseException) -> None:
        """Hand the failure to the caller; of a send it is logged."""
        if error is self.stopped and isinstance(error, SojournError):
            typed = error
        else:
            typed = failure_of(error, self.name, describe_key(self.cell.key))
        self.cell.host.handler_failed(self.cell, self.name, error, logged=not self.deadline)
        self.refuse(typed)

    def refuse(self, error: SojournError) -> None:
        """End it with an error."""
        self.caller = None
        self.settled = True
        if self.reply is None:
            self._error = error
        elif not self.reply.done():
            self.reply.set_exception(error)

    def outcome(self) -> Any:
        """The result of a settled call, or its error raised."""
        if self._error is not None:
            raise self._error
        return self._value


class RecordCall(Job):
    """A message that came as a frozen record, or waits as one after a move.

    Attributes:
        header: its routing header.
        body: the frame body; the record is its tail.
        credited: True while the supervisor's credit for it has not been given back (B5.1).
        started: True once its handler was called.
    """

    __slots__ = ("body", "credited", "handler", "header", "packet", "started")

    def __init__(self, cell: Cell, header: RecordHeader, body: bytes, credited: bool) -> None:
        # Written out instead of super().__init__: this runs once per message.
        self.cell = cell
        self.caller = None
        self.alarm = None
        self.waiting = 0
        self.ended = False
        self.runner = None
        self.stopped = None
        self.header = header
        self.body = body
        self.credited = credited
        self.packet = "a record"
        self.handler: Declaration | None = None
        self.started = False

    @property
    def name(self) -> str:
        """Type and packet name."""
        return f"{self.cell.type.stable_type}.{self.packet}"

    @property
    def saved(self) -> bool:
        """It came out of an envelope: a bare record without a routing header."""
        return not self.header.record_at

    @property
    def record(self) -> bytes:
        """The frozen record, with the route fence of the object here where the supervisor left it out."""
        header, body = self.header, self.body
        if header.flags & FLAG_COMPLETE:
            return body[header.record_at :]
        cell = self.cell
        fence = cell.host.outbox.origin.route_fence(cell.key, cell.object_generation, cell.owner_generation)
        at = header.record_at + header.fence_at
        return b"".join((body[header.record_at : at], fence, body[at:]))

    def give_back(self) -> None:
        """Return the permit, once."""
        if self.credited:
            self.credited = False
            self.cell.host.port.grant(1, len(self.body))

    def begin(self) -> Coroutine[Any, Any, Any] | None:
        """The handler's coroutine, None when its time is over.

        Raises:
            ProtocolError, NotConfigured, InvalidOperation: it cannot be decoded, or fits no handler.
        """
        cell, header, body = self.cell, self.header, self.body
        host = cell.host
        if self.credited:
            self.credited = False
            host.port.grant(1, len(body))
        call = read_call(body, header.record_at, header.flags & FLAG_COMPLETE)
        deadline_ms, self.packet, content_type, at = call or self._read_generally()
        if deadline_ms is not None and deadline_ms <= host.clock.unix_ms():
            host.dead_letter(cell.key, self.packet, "expired")
            self.answer_error(_expired(cell, self.name))
            return None
        known = cell.type.handlers.get(self.packet)
        if known is None and self.packet == UNBIND_PACKET:
            self._give_back()
            return None
        handler = self.handler = known or cell.type.handler(self.packet)
        args, kwargs = host.outbox.codec.decode_arguments(handler, content_type, memoryview(body)[at:])
        self.started = True
        if kwargs:
            return handler.function(cell.instance, *args, **kwargs)
        return handler.function(cell.instance, *args)

    def _give_back(self) -> None:
        """An unbind among the saved work of a peer: it is the supervisor's to carry out (B11.1)."""
        header, host = self.header, self.cell.host
        host.counters.handled += 1
        frame = record_frame(
            FLAG_LOOP | FLAG_COMPLETE,
            0,
            self.cell.type.kind,
            header.object_generation,
            0,
            header.operation_high,
            header.operation_low,
            header.fence_at,
            header.key,
            b"",
            bytes(self.record),
        )
        host.port.submit(frame)

    def _read_generally(self) -> Call:
        """What the quick reader would not judge: a record that is unusual, or malformed."""
        try:
            fields = read_record(self.record)
        except WireError as error:
            name = describe_key(self.cell.key)
            raise ProtocolError(f"a record for {name} is malformed: {error}") from None
        payload_at = len(self.body) - len(fields.payload)
        return fields.deadline_ms, fields.packet_name, fields.content_type, payload_at

    def succeed(self, value: Any) -> None:
        """Send the reply of a request."""
        header, handler = self.header, self.handler
        route = header.reply_route
        if not route:
            self.cell.host.counters.handled += 1
            self.told_first()
            return
        assert handler is not None
        host, body, at = self.cell.host, self.body, header.record_at
        content_type, payload = host.outbox.codec.encode_result(handler, value)
        names = payload_prefix(handler.name, content_type)
        length = len(payload)
        octets = len(names) + 4 + length
        if octets > host.reply_octets_max:
            raise InvalidOperation(
                f"the result of {self.name} has {octets} bytes, more than one reply holds with "
                f"max_frame_bytes = {host.outbox.settings.max_frame_bytes}"
            )
        host.counters.handled += 1
        # What `answers.answer` gives, in one piece.
        host.port.submit(
            b"".join(
                (
                    _REPLY.pack(KIND_REPLY, 0, route, header.operation_high, header.operation_low),
                    body[at + 4 : at + 13 + body[at + 4]],
                    _ENVELOPE.pack(1, octets),
                    names,
                    _LENGTH.pack(length),
                    payload,
                )
            )
        )

    def fail(self, error: BaseException) -> None:
        """Send the failure of a request; of a send it is logged.

        Only an admission callback answers with an error of its own choice: `Rejected` (B2.2).
        """
        cell = self.cell
        if isinstance(error, Rejected) and self.handler is cell.type.handlers.get(ADMISSION_PACKET):
            cell.host.counters.handled += 1  # it was asked for its opinion
            self.answer_error(error)
            return
        if isinstance(error, SojournError) and (error is self.stopped or not self.started):
            typed = error
        else:
            typed = failure_of(error, self.name, describe_key(cell.key))
        cell.host.handler_failed(cell, self.name, error, logged=not self.header.reply_route)
        self.answer_error(typed)

    def told_first(self) -> None:
        """Of a message that is kept until its handler has ended: it has, or there will be none (B7.1)."""
        header = self.header
        if header.flags & FLAG_FIRST:
            self.cell.host.port.submit_control(
                FirstHandled(header.key, header.operation_high, header.operation_low)
            )

    def answer_error(self, error: SojournError) -> None:
        """End the message with a typed error, if someone waits for its reply."""
        self.told_first()
        answer_error(self.cell.host.port, self.header, self.body, error)


class HookCall(Job):
    """A lifecycle callback, run as a turn with a deadline (B2.9)."""

    __slots__ = ("_coroutine", "_done", "_limit_s", "_name")

    def __init__(
        self, cell: Cell, name: str, coroutine: Coroutine[Any, Any, Any], limit_s: float, done: Any
    ) -> None:
        super().__init__(cell)
        self._name = name
        self._coroutine = coroutine
        self._limit_s = limit_s
        self._done = done

    @property
    def limit_s(self) -> float:
        """The hook deadline."""
        return self._limit_s

    @property
    def name(self) -> str:
        """Type and callback."""
        return f"{self.cell.type.stable_type}.{self._name}"

    def begin(self) -> Coroutine[Any, Any, Any]:
        """The callback's coroutine."""
        return self._coroutine

    def succeed(self, value: Any) -> None:
        """It returned."""
        self._done(None)

    def fail(self, error: BaseException) -> None:
        """It raised or took too long."""
        typed = error if error is self.stopped else failure_of(error, self.name, describe_key(self.cell.key))
        self._done(typed)


def _expired(cell: Cell, name: str) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"{name} was not started: its time was over while it waited in the queue",
        object_id=describe_key(cell.key),
        phase="expired",
        applied="no",
    )
