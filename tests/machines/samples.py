"""Ready-made handoffs for the tests: a machine in every state, and one sample of every event."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from sojourn.handoff import events as ev
from sojourn.handoff import source_states as ss
from sojourn.handoff import target_states as ts
from sojourn.handoff.machine import DeadlineReached, Effect, Event, State
from sojourn.handoff.source import SourceHandoff, SourcePlan
from sojourn.handoff.target import TargetHandoff, TargetPlan
from sojourn.handoff.terms import HandoffIdentity, Manifest, ParticipantFacts, RowFacts
from sojourn.ids import NodeRun, actor_key

A, B, C = (NodeRun(name, 1) for name in (b"A", b"B", b"C"))
RELOCATION = (0, 7)
IDENTITY = HandoffIdentity(RELOCATION, 1, "owner-a", 3, A, "v5")
KEY = actor_key("p1")
MANIFEST = Manifest(total_length=10, chunk_count=2, checksum=99)
OTHER_MANIFEST = Manifest(total_length=10, chunk_count=2, checksum=98)
D = 30.0
ENDS = 40.0

ROW_FIRST = RowFacts("v5", A, object_generation=1, owner_generation=4)
ROW_MOVED = RowFacts("v6", B, 1, 5, RELOCATION)
ROW_MOVED_ON = RowFacts("v8", C, 1, 6, (0, 8))
ROW_FENCED = RowFacts("v6", A, 1, 4, RELOCATION, fenced=True)
ROW_LOST = RowFacts("v7", A, 1, 4, None, lost=True)
ROW_REBORN = RowFacts("v9", C, 2, 1)
ROW_OF_UNIT = ROW_FIRST._replace(
    others=(
        ParticipantFacts(actor_key("p1"), "a5", A, 2, 9),
        ParticipantFacts(actor_key("p2"), "b5", A, 3, 1),
    )
)


def checksum(data: bytes, value: int) -> int:
    return zlib.crc32(data, value)


def frozen(record: str) -> bytes:
    return record.encode()


def checksum_of(*records: str) -> int:
    value = 0
    for record in records:
        value = checksum(frozen(record), value)
    return value


def new_source(sessions: int = 0) -> SourceHandoff:
    return SourceHandoff(SourcePlan(IDENTITY, B, 1, 4, D, sessions), checksum, frozen)


def new_target() -> TargetHandoff:
    return TargetHandoff(TargetPlan(IDENTITY, KEY, B, ENDS), checksum, frozen)


class Play:
    """A machine with a clock: `play(event)` or `play(event, at=...)` gives the effects."""

    def __init__(self, machine: SourceHandoff | TargetHandoff) -> None:
        self.machine = machine
        self.now = 0.0

    def __call__(self, event: Event, at: float | None = None) -> list[Effect]:
        if at is not None:
            assert at >= self.now
            self.now = at
        return self.machine.handle(event, self.now)

    def wait(self) -> list[Effect]:
        """Let the machine's own deadline pass."""
        assert self.machine.deadline is not None
        return self(DeadlineReached(), max(self.machine.deadline, self.now))

    @property
    def state(self) -> State:
        return self.machine.state


# source states

