"""A peer in another language, written from the documentation (CT-11): the wire format, and whole moves both ways."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import subprocess
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sojourn.options import Options
from sojourn.spots.references import SpotRef
from sojourn.workers.client import Client
from sojourn.workers.program import ProgramReference, parse_reference
from sojourn.workers.supervisor import Supervisor

from tests.foreign.counting import VERSION, Counter, app
from tests.foreign.javascript import FOLDER, ForeignPeer, find_node, running_peer

GOLDEN = Path(__file__).parents[1] / "golden" / "wire"
PROGRAM: ProgramReference = parse_reference("tests.foreign.counting:app")

pytestmark = pytest.mark.heavy


def test_the_peers_codec_passes_the_golden_fixtures() -> None:
    """Values, bytes, offsets, and for malformed input word, offset and path."""
    done = subprocess.run(
        [find_node(), str(FOLDER / "check_fixtures.mjs"), str(GOLDEN)],
        capture_output=True,
        text=True,
        timeout=40,
    )
    assert done.returncode == 0, done.stderr
    checked = json.loads(done.stdout)
    assert checked["commands"] == len(json.loads((GOLDEN / "commands.json").read_text()))
    assert min(checked.values()) > 0
    assert len(checked) == 9


@dataclass
class Mixed:
    """Two Python nodes, `n0` and `n1`, the foreign peer `js1`, and a client."""

    nodes: list[Supervisor]
    peer: ForeignPeer
    client: Client

    async def status(self, node: int) -> dict[str, Any]:
        """What a node says of itself, asked over the link that the client's messages take too."""
        answer: dict[str, Any] = await self.client.calls.call(self.nodes[node].run, "status", {}, 10.0)
        return answer


@asynccontextmanager
async def mixed_cluster(redis_url: str, chunk_octets: int) -> AsyncIterator[Mixed]:
    cluster = f"foreign-{secrets.token_hex(4)}"
    options = Options(
        cluster=cluster,
        store_url=redis_url,
        secret="s" * 32,
        relocation_chunk_bytes=chunk_octets,
        relocation_cutover_wait_ms=20_000,
    )
    address = urllib.parse.urlsplit(redis_url)
    config = {
        "rid": "js1",
        "cluster": cluster,
        "secret": "s" * 32,
        "redis": {"host": address.hostname, "port": address.port},
        "version": VERSION,
        "chunkLimit": chunk_octets,
    }
    nodes = [Supervisor(_settings(f"n{number}", options)) for number in range(2)]
    try:
        await asyncio.gather(*(node.start_node() for node in nodes))
        async with running_peer(config) as peer, Client(app, options) as client:
            yield Mixed(nodes, peer, client)
    finally:
        await asyncio.gather(*(node.stop(5.0) for node in nodes))


def _settings(rid: str, options: Options) -> Any:
    return SimpleNamespace(
        rid=rid,
        options=options,
        host="127.0.0.1",
        port=0,
        advertise="",
        workers=1,
        program=PROGRAM,
        weight=100,
        wave="",
    )


