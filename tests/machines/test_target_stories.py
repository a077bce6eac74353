"""TargetHandoff told as stories: one for each row of the contract's failure tables that it decides."""

from __future__ import annotations

from typing import Any

import pytest
from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff import target_states as ts
from sojourn.handoff.machine import DeadlineReached, Effect, Event, Log, State
from sojourn.handoff.rivals import RivalVerdict, holds_object, judge_rivals
from sojourn.handoff.terms import DirectDisposal, Manifest, RowFacts

from tests.machines.samples import (
    ENDS,
    IDENTITY,
    MANIFEST,
    OTHER_MANIFEST,
    ROW_FENCED,
    ROW_FIRST,
    ROW_LOST,
    ROW_MOVED,
    ROW_MOVED_ON,
    ROW_REBORN,
    A,
    Play,
    checksum_of,
    new_target,
    target_in,
)

FOLLOW = DirectDisposal.FOLLOW_TO_SOURCE
FAIL = DirectDisposal.FAIL


def quiet(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if not isinstance(effect, Log)]


def logs(effects: list[Effect]) -> list[str]:
    return [effect.name for effect in effects if isinstance(effect, Log)]


def dropped(effects: list[Effect]) -> fx.DropTarget:
    (drop,) = (effect for effect in effects if isinstance(effect, fx.DropTarget))
    return drop


# 4 Normal order


def test_a_move_without_trouble() -> None:
    play = Play(new_target())
    assert play(ev.RestoreRequested(MANIFEST, 1)) == [fx.InstallTemporaryQueue(), fx.ReadRow()]
    assert play(ev.ChunkArrived(0, b"0123", 1)) == [fx.StoreChunk(0, b"0123")]
    assert play(ev.DirectArrived("d1")) == []
    assert play(ev.RowRead(ROW_FIRST)) == []
    assert play(ev.ChunkArrived(1, b"456789", 1)) == [fx.StoreChunk(4, b"456789"), fx.VerifyAssembly(99)]
    assert play(ev.AssemblyVerified()) == [fx.RestoreObject(1, 5)]
    assert play(ev.ObjectRestored()) == [fx.SendRelayReady(1)]
    assert play(ev.RelayArrived("r1", 1)) == []
    assert play(ev.DirectArrived("d2")) == []
    assert play(ev.RelayArrived("r2", 1)) == []
    assert play(ev.CutoverArrived(2, checksum_of("r1", "r2"), 1)) == [fx.WriteOwner("v5", 5)]
    assert play(ev.FollowArrived("f1", 1)) == []
    assert play(ev.OwnerWritten()) == [fx.OpenDispatch(("r1", "r2"), ("d1", "d2", "f1"))]
    assert play(ev.DispatchOpened()) == []
    assert play.wait() == [fx.ForgetHandoff()]
    assert play.now == ENDS + 30.0


def test_the_row_may_be_read_after_the_payload_arrived() -> None:
    play = Play(new_target())
    play(ev.RestoreRequested(MANIFEST, 1))
    play(ev.ChunkArrived(0, b"01234", 1))
    play(ev.ChunkArrived(1, b"56789", 1))
    assert play(ev.AssemblyVerified()) == []
    assert play(ev.RowReadFailed()) == []
    assert play.wait() == [fx.ReadRow()]
    assert play(ev.RowRead(ROW_FIRST)) == [fx.RestoreObject(1, 5)]


# 9: failures before relay-ready


@pytest.mark.parametrize("row", [None, ROW_MOVED, ROW_FENCED, ROW_LOST, ROW_REBORN])
def test_another_row_version_is_an_explicit_failure(row: RowFacts | None) -> None:
    play = target_in(ts.Assembling)
    play(ev.DirectArrived("d1"))
    effects = play(ev.RowRead(row))
    assert effects[0] == fx.SendRelocationFailed(1, 21)
    assert dropped(effects).direct == ("d1",)
    assert dropped(effects).disposal is FOLLOW


def test_a_checksum_mismatch_is_an_explicit_failure_without_retry() -> None:
    play = target_in(ts.Assembling)
    play(ev.ChunkArrived(1, b"56789", 1))
    effects = play(ev.AssemblyMismatched())
    assert fx.SendRelocationFailed(1, 35) in effects
    assert dropped(effects)


