"""The fence, repeats, ended identities, rivals, lost objects."""

from __future__ import annotations

from typing import Any

from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff import source_states as ss
from sojourn.handoff import target_states as ts
from sojourn.handoff.machine import Event
from sojourn.handoff.source import SourceHandoff
from sojourn.handoff.terms import HandoffOptions, RowFacts

from tests.simulation.mutants.planting import (
    CALM,
    CANCELS,
    QUIET_STORE,
    UNKNOWN,
    carrier,
    mutant,
    nothing,
    source,
    target,
)
from tests.simulation.target_driver import TargetDriver
from tests.simulation.world import World

__all__: list[str] = []


# the fence


@mutant("a deadline or cancellation restores the source without a fence", "B6.7", 60, **CANCELS)
def _plant(world: World) -> None:
    def bare(self: Any, state: Any, reason: Any) -> None:
        self._restore(state.hold, reason, captured=True)

    source(world, _fence=bare)


@mutant("a fence that leaves no mark in the row", "B6.7", 60, **CANCELS)
def _plant(world: World) -> None:
    def unmarked(self: Any, effect: fx.WriteFence) -> None:
        self.deliver_later(ev.FenceApplied(), 0.001)

    carrier(world, "source_driver", fx.WriteFence, unmarked)
    target(world, _withdrawn=nothing)


@mutant("relay-ready is accepted while a fence is out", "B6.7", 60, cancels=0.6, capture_s=0.005)
def _plant(world: World) -> None:
    def accept(self: Any, state: Any, event: Any, now: float) -> None:
        if state.connection is not None:
            self._accept(state, event, now)

    source(
        world,
        {
            (ss.FenceWriting, ev.RelayReadyReceived): accept,
            (ss.CutoverSubmitting, ev.FenceApplied): _fenced_late,
            (ss.CommitAwaited, ev.FenceApplied): _fenced_late,
            (ss.CutoverSubmitting, ev.FenceConflicted): nothing,
            (ss.CommitAwaited, ev.FenceConflicted): nothing,
            (ss.CutoverSubmitting, ev.FenceUnknown): nothing,
            (ss.CommitAwaited, ev.FenceUnknown): nothing,
        },
    )


def _fenced_late(self: Any, state: Any, event: Event, now: float) -> None:
    self._restore([], "fenced", captured=True)


@mutant("an unknown fence outcome is taken for success", "B6.7", 60, UNKNOWN, **CANCELS)
def _plant(world: World) -> None:
    def guess(self: Any, state: Any, event: Any, now: float) -> None:
        self._restore_fenced(state)

    source(world, {(ss.FenceWriting, ev.FenceUnknown): guess})
    target(world, _withdrawn=nothing)


@mutant(
    "the hold is not followed when the fence meets a commit",
    "B6.7",
    120,
    cuts=3.0,
    gives_up_s=(2.1, 2.3),
    send_every_s=0.008,
)
def _plant(world: World) -> None:
    adopt = SourceHandoff._adopt_fenced

    def forget(self: Any, state: Any, row: RowFacts, now: float) -> None:
        state.hold = []
        adopt(self, state, row, now)

    source(world, _adopt_fenced=forget)


# repeats, ended identities, rivals


def _believe(world: World) -> None:
    def bare(self: Any, state: Any, event: Any, now: float) -> None:
        self._restore(state.hold, "failed", captured=True)

    source(world, {(ss.TargetRestoring, ev.RelocationFailedReceived): bare})


@mutant(
    "an ended identity is started again by a repeat, and the source believes the failure it gets without a fence",
    "B8.6",
    60,
    beside=_believe,
    cuts=3.0,
    restore_fails=0.3,
    capture_s=0.005,
)
def _plant(world: World) -> None:
    def answer_and_start(self: Any, state: ts.TargetRemoved, event: ev.RestoreRequested, now: float) -> None:
        self._ended(state, event, now)
        _start_again(self, state, event, now)

    target(world, {(ts.TargetRemoved, ev.RestoreRequested): answer_and_start})


@mutant(
    "an ended identity is started again by a repeat",
    "B8.6",
    40,
    cuts=3.0,
    restore_fails=0.3,
    capture_s=0.005,
    survives="alone: a failure after a repeat makes the source write its fence, and the second attempt meets it",
)
def _plant(world: World) -> None:
    target(world, {(ts.TargetRemoved, ev.RestoreRequested): _start_again})


def _start_again(self: Any, state: ts.TargetRemoved, event: ev.RestoreRequested, now: float) -> None:
    self.state = ts.Announced()
    self._requested(self.state, event, now)


