"""A fixed set of seeds, and those that once showed a bug; `make sim SEEDS=FROM:TO` plays more."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.simulation.mix import Mix, draw_mix
from tests.simulation.world import World

SESSIONS = (137, 55)
"""Held messages overtook one another behind a marker; a move began while another still sealed the session."""
KEPT = (13, 25, 27, 36, 162, 214, 270, 317, 561)


def mix_of_seed(seed: int) -> Mix:
    return draw_mix(Random(seed ^ 0x5EED))


@pytest.mark.parametrize("seed", [*range(10), *KEPT])
def test_seed(seed: int) -> None:
    plain = replace(mix_of_seed(seed), members=0, touches=0.0, sessions=0, long_turns=0.0)
    World(seed, plain).play()


@pytest.mark.parametrize("seed", range(12))
def test_seed_with_units_of_several_participants(seed: int) -> None:
    """Spots with one to three members, whose rows somebody else rewrites meanwhile (R3.3, B6.5)."""
    world = World(seed, replace(mix_of_seed(seed), members=1 + seed % 3, touches=30.0))
    world.play()
    assert world.handoffs


@pytest.mark.parametrize("seed", [*range(10), *SESSIONS])
def test_seed_with_sessions(seed: int) -> None:
    """Clients that are bound to the objects, and turns that outlast a session seal (B8.12)."""
    mix = replace(
        mix_of_seed(seed), members=0, touches=0.0, sessions=5, client_every_s=0.01, long_turns=0.002
    )
    world = World(seed, mix)
    world.play()
    assert world.history.counts["sessions switched"]
