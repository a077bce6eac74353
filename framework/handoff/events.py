"""Every event of `SourceHandoff`, `TargetHandoff` and `LocalHandoff`: facts that a driver reports, in the past tense.

Owns their fields. Records are opaque objects throughout: a machine keeps them, orders them and gives them
back, it never looks into one.

Promises a driver keeps:

- Events come in the order in which the facts became true at this node; frames of one connection in the
  order of that connection, and `LinkLost` after the last of them (B8.13).
- `LinkRestored` names a NEW connection to the SAME run and comes before any frame read from it.
- A connection is a number that this node never uses twice.
- Every effect with an outcome gets exactly one answer; what was cancelled or broke is the *unknown* answer.
"""

from __future__ import annotations

from typing import Any

from sojourn.handoff.machine import Event
from sojourn.handoff.terms import Manifest, RowFacts, TargetFailure

__all__ = [
    "AssemblyMismatched",
    "AssemblyVerified",
    "CancelRequested",
    "CaptureRefused",
    "ChunkArrived",
    "ChunkDiffered",
    "ChunksSent",
    "CommitTold",
    "CutoverArrived",
    "CutoverSubmitted",
    "DirectArrived",
    "DispatchOpenFailed",
    "DispatchOpened",
    "DispatchRestoreFailed",
    "DispatchRestored",
    "FenceApplied",
    "FenceConflicted",
    "FenceUnknown",
    "FollowArrived",
    "LinkLost",
    "LinkRestored",
    "LostConflicted",
    "LostMarked",
    "LostUnknown",
    "ObjectCaptured",
    "ObjectRestored",
    "OwnerWriteConflicted",
    "OwnerWriteFailed",
    "OwnerWriteUnknown",
    "OwnerWritten",
    "RecordArrived",
    "RelayArrived",
    "RelayReadyReceived",
    "RelocationFailedReceived",
    "RelocationStarted",
    "RestoreFailed",
    "RestoreRefused",
    "RestoreRequested",
    "RivalKept",
    "RivalPreferred",
    "RowRead",
    "RowReadFailed",
    "SessionRefused",
    "SessionSealed",
    "SessionUnbound",
    "TargetRunGone",
    "TurnBoundaryReached",
    "TurnOutlasted",
    "WithdrawnReceived",
    "WorkerLost",
]


# both halves


class RowRead(Event, frozen=True):
    """Answer to `ReadRow`: what the unit's own row says now; None = no row."""

    row: RowFacts | None


class RowReadFailed(Event, frozen=True):
    """Answer to `ReadRow`: the store could not be read."""


class LinkLost(Event, frozen=True):
    """The connection to the other node of the handoff broke.

    The source also learns what the transport never took over, so that it is not lost (R4.4.3):
    `boundary_handed` counts the records of the last `SendRelay` on this connection that were handed to it,
    `follow_unsent` holds the records of `SendFollow` that were not, in order. Both are empty at a target.
    """

    connection: int
    boundary_handed: int = 0
    follow_unsent: tuple[Any, ...] = ()


# source


class RelocationStarted(Event, frozen=True):
    """The driver has checked eligibility (B8.1) and budget, read the row and made the identity."""

    connection: int


class RecordArrived(Event, frozen=True):
    """A record for the object arrived at the source, after `SealObject` was sent."""

    heavy = True
    record: Any


class TurnBoundaryReached(Event, frozen=True):
    """Answer to `AwaitTurnBoundary`: no turn of the object was running at that moment."""


class SessionSealed(Event, frozen=True):
    """Answer to `AskSessionSeal`: the session owner answered the latest 42 with its 43."""

    session: int


class SessionUnbound(Event, frozen=True):
    """Answer to `AskSessionSeal`: the session owner knows no such binding, or its lease is over; the Actor
    moves as one that is not bound (B11.2)."""

    session: int


class SessionRefused(Event, frozen=True):
    """Answer to `AskSessionSeal`: the 42 was refused; another relocation holds the seal."""

    session: int
    reason: str = ""


class TurnOutlasted(Event, frozen=True):
    """Answer to `SealObject` of a bound object: a running turn did not end until `until`; the object was not
    sealed and serves on (B8.12)."""


class ObjectCaptured(Event, frozen=True):
    """Answer to `SealObject`: dispatch stopped; the payload is in the driver's memory."""

    manifest: Manifest


class CaptureRefused(Event, frozen=True):
    """Answer to `SealObject`: the object was not sealed and serves on."""

    error: Any


class WorkerLost(Event, frozen=True):
    """The worker that holds the object ended. Also the *unknown* answer to `SealObject`."""


class ChunksSent(Event, frozen=True):
    """The last chunk of `SendChunks` was handed to the connection."""

    connection: int


class RelayReadyReceived(Event, frozen=True):
    """Command 30 of this identity arrived."""

    connection: int


class RelocationFailedReceived(Event, frozen=True):
    """Command 53 of this identity arrived. `told`: what the target said beside it, if it did."""

    failure_code: int
    connection: int
    told: TargetFailure | None = None


