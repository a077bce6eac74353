"""SourceHandoff told as stories: one for each row of the contract's failure tables that it decides."""

from __future__ import annotations

import pytest
from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff import source_states as ss
from sojourn.handoff.machine import DeadlineReached, Effect, Event, IllegalTransition, Log, State
from sojourn.handoff.source import SourceHandoff, SourcePlan
from sojourn.handoff.terms import HandoffOptions, Outcome, RowFacts

from tests.machines.samples import (
    IDENTITY,
    MANIFEST,
    ROW_FENCED,
    ROW_FIRST,
    ROW_LOST,
    ROW_MOVED,
    ROW_MOVED_ON,
    ROW_REBORN,
    B,
    C,
    D,
    Play,
    checksum,
    checksum_of,
    frozen,
    new_source,
    source_in,
)


def quiet(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if not isinstance(effect, Log)]


def logs(effects: list[Effect]) -> list[str]:
    return [effect.name for effect in effects if isinstance(effect, Log)]


def restoring() -> Play:
    """Captured, Restore request out on connection 1 since time 0."""
    play = Play(new_source())
    play(ev.RelocationStarted(1))
    play(ev.ObjectCaptured(MANIFEST))
    return play


# 4 Normal order


def test_a_move_without_trouble() -> None:
    play = Play(new_source())
    assert play(ev.RelocationStarted(1)) == [fx.SealObject(D)]
    assert play(ev.RecordArrived("h1")) == []
    assert play(ev.ObjectCaptured(MANIFEST)) == [fx.SendRestore(1, MANIFEST, 40.0), fx.SendChunks(1)]
    assert play(ev.RecordArrived("h2")) == []
    assert play(ev.RelayReadyReceived(1), at=0.5) == [
        fx.SendRelay(1, ("h1", "h2")),
        fx.SendCutover(1, 2, checksum_of("h1", "h2")),
    ]
    assert play(ev.RecordArrived("f1")) == [fx.SendFollow(B, ("f1",))]
    assert play(ev.CutoverSubmitted(1)) == [fx.EndDispatch()]
    assert play.wait() == [fx.ReadRow()]
    assert play(ev.RowRead(ROW_FIRST)) == []
    assert play(ev.CommitTold()) == [fx.ReadRow()]
    assert play(ev.CommitTold()) == [], "a read is out already"
    assert play(ev.RowRead(ROW_MOVED)) == [
        fx.DropObject("RelocationOut"),
        fx.InstallFollowRoute(B, 5, 70.5),
        fx.ReportOutcome(Outcome.MOVED),
    ]
    assert play.wait() == [fx.ReleasePayload()]
    assert play.now == 1.5
    assert play.wait() == [fx.RemoveFollowRoute(), fx.ForgetHandoff()]
    assert play.now == 70.5
    assert isinstance(play.state, ss.SourceClosed)


def test_no_records_before_the_boundary_means_count_zero_and_checksum_zero() -> None:
    assert restoring()(ev.RelayReadyReceived(1)) == [fx.SendCutover(1, 0, 0)]


def test_nothing_is_sealed_with_less_than_two_seconds_left() -> None:
    plan = SourcePlan(IDENTITY, B, 1, 4, gives_up_at=10.0)
    play = Play(SourceHandoff(plan, checksum, frozen, HandoffOptions()))
    effects = play(ev.RelocationStarted(1), at=8.5)
    assert fx.SealObject(D) not in effects
    assert isinstance(effects[0], fx.ReportOutcome)


# 9: after seal, before relay-ready accepted, explicit failure


def test_an_explicit_failure_restores_queue_then_hold_then_new_arrivals() -> None:
    play = restoring()
    play(ev.RecordArrived("h1"))
    assert play(ev.RelocationFailedReceived(35, 1)) == [fx.RestoreDispatch(("h1",), True)]
    assert play(ev.RecordArrived("n1")) == [fx.DeliverRecords(("n1",))]
    effects = play(ev.DispatchRestored())
    assert effects[0] == fx.ReleasePayload()
    assert isinstance(effects[1], fx.ReportOutcome)
    assert effects[1].outcome is Outcome.FAILED
    assert isinstance(play.state, ss.SourceRestored)


def test_a_capture_that_is_refused_leaves_no_payload_to_release() -> None:
    play = source_in(ss.Sealing)
    assert play(ev.CaptureRefused("attribute 'socket' cannot be captured")) == [fx.RestoreDispatch((), False)]
    assert fx.ReleasePayload() not in play(ev.DispatchRestored())


def test_a_cancellation_while_sealing_waits_for_the_capture_and_needs_no_fence() -> None:
    play = source_in(ss.Sealing)
    assert play(ev.CancelRequested()) == []
    play(ev.RecordArrived("h1"))
    assert play(ev.ObjectCaptured(MANIFEST)) == [fx.RestoreDispatch(("h1",), True)]


