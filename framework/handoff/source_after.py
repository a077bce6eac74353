"""`SourceHandoff` from the boundary on: batch, cutover, resend, learning the commit, follow (R4.4, B8.10, R10).

Owns the pre-boundary batch and the backlog. Nothing in here gives the object back to the source.
"""

from __future__ import annotations

from sojourn.handoff.effects import (
    DropObject,
    EndDispatch,
    FailTaken,
    InstallFollowRoute,
    MarkLost,
    ReadRow,
    RemoveFollowRoute,
    ReportOutcome,
    SendCutover,
    SendFollow,
    SendRelay,
)
from sojourn.handoff.events import (
    CommitTold,
    CutoverSubmitted,
    LinkLost,
    LinkRestored,
    LostConflicted,
    LostMarked,
    LostUnknown,
    RecordArrived,
    RowRead,
    RowReadFailed,
    TargetRunGone,
)
from sojourn.handoff.machine import DeadlineReached, on
from sojourn.handoff.source_base import SourceBase
from sojourn.handoff.source_states import (
    Batch,
    CommitAwaited,
    CutoverPending,
    CutoverSubmitting,
    FenceChecking,
    FencePausing,
    FenceWriting,
    Fencing,
    FollowOnly,
    LostMarking,
    PastBoundary,
    Reading,
    Reconciling,
    SourceClosed,
)
from sojourn.handoff.terms import (
    Outcome,
    RowFacts,
)

__all__ = ["SourceAfter"]

_FENCING = (FenceWriting, FenceChecking, FencePausing)
_READING = (CommitAwaited, Reconciling)


