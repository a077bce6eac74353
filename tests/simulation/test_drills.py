"""The planted bugs that show at once; `make drills` plays them all."""

from __future__ import annotations

import pytest

from tests.simulation.drills import PAGE, drill
from tests.simulation.mutants import MUTANTS, Mutant

QUICK = [mutant for mutant in MUTANTS if mutant.seeds_max <= 3]


@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught(mutant: Mutant) -> None:
    assert drill(mutant) is not None


def test_the_page_names_every_planted_bug() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert not [mutant.name for mutant in MUTANTS if mutant.name not in page]
