"""`python -m tests.simulation --seeds FROM:TO`: play seeds, stop at the first that breaks a promise."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from contextlib import suppress

from sojourn.handoff.machine import IllegalTransition

from tests.simulation.history import Violation
from tests.simulation.world import World

_BROKEN = (Violation, IllegalTransition, AssertionError)


def replay(seed: int) -> World:
    """The same run again, with its story."""
    world = World(seed, tell=True)
    with suppress(*_BROKEN):
        world.play()
    return world


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="FROM:TO, TO excluded; or one seed to replay")
    parser.add_argument("--tell", action="store_true", help="print the story of every seed")
    parser.add_argument("--about", default="", help="print only lines of the story that contain this")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition(":")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    started = time.perf_counter()
    handoffs = 0
    totals: Counter[str] = Counter()
    for seed in seeds:
        world = World(seed, tell=arguments.tell or len(seeds) == 1)
        try:
            world.play()
        except _BROKEN as broken:
            if not arguments.tell and len(seeds) > 1:
                world = replay(seed)
            print(world.story(arguments.about))
            print(f"\nseed {seed} at {world.clock.now:.5f} s: {type(broken).__name__}: {broken}")
            print(f"mix: {world.mix}")
            print(f"replay: python -m tests.simulation --seeds {seed}")
            return 1
        handoffs += world.handoffs
        totals.update(world.history.counts)
        if arguments.tell:
            print(world.story(arguments.about))
    took = time.perf_counter() - started
    for name, number in sorted(totals.items()):
        print(f"{name:40} {number:9}")
    print(
        f"{len(seeds)} seeds, {handoffs} handoffs in {took:.1f} s: {handoffs / took * 60:,.0f} handoffs a minute"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
