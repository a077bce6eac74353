"""`python -m tests.simulation --seeds FROM:TO`: play seeds, stop at the first that breaks a promise."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from contextlib import suppress
from random import SystemRandom

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


def seeds_of(text: str) -> range:
    """What FROM:TO or one number names; empty where it names no seed, so that nobody takes it for a run without a fault."""
    first, colon, last = text.partition(":")
    try:
        return range(int(first), int(last) if colon else int(first) + 1)
    except ValueError:
        return range(0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="FROM:TO, TO excluded; or one seed to replay")
    parser.add_argument("--tell", action="store_true", help="print the story of every seed")
    parser.add_argument("--about", default="", help="print only lines of the story that contain this")
    parser.add_argument("--all", action="store_true", help="go on after a broken promise, and list the seeds")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no seed after this long")
    parser.add_argument("--fresh", action="store_true", help="play seeds that nobody has played, not --seeds")
    arguments = parser.parse_args()
    seeds = seeds_of(arguments.seeds)
    if not seeds:
        parser.error(f"--seeds {arguments.seeds}: FROM:TO with TO greater than FROM, or one number")
    arguments.tell = arguments.tell or (len(seeds) == 1 and not arguments.fresh)
    if arguments.fresh:
        first_fresh = SystemRandom().randrange(1_000_000, 1_000_000_000)
        seeds = range(first_fresh, first_fresh + 1_000_000)
        print(f"fresh seeds from {first_fresh}", flush=True)
    started, worked = time.perf_counter(), time.process_time()
    handoffs = played = 0
    broken_seeds: list[int] = []
    totals: Counter[str] = Counter()
    for seed in seeds:
        if time.perf_counter() - started > arguments.seconds:
            break
        played += 1
        world = World(seed, tell=arguments.tell)
        try:
            world.play()
        except _BROKEN as broken:
            broken_seeds.append(seed)
            if not arguments.all:
                world = world if world.telling else replay(seed)
                print(world.story(arguments.about))
            what = str(broken).splitlines()[0]
            print(f"\nseed {seed} at {world.clock.now:.5f} s: {type(broken).__name__}: {what}")
            print(f"mix: {world.mix}")
            print(f"replay: python -m tests.simulation --seeds {seed}", flush=True)
            if not arguments.all:
                return 1
        handoffs += world.handoffs
        totals.update(world.history.counts)
        if arguments.tell:
            print(world.story(arguments.about))
    took, worked = time.perf_counter() - started, time.process_time() - worked
    for name, number in sorted(totals.items()):
        print(f"{name:40} {number:9}")
    print(
        f"{played} seeds, {handoffs} handoffs in {took:.1f} s, {worked:.1f} s of them on a core: "
        f"{handoffs / worked * 60:,.0f} handoffs a minute of a core"
    )
    if broken_seeds:
        print(f"broken: {broken_seeds}")
    return 1 if broken_seeds else 0


if __name__ == "__main__":
    sys.exit(main())
