"""Requests that finish on the target of a move: their ends survive what breaks behind them (R5.2, B7.1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sojourn.errors import DataLost, InternalFailure, Unavailable
from sojourn.handoff.replies import ReplyTelling
from sojourn.ids import NodeRun
from sojourn.location import StoreUnavailable
from sojourn.workers import member, replies
from sojourn.workers.client import Client
from sojourn.workers.reply_frames import reply_reference
from sojourn.workers.supervisor import Supervisor

from tests.runtime.cluster import QUICK_LEASE, Cluster, cluster, gate, outcome
from tests.runtime.fleet import Device


@pytest.fixture(autouse=True)
def quick_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "REFRESH_S", 0.2)


@dataclass
class Scene:
    """A request of the client that moved from n0 to n1 with its object and runs there now, at a gate."""

    it: Cluster
    request: asyncio.Task[Any]
    exit: Any
    source: Supervisor
    target: Supervisor
    device: Any
    behind: asyncio.Task[Any] | None = None
    """Another request that moved and waits behind it."""

    @property
    def reference(self) -> str:
        """Where its reply is stored."""
        (request,) = self.it.client.senders.outstanding.values()
        return reply_reference(self.it.client.run.generation, request.operation_high, request.operation_low)

    def part(self, run: NodeRun | None = None) -> None:
        """Cut the connection to the client, who does not dial again before `meet`."""
        client = self.it.client
        client.links.unwant(self.target.run)
        link = self.target.links.get(run or client.run)
        assert link is not None
        link.abort("cut by the test")

    def meet(self) -> None:
        """The client dials again."""
        self.it.client.links.want(self.target.run, self.target.endpoint)

    async def tick(self) -> None:
        """Let both nodes do something."""
        await self.source.call("status", {})
        await asyncio.sleep(0)

    async def settled(self) -> None:
        """The target keeps no reply any more."""
        async with asyncio.timeout(20):
            while len(self.target.replies):
                await self.tick()

    async def kept(self, number: int) -> None:
        """The target keeps so many replies."""
        async with asyncio.timeout(20):
            while len(self.target.replies) < number:
                await self.tick()

    async def gone(self, reference: str) -> None:
        """The blob is not there any more."""
        async with asyncio.timeout(20):
            while await self.source.blobs.read(reference) is not None:
                await self.tick()

    async def stored(self) -> None:
        """The target has stored the reply."""
        async with asyncio.timeout(20):
            while not self._is_stored():
                await self.tick()

    def _is_stored(self) -> bool:
        states = [kept.machine.state for kept in self.target.replies._kept.values()]
        return any(isinstance(state, ReplyTelling) and state.stored for state in states)


@asynccontextmanager
async def moved_request(behind: Any = None, **settings: Any) -> AsyncIterator[Scene]:
    """See `Scene`."""
    async with cluster(nodes=2, workers=1, **settings) as it, gate() as entrance, gate() as way_out:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        await device.request(Device.add, 5)
        first = asyncio.ensure_future(device.request(Device.held, entrance.port))
        await entrance.arrived()
        request = asyncio.ensure_future(device.request(Device.held, way_out.port))
        later = None if behind is None else asyncio.ensure_future(device.request(behind, 30))
        moving = asyncio.ensure_future(device.relocate("n1"))
        await it.client.spot(Device, "other").request(Device.add, 1)
        entrance.open()
        assert await first == 5
        assert (await moving).outcome == "moved"
        await way_out.arrived()
        assert await it.where(device) == "n1"
        yield Scene(it, request, way_out, it.nodes["n0"], it.nodes["n1"], device, later)


@pytest.fixture(params=["memory", "sqlite", "redis"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str) -> str:
    if request.param == "redis":
        return redis_url
    return "memory://replies" if request.param == "memory" else f"sqlite:{tmp_path / 'store.db'}"


def cut_behind_the_reply(node: Supervisor) -> None:
    """The next reply is handed to its connection, which breaks before an octet of it has left."""
    original = node.send_reply

    def send_and_cut(run: NodeRun, body: bytes) -> bool:
        node.send_reply = original  # type: ignore[method-assign]
        sent = original(run, body)
        link = node.links.get(run)
        assert link is not None
        link.abort("cut by the test")
        return sent

    node.send_reply = send_and_cut  # type: ignore[method-assign]


async def test_a_link_cut_behind_the_handler_costs_no_reply(store_url: str) -> None:
    async with moved_request(store_url=store_url) as scene:
        reference = scene.reference
        cut_behind_the_reply(scene.target)
        scene.exit.open()
        assert await scene.request == 5
        await scene.settled()
        await scene.gone(reference)
        assert await scene.device.request(Device.add, 1) == 6
        assert scene.it.client.senders.outstanding == {}


async def test_an_error_keeps_its_text_over_a_cut() -> None:
    async with moved_request(Device.complain) as scene:
        scene.part()
        scene.exit.open()
        await scene.kept(2)
        scene.meet()
        assert await scene.request == 5
        assert scene.behind is not None
        error = await outcome(scene.behind)
        assert isinstance(error, InternalFailure)
        assert "x" * 30 in str(error)
        assert "ValueError" in str(error.remote_traceback)
        await scene.settled()


async def test_without_a_cut_the_requester_has_one_end_and_the_blob_goes() -> None:
    async with moved_request() as scene:
        reference = scene.reference
        scene.exit.open()
        assert await scene.request == 5
        await scene.settled()
        await scene.gone(reference)
        assert scene.target.replies.octets == 0


async def test_a_target_that_ends_leaves_the_reply_in_the_store(store_url: str) -> None:
    async with moved_request(store_url=store_url, **QUICK_LEASE) as scene:
        reference = scene.reference
        scene.part()
        scene.exit.open()
        await scene.stored()
        assert not scene.request.done()
        await scene.it.crash("n1")
        assert await scene.request == 5
        found = [member.counters.get("replies_from_store", 0) for member in (scene.it.client, scene.source)]
        assert sum(found) >= 1  # whoever looked first: the requester's node, or the source of the move
        await scene.gone(reference)


async def test_a_target_that_ends_before_the_handler_leaves_the_request_in_doubt() -> None:
    async with moved_request(**QUICK_LEASE) as scene:
        await scene.it.crash("n1")
        error = await outcome(scene.request)
        assert isinstance(error, Unavailable)
        assert error.applied == "unknown"


async def test_a_worker_killed_while_the_requester_is_away_is_told_later() -> None:
    async with moved_request() as scene:
        scene.part()
        await scene.it.kill_worker("n1", scene.device)
        await scene.it.journal.wait("worker_lost")
        assert not scene.request.done()
        scene.meet()
        error = await outcome(scene.request)
        assert isinstance(error, Unavailable)
        assert "worker process" in error.message
        await scene.settled()


async def test_followed_requests_that_wait_for_a_killed_worker_are_told_later() -> None:
    async with moved_request(max_queued_jobs=16) as scene:
        asked = [asyncio.ensure_future(outcome(scene.device.request(Device.add, 1))) for _ in range(20)]
        async with asyncio.timeout(20):
            while not scene.target.lanes[0].waiting:
                await scene.tick()
        scene.part()
        await scene.it.kill_worker("n1", scene.device)
        await scene.it.journal.wait("worker_lost")
        assert not any(request.done() for request in asked)
        scene.meet()
        ends = await asyncio.gather(*asked)
        assert isinstance(ends[0], Unavailable), "the worker had it"
        assert isinstance(ends[-1], DataLost), "it never reached the worker"
        assert isinstance(await outcome(scene.request), Unavailable)
        await scene.settled()


async def test_a_requester_that_is_gone_ends_the_blob() -> None:
    async with cluster(nodes=2, workers=1) as it, gate() as entrance, gate() as way_out:
        async with Client(it.client._app, it.options, "passer-by") as passer:
            device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
            first = asyncio.ensure_future(device.request(Device.held, entrance.port))
            await entrance.arrived()
            theirs = passer.spot(Device, device.id)
            request = asyncio.ensure_future(outcome(theirs.request(Device.held, way_out.port)))
            moving = asyncio.ensure_future(device.relocate("n1"))
            await passer.spot(Device, "other").request(Device.add, 1)
            entrance.open()
            await first
            assert (await moving).outcome == "moved"
            await way_out.arrived()
            target = it.nodes["n1"]
            scene = Scene(it, request, way_out, it.nodes["n0"], target, device)
            passer.links.unwant(target.run)
            link = target.links.get(passer.run)
            assert link is not None
            link.abort("cut by the test")
            way_out.open()
            await scene.stored()
            (kept,) = target.replies._kept.values()
            assert await target.blobs.read(kept.reference) is not None
        await request
        await scene.settled()
        await scene.gone(kept.reference)


async def test_a_store_that_is_away_holds_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with moved_request() as scene:

        async def away(*arguments: Any) -> bool:
            raise StoreUnavailable("away", applied="no")

        monkeypatch.setattr(scene.target.blobs, "put", away)
        cut_behind_the_reply(scene.target)
        scene.exit.open()
        assert await scene.request == 5
        await scene.settled()
        assert scene.target.counters["replies_not_stored"] == 1


async def test_a_store_that_never_answers_holds_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with moved_request() as scene:
        never = asyncio.Event()

        async def silent(*arguments: Any) -> bool:
            await never.wait()
            return True

        monkeypatch.setattr(scene.target.blobs, "put", silent)
        cut_behind_the_reply(scene.target)
        scene.exit.open()
        assert await scene.request == 5
        assert len(scene.target.replies) == 1  # its blob is deleted once the put is over
        never.set()
        await scene.settled()


async def test_what_is_kept_in_memory_is_bounded_and_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with moved_request() as scene:
        scene.part()
        scene.exit.open()
        await scene.stored()
        assert scene.target.replies.octets > 0
        monkeypatch.setattr(replies, "KEPT_OCTETS_MAX", 10)
        assert not scene.target.replies._room(100)
        assert scene.target.replies.octets == 0
        assert len(scene.target.replies) == 1
        scene.meet()
        assert await scene.request == 5
        await scene.settled()


async def test_a_reply_that_did_not_move_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with moved_request() as scene:
        scene.exit.open()
        assert await scene.request == 5
        await scene.settled()

        async def unexpected(*arguments: Any) -> bool:
            raise AssertionError("a blob is written")

        entries = scene.it.client.senders._entries
        total = 5
        async with asyncio.timeout(20):
            while (route := entries[scene.device.key].route) is None or route.run != scene.target.run:
                total += 1  # followed until the client has changed over
                assert await scene.device.request(Device.add, 1) == total
            assert await scene.device.request(Device.add, 1) == total + 1
            total += 1
        await scene.settled()
        for node in scene.it.nodes.values():
            monkeypatch.setattr(node.blobs, "put", unexpected)
        assert await scene.device.request(Device.add, 1) == total + 1
        assert await scene.it.client.spot(Device, "other").request(Device.add, 1) == 2
        assert len(scene.target.replies) == 0
