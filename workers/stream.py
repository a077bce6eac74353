"""Length-prefixed frames on a byte stream: reading in place and writing in batches.

Owns how frames (`u32 length` + body, see `sojourn.frames`) are cut out of received bytes and how frames to
send are collected and handed to a transport once per loop turn. It must not know what a frame means, nor
whether the stream is a link or a worker's IPC connection.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from sojourn.errors import ProtocolError
from sojourn.frames import LENGTH

__all__ = ["LARGE_FRAME", "FrameReader", "FrameWriter", "HandedMark", "Piece"]

Piece: TypeAlias = bytes | memoryview
"""A run of octets of a frame. A view is one of single octets (format `B`), stays referenced until the transport
has let go of it, and its memory must not change before that."""

LARGE_FRAME = 64 * 1024
"""Bodies above this many octets are received into memory of their own and delivered as a `memoryview`."""

_BUFFER = 256 * 1024
_AFTER_LARGE = 16 * 1024
_JOIN_BELOW = 16 * 1024
_BATCH = 1024 * 1024
_EARLY_FRAMES = 32
_PREFIX = LENGTH.size


class FrameReader:
    """Cuts frames out of received octets; the two calls of `asyncio.BufferedProtocol` feed it.

    Small frames share one reused buffer and are delivered as `bytes`. A frame larger than `LARGE_FRAME` is
    received straight into a buffer of its own and delivered as a `memoryview`, without a further copy. Both
    may be kept: the large buffer is used again only when nobody holds a view of it any more.
    """

    __slots__ = (
        "_big",
        "_big_length",
        "_big_view",
        "_buffer",
        "_deliver",
        "_end",
        "_limit",
        "_spare",
        "_view",
        "_window",
    )

    def __init__(self, deliver: Callable[[Piece], None], frame_octets_max: int) -> None:
        """`deliver` gets each body; a body above `frame_octets_max` octets is a protocol error."""
        self._deliver = deliver
        self._limit = frame_octets_max
        self._buffer = bytearray(_BUFFER)
        self._view = memoryview(self._buffer)
        self._end = 0  # octets held at the start of the buffer; between calls always less than a frame
        self._window = _BUFFER
        self._big: bytearray | None = None
        self._big_view: memoryview | None = None
        self._big_length = 0
        self._spare: bytearray | None = None

    @property
    def held(self) -> int:
        """Octets of an unfinished frame received so far."""
        return self._end

    def get_buffer(self) -> memoryview:
        """Where the next octets go; never empty."""
        if self._big_view is not None:
            return self._big_view[self._end : self._big_length]
        return self._view[self._end : self._end + self._window]

    def buffer_updated(self, count: int) -> None:
        """Take `count` octets written into the last `get_buffer()` and deliver every whole frame.

        Raises:
            ProtocolError: a frame without a body or above the limit; the stream cannot be read further.
        """
        self._end += count
        if self._big_view is None:
            self._window = _BUFFER
            self._cut()
        elif self._end == self._big_length:
            self._finish_large()

    def feed(self, octets: bytes | memoryview) -> None:
        """Take octets that did not come through `get_buffer` (what followed a handshake)."""
        at = 0
        while at < len(octets):
            space = self.get_buffer()
            part = octets[at : at + len(space)]
            space[: len(part)] = part
            del space
            at += len(part)
            self.buffer_updated(len(part))

    def _cut(self) -> None:
        view, end, at = self._view, self._end, 0
        unpack, limit = LENGTH.unpack_from, self._limit
        # Whatever happens in a callback, what it was given counts as taken.
        self._end = 0
        while end - at >= _PREFIX:
            (length,) = unpack(view, at)
            start = at + _PREFIX
            stop = start + length
            if length > limit or not length:
                raise ProtocolError(f"frame of {length} octets; 1 to {limit} are allowed")
            if length > LARGE_FRAME:
                if stop > end:
                    self._begin_large(length, view[start:end])
                    return
                self._begin_large(length, view[start:stop])
                self._finish_large()
            elif stop > end:
                break
            else:
                at = self._cut_block(at, end)
                continue
            at = stop
        rest = end - at
        if rest and at:
            view[:rest] = view[at:end]
        self._end = rest

    def _cut_block(self, at: int, end: int) -> int:
        """Deliver the small frames at `at`, cut from one copied block: cheaper than a view and a copy each."""
        block = bytes(self._view[at : min(end, at + LARGE_FRAME + _PREFIX)])
        unpack, deliver, limit = LENGTH.unpack_from, self._deliver, min(self._limit, LARGE_FRAME)
        here, last = 0, len(block)
        while last - here >= _PREFIX:
            (length,) = unpack(block, here)
            start = here + _PREFIX
            stop = start + length
            if stop > last or not 0 < length <= limit:
                break  # an unfinished, large or invalid frame: `_cut` looks at it
            here = stop
            deliver(block[start:stop])
        return at + here

    def _begin_large(self, length: int, first: memoryview) -> None:
        big = self._spare
        self._spare = None
        if big is None or len(big) < length or not _is_free(big):
            big = bytearray(length)
        self._big = big
        self._big_view = memoryview(big)
        self._big_length = length
        self._big_view[: len(first)] = first
        self._end = len(first)

    def _finish_large(self) -> None:
        assert self._big_view is not None
        body = self._big_view[: self._big_length].toreadonly()
        self._spare, self._big, self._big_view = self._big, None, None
        self._end = 0
        self._window = _AFTER_LARGE  # the next frame is probably large too: do not read much of it here
        self._deliver(body)


def _is_free(buffer: bytearray) -> bool:
    """True when no view of `buffer` exists: a bytearray with a view cannot change its size."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True