class LinkRestored(Event, frozen=True):
    """A new connection to the same run of the target stands."""

    connection: int


class TargetRunGone(Event, frozen=True):
    """The target's run ended for certain (its lease is over, or another run of that RID stands).

    Comes after `LinkLost` where there was a connection.
    """


class CancelRequested(Event, frozen=True):
    """The operation is to be given up if that is still safe (section 9, "caller cancels")."""

    reason: Any = "cancelled"


class FenceApplied(Event, frozen=True):
    """Answer to `WriteFence`: the mark stands."""


class FenceConflicted(Event, frozen=True):
    """Answer to `WriteFence`: the condition did not hold."""


class FenceUnknown(Event, frozen=True):
    """Answer to `WriteFence`: the outcome is not known, or nothing was changed because the store is away."""


class CutoverSubmitted(Event, frozen=True):
    """The transport has let go of the last `SendCutover` on this connection (R4.4.3)."""

    connection: int


class CommitTold(Event, frozen=True):
    """The target says that it has opened the object. Only a hint when to look: the row decides (B6.5)."""


class DispatchRestored(Event, frozen=True):
    """Answer to `RestoreDispatch`: the object runs again, here or in another worker."""


class DispatchRestoreFailed(Event, frozen=True):
    """Answer to `RestoreDispatch`: the object could not be brought back; the driver failed its records."""

    error: Any


class LostMarked(Event, frozen=True):
    """Answer to `MarkLost`: the row's state is `lost` (B6.8)."""


class LostConflicted(Event, frozen=True):
    """Answer to `MarkLost`: the row has another version."""


class LostUnknown(Event, frozen=True):
    """Answer to `MarkLost`: the outcome is not known, or the store is away."""


# target


class RestoreRequested(Event, frozen=True):
    """Command 40 of this identity arrived, for the first time or again."""

    manifest: Manifest
    connection: int


class RestoreRefused(Event, frozen=True):
    """The node does not take this Restore request: not eligible (B8.1), or a rival identity lives (B8.16). `why` is
    for whoever asked for the move."""

    failure_code: int
    connection: int
    why: Any = None


class RivalPreferred(Event, frozen=True):
    """Another identity for the same object took this one's place (B8.16, see `sojourn.handoff.rivals`)."""


class RivalKept(Event, frozen=True):
    """Answer to `ReadRow` in place of `RowRead`: a member of this unit is staged here by another identity, and that
    one lives (B8.16, see `sojourn.handoff.rivals`)."""


class WithdrawnReceived(Event, frozen=True):
    """The source says that it fenced this identity: no CAS of it can succeed any more."""


class ChunkArrived(Event, frozen=True):
    """Command 52 of this identity arrived."""

    heavy = True
    ordinal: int
    data: bytes | memoryview
    connection: int


class ChunkDiffered(Event, frozen=True):
    """Answer to `CompareChunk`, only when the bytes differ: a conflict (B8.3)."""


class AssemblyVerified(Event, frozen=True):
    """Answer to `VerifyAssembly`: the checksum of the whole stream is right."""


class AssemblyMismatched(Event, frozen=True):
    """Answer to `VerifyAssembly`: it is not."""


class ObjectRestored(Event, frozen=True):
    """Answer to `RestoreObject`: the instance, saved work and timers stand, dispatch closed."""


class RestoreFailed(Event, frozen=True):
    """Answer to `RestoreObject`: they do not, or the worker ended (also at any later time before opening)."""

    error: Any


class RelayArrived(Event, frozen=True):
    """Command 31 of this identity arrived."""

    heavy = True
    record: Any
    connection: int


class FollowArrived(Event, frozen=True):
    """A record that another node sent on by Message Follow arrived while the object is staged here."""

    heavy = True
    record: Any
    connection: int


class DirectArrived(Event, frozen=True):
    """A record for the object came here directly: from a sender that took this node for the owner, from
    this node's own workers, or from what this node used to follow (B8.14)."""

    heavy = True
    record: Any


class CutoverArrived(Event, frozen=True):
    """Command 34 of this identity arrived."""

    count: int
    checksum: int
    connection: int


class OwnerWritten(Event, frozen=True):
    """Answer to `WriteOwner`: applied."""


class OwnerWriteConflicted(Event, frozen=True):
    """Answer to `WriteOwner`: a condition did not hold."""


class OwnerWriteUnknown(Event, frozen=True):
    """Answer to `WriteOwner`: the outcome is not known."""


class OwnerWriteFailed(Event, frozen=True):
    """Answer to `WriteOwner`: nothing was changed; the store is away, or this node's lease forbids it now."""


class DispatchOpened(Event, frozen=True):
    """Answer to `OpenDispatch`: the first turns may run."""


class DispatchOpenFailed(Event, frozen=True):
    """Answer to `OpenDispatch`: the worker ended. The object is lost; the node's sweep marks it (B6.8)."""

    error: Any
