"""Every effect of `SourceHandoff`, `TargetHandoff` and `LocalHandoff`: commands to the driver, in the imperative.

Owns their fields and which event answers each. A driver carries effects out in order, without an `await`
between `handle` and the last of them; whatever has to wait becomes one task that reports one event.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from sojourn.handoff.machine import Effect
from sojourn.handoff.terms import DirectDisposal, Manifest, Outcome
from sojourn.ids import NodeRun, ObjectKey

__all__ = [
    "AbortSessions",
    "AskSessionSeal",
    "AwaitTurnBoundary",
    "CommitSessions",
    "CompareChunk",
    "Conditions",
    "DeliverRecords",
    "DropObject",
    "DropStaged",
    "DropTarget",
    "EndDispatch",
    "EndWork",
    "FailHeld",
    "FailTaken",
    "ForgetHandoff",
    "ForgetWork",
    "InstallFollowRoute",
    "InstallTemporaryQueue",
    "MarkLost",
    "OpenDispatch",
    "ReadRow",
    "ReleasePayload",
    "RemoveFollowRoute",
    "ReportOutcome",
    "RestoreDispatch",
    "RestoreObject",
    "SealObject",
    "SendChunks",
    "SendCutover",
    "SendFollow",
    "SendRelay",
    "SendRelayReady",
    "SendRelocationFailed",
    "SendRestore",
    "SendWithdrawn",
    "StageParticipants",
    "StoreChunk",
    "VerifyAssembly",
    "WriteFence",
    "WriteOwner",
]

Conditions: TypeAlias = tuple[tuple[ObjectKey, str], ...]
"""Rows of the unit's other participants, each with the version it must have; empty for a unit of one."""


# both halves


class ReadRow(Effect, frozen=True):
    """Read the unit's own row, and those of its other participants. Answered by `RowRead` or `RowReadFailed`;
    never two at once.

    The own row is read last: as long as it stands unchanged, nothing that the others showed before was this
    handoff's own doing.
    """


class DeliverRecords(Effect, frozen=True):
    """Give the records to the object on this node's ordinary way, in order, behind everything before.

    Wherever that way leads by now: the mailbox, a later handoff of the object, its follow route.
    """

    records: tuple[Any, ...]


class ForgetHandoff(Effect, frozen=True):
    """The machine has nothing left to do or to remember.

    Follow records that it sent, and that a connection later turns out not to have taken, are the driver's to
    fail (Unavailable, `applied` = no).
    """


# source


class AwaitTurnBoundary(Effect, frozen=True):
    """Wait for a moment at which no turn of the object runs; it goes on serving meanwhile (B8.12).

    Only for a unit with a bound session. Answered by `TurnBoundaryReached` or `WorkerLost`.
    """


class AskSessionSeal(Effect, frozen=True):
    """Send command 42 to the owner of this session of the unit, behind every push that this node has for it,
    and again on a new connection until it is answered (B11.2, B11.3).

    Always the same 42. Answered by `SessionSealed`, `SessionUnbound` or `SessionRefused`.
    """

    session: int


class AbortSessions(Effect, frozen=True):
    """The object runs here for good: send command 44 abort, one-way, for every 42 sent, answered or not, and
    again on a new connection within the seal timeout (R7.2, B11.4)."""


class SealObject(Effect, frozen=True):
    """Send `Seal` to the worker; from the same step on every record for the object is `RecordArrived`.

    A running turn has until `until`, on the machine's clock, to end. Answered by `ObjectCaptured`,
    `CaptureRefused` or `WorkerLost`, and for a bound object by `TurnOutlasted`.
    """

    until: float


class SendRestore(Effect, frozen=True):
    """Send command 40 on the connection, with `remaining_s` as the relative deadline in the mesh header."""

    connection: int
    manifest: Manifest
    remaining_s: float


class SendChunks(Effect, frozen=True):
    """Send all chunks from ordinal 0 as commands 52, paced by the budgets (R5.4). Answered by `ChunksSent`,
    or by nothing when the connection breaks or the payload is released first."""

    connection: int


