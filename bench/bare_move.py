"""Reference 4: as many bytes as a move has, passed on by processes that have nothing to do with the cluster.

The same way a state takes: source - unix - passing - TCP - passing - unix - new memory in a fourth process, at the
rate at which the cluster moved it, without encoding, checksums or copies that are kept. What requests to a
cluster that moves nothing take meanwhile is the machine's part.
"""

from __future__ import annotations

import asyncio
import io
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from bench.processes import child
from bench.sockets import free_port, wait_for_path, wait_for_tcp

__all__ = ["bare_mover"]

Address = str | int
"""Path of a Unix socket, or a TCP port."""

_CHUNK = 256 * 1024
_COMMAND = struct.Struct(">Qd")
_SIZE = struct.Struct(">Q")
_DONE = b"\x01"


@asynccontextmanager
async def bare_mover() -> AsyncIterator[Callable[[int, float], Awaitable[None]]]:
    """Four processes; `move(octets, octets_per_second)` returns when the last one has everything."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        source, entry, end, port = (
            str(folder / "source"),
            str(folder / "entry"),
            str(folder / "end"),
            free_port(),
        )
        stack.enter_context(child(serve_end, end))
        await wait_for_path(end)
        stack.enter_context(child(pass_on, port, end))
        await wait_for_tcp(port)
        stack.enter_context(child(pass_on, entry, port))
        await wait_for_path(entry)
        stack.enter_context(child(serve_source, source, entry))
        await wait_for_path(source)
        reader, writer = await asyncio.open_unix_connection(source)

        async def move(octets: int, rate: float) -> None:
            writer.write(_COMMAND.pack(octets, rate))
            await reader.readexactly(len(_DONE))

        try:
            yield move
        finally:
            writer.close()


async def serve_source(path: str, entry: str) -> None:
    """The worker that has the state."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, out = await asyncio.open_unix_connection(entry)
        chunk = memoryview(bytes(_CHUNK))
        while command := await reader.read(_COMMAND.size):
            octets, rate = _COMMAND.unpack(command)
            started, sent = time.perf_counter(), 0
            out.write(_SIZE.pack(octets))
            while sent < octets:
                out.write(chunk[: octets - sent])
                sent += _CHUNK
                await out.drain()
                await asyncio.sleep(max(0.0, started + sent / rate - time.perf_counter()))
            await answers.readexactly(len(_DONE))
            writer.write(_DONE)

    server = await asyncio.start_unix_server(serve, path)
    await server.serve_forever()


async def serve_end(path: str) -> None:
    """The worker that the state comes to."""
    server = await asyncio.get_running_loop().create_unix_server(_End, path)
    await server.serve_forever()


async def pass_on(listen: Address, to: Address) -> None:
    """A supervisor: what comes in at `listen` goes out to `to`, and the answers back."""
    loop = asyncio.get_running_loop()
    making: set[asyncio.Task[object]] = set()

    def accept() -> _Passing:
        inward, outward = _Passing(), _Passing()
        inward.other, outward.other = outward, inward
        made = (
            loop.create_unix_connection(lambda: outward, to)
            if isinstance(to, str)
            else loop.create_connection(lambda: outward, "127.0.0.1", to)
        )
        making.add(loop.create_task(made))
        return inward

    if isinstance(listen, str):
        server = await loop.create_unix_server(accept, listen)
    else:
        server = await loop.create_server(accept, "127.0.0.1", listen)
    await server.serve_forever()


class _Passing(asyncio.BufferedProtocol):
    """One side of a process that only passes on: reads no faster than the other side takes."""

    other: _Passing

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(_CHUNK))
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        for octets in self._early:
            self.write(octets)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other._transport is not None:
            self.other._transport.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.other.write(bytes(self._buffer[:nbytes]))

    def write(self, octets: bytes) -> None:
        if self._transport is None:
            self._early.append(octets)
        else:
            self._transport.write(octets)

    def pause_writing(self) -> None:
        if self.other._transport is not None:
            self.other._transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other._transport is not None:
            self.other._transport.resume_reading()


class _End(asyncio.BufferedProtocol):
    """Lays a length and so many bytes down in new memory, and says so."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(_CHUNK))
        self._left = 0
        self._state = io.BytesIO()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        part = self._buffer[:nbytes]
        if not self._left:
            (self._left,) = _SIZE.unpack_from(part)
            part = part[_SIZE.size :]
            self._state = io.BytesIO(bytes(self._left))
        self._state.write(part)
        self._left -= len(part)
        if not self._left:
            self._transport.write(_DONE)
