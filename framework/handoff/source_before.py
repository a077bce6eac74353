"""`SourceHandoff` before the boundary: seal, capture, Restore request, every way back (R4.2, B6.7, B8.6).

Owns the ingress hold and the fence. Past the boundary it must not be heard of.
"""

from __future__ import annotations

from typing import Any

from sojourn.handoff.effects import (
    AbortSessions,
    DeliverRecords,
    DropObject,
    EndDispatch,
    ForgetHandoff,
    ReadRow,
    ReleasePayload,
    RemoveFollowRoute,
    ReportOutcome,
    RestoreDispatch,
    SealObject,
    SendChunks,
    SendRestore,
    SendWithdrawn,
    WriteFence,
)
from sojourn.handoff.events import (
    CancelRequested,
    CaptureRefused,
    DispatchRestored,
    DispatchRestoreFailed,
    FenceApplied,
    FenceConflicted,
    FenceUnknown,
    LinkLost,
    LinkRestored,
    ObjectCaptured,
    RecordArrived,
    RelayReadyReceived,
    RelocationFailedReceived,
    RelocationStarted,
    RowRead,
    RowReadFailed,
    TargetRunGone,
    TurnOutlasted,
    WorkerLost,
)
from sojourn.handoff.machine import DeadlineReached, Same, on
from sojourn.handoff.source_sessions import SourceSessions
from sojourn.handoff.source_states import (
    Abandoning,
    BoundaryAwaited,
    CutoverPending,
    CutoverSubmitting,
    FenceChecking,
    FencePausing,
    FenceWriting,
    Fencing,
    FollowOnly,
    Paused,
    Restoring,
    Sealing,
    SourceClosed,
    SourcePaused,
    SourceRestored,
    SourceRunning,
    TargetRestoring,
)
from sojourn.handoff.terms import (
    Outcome,
    RowFacts,
)

__all__ = ["SourceBefore"]

_FENCING = (FenceWriting, FenceChecking, FencePausing)
_BEFORE = (SourcePaused, TargetRestoring, *_FENCING)


