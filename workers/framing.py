"""Length-prefixed frames over one stream: parsed in place, written once per loop turn.

Owns the bytes of one connection, Unix socketpair or TCP: cutting frames out of the stream, collecting what
is sent, telling when the other side is slow. It must not know what a frame means; it only hands bodies on.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, cast

from sojourn.errors import InvalidOperation, ProtocolError
from sojourn.frames import LENGTH
from sojourn.pieces import join_small
from sojourn.workers.waiters import Waiters

__all__ = [
    "BULK_AHEAD_OCTETS",
    "FRAME_OCTETS_MAX",
    "HIGH_WATER_OCTETS",
    "VIEW_OCTETS",
    "FrameChannel",
    "attach",
]

FRAME_OCTETS_MAX = 64 * 1024 * 1024 + 1024 * 1024
"""Largest frame body by default: a 64 MiB message and its headers."""

VIEW_OCTETS = 64 * 1024
"""From this size on a frame is handed to `on_view` without a copy, and its parts are not joined on sending."""

HIGH_WATER_OCTETS = 1024 * 1024
"""Octets waiting to be written above which a channel is congested."""

BULK_AHEAD_OCTETS = 256 * 1024
"""Octets waiting to be written above which no further piece of state is sent: what is sent now goes behind them."""

_BUFFER_OCTETS = 512 * 1024
_KEEP_OCTETS = 4 * 1024 * 1024
_CUT_OCTETS = 64 * 1024
_PREFIX = LENGTH.size
_EARLY_PARTS = 64
_length_at = LENGTH.unpack_from
_prefix_of = LENGTH.pack

FrameCallback: TypeAlias = Callable[[bytes], object]
ViewCallback: TypeAlias = Callable[[memoryview], object]
ClosedCallback: TypeAlias = Callable[[BaseException | None], object]


class FrameChannel(asyncio.BufferedProtocol):
    """One framed connection.

    `on_frame(body)` gets every frame in order. When `on_view` is given, frames of at least `VIEW_OCTETS` go
    there instead, as a view into the receive buffer that is valid only during the call. A callback that raises
    ends the connection with that exception: no frame is skipped.

    `on_closed(exc)` runs exactly once, as the last callback. `exc` is None after a clean end of file or `close`,
    ProtocolError when the peer broke the framing, ConnectionError when the stream broke inside a frame.

    Sends after the end are dropped: who cares about them learns it from `on_closed`.
    """

    def __init__(
        self,
        on_frame: FrameCallback,
        on_closed: ClosedCallback,
        *,
        on_view: ViewCallback | None = None,
        frame_octets_max: int = FRAME_OCTETS_MAX,
        high_water_octets: int = HIGH_WATER_OCTETS,
    ) -> None:
        self.on_frame = on_frame
        self.on_view = on_view
        self._on_closed: ClosedCallback | None = on_closed
        self._frame_octets_max = frame_octets_max
        self._high_water_octets = high_water_octets
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._buffer = bytearray(_BUFFER_OCTETS)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._outgoing: list[bytes | memoryview] = []
        self._outgoing_octets = 0
        self._flush_scheduled = False
        self._writing_paused = False
        self._congested = False
        self._reading_paused = False
        self._gives_way = False
        self._failure: BaseException | None = None
        self._ended = False
        self._waiters = Waiters()
        self._closed_waiters = Waiters()

    # sending

    def send(self, body: bytes) -> None:
        """Queue one frame; it is written at the end of this loop turn.

        Raises:
            InvalidOperation: the body is empty or above the frame limit.
        """
        octets = len(body)
        if not 0 < octets <= self._frame_octets_max:
            raise self._bad_size(octets)
        outgoing = self._outgoing
        outgoing.append(_prefix_of(octets))
        outgoing.append(body)
        self._outgoing_octets += octets
        if not self._flush_scheduled:
            self._schedule_flush()
        elif len(outgoing) >= _EARLY_PARTS or self._outgoing_octets > self._high_water_octets:
            self._flush()

    def send_parts(self, parts: Sequence[bytes | memoryview]) -> None:
        """Queue one frame made of `parts`, without joining large ones.

        A large part is not copied: it must not change until `wait_written` returns.

        Raises:
            InvalidOperation: the body is empty or above the frame limit.
        """
        octets = 0
        for part in parts:
            octets += part.nbytes if isinstance(part, memoryview) else len(part)
        if not 0 < octets <= self._frame_octets_max:
            raise self._bad_size(octets)
        self._outgoing.append(_prefix_of(octets))
        self._outgoing.extend(parts)
        self._outgoing_octets += octets
        if not self._flush_scheduled:
            self._schedule_flush()
        elif self._outgoing_octets > self._high_water_octets:
            self._flush()

    def hold(self) -> None:
        """What is sent until `release` needs no turn of the loop to be written."""
        self._flush_scheduled = True

    def release(self) -> None:
        """Write what was sent since `hold`."""
        self._flush_scheduled = False
        if self._outgoing:
            self._flush()

    def flush(self) -> None:
        """Write what is queued now, without waiting for the end of the loop turn."""
        if self._outgoing:
            self._flush()

    @property
    def congested(self) -> bool:
        """More than the high-water mark waits to be written: further senders should wait, until much has left."""
        if self._writing_paused and not self._congested:
            self._congested = self.waiting_octets > self._high_water_octets
        return self._congested

    @property
    def bulk_room(self) -> bool:
        """So little waits to be written that a piece of state may go out."""
        return not self._writing_paused and self.waiting_octets < BULK_AHEAD_OCTETS

    @property
    def waiting_octets(self) -> int:
        """Octets sent but not yet taken by the kernel."""
        transport = self._transport
        return self._outgoing_octets + (transport.get_write_buffer_size() if transport is not None else 0)

    async def wait_uncongested(self) -> None:
        """Return when the channel is not congested, or has ended."""
        while self.congested and not self._ended:
            await self._waiters.wait()

    async def wait_bulk_room(self) -> None:
        """Return when there is `bulk_room`, or the channel has ended; the loop has had another turn by then.

        So who sends one piece after each of these neither keeps the loop to itself, however fast the other side
        reads, nor puts more than `BULK_AHEAD_OCTETS` and its piece in front of what others send.
        """
        await asyncio.sleep(0)
        self.flush()
        while self._writing_paused and not self._ended:
            await self._waiters.wait()

    async def wait_written(self) -> None:
        """Return when everything sent so far was taken by the kernel, or the channel has ended."""
        self.flush()
        transport = self._transport
        if transport is None or self._ended or not transport.get_write_buffer_size():
            return
        transport.set_write_buffer_limits(high=0)
        try:
            while self._writing_paused and not self._ended:
                await self._waiters.wait()
        finally:
            if not self._ended:
                self._limit_writing(transport)

    def _bad_size(self, octets: int) -> InvalidOperation:
        return InvalidOperation(
            f"a frame holds 1 to {self._frame_octets_max} octets, not {octets}: send less in one message"
        )

    def _schedule_flush(self) -> None:
        self._flush_scheduled = True
        self._loop.call_soon(self._flush_scheduled_now)

    def _flush_scheduled_now(self) -> None:
        self._flush_scheduled = False
        if self._outgoing:
            self._flush()

    def _flush(self) -> None:
        outgoing, transport = self._outgoing, self._transport
        if transport is None and not self._ended:
            return  # not connected yet: connection_made writes it
        octets = self._outgoing_octets
        self._outgoing = []
        self._outgoing_octets = 0
        if transport is None or self._ended or transport.is_closing():
            return
        if octets < VIEW_OCTETS:
            self._write(transport, b"".join(outgoing))
        else:
            for piece in join_small(outgoing, VIEW_OCTETS):
                transport.write(piece)

    def _write(self, transport: asyncio.Transport, octets: bytes) -> None:
        """Give octets to the kernel now: the transport would keep them until the end of this loop turn, and the
        reader could not work on them meanwhile. What the kernel does not take goes the transport's way."""
        if self._socket is not None and not transport.get_write_buffer_size():
            try:
                taken = self._socket.send(octets)
            except OSError:  # full, or an error that the transport meets too and reports
                taken = 0
            if taken == len(octets):
                return
            octets = octets[taken:]
        transport.write(octets)

    # ending

    def close(self) -> None:
        """End after what was sent is written."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self, failure: BaseException | None = None) -> None:
        """End at once; `failure` is what `on_closed` gets."""
        if failure is not None and self._failure is None:
            self._failure = failure
        if self._transport is not None:
            self._transport.abort()

    @property
    def ended(self) -> bool:
        """The connection is gone; `on_closed` ran or runs now."""
        return self._ended

    async def wait_closed(self) -> None:
        """Return when the connection has ended."""
        if not self._ended:
            await self._closed_waiters.wait()

    def write_to(self, end: socket.socket) -> None:
        """The socket below the transport, not blocking: the transport closes it, and this never reads from it."""
        self._socket = end

    def pause_reading(self) -> None:
        """Take nothing more from the socket until `resume_reading`; idempotent."""
        if not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Undo `pause_reading`; idempotent."""
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()

    @property
    def transport(self) -> asyncio.Transport | None:
        """The transport below, None before the connection stands."""
        return self._transport

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = stream = cast(asyncio.Transport, transport)  # uvloop's are no subclass of it
        self._limit_writing(stream)
        self.flush()

    def _limit_writing(self, transport: asyncio.WriteTransport) -> None:
        high = min(BULK_AHEAD_OCTETS, self._high_water_octets)
        transport.set_write_buffer_limits(high=high, low=high // 4)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        try:
            self._cut_frames()
        except Exception as failure:
            self.abort(failure)
            self._start = self._end = 0

    def eof_received(self) -> bool:
        if self._start != self._end and self._failure is None:
            self._failure = ConnectionResetError("the stream ended inside a frame")
        return False

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = self._congested = False
        self._waiters.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._writing_paused = self._congested = False
        self._outgoing = []
        self._outgoing_octets = 0
        self._waiters.wake()
        on_closed, self._on_closed = self._on_closed, None
        try:
            if on_closed is not None:
                on_closed(self._failure or exc)
        finally:
            self._closed_waiters.wake()
            self._view = memoryview(b"")
            self._buffer = bytearray()

    # cutting

    def _cut_frames(self) -> None:
        """Hand on every whole frame; small ones are cut from one copied block, which beats one copy each."""
        start = self._start
        while self._end - start >= _PREFIX:
            (octets,) = _length_at(self._buffer, start)
            if not 0 < octets <= self._frame_octets_max:
                raise ProtocolError(f"frame of {octets} octets; 1 to {self._frame_octets_max} are allowed")
            after = start + _PREFIX + octets
            if after > self._end:
                break
            self._start = after
            if octets >= _CUT_OCTETS:
                self._hand_on_large(start + _PREFIX, after)
                self._give_way()
                start = after
            else:
                start = self._cut_block(start)
            if self._ended or self._failure is not None:
                return
        self._start = start
        self._make_room()

    def _cut_block(self, start: int) -> int:
        """Hand on the whole small frames of the next block; returns where the rest starts."""
        block = bytes(self._view[start : min(self._end, start + _CUT_OCTETS + _PREFIX)])
        on_frame, octets_max = self.on_frame, self._frame_octets_max
        at, end = 0, len(block)
        while end - at >= _PREFIX:
            (octets,) = _length_at(block, at)
            body_at = at + _PREFIX
            after = body_at + octets
            if after > end or not 0 < octets <= octets_max:
                break
            at = after
            on_frame(block[body_at:after])
        return start + at

    def _hand_on_large(self, body_at: int, after: int) -> None:
        with self._view[body_at:after] as body:
            if self.on_view is not None:
                self.on_view(body)
            else:
                self.on_frame(bytes(body))

    def _give_way(self) -> None:
        """A large frame came, probably with more behind it: what waits on other connections comes first."""
        if not self._gives_way and not self._reading_paused and self._transport is not None:
            self._gives_way = True
            self._transport.pause_reading()
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._gives_way = False
        transport = self._transport
        if transport is not None and not (self._ended or self._reading_paused or transport.is_closing()):
            transport.resume_reading()

    def _make_room(self) -> None:
        """Move an incomplete frame to the front and size the buffer for it: at most one move per frame."""
        start, end = self._start, self._end
        if start == end:
            self._start = self._end = 0
            if len(self._buffer) > _KEEP_OCTETS:
                self._replace_buffer(_BUFFER_OCTETS, 0, 0)
            return
        needed = _PREFIX
        if end - start >= _PREFIX:
            needed += _length_at(self._buffer, start)[0]
        if needed > len(self._buffer):
            self._replace_buffer(needed, start, end)
        elif start + needed > len(self._buffer) or end == len(self._buffer):
            self._view[: end - start] = self._view[start:end]  # they may overlap
            self._start, self._end = 0, end - start

    def _replace_buffer(self, octets: int, start: int, end: int) -> None:
        buffer = bytearray(octets)
        buffer[: end - start] = self._view[start:end]
        self._buffer, self._view = buffer, memoryview(buffer)
        self._start, self._end = 0, end - start


async def attach(*ends: tuple[socket.socket, asyncio.BaseProtocol]) -> None:
    """Run each protocol over its end of a Unix socketpair; the sockets belong to them from then on.

    A cancellation waits until that is so: cut short, it would leave sockets that nobody closes, and protocols
    that are never told of their end.
    """
    connecting = asyncio.ensure_future(_attach(ends))
    try:
        await asyncio.shield(connecting)
    except asyncio.CancelledError:
        await connecting
        raise


async def _attach(ends: Sequence[tuple[socket.socket, asyncio.BaseProtocol]]) -> None:
    loop = asyncio.get_running_loop()
    for end, protocol in ends:
        end.setblocking(False)
        if isinstance(protocol, FrameChannel):
            protocol.write_to(end)
        await loop.create_unix_connection(partial(_same, protocol), sock=end)


def _same(protocol: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
    return protocol
