"""What a run of the demo can be told, with its defaults."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Settings", "parse_settings"]


@dataclass(frozen=True)
class Settings:
    """One run."""

    nodes: int = 3
    workers: int = 2
    """Worker processes per node."""
    rate: float = 2000.0
    """Messages per second; 0 is full speed."""
    month: int | None = 1
    """Month to replay; None is the whole year."""
    limit: int | None = None
    """Replay only the first so many messages."""
    moves: bool = True
    """Move aircraft and empty nodes while the stream runs."""
    moves_per_second: float = 20.0
    """Pace of the single moves."""
    empty_at: tuple[float, ...] = (0.2, 0.5, 0.8)
    """Parts of the stream after which one node is emptied."""
    seed: int = 2013
    """Of the random choices: which aircraft moves, and where to."""
    store: str | None = None
    """URL of the Location Store; None is SQLite in a temporary directory."""
    senders: int = 8
    """Concurrent senders; each aircraft belongs to one of them."""
    window: int = 32
    """Messages one sender may have in flight."""
    request_timeout_s: float = 30.0
    empty_timeout_s: float = 60.0
    """Most the emptying of one node may take."""
    json: bool = False


def parse_settings(
    arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Read the command line. `RATE` and `FLIGHTS` of the environment (`make demo RATE=0`) give defaults.

    Raises:
        SystemExit: with code 2 and a usage text when something cannot be understood.
    """
    environment = os.environ if environment is None else environment
    parser = _parser()
    parser.set_defaults(
        rate=environment.get("RATE") or str(Settings.rate),
        flights=environment.get("FLIGHTS") or "january",
    )
    found = parser.parse_args(arguments)
    try:
        rate = float(found.rate)
    except ValueError:
        parser.error(f"RATE is a number of messages per second (0: full speed), not {found.rate!r}")
    if not 0 <= rate < float("inf"):
        parser.error(f"RATE is 0 or more messages per second, not {found.rate}")
    month, limit = _flights(found.flights, parser)
    for name, value in (("--nodes", found.nodes), ("--workers", found.workers), ("--senders", found.senders)):
        if value < 1:
            parser.error(f"{name} must be at least 1, not {value}")
    return Settings(
        nodes=found.nodes,
        workers=found.workers,
        rate=rate,
        month=month,
        limit=limit,
        moves=found.moves and found.nodes > 1,
        moves_per_second=found.moves_per_second,
        seed=found.seed,
        store=found.store,
        senders=found.senders,
        json=found.json,
    )


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def _flights(word: str, parser: argparse.ArgumentParser) -> tuple[int | None, int | None]:
    """`all`, a month by name, or a number of messages out of January: month and limit."""
    word = word.lower()
    if word == "all":
        return None, None
    if len(word) >= 3 and word[:3] in _MONTHS:
        return _MONTHS.index(word[:3]) + 1, None
    if not word.isdecimal() or int(word) < 1:
        parser.error(f"FLIGHTS is 'all', a month such as 'january', or a number of messages, not {word!r}")
    return 1, int(word)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.flights",
        description="Replay the flights of 2013 over a cluster whose aircraft keep moving.",
    )
    add = parser.add_argument
    add("--nodes", type=int, default=Settings.nodes, help="nodes of the cluster (default %(default)s)")
    add("--workers", type=int, default=Settings.workers, help="workers per node (default %(default)s)")
    add("--rate", metavar="N", help="messages per second, 0 for full speed (default 2000, or $RATE)")
    add("--flights", metavar="WHICH", help="all, a month, or a number (default january, or $FLIGHTS)")
    add("--no-moves", dest="moves", action="store_false", help="move nothing while the stream runs")
    add("--moves-per-second", type=float, default=Settings.moves_per_second, metavar="N")
    add("--seed", type=int, default=Settings.seed, help="of the random choices (default %(default)s)")
    add("--store", metavar="URL", help="Location Store (default: SQLite in a temporary directory)")
    add("--senders", type=int, default=Settings.senders, metavar="N", help="concurrent senders")
    add("--json", action="store_true", help="print the result as JSON")
    return parser
