"""Requests to other objects while a large state moves: does a move hold up its neighbours?

Owns the pacing: a request starts at a fixed rate whether or not the one before it is back, and its time counts
from the moment it was due, so that what waits behind a pause counts too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import sojourn as sj

from bench.application import Ballast, Echo, app
from bench.sizes import PAYLOAD, Sizes
from bench.timing import percentile

__all__ = ["Asked", "Neighbours", "measure_interleaving", "measure_paced"]

PACE_S = 0.004
"""Between two requests to one object."""
_CANDIDATES = 48
_TIMEOUT_S = 120.0


class Neighbours(NamedTuple):
    """The slowest of a hundred requests, in milliseconds, alone and while the state moves."""

    idle_p99_ms: float
    moving_p99_ms: float
    moving_max_ms: float


class Asked(NamedTuple):
    """One request: which of the calls, when it was due (`time.perf_counter`), and how long it took in seconds."""

    call: int
    due: float
    took_s: float


async def measure_interleaving(sizes: Sizes) -> dict[str, Neighbours]:
    """Move a large state to and fro between two nodes; ask objects in the workers it is in, and beside them."""
    async with sj.LocalCluster(app, nodes=2, workers=2) as cluster:
        client = cluster.client
        ballast = client.spot(Ballast, "ballast").with_timeout(_TIMEOUT_S)
        await ballast.request(Ballast.fill, sizes.interleaved)
        for turn in (1, 0):  # memory is mapped and buffers have grown
            await ballast.relocate(to=cluster.nodes[turn])
        echoes = await _place_echoes(client)
        calls = [_asking(echo) for echo in echoes.values()]
        idle = await measure_paced(calls, lambda: asyncio.sleep(sizes.paced_s))
        moves: list[tuple[float, float, set[_Place]]] = []

        async def move() -> None:
            for turn in (1, 0) * sizes.interleaved_moves:
                before, began = await _place(client, ballast), time.perf_counter()
                await ballast.relocate(to=cluster.nodes[turn])
                ended = time.perf_counter()
                moves.append((began, ended, {before, await _place(client, ballast)}))

        asked = await measure_paced(calls, move)
    places = list(echoes)
    groups: dict[str, list[Asked]] = {"another worker": [], "the same worker": []}
    for began, ended, touched in moves:
        for each in asked:
            if began <= each.due <= ended:
                groups["the same worker" if places[each.call] in touched else "another worker"].append(each)
    quiet = _percentile_ms(idle, 0.99)
    return {
        name: Neighbours(quiet, _percentile_ms(group, 0.99), _percentile_ms(group, 1.0))
        for name, group in groups.items()
    }


_Place = tuple[str, int]
"""Node and worker."""


async def _place(client: sj.Client, spot: sj.SpotRef[Any]) -> _Place:
    found = await client.locate(spot)
    return found.node, found.worker


async def _place_echoes(client: sj.Client) -> dict[_Place, sj.SpotRef[Echo]]:
    """One object in each worker."""
    found: dict[_Place, sj.SpotRef[Echo]] = {}
    for number in range(_CANDIDATES):
        echo = client.spot(Echo, f"neighbour-{number}")
        await echo.request(Echo.echo, PAYLOAD)
        found.setdefault(await _place(client, echo), echo)
    return found


def _percentile_ms(asked: list[Asked], part: float) -> float:
    return percentile(sorted(each.took_s for each in asked), part) * 1e3


def _asking(spot: sj.SpotRef[Echo]) -> Callable[[], Awaitable[object]]:
    patient = spot.with_timeout(_TIMEOUT_S)
    return lambda: patient.request(Echo.echo, PAYLOAD)


async def measure_paced(
    calls: list[Callable[[], Awaitable[object]]], work: Callable[[], Awaitable[object]]
) -> list[Asked]:
    """Every request until `work` is done: each of `calls` starts every `PACE_S`."""
    asked: list[Asked] = []
    working = True

    async def one(number: int, due: float) -> None:
        due = min(due, time.perf_counter())  # timers count whole milliseconds, and may be early
        await calls[number]()
        asked.append(Asked(number, due, time.perf_counter() - due))

    async def pace(number: int) -> None:
        due = time.perf_counter()
        while working:
            group.create_task(one(number, due))
            due += PACE_S
            await asyncio.sleep(due - time.perf_counter())

    async with asyncio.TaskGroup() as group:
        for number in range(len(calls)):
            group.create_task(pace(number))
        await work()
        working = False
    return asked
