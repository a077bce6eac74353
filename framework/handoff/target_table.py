"""The table of `TargetHandoff`, apart from the transitions: its states, its events, and what changes nothing.

Owns the reasons why an event is ignorable in a state. A pair that stands neither here nor beside a
transition method is a bug when it happens.
"""

from __future__ import annotations

from sojourn.handoff.events import (
    AssemblyMismatched,
    AssemblyVerified,
    ChunkArrived,
    ChunkDiffered,
    CutoverArrived,
    DirectArrived,
    DispatchOpened,
    DispatchOpenFailed,
    FollowArrived,
    LinkLost,
    LostConflicted,
    LostMarked,
    LostUnknown,
    ObjectRestored,
    OwnerWriteConflicted,
    OwnerWriteFailed,
    OwnerWriteUnknown,
    OwnerWritten,
    RelayArrived,
    RestoreFailed,
    RestoreRefused,
    RestoreRequested,
    RivalKept,
    RivalPreferred,
    RowRead,
    RowReadFailed,
    WithdrawnReceived,
)
from sojourn.handoff.machine import DeadlineReached, Event, Ignored, Reasons, State
from sojourn.handoff.target_states import (
    Announced,
    Assembling,
    ObjectStaged,
    Opening,
    OwnerChecking,
    OwnerPausing,
    OwnerWriting,
    RelayReady,
    RestoringObject,
    TargetDoubting,
    TargetForgotten,
    TargetOpen,
    TargetRemoved,
)

__all__ = ["EVENTS", "IGNORED", "STATES"]

STATES: tuple[type[State], ...] = (
    Announced,
    Assembling,
    RestoringObject,
    ObjectStaged,
    RelayReady,
    OwnerWriting,
    OwnerChecking,
    OwnerPausing,
    Opening,
    TargetOpen,
    TargetDoubting,
    TargetRemoved,
    TargetForgotten,
)
EVENTS: tuple[type[Event], ...] = (
    RestoreRequested,
    RestoreRefused,
    RivalPreferred,
    RivalKept,
    WithdrawnReceived,
    ChunkArrived,
    ChunkDiffered,
    AssemblyVerified,
    AssemblyMismatched,
    RowRead,
    RowReadFailed,
    ObjectRestored,
    RestoreFailed,
    RelayArrived,
    FollowArrived,
    DirectArrived,
    CutoverArrived,
    LinkLost,
    OwnerWritten,
    OwnerWriteConflicted,
    OwnerWriteUnknown,
    OwnerWriteFailed,
    DispatchOpened,
    DispatchOpenFailed,
    LostMarked,
    LostConflicted,
    LostUnknown,
    DeadlineReached,
)

_CHUNKS: Reasons = dict.fromkeys(
    (ChunkArrived, ChunkDiffered), "the payload is verified and handed on (B8.3)"
)
_WORKER: Reasons = {RestoreFailed: "the worker ended; the answer to OpenDispatch will tell"}
_OPEN: Reasons = {
    **_CHUNKS,
    **_WORKER,
    LinkLost: "the identity needs no connection any more",
    WithdrawnReceived: "the owner is written",
}
_ENDED: Reasons = {
    **dict.fromkeys((ChunkArrived, ChunkDiffered), "chunks of an ended identity are discarded (B8.6)"),
    **dict.fromkeys(
        (
            AssemblyVerified,
            AssemblyMismatched,
            RowRead,
            RowReadFailed,
            RivalKept,
            ObjectRestored,
            RestoreFailed,
            OwnerWritten,
            OwnerWriteConflicted,
            OwnerWriteUnknown,
            OwnerWriteFailed,
            LostMarked,
            LostConflicted,
            LostUnknown,
        ),
        "a late answer revives nothing (R4.5.3)",
    ),
    **dict.fromkeys((RivalPreferred, WithdrawnReceived, LinkLost), "the attempt has ended"),
}
_FORGOTTEN: Reasons = dict.fromkeys(
    (RestoreRequested, RelayArrived, CutoverArrived, DirectArrived, FollowArrived, DeadlineReached),
    "nothing is remembered; the driver no longer delivers to this machine",
)

_READ_BY = (RowRead, RowReadFailed, WithdrawnReceived, LostMarked, LostConflicted, LostUnknown)
_DOUBTING: Reasons = {event: why for event, why in _ENDED.items() if event not in _READ_BY}

IGNORED: Ignored = {
    RestoringObject: _CHUNKS,
    ObjectStaged: _CHUNKS,
    RelayReady: {**_CHUNKS, **_WORKER},
    OwnerWriting: {**_CHUNKS, **_WORKER},
    OwnerChecking: {**_CHUNKS, **_WORKER},
    OwnerPausing: {**_CHUNKS, **_WORKER},
    Opening: {**_OPEN, DeadlineReached: "a timer of an earlier state"},
    TargetOpen: _OPEN,
    TargetDoubting: _DOUBTING,
    TargetRemoved: _ENDED,
    TargetForgotten: {**_ENDED, **_FORGOTTEN},
}
