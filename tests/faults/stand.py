"""Where fault tests stand: nodes behind a network and stores that fail when told, on real processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from sojourn.errors import DataLost, SojournError
from sojourn.location import Found
from sojourn.rows import RowState, lease_row_key
from sojourn.spots.references import ActorRef
from sojourn.workers.local_cluster import LocalCluster
from sojourn.workers.local_node import LocalNode

from tests.contract.app import Member
from tests.contract.stand import LIMIT_S, NODE_WITH_LOG, Stand, fresh, standing
from tests.contract.store_proxy import StoreProxy, before_redis
from tests.faults.network import PREPARE, READY, Network, Trap, network

__all__ = ["OPTIONS", "FaultStand", "Moving", "faulty", "outcome"]

OPTIONS: dict[str, Any] = {
    "move_deadline_ms": 3_000,
    "relocation_commit_reserve_ms": 1_000,
    "relocation_seal_reserve_ms": 500,
    "relocation_cutover_wait_ms": 500,
    "ended_identity_keep_ms": 1_000,
    "follow_duration_ms": 5_100,
    "route_cache_age_ms": 100,
    "request_timeout_ms": 15_000,
    "store_timeout_ms": 1_000,
    "lease_ttl_ms": 3_000,
    "lease_renew_ms": 500,
    "lease_renew_timeout_ms": 500,
    "lease_margin_ms": 500,
}
"""Every wait of a move short, so that each outcome comes within seconds."""
NODES = 3
PAUSE_S = 0.7
"""Longer than the cutover wait, shorter than a lease."""


class _Cluster(LocalCluster):
    """Every node behind a proxy, with a way of its own to the store."""

    places: list[dict[str, Any]]

    def _make_node(self, index: int, **settings: Any) -> LocalNode:
        place = dict(self.places[index])
        options = msgspec.structs.replace(self.options, store_url=place.pop("store_url"))
        return super()._make_node(index, options=options, **place, **settings)


async def outcome(work: Awaitable[Any]) -> Any:
    """The result, or the typed error."""
    try:
        return await work
    except SojournError as error:
        return error


@dataclass
class Moving:
    """A move under way, and the requests that were made meanwhile."""

    item: ActorRef[Member]
    result: asyncio.Task[Any]
    requests: list[asyncio.Task[Any]]

    async def ended(self) -> str:
        """How it ended: the outcome with its reason, or the kind of the error."""
        result = await self.result
        if isinstance(result, SojournError):
            return result.kind
        return " ".join(filter(None, (result["outcome"], result["reason"].partition(":")[0])))

    async def answers(self) -> list[Any]:
        """What the requests ended in: results, or kinds of errors."""
        found = await asyncio.gather(*self.requests)
        return [each.kind if isinstance(each, SojournError) else each for each in found]


@dataclass
class FaultStand:
    """A cluster of three nodes: moves go from `a` to `b`, `c` is the one beside."""

    stand: Stand
    network: Network
    stores: list[StoreProxy]
    pids: set[int]

    @property
    def a(self) -> LocalNode:
        return self.stand.cluster.nodes[0]

    @property
    def b(self) -> LocalNode:
        return self.stand.cluster.nodes[1]

    @property
    def c(self) -> LocalNode:
        return self.stand.cluster.nodes[2]

    # objects

    async def item(self, node: LocalNode | None = None) -> ActorRef[Member]:
        """A new Actor at `a` that has done one thing."""
        at = node or self.a
        item = await self.stand.client.create(Member, fresh("item"), at=at.rid)
        assert await item.request(Member.add, "before") == 1
        return item

    def move(self, item: ActorRef[Member], to: LocalNode | None = None) -> asyncio.Task[Any]:
        """Have it moved."""
        return asyncio.ensure_future(outcome(item.relocate((to or self.b).rid)))

    def ask(self, item: ActorRef[Member], *texts: str) -> list[asyncio.Task[Any]]:
        """Requests of the client, in order."""
        return [asyncio.ensure_future(outcome(item.request(Member.add, text))) for text in texts]

    async def sent(self) -> None:
        """Everything the client has submitted was handled by the nodes' supervisors."""
        for node in self.stand.cluster.nodes:
            if node.running:
                link = self.stand.client.links.get(self.stand.run_of(node))
                if link is not None:
                    await link.probe()

    async def held_up(
        self, command: int, skip: int = 0, size: int = 0, rooted: bool = False, deadline_s: float = 3.0
    ) -> tuple[Moving, Trap]:
        """A move that is stopped at one frame, and two requests that came after its seal."""
        item = await self.item()
        if size:
            await item.request(Member.grow, size)
        if rooted:
            await item.request(Member.root, True)
        there, back = self.network.way(self.a.rid, self.b.rid), self.network.way(self.b.rid, self.a.rid)
        sealed = there.trap(PREPARE)
        arguments = {"key": item.key, "to": self.b.rid, "deadline_s": deadline_s}
        moving = Moving(item, asyncio.ensure_future(outcome(self.a.call("relocate", arguments))), [])
        await sealed.sprung()
        moving.requests = self.ask(item, "first", "second")
        await self.sent()
        if command == PREPARE:
            return moving, sealed
        trap = (back if command == READY else there).trap(command, skip)
        sealed.release()
        await trap.sprung()
        return moving, trap

    async def owner(self, item: ActorRef[Member]) -> str:
        """The RID that the row names, "lost" behind it where it is."""
        found = await self.stand.row(item.key)
        assert found is not None
        return found.row.owner.rid.decode() + (" lost" if found.row.state is RowState.LOST else "")

    async def owned(self, item: ActorRef[Member], by: str) -> None:
        """Wait until the row says so."""
        async with asyncio.timeout(LIMIT_S):
            while await self.owner(item) != by:
                continue

    async def moves_again(self, item: ActorRef[Member], lines: list[str]) -> None:
        """The object is alive with this history, can be moved, and works there."""
        assert await item.request(Member.history) == lines
        here = (await self.stand.client.locate(item)).node
        target = next(node for node in (self.b, self.a) if node.rid != here)
        result = await item.relocate(target.rid)
        assert result.outcome == "moved", result
        assert await item.request(Member.add, "after") == len(lines) + 1

    async def made_anew(self, item: ActorRef[Member]) -> None:
        """The id is free: it can be made anew, without its history, and moved."""
        again = await self.stand.client.create(Member, item.id, at=self.a.rid)
        assert await again.request(Member.add, "anew") == 1
        assert (await again.relocate(self.b.rid)).outcome == "moved"
        assert await again.request(Member.history) == ["anew"]

    async def lives_or_is_free(self, item: ActorRef[Member], answered: list[int]) -> None:
        """The object goes on with everything that was answered, or it is lost and its id can be made anew."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                found = await outcome(item.request(Member.history))
                if isinstance(found, list):
                    assert len(found) >= max(answered, default=1)
                    await self.moves_again(item, found)
                    return
                if isinstance(found, DataLost) or not await self._owner_lives(item):
                    await self.made_anew(item)
                    return

    async def _owner_lives(self, item: ActorRef[Member]) -> bool:
        found = await self.stand.row(item.key)
        assert found is not None
        owner = found.row.owner
        key = lease_row_key(owner.owner_id, owner.lease_generation)
        return isinstance(await self.stand.store.read(key), Found)

    # processes

    async def note_processes(self) -> None:
        """Remember every process there is, to see that none of them is left in the end."""
        for node in self.stand.cluster.nodes:
            if node.running:
                self.pids |= {node.pid, *filter(None, await node.worker_pids())}

    async def restart(self, node: LocalNode) -> None:
        """Start a node that ended; the others know its new run when this returns."""
        await node.restart()
        await self.note_processes()
        await self.met(node)

    async def met(self, node: LocalNode) -> None:
        """Wait until the client and every other node are linked with a node's present run."""
        wanted = str(self.stand.run_of(node))
        async with asyncio.timeout(LIMIT_S):
            for other in self.stand.cluster.nodes:
                while other is not node and wanted not in (await other.status())["links"]:
                    continue
            while self.stand.client.links.get(self.stand.run_of(node)) is None:
                await self.stand.client.refresh()

    async def paused(self, pid: int, meanwhile: Callable[[], object]) -> None:
        """Stop a process for `PAUSE_S`: the pause is the fault, nothing is waited for."""
        os.kill(pid, signal.SIGSTOP)
        try:
            meanwhile()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_S):
                    await asyncio.Event().wait()
        finally:
            os.kill(pid, signal.SIGCONT)

    async def worker_of(self, node: LocalNode) -> int:
        """The process id of the one worker of a node."""
        (pid,) = await node.worker_pids()
        return pid

    async def kill_worker(self, node: LocalNode) -> None:
        """End the worker of a node by SIGKILL; another stands in its place when this returns."""
        pid = await self.worker_of(node)
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(LIMIT_S):
            while True:
                pids = await node.worker_pids()
                status = await node.status()  # behind: a new process is there only after the loss was noted
                if pids and pid not in pids and status["objects_by_worker"]:
                    break
        self.pids |= set(pids)

    def ran(self, item: ActorRef[Member]) -> list[str]:
        """What its handlers did, on whatever node."""
        return self.stand.ran(item.id)

    async def draining(self, node: LocalNode) -> None:
        """Wait until a node has begun to stop."""
        remote = self.stand.client.node(node.rid)
        async with asyncio.timeout(LIMIT_S):
            while (await remote.status())["state"] != "Draining":
                continue

    async def lease_over(self, item: ActorRef[Member]) -> None:
        """Wait until the lease of the recorded owner has run out."""
        found = await self.stand.row(item.key)
        assert found is not None
        owner = found.row.owner
        key = lease_row_key(owner.owner_id, owner.lease_generation)
        async with asyncio.timeout(LIMIT_S):
            while isinstance(await self.stand.store.read(key), Found):
                continue

    async def logged(self, name: str, item: ActorRef[Member] | None = None) -> None:
        """Wait for a log event."""
        await self.fact(lambda: bool(self.stand.log.events(name, about=item.id if item else "")))

    async def fact(self, holds: Callable[[], bool]) -> None:
        """Wait until something seen from outside holds."""
        async with asyncio.timeout(LIMIT_S):
            while not holds():
                await self.c.status()

    def logs(self, name: str, item: ActorRef[Member]) -> int:
        """How many events of this name there are about an object."""
        return len(self.stand.log.events(name, about=item.id))

    async def mend(self) -> None:
        """End every fault, and have every node running and linked."""
        self.network.mend()
        for store in self.stores:
            store.come_back()
        for node in self.stand.cluster.nodes:
            if not node.running:
                await self.restart(node)
        for node in self.stand.cluster.nodes:
            await self.met(node)
            async with asyncio.timeout(LIMIT_S):
                while not (await node.status())["lease_confirmed"]:
                    continue


