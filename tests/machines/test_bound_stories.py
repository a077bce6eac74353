"""Moves of a bound Actor, told as short stories: B8.12, B11.2 to B11.4, R4.6.4, R7.2."""

from __future__ import annotations

import pytest
from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff import source_states as ss
from sojourn.handoff import target_states as ts
from sojourn.handoff.machine import Effect, Event, Log
from sojourn.handoff.terms import Outcome

from tests.machines.samples import (
    IDENTITY,
    MANIFEST,
    ROW_FENCED,
    ROW_FIRST,
    ROW_MOVED,
    TARGET_SCRIPTS,
    D,
    Play,
    checksum_of,
    new_source,
    new_target,
)

RELOCATION_ID = IDENTITY.relocation_id


def bound(*events: Event, sessions: int = 1) -> Play:
    play = Play(new_source(sessions))
    play(ev.RelocationStarted(1))
    for event in events:
        play(event)
    return play


STOPPED: list[Event] = [ev.TurnBoundaryReached(), ev.SessionSealed(0)]
CAPTURED: list[Event] = [*STOPPED, ev.ObjectCaptured(MANIFEST)]


def has(effects: list[Effect], *kinds: type[Effect]) -> list[bool]:
    return [any(isinstance(effect, kind) for effect in effects) for kind in kinds]


# boundary, seal, stop


def test_the_boundary_comes_first_then_the_seal_then_the_stop() -> None:
    play = Play(new_source(1))
    assert play(ev.RelocationStarted(1)) == [fx.AwaitTurnBoundary()]
    assert play(ev.TurnBoundaryReached(), at=5.0) == [fx.AskSessionSeal(0)]
    assert play(ev.SessionSealed(0), at=5.2) == [fx.SealObject(6.2)]
    effects = play(ev.ObjectCaptured(MANIFEST))
    assert effects[0] == fx.AskSessionSeal(0), "the same 42 again, behind the last push (B11.3)"
    assert has(effects, fx.SendRestore, fx.SendChunks) == [True, True]


def test_a_unit_without_a_binding_knows_nothing_of_it() -> None:
    play = Play(new_source())
    assert play(ev.RelocationStarted(1)) == [fx.SealObject(D)]
    assert not has(play(ev.ObjectCaptured(MANIFEST)), fx.AskSessionSeal)[0]
    assert isinstance(play.state, ss.TargetRestoring)
    play(ev.RelayReadyReceived(1))
    assert isinstance(play.state, ss.CutoverSubmitting)


def test_every_session_of_a_unit_is_sealed_before_it_stops() -> None:
    play = bound(sessions=3)
    assert play(ev.TurnBoundaryReached()) == [fx.AskSessionSeal(session) for session in range(3)]
    assert play(ev.SessionSealed(1)) == []
    assert play(ev.SessionUnbound(0)) == []
    assert play(ev.SessionSealed(2)) == [fx.SealObject(1.0)]


def test_a_session_owner_that_is_gone_counts_as_no_binding() -> None:
    play = bound(ev.TurnBoundaryReached())
    assert play(ev.SessionUnbound(0)) == [fx.SealObject(1.0)]


def test_a_refused_seal_ends_the_move_before_anything_stopped() -> None:
    play = bound(ev.TurnBoundaryReached())
    effects = play(ev.SessionRefused(0, "another relocation"))
    assert effects[0] == fx.AbortSessions()
    assert isinstance(effects[1], fx.ReportOutcome)
    assert effects[1].outcome is Outcome.FAILED
    assert not has(effects, fx.RestoreDispatch, fx.SealObject)[0]


def test_a_turn_that_never_ends_costs_the_move_and_nothing_else() -> None:
    play = bound()
    assert play.machine.deadline == D - 2.0
    effects = play.wait()
    assert not has(effects, fx.AbortSessions)[0], "no 42 went out"
    assert has(effects, fx.ReportOutcome)[0]


def test_a_session_owner_that_does_not_answer_is_told_to_let_go() -> None:
    play = bound(ev.TurnBoundaryReached())
    assert play.machine.deadline == 1.5
    effects = play.wait()
    assert effects[0] == fx.AbortSessions()
    assert isinstance(play.state, ss.SourceRestored)


def test_no_seal_is_asked_for_with_less_than_two_seconds_left() -> None:
    play = bound()
    effects = play(ev.TurnBoundaryReached(), at=D - 2.0)
    assert not has(effects, fx.AskSessionSeal, fx.AbortSessions)[0]
    assert isinstance(play.state, ss.SourceRestored)


def test_a_turn_that_outlasts_its_second_postpones_the_move() -> None:
    play = bound(*STOPPED, ev.RecordArrived("h1"))
    assert play(ev.TurnOutlasted()) == [fx.RestoreDispatch(("h1",), False)]
    effects = play(ev.DispatchRestored())
    assert effects[0] == fx.AbortSessions()
    assert isinstance(effects[1], fx.ReportOutcome)
    assert effects[1].outcome is Outcome.POSTPONED
    assert isinstance(effects[2], fx.ForgetHandoff), "the next attempt has another identity"


