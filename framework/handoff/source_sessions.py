"""`SourceHandoff` of a unit that is bound to sessions: the seal before the stop, the second 43 (B8.12, B11).

Owns the order boundary, 42, 43, stop; the wait for the 43 behind the last push; when a seal is given back. A
unit without a binding passes none of these states. What is repeated on a new connection is `SessionContact`'s.
"""

from __future__ import annotations

from typing import Any

from sojourn.handoff.effects import (
    AbortSessions,
    AskSessionSeal,
    AwaitTurnBoundary,
    ForgetHandoff,
    ReportOutcome,
    RestoreDispatch,
    SealObject,
)
from sojourn.handoff.events import (
    CancelRequested,
    LinkLost,
    LinkRestored,
    RecordArrived,
    SessionRefused,
    SessionSealed,
    SessionUnbound,
    TargetRunGone,
    TurnBoundaryReached,
    TurnOutlasted,
    WorkerLost,
)
from sojourn.handoff.machine import DeadlineReached, Same, on
from sojourn.handoff.source_after import SourceAfter
from sojourn.handoff.source_states import (
    Batch,
    BoundaryAwaited,
    CommitAwaited,
    CutoverPending,
    CutoverSubmitting,
    FenceChecking,
    FencePausing,
    FenceWriting,
    Paused,
    Restoring,
    Sealing,
    SessionSealing,
    SourceClosed,
    SourcePaused,
    SourceRestored,
    TargetRestoring,
)
from sojourn.handoff.terms import Outcome

__all__ = ["SourceSessions"]

_CONFIRMING = (SourcePaused, TargetRestoring, FenceWriting, FenceChecking, FencePausing)
Early = BoundaryAwaited | SessionSealing
Answer = SessionSealed | SessionUnbound | SessionRefused


