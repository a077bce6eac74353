"""The command line of the demo: reads the file, runs the replay, prints the result.

Exit code 0: every aircraft is as the file says. 1: some differ, or the run failed. 2: the command line
cannot be understood. Only the result goes to stdout; progress and errors go to stderr.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import uvloop
from rich.console import Console
from sojourn.errors import SojournError

from examples.flights.data import FlightData, find_archive, read_archive
from examples.flights.display import open_display
from examples.flights.outcome import Outcome
from examples.flights.settings import Settings, parse_settings

__all__ = ["main", "read_flights", "run_on_cluster"]

Run = Callable[[FlightData, Settings], Coroutine[Any, Any, Outcome]]


def main(arguments: Sequence[str] | None = None, run: Run | None = None) -> int:
    """Run the demo and return its exit code; `run` replaces the real cluster in tests."""
    settings = parse_settings(arguments)
    try:
        data = read_flights(settings)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            outcome = runner.run((run or run_on_cluster)(data, settings))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except SojournError as error:
        print(f"{error.kind}: {error}", file=sys.stderr)
        return 1
    except BaseExceptionGroup as group:
        known, other = group.split(SojournError)
        if other is not None or known is None:
            raise
        for leaf in _leaves(known):
            print(f"{leaf.kind}: {leaf}", file=sys.stderr)
        return 1
    _print_outcome(outcome, settings)
    return 0 if outcome.passed else 1


def read_flights(settings: Settings) -> FlightData:
    """The flights that the settings ask for."""
    data = read_archive(find_archive(), settings.month)
    if settings.limit is None:
        return data
    kept = data.flights[: settings.limit]
    return data._replace(flights=kept, cancelled=sum(flight.cancelled for flight in kept))


async def run_on_cluster(data: FlightData, settings: Settings) -> Outcome:
    """Start a cluster, replay the flights over it, stop it."""
    import sojourn as sj

    from examples.flights.aircraft import app
    from examples.flights.cluster import ClusterFleet
    from examples.flights.replay import Replay

    total = len(data.flights)
    with open_display(total, sys.stderr) as display:
        display.say(
            f"{total:,} flights; {data.without_tailnum:,} rows without a tail number are left out; "
            f"starting {settings.nodes} nodes with {settings.workers} workers each"
        )
        async with sj.LocalCluster(
            app, nodes=settings.nodes, workers=settings.workers, store=settings.store
        ) as cluster:
            return await Replay(ClusterFleet(cluster, settings), data, settings, display).run()


def _print_outcome(outcome: Outcome, settings: Settings) -> None:
    if settings.json:
        print(outcome.to_json())
        return
    Console().print(outcome.to_table())
    for reason, count in outcome.moves.failure_reasons.items():
        print(f"moves failed, {count:,} times: {reason}")
    for kind, count in outcome.failures.items():
        print(f"messages failed, {count:,} times: {kind}")
    for line in outcome.faults:
        print(line)


def _leaves(group: BaseExceptionGroup[SojournError]) -> list[SojournError]:
    found: list[SojournError] = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found