class WriteFence(Effect, frozen=True):
    """Write the fence (B6.7): one write over all rows of the unit, the own row under the coordinator fence's
    version, `others` under theirs.

    Answered by `FenceApplied`, `FenceConflicted` or `FenceUnknown`.
    """

    others: Conditions = ()


class SendWithdrawn(Effect, frozen=True):
    """Tell the target on the connection, one-way, that the attempt was fenced: an internal control message.

    It only spares the target its wait; a peer that cannot send or read it loses nothing but time.
    """

    connection: int


class SendRelay(Effect, frozen=True):
    """Send the records as commands 31, in order. `SendCutover` on the same connection follows."""

    connection: int
    records: tuple[Any, ...]


class SendCutover(Effect, frozen=True):
    """Send command 34 behind them. Answered by `CutoverSubmitted`, or by `LinkLost`."""

    connection: int
    count: int
    checksum: int


class SendFollow(Effect, frozen=True):
    """Send the records to `run` as Message Follow frames, in order, on the link to it (R10.1).

    `run` is the target; once the row was read it may be a later owner, even this node itself. To the target
    on the connection that carried the cutover, if that stands.
    """

    run: NodeRun
    records: tuple[Any, ...]


class RestoreDispatch(Effect, frozen=True):
    """The handoff ended before its boundary (R4.2.8): let the captured queue go on, then these records, then
    what arrives. If the worker is gone, restore the payload into another one first (B6.6).

    `captured` False: the object never stopped, only the records are to be delivered.
    Answered by `DispatchRestored` or `DispatchRestoreFailed`.
    """

    records: tuple[Any, ...]
    captured: bool


class EndDispatch(Effect, frozen=True):
    """The cutover submit is terminal: the source's dispatch ended for good, give back the permits of the
    captured work (R4.4.3)."""


class ReleasePayload(Effect, frozen=True):
    """Let go of the payload; comes exactly once for every payload captured (R4.4.3)."""


class DropObject(Effect, frozen=True):
    """Forget the closed instance. `reason` is a closing reason of B2.6, or empty when it is lost."""

    reason: str


class InstallFollowRoute(Effect, frozen=True):
    """Message Follow to `run` until `RemoveFollowRoute` (R10): at a source that learned its commit, and at a
    target that gave the object up in favour of the running source.

    From now on records of the object that neither an object nor a staging here takes go through this node's
    own `SenderPath`, one hop further, and no longer to this machine: first `PathTaken` of the handoff's other
    node (what this machine still sends goes there, on the same connection), then `RouteLearned` of `run` if
    that is another one. One path for the node's own records and for those it follows: two would overtake one
    another when the object comes back (B9.4). Original senders are told of `run` once each (command 50).
    Does nothing when another handoff of the object has begun at this node since: a source may learn its commit
    late, after the object came back and left again.
    """

    run: NodeRun
    owner_generation: int
    """0 where the row was not read: a target that gave up."""
    until: float


class RemoveFollowRoute(Effect, frozen=True):
    """The follow route of this handoff ends, if a later one has not replaced it."""


class MarkLost(Effect, frozen=True):
    """Write state `lost` into all rows of the unit, the own row under `version`, `others` under theirs (B6.8).

    Answered by `LostMarked`, `LostConflicted` or `LostUnknown`.
    """

    version: str
    others: Conditions = ()


class FailHeld(Effect, frozen=True):
    """End the records: a typed failure for each request, a dead letter for each send.

    `kind` names the error class of B3.3; none of them was handed to a connection (`applied` = no).
    """

    records: tuple[Any, ...]
    kind: str


class FailTaken(Effect, frozen=True):
    """End the requests that left with the payload or the batch: nobody else is there to do it, or knows of it.

    `kind` names the error class; `applied` is `no` where the target cannot have run them, else `unknown`. A
    request that the target ended before keeps that end: later ones are dropped (B3.1). `sends` True: the target
    is gone, so the sends among them become dead letters here.
    """

    kind: str
    applied: str
    sends: bool = False


class ReportOutcome(Effect, frozen=True):
    """Tell whoever asked for the move; comes exactly once."""

    outcome: Outcome
    reason: Any = None


# target