def test_a_cancellation_while_the_object_still_runs_gives_the_seal_back() -> None:
    assert play_kinds(bound(), ev.CancelRequested()) == [fx.ReportOutcome, fx.ForgetHandoff]
    asked = bound(ev.TurnBoundaryReached())
    assert play_kinds(asked, ev.CancelRequested()) == [fx.AbortSessions, fx.ReportOutcome, fx.ForgetHandoff]


def play_kinds(play: Play, event: Event) -> list[type[Effect]]:
    return [type(effect) for effect in play(event)]


# the abort


@pytest.mark.parametrize("failure", [ev.RelocationFailedReceived(17, 1), ev.CancelRequested()])
def test_the_abort_goes_out_only_when_the_queue_is_back(failure: Event) -> None:
    play = bound(*CAPTURED)
    effects = play(failure)
    assert not has(effects, fx.AbortSessions)[0]
    if isinstance(play.state, ss.FenceWriting):
        effects = play(ev.FenceUnknown())
        assert not has(effects, fx.AbortSessions)[0], "a fence is out (B6.7)"
        effects = play(ev.RowRead(ROW_FENCED))
    assert has(effects, fx.RestoreDispatch, fx.AbortSessions) == [True, False]
    effects = play(ev.DispatchRestored())
    assert effects[0] == fx.AbortSessions()


def test_an_object_that_does_not_come_back_aborts_no_seal() -> None:
    play = bound(*CAPTURED, ev.RelocationFailedReceived(17, 1))
    effects = play(ev.DispatchRestoreFailed("worker gone"))
    assert not has(effects, fx.AbortSessions)[0]
    play = bound(*STOPPED)
    assert not has(play(ev.WorkerLost()), fx.AbortSessions)[0]


def test_a_commit_found_behind_the_fence_aborts_no_seal() -> None:
    play = bound(*CAPTURED, ev.CancelRequested(), ev.FenceConflicted())
    effects = play(ev.RowRead(ROW_MOVED))
    assert not has(effects, fx.AbortSessions)[0]
    assert isinstance(play.state, ss.FollowOnly)


# the second 43


def test_the_cutover_waits_for_the_second_43() -> None:
    play = bound(*CAPTURED, ev.RecordArrived("h1"))
    assert play(ev.RelayReadyReceived(1), at=1.0) == []
    assert isinstance(play.state, ss.CutoverPending)
    play(ev.RecordArrived("h2"))
    effects = play(ev.SessionSealed(0), at=1.1)
    assert effects == [fx.SendRelay(1, ("h1", "h2")), fx.SendCutover(1, 2, checksum_of("h1", "h2"))]


def test_a_second_43_that_came_before_relay_ready_costs_nothing() -> None:
    play = bound(*CAPTURED, ev.SessionSealed(0))
    effects = play(ev.RelayReadyReceived(1))
    assert effects == [fx.SendCutover(1, 0, 0)]


def test_half_of_the_cutover_wait_is_enough() -> None:
    play = bound(*CAPTURED)
    play(ev.RelayReadyReceived(1), at=1.0)
    assert play.machine.deadline == 1.5
    effects = play.wait()
    assert [effect.name for effect in effects if isinstance(effect, Log)] == ["session_unconfirmed"]
    assert fx.SendCutover(1, 0, 0) in effects
    assert play(ev.SessionSealed(0)) == []


def test_a_cut_while_the_cutover_waits_is_a_submit_that_failed() -> None:
    play = bound(*CAPTURED, ev.RecordArrived("h1"), ev.RelayReadyReceived(1))
    effects = play(ev.LinkLost(1))
    assert has(effects, fx.EndDispatch, fx.ReadRow) == [True, True]
    effects = play(ev.LinkRestored(2))
    assert effects == [fx.SendRelay(2, ("h1",)), fx.SendCutover(2, 1, checksum_of("h1"))]


def test_past_the_boundary_nothing_aborts() -> None:
    play = bound(*CAPTURED, ev.RelayReadyReceived(1))
    assert play(ev.CancelRequested()) == []
    assert play(ev.RelocationFailedReceived(17, 1)) == []
    assert isinstance(play.state, ss.CutoverPending)


# the target


def target(*, is_bound: bool) -> Play:
    play = Play(new_target())
    row = ROW_FIRST._replace(bound=is_bound)
    for event in TARGET_SCRIPTS[ts.Opening]:
        play(ev.RowRead(row) if isinstance(event, ev.RowRead) else event)
    return play


def test_the_target_tells_the_session_after_it_opened() -> None:
    assert target(is_bound=True)(ev.DispatchOpened()) == [fx.CommitSessions()]
    assert target(is_bound=False)(ev.DispatchOpened()) == []


def test_a_target_that_did_not_open_tells_nobody() -> None:
    effects = target(is_bound=True)(ev.DispatchOpenFailed("worker gone"))
    assert not has(effects, fx.CommitSessions)[0]
