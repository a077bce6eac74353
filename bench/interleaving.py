"""Requests to other objects while a large state moves: does a move hold up its neighbours?

Owns the pacing: a request starts at a fixed rate whether or not the one before it is back, and its time counts
from the moment it was due, so that what waits behind a pause counts too.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import sojourn as sj

from bench.application import Ballast, Echo, app
from bench.bare_move import bare_mover
from bench.sizes import PAYLOAD, Sizes
from bench.timing import percentile

__all__ = [
    "Asked",
    "Interleaving",
    "Share",
    "measure_interleaving",
    "measure_paced",
    "share",
    "split_by_worker",
]

PACE_S = 0.004
"""Between two requests to one object."""
_CANDIDATES = 48
_TIMEOUT_S = 120.0


class Share(NamedTuple):
    """Times of a group of requests, in milliseconds, and how many they were."""

    p99_ms: float
    max_ms: float
    requests: int


class Interleaving(NamedTuple):
    """Paced requests while nothing moves, while a state moves, and while others move as many bytes."""

    idle: Share
    other_worker: Share
    """To objects in the workers that the state is not in."""
    same_worker: Share
    """To objects in the worker that it leaves and the one that it enters."""
    control: Share
    """To all of them while processes outside of the cluster pass on as many bytes at the same rate."""
    move_ms: float
    """A move, on average, as its caller sees it."""


class Asked(NamedTuple):
    """One request: which of the calls, when it was due (`time.perf_counter`), and how long it took in seconds."""

    call: int
    due: float
    took_s: float


async def measure_interleaving(sizes: Sizes) -> Interleaving:
    """Move a large state to and fro between two nodes; ask objects in the workers it is in, and beside them."""
    async with sj.LocalCluster(app, nodes=2, workers=2) as cluster, bare_mover() as bare_move:
        client = cluster.client
        ballast = client.spot(Ballast, "ballast").with_timeout(_TIMEOUT_S)
        await ballast.request(Ballast.fill, sizes.interleaved)
        for turn in (1, 0):  # memory is mapped and buffers have grown
            await ballast.relocate(to=cluster.nodes[turn])
            await bare_move(sizes.interleaved, math.inf)
        echoes = await _place_echoes(client)
        places = list(echoes)
        calls = [_asking(echo) for echo in echoes.values()]
        idle = await measure_paced(calls, lambda: asyncio.sleep(sizes.paced_s))
        moves: list[_Move] = []

        async def move() -> None:
            for turn in (1, 0) * sizes.interleaved_moves:
                before, began = await _place(client, ballast), time.perf_counter()
                await ballast.relocate(to=cluster.nodes[turn])
                ended = time.perf_counter()
                moves.append(_Move(began, ended, {before, await _place(client, ballast)}))

        asked = await measure_paced(calls, move)
        took_s = sum(each.ended - each.began for each in moves) / len(moves)

        async def pass_on() -> None:
            for _ in moves:
                await bare_move(sizes.interleaved, sizes.interleaved / took_s)

        control = await measure_paced(calls, pass_on)
    other, same = split_by_worker(asked, moves, places)
    return Interleaving(share(idle), share(other), share(same), share(control), took_s * 1e3)


_Place = tuple[str, int]
"""Node and worker."""


class _Move(NamedTuple):
    began: float
    ended: float
    touched: set[_Place]


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


def split_by_worker(
    asked: list[Asked], moves: list[_Move], places: list[_Place]
) -> tuple[list[Asked], list[Asked]]:
    """The requests that were due during a move: to workers that it does not touch, and to those it does."""
    other: list[Asked] = []
    same: list[Asked] = []
    for each in asked:
        for move in moves:
            if move.began <= each.due <= move.ended:
                (same if places[each.call] in move.touched else other).append(each)
    return other, same


def share(asked: list[Asked]) -> Share:
    """The figures of some requests."""
    taken = sorted(each.took_s * 1e3 for each in asked)
    return Share(percentile(taken, 0.99), taken[-1], len(taken))


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
