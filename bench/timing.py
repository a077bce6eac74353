"""Loops that measure, and what they found.

Owns how latency and throughput are taken; the same loops drive the references and, inside a worker, the
cluster. Knows nothing about what it calls.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

__all__ = ["Latency", "PathFigures", "measure_latency", "measure_one_way", "measure_rate", "percentile"]

Call = Callable[[], Awaitable[object]]


class Latency(msgspec.Struct, frozen=True):
    """Round trips, one at a time."""

    p50_us: float
    p99_us: float


class PathFigures(msgspec.Struct, frozen=True):
    """What was measured over one path."""

    latency: Latency
    requests_64: float
    """Requests per second with 64 in flight."""
    requests_256: float
    one_way: float
    """One-way messages per second, until the last one was handled."""


def percentile(ordered: Sequence[float], part: float) -> float:
    """The nearest-rank percentile of ordered values; `part` is 0 to 1."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


async def measure_latency(call: Call, count: int) -> Latency:
    """Time `count` calls, each after the one before; a tenth more runs first to warm up."""
    for _ in range(count // 10 + 1):
        await call()
    taken: list[float] = []
    clock = time.perf_counter
    for _ in range(count):
        before = clock()
        await call()
        taken.append(clock() - before)
    taken.sort()
    return Latency(percentile(taken, 0.5) * 1e6, percentile(taken, 0.99) * 1e6)


async def measure_rate(call: Call, window: int, count: int) -> float:
    """Calls per second with `window` of them in flight."""
    left = count

    async def caller() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await call()

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(window):
            group.create_task(caller())
    return count / (time.perf_counter() - started)


async def measure_one_way(send: Call, settle: Call, count: int) -> float:
    """Messages per second from the first send until `settle`, a call that waits for the last, is back."""
    started = time.perf_counter()
    for _ in range(count):
        await send()
    await settle()
    return count / (time.perf_counter() - started)