@mutant("a target that replied with a failure restores and goes on", "R4.3.3", 60, restore_fails=0.3)
def _plant(world: World) -> None:
    def on(self: Any, state: Any, event: Any, now: float) -> None:
        if state.connection is not None:
            self._do(fx.SendRelocationFailed(state.connection, 17))
        self._do(fx.RestoreObject(0, state.owner_generation))

    target(world, {(ts.RestoringObject, ev.RestoreFailed): on})


@mutant(
    "a failure after a repeated request restores the source without a fence",
    "B8.6",
    40,
    cuts=3.0,
    restore_fails=0.3,
    corrupt=0.05,
    survives="alone: a target that remembers ended identities never commits after its failure",
)
def _plant(world: World) -> None:
    _believe(world)


@mutant(
    "the target makes terminals for saved work without proof of the boundary",
    "B8.15",
    30,
    cancels=0.3,
    restore_fails=0.1,
    send_every_s=0.008,
)
def _plant(world: World) -> None:
    def end(self: Any, effect: fx.DropTarget) -> None:
        TargetDriver._drop(
            self, fx.DropTarget(effect.reason, effect.direct, effect.disposal, effect.relay, True)
        )

    carrier(world, "target_driver", fx.DropTarget, end)


SHORT = HandoffOptions(
    cutover_wait_s=0.2,
    commit_reserve_s=0.4,
    seal_time_min_s=0.1,
    follow_duration_s=12.0,
    sweep_s=2.0,
    ended_memory_s=10.0,
    retry_max_s=0.2,
)
"""An attempt whose time is over while the store is away for a moment."""
IN_DOUBT: dict[str, Any] = {
    "options": SHORT,
    "gives_up_s": (0.2, 0.6),
    "cuts": 6.0,
    "keys": 5,
    "store_outages": 0.0,
    "kills": 0.0,
    "lease_cuts": 0.0,
    "send_every_s": 0.008,
}
LATE_WRITES = {"lost_before": 0.7, "lost_after": 0.1}
"""Most writes come late or never: a commit that neither side has seen when it gives up."""


@mutant("the ended attempt forgets its saved work", "B8.15", 30, LATE_WRITES, **IN_DOUBT)
def _plant(world: World) -> None:
    carrier(world, "target_driver", fx.EndWork, TargetDriver._forget_work)


@mutant(
    "an attempt in doubt ends the saved work without reading the row",
    "B8.15",
    60,
    UNKNOWN,
    **{**IN_DOUBT, "cuts": 3.0, "store_outages": 0.5},
)
def _plant(world: World) -> None:
    def guess(self: Any, effect: fx.DropTarget) -> None:
        TargetDriver._drop(self, effect)
        if effect.keep_work:
            self._end_work(fx.EndWork("DataLost", "no"))

    carrier(world, "target_driver", fx.DropTarget, guess)


@mutant(
    "a target that drops forgets what came to it directly",
    "B8.15",
    60,
    cancels=0.3,
    restore_fails=0.1,
    send_every_s=0.008,
)
def _plant(world: World) -> None:
    def forget(self: Any, effect: fx.DropTarget) -> None:
        TargetDriver._drop(
            self,
            fx.DropTarget(
                effect.reason, (), effect.disposal, effect.relay, effect.end_work, effect.keep_work
            ),
        )

    carrier(world, "target_driver", fx.DropTarget, forget)


@mutant(
    "the newest identity always wins at the target",
    "B8.16",
    120,
    QUIET_STORE,
    **{**CALM, "stalls": 3.0, "cancels": 0.6},
    nodes=3,
    keys=3,
    chain=1.0,
    burst=0.0,
    send_every_s=0.1,
)
def _plant(world: World) -> None:
    world.newest_identity_wins = True


@mutant(
    "a target is not told that it was fenced",
    "B6.7",
    60,
    QUIET_STORE,
    **{**CALM, "cancels": 0.5},
    chunk_s=0.002,
    send_every_s=0.008,
)
def _plant(world: World) -> None:
    target(world, _withdrawn=nothing)


# lost objects


@mutant("lost objects are never marked", "B6.8", 60, cuts=2.0, store_outages=0.3)
def _plant(world: World) -> None:
    def never(self: Any, effect: fx.MarkLost) -> None:
        self.deliver_later(ev.LostUnknown(), 0.5)

    carrier(world, "source_driver", fx.MarkLost, never)
    world.sweeps = False
