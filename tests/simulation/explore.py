"""`python -m tests.simulation.explore`: every interleaving of one handoff, not a sample of them.

One unit, one source, one target, one store, one link: every order in which frames, store calls, their answers,
records and a bounded number of faults can happen, walked over hashed states. Time passes only when nothing else
can happen, or, as a fault, although something can (a timer that fires early for its frame).

What is checked stands in `tests.simulation.explored_model`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from sojourn.handoff.machine import IllegalTransition

from tests.simulation.explored_model import WORLDS, Model, Unit
from tests.simulation.history import Violation

__all__ = ["Walk", "explore"]

Path = tuple[Any, str]
"""The path before, and the step that led on."""


class Walk(NamedTuple):
    """What a walk has seen."""

    states: int
    ends: int
    whole: bool
    """All of them were visited in the time given."""


def explore(
    faults: int,
    unit: Unit,
    limit_s: float = 1e9,
    model: type[Model] = Model,
    visit: Callable[[Model], None] | None = None,
) -> Walk:
    """Visit every state that can be reached. A state is remembered by a hash of 64 bits.

    `visit` is shown each state once, and must leave it as it is.

    Raises:
        Violation: with its story: the steps that led there.
    """
    stopped_at = time.monotonic() + limit_s
    first = model(faults, unit)
    seen = {hash(first.key())}
    stack: list[tuple[Model, Path | tuple[()]]] = [(first, ())]
    ends = 0
    while stack:
        here, path = stack.pop()
        if time.monotonic() > stopped_at:
            return Walk(len(seen), ends, False)
        if visit is not None:
            visit(here)
        moved = False
        for name, step in here.steps():
            after = here.clone()
            try:
                step(after)
            except (Violation, IllegalTransition) as broken:
                raise Violation(_story(broken, (path, name))) from broken
            moved = True
            mark = hash(after.key())
            if mark not in seen:
                seen.add(mark)
                stack.append((after, (path, name)))
        if not moved:
            ends += 1
            try:
                here.check_end()
            except Violation as broken:
                raise Violation(_story(broken, path)) from broken
    return Walk(len(seen), ends, True)


def _story(broken: Exception, path: Path | tuple[()]) -> str:
    names: list[str] = []
    while path:
        path, name = path  # type: ignore[misc]
        names.append(name)
    return "\n".join((str(broken), *reversed(names)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.explore", description=__doc__)
    parser.add_argument("--world", choices=[*WORLDS, "all"], default="all")
    parser.add_argument("--faults", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=(), help="how the faults begin that may happen")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for each world")
    arguments = parser.parse_args()
    worlds = WORLDS if arguments.world == "all" else {arguments.world: WORLDS[arguments.world]}
    model = type("Narrowed", (Model,), {"only": tuple(arguments.only)})
    for name, unit in worlds.items():
        started = time.perf_counter()
        try:
            walk = explore(arguments.faults, unit, arguments.limit, model)
        except Violation as broken:
            print(f"{name}: violation: {broken}")
            return 1
        took = time.perf_counter() - started
        print(
            f"{name}, up to {arguments.faults} faults: {walk.states:,} states, {walk.ends:,} ends, "
            f"{'all' if walk.whole else 'NOT all'} visited in {took:.1f} s: no violation",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