@pytest.mark.parametrize(
    "event",
    [
        ev.RestoreRequested(OTHER_MANIFEST, 2),
        ev.ChunkDiffered(),
        ev.ChunkArrived(0, b"012", 1),
        ev.ChunkArrived(3, b"x", 1),
        ev.ChunkArrived(1, b"567890", 1),
        ev.ChunkArrived(1, b"5678", 1),
    ],
)
def test_a_conflict_drops_the_assembly_before_the_failure_is_sent(event: Event) -> None:
    play = target_in(ts.Assembling)
    effects = play(event)
    assert [type(effect) for effect in quiet(effects)][:2] == [fx.SendRelocationFailed, fx.DropTarget]
    assert isinstance(play.state, ts.TargetRemoved)
    assert play.state.failure_code == 35
    assert play(ev.ChunkArrived(1, b"56789", 1)) == []
    assert play(ev.AssemblyVerified()) == []


def test_a_repeated_chunk_is_compared() -> None:
    """B8.3: other bytes are a conflict; the same ones change nothing, and the assembly goes on."""
    play = target_in(ts.Assembling)
    assert play(ev.ChunkArrived(0, b"01234", 2)) == [fx.CompareChunk(0, b"01234")]
    assert play(ev.ChunkArrived(1, b"56789", 1)) == [fx.StoreChunk(5, b"56789"), fx.VerifyAssembly(99)]


def test_a_payload_without_chunks_is_refused() -> None:
    play = Play(new_target())
    effects = play(ev.RestoreRequested(Manifest(0, 0, 0), 1))
    assert fx.SendRelocationFailed(1, 35) in effects


def test_a_restore_that_fails_is_an_explicit_failure() -> None:
    effects = target_in(ts.RestoringObject)(ev.RestoreFailed("no such type"))
    assert fx.SendRelocationFailed(1, 17) in effects


def test_the_absolute_deadline_ends_the_assembly() -> None:
    play = target_in(ts.Assembling)
    effects = play(DeadlineReached(), at=ENDS)
    assert fx.SendRelocationFailed(1, 17) in effects


# B8.6: repeats


def test_an_identical_repeat_keeps_queue_and_progress() -> None:
    play = target_in(ts.RestoringObject)
    play(ev.LinkLost(1))
    assert play(ev.RestoreRequested(MANIFEST, 2)) == []
    assert play(ev.ObjectRestored()) == [fx.SendRelayReady(2)]


def test_without_a_connection_relay_ready_waits_for_the_repeat() -> None:
    play = target_in(ts.ObjectStaged)
    assert play(ev.RestoreRequested(MANIFEST, 2), at=5.0) == [fx.SendRelayReady(2)]
    assert play.machine.deadline == 6.0


def test_a_repeat_in_relay_ready_is_answered_and_starts_the_wait_anew() -> None:
    play = target_in(ts.RelayReady)
    assert play(ev.RestoreRequested(MANIFEST, 2), at=0.9) == [fx.SendRelayReady(2)]
    assert play.machine.deadline == 1.9
    play(ev.RestoreRequested(MANIFEST, 3), at=1.8)
    assert play.machine.deadline == 2.8


def test_the_wait_never_passes_the_absolute_deadline() -> None:
    play = target_in(ts.ObjectStaged)
    play(ev.RestoreRequested(MANIFEST, 2), at=ENDS - 0.5)
    assert play.machine.deadline == ENDS
    effects = play.wait()
    assert fx.SendRelocationFailed(2, 17) in effects


@pytest.mark.parametrize(
    "state", [ts.OwnerWriting, ts.OwnerChecking, ts.OwnerPausing, ts.Opening, ts.TargetOpen]
)
def test_later_repeats_are_answered_only(state: type[State]) -> None:
    play = target_in(state)
    assert play(ev.RestoreRequested(MANIFEST, 2)) == [fx.SendRelayReady(2)]
    assert logs(play(ev.RestoreRequested(OTHER_MANIFEST, 2))) == ["late_conflict"]
    assert type(play.state) is state


def test_an_ended_identity_answers_with_the_same_failure_and_never_starts_again() -> None:
    play = target_in(ts.TargetRemoved)
    assert play(ev.RestoreRequested(MANIFEST, 2)) == [fx.SendRelocationFailed(2, 21)]
    assert play(ev.ChunkArrived(0, b"01234", 2)) == []
    assert play(ev.RestoreRequested(MANIFEST, 3)) == [fx.SendRelocationFailed(3, 21)]


