"""`LocalHandoff`: one unit's move to another worker of its node (B8.7).

Owns the hold, the moment from which the move can only go forward, and the way back before it. It must not know bytes,
clocks, workers or the store: see `sojourn.handoff.events` and `effects`.

The steps are those of a move between nodes, and one machine takes them, since one supervisor sees both ends:

1. `RelocationStarted` → `SealObject`. From then on every record is `RecordArrived` and waits in the hold, which is
   the ingress hold (R4.2.7) and the temporary queue (R4.3.1) in one. So there is no relay, no cutover and no follow.
2. `ObjectCaptured` → `RestoreObject` in the other worker, dispatch closed. The payload stays here.
3. `ObjectRestored` → `WriteOwner`: the same owner, owner generation + 1, this RelocationId, under the version read
   first (R4.5.1). Until a write was issued whose outcome is not a certain "no", every failure leads to
   `RestoreDispatch`. From then on the row decides, and nothing but the row: no deadline removes the object, since
   whatever the row says, it names this run or an incarnation that took its place after the lease had ended.
4. Written: `EndDispatch`, `DropObject` in the old worker, `OpenDispatch` in the new one with the hold behind the
   saved work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from sojourn.handoff.effects import (
    DeliverRecords,
    DropObject,
    DropStaged,
    EndDispatch,
    FailHeld,
    FailTaken,
    ForgetHandoff,
    OpenDispatch,
    ReadRow,
    ReleasePayload,
    RemoveFollowRoute,
    ReportOutcome,
    RestoreDispatch,
    RestoreObject,
    SealObject,
    WriteOwner,
)
from sojourn.handoff.events import (
    CaptureRefused,
    DispatchOpened,
    DispatchOpenFailed,
    DispatchRestored,
    DispatchRestoreFailed,
    ObjectCaptured,
    ObjectRestored,
    OwnerWriteConflicted,
    OwnerWriteFailed,
    OwnerWriteUnknown,
    OwnerWritten,
    RecordArrived,
    RelocationStarted,
    RestoreFailed,
    RowRead,
    RowReadFailed,
    WorkerLost,
)
from sojourn.handoff.machine import DeadlineReached, Ignored, Machine, Reasons, Same, State, on
from sojourn.handoff.terms import (
    HandoffIdentity,
    HandoffOptions,
    Outcome,
    ParticipantFacts,
    Phase,
    RowFacts,
    same_unit,
)

__all__ = ["LocalHandoff", "LocalPlan"]


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """What is fixed before a move within a node starts. `gives_up_at` is D on the machine's clock (B8.2)."""

    identity: HandoffIdentity
    object_generation: int
    owner_generation: int
    """As first read (B1.3); this + 1 is written."""
    gives_up_at: float
    others: tuple[ParticipantFacts, ...] = ()
    """The other participants' rows as first read, in the order of their authority keys (R4.2.2)."""


# States


@dataclass(slots=True)
class Running(State):
    """Nothing has been asked of the object yet."""

    phase = Phase.SOURCE_RUNNING


@dataclass(slots=True)
class Sealing(State):
    """The old worker ends the running turn and captures; records go to the hold (R4.2.7)."""

    phase = Phase.SOURCE_RUNNING
    gives_up_at: float
    hold: list[Any] = field(default_factory=list)

    @property
    def deadline(self) -> float | None:
        return self.gives_up_at


@dataclass(slots=True)
class Abandoning(State):
    """Given up while the old worker still seals: its answer is awaited, then the object goes on."""

    phase = Phase.SOURCE_RUNNING
    reason: str
    hold: list[Any]


@dataclass(slots=True)
class Staging(State):
    """The payload is here; the new worker builds the object from it, dispatch closed (R4.3)."""

    phase = Phase.TARGET_RESTORING
    gives_up_at: float
    hold: list[Any]

    @property
    def deadline(self) -> float | None:
        return self.gives_up_at


@dataclass(slots=True)
class Committing(State):
    """The owner is being written. `unknown`: the outcome of a write is not known, so there is no way back but by
    what the row says. Who asked for the move is told no later than `report_at` that it is in doubt; None = that was
    done."""

    phase = Phase.STORE_RETRY
    gives_up_at: float
    hold: list[Any]
    others: tuple[ParticipantFacts, ...]
    report_at: float | None
    unknown: bool = False
    tries: int = 0

    @property
    def deadline(self) -> float | None:
        return self.report_at


@dataclass(slots=True)
class OwnerWriting(Committing):
    """`WriteOwner` is out."""


