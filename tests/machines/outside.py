"""What can happen to a machine at any time without its having asked: peers, links, callers, clients, clocks.

Every event of every machine is either here or an answer to one of its own effects. `UNHEARD` says where a driver
cannot report an outside event, and why; nothing else may ever be refused by a table.
"""

from __future__ import annotations

from sojourn.handoff import events as ev
from sojourn.handoff import local
from sojourn.handoff import replies as rp
from sojourn.handoff import source_states as ss
from sojourn.handoff import target_states as ts
from sojourn.handoff.local import LocalHandoff
from sojourn.handoff.machine import DeadlineReached, Event, Machine, State
from sojourn.handoff.path import SenderPath
from sojourn.handoff.replies import ReplyRelay
from sojourn.handoff.source import SourceHandoff
from sojourn.handoff.target import TargetHandoff
from sojourn.session import events as se
from sojourn.session.contact import SessionContact
from sojourn.session.seal import SessionSeal

__all__ = ["ANSWERS", "OUTSIDE", "UNHEARD", "machine_of", "outside_events"]

OUTSIDE: dict[type[Machine], tuple[type[Event], ...]] = {
    SourceHandoff: (
        ev.RelayReadyReceived,
        ev.RelocationFailedReceived,
        ev.CommitTold,
        ev.RecordArrived,
        ev.LinkLost,
        ev.LinkRestored,
        ev.TargetRunGone,
        ev.CancelRequested,
        ev.WorkerLost,
        DeadlineReached,
    ),
    TargetHandoff: (
        ev.RestoreRequested,
        ev.ChunkArrived,
        ev.RelayArrived,
        ev.CutoverArrived,
        ev.WithdrawnReceived,
        ev.FollowArrived,
        ev.DirectArrived,
        ev.LinkLost,
        ev.RestoreFailed,
        DeadlineReached,
    ),
    LocalHandoff: (ev.RecordArrived, ev.WorkerLost, DeadlineReached),
    SenderPath: SenderPath.EVENTS,
    ReplyRelay: (
        rp.AckReceived,
        rp.RequesterLinkLost,
        rp.RequesterLinkRestored,
        rp.RequesterGone,
        rp.MemoryShort,
        DeadlineReached,
    ),
    SessionSeal: SessionSeal.EVENTS,
    SessionContact: (
        se.ConnectionUp,
        se.ConnectionDown,
        se.SealAnswered,
        se.SealDenied,
        se.OwnerGone,
        DeadlineReached,
    ),
}

ANSWERS: dict[type[Machine], tuple[type[Event], ...]] = {
    SourceHandoff: (
        ev.RelocationStarted,
        ev.TurnBoundaryReached,
        ev.SessionSealed,
        ev.SessionUnbound,
        ev.SessionRefused,
        ev.ObjectCaptured,
        ev.CaptureRefused,
        ev.TurnOutlasted,
        ev.ChunksSent,
        ev.FenceApplied,
        ev.FenceConflicted,
        ev.FenceUnknown,
        ev.RowRead,
        ev.RowReadFailed,
        ev.CutoverSubmitted,
        ev.DispatchRestored,
        ev.DispatchRestoreFailed,
        ev.LostMarked,
        ev.LostConflicted,
        ev.LostUnknown,
    ),
    TargetHandoff: (
        ev.RestoreRefused,
        ev.RivalPreferred,
        ev.RivalKept,
        ev.ChunkDiffered,
        ev.AssemblyVerified,
        ev.AssemblyMismatched,
        ev.RowRead,
        ev.RowReadFailed,
        ev.ObjectRestored,
        ev.OwnerWritten,
        ev.OwnerWriteConflicted,
        ev.OwnerWriteUnknown,
        ev.OwnerWriteFailed,
        ev.DispatchOpened,
        ev.DispatchOpenFailed,
        ev.LostMarked,
        ev.LostConflicted,
        ev.LostUnknown,
    ),
    LocalHandoff: (
        ev.RelocationStarted,
        ev.ObjectCaptured,
        ev.CaptureRefused,
        ev.ObjectRestored,
        ev.RestoreFailed,
        ev.OwnerWritten,
        ev.OwnerWriteConflicted,
        ev.OwnerWriteUnknown,
        ev.OwnerWriteFailed,
        ev.RowRead,
        ev.RowReadFailed,
        ev.DispatchOpened,
        ev.DispatchOpenFailed,
        ev.DispatchRestored,
        ev.DispatchRestoreFailed,
    ),
    SenderPath: (),
    ReplyRelay: (rp.ReplyFinished, rp.BlobStored, rp.BlobStoreFailed, rp.ReplyFetched, rp.ReplyFetchFailed),
    SessionSeal: (),
    SessionContact: (se.SealWanted, se.RouteDecided, se.ContactReleased),
}
"""Answers to effects, what its own driver decides, and the event that begins a machine's life."""

_SERVES = "the object serves on: its records go to it"
_BEGINS = "the driver makes the machine with its first event"
_EARLY = "kept by the driver until it is decided whether the attempt begins"
_NO_WORKER = "no worker holds the object"
UNHEARD: dict[type[State], dict[type[Event], str]] = {
    ss.SourceRunning: {ev.RecordArrived: _SERVES},
    local.Running: {ev.RecordArrived: _SERVES},
    ss.BoundaryAwaited: {ev.RecordArrived: _SERVES},
    ss.SessionSealing: {ev.RecordArrived: _SERVES},
    ss.CutoverPending: {ev.LinkRestored: "a connection stands until its end is reported"},
    ss.CutoverSubmitting: {ev.LinkRestored: "a connection stands until its end is reported"},
    ts.Announced: {
        **dict.fromkeys(
            (
                ev.ChunkArrived,
                ev.RelayArrived,
                ev.CutoverArrived,
                ev.WithdrawnReceived,
                ev.FollowArrived,
                ev.DirectArrived,
                ev.LinkLost,
            ),
            _EARLY,
        ),
        ev.RestoreFailed: _NO_WORKER,
        DeadlineReached: "no timer is armed",
    },
    ts.Assembling: {ev.RestoreFailed: _NO_WORKER},
    rp.ReplyMade: dict.fromkeys(
        (
            rp.AckReceived,
            rp.RequesterLinkLost,
            rp.RequesterLinkRestored,
            rp.RequesterGone,
            rp.MemoryShort,
            DeadlineReached,
        ),
        _BEGINS,
    ),
}


def machine_of(machine: Machine) -> type[Machine]:
    """The machine class whose table this one has."""
    return next(kind for kind in OUTSIDE if isinstance(machine, kind))


def outside_events(machine: Machine, samples: dict[type[Event], list[Event]]) -> list[Event]:
    """Every sample of what could happen to this machine now without its having asked."""
    unheard = UNHEARD.get(type(machine.state), {})
    standing = getattr(machine.state, "connection", None) is not None
    return [
        event
        for kind in OUTSIDE[machine_of(machine)]
        if kind not in unheard and not (kind is ev.LinkRestored and standing)
        for event in samples[kind]
    ]