SOURCE_SCRIPTS: dict[type[State], list[Event]] = {
    ss.SourceRunning: [],
    ss.Sealing: [ev.RelocationStarted(1)],
    ss.Abandoning: [ev.RelocationStarted(1), ev.CancelRequested()],
    ss.SourcePaused: [ev.RelocationStarted(1), ev.ObjectCaptured(MANIFEST), ev.LinkLost(1)],
    ss.TargetRestoring: [ev.RelocationStarted(1), ev.RecordArrived("h1"), ev.ObjectCaptured(MANIFEST)],
}
SOURCE_SCRIPTS[ss.FenceWriting] = [*SOURCE_SCRIPTS[ss.TargetRestoring], ev.CancelRequested()]
SOURCE_SCRIPTS[ss.FenceChecking] = [*SOURCE_SCRIPTS[ss.FenceWriting], ev.FenceUnknown()]
SOURCE_SCRIPTS[ss.FencePausing] = [*SOURCE_SCRIPTS[ss.FenceChecking], ev.RowReadFailed()]
SOURCE_SCRIPTS[ss.Restoring] = [
    *SOURCE_SCRIPTS[ss.TargetRestoring],
    ev.RelocationFailedReceived(17, 1),
]
SOURCE_SCRIPTS[ss.SourceRestored] = [*SOURCE_SCRIPTS[ss.Restoring], ev.DispatchRestored()]
SOURCE_SCRIPTS[ss.CutoverSubmitting] = [*SOURCE_SCRIPTS[ss.TargetRestoring], ev.RelayReadyReceived(1)]
SOURCE_SCRIPTS[ss.CommitAwaited] = [*SOURCE_SCRIPTS[ss.CutoverSubmitting], ev.CutoverSubmitted(1)]
SOURCE_SCRIPTS[ss.FollowOnly] = [*SOURCE_SCRIPTS[ss.CommitAwaited], ev.RowRead(ROW_MOVED)]
SOURCE_SCRIPTS[ss.SourceClosed] = [*SOURCE_SCRIPTS[ss.FollowOnly], ev.TargetRunGone()]
SOURCE_SCRIPTS[ss.BoundaryAwaited] = [ev.RelocationStarted(1)]
SOURCE_SCRIPTS[ss.SessionSealing] = [*SOURCE_SCRIPTS[ss.BoundaryAwaited], ev.TurnBoundaryReached()]
SOURCE_SCRIPTS[ss.CutoverPending] = [
    *SOURCE_SCRIPTS[ss.SessionSealing],
    ev.SessionSealed(0),
    ev.RecordArrived("h1"),
    ev.ObjectCaptured(MANIFEST),
    ev.RelayReadyReceived(1),
]
BOUND = (ss.BoundaryAwaited, ss.SessionSealing, ss.CutoverPending)
"""States that only a source with a bound session knows."""


def source_in(kind: type[State]) -> Play:
    """A source in the wanted state, on connection 1."""
    play = Play(new_source(sessions=1 if kind in BOUND else 0))
    if kind in (ss.Reconciling, ss.LostMarking):
        for event in SOURCE_SCRIPTS[ss.CommitAwaited]:
            play(event)
        play(DeadlineReached(), at=ENDS + 1)
        if kind is ss.LostMarking:
            play(ev.RowRead(ROW_FIRST))
    else:
        for event in SOURCE_SCRIPTS[kind]:
            play(event)
    assert type(play.state) is kind
    return play


# target states

_ASSEMBLED: list[Event] = [
    ev.RestoreRequested(MANIFEST, 1),
    ev.ChunkArrived(0, b"01234", 1),
    ev.ChunkArrived(1, b"56789", 1),
    ev.RowRead(ROW_FIRST),
    ev.AssemblyVerified(),
]
TARGET_SCRIPTS: dict[type[State], list[Event]] = {
    ts.Announced: [],
    ts.Assembling: [ev.RestoreRequested(MANIFEST, 1), ev.ChunkArrived(0, b"01234", 1)],
    ts.RestoringObject: _ASSEMBLED,
    ts.ObjectStaged: [*_ASSEMBLED, ev.LinkLost(1), ev.ObjectRestored()],
    ts.RelayReady: [*_ASSEMBLED, ev.ObjectRestored()],
}
TARGET_SCRIPTS[ts.OwnerWriting] = [
    *TARGET_SCRIPTS[ts.RelayReady],
    ev.RelayArrived("r1", 1),
    ev.CutoverArrived(1, checksum_of("r1"), 1),
]
TARGET_SCRIPTS[ts.OwnerChecking] = [*TARGET_SCRIPTS[ts.OwnerWriting], ev.OwnerWriteUnknown()]
TARGET_SCRIPTS[ts.OwnerPausing] = [*TARGET_SCRIPTS[ts.OwnerChecking], ev.RowReadFailed()]
TARGET_SCRIPTS[ts.Opening] = [*TARGET_SCRIPTS[ts.OwnerWriting], ev.OwnerWritten()]
TARGET_SCRIPTS[ts.TargetOpen] = [*TARGET_SCRIPTS[ts.Opening], ev.DispatchOpened()]
TARGET_SCRIPTS[ts.TargetDoubting] = [*TARGET_SCRIPTS[ts.RelayReady], ev.RestoreRequested(OTHER_MANIFEST, 1)]
TARGET_SCRIPTS[ts.TargetRemoved] = [ev.RestoreRequested(MANIFEST, 1), ev.RowRead(ROW_MOVED)]


