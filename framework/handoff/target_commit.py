"""`TargetHandoff` from relay-ready on: relay, cutover or fallback, the CAS, opening (R4.4.4 to R4.6, B6.5).

Owns when the owner is written and what its outcome means. It never guesses one.
"""

from __future__ import annotations

from sojourn.handoff.effects import (
    CommitSessions,
    DeliverRecords,
    FailHeld,
    ForgetHandoff,
    OpenDispatch,
    ReadRow,
    RemoveFollowRoute,
    SendFollow,
    SendRelayReady,
    SendRelocationFailed,
    WriteOwner,
)
from sojourn.handoff.events import (
    CutoverArrived,
    DirectArrived,
    DispatchOpened,
    DispatchOpenFailed,
    FollowArrived,
    OwnerWriteConflicted,
    OwnerWriteFailed,
    OwnerWriteUnknown,
    OwnerWritten,
    RelayArrived,
    RestoreRequested,
    RowRead,
    RowReadFailed,
)
from sojourn.handoff.machine import DeadlineReached, Same, on
from sojourn.handoff.target_staging import TargetStaging
from sojourn.handoff.target_states import (
    Committing,
    Open,
    Opening,
    OwnerChecking,
    OwnerPausing,
    OwnerWriting,
    RelayReady,
    TargetDoubting,
    TargetForgotten,
    TargetOpen,
    TargetRemoved,
)
from sojourn.handoff.terms import FAILURE_REQUEST, DirectDisposal, RowFacts, same_unit

__all__ = ["TargetCommit"]

_COMMITTING = (OwnerWriting, OwnerChecking, OwnerPausing)