@dataclass(slots=True)
class OwnerChecking(Committing):
    """The row is read: who does not know an outcome does not guess it (B6.5)."""


@dataclass(slots=True)
class OwnerPausing(Committing):
    """Before the store is asked again."""

    retry_at: float = 0.0
    read_first: bool = False

    @property
    def deadline(self) -> float | None:
        return self.retry_at if self.report_at is None else min(self.retry_at, self.report_at)


@dataclass(slots=True)
class Opening(State):
    """The owner is written; the new worker opens dispatch."""

    phase = Phase.OWNER_COMMITTED
    reported: bool


@dataclass(slots=True)
class Returning(State):
    """It is given back to the old worker, with what was held behind its queue (R4.2.8)."""

    phase = Phase.SOURCE_PAUSED
    reason: Any
    captured: bool
    reported: bool = False


@dataclass(slots=True)
class Over(State):
    """The handoff is over."""

    phase = Phase.TARGET_OPEN


_COMMITTING = (OwnerWriting, OwnerChecking, OwnerPausing)
_NO_TIMER: Reasons = {DeadlineReached: "a timer of an earlier state"}
_PAYLOAD_HERE: Reasons = {WorkerLost: "the payload is in the supervisor (B6.6)"}


class LocalHandoff(Machine):
    """One move to another worker of the same node.

    Args:
        plan: identity, generations and D.
        options: durations.
    """

    STATES = (Running, Sealing, Abandoning, Staging, *_COMMITTING, Opening, Returning, Over)
    EVENTS = (
        RelocationStarted,
        RecordArrived,
        ObjectCaptured,
        CaptureRefused,
        WorkerLost,
        ObjectRestored,
        RestoreFailed,
        OwnerWritten,
        OwnerWriteConflicted,
        OwnerWriteUnknown,
        OwnerWriteFailed,
        RowRead,
        RowReadFailed,
        DispatchOpened,
        DispatchOpenFailed,
        DispatchRestored,
        DispatchRestoreFailed,
        DeadlineReached,
    )
    IGNORED: ClassVar[Ignored] = {
        Running: {WorkerLost: "the seal will find it gone", **_NO_TIMER},
        Abandoning: _NO_TIMER,
        Staging: _PAYLOAD_HERE,
        OwnerWriting: _PAYLOAD_HERE,
        OwnerChecking: _PAYLOAD_HERE,
        OwnerPausing: _PAYLOAD_HERE,
        Opening: {WorkerLost: "the new worker has the object", **_NO_TIMER},
        Returning: {
            WorkerLost: "the driver knows it",
            **dict.fromkeys((ObjectRestored, RestoreFailed), "the staged object was dropped"),
            **_NO_TIMER,
        },
        Over: {
            WorkerLost: "nothing of it is here",
            **dict.fromkeys((ObjectRestored, RestoreFailed), "the staged object was dropped"),
            **_NO_TIMER,
        },
    }

    def __init__(self, plan: LocalPlan, options: HandoffOptions | None = None) -> None:
        super().__init__(Running())
        self.plan = plan
        self.options = options or HandoffOptions()

    @property
    def held(self) -> tuple[Any, ...]:
        """Records that wait for the end of the move: what ends with this node when it stops."""
        return tuple(getattr(self.state, "hold", ()))

    # seal and capture

    @on(RelocationStarted, Running, to=(Sealing, Over))
    def _start(self, state: Running, event: RelocationStarted, now: float) -> None:
        if self.plan.gives_up_at - now < self.options.seal_time_min_s:
            self._close("too little time left before the deadline to seal", Outcome.FAILED)
            return
        self._do(SealObject(self.plan.gives_up_at))
        self.state = Sealing(self.plan.gives_up_at)

    @on(RecordArrived, Sealing, Abandoning, Staging, *_COMMITTING)
    def _hold(
        self, state: Sealing | Abandoning | Staging | Committing, event: RecordArrived, now: float
    ) -> None:
        state.hold.append(event.record)

    @on(ObjectCaptured, Sealing, to=(Staging,))
    def _captured(self, state: Sealing, event: ObjectCaptured, now: float) -> None:
        self._do(RestoreObject(self.plan.object_generation, self.plan.owner_generation + 1))
        self.state = Staging(state.gives_up_at, state.hold)

    @on(CaptureRefused, Sealing, to=(Returning,))
    def _refused(self, state: Sealing, event: CaptureRefused, now: float) -> None:
        self._give_back(state.hold, event.error, captured=False)

    @on(DeadlineReached, Sealing, to=(Sealing, Abandoning))
    def _seal_took_too_long(self, state: Sealing, event: DeadlineReached, now: float) -> None:
        if now >= state.gives_up_at:
            reason = "the deadline passed before the object could be sealed"
            self._do(ReportOutcome(Outcome.FAILED, reason))  # the turn that is awaited may take any time
            self.state = Abandoning(reason, state.hold)

    @on(CaptureRefused, Abandoning, to=(Returning,))
    def _refused_anyway(self, state: Abandoning, event: CaptureRefused, now: float) -> None:
        self._give_back(state.hold, state.reason, captured=False, reported=True)

    @on(ObjectCaptured, Abandoning, to=(Returning,))
    def _captured_in_vain(self, state: Abandoning, event: ObjectCaptured, now: float) -> None:
        self._give_back(state.hold, state.reason, captured=True, reported=True)

    @on(WorkerLost, Sealing, Abandoning, to=(Over,))
    def _lost_while_sealing(self, state: Sealing | Abandoning, event: WorkerLost, now: float) -> None:
        self._fail(state.hold, "DataLost")
        self._do(DropObject(""))
        self._do(RemoveFollowRoute())
        reported = isinstance(state, Abandoning)
        self._close("the worker ended while it captured the object", None if reported else Outcome.FAILED)

    # the object in the other worker

    @on(ObjectRestored, Staging, to=(OwnerWriting,))
    def _staged(self, state: Staging, event: ObjectRestored, now: float) -> None:
        report_at = self.plan.gives_up_at + self.options.fence_wait_s
        self._write(OwnerWriting(state.gives_up_at, state.hold, self.plan.others, report_at))

    @on(RestoreFailed, Staging, to=(Returning,))
    def _not_staged(self, state: Staging, event: RestoreFailed, now: float) -> None:
        self._give_back(state.hold, event.error)

    @on(DeadlineReached, Staging, to=(Staging, Returning))
    def _out_of_time(self, state: Staging, event: DeadlineReached, now: float) -> None:
        if now >= state.gives_up_at:
            self._give_back(state.hold, "the deadline passed before the other worker was ready")

    # the owner

    def _write(self, state: Committing) -> None:
        """The own row always under the version first read (R4.5.1), the other rows as they were read last."""
        others = tuple(each.condition for each in state.others)
        self._do(WriteOwner(self.plan.identity.expected_version, self.plan.owner_generation + 1, others))
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
        unknown = state.unknown or isinstance(event, OwnerWriteUnknown)
        self.state = state.into(OwnerChecking, unknown=unknown)

    @on(OwnerWriteFailed, OwnerWriting, to=(OwnerPausing, Returning))
    def _write_later(self, state: OwnerWriting, event: OwnerWriteFailed, now: float) -> None:
        self._pause_store(state, now, read_first=False)

    @on(RowReadFailed, OwnerChecking, to=(OwnerPausing,))
    def _read_later(self, state: OwnerChecking, event: RowReadFailed, now: float) -> None:
        self._pause_store(state, now, read_first=True)

    @on(RowRead, OwnerChecking, to=(Opening, OwnerPausing, OwnerWriting, Returning, Over))
    def _checked(self, state: OwnerChecking, event: RowRead, now: float) -> None:
        row = event.row
        if self._committed(row):
            self._open(state)
        elif row is not None and row.version == self.plan.identity.expected_version:
            self._write_again(state, row.others, now)
        elif self._still_ours(row):
            # Under the first version nothing can be written any more, by no write that may be under way either.
            self._give_back(
                state.hold, "another write to its row came between", reported=state.report_at is None
            )
        else:
            self._lose_authority(state)

    def _committed(self, row: RowFacts | None) -> bool:
        """Owner generation expected + 1 with this RelocationId, never the owner's name (B6.5)."""
        return (
            row is not None
            and row.object_generation == self.plan.object_generation
            and row.owner_generation == self.plan.owner_generation + 1
            and row.relocation_id == self.plan.identity.relocation_id
            and not row.lost
        )

    def _still_ours(self, row: RowFacts | None) -> bool:
        return (
            row is not None
            and row.object_generation == self.plan.object_generation
            and row.owner_generation == self.plan.owner_generation
            and row.owner == self.plan.identity.source
            and not row.lost
        )

    def _write_again(self, state: OwnerChecking, others: tuple[ParticipantFacts, ...], now: float) -> None:
        """The own row is untouched: the write was not carried out, or only another row changed (B6.5)."""
        if not same_unit(state.others, others):
            reason = "another row of the unit changed"
            self._give_back(state.hold, reason, reported=state.report_at is None)
        elif others != state.others:  # no earlier write can be carried out any more
            self._write(state.into(OwnerWriting, others=others, unknown=False))
        else:
            self._pause_store(state, now, read_first=False)

    def _pause_store(self, state: Committing, now: float, *, read_first: bool) -> None:
        if now >= state.gives_up_at and not (state.unknown or read_first):
            self._give_back(
                state.hold,
                "the store did not take the new owner before the deadline",
                reported=state.report_at is None,
            )
            return
        pause = min(self.options.retry_first_s * 2.0 ** min(state.tries, 20), self.options.retry_max_s)
        self.state = state.into(
            OwnerPausing, retry_at=now + pause, read_first=read_first, tries=state.tries + 1
        )

    @on(DeadlineReached, OwnerPausing, to=(OwnerPausing, OwnerWriting, OwnerChecking))
    def _retry(self, state: OwnerPausing, event: DeadlineReached, now: float) -> None:
        self._takes_time(state, event, now)
        if now < state.retry_at:
            return
        if state.read_first:
            self._do(ReadRow())
            self.state = state.into(OwnerChecking)
        else:
            self._write(state)

    @on(DeadlineReached, OwnerWriting, OwnerChecking, to=(Same,))
    def _takes_time(self, state: Committing, event: DeadlineReached, now: float) -> None:
        """The object stays held until the store tells; who asked for the move does not wait for that."""
        if state.report_at is not None and now >= state.report_at:
            state.report_at = None
            self._log("location_update_failed", "error", relocation_id=self.plan.identity.relocation_id)
            self._do(
                ReportOutcome(Outcome.IN_DOUBT, "the store could not tell whether the owner was written")
            )

    # open

    def _open(self, state: Committing) -> None:
        self._do(EndDispatch())
        self._do(DropObject("RelocationOut"))
        self._do(OpenDispatch((), tuple(state.hold)))
        self.state = Opening(reported=state.report_at is None)

    @on(DispatchOpened, Opening, to=(Over,))
    def _opened(self, state: Opening, event: DispatchOpened, now: float) -> None:
        self._do(ReleasePayload())
        self._close(None, None if state.reported else Outcome.MOVED)

    @on(DispatchOpenFailed, Opening, to=(Over,))
    def _open_failed(self, state: Opening, event: DispatchOpenFailed, now: float) -> None:
        self._log("object_lost", "error", error=str(event.error))
        self._do(ReleasePayload())
        self._close(event.error, None if state.reported else Outcome.FAILED)

    # giving it back, or losing it

    def _give_back(
        self, hold: list[Any], reason: Any, *, captured: bool = True, reported: bool = False
    ) -> None:
        if captured:
            self._do(DropStaged())
        self._do(RestoreDispatch(tuple(hold), captured))
        self.state = Returning(reason, captured, reported)

    @on(DispatchRestored, Returning, to=(Over,))
    def _restored(self, state: Returning, event: DispatchRestored, now: float) -> None:
        self._end_returning(state, state.reason)

    @on(DispatchRestoreFailed, Returning, to=(Over,))
    def _not_restored(self, state: Returning, event: DispatchRestoreFailed, now: float) -> None:
        self._end_returning(state, event.error)

    def _end_returning(self, state: Returning, reason: Any) -> None:
        if state.captured:
            self._do(ReleasePayload())
        self._close(reason, None if state.reported else Outcome.FAILED)

    @on(RecordArrived, Opening, Returning, Over)
    def _deliver(self, state: Opening | Returning | Over, event: RecordArrived, now: float) -> None:
        self._do(DeliverRecords((event.record,)))

    def _lose_authority(self, state: Committing) -> None:
        """The row belongs to another incarnation or is gone: this run has nothing to give back (B6.4)."""
        self._log("authority_lost", "error", relocation_id=self.plan.identity.relocation_id)
        self._do(DropStaged())
        self._do(FailTaken("DataLost", "no", sends=True))
        self._fail(state.hold, "DataLost")
        self._do(DropObject(""))
        self._do(RemoveFollowRoute())
        self._do(ReleasePayload())
        reported = state.report_at is None
        self._close("another incarnation of the object was made", None if reported else Outcome.FAILED)

    def _fail(self, records: list[Any], kind: str) -> None:
        if records:
            self._do(FailHeld(tuple(records), kind))

    def _close(self, reason: Any, outcome: Outcome | None) -> None:
        if outcome is not None:
            self._do(ReportOutcome(outcome, reason))
        self._do(ForgetHandoff())
        self.state = Over()