class SourceSessions(SourceAfter):
    """Transitions that only a bound unit makes."""

    # the seal before the stop

    def _reach_boundary(self, connection: int) -> None:
        """The turn boundary first, then the 42: a long handler must not eat the seal timeout (B8.12)."""
        self._do(AwaitTurnBoundary())
        gives_up_at = self.plan.gives_up_at
        self.state = BoundaryAwaited(connection, gives_up_at, gives_up_at - self.options.seal_time_min_s)

    @on(TurnBoundaryReached, BoundaryAwaited, to=(SessionSealing, SourceRestored))
    def _ask_sessions(self, state: BoundaryAwaited, event: TurnBoundaryReached, now: float) -> None:
        if now >= state.ask_by:
            self._leave_running(state, "too little time left before the deadline to seal")
            return
        missing = self._ask_seals()
        sealed_by = min(now + self.options.session_answer_s, state.ask_by)
        self.state = SessionSealing(state.connection, state.gives_up_at, missing, sealed_by)

    def _ask_seals(self) -> frozenset[int]:
        sessions = frozenset(range(self.plan.sessions))
        for session in sorted(sessions):
            self._do(AskSessionSeal(session))
        return sessions

    @on(SessionSealed, SessionSealing, to=(SessionSealing, Sealing))
    @on(SessionUnbound, SessionSealing, to=(SessionSealing, Sealing))
    def _sealed(self, state: SessionSealing, event: SessionSealed | SessionUnbound, now: float) -> None:
        state.missing -= {event.session}
        if not state.missing:
            self._do(SealObject(min(now + self.options.sealed_turn_s, state.gives_up_at)))
            self.state = Sealing(state.connection, state.gives_up_at)

    @on(SessionRefused, SessionSealing, to=(SourceRestored,))
    def _not_sealed(self, state: SessionSealing, event: SessionRefused, now: float) -> None:
        self._leave_running(state, f"the session owner refused the seal: {event.reason}")

    @on(DeadlineReached, BoundaryAwaited, SessionSealing, to=(Same, SourceRestored))
    def _no_boundary_or_seal(self, state: Early, event: DeadlineReached, now: float) -> None:
        if state.deadline is None or now < state.deadline:
            return
        if isinstance(state, BoundaryAwaited):
            self._leave_running(state, "the deadline passed before a turn of the object had ended")
        else:
            self._leave_running(state, "the session owner did not answer in time")

    @on(CancelRequested, BoundaryAwaited, SessionSealing, to=(SourceRestored,))
    def _cancelled_while_running(self, state: Early, event: CancelRequested, now: float) -> None:
        self._leave_running(state, event.reason)

    @on(TargetRunGone, BoundaryAwaited, SessionSealing, to=(SourceRestored,))
    def _target_gone_while_running(self, state: Early, event: TargetRunGone, now: float) -> None:
        self._leave_running(state, "the target's run ended")

    def _leave_running(self, state: Early, reason: Any) -> None:
        """The object never stopped: the seal goes back at once, for every 42 sent (R7.2)."""
        if isinstance(state, SessionSealing):
            self._do(AbortSessions())
        self._do(ReportOutcome(Outcome.FAILED, reason))
        self._do(ForgetHandoff())
        self.state = SourceRestored()

    @on(WorkerLost, BoundaryAwaited, SessionSealing, to=(SourceClosed,))
    def _lost_while_running(self, state: Early, event: WorkerLost, now: float) -> None:
        """Nothing is restored, so no abort goes out: the session owner ends the seal by itself (R7.3)."""
        self._close("the worker ended before the object was sealed", Outcome.FAILED)

    @on(TurnOutlasted, Sealing, to=(Restoring,))
    def _turn_outlasted(self, state: Sealing, event: TurnOutlasted, now: float) -> None:
        """Abort, and seal again at the turn's end (B8.12): a new RelocationId is a new identity, so a new
        handoff. This one never asked anything of its target."""
        self._do(RestoreDispatch(tuple(state.hold), False))
        self.state = Restoring("a turn outlasted the session seal", False, Outcome.POSTPONED)

    # the 43 behind the last push

    @on(SessionSealed, *_CONFIRMING)
    @on(SessionUnbound, *_CONFIRMING)
    @on(SessionRefused, *_CONFIRMING)
    def _confirmed_early(self, state: Paused, event: Answer, now: float) -> None:
        state.confirming -= {event.session}

    @on(SessionSealed, CutoverPending, to=(CutoverPending, CutoverSubmitting))
    @on(SessionUnbound, CutoverPending, to=(CutoverPending, CutoverSubmitting))
    @on(SessionRefused, CutoverPending, to=(CutoverPending, CutoverSubmitting))
    def _confirmed(self, state: CutoverPending, event: Answer, now: float) -> None:
        state.confirming -= {event.session}
        if not state.confirming:
            self._submit_pending(state)

    @on(DeadlineReached, CutoverPending, to=(CutoverPending, CutoverSubmitting))
    def _waited_for_sessions(self, state: CutoverPending, event: DeadlineReached, now: float) -> None:
        if now >= state.submit_by:
            self._log("session_unconfirmed", "info", sessions=sorted(state.confirming))
            self._submit_pending(state)

    @on(RecordArrived, CutoverPending)
    def _hold_on(self, state: CutoverPending, event: RecordArrived, now: float) -> None:
        state.hold.append(event.record)

    def _submit_pending(self, state: CutoverPending) -> None:
        assert state.connection is not None
        state.batch = self._batch_of(state.hold)
        self._send_batch(state.batch, state.connection)
        self.state = state.into(CutoverSubmitting)

    @on(LinkLost, CutoverPending, to=(CutoverPending, CommitAwaited))
    def _cut_while_pending(self, state: CutoverPending, event: LinkLost, now: float) -> None:
        """As a submit that failed: batch and cutover go out on the next connection (R4.4.5)."""
        if event.connection == state.connection:
            state.batch = self._batch_of(state.hold)
            submitting = state.into(CutoverSubmitting, connection=None)
            self._submit_ended(submitting, now, failed=True)

    def _batch_of(self, hold: list[Any]) -> Batch:
        records = tuple(hold)
        checksum = 0
        for record in records:
            checksum = self._checksum(self._frozen(record), checksum)
        return Batch(records, checksum)

    # connections to the target meanwhile

    @on(LinkLost, BoundaryAwaited, SessionSealing)
    def _note_lost_early(self, state: Early, event: LinkLost, now: float) -> None:
        if event.connection == state.connection:
            state.connection = None

    @on(LinkRestored, BoundaryAwaited, SessionSealing)
    def _note_restored_early(self, state: Early, event: LinkRestored, now: float) -> None:
        state.connection = event.connection
