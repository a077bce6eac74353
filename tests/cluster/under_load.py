"""What the cluster tests share: real clusters of the fleet's application, and who stands where."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sojourn.spots.references import Reference, SpotRef
from sojourn.workers.local_cluster import LocalCluster

from tests.runtime.fleet import Sender, Sink, app

__all__ = ["counters", "progress", "senders_on_every_node", "started_cluster", "where"]

_S = TypeVar("_S")


@asynccontextmanager
async def started_cluster(store: str | None, name: str, nodes: int = 3) -> AsyncIterator[LocalCluster]:
    """Real supervisors and workers, on a store of their own or in a namespace of a given one."""
    async with LocalCluster(app, nodes=nodes, workers=1, store=store, options={"cluster": name}) as cluster:
        yield cluster


async def where(cluster: LocalCluster, reference: Reference[Any]) -> str:
    """The node that holds an object."""
    return (await cluster.client.locate(reference)).node


async def senders_on_every_node(cluster: LocalCluster, name: str) -> list[SpotRef[Sender]]:
    """One sender that placement has put on each node."""
    found: dict[str, SpotRef[Sender]] = {}
    for number in range(500):
        sender = cluster.client.spot(Sender, f"{name}-{number}")
        await sender.request(Sender.ready)
        found.setdefault(await where(cluster, sender), sender)
        if len(found) == len(cluster.nodes):
            return list(found.values())
    raise AssertionError(f"placement uses only {sorted(found)}")


async def counters(cluster: LocalCluster) -> dict[str, int]:
    """Every counter, summed over the nodes."""
    total: dict[str, int] = {}
    for node in cluster.nodes:
        for name, value in (await node.status())["counters"].items():
            total[name] = total.get(name, 0) + value
    return total


async def progress(
    sink: SpotRef[Sink], reached: Callable[[int], bool], limit_s: float = 60.0
) -> tuple[dict[str, int], list[str], int]:
    """What a sink has counted, once it is as far as it should be or something went wrong."""
    async with asyncio.timeout(limit_s):
        while True:
            last, wrong, count = await sink.request(Sink.result)
            if wrong or reached(count):
                return last, wrong, count
