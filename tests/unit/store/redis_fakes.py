"""A server that speaks just enough of Redis to misbehave on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

__all__ = ["FakeRedis", "fake_redis"]

Answer = Callable[[list[bytes]], bytes | None]


class FakeRedis:
    """Answers OK to everything but scripts and blob commands; those are counted and answered by `answer`.

    `answer` gets the parts of a command and returns raw bytes, or None to close the connection.
    """

    def __init__(self) -> None:
        self.answer: Answer = lambda command: b"*1\r\n:1\r\n"
        self.seen: list[list[bytes]] = []
        self.connections = 0
        self.port = 0
        self.writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"redis://:secret@127.0.0.1:{self.port}/0"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.add(writer)
        try:
            while command := await self._command(reader):
                if command[0] in (b"EVALSHA", b"GET", b"DEL"):
                    self.seen.append(command)
                    answer = self.answer(command)
                    if answer is None:
                        return
                    writer.write(answer)
                else:
                    writer.write(b"+OK\r\n")
        finally:
            self.writers.discard(writer)
            writer.close()

    async def _command(self, reader: asyncio.StreamReader) -> list[bytes]:
        head = await reader.readline()
        if not head:
            return []
        parts = []
        for _ in range(int(head[1:])):
            length = int((await reader.readline())[1:])
            parts.append((await reader.readexactly(length + 2))[:-2])
        return parts


@asynccontextmanager
async def fake_redis() -> AsyncIterator[FakeRedis]:
    """A fake on a free port."""
    fake = FakeRedis()
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        server.close()
        for writer in tuple(fake.writers):
            writer.close()
        await server.wait_closed()
