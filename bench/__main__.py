"""`python -m bench [--quick] [--json]`: measure everything in one run."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable

import uvloop
from rich.console import Console

from bench import cluster
from bench.bare_copy import measure_copies
from bench.bare_forwarding import measure_other_node, measure_other_worker
from bench.interleaving import measure_interleaving
from bench.raw_uvloop import measure_raw
from bench.report import Figure, print_figures, to_json
from bench.sizes import FULL, MIB, QUICK, Sizes
from bench.timing import PathFigures, percentile

AIMS: dict[str, dict[str, float]] = {
    "same worker": {"requests_256": 150_000},
    "other worker": {"p50": 150, "requests_256": 30_000, "one_way": 100_000},
    "other node": {"p50": 250, "requests_256": 20_000},
}
INTERRUPTION_AIMS_MS = {1024: 1.5, 64 * MIB: 300.0}
NEIGHBOUR_AIM = 2.0
"""How many times slower a request may be while a large state moves through another worker of its node."""
SIZE_NAMES = {1024: "1 KiB", MIB: "1 MiB", 64 * MIB: "64 MiB"}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer of everything: a minute instead of several"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--only", choices=tuple(PARTS), action="append", help="part of it")
    found = parser.parse_args()
    parts = found.only or list(PARTS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        figures = runner.run(measure(QUICK if found.quick else FULL, parts))
    if found.json:
        print(to_json(figures))
    else:
        print_figures(figures, Console(width=None if sys.stdout.isatty() else 150))
    return 0


async def measure(sizes: Sizes, parts: list[str]) -> list[Figure]:
    """Every figure of the parts asked for, the references first."""
    figures: list[Figure] = []
    for name, part in PARTS.items():
        if name in parts:
            print(f"measuring {name} ...", file=sys.stderr, flush=True)
            figures += await part(sizes)
    return figures


async def _start(sizes: Sizes) -> list[Figure]:
    taken = sorted([await cluster.measure_start() for _ in range(sizes.starts)])
    return [
        Figure(
            name="start of 2 × 1 workers to the first reply", value=percentile(taken, 0.5), unit="s", aim=0.8
        )
    ]


async def _paths(sizes: Sizes) -> list[Figure]:
    raw = await measure_raw(sizes)
    bare = {
        "other worker": await measure_other_worker(sizes),
        "other node": await measure_other_node(sizes),
    }
    found = await cluster.measure_paths(sizes)
    figures: list[Figure] = []
    for distance, path in (
        ("same worker", found.same_worker),
        ("other worker", found.other_worker),
        ("other node", found.other_node),
    ):
        figures += _path_figures(distance, path, raw, bare.get(distance))
        figures += _usage_figures(f"{distance}: a request", found.cpu_us[distance])
    return figures


def _usage_figures(what: str, used: cluster.Usage) -> list[Figure]:
    return [
        Figure(name=f"{what}, processor time of workers", value=used.workers, unit="µs"),
        Figure(name=f"{what}, processor time of supervisors", value=used.supervisors, unit="µs"),
    ]


def _path_figures(
    distance: str, found: PathFigures, raw: PathFigures, bare: PathFigures | None
) -> list[Figure]:
    aims = AIMS[distance]
    figures = [
        Figure(
            name=f"{distance}: round trip {part}",
            value=getattr(found.latency, f"{part}_us"),
            unit="µs",
            aim=aims.get(part),
            raw=getattr(raw.latency, f"{part}_us"),
            bare=getattr(bare.latency, f"{part}_us") if bare else None,
        )
        for part in ("p50", "p99")
    ]
    for field, label in (
        ("requests_64", "requests, 64 in flight"),
        ("requests_256", "requests, 256 in flight"),
        ("one_way", "one-way messages"),
    ):
        figures.append(
            Figure(
                name=f"{distance}: {label}",
                value=getattr(found, field),
                unit="/s",
                aim=aims.get(field),
                more_is_better=True,
                raw=getattr(raw, field),
                bare=getattr(bare, field) if bare else None,
            )
        )
    return figures


async def _moves(sizes: Sizes) -> list[Figure]:
    copies = await measure_copies(sizes.moves)
    found = await cluster.measure_interruptions(sizes)
    figures: list[Figure] = []
    for size, move in found.items():
        name = SIZE_NAMES[size]
        figures += [
            Figure(
                name=f"move of {name}: interruption p50 (bare: copy over TCP)",
                value=move.p50_ms,
                unit="ms",
                aim=INTERRUPTION_AIMS_MS.get(size),
                bare=copies[size] * 1e3,
            ),
            Figure(name=f"move of {name}: interruption max", value=move.max_ms, unit="ms"),
            Figure(name=f"move of {name}: whole call p50", value=move.call_p50_ms, unit="ms"),
            *_usage_figures(f"move of {name}", move.idle_cpu),
        ]
    return figures


async def _objects(sizes: Sizes) -> list[Figure]:
    found = await cluster.measure_creations(sizes)
    return [
        Figure(
            name="objects made by their first message",
            value=found.per_second,
            unit="/s",
            aim=5_000,
            more_is_better=True,
        ),
        Figure(
            name=f"memory of an idle object on its node, of {sizes.objects:,}",
            value=found.worker_bytes + found.supervisor_bytes,
            unit="B",
            aim=1024,
        ),
        Figure(name="  of which in the worker", value=found.worker_bytes, unit="B"),
        Figure(name="  of which in the supervisor", value=found.supervisor_bytes, unit="B"),
        Figure(name="memory of a route that a client remembers", value=found.client_bytes, unit="B"),
    ]


async def _interleaving(sizes: Sizes) -> list[Figure]:
    """Paced requests beside a large move. The aim is a ratio: p99 while it moves by p99 while nothing does."""
    found = await measure_interleaving(sizes)
    state = f"{sizes.interleaved // MIB} MiB"
    figures = [
        Figure(
            name=f"paced requests, nothing moves: p99 of {found.idle.requests:,}",
            value=found.idle.p99_ms,
            unit="ms",
        ),
        Figure(name=f"move of {state} beside them: whole call, mean", value=found.move_ms, unit="ms"),
    ]
    for what, part, aim in (
        (f"to another worker while {state} move", found.other_worker, NEIGHBOUR_AIM),
        (f"to the worker {state} leave or enter", found.same_worker, None),
        (f"control: bare processes pass {state} on as fast", found.control, None),
    ):
        figures += [
            Figure(name=f"{what}: p99 of {part.requests:,}", value=part.p99_ms, unit="ms"),
            Figure(
                name="  times the p99 while nothing moves",
                value=part.p99_ms / found.idle.p99_ms,
                unit="×",
                aim=aim,
            ),
            Figure(name="  max", value=part.max_ms, unit="ms"),
        ]
    return figures


PARTS: dict[str, Callable[[Sizes], Awaitable[list[Figure]]]] = {
    "start": _start,
    "paths": _paths,
    "moves": _moves,
    "objects": _objects,
    "interleaving": _interleaving,
}

if __name__ == "__main__":
    sys.exit(main())
