"""`LocalHandoff`: every (state, event) pair, and the stories of a move within a node (B8.7)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff import local
from sojourn.handoff.local import LocalHandoff, LocalPlan
from sojourn.handoff.machine import DeadlineReached, Effect, Event, IllegalTransition, Log, State
from sojourn.handoff.terms import Outcome, ParticipantFacts

from tests.machines.samples import (
    IDENTITY,
    MANIFEST,
    ROW_FIRST,
    ROW_LOST,
    ROW_MOVED_ON,
    ROW_OF_UNIT,
    ROW_REBORN,
    SAMPLES,
    A,
    D,
)
from tests.machines.test_tables import check_effects

ROW_WRITTEN = ROW_FIRST._replace(version="v6", owner_generation=5, relocation_id=IDENTITY.relocation_id)
ROW_REWRITTEN = ROW_FIRST._replace(version="v6")
STALE_COMMIT = ROW_WRITTEN._replace(relocation_id=(9, 9))
PLAN = LocalPlan(IDENTITY, 1, 4, D)

_SEALING: list[Event] = [ev.RelocationStarted(0), ev.RecordArrived("h1")]
_STAGING: list[Event] = [*_SEALING, ev.ObjectCaptured(MANIFEST)]
_WRITING: list[Event] = [*_STAGING, ev.ObjectRestored()]
_CHECKING: list[Event] = [*_WRITING, ev.OwnerWriteUnknown()]
_OPENING: list[Event] = [*_WRITING, ev.OwnerWritten()]
SCRIPTS: dict[type[State], list[Event]] = {
    local.Running: [],
    local.Sealing: _SEALING,
    local.Staging: _STAGING,
    local.OwnerWriting: _WRITING,
    local.OwnerChecking: _CHECKING,
    local.OwnerPausing: [*_CHECKING, ev.RowReadFailed()],
    local.Opening: _OPENING,
    local.Returning: [*_STAGING, ev.RestoreFailed("no")],
    local.Over: [*_OPENING, ev.DispatchOpened()],
}


class Play:
    """A machine with a clock."""

    def __init__(self, plan: LocalPlan = PLAN) -> None:
        self.machine = LocalHandoff(plan)
        self.now = 0.0

    def __call__(self, event: Event, at: float | None = None) -> list[Effect]:
        self.now = self.now if at is None else at
        return self.machine.handle(event, self.now)

    def wait(self) -> list[Effect]:
        assert self.machine.deadline is not None
        return self(DeadlineReached(), max(self.machine.deadline, self.now))

    @property
    def state(self) -> State:
        return self.machine.state


def in_state(kind: type[State]) -> Play:
    play = Play()
    if kind is local.Abandoning:
        play = in_state(local.Sealing)
        play(DeadlineReached(), at=D)
        return play
    for event in SCRIPTS[kind]:
        play(event)
    assert type(play.state) is kind
    return play


def kinds(effects: list[Effect]) -> list[type[Effect]]:
    return [type(effect) for effect in effects]


PAIRS = [
    (state, event)
    for state in LocalHandoff.STATES
    for kind in LocalHandoff.EVENTS
    for event in (
        [ev.RowRead(row) for row in (ROW_FIRST, ROW_WRITTEN, ROW_REWRITTEN, ROW_REBORN, ROW_LOST, None)]
        if kind is ev.RowRead
        else SAMPLES[kind]
    )
]


@pytest.mark.parametrize(("state", "event"), PAIRS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_pair(state: type[State], event: Event) -> None:
    play = in_state(state)
    if (state, type(event)) not in LocalHandoff.rules:
        with pytest.raises(IllegalTransition, match="its story"):
            play(event)
        return
    held = play.machine.held
    effects = play(event)
    check_effects(list(effects))
    found = set(kinds(effects))
    if fx.OpenDispatch in found:
        assert state in (local.OwnerWriting, local.OwnerChecking)
        assert fx.RestoreDispatch not in found
        assert effects.index(fx.DropObject("RelocationOut")) < kinds(effects).index(fx.OpenDispatch)
    if fx.WriteOwner in found:
        assert fx.WriteOwner("v5", 5) in effects, "only ever the version first read (R4.5.1)"
    ends = (fx.OpenDispatch, fx.RestoreDispatch, fx.FailHeld)
    left = play.machine.held
    if not found & {*ends}:
        assert left[: len(held)] == held, "a record was forgotten"


# stories


def test_a_move_without_trouble() -> None:
    play = Play()
    assert play(ev.RelocationStarted(0)) == [fx.SealObject(D)]
    assert play(ev.RecordArrived("h1")) == []
    assert play(ev.ObjectCaptured(MANIFEST)) == [fx.RestoreObject(1, 5)]
    play(ev.RecordArrived("h2"))
    assert play(ev.ObjectRestored()) == [fx.WriteOwner("v5", 5)]
    play(ev.RecordArrived("h3"))
    assert play(ev.OwnerWritten()) == [
        fx.EndDispatch(),
        fx.DropObject("RelocationOut"),
        fx.OpenDispatch((), ("h1", "h2", "h3")),
    ]
    assert play(ev.DispatchOpened()) == [
        fx.ReleasePayload(),
        fx.ReportOutcome(Outcome.MOVED),
        fx.ForgetHandoff(),
    ]
    assert play.machine.deadline is None


def test_too_little_time_left() -> None:
    play = Play()
    effects = play(ev.RelocationStarted(0), at=D - 1)
    assert kinds(effects) == [fx.ReportOutcome, fx.ForgetHandoff]


@pytest.mark.parametrize(
    ("state", "event", "captured"),
    [
        (local.Sealing, ev.CaptureRefused("busy"), False),
        (local.Staging, ev.RestoreFailed("worker 1 ended"), True),
    ],
)
def test_before_the_write_every_failure_gives_it_back(
    state: type[State], event: Event, captured: bool
) -> None:
    play = in_state(state)
    effects = play(event)
    assert effects[-1] == fx.RestoreDispatch(("h1",), captured)
    assert (fx.DropStaged in kinds(effects)) is captured
    effects = play(ev.DispatchRestored())
    assert kinds(effects)[-2:] == [fx.ReportOutcome, fx.ForgetHandoff]
    assert (fx.ReleasePayload in kinds(effects)) is captured


def test_a_turn_that_outlasts_the_deadline_is_not_waited_for_by_the_caller() -> None:
    play = in_state(local.Sealing)
    assert [type(effect) for effect in play(DeadlineReached(), at=D)] == [fx.ReportOutcome]
    play(ev.RecordArrived("h2"))
    assert play(ev.CaptureRefused("it ended too late")) == [fx.RestoreDispatch(("h1", "h2"), False)]
    assert play(ev.DispatchRestored()) == [fx.ForgetHandoff()]


def test_a_capture_that_comes_too_late_is_given_back() -> None:
    play = in_state(local.Abandoning)
    assert play(ev.ObjectCaptured(MANIFEST)) == [fx.DropStaged(), fx.RestoreDispatch(("h1",), True)]
    assert play(ev.DispatchRestored()) == [fx.ReleasePayload(), fx.ForgetHandoff()]


def test_the_other_worker_takes_too_long() -> None:
    play = in_state(local.Staging)
    assert play(DeadlineReached(), at=D - 1) == []
    assert kinds(play(DeadlineReached(), at=D)) == [fx.DropStaged, fx.RestoreDispatch]
    assert play(ev.ObjectRestored()) == []


def test_an_unknown_outcome_is_read_and_the_row_decides() -> None:
    play = in_state(local.OwnerWriting)
    assert play(ev.OwnerWriteUnknown()) == [fx.ReadRow()]
    assert fx.OpenDispatch((), ("h1",)) in play(ev.RowRead(ROW_WRITTEN))


def test_an_unknown_outcome_has_no_deadline_and_no_way_back() -> None:
    """A write that may still arrive makes every other decision a guess: only who asked is told in time."""
    play = in_state(local.OwnerChecking)
    play(ev.RowRead(ROW_FIRST), at=D + 5)
    assert isinstance(play.state, local.OwnerPausing)
    effects = play.wait()
    assert (
        fx.ReportOutcome(Outcome.IN_DOUBT, "the store could not tell whether the owner was written")
        in effects
    )
    assert any(isinstance(each, Log) and each.name == "location_update_failed" for each in effects)
    assert play.wait() == [fx.WriteOwner("v5", 5)]
    for _ in range(20):
        play(ev.OwnerWriteFailed(), at=play.now + 60)
        effects = play.wait()
        assert effects == [fx.WriteOwner("v5", 5)]
    assert fx.OpenDispatch((), ("h1",)) in play(ev.OwnerWritten())
    assert play(ev.DispatchOpened()) == [fx.ReleasePayload(), fx.ForgetHandoff()]


def test_a_store_that_is_away_lets_it_go_back_at_the_deadline() -> None:
    play = in_state(local.OwnerWriting)
    play(ev.OwnerWriteFailed())
    assert play.wait() == [fx.WriteOwner("v5", 5)]
    assert kinds(play(ev.OwnerWriteFailed(), at=D)) == [fx.DropStaged, fx.RestoreDispatch]


def test_a_conflict_with_an_untouched_row_is_tried_again() -> None:
    play = in_state(local.OwnerWriting)
    play(ev.OwnerWriteConflicted())
    assert play(ev.RowRead(ROW_FIRST)) == []
    assert play.wait() == [fx.WriteOwner("v5", 5)]


@pytest.mark.parametrize("first", [ev.OwnerWriteConflicted(), ev.OwnerWriteUnknown()])
def test_another_write_to_the_row_ends_the_move_where_it_began(first: Event) -> None:
    play = in_state(local.OwnerWriting)
    play(first)
    effects = play(ev.RowRead(ROW_REWRITTEN))
    assert kinds(effects) == [fx.DropStaged, fx.RestoreDispatch]
    assert play(ev.DispatchRestored())[-2] == fx.ReportOutcome(
        Outcome.FAILED, "another write to its row came between"
    )


@pytest.mark.parametrize("row", [None, ROW_REBORN, ROW_LOST, ROW_MOVED_ON, STALE_COMMIT])
def test_a_row_of_somebody_else_ends_the_object_here(row: object) -> None:
    """Also one of the right owner generation, but of another relocation: never the generation alone (B6.5)."""
    play = in_state(local.OwnerChecking)
    effects = play(ev.RowRead(row))  # type: ignore[arg-type]
    assert kinds([each for each in effects if not isinstance(each, Log)]) == [
        fx.DropStaged,
        fx.FailTaken,
        fx.FailHeld,
        fx.DropObject,
        fx.RemoveFollowRoute,
        fx.ReleasePayload,
        fx.ReportOutcome,
        fx.ForgetHandoff,
    ]
    assert fx.DropObject("") in effects


def unit_play() -> Play:
    play = Play(replace(PLAN, others=ROW_OF_UNIT.others))
    for event in _WRITING:
        play(event)
    return play


def test_a_member_whose_binding_changed_is_written_under_its_new_version() -> None:
    play = unit_play()
    play(ev.OwnerWriteConflicted())
    first, second = ROW_OF_UNIT.others
    bound = (first._replace(version="a6", bound=True), second)
    effects = play(ev.RowRead(ROW_OF_UNIT._replace(others=bound)))
    assert effects == [fx.WriteOwner("v5", 5, ((first.key, "a6"), (second.key, "b5")))]


def test_a_member_that_belongs_to_somebody_else_ends_the_move() -> None:
    play = unit_play()
    play(ev.OwnerWriteConflicted())
    first, second = ROW_OF_UNIT.others
    gone: tuple[ParticipantFacts, ...] = (first._replace(version="a6", object_generation=7), second)
    assert fx.RestoreDispatch(("h1",), True) in play(ev.RowRead(ROW_OF_UNIT._replace(others=gone)))


def test_the_worker_dies_while_it_captures() -> None:
    play = in_state(local.Sealing)
    effects = play(ev.WorkerLost())
    assert fx.FailHeld(("h1",), "DataLost") in effects
    assert fx.DropObject("") in effects
    assert any(isinstance(each, fx.ReportOutcome) and each.outcome is Outcome.FAILED for each in effects)


def test_the_new_worker_dies_as_it_opens() -> None:
    play = in_state(local.Opening)
    effects = play(ev.DispatchOpenFailed("worker 1 ended"))
    assert fx.ReportOutcome(Outcome.FAILED, "worker 1 ended") in effects
    assert play(ev.RecordArrived("h2")) == [fx.DeliverRecords(("h2",))]


def test_a_second_failure_while_it_goes_back_is_the_one_that_is_told() -> None:
    play = in_state(local.Returning)
    effects = play(ev.DispatchRestoreFailed("no worker"))
    assert fx.ReportOutcome(Outcome.FAILED, "no worker") in effects
    assert fx.ReleasePayload() in effects


def test_only_this_run_is_still_the_owner() -> None:
    assert ROW_FIRST.owner == A
    play = in_state(local.OwnerChecking)
    stranger = ROW_REWRITTEN._replace(owner=ROW_REBORN.owner)
    assert fx.DropObject("") in play(ev.RowRead(stranger))
