"""Measures a real cluster."""

from __future__ import annotations

import asyncio
import os
import time
from typing import NamedTuple

import sojourn as sj

from bench.application import Ballast, Driver, Echo, Idle, app
from bench.sizes import Sizes
from bench.timing import PathFigures, percentile
from bench.usage import cpu_seconds, proportional_bytes

__all__ = [
    "Creations",
    "Interruption",
    "Paths",
    "Usage",
    "measure_creations",
    "measure_interruptions",
    "measure_paths",
    "measure_start",
]

_CANDIDATES = 24
"""Echo objects made to find one at each kind of place."""

_LOOP_S = 600.0
"""Most a measuring loop may take."""


class Usage(NamedTuple):
    """Processor time in microseconds, of all processes of one kind together."""

    workers: float
    supervisors: float


class Paths(NamedTuple):
    """The three distances between two objects."""

    same_worker: PathFigures
    other_worker: PathFigures
    other_node: PathFigures
    cpu_us: dict[str, Usage]
    """Processor time of one request with 256 in flight, by distance."""


class Creations(NamedTuple):
    """What making many idle objects costs."""

    per_second: float
    worker_bytes: float
    """Growth of the worker processes for each object."""
    supervisor_bytes: float
    client_bytes: float
    """Of the route to it that a client remembers for a while."""


class Interruption(NamedTuple):
    """Seal to first turn on the target, in milliseconds (B10.7), and the whole move as its caller sees it."""

    p50_ms: float
    max_ms: float
    call_p50_ms: float
    idle_cpu: Usage
    """Processor time of one move of an object that nobody asks."""


async def measure_start() -> float:
    """Seconds from nothing to the first reply of a cluster of two nodes with one worker each."""
    started = time.perf_counter()
    async with sj.LocalCluster(app, nodes=2, workers=1) as cluster:
        await cluster.client.spot(Echo, "first").request(Echo.echo, b"")
        return time.perf_counter() - started


async def measure_paths(sizes: Sizes) -> Paths:
    """Measure between objects in the same worker, in two workers, on two nodes."""
    async with sj.LocalCluster(app, nodes=2, workers=2) as cluster:
        client = cluster.client
        driver = client.spot(Driver, "driver").with_timeout(_LOOP_S)
        await driver.request(Driver.rate, "echo-0", 1, 1)
        home = await client.locate(driver)
        names: dict[str, str] = {}
        for name in (f"echo-{number}" for number in range(_CANDIDATES)):
            await client.spot(Echo, name).request(Echo.echo, b"")
            place = await client.locate(client.spot(Echo, name))
            near = "same worker" if place.worker == home.worker else "other worker"
            names.setdefault(near if place.node == home.node else "other node", name)
        figures: dict[str, PathFigures] = {}
        usage: dict[str, Usage] = {}
        for distance in ("same worker", "other worker", "other node"):
            figures[distance] = await _drive(driver, names[distance], sizes)
            usage[distance] = await _weigh_requests(cluster, driver, names[distance], sizes.requests)
        return Paths(
            same_worker=figures["same worker"],
            other_worker=figures["other worker"],
            other_node=figures["other node"],
            cpu_us=usage,
        )


async def _weigh_requests(
    cluster: sj.LocalCluster, driver: sj.SpotRef[Driver], echo: str, count: int
) -> Usage:
    before = await _used(cluster)
    await driver.request(Driver.rate, echo, 256, count)
    return _each(before, await _used(cluster), count)


async def _used(cluster: sj.LocalCluster) -> Usage:
    workers = [pid for node in cluster.nodes for pid in await node.worker_pids()]
    return Usage(cpu_seconds(workers), cpu_seconds([node.pid for node in cluster.nodes]))


def _each(before: Usage, after: Usage, count: int) -> Usage:
    workers, supervisors = ((now - then) / count * 1e6 for now, then in zip(after, before, strict=True))
    return Usage(workers, supervisors)


async def _drive(driver: sj.SpotRef[Driver], echo: str, sizes: Sizes) -> PathFigures:
    return PathFigures(
        latency=await driver.request(Driver.latency, echo, sizes.latency),
        requests_64=await driver.request(Driver.rate, echo, 64, sizes.requests),
        requests_256=await driver.request(Driver.rate, echo, 256, sizes.requests),
        one_way=await driver.request(Driver.one_way, echo, sizes.one_way),
    )


async def measure_creations(sizes: Sizes) -> Creations:
    """Make many idle objects by their first message, a few hundred at a time."""
    async with sj.LocalCluster(app, nodes=2, workers=1) as cluster:
        names = iter(f"idle-{number}" for number in range(sizes.objects))
        for number in range(200):  # the processes have their code and buffers in memory
            await cluster.client.spot(Idle, f"warm-{number}").request(Idle.touch)
        roles = [
            [pid for node in cluster.nodes for pid in await node.worker_pids()],
            [node.pid for node in cluster.nodes],
            [os.getpid()],
        ]
        before = [proportional_bytes(pids) for pids in roles]

        async def make_some() -> None:
            for name in names:
                await cluster.client.spot(Idle, name).request(Idle.touch)

        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(256):
                group.create_task(make_some())
        took_s = time.perf_counter() - started
        await asyncio.sleep(0.5)
        grown = [
            (proportional_bytes(pids) - held) / sizes.objects
            for pids, held in zip(roles, before, strict=True)
        ]
    return Creations(sizes.objects / took_s, *grown)


async def measure_interruptions(sizes: Sizes) -> dict[int, Interruption]:
    """Move objects with states of each size to and fro while they are being asked."""
    async with sj.LocalCluster(app, nodes=2, workers=1) as cluster:
        return {size: await _move(cluster, size, count) for size, count in sizes.moves.items()}


async def _move(cluster: sj.LocalCluster, size: int, count: int) -> Interruption:
    ballast = cluster.client.spot(Ballast, f"ballast-{size}").with_timeout(_LOOP_S)
    await ballast.request(Ballast.fill, size)
    interruptions: list[float] = []
    calls: list[float] = []
    moving = True

    async def ask() -> None:
        while moving:
            await ballast.request(Ballast.weigh)

    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(ask())
        for turn in range(count + 2):
            started = time.perf_counter()
            result = await ballast.relocate(to=cluster.nodes[turn % 2])
            calls.append(time.perf_counter() - started)
            if turn >= 2 and result.outcome == "moved" and result.interruption_ns:
                interruptions.append(result.interruption_ns / 1e6)
        moving = False
    interruptions.sort()
    before = await _used(cluster)
    for turn in range(count):
        await ballast.relocate(to=cluster.nodes[turn % 2])
    return Interruption(
        p50_ms=percentile(interruptions, 0.5),
        max_ms=interruptions[-1],
        call_p50_ms=percentile(sorted(calls[2:]), 0.5) * 1e3,
        idle_cpu=_each(before, await _used(cluster), count),
    )
