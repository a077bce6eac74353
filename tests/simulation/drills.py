"""`python -m tests.simulation.drills`: every planted bug must be caught, and the same seeds pass without it.

Prints, and with `--write` puts into docs/design/drills.md, how many seeds each needed.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.simulation.history import Violation
from tests.simulation.mix import Mix, draw_mix
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.world import World

__all__ = ["drill", "mix_of"]

PAGE = Path(__file__).parents[2] / "docs" / "design" / "drills.md"


def mix_of(mutant: Mutant, seed: int) -> Mix:
    """The seed's own mix with what the drill asks for."""
    mix = draw_mix(Random(seed ^ 0x5EED))
    return replace(mix, store=mix.store._replace(**mutant.store), **mutant.mix)


def drill(mutant: Mutant) -> tuple[int, str] | None:
    """How many seeds it took, and what was seen; None when it was not caught."""
    for seed in range(mutant.seeds_max):
        mix = mix_of(mutant, seed)
        world = World(seed, mix)
        mutant.plant(world)
        try:
            world.play()
        except Violation as caught:
            World(seed, mix).play()  # the same run without the bug keeps every promise
            return seed + 1, str(caught)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.drills", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--only", default="", help="only drills whose name contains this")
    arguments = parser.parse_args()
    rows = []
    escaped = 0
    for mutant in MUTANTS:
        if arguments.only not in mutant.name:
            continue
        try:
            found = drill(mutant)
        except Exception:
            traceback.print_exc()
            found = None
        escaped += found is None
        seeds, seen = found or (0, "NOT CAUGHT")
        print(f"{mutant.rule:8} {mutant.name:80} {seeds:4} of {mutant.seeds_max:4}  {seen[:110]}", flush=True)
        rows.append((mutant, seeds, seen))
    print(f"{len(rows) - escaped} of {len(rows)} planted bugs caught")
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