def test_a_worker_that_dies_while_it_captures_takes_the_object_with_it() -> None:
    play = source_in(ss.Sealing)
    play(ev.RecordArrived("h1"))
    effects = play(ev.WorkerLost())
    assert effects[:2] == [fx.FailHeld(("h1",), "DataLost"), fx.DropObject("")]


def test_a_worker_that_dies_after_the_capture_changes_nothing() -> None:
    assert restoring()(ev.WorkerLost()) == []


# B6.7: the fence


@pytest.mark.parametrize("event", [ev.CancelRequested(), ev.TargetRunGone()])
def test_a_cancellation_or_a_gone_target_writes_a_fence_first(event: Event) -> None:
    play = restoring()
    play(ev.RecordArrived("h1"))
    assert play(event) == [fx.WriteFence()]
    assert play(ev.RelayReadyReceived(1)) == []
    assert play(ev.RelocationFailedReceived(17, 1)) == []
    assert quiet(play(ev.FenceApplied())) == [fx.RestoreDispatch(("h1",), True), fx.SendWithdrawn(1)]


def test_the_deadline_writes_a_fence() -> None:
    play = restoring()
    assert play.wait() == [fx.WriteFence()]
    assert play.now == D


def test_relay_ready_is_accepted_only_before_the_deadline() -> None:
    play = restoring()
    assert play(ev.RelayReadyReceived(1), at=D) == [fx.WriteFence()]


def test_a_relay_ready_of_an_older_connection_is_no_boundary() -> None:
    """Batch and cutover would go out on a connection that is gone, and their end would never be told."""
    play = restoring()
    play(ev.LinkLost(1))
    play(ev.LinkRestored(2))
    assert play(ev.RelayReadyReceived(1)) == []
    assert isinstance(play.state, ss.TargetRestoring)
    assert play(ev.RelayReadyReceived(2)) == [fx.SendCutover(2, 0, 0)]


def test_a_repeat_makes_a_failure_reply_need_a_fence() -> None:
    play = restoring()
    play(ev.LinkLost(1))
    assert play(ev.LinkRestored(2), at=3.0) == [fx.SendRestore(2, MANIFEST, 37.0), fx.SendChunks(2)]
    assert play(ev.RelocationFailedReceived(17, 2)) == [fx.WriteFence()]


def test_a_request_that_never_went_out_needs_no_fence() -> None:
    play = Play(new_source())
    play(ev.RelocationStarted(1))
    play(ev.LinkLost(1))
    assert play(ev.ObjectCaptured(MANIFEST)) == []
    assert play(ev.CancelRequested()) == [fx.RestoreDispatch((), True)]


def test_an_unknown_fence_is_read_again_and_tried_again_under_the_same_condition() -> None:
    play = source_in(ss.FenceWriting)
    assert play(ev.FenceUnknown()) == [fx.ReadRow()]
    assert play(ev.RowRead(ROW_FIRST)) == []
    assert play.wait() == [fx.WriteFence()]
    assert play(ev.FenceConflicted()) == [fx.ReadRow()]
    assert fx.RestoreDispatch(("h1",), True) in play(ev.RowRead(ROW_FENCED))


def test_an_unreadable_row_keeps_the_fence_open() -> None:
    play = source_in(ss.FenceChecking)
    for _ in range(20):
        assert play(ev.RowReadFailed()) == []
        assert play.wait() == [fx.WriteFence()]
        assert play(ev.FenceUnknown()) == [fx.ReadRow()]
    assert isinstance(play.state, ss.FenceChecking)


@pytest.mark.parametrize("row", [ROW_MOVED, ROW_MOVED._replace(relocation_id=(9, 9), fenced=True)])
def test_a_fence_that_meets_a_commit_adopts_the_target_and_follows_the_hold(row: RowFacts) -> None:
    play = source_in(ss.FenceChecking)
    assert play(ev.RowRead(row)) == [
        fx.EndDispatch(),
        fx.ReleasePayload(),
        fx.DropObject("RelocationOut"),
        fx.InstallFollowRoute(B, 5, 30.0),
        fx.SendFollow(B, ("h1",)),
        fx.ReportOutcome(Outcome.MOVED),
    ]


def test_a_fence_that_meets_another_incarnation_gives_up() -> None:
    play = source_in(ss.FenceChecking)
    effects = play(ev.RowRead(ROW_REBORN))
    assert fx.FailTaken("DataLost", "unknown") in effects
    assert fx.FailHeld(("h1",), "DataLost") in effects
    assert fx.ReleasePayload() in effects
    assert isinstance(play.state, ss.SourceClosed)