class Traffic:
    """Requests without end from several tasks; every answer is the total right after that addition."""

    def __init__(self, counter: SpotRef[Counter], tasks: int) -> None:
        self._counter = counter
        self._numbers = itertools.count()
        self.totals: list[int] = []
        self.sent: list[list[int]] = [[] for _ in range(tasks)]
        self._ended = False
        self._grown = asyncio.Event()
        self._tasks = [asyncio.ensure_future(self._pump(mine)) for mine in self.sent]

    async def _pump(self, mine: list[int]) -> None:
        while not self._ended:
            mine.append(number := next(self._numbers))
            self.totals.append(await self._counter.request(Counter.add, 1, number))
            self._grown.set()

    async def more(self, answers: int) -> None:
        """Return when that many more requests were answered."""
        wanted = len(self.totals) + answers
        while len(self.totals) < wanted:
            self._grown.clear()
            waiting = asyncio.ensure_future(self._grown.wait())
            await asyncio.wait([waiting, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            for task in self._tasks:
                if task.done():
                    task.result()

    async def end(self) -> None:
        """Let every task get its last answer."""
        self._ended = True
        await asyncio.gather(*self._tasks)


@pytest.mark.parametrize(("chunk_octets", "ballast"), [(256 * 1024, 0), (4 * 1024, 300_000)])
async def test_ct_11_requests_go_on_while_an_object_moves_between_languages(
    redis_url: str, chunk_octets: int, ballast: int
) -> None:
    """Python to JavaScript to Python and once more, in one chunk and in many; every total is right (CT-06)."""
    async with mixed_cluster(redis_url, chunk_octets) as mixed:
        counter = mixed.client.spot(Counter, "c/é 1")
        await counter.request(Counter.load, ballast)
        traffic = Traffic(counter, tasks=4)
        for target in ("js1", "n1", "js1", "n0", "js1", "n1"):
            await traffic.more(40)
            await moved(counter, target)
            assert (await mixed.client.locate(counter)).node == target
        await traffic.more(40)
        await traffic.end()
        assert sorted(traffic.totals) == list(range(1, len(traffic.totals) + 1))
        history = await counter.request(Counter.history)
        assert {where for _, where in history} == {"python", "javascript"}
        numbers = [number for number, _ in history]
        assert sorted(numbers) == list(range(len(traffic.totals)))
        for mine in traffic.sent:
            assert [number for number in numbers if number in set(mine)] == mine
        row = await mixed.nodes[0].directory.read(counter.key)
        assert row is not None
        assert row.row.owner_generation == 7
        await mixed.peer.stop()
        assert [event["chunks"] > 1 for event in mixed.peer.told("assembled")] == [ballast > 0] * 3
        assert [event["chunks"] > 1 for event in mixed.peer.told("captured")] == [ballast > 0] * 3
        assert not mixed.peer.told("violation")
        assert not mixed.peer.told("cutover_mismatch")
        assert not mixed.peer.told("cutover_timeout")


class Turnstile:
    """Where a handler in a worker waits: it connects and goes on when its connection is closed."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Turnstile:
        self._server = await asyncio.start_server(self._enter, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.entered.set()

    def let_go(self) -> None:
        """The handler goes on."""
        assert self._writer is not None
        self._writer.close()

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()


async def moved(counter: SpotRef[Counter], to: str) -> None:
    """Move the object there; says why when it does not."""
    result = await counter.relocate(to)
    assert result.outcome == "moved", result


def adds(counter: SpotRef[Counter], numbers: range) -> list[asyncio.Task[int]]:
    """Requests that are on their way, in this order, when the client's next message is."""
    return [asyncio.ensure_future(counter.request(Counter.add, 1, number)) for number in numbers]


async def test_ct_11_saved_work_then_relay_then_follow_keep_their_order(redis_url: str) -> None:
    """What waited in the mailbox moves in the payload, what came meanwhile as relay, both ways (CT-22)."""
    async with mixed_cluster(redis_url, 256 * 1024) as mixed, Turnstile() as turnstile:
        client, peer = mixed.client, mixed.peer
        counter = client.spot(Counter, "ordered")
        assert await counter.request(Counter.add, 1, 0) == 1
        here = int((await client.locate(counter)).node[1:])
        # to JavaScript: 1 to 5 wait behind a turn that does not end, 6 to 10 come while it is restored
        blocked = asyncio.ensure_future(counter.request(Counter.wait_for, turnstile.port))
        await turnstile.entered.wait()
        saved = adds(counter, range(1, 6))
        await mixed.status(here)
        await peer.close_gate("ready")
        moving = asyncio.ensure_future(counter.relocate("js1"))
        while not (await mixed.status(here))["handoffs"]:
            pass
        turnstile.let_go()
        assert await blocked == 1
        await peer.wait("assembled")
        relayed = adds(counter, range(6, 11))
        await mixed.status(here)
        await peer.open_gate("ready")
        opened = await peer.wait("opened")
        assert (opened["saved"], opened["relayed"]) == (5, 5)
        assert (await moving).outcome == "moved"
        assert await asyncio.gather(*saved, *relayed) == list(range(2, 12))
        assert await counter.request(Counter.add, 1, 11) == 12
        # and back: 12 to 16 wait in the peer's mailbox, 17 to 21 come while it captures
        await peer.close_gate("turns")
        await peer.close_gate("chunks")
        saved = adds(counter, range(12, 17))
        await peer.until_waiting(5)
        moving = asyncio.ensure_future(counter.relocate("n1"))
        assert (await peer.wait("captured"))["saved"] == 5
        relayed = adds(counter, range(17, 22))
        await peer.until_waiting(5)
        await peer.open_gate("chunks")
        assert (await peer.wait("cutover"))["relayed"] == 5
        assert (await moving).outcome == "moved"
        assert await asyncio.gather(*saved, *relayed) == list(range(13, 23))
        await counter.send(Counter.note, 1, 22)
        history = await counter.request(Counter.history)
        assert [number for number, _ in history] == list(range(23))
        assert [where for _, where in history] == ["python", *["javascript"] * 11, *["python"] * 11]
        await peer.stop()


async def test_a_failed_restore_gives_the_object_back_in_either_language(redis_url: str) -> None:
    """Command 53: the state cannot be read (to JavaScript), the checksum differs (to Python, CT-10)."""
    async with mixed_cluster(redis_url, 256 * 1024) as mixed:
        counter = mixed.client.spot(Counter, "given back")
        assert await counter.request(Counter.add, 1, 0) == 1
        home = (await mixed.client.locate(counter)).node
        await counter.request(Counter.garble, True)
        failed = await counter.relocate("js1")
        assert failed.outcome == "failed"
        assert await counter.request(Counter.add, 1, 1) == 2
        assert (await mixed.client.locate(counter)).node == home
        await counter.request(Counter.garble, False)
        await moved(counter, "js1")
        assert await counter.request(Counter.add, 1, 2) == 3
        await mixed.peer.order(do="spoil", on=True)
        failed = await counter.relocate("n1")
        assert failed.outcome == "failed"
        assert "35" in failed.reason
        assert (await mixed.client.locate(counter)).node == "js1"
        assert await counter.request(Counter.add, 1, 3) == 4
        await mixed.peer.order(do="spoil", on=False)
        await moved(counter, "n1")
        history = await counter.request(Counter.history)
        assert [number for number, _ in history] == [0, 1, 2, 3]
        await mixed.peer.stop()


async def test_a_connection_cut_before_relay_ready(redis_url: str) -> None:
    """Either source repeats its Restore request on the next connection; where that is refused, the fence write
    comes first (B8.6, B6.7), and the object moves at the next attempt."""
    async with mixed_cluster(redis_url, 4096) as mixed:
        counter = mixed.client.spot(Counter, "cut early")
        await counter.request(Counter.load, 50_000)
        home = (await mixed.client.locate(counter)).node
        await mixed.peer.close_gate("ready")
        moving = asyncio.ensure_future(counter.relocate("js1"))
        await mixed.peer.wait("assembled")
        held = adds(counter, range(3))
        await mixed.status(int(home[1:]))
        await mixed.peer.cut(home)
        await mixed.peer.open_gate("ready")
        assert (await mixed.peer.wait("opened"))["relayed"] == 3
        assert (await moving).outcome == "moved"
        assert await asyncio.gather(*held) == [1, 2, 3]
        await mixed.peer.order(do="spoil", on=True)
        await mixed.peer.close_gate("chunks")
        moving = asyncio.ensure_future(counter.relocate("n1"))
        await mixed.peer.wait("captured")
        await mixed.peer.cut("n1")
        await mixed.peer.open_gate("chunks")
        assert (await moving).outcome == "failed"
        row = await mixed.nodes[0].directory.read(counter.key)
        assert row is not None
        assert row.row.relocation is not None
        assert (row.row.owner.rid, row.row.relocation.outcome) == (b"js1", "fenced")
        assert await counter.request(Counter.add, 1, 3) == 4
        await mixed.peer.order(do="spoil", on=False)
        await mixed.peer.close_gate("chunks")
        moving = asyncio.ensure_future(counter.relocate("n1"))
        await mixed.peer.wait("captured")
        await mixed.peer.cut("n1")
        await mixed.peer.open_gate("chunks")
        assert (await moving).outcome == "moved"
        assert await counter.request(Counter.add, 1, 4) == 5
        await mixed.peer.stop()


async def test_a_connection_cut_between_relay_and_cutover(redis_url: str) -> None:
    """The whole batch and the cutover go again on the next connection, and replace what came before (CT-13)."""
    async with mixed_cluster(redis_url, 256 * 1024) as mixed:
        counter = mixed.client.spot(Counter, "cut late")
        assert await counter.request(Counter.add, 1, 0) == 1
        await moved(counter, "js1")
        assert await counter.request(Counter.add, 1, 1) == 2
        await mixed.peer.close_gate("chunks")
        await mixed.peer.close_gate("cutover")
        moving = asyncio.ensure_future(counter.relocate("n1"))
        await mixed.peer.wait("captured")
        relayed = adds(counter, range(2, 7))
        await mixed.peer.until_waiting(5)
        await mixed.peer.open_gate("chunks")
        assert (await mixed.peer.wait("relayed"))["records"] == 5
        behind = adds(counter, range(7, 9))
        await mixed.peer.until_waiting(2)
        await mixed.peer.cut("n1")
        await mixed.peer.open_gate("cutover")
        assert (await moving).outcome == "moved"
        assert len(mixed.peer.told("resent")) == 1
        assert await asyncio.gather(*relayed, *behind) == list(range(3, 10))
        history = await counter.request(Counter.history)
        assert [number for number, _ in history] == list(range(9))
        await mixed.peer.stop()


async def test_a_marker_right_behind_the_restore_request(redis_url: str) -> None:
    """A target answers it with an owner generation that is committed, so when it has read the row (B9.4)."""
    async with mixed_cluster(redis_url, 256 * 1024) as mixed:
        counter = mixed.client.spot(Counter, "marked")
        assert await counter.request(Counter.add, 1, 0) == 1
        await moved(counter, "js1")
        await mixed.peer.order(do="mark", on=True)
        moving = asyncio.ensure_future(moved(counter, "n1"))
        answer = await mixed.peer.wait("marker_answered")
        assert (answer["name"], answer["owner_generation"]) == ("MarkerTaken", 2)
        await moving
        await mixed.peer.stop()
        assert not [event for event in mixed.peer.told("link_down") if event["reason"].startswith("protocol")]
