"""The way out of a process for messages: encode once, admit, send, wait for the reply.

Owns frames that leave a worker or a client and the matching of replies. Used by the host of a worker for
objects that are not in it, and by client processes as their `Sender`. It must not know about objects here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sojourn import frames
from sojourn.control import ErrorBody, ForgetRequest, RequestsLost, decode_error
from sojourn.errors import InvalidOperation, ProtocolError, SojournError, Unavailable, error_from_fields
from sojourn.ids import ObjectKind, describe_key
from sojourn.spots.codec import PayloadCodec
from sojourn.spots.moulds import Mould
from sojourn.spots.origin import Origin, record_kind
from sojourn.spots.pending import PendingRequests, Reply
from sojourn.spots.ports import within
from sojourn.spots.references import References
from sojourn.spots.results import read_result
from sojourn.spots.settings import SpotSettings
from sojourn.wire.fast_record import encode_payload, encode_record_head

if TYPE_CHECKING:
    from sojourn.spots.app import App, ObjectType
    from sojourn.spots.declarations import Declaration
    from sojourn.spots.ports import Clock, OutboxPort
    from sojourn.spots.references import Reference, Sender
    from sojourn.spots.turns import Job

__all__ = ["Outbox"]

_MOULDS_MAX = 512


class Outbox:
    """Sends messages into the mesh and keeps the requests that wait for replies.

    Args:
        app: the application whose handlers are called.
        port: the way to the node's supervisor (or, in a client, to the mesh).
        clock: times.
        origin: node run and lease that messages come from.
        slot: index of this worker in its node, 0 in a client.
        settings: timeouts and limits.
        sender: what references in arriving values are bound to; this outbox when left out.
    """

    def __init__(
        self,
        app: App,
        port: OutboxPort,
        clock: Clock,
        origin: Origin,
        slot: int = 0,
        settings: SpotSettings | None = None,
        sender: Sender | None = None,
    ) -> None:
        self._app = app
        self._port = port
        self._clock = clock
        self.origin = origin
        self.settings = settings if settings is not None else SpotSettings()
        bound: Sender = self if sender is None else sender
        self.codec = PayloadCodec(bound, self.settings.allow_pickle)
        self.references = References(bound)
        self.pending = PendingRequests(clock, slot, self._forget)
        self.node_source = origin.node_source()
        self._loop = asyncio.get_running_loop()
        self.default_timeout_s = self.settings.request_timeout_ms / 1000
        self.closed: SojournError | None = None
        self.recheck: Callable[[Job | None], None] | None = None
        """Whether a turn may still send, asked again after it waited for room; raises the error if not (B6.4)."""
        self._moulds: dict[tuple[bytes | None, Declaration, ObjectType, str], Mould] = {}

    @property
    def app(self) -> App:
        """The application."""
        return self._app

    # Sender

    async def request(
        self,
        reference: Reference[Any],
        handler: Declaration,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        source: bytes | None = None,
        turn: Job | None = None,
    ) -> Any:
        """Send a request and wait for its one terminal; `source` and `turn` when sent by an object."""
        content_type, payload = self.encode(handler, args, kwargs)
        if self._port.congested:
            await self.admit(reference, turn)
        reply = self.ask(reference, handler, content_type, payload, source, turn)
        try:
            return await reply
        finally:
            self.pending.ended(reply)

    def encode(
        self, handler: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[str, bytes]:
        """Content type and payload of a message: what happens to the arguments afterwards is not in it (B1.7)."""
        if kwargs or not handler.fits(len(args)):
            args, kwargs = handler.bind(args, kwargs)
        return self.codec.encode_arguments(handler, args, kwargs)

    def ask(
        self,
        reference: Reference[Any],
        handler: Declaration,
        content_type: str,
        payload: bytes,
        source: bytes | None = None,
        turn: Job | None = None,
    ) -> Reply:
        """Send a request without asking for room. The caller waits for the reply, then calls `pending.ended`."""
        if self.closed is not None:
            self.check_open()
        timeout_s = reference.timeout_s or self.default_timeout_s
        deadline_ms = self._clock.unix_ms() + (int(timeout_s * 1000) or 1)
        mould = self._mould(reference, handler, content_type, payload, source)
        pending = self.pending
        reply = pending.open(self._loop, handler, reference.key, turn, timeout_s)
        pending.assign_route(reply)
        self._port.submit(
            mould.request(reference.key, reply.route, reply.operation_low, deadline_ms, payload)
        )
        return reply

    async def send(
        self,
        reference: Reference[Any],
        handler: Declaration,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        source: bytes | None = None,
        turn: Job | None = None,
    ) -> None:
        """Send one way; returns when the port took it."""
        content_type, payload = self.encode(handler, args, kwargs)
        if self._port.congested:
            await self.admit(reference, turn)
        self.tell(reference, handler, content_type, payload, source)

    def tell(
        self,
        reference: Reference[Any],
        handler: Declaration,
        content_type: str,
        payload: bytes,
        source: bytes | None = None,
    ) -> None:
        """Send one way without asking for room."""
        if self.closed is not None:
            self.check_open()
        mould = self._mould(reference, handler, content_type, payload, source)
        self._port.submit(mould.send(reference.key, self.pending.next_operation(), payload))

    def send_nowait(
        self,
        reference: Reference[Any],
        handler: Declaration,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        source: bytes | None = None,
    ) -> None:
        """Send one way, or raise `Unavailable` where the port would make it wait."""
        content_type, payload = self.encode(handler, args, kwargs)
        if self._port.congested:
            raise self._full(reference)
        self.tell(reference, handler, content_type, payload, source)

    async def call_node(self, operation: str, arguments: dict[str, Any]) -> Any:
        """Ask the node for something."""
        self.check_open()
        return await self._port.call_node(operation, arguments)

    # replies

    def receive_reply(self, body: bytes) -> None:
        """Hand a reply frame to its waiter; a late one is dropped."""
        header = frames.parse_reply_header(body)
        if header.operation_high != self.pending.operation_high:
            return
        reply = self.pending.take(header.reply_route, header.operation_low)
        if reply is None:
            return
        try:
            if header.flags & frames.FLAG_ERROR:
                error = decode_error(memoryview(body)[header.body_at :])
                reply.set_exception(error_from_fields(error.kind, error.fields))
            else:
                content_type, at = read_result(body, header.body_at)
                payload = memoryview(body)[at:]
                reply.set_result(self.codec.decode_result(reply.handler, content_type, payload))
        except SojournError as error:
            reply.set_exception(error)
        except Exception as error:
            reply.set_exception(ProtocolError(f"a reply of {describe_key(reply.key)} is malformed: {error}"))

    def requests_lost(self, message: RequestsLost) -> None:
        """End requests whose reply cannot come any more."""
        for route, operation_low in message.requests:
            reply = self.pending.take(route, operation_low)
            if reply is not None:
                reply.set_exception(_error_of(message.error))

    def close(self, error: SojournError) -> None:
        """End every open request with `error` and refuse new ones with it."""
        self.closed = error
        for reply in self.pending.open_replies():
            reply.set_exception(error_from_fields(error.kind, error.fields()))
        self.pending.close()

    # for the host

    def record_of(
        self,
        kind: ObjectKind,
        handler: Declaration,
        content_type: str,
        payload: bytes,
        source: bytes | None,
        deadline_ms: int | None,
        operation_low: int,
        route: int,
    ) -> tuple[bytes, bytes]:
        """The two halves of a frozen record, around the route fence that is left out."""
        head = encode_record_head(
            self.node_source if source is None else source,
            deadline_ms,
            self.pending.operation_high,
            operation_low,
            record_kind(kind, route != 0),
            route,
        )
        return head, encode_payload(handler.name, content_type, payload)

    def check_open(self) -> None:
        """Raises the error this outbox was closed with."""
        if self.closed is not None:
            raise error_from_fields(self.closed.kind, self.closed.fields())

    def _mould(
        self,
        reference: Reference[Any],
        handler: Declaration,
        content_type: str,
        payload: bytes,
        source: bytes | None,
    ) -> Mould:
        """What makes the frame of a message; a message that is too long is refused here."""
        record = reference.type
        which = (source, handler, record, content_type)
        mould = self._moulds.get(which)
        if mould is None:
            if len(self._moulds) >= _MOULDS_MAX:
                self._moulds.clear()
            sender = self.node_source if source is None else source
            mould = Mould(record, handler.name, content_type, sender, self.pending.operation_high)
            self._moulds[which] = mould
        octets = mould.record_octets + len(payload)
        if octets > self.settings.max_frame_bytes:
            raise InvalidOperation(
                f"{handler.owner_name}.{handler.name}: the message has {octets} bytes, more than "
                f"max_frame_bytes = {self.settings.max_frame_bytes}",
                object_id=describe_key(reference.key),
            )
        return mould

    @property
    def congested(self) -> bool:
        """New messages have to wait: see `admit`."""
        return self._port.congested

    async def admit(self, reference: Reference[Any], turn: Job | None = None) -> None:
        """Wait for room on the way out, at most the admission timeout (B3.1)."""
        if not await within(self._clock, self.settings.admission_timeout_ms / 1000, self._room()):
            raise self._full(reference)
        if self.recheck is not None:
            self.recheck(turn)

    async def _room(self) -> None:
        while self._port.congested:
            await self._port.wait_uncongested()

    def _full(self, reference: Reference[Any]) -> Unavailable:
        return Unavailable(
            f"the way out of this process stayed full for {self.settings.admission_timeout_ms} ms: "
            f"the message to {describe_key(reference.key)} was not sent",
            object_id=describe_key(reference.key),
            applied="no",
        )

    def _forget(self, route: int) -> None:
        self._port.submit_control(ForgetRequest(route))


def _error_of(body: ErrorBody) -> SojournError:
    return error_from_fields(body.kind, body.fields)