class SourceAfter(SourceBase):
    """Transitions from relay-ready on."""

    # batch and cutover

    def _send_batch(self, batch: Batch, connection: int) -> None:
        if batch.records:
            self._do(SendRelay(connection, batch.records))
        self._do(SendCutover(connection, len(batch.records), batch.checksum))

    # after the boundary: records and connections

    @on(RecordArrived, CutoverSubmitting, CommitAwaited, FollowOnly)
    def _follow_late(self, state: PastBoundary, event: RecordArrived, now: float) -> None:
        state.backlog.append(event.record)
        self._drain(state)

    @on(RecordArrived, Reconciling, LostMarking)
    def _record_in_reconciliation(self, state: Reconciling, event: RecordArrived, now: float) -> None:
        if state.failing:
            self._fail([event.record], "Unavailable")
        else:
            self._follow_late(state, event, now)

    @on(CutoverSubmitted, CutoverSubmitting, to=(CommitAwaited,))
    def _submitted(self, state: CutoverSubmitting, event: CutoverSubmitted, now: float) -> None:
        assert state.batch is not None
        state.batch.handed = len(state.batch.records)
        self._submit_ended(state, now, failed=False)

    @on(LinkLost, CutoverSubmitting, to=(CommitAwaited, CutoverSubmitting))
    def _submit_failed(self, state: CutoverSubmitting, event: LinkLost, now: float) -> None:
        if event.connection == state.connection:
            self._take_back(state, event)
            self._submit_ended(state, now, failed=True)

    def _submit_ended(self, state: CutoverSubmitting, now: float, *, failed: bool) -> None:
        """The submit is terminal, well or badly: the source's dispatch ends for good (R4.4.3)."""
        assert state.batch is not None
        state.batch.submitting = False
        state.batch.window_until = now + self.options.cutover_wait_s
        self._do(EndDispatch())
        self.state = awaited = state.into(CommitAwaited)
        if failed:
            self._do(ReadRow())
        else:  # the target has its commit before it: a read now finds nothing, and is in its way
            self._read_later(awaited, self._pause(0), now)

    @on(LinkLost, CommitAwaited, Reconciling, LostMarking, FollowOnly)
    def _cut_later(self, state: PastBoundary, event: LinkLost, now: float) -> None:
        if event.connection == state.connection:
            self._take_back(state, event)
            self._end_window(state, now)
            self._drain(state)

    def _take_back(self, state: PastBoundary, event: LinkLost) -> None:
        state.connection = None
        state.backlog[:0] = event.follow_unsent
        batch = state.batch
        if batch is not None and batch.submitting:
            batch.handed = max(batch.handed, event.boundary_handed)
            batch.submitting = False

    @on(CutoverSubmitted, CommitAwaited, Reconciling, LostMarking, FollowOnly)
    def _resubmitted(self, state: PastBoundary, event: CutoverSubmitted, now: float) -> None:
        batch = state.batch
        if batch is not None and event.connection == state.connection:
            batch.handed = len(batch.records)
            batch.submitting = False
            self._end_window(state, now)

    @on(LinkRestored, CommitAwaited, Reconciling, LostMarking, FollowOnly)
    def _resend(self, state: PastBoundary, event: LinkRestored, now: float) -> None:
        """Within the resend window batch and cutover go first, afterwards follow frames only (R4.4.7)."""
        self._end_window(state, now)
        state.connection = event.connection
        state.target_gone = False
        if state.batch is not None:
            state.batch.submitting = True
            self._send_batch(state.batch, event.connection)
        self._drain(state)

    def _end_window(self, state: PastBoundary, now: float) -> None:
        """Release payload and batch once the resend window is over; what no connection took is followed."""
        batch = state.batch
        if batch is None or batch.submitting or batch.window_until is None or now < batch.window_until:
            return
        self._release(state)
        self._drain(state)

    def _drain(self, state: PastBoundary) -> None:
        """Follow what can be followed now. The way leads through the target as long as its connection stands,
        even when the row names a later owner: a shorter way would overtake what went before."""
        if not state.backlog:
            return
        if state.connection is not None:
            run = self.plan.target
        elif isinstance(state, FollowOnly) and state.owner != self.plan.target:
            run = state.owner
        else:
            return
        self._do(SendFollow(run, tuple(state.backlog)))
        state.backlog = []

    @on(TargetRunGone, *_FENCING, CutoverPending, CutoverSubmitting, *_READING, LostMarking)
    def _note_target_gone(self, state: Fencing | PastBoundary, event: TargetRunGone, now: float) -> None:
        state.target_gone = True

    # learning the commit

    @on(RowRead, CommitAwaited, to=(CommitAwaited, FollowOnly, SourceClosed))
    def _row_read(self, state: CommitAwaited, event: RowRead, now: float) -> None:
        if self._committed(event.row):
            assert event.row is not None
            self._follow(state.into(FollowOnly), event.row)
        elif self._still_ours(event.row):
            self._read_later(state, self._pause(state.reads), now)
        else:
            self._release(state)
            self._lose_authority(state.backlog)

    @on(CommitTold, CommitAwaited)
    def _told(self, state: CommitAwaited, event: CommitTold, now: float) -> None:
        if state.read_at is not None:
            self._read_now(state)

    @on(RowReadFailed, CommitAwaited)
    def _row_unread(self, state: CommitAwaited, event: RowReadFailed, now: float) -> None:
        self._read_later(state, self._pause(state.reads), now)

    def _read_later(self, state: Reading, pause_s: float, now: float) -> None:
        state.reads += 1
        state.read_at = now + pause_s

    @on(DeadlineReached, CommitAwaited, to=(CommitAwaited, Reconciling))
    def _time_for_commit(self, state: CommitAwaited, event: DeadlineReached, now: float) -> None:
        self._end_window(state, now)
        if now >= state.commit_by:
            reconciling = state.into(Reconciling)
            if state.read_at is not None:
                self._read_now(reconciling)
            self.state = reconciling
        elif state.read_at is not None and now >= state.read_at:
            self._read_now(state)

    def _read_now(self, state: Reading) -> None:
        state.read_at = None
        self._do(ReadRow())

    @on(DeadlineReached, Reconciling)
    def _time_to_reconcile(self, state: Reconciling, event: DeadlineReached, now: float) -> None:
        self._end_window(state, now)
        if not state.failing and now >= state.follow_until:
            state.failing = True
            self._do(FailTaken("Unavailable", "unknown"))
            self._fail(state.backlog, "Unavailable")
            state.backlog = []
            self._report_doubt(state)
        if state.read_at is not None and now >= state.read_at:
            self._read_now(state)

    @on(DeadlineReached, LostMarking)
    def _time_while_marking(self, state: LostMarking, event: DeadlineReached, now: float) -> None:
        self._end_window(state, now)

    @on(RowReadFailed, Reconciling)
    def _still_unread(self, state: Reconciling, event: RowReadFailed, now: float) -> None:
        self._report_doubt(state)
        self._read_later(state, self.options.sweep_s, now)

    def _report_doubt(self, state: Reconciling) -> None:
        if not state.reported:
            state.reported = True
            self._do(ReportOutcome(Outcome.IN_DOUBT, "the store could not tell whether the target committed"))

    @on(RowRead, Reconciling, to=(FollowOnly, LostMarking, SourceClosed))
    def _reconciled(self, state: Reconciling, event: RowRead, now: float) -> None:
        row = event.row
        if self._committed(row):
            assert row is not None
            self._follow(
                state.into(FollowOnly, follow_until=max(state.follow_until, now)),
                row,
                reported=state.reported,
            )
        elif not self._still_ours(row):
            self._release(state)
            self._lose_authority(state.backlog, reported=state.reported)
        elif row is not None and row.lost:
            self._now_lost(state)
        else:
            assert row is not None
            self._do(MarkLost(row.version, self._our_rows(row.others)))
            self.state = state.into(LostMarking)

    @on(LostMarked, LostMarking, to=(SourceClosed,))
    def _marked_lost(self, state: LostMarking, event: LostMarked, now: float) -> None:
        self._now_lost(state)

    @on(LostConflicted, LostMarking, to=(Reconciling,))
    @on(LostUnknown, LostMarking, to=(Reconciling,))
    def _not_marked(self, state: LostMarking, event: LostConflicted | LostUnknown, now: float) -> None:
        reconciling = state.into(Reconciling)
        self._read_now(reconciling)
        self.state = reconciling

    def _now_lost(self, state: Reconciling) -> None:
        self._log("object_lost", "error", relocation_id=self.plan.identity.relocation_id)
        self._release(state)
        self._do(FailTaken("DataLost", "no", state.target_gone))
        self._fail(state.backlog, "DataLost")
        self._do(DropObject(""))
        self._do(RemoveFollowRoute())
        self._close(
            "the target did not take the object over in its time; the object is lost",
            None if state.reported else Outcome.FAILED,
        )

    # follow

    def _follow(self, state: FollowOnly, row: RowFacts, *, reported: bool = False) -> None:
        """The row shows the commit: adopt its owner as the route (B6.7, B6.8, B8.10)."""
        state.owner = row.owner
        self._do(DropObject("RelocationOut"))
        self._do(InstallFollowRoute(row.owner, row.owner_generation, state.follow_until))
        self._drain(state)
        if not reported:
            self._do(ReportOutcome(Outcome.MOVED))
        self.state = state
        if state.target_gone and row.owner == self.plan.target:
            self._end_follow(state)

    @on(TargetRunGone, FollowOnly, to=(FollowOnly, SourceClosed))
    def _owner_gone(self, state: FollowOnly, event: TargetRunGone, now: float) -> None:
        state.target_gone = True
        if state.owner == self.plan.target:
            self._end_follow(state)

    @on(DeadlineReached, FollowOnly, to=(FollowOnly, SourceClosed))
    def _time_to_follow(self, state: FollowOnly, event: DeadlineReached, now: float) -> None:
        self._end_window(state, now)
        if now >= state.follow_until:
            self._end_follow(state)

    def _end_follow(self, state: FollowOnly) -> None:
        """Its time is over, or the target is gone and with it whatever it had not answered."""
        self._release(state)
        if state.target_gone and state.owner == self.plan.target:
            self._do(FailTaken("Unavailable", "unknown"))
        self._fail(state.backlog, "Unavailable")
        self._do(RemoveFollowRoute())
        self._close(None, None)

    @on(RecordArrived, SourceClosed)
    def _too_late(self, state: SourceClosed, event: RecordArrived, now: float) -> None:
        self._fail([event.record], "Unavailable")
