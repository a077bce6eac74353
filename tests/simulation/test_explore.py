"""Every interleaving of one handoff with one fault; `make explore` walks those with two."""

from __future__ import annotations

from typing import Any

import pytest
from sojourn.handoff import events as ev
from sojourn.handoff import target_states as ts
from sojourn.handoff.source import SourceHandoff
from sojourn.handoff.target import TargetHandoff
from sojourn.handoff.terms import DirectDisposal

from tests.simulation import explored_model
from tests.simulation.explore import explore
from tests.simulation.explored_model import RECORDS
from tests.simulation.history import Violation
from tests.simulation.mutants import changed


def test_no_interleaving_with_one_fault_breaks_a_promise() -> None:
    states, ends, whole = explore(1, RECORDS)
    assert whole
    assert states > 10_000
    assert ends > 10


def test_the_explorer_can_fail_at_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def bare(self: Any, state: Any, reason: Any) -> None:
        self._restore(state.hold, reason, captured=True)

    monkeypatch.setattr(explored_model, "SourceHandoff", changed(SourceHandoff, {}, _fence=bare))
    with pytest.raises(Violation, match="opens while"):
        explore(1, RECORDS)


def test_the_explorer_can_fail_at_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(self: Any, state: Any, event: Any, now: float) -> None:
        self._remove(state, "conflict", None, DirectDisposal.FAIL)

    bug = changed(TargetHandoff, {(ts.OwnerWriting, ev.OwnerWriteConflicted): stale})
    monkeypatch.setattr(explored_model, "TargetHandoff", bug)
    with pytest.raises(Violation, match="drops what it owns"):
        explore(1, RECORDS)
