"""What every part of `SourceHandoff` shares: its plan, and what a row means for it.

Owns the judgement of rows (B6.5, B6.7, B6.8) and the endings. It must not know phases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sojourn.handoff.effects import (
    Conditions,
    DropObject,
    FailHeld,
    FailTaken,
    ForgetHandoff,
    ReleasePayload,
    RemoveFollowRoute,
    ReportOutcome,
)
from sojourn.handoff.machine import Machine
from sojourn.handoff.source_states import (
    PastBoundary,
    SourceClosed,
    SourceRunning,
)
from sojourn.handoff.terms import (
    Checksum,
    Frozen,
    HandoffIdentity,
    HandoffOptions,
    Outcome,
    ParticipantFacts,
    RowFacts,
)
from sojourn.ids import NodeRun

__all__ = ["SourceBase", "SourcePlan"]


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """What is fixed before a handoff starts. `gives_up_at` is D on the machine's clock (B8.2)."""

    identity: HandoffIdentity
    target: NodeRun
    object_generation: int
    owner_generation: int
    """As first read (B1.3); the target will write this + 1."""
    gives_up_at: float
    sessions: int = 0
    """How many sessions the unit is bound to; events and effects name them 0 to `sessions` - 1 (B6.3)."""
    others: tuple[ParticipantFacts, ...] = ()
    """The other participants' rows as first read, in the order of their authority keys (R4.2.2)."""


class SourceBase(Machine):
    """The plan, the row rules and the endings of a source's half."""

    def __init__(
        self,
        plan: SourcePlan,
        checksum: Checksum,
        frozen: Frozen,
        options: HandoffOptions | None = None,
    ) -> None:
        super().__init__(SourceRunning())
        self.plan = plan
        self.options = options or HandoffOptions()
        self._checksum = checksum
        self._frozen = frozen

    @property
    def unsent(self) -> tuple[Any, ...]:
        """Records that no connection has taken over: what ends with this node when it stops."""
        state = self.state
        batch = getattr(state, "batch", None)
        rest = () if batch is None or batch.submitting else batch.records[batch.handed :]
        return (*rest, *getattr(state, "hold", ()), *getattr(state, "backlog", ()))

    # what the row says

    def _committed(self, row: RowFacts | None) -> bool:
        """Whether the target became owner under this handoff, even if it moved the object on (B6.5, B6.8).

        The RelocationId is not compared: of this incarnation only this handoff can write the next owner
        generation, and the new owner may have fenced an attempt of its own since, which leaves another id.
        """
        return (
            row is not None
            and row.object_generation == self.plan.object_generation
            and row.owner_generation > self.plan.owner_generation
        )

    def _still_ours(self, row: RowFacts | None) -> bool:
        return (
            row is not None
            and row.object_generation == self.plan.object_generation
            and row.owner_generation == self.plan.owner_generation
            and row.owner == self.plan.identity.source
        )

    def _our_rows(self, others: tuple[ParticipantFacts, ...]) -> Conditions:
        """The conditions on the other participants' rows; one that this run owns no longer is not its to write
        (R2.2)."""
        source = self.plan.identity.source
        return tuple(
            each.condition for each in others if each.moves and each.version and each.owner == source
        )

    def _lose_authority(self, records: list[Any], *, reported: bool = False) -> None:
        """The row belongs to another incarnation or is gone: this run has nothing to give back."""
        self._log("authority_lost", "error", relocation_id=self.plan.identity.relocation_id)
        self._do(FailTaken("DataLost", "unknown"))
        self._fail(records, "DataLost")
        self._do(DropObject(""))
        self._do(RemoveFollowRoute())
        self._close("another incarnation of the object was made", None if reported else Outcome.FAILED)

    # small things

    def _pause(self, tries: int) -> float:
        options = self.options
        return min(options.retry_first_s * 2.0 ** min(tries, 20), options.retry_max_s)

    def _fail(self, records: list[Any], kind: str) -> None:
        if records:
            self._do(FailHeld(tuple(records), kind))

    def _release(self, state: PastBoundary) -> None:
        """Release payload and batch; what no connection took over goes to the front of the backlog.

        A batch that is in the transport's hands at this moment is in doubt, it is not failed.
        """
        batch = state.batch
        if batch is not None:
            state.batch = None
            if not batch.submitting:
                state.backlog[:0] = batch.records[batch.handed :]
            self._do(ReleasePayload())

    def _close(self, reason: Any, outcome: Outcome | None) -> None:
        if outcome is not None:
            self._do(ReportOutcome(outcome, reason))
        self._do(ForgetHandoff())
        self.state = SourceClosed()