def test_an_identity_that_issued_a_cas_answers_nothing() -> None:
    play = target_in(ts.OwnerChecking)
    play(ev.RowRead(ROW_REBORN))
    assert play(ev.RestoreRequested(MANIFEST, 2)) == []


# R4.4.5, B8.4: batches


def test_a_resent_batch_replaces_the_partial_section_whole() -> None:
    play = target_in(ts.RelayReady)
    play(ev.RelayArrived("r1", 1))
    play(ev.RelayArrived("r2", 1))
    play(ev.LinkLost(1))
    for record in ("r1", "r2", "r3"):
        play(ev.RelayArrived(record, 2))
    assert play(ev.CutoverArrived(3, checksum_of("r1", "r2", "r3"), 2)) == [fx.WriteOwner("v5", 5)]
    assert play(ev.OwnerWritten()) == [fx.OpenDispatch(("r1", "r2", "r3"), ())]


def test_the_fallback_keeps_the_longest_batch_and_warns() -> None:
    """R4.4.6: without a cutover in time the target warns and goes on."""
    play = target_in(ts.RelayReady)
    for record in ("r1", "r2"):
        play(ev.RelayArrived(record, 1))
    play(ev.RelayArrived("r1", 2))
    effects = play.wait()
    assert play.now == 1.0
    assert logs(effects) == ["cutover_timeout"]
    assert quiet(effects) == [fx.WriteOwner("v5", 5)]
    assert play.machine.phase == "CutoverFallback"
    assert play(ev.RelayArrived("r2", 2)) == []
    assert play(ev.RelayArrived("r3", 2)) == []
    assert play(ev.OwnerWritten()) == [fx.OpenDispatch(("r1", "r2", "r3"), ())]
    assert play(ev.RelayArrived("r4", 2)) == [fx.DeliverRecords(("r4",))]


def test_a_batch_resent_after_the_boundary_was_settled_is_dropped_by_position() -> None:
    play = target_in(ts.TargetOpen)
    assert play(ev.RelayArrived("r1", 2)) == []
    late = play(ev.CutoverArrived(1, checksum_of("r1"), 2))
    assert logs(late) == ["late_cutover"]
    assert play(ev.RelayArrived("r2", 2)) == [fx.DeliverRecords(("r2",))]
    assert play(ev.RelayArrived("r1", 3)) == []
    assert play(ev.RelayArrived("r2", 3)) == []
    assert play(ev.RelayArrived("r3", 3)) == [fx.DeliverRecords(("r3",))]


def test_a_cutover_that_does_not_match_counts_as_not_arrived() -> None:
    """B8.5, R4.4.4: what follows it on its connection is behind the boundary all the same."""
    play = target_in(ts.RelayReady)
    play(ev.RelayArrived("r1", 1))
    assert logs(play(ev.CutoverArrived(2, 7, 1))) == ["cutover_mismatch"]
    play(ev.RelayArrived("behind", 1))
    play.wait()
    assert play(ev.OwnerWritten()) == [fx.OpenDispatch(("r1",), ("behind",))]


# 6: CAS outcomes


def test_an_unknown_outcome_is_read_first() -> None:
    play = target_in(ts.OwnerWriting)
    assert play(ev.OwnerWriteUnknown()) == [fx.ReadRow()]
    assert play(ev.RowRead(ROW_MOVED)) == [fx.OpenDispatch(("r1",), ())]


def test_a_write_that_was_not_carried_out_is_repeated_under_the_same_version() -> None:
    play = target_in(ts.OwnerChecking)
    assert play(ev.RowRead(ROW_FIRST)) == []
    assert play.wait() == [fx.WriteOwner("v5", 5)]


def test_a_conflict_with_our_own_earlier_write_is_success() -> None:
    play = target_in(ts.OwnerWriting)
    assert play(ev.OwnerWriteConflicted()) == [fx.ReadRow()]
    assert play(ev.RowRead(ROW_MOVED)) == [fx.OpenDispatch(("r1",), ())]


