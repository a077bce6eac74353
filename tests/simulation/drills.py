"""`python -m tests.simulation.drills`: every planted bug must be caught, and the same seeds pass without it.

Prints, and with `--write` puts into docs/design/drills.md, how many seeds each needed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.simulation.history import Violation
from tests.simulation.mix import PLAIN, Mix, draw_mix
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.world import World

__all__ = ["drill", "mix_of"]

HEAD = """# Planted bugs

Written by one run of `make drills ARGS=--write`. A checker that cannot fail proves nothing: each line takes one rule
out of the machines or of what drives them and plays seeds until the simulation sees a promise broken. The same
seed without the bug is played as well, and keeps every promise. Where a second rule keeps the harm away, the line names
it behind a comma: both are taken out, and the seed keeps every promise without the second alone.
"""
PAGE = Path(__file__).parents[2] / "docs" / "design" / "drills.md"


def mix_of(mutant: Mutant, seed: int) -> Mix:
    """The seed's own mix with what the drill asks for."""
    mix = replace(
        draw_mix(Random(seed ^ 0x5EED)), members=0, touches=0.0, sessions=0, long_turns=0.0, **PLAIN
    )
    return replace(mix, store=mix.store._replace(**mutant.store), **mutant.mix)


def drill(mutant: Mutant) -> tuple[int, str] | None:
    """How many seeds it took, and what was seen; None when it was not caught."""
    for seed in range(mutant.seeds_max):
        mix = mix_of(mutant, seed)
        world = World(seed, mix)
        if mutant.beside is not None:
            mutant.beside(world)
        mutant.plant(world)
        try:
            world.play()
        except Violation as caught:
            if not _harmless(mutant.beside, seed, mix):
                continue
            try:
                World(seed, mix).play()
            except Violation as broken:  # the same run without the bug keeps every promise
                raise RuntimeError(f"{mutant.name}: seed {seed} breaks without the bug: {broken}") from broken
            return seed + 1, str(caught)
    return None


def _harmless(beside: Callable[[World], None] | None, seed: int, mix: Mix) -> bool:
    """Whether what is planted beside a bug keeps every promise of this seed by itself."""
    if beside is None:
        return True
    world = World(seed, mix)
    beside(world)
    try:
        world.play()
    except Violation:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.drills", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--only", default="", help="only drills whose name contains this")
    arguments = parser.parse_args()
    rows: list[tuple[Mutant, int, str]] = []
    for mutant in MUTANTS:
        if arguments.only in mutant.name:
            seeds, seen = drill(mutant) or (0, "")
            rows.append((mutant, seeds, seen))
            print(_line(mutant, seeds, seen), flush=True)
    escaped = [mutant.name for mutant, seeds, _ in rows if not seeds and not mutant.survives]
    caught = sum(1 for _, seeds, _ in rows if seeds)
    print(f"{caught} caught, {len(rows) - caught - len(escaped)} known to do no harm, {len(escaped)} escaped")
    if arguments.write:
        PAGE.write_text(page(rows), encoding="utf-8")
    return 1 if escaped else 0


def _line(mutant: Mutant, seeds: int, seen: str) -> str:
    result = f"seed {seeds:3}" if seeds else "no harm " if mutant.survives else "ESCAPED "
    return f"{mutant.rule:7} {result} of {mutant.seeds_max:3}  {mutant.name}: {seen or mutant.survives}"[:200]


def page(rows: list[tuple[Mutant, int, str]]) -> str:
    """The page with both tables."""
    lines = [HEAD, "| planted bug | rule | seeds needed | at most |", "|---|---|---|---|"]
    for mutant, seeds, _ in rows:
        if seeds:
            lines.append(f"| {mutant.name} | {mutant.rule} | {seeds} | {mutant.seeds_max} |")
    lines += ["", "Rules whose absence did no harm in the simulation, and why they stay:", ""]
    lines += ["| left out | rule | seeds played | why it does no harm |", "|---|---|---|---|"]
    for mutant, seeds, _ in rows:
        if not seeds:
            lines.append(f"| {mutant.name} | {mutant.rule} | {mutant.seeds_max} | {mutant.survives} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
