"""The states of `SourceHandoff` and the data each of them owns.

Before the boundary everything that matters is the hold; after it the batch and the backlog (R4.4.2).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sojourn.handoff.machine import State
from sojourn.handoff.terms import Manifest, Outcome, ParticipantFacts, Phase
from sojourn.ids import NodeRun

__all__ = [
    "Abandoning",
    "Batch",
    "BoundaryAwaited",
    "CommitAwaited",
    "CutoverPending",
    "CutoverSubmitting",
    "FenceChecking",
    "FencePausing",
    "FenceWriting",
    "FollowOnly",
    "LostMarking",
    "Reconciling",
    "Restoring",
    "Sealing",
    "SessionSealing",
    "SourceClosed",
    "SourcePaused",
    "SourceRestored",
    "SourceRunning",
    "TargetRestoring",
]


NOBODY = NodeRun(b"", 0)


@dataclass(slots=True)
class SourceRunning(State):
    """Nothing has been asked of the object yet."""

    phase = Phase.SOURCE_RUNNING


@dataclass(slots=True)
class BoundaryAwaited(State):
    """A bound object: a turn may be running, and a long one must not eat the seal timeout (B8.12). The object
    serves on; no record comes here. `ask_by` is the last moment at which a seal makes sense (B8.2)."""

    phase = Phase.SOURCE_RUNNING
    connection: int | None
    gives_up_at: float
    ask_by: float

    @property
    def deadline(self) -> float | None:
        return self.ask_by


@dataclass(slots=True)
class SessionSealing(State):
    """The 42s are out; the object serves on until every session of it is sealed (R4.1.2)."""

    phase = Phase.SOURCE_RUNNING
    connection: int | None
    gives_up_at: float
    missing: frozenset[int]
    sealed_by: float

    @property
    def deadline(self) -> float | None:
        return self.sealed_by


@dataclass(slots=True)
class Sealing(State):
    """The worker ends the running turn and captures; records go to the ingress hold (R4.2.7)."""

    phase = Phase.SOURCE_RUNNING
    connection: int | None
    gives_up_at: float
    hold: list[Any] = field(default_factory=list)

    @property
    def deadline(self) -> float | None:
        return self.gives_up_at


@dataclass(slots=True)
class Abandoning(State):
    """Given up while the worker still seals: its answer is awaited, then the object goes on."""

    phase = Phase.SOURCE_RUNNING
    reason: Any
    hold: list[Any]


@dataclass(slots=True)
class Paused(State):
    """Captured, before the boundary. `restores_sent` counts commands 40 (B8.6); `remaining_s` is the longest
    remaining time any of them carried (B8.10)."""

    phase = Phase.SOURCE_PAUSED
    connection: int | None
    manifest: Manifest
    hold: list[Any]
    gives_up_at: float
    restores_sent: int = 0
    remaining_s: float = 0.0
    target_gone: bool = False
    confirming: frozenset[int] = frozenset()
    """Sessions whose 43 to the 42 behind the last push is still out (B11.3)."""

    @property
    def deadline(self) -> float | None:
        return self.gives_up_at


@dataclass(slots=True)
class SourcePaused(Paused):
    """There is no connection: the Restore request goes out, for the first time or again, on the next one."""


@dataclass(slots=True)
class TargetRestoring(Paused):
    """The Restore request is out on the present connection; 30 or 53 is awaited."""

    phase = Phase.TARGET_RESTORING


@dataclass(slots=True)
class Fencing(Paused):
    """A fence write was issued (B6.7): 30 and 53 count no more until its outcome is known. Who asked for the
    move is told no later than `report_at` that it is in doubt; None = that was done."""

    reason: Any = None
    retries: int = 0
    others: tuple[ParticipantFacts, ...] = ()
    """The rows of the other participants as last read: all of the unit is fenced in one write."""
    report_at: float | None = None

    @property
    def deadline(self) -> float | None:
        return self.report_at


@dataclass(slots=True)
class FenceWriting(Fencing):
    """The write is out."""


@dataclass(slots=True)
class FenceChecking(Fencing):
    """Its outcome is not known, or it met another version: the row is being read."""


@dataclass(slots=True)
class FencePausing(Fencing):
    """The store did not help; the next try is at `retry_at`."""

    retry_at: float = 0.0

    @property
    def deadline(self) -> float | None:
        return _earliest(self.retry_at, self.report_at)


@dataclass(slots=True)
class Restoring(State):
    """The object is being given back its queue; what arrives goes behind it. `outcome` None: it was reported."""

    phase = Phase.SOURCE_PAUSED
    reason: Any
    captured: bool
    outcome: Outcome | None = Outcome.FAILED


@dataclass(slots=True)
class SourceRestored(State):
    """The object runs at the source again; this handoff is over."""

    phase = Phase.SOURCE_RUNNING


@dataclass(slots=True)
class Batch:
    """The pre-boundary batch. `handed` counts the records that some connection took over."""

    records: tuple[Any, ...]
    checksum: int
    handed: int = 0
    submitting: bool = True
    """A `SendCutover` of it is out and not terminal."""
    window_until: float | None = None
    """End of the resend window; None until the first submit was terminal."""


@dataclass(slots=True)
class PastBoundary(State):
    """After relay-ready was accepted. The backlog holds what no connection has taken over yet, in order."""

    phase = Phase.RELAY_READY
    connection: int | None
    batch: Batch | None
    backlog: list[Any]
    commit_by: float
    """The Restore deadline at the target lies no later than this (B8.10)."""
    follow_until: float
    target_gone: bool = False


@dataclass(slots=True)
class CutoverPending(PastBoundary):
    """Relay-ready was accepted, but a session owner has not confirmed yet that the source's last push is there:
    records go on into the hold until it has, or until `submit_by` (B11.3)."""

    hold: list[Any] = field(kw_only=True)
    confirming: frozenset[int] = field(kw_only=True)
    submit_by: float = field(kw_only=True)

    @property
    def deadline(self) -> float | None:
        return self.submit_by


@dataclass(slots=True)
class CutoverSubmitting(PastBoundary):
    """Batch and cutover are on their way into the transport."""


@dataclass(slots=True)
class Reading(PastBoundary):
    """The commit is to be learned by reading the row (B8.10); `read_at` None = a read is out."""

    read_at: float | None = None
    reads: int = 0

    @property
    def deadline(self) -> float | None:
        return _earliest(self.read_at, _window_end(self.batch))


@dataclass(slots=True)
class CommitAwaited(Reading):
    """The submit is terminal; the target may commit until `commit_by`."""

    @property
    def deadline(self) -> float | None:
        return _earliest(self.read_at, _window_end(self.batch), self.commit_by)


@dataclass(slots=True)
class Reconciling(Reading):
    """The target's time is over and no commit was seen (section 9): read until the row tells."""

    reported: bool = False
    """`in doubt` was reported."""
    failing: bool = False
    """The follow duration is over: records are failed as they come."""

    @property
    def deadline(self) -> float | None:
        follow_end = None if self.failing else self.follow_until
        return _earliest(self.read_at, _window_end(self.batch), follow_end)


@dataclass(slots=True)
class LostMarking(Reconciling):
    """The row still names this run: `MarkLost` is out (B6.8)."""

    @property
    def deadline(self) -> float | None:
        return _window_end(self.batch)


@dataclass(slots=True)
class FollowOnly(PastBoundary):
    """The commit is known; what still comes here is followed (R10). `owner` is the one the row named."""

    phase = Phase.FOLLOW_ONLY
    owner: NodeRun = NOBODY

    @property
    def deadline(self) -> float | None:
        return _earliest(_window_end(self.batch), self.follow_until)


@dataclass(slots=True)
class SourceClosed(State):
    """Nothing of the object is left here; this handoff is over."""

    phase = Phase.FOLLOW_ONLY


def _window_end(batch: Batch | None) -> float | None:
    return None if batch is None or batch.submitting else batch.window_until


def _earliest(*instants: float | None) -> float | None:
    return min((instant for instant in instants if instant is not None), default=None)
