"""Every event of `SourceHandoff` and `TargetHandoff`: facts that a driver reports, in the past tense.

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

from dataclasses import dataclass
from typing import Any

from sojourn.handoff.machine import Event
from sojourn.handoff.terms import Manifest, RowFacts

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


@dataclass(frozen=True, slots=True)
class RowRead(Event):
    """Answer to `ReadRow`: what the unit's own row says now; None = no row."""

    row: RowFacts | None


@dataclass(frozen=True, slots=True)
class RowReadFailed(Event):
    """Answer to `ReadRow`: the store could not be read."""


@dataclass(frozen=True, slots=True)
class LinkLost(Event):
    """The connection to the other node of the handoff broke.

    The source also learns what the transport never took over, so that it is not lost (R4.4.3):
    `boundary_handed` counts the records of the last `SendRelay` on this connection that were handed to it,
    `follow_unsent` holds the records of `SendFollow` that were not, in order. Both are empty at a target.
    """

    connection: int
    boundary_handed: int = 0
    follow_unsent: tuple[Any, ...] = ()


# source


@dataclass(frozen=True, slots=True)
class RelocationStarted(Event):
    """The driver has checked eligibility (B8.1) and budget, read the row and made the identity."""

    connection: int


@dataclass(frozen=True, slots=True)
class RecordArrived(Event):
    """A record for the object arrived at the source, after `SealObject` was sent."""

    heavy = True
    record: Any


@dataclass(frozen=True, slots=True)
class TurnBoundaryReached(Event):
    """Answer to `AwaitTurnBoundary`: no turn of the object was running at that moment."""


@dataclass(frozen=True, slots=True)
class SessionSealed(Event):
    """Answer to `AskSessionSeal`: the session owner answered the latest 42 with its 43."""

    session: int


@dataclass(frozen=True, slots=True)
class SessionUnbound(Event):
    """Answer to `AskSessionSeal`: the session owner knows no such binding, or its lease is over; the Actor
    moves as one that is not bound (B11.2)."""

    session: int


@dataclass(frozen=True, slots=True)
class SessionRefused(Event):
    """Answer to `AskSessionSeal`: the 42 was refused; another relocation holds the seal."""

    session: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TurnOutlasted(Event):
    """Answer to `SealObject` of a bound object: a running turn did not end until `until`; the object was not
    sealed and serves on (B8.12)."""


@dataclass(frozen=True, slots=True)
class ObjectCaptured(Event):
    """Answer to `SealObject`: dispatch stopped; the payload is in the driver's memory."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class CaptureRefused(Event):
    """Answer to `SealObject`: the object was not sealed and serves on."""

    error: Any


@dataclass(frozen=True, slots=True)
class WorkerLost(Event):
    """The worker that holds the object ended. Also the *unknown* answer to `SealObject`."""


@dataclass(frozen=True, slots=True)
class ChunksSent(Event):
    """The last chunk of `SendChunks` was handed to the connection."""

    connection: int


@dataclass(frozen=True, slots=True)
class RelayReadyReceived(Event):
    """Command 30 of this identity arrived."""

    connection: int


@dataclass(frozen=True, slots=True)
class RelocationFailedReceived(Event):
    """Command 53 of this identity arrived."""

    failure_code: int
    connection: int


@dataclass(frozen=True, slots=True)
class LinkRestored(Event):
    """A new connection to the same run of the target stands."""

    connection: int


@dataclass(frozen=True, slots=True)
class TargetRunGone(Event):
    """The target's run ended for certain (its lease is over, or another run of that RID stands).

    Comes after `LinkLost` where there was a connection.
    """


@dataclass(frozen=True, slots=True)
class CancelRequested(Event):
    """The operation is to be given up if that is still safe (section 9, "caller cancels")."""

    reason: Any = "cancelled"


@dataclass(frozen=True, slots=True)
class FenceApplied(Event):
    """Answer to `WriteFence`: the mark stands."""


@dataclass(frozen=True, slots=True)
class FenceConflicted(Event):
    """Answer to `WriteFence`: the condition did not hold."""


@dataclass(frozen=True, slots=True)
class FenceUnknown(Event):
    """Answer to `WriteFence`: the outcome is not known, or nothing was changed because the store is away."""


@dataclass(frozen=True, slots=True)
class CutoverSubmitted(Event):
    """The transport has let go of the last `SendCutover` on this connection (R4.4.3)."""

    connection: int


@dataclass(frozen=True, slots=True)
class CommitTold(Event):
    """The target says that it has opened the object. Only a hint when to look: the row decides (B6.5)."""


@dataclass(frozen=True, slots=True)
class DispatchRestored(Event):
    """Answer to `RestoreDispatch`: the object runs again, here or in another worker."""


@dataclass(frozen=True, slots=True)
class DispatchRestoreFailed(Event):
    """Answer to `RestoreDispatch`: the object could not be brought back; the driver failed its records."""

    error: Any


@dataclass(frozen=True, slots=True)
class LostMarked(Event):
    """Answer to `MarkLost`: the row's state is `lost` (B6.8)."""