def test_success_is_never_judged_by_the_owners_name() -> None:
    play = target_in(ts.OwnerChecking)
    effects = play(ev.RowRead(ROW_MOVED._replace(relocation_id=(0, 99))))
    assert fx.OpenDispatch(("r1",), ()) not in effects
    assert isinstance(play.state, ts.TargetRemoved)


@pytest.mark.parametrize("row", [None, ROW_MOVED_ON, ROW_REBORN, ROW_LOST])
def test_another_valid_owner_is_stale_at_once(row: RowFacts | None) -> None:
    play = target_in(ts.OwnerChecking)
    play(ev.DirectArrived("d1"))
    effects = play(ev.RowRead(row))
    drop = dropped(effects)
    assert drop.disposal is FAIL
    assert drop.direct == ("d1",)
    assert drop.relay == ("r1",)
    assert drop.end_work
    assert fx.SendRelocationFailed(1, 21) not in effects


def test_a_store_that_is_away_is_retried_until_the_absolute_deadline() -> None:
    play = target_in(ts.OwnerWriting)
    tries = 0
    while True:
        play(ev.OwnerWriteFailed())
        effects = play.wait()
        if effects != [fx.WriteOwner("v5", 5)]:
            break
        tries += 1
    assert play.now == ENDS
    assert tries > 50
    assert "location_update_failed" in logs(effects)
    assert dropped(effects).disposal is FAIL


def test_a_late_answer_revives_nothing() -> None:
    play = target_in(ts.OwnerWriting)
    play(DeadlineReached(), at=ENDS)
    assert play(ev.OwnerWritten()) == []
    assert play(ev.RowRead(ROW_MOVED)) == []
    assert isinstance(play.state, ts.TargetRemoved)


def test_a_fence_that_is_found_ends_the_attempt_and_follows_to_the_source() -> None:
    play = target_in(ts.RelayReady)
    play(ev.DirectArrived("d1"))
    play.wait()
    play(ev.OwnerWriteConflicted())
    effects = play(ev.RowRead(ROW_FENCED))
    assert dropped(effects).disposal is FOLLOW
    assert not dropped(effects).end_work
    assert any(isinstance(effect, fx.InstallFollowRoute) and effect.run == A for effect in effects)
    assert not any(isinstance(effect, fx.SendRelocationFailed) for effect in effects)


def test_a_withdrawal_spares_the_wait() -> None:
    play = target_in(ts.Assembling)
    play(ev.DirectArrived("d1"))
    drop = dropped(play(ev.WithdrawnReceived()))
    assert drop.direct == ("d1",)
    assert drop.disposal is FOLLOW


# B8.15, B8.16


def test_without_proof_of_the_boundary_no_terminals_are_made() -> None:
    play = target_in(ts.RelayReady)
    drop = dropped(play(DeadlineReached(), at=ENDS))
    assert not drop.end_work
    assert drop.disposal is FOLLOW


def in_doubt(state: type[State] = ts.OwnerPausing) -> Play:
    """A target whose time ran out with its write in doubt and no proof of the boundary."""
    play = target_in(ts.RelayReady)
    play.wait()
    if state is not ts.OwnerWriting:
        play(ev.OwnerWriteUnknown())
    if state is ts.OwnerPausing:
        play(ev.RowReadFailed())
    assert type(play.state) is state
    drop = dropped(play(DeadlineReached(), at=ENDS))
    assert drop.keep_work
    assert not drop.end_work
    return play


@pytest.mark.parametrize("state", [ts.OwnerWriting, ts.OwnerChecking, ts.OwnerPausing])
def test_saved_work_in_doubt_is_kept_until_the_row_was_read(state: type[State]) -> None:
    """It may have committed: then the source follows, and only this node can end what it kept (B6.8, B8.15)."""
    play = in_doubt(state)
    play(ev.RowReadFailed())
    assert play.wait() == [fx.ReadRow()]
    assert quiet(play(ev.RowRead(ROW_MOVED))) == [fx.EndWork("DataLost", "no"), fx.MarkLost("v6")]
    assert play(ev.LostConflicted()) == []
    assert play.wait() == [fx.ReadRow()]
    assert quiet(play(ev.RowRead(ROW_MOVED))) == [fx.MarkLost("v6")], "its ends are made once"
    assert play(ev.LostMarked()) == []
    assert type(play.state) is ts.TargetRemoved
    assert play.wait() == [fx.ForgetHandoff()]


