"""A TCP proxy before a Redis server, for store faults: it can be away, lose an answer, or keep one back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["StoreProxy", "before_redis"]

OWNER_WRITE = b"committed"
"""Stands in every CAS of a move, and in no other call of a node that moves nothing."""


class StoreProxy:
    """Passes bytes on, until an owner write comes by and it was told what to do with it.

    Attributes:
        refuse: break the connection instead of passing this many owner writes on.
        lose: pass this many on, and break the connection instead of their answer.
        go_away: at the next one break every connection and take none until `come_back`.
        away: it has gone away.
        met: owner writes seen.
        watch: what stands in the calls that are meant, if not in the owner writes of targets.
    """

    def __init__(self, port: int) -> None:
        self._redis_port = port
        self.port = 0
        self.refuse = 0
        self.lose = 0
        self._keep_next = False
        self.go_away = False
        self.away = False
        self.met = 0
        self.watch = OWNER_WRITE
        self._release = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._came, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        self.break_all()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def break_all(self) -> None:
        """Break every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    def keep_answer(self) -> None:
        """Pass the next owner write on and keep its answer back until `come_back`."""
        self._release.clear()
        self._keep_next = True

    def take_keep(self) -> bool:
        """Whether the answer to this owner write is to be kept back."""
        keep, self._keep_next = self._keep_next, False
        return keep

    def leave(self) -> None:
        """Break every connection and take none until `come_back`."""
        self.away = True
        self.break_all()

    def come_back(self) -> None:
        """End every fault."""
        self.away = self.go_away = self._keep_next = False
        self.watch = OWNER_WRITE
        self.refuse = self.lose = 0
        self._release.set()

    def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.away:
            writer.transport.abort()
            return
        connection = _Connection(self)
        redis_reader, redis_writer = await asyncio.open_connection("127.0.0.1", self._redis_port)
        self._writers |= {writer, redis_writer}
        both = [
            asyncio.ensure_future(connection.calls(reader, redis_writer)),
            asyncio.ensure_future(connection.answers(redis_reader, writer)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            for each in (writer, redis_writer):
                self._writers.discard(each)
                each.transport.abort()
                with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                    await each.wait_closed()

    async def released(self) -> None:
        """Wait for `come_back`."""
        await self._release.wait()


class _Connection:
    """One connection through the proxy."""

    def __init__(self, proxy: StoreProxy) -> None:
        self._proxy = proxy
        self._lose = False
        self._keep = False

    async def calls(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """From the node to the server."""
        proxy = self._proxy
        while data := await reader.read(2**20):
            if proxy.watch in data and b"EVALSHA" in data:
                proxy.met += 1
                if proxy.go_away:
                    proxy.away = True
                    proxy.break_all()
                    return
                if proxy.refuse:
                    proxy.refuse -= 1
                    return
                if proxy.lose:
                    proxy.lose -= 1
                    self._lose = True
                self._keep = proxy.take_keep()
            writer.write(data)
            await writer.drain()

    async def answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """From the server to the node."""
        while data := await reader.read(2**20):
            if self._lose:
                return
            if self._keep:
                await self._proxy.released()
                self._keep = False
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def before_redis(port: int) -> AsyncIterator[StoreProxy]:
    """A proxy before the server on this port of this machine."""
    proxy = StoreProxy(port)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
