"""Planted bugs: each takes one rule out of the machines or of what drives them. Used by the drills only."""

from __future__ import annotations

from tests.simulation.mutants import boundary, commits, fences, leases, limits, order, sessions, units
from tests.simulation.mutants.planting import MUTANTS, Mutant, changed

__all__ = [
    "MUTANTS",
    "Mutant",
    "boundary",
    "changed",
    "commits",
    "fences",
    "leases",
    "limits",
    "order",
    "sessions",
    "units",
]
