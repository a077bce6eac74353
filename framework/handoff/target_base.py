"""What every part of `TargetHandoff` shares: its plan, and how an attempt ends (R4.5.3, B8.15, B8.16).

Owns the one place where a target is removed. It must not know how it came to that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sojourn.handoff.effects import DropTarget, InstallFollowRoute, ReadRow, SendRelocationFailed
from sojourn.handoff.machine import Machine
from sojourn.handoff.relay import RelaySection
from sojourn.handoff.target_states import (
    Announced,
    Committing,
    OwnerChecking,
    RelayReady,
    Staged,
    TargetDoubting,
    TargetRemoved,
)
from sojourn.handoff.terms import (
    Checksum,
    DirectDisposal,
    Frozen,
    HandoffIdentity,
    HandoffOptions,
    RowFacts,
)
from sojourn.ids import NodeRun, ObjectKey

__all__ = ["TargetBase", "TargetPlan"]


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """What is fixed when command 40 of a new identity arrives.

    `ends_at` is the Restore operation's absolute deadline on the machine's clock: arrival + the relative
    deadline in the mesh header (B8.2). `target` is this node's run.
    """

    identity: HandoffIdentity
    key: ObjectKey
    target: NodeRun
    ends_at: float


class TargetBase(Machine):
    """The plan and the endings of a target's half."""

    def __init__(
        self,
        plan: TargetPlan,
        checksum: Checksum,
        frozen: Frozen,
        options: HandoffOptions | None = None,
    ) -> None:
        super().__init__(Announced())
        self.plan = plan
        self.options = options or HandoffOptions()
        self._checksum = checksum
        self._frozen = frozen
        self.first: RowFacts | None = None
        """The own row as it stood under the fence's version; None before it was read."""

    def _new_relay(self) -> RelaySection:
        return RelaySection(self._checksum, self._frozen)

    def _fail(self, state: Staged, failure_code: int, reason: str, why: Any = None) -> None:
        """End the attempt with a 53; only where no CAS was issued (R4.3.3). `why`: if more is known than `reason`."""
        if state.connection is not None:
            self._do(SendRelocationFailed(state.connection, failure_code))
        self._remove(state, reason, failure_code, DirectDisposal.FOLLOW_TO_SOURCE, why=why)

    def _remove(
        self,
        state: Staged,
        reason: str,
        failure_code: int | None,
        disposal: DirectDisposal,
        *,
        work_is_sources: bool = False,
        why: Any = None,
    ) -> None:
        """Drop everything of this attempt. Past the boundary the source does not run: nothing goes to it.

        Behind relay-ready the saved work stays in doubt (`TargetDoubting`), unless a 31 or 34 proved the boundary or
        `work_is_sources`: it is known that the source went on.
        """
        committing = isinstance(state, RelayReady | Committing)
        relay = state.relay if isinstance(state, RelayReady | Committing) else self._new_relay()
        if not relay.settled:
            relay.fall_back()
        if relay.seen and disposal is DirectDisposal.FOLLOW_TO_SOURCE:
            disposal = DirectDisposal.FAIL
        in_doubt = committing and not relay.seen and not work_is_sources
        self._log("target_removed", "info", reason=reason, failure_code=failure_code)
        records = tuple(relay.records)
        self._do(DropTarget(reason, tuple(state.queue), disposal, records, relay.seen, in_doubt))
        relay.forget_records()
        forget_at = self.plan.ends_at + self.options.ended_memory_s
        follows = disposal is DirectDisposal.FOLLOW_TO_SOURCE
        if follows:  # who was told of this node while it staged the object still sends here
            self._do(InstallFollowRoute(self.plan.identity.source, 0, forget_at))
        self.state = TargetRemoved(failure_code, relay, forget_at, follows, why or reason)
        if in_doubt:
            self._doubt(state, self.state)

    def _doubt(self, state: Staged, removed: TargetRemoved) -> None:
        assert self.first is not None
        self.state = removed.into(
            TargetDoubting,
            object_generation=self.first.object_generation,
            owner_generation=self.first.owner_generation + 1,
        )
        if not isinstance(state, OwnerChecking):  # there a read is out, or was just answered
            self._do(ReadRow())

    def _committed(self, row: RowFacts | None, owner_generation: int) -> bool:
        """Whether the row shows this handoff's own commit: never judged by the owner's name (B6.5)."""
        return (
            row is not None
            and row.owner_generation == owner_generation
            and row.relocation_id == self.plan.identity.relocation_id
            and not row.fenced
        )

    def _fence_found(self, row: RowFacts | None) -> bool:
        return row is not None and row.fenced and row.relocation_id == self.plan.identity.relocation_id

    def _pause(self, tries: int) -> float:
        options = self.options
        return min(options.retry_first_s * 2.0 ** min(tries, 20), options.retry_max_s)

    def _log_late_cutover(self, count: int) -> None:
        self._log("late_cutover", "warning", relocation_id=self.plan.identity.relocation_id, count=count)

    def _queue(self, state: Staged, record: Any) -> None:
        state.queue.append(record)