class TargetCommit(TargetStaging):
    """Transitions from relay-ready on."""

    # relay and cutover

    @on(RelayArrived, RelayReady)
    def _relay(self, state: RelayReady, event: RelayArrived, now: float) -> None:
        if not state.relay.add(event.record, event.connection):
            self._queue(state, event.record)

    @on(CutoverArrived, RelayReady, to=(RelayReady, OwnerWriting))
    def _cutover(self, state: RelayReady, event: CutoverArrived, now: float) -> None:
        if state.relay.verify(event.count, event.checksum, event.connection):
            self._settled(state, by_fallback=False)
            return
        count, checksum = state.relay.received(event.connection)
        self._log(
            "cutover_mismatch",
            "error",
            relocation_id=self.plan.identity.relocation_id,
            announced=(event.count, event.checksum),
            received=(count, checksum),
        )

    @on(RestoreRequested, RelayReady, to=(RelayReady, TargetDoubting, TargetRemoved))
    def _ready_again(self, state: RelayReady, event: RestoreRequested, now: float) -> None:
        state.connection = event.connection
        if event.manifest != state.manifest:
            self._conflict(state)
        else:
            self._do(SendRelayReady(event.connection))
            state.wait_until = min(now + self.options.cutover_wait_s, state.ends_at)

    @on(DeadlineReached, RelayReady, to=(RelayReady, OwnerWriting, TargetDoubting, TargetRemoved))
    def _waited(self, state: RelayReady, event: DeadlineReached, now: float) -> None:
        if now >= state.ends_at:
            self._fail(state, FAILURE_REQUEST, "the Restore deadline passed before the boundary was settled")
        elif now >= state.wait_until:
            self._log("cutover_timeout", "warning", relocation_id=self.plan.identity.relocation_id)
            state.relay.fall_back()
            self._settled(state, by_fallback=True)

    def _settled(self, state: RelayReady, *, by_fallback: bool) -> None:
        self._write(state.into(OwnerWriting, by_fallback=by_fallback))

    # the CAS

    def _write(self, state: Committing) -> None:
        """The own row always under the coordinator fence's version, also when it is tried again (R4.5.1); the
        other rows as they were read last."""
        others = tuple(each.condition for each in state.others)
        self._do(WriteOwner(self.plan.identity.expected_version, state.owner_generation, others))
        self.state = state.into(OwnerWriting)

    @on(OwnerWritten, OwnerWriting, to=(Opening,))
    def _written(self, state: OwnerWriting, event: OwnerWritten, now: float) -> None:
        self._open(state)

    @on(OwnerWriteConflicted, OwnerWriting, to=(OwnerChecking,))
    @on(OwnerWriteUnknown, OwnerWriting, to=(OwnerChecking,))
    def _check(
        self, state: OwnerWriting, event: OwnerWriteConflicted | OwnerWriteUnknown, now: float
    ) -> None:
        self._do(ReadRow())
        self.state = state.into(OwnerChecking)

    @on(OwnerWriteFailed, OwnerWriting, to=(OwnerPausing,))
    def _write_later(self, state: OwnerWriting, event: OwnerWriteFailed, now: float) -> None:
        self._pause_store(state, now, read_first=False)

    @on(RowReadFailed, OwnerChecking, to=(OwnerPausing,))
    def _read_later(self, state: OwnerChecking, event: RowReadFailed, now: float) -> None:
        self._pause_store(state, now, read_first=True)

    @on(RowRead, OwnerChecking, to=(Opening, OwnerPausing, OwnerWriting, TargetDoubting, TargetRemoved))
    def _checked(self, state: OwnerChecking, event: RowRead, now: float) -> None:
        row = event.row
        if self._committed(row, state.owner_generation):
            self._open(state)
        elif row is not None and row.version == self.plan.identity.expected_version:
            self._write_again(state, row, now)
        elif self._fence_found(row):
            self._remove(
                state, "fenced by the source", None, DirectDisposal.FOLLOW_TO_SOURCE, work_is_sources=True
            )
        else:
            self._stale(state, row, "stale: another valid owner or generation", now)

    def _stale(self, state: OwnerChecking, row: RowFacts | None, reason: str, now: float) -> None:
        self._remove(state, reason, None, DirectDisposal.FAIL)
        if isinstance(self.state, TargetDoubting):
            self._judge(self.state, row, now)

    def _write_again(self, state: OwnerChecking, row: RowFacts, now: float) -> None:
        """The own row is untouched: the write was not carried out, or only another row changed (B6.5)."""
        others = row.others
        if not same_unit(state.others, others):
            self._stale(state, row, "stale: another row of the unit changed", now)
        elif others != state.others:
            state.others = others
            self._write(state)
        else:
            self._pause_store(state, now, read_first=False)

    def _pause_store(self, state: Committing, now: float, *, read_first: bool) -> None:
        retry_at = now + self._pause(state.tries)
        self.state = state.into(OwnerPausing, retry_at=retry_at, read_first=read_first, tries=state.tries + 1)

    @on(
        DeadlineReached,
        OwnerPausing,
        to=(OwnerPausing, OwnerWriting, OwnerChecking, TargetDoubting, TargetRemoved),
    )
    def _retry(self, state: OwnerPausing, event: DeadlineReached, now: float) -> None:
        if now >= state.ends_at:
            self._unconfirmed(state)
        elif now < state.retry_at:
            return
        elif state.read_first:
            self._do(ReadRow())
            self.state = state.into(OwnerChecking)
        else:
            self._write(state)

    @on(DeadlineReached, OwnerWriting, OwnerChecking, to=(Same, TargetDoubting, TargetRemoved))
    def _out_of_time(self, state: Committing, event: DeadlineReached, now: float) -> None:
        if now >= state.ends_at:
            self._unconfirmed(state)

    def _unconfirmed(self, state: Committing) -> None:
        self._log("location_update_failed", "error", relocation_id=self.plan.identity.relocation_id)
        self._remove(state, "the owner could not be confirmed in time", None, DirectDisposal.FAIL)

    # records while the CAS is out

    @on(RelayArrived, *_COMMITTING)
    def _resent_relay(self, state: Committing, event: RelayArrived, now: float) -> None:
        """The first k are dropped by position, the rest appended (B8.4)."""
        if state.relay.take(event.connection):
            (state.relay.records if state.by_fallback else state.queue).append(event.record)

    @on(CutoverArrived, *_COMMITTING)
    @on(CutoverArrived, Opening, TargetOpen, TargetRemoved)
    @on(CutoverArrived, TargetDoubting, to=(TargetRemoved,))
    def _late_cutover(
        self, state: Committing | Open | TargetRemoved, event: CutoverArrived, now: float
    ) -> None:
        state.relay.seen = True
        self._log_late_cutover(event.count)
        if isinstance(state, TargetDoubting):
            self._proved(state)

    @on(RestoreRequested, *_COMMITTING)
    @on(RestoreRequested, Opening, TargetOpen)
    def _late_repeat(self, state: Committing | Open, event: RestoreRequested, now: float) -> None:
        """After a CAS was issued no failure is ever sent, not even for another manifest (R4.3.3)."""
        if event.manifest == state.manifest:
            self._do(SendRelayReady(event.connection))
        else:
            self._log("late_conflict", "error", relocation_id=self.plan.identity.relocation_id)

    # open

    def _open(self, state: Committing) -> None:
        self._do(OpenDispatch(tuple(state.relay.records), tuple(state.queue)))
        state.relay.forget_records()
        forget_at = state.ends_at + self.options.follow_duration_s
        self.state = Opening(state.manifest, state.relay, forget_at, state.bound)

    @on(DispatchOpened, Opening, to=(TargetOpen,))
    def _opened(self, state: Opening, event: DispatchOpened, now: float) -> None:
        if state.bound:
            self._do(CommitSessions())
        self.state = state.into(TargetOpen)

    @on(DispatchOpenFailed, Opening, to=(TargetOpen,))
    def _open_failed(self, state: Opening, event: DispatchOpenFailed, now: float) -> None:
        self._log("object_lost", "error", error=str(event.error))
        self.state = state.into(TargetOpen)

    @on(RelayArrived, Opening, TargetOpen)
    def _relay_after_open(self, state: Open, event: RelayArrived, now: float) -> None:
        if state.relay.take(event.connection):
            self._do(DeliverRecords((event.record,)))

    @on(DirectArrived, Opening, TargetOpen, TargetRemoved)
    @on(FollowArrived, Opening, TargetOpen, TargetRemoved)
    def _ordinary(
        self, state: Open | TargetRemoved, event: DirectArrived | FollowArrived, now: float
    ) -> None:
        self._do(DeliverRecords((event.record,)))

    @on(DeadlineReached, TargetOpen, TargetRemoved, to=(Same, TargetForgotten))
    def _forget(self, state: TargetOpen | TargetRemoved, event: DeadlineReached, now: float) -> None:
        if now >= state.forget_at:
            if isinstance(state, TargetRemoved) and state.follows:
                self._do(RemoveFollowRoute())
            self._do(ForgetHandoff())
            self.state = TargetForgotten()

    # ended identities

    @on(RestoreRequested, TargetRemoved, TargetDoubting)
    def _ended(self, state: TargetRemoved, event: RestoreRequested, now: float) -> None:
        if state.failure_code is not None:
            self._do(SendRelocationFailed(event.connection, state.failure_code))

    @on(DirectArrived, TargetRemoved, TargetDoubting)
    @on(FollowArrived, TargetRemoved, TargetDoubting)
    def _arrived_of_ended(
        self, state: TargetRemoved, event: DirectArrived | FollowArrived, now: float
    ) -> None:
        """Delivered here all the same: it goes where the follow route leads."""
        if state.follows:
            self._do(SendFollow(self.plan.identity.source, (event.record,)))
        else:
            self._do(FailHeld((event.record,), "Unavailable"))

    @on(RelayArrived, TargetRemoved)
    @on(RelayArrived, TargetDoubting, to=(TargetRemoved,))
    def _relay_of_ended(self, state: TargetRemoved, event: RelayArrived, now: float) -> None:
        """The source passed its boundary, and nothing will ever run this record: one terminal each (B8.15)."""
        if isinstance(state, TargetDoubting):  # the saved work comes first
            self._proved(state)
        if state.relay.take(event.connection):
            self._do(FailHeld((event.record,), "Unavailable"))