def test_one_read_is_out_at_a_time() -> None:
    """The one that was asked for while the write was checked is the answer."""
    play = target_in(ts.RelayReady)
    play.wait()
    assert play(ev.OwnerWriteUnknown()) == [fx.ReadRow()]
    assert fx.ReadRow() not in play(DeadlineReached(), at=ENDS)
    assert quiet(play(ev.RowRead(ROW_MOVED)))[0] == fx.EndWork("DataLost", "no")


def test_a_write_that_another_eye_marked_lost_needs_no_mark() -> None:
    play = in_doubt()
    assert quiet(play(ev.RowRead(ROW_MOVED._replace(lost=True)))) == [fx.EndWork("DataLost", "no")]
    assert type(play.state) is ts.TargetRemoved


@pytest.mark.parametrize(
    "row",
    [
        ROW_FENCED,
        ROW_FENCED._replace(lost=True),  # restored, and lost later
        ROW_FIRST._replace(version="v7", relocation_id=(0, 9), fenced=True, lost=True),
        ROW_MOVED._replace(relocation_id=(0, 9)),  # a later attempt, which was given the work
        ROW_MOVED_ON,
    ],
)
def test_work_that_the_source_went_on_with_is_forgotten(row: RowFacts) -> None:
    play = in_doubt()
    assert play(ev.RowRead(row)) == [fx.ForgetWork()]
    assert type(play.state) is ts.TargetRemoved


def test_a_withdrawal_ends_the_doubt() -> None:
    play = in_doubt()
    assert play(ev.WithdrawnReceived()) == [fx.ForgetWork()]


def test_an_object_that_its_source_marked_lost_leaves_the_sends_to_the_target() -> None:
    """The source was behind the boundary: it ended the requests, and counts on the target for the sends."""
    assert in_doubt()(ev.RowRead(ROW_LOST)) == [fx.EndWork("DataLost", "no", requests=False)]


@pytest.mark.parametrize("row", [None, ROW_REBORN])
def test_nobody_can_say_what_became_of_the_work_of_an_earlier_incarnation(row: RowFacts | None) -> None:
    assert in_doubt()(ev.RowRead(row)) == [fx.EndWork("DataLost", "unknown")]


@pytest.mark.parametrize("event", [ev.RelayArrived("r1", 2), ev.CutoverArrived(1, 7, 2)])
def test_late_proof_of_the_boundary_ends_the_work(event: Event) -> None:
    play = in_doubt()
    effects = quiet(play(event))
    assert effects[0] == fx.EndWork("Unavailable", "no")
    assert type(play.state) is ts.TargetRemoved
    assert play(ev.RowRead(ROW_MOVED)) == []


@pytest.mark.parametrize("row", [ROW_FIRST, ROW_FIRST._replace(version="v6", bound=True)])
def test_a_row_without_a_fence_is_read_ever_more_seldom_and_given_up_with_the_identity(row: RowFacts) -> None:
    """Behind a relay-ready its source goes back only by a fence; whatever else it writes into the row tells nothing."""
    play = in_doubt()
    assert play(ev.RowRead(row)) == []
    reads = 0
    while True:
        assert play.wait() == [fx.ReadRow()]
        reads += 1
        effects = play(ev.RowRead(row))
        if effects:
            break
    assert effects == [fx.EndWork("Unavailable", "unknown")]
    assert play.now >= ENDS + 60.0
    assert reads < 40
    assert play.wait() == [fx.ForgetHandoff()]


def test_an_unreadable_store_keeps_the_work_beyond_the_identity_s_time() -> None:
    play = in_doubt()
    while play.now < ENDS + 100.0:
        assert play(ev.RowReadFailed()) == []
        play.wait()
    assert quiet(play(ev.RowRead(ROW_MOVED)))[0] == fx.EndWork("DataLost", "no")


def test_the_follow_route_ends_in_its_time_all_the_same() -> None:
    play = target_in(ts.TargetDoubting)
    assert play(ev.DirectArrived("d1")) == [fx.SendFollow(A, ("d1",))]
    effects: list[Effect] = []
    while not effects:
        play(ev.RowReadFailed())
        effects = [each for each in play.wait() if each == fx.RemoveFollowRoute()]
    assert play.now == ENDS + 60.0
    assert play(ev.DirectArrived("d2")) == [fx.FailHeld(("d2",), "Unavailable")]


