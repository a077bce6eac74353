"""The least that a request/reply between processes needs: frames, batching, futures.

The references are built from this: `u32 length, u64 request, bytes` frames, parsed in place and written
once for each turn of the event loop. Request 0 is a message without an answer.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

__all__ = ["FramePeer", "Requester", "echo", "forward"]

_HEAD = struct.Struct(">IQ")
_LENGTH = struct.Struct(">I")


class FramePeer(asyncio.Protocol):
    """One end of a connection; `on_frame` gets each frame with its length prefix, ready to be passed on."""

    def __init__(self, on_frame: Callable[[bytes], None]) -> None:
        self.on_frame = on_frame
        self.closed = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.WriteTransport | None = None
        self._received = bytearray()
        self._outgoing: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        if self._outgoing:
            self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._received:
            self._received += data
            data = bytes(self._received)
            self._received.clear()
        at, end = 0, len(data)
        while end - at >= 4:
            stop = at + 4 + int.from_bytes(data[at : at + 4])
            if stop > end:
                break
            self.on_frame(data[at:stop])
            at = stop
        if at < end:
            self._received += data[at:]

    def send(self, frame: bytes) -> None:
        """Write a frame at the end of this turn of the loop."""
        self._outgoing.append(frame)
        if len(self._outgoing) == 1 and self._transport is not None:
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        assert self._transport is not None
        self._transport.write(b"".join(self._outgoing))
        self._outgoing.clear()


class Requester:
    """Requests over a peer: `await request(payload)`."""

    def __init__(self) -> None:
        self.peer = FramePeer(self._answered)
        self._loop = asyncio.get_running_loop()
        self._next = 0
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    def request(self, payload: bytes) -> asyncio.Future[bytes]:
        """Send a request; the future is its answer."""
        self._next += 1
        future = self._waiting[self._next] = self._loop.create_future()
        self.peer.send(_HEAD.pack(8 + len(payload), self._next) + payload)
        return future

    def send(self, payload: bytes) -> None:
        """Send a message without an answer."""
        self.peer.send(_HEAD.pack(8 + len(payload), 0) + payload)

    def _answered(self, frame: bytes) -> None:
        _, number = _HEAD.unpack_from(frame)
        self._waiting.pop(number).set_result(frame[12:])


def echo() -> FramePeer:
    """A peer that answers every request with its own payload."""

    def answer(frame: bytes) -> None:
        if frame[4:12] != bytes(8):
            peer.send(frame)

    peer = FramePeer(answer)
    return peer


def forward(one: FramePeer, other: FramePeer) -> None:
    """Pass on everything between two peers, frame by frame."""
    one.on_frame = other.send
    other.on_frame = one.send