@asynccontextmanager
async def faulty(
    folder: Path, redis_url: str, program: str = NODE_WITH_LOG, **options: Any
) -> AsyncIterator[FaultStand]:
    """Start the three nodes; when it ends, none of the processes there ever were is left."""
    port = urlsplit(redis_url).port
    assert port is not None
    pids: set[int] = set()
    async with AsyncExitStack() as stack:
        between = await stack.enter_async_context(network())
        stores = [await stack.enter_async_context(before_redis(port)) for _ in range(NODES)]
        _Cluster.places = []
        for index in range(NODES):
            listen, advertise = await between.before(f"node-{index}")
            url = f"redis://127.0.0.1:{stores[index].port}/0"
            _Cluster.places.append({"port": listen, "advertise": advertise, "store_url": url})
        settings = OPTIONS | options
        async with standing(
            folder, NODES, 1, redis_url, make=_Cluster, program=program, cluster=folder.name, **settings
        ) as it:
            fault = FaultStand(it, between, stores, pids)
            await fault.note_processes()
            try:
                yield fault
            finally:
                await fault.note_processes()
    left = [pid for pid in pids if _alive(pid)]
    assert not left, f"processes are left: {left}"


def _alive(pid: int) -> bool:
    try:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # workers of a killed supervisor are this process's children by then
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