def test_a_row_that_shows_it_all_needs_no_second_read() -> None:
    play = target_in(ts.RelayReady)
    play.wait()
    play(ev.OwnerWriteConflicted())
    effects = quiet(play(ev.RowRead(ROW_LOST)))
    assert [type(each) for each in effects] == [fx.DropTarget, fx.EndWork]


def test_with_proof_of_the_boundary_nothing_goes_to_a_source_that_does_not_run() -> None:
    play = target_in(ts.RelayReady)
    play(ev.RelayArrived("r1", 1))
    drop = dropped(play(DeadlineReached(), at=ENDS))
    assert drop.end_work
    assert drop.relay == ("r1",)
    assert drop.disposal is FAIL


def test_relay_of_an_ended_identity_gets_one_terminal_each() -> None:
    play = target_in(ts.OwnerChecking)
    play(ev.RowRead(ROW_REBORN))
    assert play(ev.RelayArrived("r1", 2)) == []
    assert play(ev.RelayArrived("r2", 2)) == [fx.FailHeld(("r2",), "Unavailable")]
    assert play(ev.RelayArrived("r1", 3)) == []
    assert play(ev.RelayArrived("r2", 3)) == []


NEWCOMER = IDENTITY._replace(relocation_id=(0, 8), expected_version="v9")
TWIN = IDENTITY._replace(relocation_id=(0, 8))


@pytest.mark.parametrize(
    ("state", "newcomer", "version", "verdict"),
    [
        (ts.Assembling, NEWCOMER, "v9", RivalVerdict(False, True)),
        (ts.Assembling, NEWCOMER, "v5", RivalVerdict(True, False)),
        (ts.Assembling, NEWCOMER, "v7", RivalVerdict(False, False)),
        (ts.Assembling, TWIN, "v5", RivalVerdict(False, True)),
        (ts.RelayReady, TWIN, "v5", RivalVerdict(True, False)),
        (ts.RelayReady, NEWCOMER, "v9", RivalVerdict(False, True)),
        (ts.OwnerChecking, NEWCOMER, "v9", RivalVerdict(False, True)),
        (ts.OwnerChecking, NEWCOMER, "v7", RivalVerdict(True, False)),
    ],
)
def test_of_two_identities_the_one_whose_version_stands_lives(
    state: type[State], newcomer: Any, version: str, verdict: RivalVerdict
) -> None:
    older = target_in(state).machine
    assert judge_rivals(ROW_FIRST._replace(version=version), older, newcomer) == verdict  # type: ignore[arg-type]
    assert holds_object(older)  # type: ignore[arg-type]


def test_the_loser_hands_over_what_came_directly_and_tells_its_source() -> None:
    play = target_in(ts.RelayReady)
    play(ev.DirectArrived("d1"))
    effects = play(ev.RivalPreferred())
    assert effects[0] == fx.SendRelocationFailed(1, 21)
    assert dropped(effects).disposal is DirectDisposal.HAND_OVER


def test_a_loser_that_issued_its_cas_sends_no_failure() -> None:
    play = target_in(ts.OwnerPausing)
    effects = play(ev.RivalPreferred())
    assert [type(effect) for effect in quiet(effects)] == [fx.DropTarget]


def test_a_refused_newcomer_is_remembered() -> None:
    play = Play(new_target())
    assert play(ev.RestoreRefused(17, 1)) == [fx.SendRelocationFailed(1, 17)]
    assert play(ev.RestoreRequested(MANIFEST, 1)) == [fx.SendRelocationFailed(1, 17)]


# workers


@pytest.mark.parametrize(
    "state", [ts.RelayReady, ts.OwnerWriting, ts.OwnerChecking, ts.OwnerPausing, ts.Opening]
)
def test_behind_relay_ready_a_lost_worker_shows_only_when_dispatch_is_opened(state: type[State]) -> None:
    play = target_in(state)
    assert play(ev.RestoreFailed("worker gone")) == []
    assert type(play.state) is state


def test_an_object_that_cannot_open_is_said_to_be_lost() -> None:
    effects = target_in(ts.Opening)(ev.DispatchOpenFailed("worker gone"))
    assert logs(effects) == ["object_lost"]