class InstallTemporaryQueue(Effect, frozen=True):
    """Register the temporary queue: from this step on records for the object are `DirectArrived` or
    `FollowArrived`, those of this node's own workers included (R4.3.1, B8.14)."""


class StageParticipants(Effect, frozen=True):
    """The row told who else is in the unit: their records are the temporary queue's too, in one order with the
    Spot's; this node's own senders of all of them are one group (R4.3.1, B8.14).

    Comes before `RestoreObject`, and never for a unit of one.
    """

    keys: tuple[ObjectKey, ...]


class StoreChunk(Effect, frozen=True):
    """Copy the chunk into the assembly buffer at this offset."""

    offset: int
    data: bytes | memoryview


class CompareChunk(Effect, frozen=True):
    """Compare a repeated chunk with the buffer; answered by `ChunkDiffered` at once, or by nothing."""

    offset: int
    data: bytes | memoryview


class VerifyAssembly(Effect, frozen=True):
    """Compare the buffer's CRC-32C. Answered by `AssemblyVerified` or `AssemblyMismatched`."""

    checksum: int


class RestoreObject(Effect, frozen=True):
    """Hand the payload to a worker. Answered by `ObjectRestored` or `RestoreFailed`.

    `owner_generation` is the one the object will have (expected + 1).
    """

    object_generation: int
    owner_generation: int


class SendRelayReady(Effect, frozen=True):
    """Send command 30 on the connection."""

    connection: int


class SendRelocationFailed(Effect, frozen=True):
    """Send command 53 on the connection, and in front of it `TargetRemoved.why` in words, where the peer reads them:
    an internal control message that nothing depends on."""

    connection: int
    failure_code: int


class WriteOwner(Effect, frozen=True):
    """Run the CAS (B6.5): owner = this node, owner generation + 1, this RelocationId, and the memberships that
    change, for every participant in one write. `owner_generation` is the own row's new one.

    The own row's condition is `expected_version`, that of each other row the version in `others`.
    Answered by `OwnerWritten`, `OwnerWriteConflicted`, `OwnerWriteUnknown` or `OwnerWriteFailed`.
    """

    expected_version: str
    owner_generation: int
    others: Conditions = ()


class OpenDispatch(Effect, frozen=True):
    """Open dispatch: saved work is in the worker already, then `relay`, then `queue`, in order; then switch
    the temporary route to the ordinary one (R4.6.1). Answered by `DispatchOpened` or `DispatchOpenFailed`."""

    relay: tuple[Any, ...]
    queue: tuple[Any, ...]


class CommitSessions(Effect, frozen=True):
    """Dispatch is open: send command 44 commit, one-way, to the owner of every session of the unit, and again
    on a new connection within the seal timeout (R4.6.4, B11.4)."""


class DropTarget(Effect, frozen=True):
    """Remove buffer, instance and temporary queue; the target of this identity never opens.

    `direct` is what came here directly or by follow, to be treated as `disposal` says before the local route
    goes back. `relay` are relay records. Where `end_work` is True this node saw proof that the source is past
    its boundary: it makes the terminals of the saved work in its worker and of `relay`; else it must not,
    since the source may restore them (B8.15). Where `keep_work` is True the driver keeps the saved work by name:
    `EndWork` or `ForgetWork` follows.
    """

    reason: str
    direct: tuple[Any, ...]
    disposal: DirectDisposal
    relay: tuple[Any, ...] = ()
    end_work: bool = False
    keep_work: bool = False


class EndWork(Effect, frozen=True):
    """End the saved work that `DropTarget` kept by name: a typed failure of class `kind` for each request, a dead
    letter for each send.

    `applied` as in `FailTaken`: with `unknown` the source may have run it, and the sends are in doubt, no dead
    letters. `requests` False: the source has ended those.
    """

    kind: str
    applied: str
    requests: bool = True


class ForgetWork(Effect, frozen=True):
    """The source has the saved work that `DropTarget` kept by name: nothing of it ends here."""


# within one node


class DropStaged(Effect, frozen=True):
    """Drop the object that the other worker has built or is building; it never opened, and its saved work goes on
    in the old worker (B8.15)."""