_Frame: TypeAlias = "bytes | tuple[Sequence[Piece], Callable[[bool], None] | None]"


class HandedMark:
    """An `on_written` that also knows whether its frame was given to the transport: from then on it may have
    arrived, also when the connection broke before the kernel had all of it."""

    __slots__ = ("handed",)

    def __init__(self) -> None:
        self.handed = False

    def __call__(self, written: bool) -> None:
        """Nothing to do: `handed` is what is asked for."""


class FrameWriter:
    """Collects frames and hands them to a transport once per loop turn, in the order they were given.

    It sets the transport's write limits to zero: while the transport holds octets the kernel has not taken,
    further frames wait here, where they still count as not handed over. `on_written(True)` is therefore
    exact to the batch: it comes when the transport holds no octet of the batch (at most 1 MiB, or one
    frame) the frame was in; `on_written(False)` when the connection broke first. Over TLS, "the transport"
    is the TLS layer: what it has let go of is in the kernel or in the buffer of the socket transport below.
    """

    __slots__ = (
        "_before_flush",
        "_descriptor",
        "_frames",
        "_loop",
        "_marks",
        "_paused",
        "_scheduled",
        "_transport",
        "octets",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, before_flush: Callable[[], None] | None = None
    ) -> None:
        """`before_flush` runs at the start of each flush and may send (batched control frames)."""
        self._loop = loop
        self._transport: asyncio.WriteTransport | None = None
        self._descriptor = -1
        self._frames: deque[_Frame] = deque()
        self._marks: list[Callable[[bool], None]] = []
        self._paused = False
        self._scheduled = False
        self._before_flush = before_flush
        self.octets = 0
        """Octets of bodies collected here and not yet handed to the transport."""

    def attach(self, transport: asyncio.WriteTransport) -> None:
        """Write to `transport` from now on. To be called in `connection_made`."""
        self._transport = transport
        # A plain transport pauses above the high mark, a TLS one from the mark on: with 0 for ever.
        high = 0 if transport.get_extra_info("sslcontext") is None else 1
        transport.set_write_buffer_limits(high=high, low=0)
        below = transport.get_extra_info("socket")
        if below is not None and not high:
            self._descriptor = below.fileno()
        if self._frames:
            self.schedule()

    def send(self, body: bytes) -> None:
        """Collect one frame."""
        self.octets += len(body)
        self._frames.append(body)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)
        elif len(self._frames) >= _EARLY_FRAMES and self._descriptor >= 0 and not self._paused:
            self._flush_early()

    def send_parts(self, pieces: Sequence[Piece], on_written: Callable[[bool], None] | None = None) -> None:
        """Collect one frame whose body is the pieces one after the other; large views are not copied."""
        self.octets += sum(map(len, pieces))
        self._frames.append((pieces, on_written))
        self.schedule()

    def schedule(self) -> None:
        """Make a flush happen in the next loop turn, also when nothing has been collected yet."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def pause_writing(self) -> None:
        """The transport holds octets: wait."""
        self._paused = True

    def resume_writing(self) -> None:
        """The transport is empty: everything handed over is with the kernel."""
        self._paused = False
        self._written()
        self._flush()

    def close(self) -> list[bytes]:
        """The connection is over: answer every mark with False, return the bodies never handed over.

        Frames given as pieces are not among them; their `on_written(False)` reports them.
        """
        self._transport = None
        frames, self._frames, self.octets = self._frames, deque(), 0
        marks, self._marks = self._marks, []
        unsent: list[bytes] = []
        for frame in frames:
            if isinstance(frame, bytes):
                unsent.append(frame)
            elif frame[1] is not None:
                marks.append(frame[1])
        self._call(marks, False)
        return unsent

    def _flush_early(self) -> None:
        """Many frames wait: the peer may work on them while this loop turn goes on."""
        if self._transport is not None:
            self._write_batch(self._transport)

    def _flush(self) -> None:
        self._scheduled = False
        if self._transport is None:
            return
        if self._before_flush is not None:
            self._scheduled = True  # what it sends goes out with this flush
            self._before_flush()
            self._scheduled = False
        if self._frames and not self._paused:
            self._write_batch(self._transport)
            if self._frames and not self._paused:
                self.schedule()  # one batch a turn: what arrives is looked at in between

    def _write_batch(self, transport: asyncio.WriteTransport) -> None:
        frames, pack, size = self._frames, LENGTH.pack, 0
        small: list[Piece] = []
        out: list[Piece] = []
        append = small.append
        while frames and size < _BATCH:
            frame = frames.popleft()
            if isinstance(frame, bytes):
                append(pack(len(frame)))
                append(frame)
                size += len(frame)
                continue
            pieces, on_written = frame
            length = sum(map(len, pieces))
            append(pack(length))
            for piece in pieces:
                if len(piece) < _JOIN_BELOW:
                    append(piece)
                else:
                    out.append(b"".join(small))
                    small.clear()
                    out.append(piece)
            size += length
            if on_written is not None:
                self._marks.append(on_written)
                if isinstance(on_written, HandedMark):
                    on_written.handed = True
        self.octets -= size
        if small:
            out.append(b"".join(small))
        if len(out) == 1:
            self._write(transport, out[0])
        else:
            transport.writelines(out)
        if not self._paused:
            self._written()

    def _write(self, transport: asyncio.WriteTransport, octets: Piece) -> None:
        """Give octets to the kernel now, past a transport that has none: uvloop's would keep them until the end of
        this loop turn. What the kernel does not take goes the transport's way, errors as well."""
        if self._descriptor >= 0 and not transport.get_write_buffer_size() and not transport.is_closing():
            try:
                taken = os.write(self._descriptor, octets)
            except OSError:
                taken = 0
            if taken == len(octets):
                return
            octets = memoryview(octets)[taken:]
        transport.write(octets)

    def _written(self) -> None:
        if self._marks:
            marks, self._marks = self._marks, []
            self._call(marks, True)

    def _call(self, marks: list[Callable[[bool], None]], written: bool) -> None:
        """One mark that raises must not keep the others from being told."""
        for mark in marks:
            try:
                mark(written)
            except Exception as error:
                self._loop.call_exception_handler(
                    {"message": "on_written callback failed", "exception": error}
                )