def target_in(kind: type[State]) -> Play:
    """A target in the wanted state, on connection 1, at time 0."""
    play = Play(new_target())
    if kind is ts.TargetForgotten:
        play = target_in(ts.TargetRemoved)
        play.wait()
        return play
    for event in TARGET_SCRIPTS[kind]:
        play(event)
    assert type(play.state) is kind
    return play


SAMPLES: dict[type[Event], list[Event]] = {
    kind: [kind()]
    for kind in (
        ev.RowReadFailed,
        ev.WorkerLost,
        ev.TargetRunGone,
        ev.CancelRequested,
        ev.FenceApplied,
        ev.FenceConflicted,
        ev.FenceUnknown,
        ev.DispatchRestored,
        ev.LostMarked,
        ev.LostConflicted,
        ev.LostUnknown,
        ev.RivalKept,
        ev.RivalPreferred,
        ev.WithdrawnReceived,
        ev.ChunkDiffered,
        ev.AssemblyVerified,
        ev.AssemblyMismatched,
        ev.ObjectRestored,
        ev.OwnerWritten,
        ev.OwnerWriteConflicted,
        ev.OwnerWriteUnknown,
        ev.OwnerWriteFailed,
        ev.DispatchOpened,
        ev.TurnBoundaryReached,
        ev.TurnOutlasted,
        DeadlineReached,
    )
}
SAMPLES |= {
    ev.RowRead: [
        ev.RowRead(row)
        for row in (None, ROW_FIRST, ROW_MOVED, ROW_MOVED_ON, ROW_FENCED, ROW_LOST, ROW_REBORN, ROW_OF_UNIT)
    ],
    ev.LinkLost: [ev.LinkLost(1), ev.LinkLost(9)],
    ev.LinkRestored: [ev.LinkRestored(2)],
    ev.RelocationStarted: [ev.RelocationStarted(1)],
    ev.SessionSealed: [ev.SessionSealed(0)],
    ev.SessionUnbound: [ev.SessionUnbound(0)],
    ev.SessionRefused: [ev.SessionRefused(0, "sealed")],
    ev.RecordArrived: [ev.RecordArrived("m1")],
    ev.ObjectCaptured: [ev.ObjectCaptured(MANIFEST)],
    ev.CaptureRefused: [ev.CaptureRefused("no")],
    ev.ChunksSent: [ev.ChunksSent(1)],
    ev.RelayReadyReceived: [ev.RelayReadyReceived(1)],
    ev.RelocationFailedReceived: [ev.RelocationFailedReceived(17, 1)],
    ev.CutoverSubmitted: [ev.CutoverSubmitted(1)],
    ev.CommitTold: [ev.CommitTold()],
    ev.DispatchRestoreFailed: [ev.DispatchRestoreFailed("worker gone")],
    ev.RestoreRequested: [ev.RestoreRequested(MANIFEST, 2), ev.RestoreRequested(OTHER_MANIFEST, 2)],
    ev.RestoreRefused: [ev.RestoreRefused(17, 1)],
    ev.ChunkArrived: [
        ev.ChunkArrived(0, b"01234", 1),
        ev.ChunkArrived(1, b"56789", 1),
        ev.ChunkArrived(1, b"5678", 1),
        ev.ChunkArrived(5, b"x", 1),
    ],
    ev.RestoreFailed: [ev.RestoreFailed("no such type")],
    ev.RelayArrived: [ev.RelayArrived("r1", 1), ev.RelayArrived("r1", 2)],
    ev.FollowArrived: [ev.FollowArrived("f1", 1)],
    ev.DirectArrived: [ev.DirectArrived("d1")],
    ev.CutoverArrived: [ev.CutoverArrived(0, 0, 1), ev.CutoverArrived(3, 1, 1)],
    ev.DispatchOpenFailed: [ev.DispatchOpenFailed("worker gone")],
}
Builder = Callable[[type[State]], Play]
