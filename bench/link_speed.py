"""How fast a mesh link is beside bare uvloop protocols between the same two processes.

Prints one JSON object: round trips (one in flight, and many), one-way records and bulk in 256 KiB chunks, for
bare protocols and for a link, and their ratios. Absolute figures differ from machine to machine; the ratios of one run
are what to compare. Run it with `python bench/link_speed.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

import uvloop
from sojourn.frames import record_frame, reply_frame
from sojourn.ids import NodeRun
from sojourn.mesh import Call, CallResult, MeshControl
from sojourn.workers.link import Link, LinkOptions
from sojourn.workers.links import Links
from sojourn.workers.stream import Piece

SECRET = b"bench bench bench bench bench 32"
CLIENT, SERVER = NodeRun(b"client", 1), NodeRun(b"server", 1)
CHUNK = 256 * 1024
PAYLOAD = bytes(128)
RECORD = record_frame(1, 0, 1, 1, 7, 1, 2, 0, b"aplayer", b"", PAYLOAD)
REPLY = reply_frame(0, 7, 1, 2, CLIENT.rid, CLIENT.generation, PAYLOAD)
ROUNDS, MANY, IN_FLIGHT, BULK_CHUNKS = 20_000, 200_000, 64, 2048
REPEATS = 3


class Bare(asyncio.BufferedProtocol):
    """Fixed-size messages without anything: an echo, or a sink that says when it has everything."""

    def __init__(self, size: int, on_message: Callable[[Bare], None], bulk_octets: int = 0) -> None:
        self._view = memoryview(bytearray(512 * 1024))
        self._size, self._on_message, self._bulk = size, on_message, bulk_octets
        self._held = 0
        self.transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        self._held += nbytes
        while self._held >= self._size:
            self._held -= self._size
            self._on_message(self)

    def write(self, octets: bytes) -> None:
        assert self.transport is not None
        self.transport.write(octets)


class Answering:
    """The serving member: replies to records, counts chunks and records, answers `done`."""

    def __init__(self) -> None:
        self.chunks = self.records = 0
        self.echo = True
        self.waiting: dict[str, int] = {}

    def on_up(self, link: Link) -> None: ...

    def on_down(self, link: Link, reason: str) -> None: ...

    def on_record(self, link: Link, body: bytes) -> None:
        link.give_back(1, len(body))
        if self.echo:
            link.send(REPLY)
        else:
            self.records += 1
            if self.records == MANY:
                self.records = 0
                link.send_control(CallResult(0))

    def on_reply(self, link: Link, body: bytes) -> None: ...

    def on_contract(self, link: Link, parts: Sequence[Piece], deadline_ms: int) -> None:
        self.chunks += 1
        if self.chunks == BULK_CHUNKS:
            self.chunks = 0
            link.send_control(CallResult(0))

    def on_control(self, link: Link, message: MeshControl) -> None:
        if isinstance(message, Call):
            self.echo = message.operation == "echo"
            link.send_control(CallResult(0))


class Asking(Answering):
    """The dialling member."""

    def __init__(self) -> None:
        super().__init__()
        self.reply: Callable[[], None] = lambda: None
        self.answered = asyncio.Event()

    def on_reply(self, link: Link, body: bytes) -> None:
        self.reply()

    def on_control(self, link: Link, message: MeshControl) -> None:
        self.answered.set()


async def serve() -> None:
    loop = asyncio.get_running_loop()

    def echo(bare: Bare) -> None:
        bare.write(RECORD)

    def count() -> Callable[[Bare], None]:
        seen = 0

        def counted(bare: Bare) -> None:
            nonlocal seen
            seen += 1
            if seen % BULK_CHUNKS == 0:
                bare.write(b"done")

        return counted

    echoes = await loop.create_server(lambda: Bare(len(RECORD), echo), "127.0.0.1", 0)
    sinks = await loop.create_server(lambda: Bare(CHUNK, count()), "127.0.0.1", 0)
    links = Links(SERVER, "bench", SECRET, Answering(), options=LinkOptions(credit_records=4096))
    await links.start()
    ports = [server.sockets[0].getsockname()[1] for server in (echoes, sinks)]
    print(json.dumps([*ports, links.endpoint]), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    await links.stop(1.0)
    echoes.close()
    sinks.close()


async def round_trips(
    send: Callable[[], None], on_message: Callable[[Callable[[], None]], None], count: int, in_flight: int
) -> float:
    """Seconds for `count` round trips with `in_flight` at a time."""
    done = asyncio.get_running_loop().create_future()
    sent = received = 0

    def arrived() -> None:
        nonlocal sent, received
        received += 1
        if received == count:
            done.set_result(None)
        elif sent < count:
            sent += 1
            send()

    on_message(arrived)
    start = time.perf_counter()
    for _ in range(in_flight):
        sent += 1
        send()
    await done
    return time.perf_counter() - start


async def bare_figures(echo_port: int, sink_port: int) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    arrived: list[Callable[[], None]] = [lambda: None]
    _, echo = await loop.create_connection(
        lambda: Bare(len(RECORD), lambda _: arrived[0]()), "127.0.0.1", echo_port
    )

    def set_arrived(action: Callable[[], None]) -> None:
        arrived[0] = action

    one = await round_trips(lambda: echo.write(RECORD), set_arrived, ROUNDS, 1)
    many = await round_trips(lambda: echo.write(RECORD), set_arrived, MANY, IN_FLIGHT)
    finished = asyncio.Event()
    _, sink = await loop.create_connection(lambda: Bare(4, lambda _: finished.set()), "127.0.0.1", sink_port)
    chunk = memoryview(os.urandom(CHUNK))
    start = time.perf_counter()
    for _ in range(BULK_CHUNKS):
        sink.write(chunk)  # type: ignore[arg-type]
    await finished.wait()
    bulk = time.perf_counter() - start
    for bare in (echo, sink):
        assert bare.transport is not None
        bare.transport.close()
    return {
        "round_trip_us": one / ROUNDS * 1e6,
        "round_trips_64_per_s": MANY / many,
        "bulk_gb_per_s": BULK_CHUNKS * CHUNK / bulk / 1e9,
    }


async def link_figures(endpoint: str) -> dict[str, float]:
    receiver = Asking()
    links = Links(CLIENT, "bench", SECRET, receiver, host=None)
    link = await links.ensure(SERVER, endpoint)

    def set_reply(action: Callable[[], None]) -> None:
        receiver.reply = action

    async def settled(action: Callable[[], None]) -> float:
        receiver.answered.clear()
        start = time.perf_counter()
        action()
        await receiver.answered.wait()
        return time.perf_counter() - start

    await settled(lambda: link.send_control(Call(0, "echo", b"")))
    one = await round_trips(lambda: link.send_record(RECORD), set_reply, ROUNDS, 1)
    many = await round_trips(lambda: link.send_record(RECORD), set_reply, MANY, IN_FLIGHT)
    await settled(lambda: link.send_control(Call(0, "count", b"")))
    chunk, head = memoryview(os.urandom(CHUNK)), bytes(100)

    def one_way() -> None:
        for _ in range(MANY):
            link.send_record(RECORD)

    def bulk() -> None:
        for _ in range(BULK_CHUNKS):
            link.send_contract([(head, chunk)])

    one_way_s = await settled(one_way)
    bulk_s = await settled(bulk)
    await links.stop(1.0)
    return {
        "round_trip_us": one / ROUNDS * 1e6,
        "round_trips_64_per_s": MANY / many,
        "one_way_per_s": MANY / one_way_s,
        "bulk_gb_per_s": BULK_CHUNKS * CHUNK / bulk_s / 1e9,
    }


async def measure() -> None:
    child = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs yet
        [sys.executable, __file__, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdin is not None
    try:
        echo_port, sink_port, endpoint = json.loads(child.stdout.readline())
        sides: dict[str, Callable[[], Awaitable[dict[str, float]]]] = {
            "bare": lambda: bare_figures(echo_port, sink_port),
            "link": lambda: link_figures(endpoint),
        }
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
        for _ in range(REPEATS):
            for name, side in sides.items():
                runs[name].append(await side())
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()
    figures = {
        name: {key: statistics.median(run[key] for run in results) for key in results[0]}
        for name, results in runs.items()
    }
    ratios = {key: figures["link"][key] / figures["bare"][key] for key in figures["bare"]}
    print(json.dumps({**figures, "link_to_bare": ratios}, indent=2))


if __name__ == "__main__":
    uvloop.run(serve() if sys.argv[1:] == ["serve"] else measure())
