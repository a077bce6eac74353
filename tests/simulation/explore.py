"""`python -m tests.simulation.explore`: every interleaving of one handoff, not a sample of them.

One object, one source, one target, one store, one link: every order in which frames, store calls, their
answers, records and a bounded number of faults can happen, walked over hashed states. Time passes only when
nothing else can happen, or, as a fault, although something can (a timer that fires early for its frame).

Checked in every state: never two open instances, nobody runs without owning, nothing is restored past the
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.explored_model import RECORDS, Model
from tests.simulation.history import Violation

__all__ = ["explore"]


def explore(faults: int, records: tuple[str, ...], limit_s: float = 1e9) -> tuple[int, int, bool]:
    """States visited, ends reached, and whether all of them were visited in the time given.

    Raises:
        Violation: with the shortest kind of story: the steps that led there.
    """
    stopped_at = time.monotonic() + limit_s
    first = Model(faults, records)
    seen = {first.key()}
    stack: list[tuple[Model, tuple[str, ...]]] = [(first, ())]
    ends = 0
    while stack:
        model, path = stack.pop()
        if time.monotonic() > stopped_at:
            return len(seen), ends, False
        moved = False
        for name, step in model.steps():
            after = model.clone()
            try:
                step(after)
            except Violation as broken:
                raise Violation(f"{broken}\n" + "\n".join((*path, name))) from broken
            moved = True
            key = after.key()
            if key not in seen:
                seen.add(key)
                stack.append((after, (*path, name)))
        if not moved:
            ends += 1
            try:
                model.check_end()
            except Violation as broken:
                raise Violation(f"{broken}\n" + "\n".join(path)) from broken
    return len(seen), ends, True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.explore", description=__doc__)
    parser.add_argument("--faults", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds")
    arguments = parser.parse_args()
    started = time.perf_counter()
    try:
        states, ends, whole = explore(arguments.faults, RECORDS, arguments.limit)
    except Violation as broken:
        print(f"violation: {broken}")
        return 1
    took = time.perf_counter() - started
    print(
        f"{states:,} states, {ends:,} ends, {'all' if whole else 'NOT all'} visited in {took:.1f} s: no violation"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
