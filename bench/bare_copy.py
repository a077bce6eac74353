"""Reference 3: copying bytes to another process over TCP into memory that is used again.

What a move of so much state costs at the least: no encoding, no checksum, no store.
"""

from __future__ import annotations

import asyncio
import struct
import time

from bench.processes import child
from bench.sockets import free_port, wait_for_tcp
from bench.timing import percentile

__all__ = ["measure_copies"]

_LENGTH = struct.Struct(">Q")


async def measure_copies(counts: dict[int, int]) -> dict[int, float]:
    """Median seconds for each size, from the first byte written to the other side's answer."""
    port = free_port()
    with child(serve_copies, port):
        await wait_for_tcp(port)
        loop = asyncio.get_running_loop()
        _, sender = await loop.create_connection(_Sender, "127.0.0.1", port)
        found = {size: await _time_copies(sender, size, count) for size, count in counts.items()}
        sender.close()
    return found


async def _time_copies(sender: _Sender, size: int, count: int) -> float:
    state = bytearray(b"s" * size)
    taken: list[float] = []
    for _ in range(count + 2):
        started = time.perf_counter()
        await sender.copy(state)
        taken.append(time.perf_counter() - started)
    return percentile(sorted(taken[2:]), 0.5)


async def serve_copies(port: int) -> None:
    """The other side: takes each copy and answers with one byte."""
    server = await asyncio.get_running_loop().create_server(_Receiver, "127.0.0.1", port)
    await server.serve_forever()


class _Sender(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._answer: asyncio.Future[None] | None = None

    def data_received(self, data: bytes) -> None:
        if self._answer is not None:
            self._answer.set_result(None)

    async def copy(self, state: bytearray) -> None:
        """Send one copy and wait for the answer."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(_LENGTH.pack(len(state)))
        self._transport.write(memoryview(state))
        await self._answer

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


class _Receiver(asyncio.BufferedProtocol):
    """Reads a length and then so many bytes straight into one buffer that is kept."""

    def __init__(self) -> None:
        self._head = bytearray(_LENGTH.size)
        self._state = bytearray()
        self._into = memoryview(self._head)
        self._at = 0
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._into[self._at :]

    def buffer_updated(self, nbytes: int) -> None:
        self._at += nbytes
        if self._at < len(self._into):
            return
        if self._size:
            self._expect(memoryview(self._head), 0)
            self._transport.write(b"\x01")
            return
        (size,) = _LENGTH.unpack(self._head)
        if len(self._state) < size:
            self._state = bytearray(size)
        self._expect(memoryview(self._state)[:size], size)

    def _expect(self, into: memoryview, size: int) -> None:
        self._into, self._at, self._size = into, 0, size
