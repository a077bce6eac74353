"""Of two prepares for one temporary queue one ends (R11.2, B8.16); on real nodes: CT-32.

What a target holds for a Join from its Restore request to relay-ready is an attempt like any other.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff import target_states as ts
from sojourn.handoff.machine import State
from sojourn.handoff.rivals import RivalVerdict, holds_object, judge_rivals
from sojourn.handoff.terms import DirectDisposal, RowFacts

from tests.machines.samples import IDENTITY, ROW_FIRST, new_target, target_in

PREWARM = (ts.Assembling, ts.RestoringObject, ts.ObjectStaged)
"""What a join prewarms: before relay-ready."""
LATER = (ts.RelayReady, ts.OwnerWriting, ts.OwnerChecking, ts.OwnerPausing)
AGAIN = IDENTITY._replace(relocation_id=(0, 8))
"""A new identity of the same source, from the same row."""
AFTER = IDENTITY._replace(relocation_id=(0, 9), expected_version="v6")
"""A new identity that began with a later row."""


def judged(state: type[State], newcomer: Any, row: RowFacts | None) -> RivalVerdict:
    older: Any = target_in(state).machine
    return judge_rivals(row, older, newcomer)


@pytest.mark.parametrize("state", PREWARM)
def test_a_new_identity_aborts_the_prewarm_of_an_older_one(state: type[State]) -> None:
    assert judged(state, AGAIN, ROW_FIRST) == RivalVerdict(older_lives=False, newcomer_lives=True)


@pytest.mark.parametrize("state", LATER)
def test_what_sent_relay_ready_is_no_prewarm_any_more(state: type[State]) -> None:
    assert judged(state, AGAIN, ROW_FIRST) == RivalVerdict(older_lives=True, newcomer_lives=False)


@pytest.mark.parametrize("state", [*PREWARM, *LATER])
def test_the_newest_attempt_is_the_one_whose_row_stands(state: type[State]) -> None:
    """Not the one that came last: what began with an older row ends, whichever came first."""
    assert judged(state, AFTER, ROW_FIRST._replace(version="v6")) == RivalVerdict(False, True)
    assert judged(state, AFTER, ROW_FIRST) == RivalVerdict(True, False)


def test_never_do_two_live() -> None:
    rows = (None, ROW_FIRST, *(ROW_FIRST._replace(version=version) for version in ("v6", "v7")))
    for state, newcomer, row in product((*PREWARM, *LATER), (AGAIN, AFTER), rows):
        verdict = judged(state, newcomer, row)
        assert not (verdict.older_lives and verdict.newcomer_lives), (state, newcomer, row)


@pytest.mark.parametrize("state", PREWARM)
def test_the_aborted_one_says_so_and_hands_over_its_queue(state: type[State]) -> None:
    play = target_in(state)
    play(ev.DirectArrived("d1"))
    effects = play(ev.RivalPreferred())
    failures = [effect for effect in effects if isinstance(effect, fx.SendRelocationFailed)]
    assert failures == ([] if state is ts.ObjectStaged else [fx.SendRelocationFailed(1, 21)])
    (drop,) = (effect for effect in effects if isinstance(effect, fx.DropTarget))
    assert (drop.direct, drop.disposal) == (("d1",), DirectDisposal.HAND_OVER)
    assert not holds_object(play.machine)  # type: ignore[arg-type]
    assert play(ev.RivalPreferred()) == []


def test_nothing_is_held_before_the_restore_request() -> None:
    """No Restore request comes before the seal: it names length and checksum of what was captured."""
    assert not holds_object(new_target())


@pytest.mark.parametrize("state", [*PREWARM, *LATER])
@pytest.mark.parametrize("actor", ["v5", "a6"])
@pytest.mark.parametrize("spot", ["s3", "s4"])
def test_a_unit_whose_member_is_staged_alone_is_judged_by_both_rows(
    state: type[State], actor: str, spot: str
) -> None:
    """The Actor's row for the older attempt, the Spot's for the unit."""
    alone: Any = target_in(state).machine
    unit = IDENTITY._replace(relocation_id=(0, 8), expected_version="s3")
    row, own = ROW_FIRST._replace(version=actor), ROW_FIRST._replace(version=spot)
    verdict = judge_rivals(row, alone, unit, own)
    named, unit_named = actor == "v5", spot == "s3"
    if named and unit_named:
        assert verdict == RivalVerdict(state in LATER, state not in LATER)
    else:
        committing = state in (ts.OwnerWriting, ts.OwnerChecking, ts.OwnerPausing)
        assert verdict == RivalVerdict(named or (committing and not unit_named), unit_named)


def test_an_actor_that_is_staged_with_its_spot_is_judged_by_both_rows() -> None:
    """Two own rows, one temporary queue: the Spot's row for the unit, the Actor's for the newcomer."""
    older: Any = target_in(ts.Assembling).machine
    alone = IDENTITY._replace(relocation_id=(0, 8), expected_version="a3")
    actor = ROW_FIRST._replace(version="a3")
    moved_on = ROW_FIRST._replace(version="v6")
    assert judge_rivals(ROW_FIRST, older, alone, actor) == RivalVerdict(False, True)
    assert judge_rivals(moved_on, older, alone, actor) == RivalVerdict(False, True)
    stale = actor._replace(version="a4")
    assert judge_rivals(ROW_FIRST, older, alone, stale) == RivalVerdict(True, False)
    assert judge_rivals(moved_on, older, alone, stale) == RivalVerdict(False, False)
