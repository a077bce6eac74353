"""A fixed set of seeds in the ordinary test run; `make sim SEEDS=FROM:TO` plays more."""

from __future__ import annotations

import pytest

from tests.simulation.world import World


@pytest.mark.parametrize("seed", range(12))
def test_seed(seed: int) -> None:
    World(seed).play()
