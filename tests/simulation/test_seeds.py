"""A fixed set of seeds, and those that once showed a bug; `make sim SEEDS=FROM:TO` plays more."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.simulation.mix import Mix, draw_mix
from tests.simulation.world import World

KEPT = (13, 25, 27, 36, 162, 214, 270, 317, 561)


def mix_of_seed(seed: int) -> Mix:
    return draw_mix(Random(seed ^ 0x5EED))


@pytest.mark.parametrize("seed", [*range(10), *KEPT])
def test_seed(seed: int) -> None:
    World(seed, replace(mix_of_seed(seed), members=0, touches=0.0)).play()


@pytest.mark.parametrize("seed", range(12))
def test_seed_with_units_of_several_participants(seed: int) -> None:
    """Spots with one to three members, whose rows somebody else rewrites meanwhile (R3.3, B6.5)."""
    world = World(seed, replace(mix_of_seed(seed), members=1 + seed % 3, touches=30.0))
    world.play()
    assert world.handoffs