@pytest.mark.parametrize("state", [ss.FenceWriting, ss.FenceChecking, ss.FencePausing])
def test_a_fence_of_unknown_outcome_ends_the_wait_but_not_the_reconciliation(state: type[State]) -> None:
    """The store is away past D (30 s): in doubt is said once, a second later, and the object comes back."""
    play = source_in(state)
    reports: list[fx.ReportOutcome] = []

    def keep(effects: list[Effect]) -> list[Effect]:
        reports.extend(effect for effect in effects if isinstance(effect, fx.ReportOutcome))
        return effects

    answers: dict[type[State], Event] = {
        ss.FenceWriting: ev.FenceUnknown(),
        ss.FenceChecking: ev.RowReadFailed(),
    }
    while play.now < 35.0:
        answer = answers.get(type(play.state))
        if answer is not None and play.now < 30.9:
            keep(play(answer))
        elif answer is not None and not reports:
            keep(play(DeadlineReached(), at=31.0))
        elif answer is not None:
            keep(play(answer))
        else:
            keep(play.wait())
    assert [report.outcome for report in reports] == [Outcome.IN_DOUBT]
    assert "the store" in str(reports[0].reason)
    while not isinstance(play.state, ss.FenceChecking):
        keep(play(ev.FenceUnknown()) if isinstance(play.state, ss.FenceWriting) else play.wait())
    assert keep(play(ev.RowRead(ROW_FENCED)))[-1] == fx.SendWithdrawn(1)
    assert keep(play(ev.DispatchRestored())) == [fx.ReleasePayload(), fx.ForgetHandoff()]
    assert len(reports) == 1


# 9: connection broke, cutover lost, source alive


def cut_after_ready() -> Play:
    """Three batch records, one of them handed over when connection 1 broke; then two late records."""
    play = restoring()
    for record in ("h1", "h2", "h3"):
        play(ev.RecordArrived(record))
    play(ev.RelayReadyReceived(1))
    play(ev.RecordArrived("f1"))
    effects = play(ev.LinkLost(1, boundary_handed=1, follow_unsent=("f1",)), at=1.0)
    assert effects == [fx.EndDispatch(), fx.ReadRow()]
    assert play(ev.RecordArrived("f2")) == []
    return play


def test_batch_and_cutover_are_resent_whole_then_follow_frames() -> None:
    play = cut_after_ready()
    assert play(ev.LinkRestored(2), at=1.5) == [
        fx.SendRelay(2, ("h1", "h2", "h3")),
        fx.SendCutover(2, 3, checksum_of("h1", "h2", "h3")),
        fx.SendFollow(B, ("f1", "f2")),
    ]
    assert play(ev.CutoverSubmitted(2)) == []
    play(ev.RowRead(ROW_FIRST))
    while fx.ReleasePayload() not in (effects := play.wait()):
        if fx.ReadRow() in effects:
            play(ev.RowRead(ROW_FIRST))
    assert play.now == 2.0


def test_after_the_resend_window_only_what_no_connection_took_is_followed() -> None:
    play = cut_after_ready()
    play(ev.RowRead(ROW_MOVED))
    assert play.wait() == [fx.ReleasePayload()]
    assert play.now == 2.0
    assert play(ev.LinkRestored(2), at=2.5) == [fx.SendFollow(B, ("h2", "h3", "f1", "f2"))]


def test_a_resend_that_is_under_way_holds_the_window_open() -> None:
    play = cut_after_ready()
    play(ev.RowRead(ROW_MOVED))
    play(ev.LinkRestored(2), at=1.9)
    assert play(DeadlineReached(), at=2.1) == []
    assert play(ev.LinkLost(2, boundary_handed=2), at=2.2) == [fx.ReleasePayload()]
    assert play(ev.LinkRestored(3), at=2.3) == [fx.SendFollow(B, ("h3",))]


# 9: cutover submit failed or unknown → reconciliation


def unlearned() -> Play:
    """The target's last moment (40 s) has passed without a sign of a commit; the row is being read."""
    play = source_in(ss.CommitAwaited)
    play(ev.RowRead(ROW_FIRST))
    play(DeadlineReached(), at=40.0)
    assert isinstance(play.state, ss.Reconciling)
    return play


def test_an_object_that_the_target_did_not_take_is_marked_lost() -> None:
    play = unlearned()
    play(ev.LinkLost(1))
    play(ev.RecordArrived("f1"))
    assert play(ev.RowRead(ROW_FIRST)) == [fx.MarkLost("v5")]
    effects = quiet(play(ev.LostMarked()))
    assert effects[:4] == [
        fx.FailTaken("DataLost", "no"),
        fx.FailHeld(("f1",), "DataLost"),
        fx.DropObject(""),
        fx.RemoveFollowRoute(),
    ]
    assert isinstance(effects[4], fx.ReportOutcome)
    assert effects[4].outcome is Outcome.FAILED