class SourceBefore(SourceSessions):
    """Transitions up to relay-ready."""

    # seal and capture

    @on(RelocationStarted, SourceRunning, to=(Sealing, BoundaryAwaited, SourceRestored))
    def _start(self, state: SourceRunning, event: RelocationStarted, now: float) -> None:
        if self.plan.gives_up_at - now < self.options.seal_time_min_s:
            self._do(ReportOutcome(Outcome.FAILED, "too little time left before the deadline to seal"))
            self._do(ForgetHandoff())
            self.state = SourceRestored()
            return
        if self.plan.sessions:
            self._reach_boundary(event.connection)
            return
        self._do(SealObject(self.plan.gives_up_at))
        self.state = Sealing(event.connection, self.plan.gives_up_at)

    @on(RecordArrived, Sealing, Abandoning, *_BEFORE)
    def _hold(self, state: Sealing | Abandoning | Paused, event: RecordArrived, now: float) -> None:
        state.hold.append(event.record)

    @on(ObjectCaptured, Sealing, to=(TargetRestoring, SourcePaused))
    def _captured(self, state: Sealing, event: ObjectCaptured, now: float) -> None:
        paused = SourcePaused(state.connection, event.manifest, state.hold, state.gives_up_at)
        if self.plan.sessions:
            paused.confirming = self._ask_seals()  # the same 42 behind the last push (B11.3)
        if state.connection is None:
            self.state = paused
        else:
            self._send_restore(paused, state.connection, now)

    @on(CaptureRefused, Sealing, to=(Restoring,))
    def _refused(self, state: Sealing, event: CaptureRefused, now: float) -> None:
        self._restore(state.hold, event.error, captured=False)

    @on(CaptureRefused, Abandoning, to=(Restoring,))
    @on(TurnOutlasted, Abandoning, to=(Restoring,))
    def _refused_anyway(self, state: Abandoning, event: CaptureRefused | TurnOutlasted, now: float) -> None:
        self._restore(state.hold, state.reason, captured=False)

    @on(ObjectCaptured, Abandoning, to=(Restoring,))
    def _captured_in_vain(self, state: Abandoning, event: ObjectCaptured, now: float) -> None:
        self._restore(state.hold, state.reason, captured=True)

    @on(WorkerLost, Sealing, Abandoning, to=(SourceClosed,))
    def _lost_while_sealing(self, state: Sealing | Abandoning, event: WorkerLost, now: float) -> None:
        self._fail(state.hold, "DataLost")
        self._do(DropObject(""))
        self._do(RemoveFollowRoute())
        self._close("the worker ended while it captured the object", Outcome.FAILED)

    @on(CancelRequested, Sealing, to=(Abandoning,))
    def _cancelled_early(self, state: Sealing, event: CancelRequested, now: float) -> None:
        self.state = Abandoning(event.reason, state.hold)

    @on(TargetRunGone, Sealing, to=(Abandoning,))
    def _target_gone_early(self, state: Sealing, event: TargetRunGone, now: float) -> None:
        self.state = Abandoning("the target's run ended", state.hold)

    @on(DeadlineReached, Sealing, to=(Sealing, Abandoning))
    def _seal_took_too_long(self, state: Sealing, event: DeadlineReached, now: float) -> None:
        if now >= state.gives_up_at:
            self.state = Abandoning("the deadline passed before the object could be sealed", state.hold)

    # connections before the boundary

    @on(LinkLost, Sealing, *_FENCING)
    def _note_lost(self, state: Sealing | Fencing, event: LinkLost, now: float) -> None:
        if event.connection == state.connection:
            state.connection = None

    @on(LinkRestored, Sealing, *_FENCING)
    def _note_restored(self, state: Sealing | Fencing, event: LinkRestored, now: float) -> None:
        state.connection = event.connection
        if isinstance(state, Fencing):
            state.target_gone = False

    @on(LinkLost, TargetRestoring, to=(TargetRestoring, SourcePaused))
    def _cut_before_ready(self, state: TargetRestoring, event: LinkLost, now: float) -> None:
        if event.connection == state.connection:
            self.state = state.into(SourcePaused, connection=None)

    @on(LinkRestored, SourcePaused, TargetRestoring, to=(TargetRestoring,))
    def _repeat(self, state: Paused, event: LinkRestored, now: float) -> None:
        self._send_restore(state, event.connection, now)

    def _send_restore(self, state: Paused, connection: int, now: float) -> None:
        """First or repeated Restore request with all chunks (B8.6)."""
        remaining_s = max(state.gives_up_at - now, 0.0) + self.options.commit_reserve_s
        self._do(SendRestore(connection, state.manifest, remaining_s))
        self._do(SendChunks(connection))
        self.state = state.into(
            TargetRestoring,
            connection=connection,
            restores_sent=state.restores_sent + 1,
            remaining_s=max(state.remaining_s, remaining_s),
        )

    # failures before the boundary

    @on(RelocationFailedReceived, TargetRestoring, to=(Restoring, FenceWriting))
    def _failed(self, state: TargetRestoring, event: RelocationFailedReceived, now: float) -> None:
        reason = event.told or f"the target refused or failed (code {event.failure_code})"
        if state.restores_sent == 1:
            self._restore(state.hold, reason, captured=True)
        else:  # an earlier request may live on at the target (B8.6)
            self._fence(state, reason)

    @on(CancelRequested, SourcePaused, TargetRestoring, to=(Restoring, FenceWriting))
    def _cancelled(self, state: Paused, event: CancelRequested, now: float) -> None:
        self._fence(state, event.reason)

    @on(TargetRunGone, SourcePaused, TargetRestoring, to=(Restoring, FenceWriting))
    def _target_gone(self, state: Paused, event: TargetRunGone, now: float) -> None:
        self._fence(state, "the target's run ended")

    @on(
        DeadlineReached,
        SourcePaused,
        TargetRestoring,
        to=(Same, Restoring, FenceWriting),
    )
    def _out_of_time(self, state: Paused, event: DeadlineReached, now: float) -> None:
        if now >= state.gives_up_at:
            self._fence(state, "the deadline passed before the target was ready")

    def _fence(self, state: Paused, reason: Any) -> None:
        if state.restores_sent == 0:  # the target knows nothing of this identity
            self._restore(state.hold, reason, captured=True)
            return
        report_at = self.plan.gives_up_at + self.options.fence_wait_s
        self._write_fence(
            state.into(FenceWriting, reason=reason, report_at=report_at, others=self.plan.others)
        )

    def _write_fence(self, state: FenceWriting) -> None:
        self._do(WriteFence(self._our_rows(state.others)))
        self.state = state

    @on(FenceApplied, FenceWriting, to=(Restoring,))
    def _fenced(self, state: FenceWriting, event: FenceApplied, now: float) -> None:
        self._restore_fenced(state)

    @on(FenceConflicted, FenceWriting, to=(FenceChecking,))
    @on(FenceUnknown, FenceWriting, to=(FenceChecking,))
    def _fence_open(self, state: FenceWriting, event: FenceConflicted | FenceUnknown, now: float) -> None:
        self._do(ReadRow())
        self.state = state.into(FenceChecking)

    @on(RowReadFailed, FenceChecking, to=(FencePausing,))
    def _fence_unread(self, state: FenceChecking, event: RowReadFailed, now: float) -> None:
        self._pause_fence(state, now)

    @on(RowRead, FenceChecking, to=(Restoring, FollowOnly, FencePausing, FenceWriting, SourceClosed))
    def _fence_read(self, state: FenceChecking, event: RowRead, now: float) -> None:
        row = event.row
        if row is not None and row.version == self.plan.identity.expected_version:
            others, state.others = state.others, row.others
            if self._our_rows(others) != self._our_rows(row.others):  # only another row changed (B6.5)
                self._write_fence(state.into(FenceWriting))
            else:
                self._pause_fence(state, now)  # the write was not carried out; the same condition again
        elif self._committed(row):
            assert row is not None
            self._adopt_fenced(state, row, now)
        elif self._still_ours(row):
            # Our mark, or a row that we wrote for another reason: nobody can commit under the old version.
            self._restore_fenced(state)
        else:
            self._do(ReleasePayload())
            self._lose_authority(state.hold, reported=state.report_at is None)

    def _restore_fenced(self, state: Fencing) -> None:
        self._log("relocation_fenced", "info", reason=state.reason)
        outcome = Outcome.FAILED if state.report_at is not None else None
        self._restore(state.hold, state.reason, captured=True, outcome=outcome)
        if state.connection is not None:
            self._do(SendWithdrawn(state.connection))

    def _pause_fence(self, state: Fencing, now: float) -> None:
        self.state = state.into(
            FencePausing, retry_at=now + self._pause(state.retries), retries=state.retries + 1
        )

    @on(DeadlineReached, FenceWriting, FenceChecking)
    def _fence_takes_time(self, state: Fencing, event: DeadlineReached, now: float) -> None:
        """The object stays held until the store tells; who asked for the move does not wait for that."""
        if state.report_at is not None and now >= state.report_at:
            state.report_at = None
            doubt = "the store could not tell whether the attempt was fenced or had committed"
            self._do(ReportOutcome(Outcome.IN_DOUBT, doubt))

    @on(DeadlineReached, FencePausing, to=(FencePausing, FenceWriting))
    def _fence_again(self, state: FencePausing, event: DeadlineReached, now: float) -> None:
        self._fence_takes_time(state, event, now)
        if now >= state.retry_at:
            self._write_fence(state.into(FenceWriting))

    def _adopt_fenced(self, state: Fencing, row: RowFacts, now: float) -> None:
        """The target had committed before the fence: its route is adopted, the hold is followed (B6.7)."""
        self._do(EndDispatch())
        self._do(ReleasePayload())
        until = now + self.options.follow_duration_s
        follow = FollowOnly(state.connection, None, state.hold, now, until, state.target_gone)
        self._follow(follow, row, reported=state.report_at is None)

    # giving the object back

    def _restore(
        self, hold: list[Any], reason: Any, *, captured: bool, outcome: Outcome | None = Outcome.FAILED
    ) -> None:
        self._do(RestoreDispatch(tuple(hold), captured))
        self.state = Restoring(reason, captured, outcome)

    @on(RecordArrived, Restoring, SourceRestored)
    def _deliver(self, state: Restoring | SourceRestored, event: RecordArrived, now: float) -> None:
        self._do(DeliverRecords((event.record,)))

    @on(DispatchRestored, Restoring, to=(SourceRestored,))
    def _restored(self, state: Restoring, event: DispatchRestored, now: float) -> None:
        if self.plan.sessions:  # only now that the queue is back for good (R7.2)
            self._do(AbortSessions())
        self._end_restoring(state, state.reason)
        self.state = SourceRestored()

    @on(DispatchRestoreFailed, Restoring, to=(SourceClosed,))
    def _not_restored(self, state: Restoring, event: DispatchRestoreFailed, now: float) -> None:
        if state.outcome is not None:
            state.outcome = Outcome.FAILED
        self._end_restoring(state, event.error)
        self.state = SourceClosed()

    def _end_restoring(self, state: Restoring, reason: Any) -> None:
        if state.captured:
            self._do(ReleasePayload())
        if state.outcome is not None:
            self._do(ReportOutcome(state.outcome, reason))
        self._do(ForgetHandoff())

    # the boundary

    @on(RelayReadyReceived, TargetRestoring, to=(Same, CutoverSubmitting, CutoverPending, FenceWriting))
    def _accept(self, state: TargetRestoring, event: RelayReadyReceived, now: float) -> None:
        if (
            event.connection != state.connection
        ):  # batch and cutover could not go out there; the repeat is answered
            return
        if now >= state.gives_up_at:  # only before D (B8.2)
            self._fence(state, "the deadline passed before the target was ready")
            return
        commit_by = now + state.remaining_s
        pending = CutoverPending(
            event.connection,
            None,
            [],
            commit_by,
            commit_by + self.options.follow_duration_s,
            hold=state.hold,
            confirming=state.confirming,
            submit_by=now + self.options.cutover_wait_s / 2,
        )
        if pending.confirming:
            self.state = pending
        else:
            self._submit_pending(pending)