@dataclass(frozen=True, slots=True)
class LostConflicted(Event):
    """Answer to `MarkLost`: the row has another version."""


@dataclass(frozen=True, slots=True)
class LostUnknown(Event):
    """Answer to `MarkLost`: the outcome is not known, or the store is away."""


# target


@dataclass(frozen=True, slots=True)
class RestoreRequested(Event):
    """Command 40 of this identity arrived, for the first time or again."""

    manifest: Manifest
    connection: int


@dataclass(frozen=True, slots=True)
class RestoreRefused(Event):
    """The node does not take this Restore request: not eligible (B8.1), or a rival identity lives (B8.16)."""

    failure_code: int
    connection: int


@dataclass(frozen=True, slots=True)
class RivalPreferred(Event):
    """Another identity for the same object took this one's place (B8.16, see `sojourn.handoff.rivals`)."""


@dataclass(frozen=True, slots=True)
class WithdrawnReceived(Event):
    """The source says that it fenced this identity: no CAS of it can succeed any more."""


@dataclass(frozen=True, slots=True)
class ChunkArrived(Event):
    """Command 52 of this identity arrived."""

    heavy = True
    ordinal: int
    data: bytes | memoryview
    connection: int


@dataclass(frozen=True, slots=True)
class ChunkDiffered(Event):
    """Answer to `CompareChunk`, only when the bytes differ: a conflict (B8.3)."""


@dataclass(frozen=True, slots=True)
class AssemblyVerified(Event):
    """Answer to `VerifyAssembly`: the checksum of the whole stream is right."""


@dataclass(frozen=True, slots=True)
class AssemblyMismatched(Event):
    """Answer to `VerifyAssembly`: it is not."""


@dataclass(frozen=True, slots=True)
class ObjectRestored(Event):
    """Answer to `RestoreObject`: the instance, saved work and timers stand, dispatch closed."""


@dataclass(frozen=True, slots=True)
class RestoreFailed(Event):
    """Answer to `RestoreObject`: they do not, or the worker ended (also at any later time before opening)."""

    error: Any


@dataclass(frozen=True, slots=True)
class RelayArrived(Event):
    """Command 31 of this identity arrived."""

    heavy = True
    record: Any
    connection: int


@dataclass(frozen=True, slots=True)
class FollowArrived(Event):
    """A record that another node sent on by Message Follow arrived while the object is staged here."""

    heavy = True
    record: Any
    connection: int


@dataclass(frozen=True, slots=True)
class DirectArrived(Event):
    """A record for the object came here directly: from a sender that took this node for the owner, from
    this node's own workers, or from what this node used to follow (B8.14)."""

    heavy = True
    record: Any


@dataclass(frozen=True, slots=True)
class CutoverArrived(Event):
    """Command 34 of this identity arrived."""

    count: int
    checksum: int
    connection: int


@dataclass(frozen=True, slots=True)
class OwnerWritten(Event):
    """Answer to `WriteOwner`: applied."""


@dataclass(frozen=True, slots=True)
class OwnerWriteConflicted(Event):
    """Answer to `WriteOwner`: a condition did not hold."""


@dataclass(frozen=True, slots=True)
class OwnerWriteUnknown(Event):
    """Answer to `WriteOwner`: the outcome is not known."""


@dataclass(frozen=True, slots=True)
class OwnerWriteFailed(Event):
    """Answer to `WriteOwner`: nothing was changed; the store is away, or this node's lease forbids it now."""


@dataclass(frozen=True, slots=True)
class DispatchOpened(Event):
    """Answer to `OpenDispatch`: the first turns may run."""


@dataclass(frozen=True, slots=True)
class DispatchOpenFailed(Event):
    """Answer to `OpenDispatch`: the worker ended. The object is lost; the node's sweep marks it (B6.8)."""

    error: Any
