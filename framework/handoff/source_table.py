"""The table of `SourceHandoff`, apart from the transitions: its states, its events, and what changes nothing.

Owns the reasons why an event is ignorable in a state. A pair that stands neither here nor beside a
transition method is a bug when it happens.
"""

from __future__ import annotations

from sojourn.handoff.events import (
    CancelRequested,
    CaptureRefused,
    ChunksSent,
    CommitTold,
    CutoverSubmitted,
    DispatchRestored,
    DispatchRestoreFailed,
    FenceApplied,
    FenceConflicted,
    FenceUnknown,
    LinkLost,
    LinkRestored,
    LostConflicted,
    LostMarked,
    LostUnknown,
    ObjectCaptured,
    RecordArrived,
    RelayReadyReceived,
    RelocationFailedReceived,
    RelocationStarted,
    RowRead,
    RowReadFailed,
    SessionRefused,
    SessionSealed,
    SessionUnbound,
    TargetRunGone,
    TurnBoundaryReached,
    TurnOutlasted,
    WorkerLost,
)
from sojourn.handoff.machine import DeadlineReached, Event, Ignored, Reasons, State
from sojourn.handoff.source_states import (
    Abandoning,
    BoundaryAwaited,
    CommitAwaited,
    CutoverPending,
    CutoverSubmitting,
    FenceChecking,
    FencePausing,
    FenceWriting,
    FollowOnly,
    LostMarking,
    Reconciling,
    Restoring,
    Sealing,
    SessionSealing,
    SourceClosed,
    SourcePaused,
    SourceRestored,
    SourceRunning,
    TargetRestoring,
)

__all__ = ["EVENTS", "IGNORED", "STATES"]

STATES: tuple[type[State], ...] = (
    SourceRunning,
    BoundaryAwaited,
    SessionSealing,
    Sealing,
    Abandoning,
    SourcePaused,
    TargetRestoring,
    FenceWriting,
    FenceChecking,
    FencePausing,
    Restoring,
    SourceRestored,
    CutoverPending,
    CutoverSubmitting,
    CommitAwaited,
    Reconciling,
    LostMarking,
    FollowOnly,
    SourceClosed,
)
EVENTS: tuple[type[Event], ...] = (
    RelocationStarted,
    TurnBoundaryReached,
    SessionSealed,
    SessionUnbound,
    SessionRefused,
    RecordArrived,
    ObjectCaptured,
    CaptureRefused,
    TurnOutlasted,
    WorkerLost,
    ChunksSent,
    RelayReadyReceived,
    RelocationFailedReceived,
    LinkLost,
    LinkRestored,
    TargetRunGone,
    CancelRequested,
    FenceApplied,
    FenceConflicted,
    FenceUnknown,
    RowRead,
    RowReadFailed,
    CutoverSubmitted,
    CommitTold,
    DispatchRestored,
    DispatchRestoreFailed,
    LostMarked,
    LostConflicted,
    LostUnknown,
    DeadlineReached,
)


_FENCING = (FenceWriting, FenceChecking, FencePausing)
_NO_TIMER: Reasons = {DeadlineReached: "a timer of an earlier state"}
_NOTHING_ASKED: Reasons = dict.fromkeys(
    (RelayReadyReceived, RelocationFailedReceived), "nothing was asked of the target yet"
)
_ANSWERS = (SessionSealed, SessionUnbound, SessionRefused)
_CHUNKS: Reasons = {ChunksSent: "only told for the story"}
_PAYLOAD_HERE: Reasons = {WorkerLost: "the payload is in the supervisor (B6.6)"}
_BEHIND_BOUNDARY: Reasons = {
    **_CHUNKS,
    RelayReadyReceived: "a duplicate (B8.6)",
    RelocationFailedReceived: "past the boundary nothing restores the source (R4.4.2)",
    CancelRequested: "past the boundary the move goes on (section 9)",
    WorkerLost: "the source's dispatch has ended",
}
_CUT_OVER: Reasons = {
    **_BEHIND_BOUNDARY,
    **dict.fromkeys(_ANSWERS, "the cutover did not wait for it any more (B11.3)"),
}
_FENCED: Reasons = {
    **dict.fromkeys(
        (RelayReadyReceived, RelocationFailedReceived), "a fence is out: answers count no more (B6.7)"
    ),
    CancelRequested: "it is being given up",
    **_CHUNKS,
    **_PAYLOAD_HERE,
}
_ENDED: Reasons = {
    **_NO_TIMER,
    **_CHUNKS,
    **dict.fromkeys(
        (
            RelayReadyReceived,
            RelocationFailedReceived,
            LinkLost,
            LinkRestored,
            TargetRunGone,
            CancelRequested,
            WorkerLost,
            TurnBoundaryReached,
            *_ANSWERS,
        ),
        "the handoff is over",
    ),
}


_IGNORED: Ignored = {
    SourceRunning: {
        **_NOTHING_ASKED,
        **_NO_TIMER,
        **dict.fromkeys(
            (LinkLost, LinkRestored, TargetRunGone, CancelRequested, WorkerLost),
            "the driver looks at link, target and object when it begins",
        ),
    },
    BoundaryAwaited: _NOTHING_ASKED,
    SessionSealing: _NOTHING_ASKED,
    Sealing: _NOTHING_ASKED,
    Abandoning: {
        **_NOTHING_ASKED,
        **_NO_TIMER,
        **dict.fromkeys((LinkLost, LinkRestored, TargetRunGone), "the target was not asked"),
        CancelRequested: "it is being given up",
    },
    SourcePaused: {
        **dict.fromkeys((RelayReadyReceived, RelocationFailedReceived), "the repeat will be answered again"),
        LinkLost: "an older connection",
        **_CHUNKS,
        **_PAYLOAD_HERE,
    },
    TargetRestoring: {**_CHUNKS, **_PAYLOAD_HERE},
    **dict.fromkeys(_FENCING, _FENCED),
    Restoring: {
        **_ENDED,
        WorkerLost: "the answer to RestoreDispatch tells",
    },
    SourceRestored: _ENDED,
    CutoverPending: _BEHIND_BOUNDARY,
    CutoverSubmitting: {**_CUT_OVER, **_NO_TIMER},
    CommitAwaited: _CUT_OVER,
    Reconciling: _CUT_OVER,
    LostMarking: _CUT_OVER,
    FollowOnly: _CUT_OVER,
    SourceClosed: {**_ENDED, CutoverSubmitted: "the handoff is over"},
}
_NO_HINT: Reasons = {CommitTold: "only a hint when to read the row"}
IGNORED: Ignored = {
    state: {**_IGNORED[state], **(_NO_HINT if state is not CommitAwaited else {})} for state in STATES
}
