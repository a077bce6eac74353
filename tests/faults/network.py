"""The network between the members of a cluster: a TCP proxy before each node, and faults between pairs of them.

A node advertises its proxy, so that every connection to it passes one. The proxy reads who dials from the
Hello and cuts the octets into frames (docs/reference/mesh.md); faults are set for a *way*, from one RID to
another, whichever of the two dialled.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
from sojourn.wire import RelocationPrepare, decode_command, encode_command

from tests.redis_server import free_port

__all__ = [
    "CHUNK",
    "CUTOVER",
    "PREPARE",
    "READY",
    "RELAY",
    "ROUTE",
    "Network",
    "Trap",
    "Way",
    "contradicted",
    "corrupted",
    "network",
]

READY, RELAY, CUTOVER, PREPARE, ROUTE, CHUNK = 30, 31, 34, 40, 44, 52
"""Commands of a move (wire.md)."""
_PREAMBLE_OCTETS = 8
_HANDSHAKE_MESSAGES = 2
_CONTRACT = 1
LIMIT_S = 20.0


def corrupted(frame: bytes) -> bytes:
    """A chunk with another last octet."""
    return frame[:-1] + bytes((frame[-1] ^ 1,)) if command_of(frame[4:]) == CHUNK else frame


def contradicted(frame: bytes) -> bytes:
    """A Restore request, and behind it the same one with another checksum."""
    if command_of(frame[4:]) != PREPARE:
        return frame
    command = decode_command(frame[10:])
    assert isinstance(command, RelocationPrepare)
    checksum = command.payload_checksum_crc32c ^ 1
    (other,) = encode_command(msgspec.structs.replace(command, payload_checksum_crc32c=checksum))
    body = frame[4:10] + other
    return frame + len(body).to_bytes(4, "big") + body


def command_of(body: bytes) -> int:
    """The command of a frame, 0 for what is no contract frame."""
    if body[0] != _CONTRACT:
        return 0
    return body[(6 if body[5] == 1 else 10) + 3]


@dataclass(eq=False)
class Trap:
    """Stops a way at one frame of this command, after `skip` others; what is behind it waits too.

    Attributes:
        octets: so many octets of the frame pass before it stops.
        reached: it stops there.
    """

    command: int
    skip: int = 0
    octets: int = 0
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def sprung(self) -> None:
        """Wait until the way stops here."""
        async with asyncio.timeout(LIMIT_S):
            await self.reached.wait()

    def release(self) -> None:
        """Let the frame go on."""
        self.released.set()


class Way:
    """What may happen to frames from one member to another.

    Attributes:
        delay_s: how long each frame takes.
        change: what becomes of a frame with its length; the first frame that is changed ends it.
    """

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.change: Callable[[bytes], bytes] | None = None
        self._traps: list[Trap] = []
        self._holding: list[Trap] = []

    def trap(self, command: int, skip: int = 0, octets: int = 0) -> Trap:
        """Stop at the next frame of this command."""
        trap = Trap(command, skip, octets)
        self._traps.append(trap)
        return trap

    async def pass_on(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        """Write one frame, when and as it may go."""
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        trap = self._trap_for(command_of(frame[4:]))
        if trap is not None:
            writer.write(frame[: trap.octets])
            frame = frame[trap.octets :]
            self._holding.append(trap)
            trap.reached.set()
            await trap.released.wait()
        if self.change is not None:
            changed = self.change(frame)
            if changed != frame:
                self.change = None
            frame = changed
        writer.write(frame)

    def _trap_for(self, command: int) -> Trap | None:
        for trap in self._traps:
            if command and trap.command == command:
                if trap.skip == 0:
                    self._traps.remove(trap)
                    return trap
                trap.skip -= 1
        return None

    def mend(self) -> None:
        """No fault any more; what stops at a trap goes on."""
        self.delay_s, self.change = 0.0, None
        self._traps.clear()
        for trap in self._holding:
            trap.release()
        self._holding.clear()


class Network:
    """See the module text."""

    def __init__(self) -> None:
        self._ways: dict[tuple[str, str], Way] = {}
        self._parted: set[frozenset[str]] = set()
        self._servers: list[asyncio.Server] = []
        self._tasks: dict[asyncio.Task[None], frozenset[str]] = {}

    async def before(self, rid: str) -> tuple[int, str]:
        """A port for a node to listen on, and what it advertises."""
        port = free_port()

        def came(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._serve(rid, port, reader, writer))
            self._tasks[task] = frozenset()
            task.add_done_callback(lambda task: self._tasks.pop(task, None))

        server = await asyncio.start_server(came, "127.0.0.1", 0)
        self._servers.append(server)
        return port, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    def way(self, source: str, target: str) -> Way:
        """From one member to another."""
        return self._ways.setdefault((source, target), Way())

    def cut(self, one: str, other: str) -> None:
        """Break the connection between two members; they may make another."""
        for task, pair in self._tasks.items():
            if pair == {one, other}:
                task.cancel()

    def part(self, one: str, other: str) -> None:
        """Break it, and let no other through until `mend`."""
        self._parted.add(frozenset((one, other)))
        self.cut(one, other)

    def mend(self) -> None:
        """End every fault."""
        self._parted.clear()
        for way in self._ways.values():
            way.mend()

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self._servers:
            await server.wait_closed()

    async def _serve(
        self, rid: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writers = [writer]
        pumps: list[asyncio.Task[None]] = []
        try:
            hello = await reader.readexactly(_PREAMBLE_OCTETS)
            hello += await _message(reader)
            dialler = _dialler(hello)
            pair = frozenset((dialler, rid))
            if pair in self._parted:
                return
            task = asyncio.current_task()
            assert task is not None
            self._tasks[task] = pair
            to_node, from_node = await asyncio.open_connection("127.0.0.1", port)
            writers.append(from_node)
            from_node.write(hello)
            pumps = [
                asyncio.ensure_future(
                    _pump(reader, from_node, self.way(dialler, rid), _HANDSHAKE_MESSAGES - 1)
                ),
                asyncio.ensure_future(_answers(to_node, writer, self.way(rid, dialler))),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for each in writers:
                each.close()  # what was passed on still arrives
            for each in writers:
                with contextlib.suppress(OSError, asyncio.CancelledError):
                    await each.wait_closed()


async def _message(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(2)
    return size + await reader.readexactly(int.from_bytes(size, "big"))


def _dialler(hello: bytes) -> str:
    """The RID in a Hello behind its preamble: size, type, nonce, cluster name, RID."""
    at = _PREAMBLE_OCTETS + 3 + 32
    at += 1 + hello[at]
    return hello[at + 1 : at + 1 + hello[at]].decode()


async def _answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError):
        writer.write(await reader.readexactly(_PREAMBLE_OCTETS))
    await _pump(reader, writer, way, _HANDSHAKE_MESSAGES)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way, messages: int) -> None:
    """One direction: the rest of the handshake, then frames."""
    try:
        for _ in range(messages):
            writer.write(await _message(reader))
        while True:
            length = await reader.readexactly(4)
            body = await reader.readexactly(int.from_bytes(length, "big"))
            await way.pass_on(length + body, writer)
            await writer.drain()
    except asyncio.IncompleteReadError as end:
        writer.write(end.partial)
    except OSError:
        pass


@asynccontextmanager
async def network() -> AsyncIterator[Network]:
    """A network without faults."""
    it = Network()
    try:
        yield it
    finally:
        await it.stop()