def test_of_a_target_that_is_gone_the_sends_end_here_too() -> None:
    play = unlearned()
    play(ev.TargetRunGone())
    play(ev.RowRead(ROW_FIRST))
    assert fx.FailTaken("DataLost", "no", sends=True) in play(ev.LostMarked())


@pytest.mark.parametrize("answer", [ev.LostConflicted(), ev.LostUnknown()])
def test_a_mark_that_did_not_surely_stand_is_read_again(answer: Event) -> None:
    play = source_in(ss.LostMarking)
    assert play(answer) == [fx.ReadRow()]
    assert fx.RemoveFollowRoute() in play(ev.RowRead(ROW_LOST))


def test_a_commit_seen_late_is_adopted() -> None:
    play = unlearned()
    assert fx.ReportOutcome(Outcome.MOVED) in play(ev.RowRead(ROW_MOVED))


def test_an_unreadable_row_is_in_doubt_and_read_at_every_sweep() -> None:
    play = unlearned()
    play(ev.LinkLost(1))
    play(ev.RecordArrived("f1"))
    effects = play(ev.RowReadFailed())
    assert [type(effect) for effect in effects] == [fx.ReportOutcome]
    sweeps = 0
    while play.now < 70.0:
        effects = play.wait()
        sweeps += effects.count(fx.ReadRow())
        if effects == [fx.ReadRow()]:
            play(ev.RowReadFailed())
    assert sweeps == 6
    assert fx.FailTaken("Unavailable", "unknown") in effects
    assert fx.FailHeld(("f1",), "Unavailable") in effects
    assert play(ev.RecordArrived("f2")) == [fx.FailHeld(("f2",), "Unavailable")]
    assert not isinstance(play.state, ss.SourceClosed)


def test_an_owner_beyond_the_next_counts_as_committed_but_the_way_leads_through_the_target() -> None:
    play = source_in(ss.CommitAwaited)
    effects = play(ev.RowRead(ROW_MOVED_ON))
    assert fx.InstallFollowRoute(C, 6, 70.0) in effects
    assert play(ev.RecordArrived("f1")) == [fx.SendFollow(B, ("f1",))]
    play(ev.LinkLost(1))
    assert play(ev.RecordArrived("f2")) == [fx.SendFollow(C, ("f2",))]


def test_a_target_that_dies_after_its_commit_ends_the_follow() -> None:
    play = source_in(ss.FollowOnly)
    play(ev.LinkLost(1))
    play(ev.RecordArrived("f1"))
    effects = play(ev.TargetRunGone())
    assert effects == [
        fx.ReleasePayload(),
        fx.FailTaken("Unavailable", "unknown"),
        fx.FailHeld(("f1",), "Unavailable"),
        fx.RemoveFollowRoute(),
        fx.ForgetHandoff(),
    ]


@pytest.mark.parametrize(
    "event", [ev.RelocationFailedReceived(17, 1), ev.CancelRequested(), ev.RelayReadyReceived(1)]
)
@pytest.mark.parametrize("state", [ss.CutoverSubmitting, ss.CommitAwaited, ss.Reconciling, ss.FollowOnly])
def test_nothing_leads_back_behind_the_boundary(state: type[State], event: Event) -> None:
    play = source_in(state)
    assert play(event) == []
    assert type(play.state) is state


def test_a_bug_tells_its_story() -> None:
    play = source_in(ss.CommitAwaited)
    with pytest.raises(IllegalTransition) as caught:
        play(ev.FenceApplied())
    assert "RelocationStarted" in str(caught.value)
    assert "RecordArrived" in str(caught.value)
    assert caught.value.phase == "RelayReady"


def test_the_story_is_bounded_and_keeps_no_user_bytes() -> None:
    play = restoring()
    for number in range(100):
        play(ev.RecordArrived(f"secret-{number}"))
    assert len(play.machine.story) == 50
    assert "secret" not in play.machine.tell_story()


def test_a_commit_shows_also_when_the_new_owner_fenced_a_move_of_its_own_since() -> None:
    play = source_in(ss.CommitAwaited)
    since = ROW_MOVED._replace(version="v9", relocation_id=(0, 99), fenced=True)
    assert fx.ReportOutcome(Outcome.MOVED) in play(ev.RowRead(since))


def test_what_ends_with_a_node_that_stops_is_what_no_connection_took() -> None:
    def unsent(play: Play) -> tuple[object, ...]:
        assert isinstance(play.machine, SourceHandoff)
        return play.machine.unsent

    play = source_in(ss.Sealing)
    play(ev.RecordArrived("h1"))
    assert unsent(play) == ("h1",)
    play = source_in(ss.CommitAwaited)
    assert unsent(play) == ()  # the batch was handed over
    play(ev.LinkLost(1))
    play(ev.RecordArrived("f1"))
    assert unsent(play) == ("f1",)
