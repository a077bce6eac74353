"""Paths, markers, follow routes."""

from __future__ import annotations

from typing import Any

from sojourn.handoff.path import (
    AwaitingMarker,
    MarkerAnswered,
    OnPath,
    RouteLearned,
    SenderPath,
    StagingBegun,
)

from tests.simulation.mutants.planting import (
    CALM,
    LATE_READS,
    QUIET_STORE,
    mutant,
    path,
)
from tests.simulation.world import World

__all__: list[str] = []


# order


@mutant("the target's own senders are diverted only at the commit", "B8.14", 30, send_every_s=0.008)
def _plant(world: World) -> None:
    world.divert_at_commit = True


@mutant("a new path is taken without a marker", "B9.4", 20, send_every_s=0.008, burst=1.0)
def _plant(world: World) -> None:
    def at_once(self: Any, state: OnPath, event: RouteLearned, now: float) -> None:
        self._switch(event.route, [])

    path(world, {(OnPath, RouteLearned): at_once})


@mutant(
    "a sender goes to the route it learned, not to the node that answered",
    "B9.4",
    60,
    send_every_s=0.008,
    burst=1.0,
)
def _plant(world: World) -> None:
    def learned(self: Any, state: AwaitingMarker, event: MarkerAnswered, now: float) -> None:
        if event.marker_id == state.marker_id:
            self._switch(state.learned or event.route, state.held)

    path(world, {(AwaitingMarker, MarkerAnswered): learned})


@mutant("a target sends no marker down its last path", "B9.4", 60, send_every_s=0.008, burst=1.0)
def _plant(world: World) -> None:
    staged = SenderPath._staged_here

    def at_once(self: Any, state: Any, event: StagingBegun, now: float) -> None:
        last = getattr(state, "route", None) or getattr(state, "last", None)
        staged(self, state, event if last is None else StagingBegun(event.run, last.run), now)

    path(world, _staged_here=at_once)


@mutant(
    "an object is sealed while the node's own marker for it is out",
    "B9.4",
    60,
    send_every_s=0.008,
    burst=1.0,
    chain=1.0,
)
def _plant(world: World) -> None:
    world.seal_with_marker_out = True


@mutant("a staged marker is not answered", "B9.4", 20, send_every_s=0.008)
def _plant(world: World) -> None:
    world.answer_staged = False


@mutant(
    "an older route replaces a newer one",
    "B9.1",
    60,
    QUIET_STORE,
    **CALM,
    send_every_s=0.008,
    burst=1.0,
    chain=1.0,
    survives="costs markers and hops only: a marker checks every change of path",
)
def _plant(world: World) -> None:
    def older(self: Any, state: OnPath, event: RouteLearned, now: float) -> None:
        if event.route.run == state.route.run:
            state.route = event.route
        else:
            self._mark(state.route, event.route, [], now + self._marker_timeout_s)

    path(world, {(OnPath, RouteLearned): older})


@mutant(
    "the source follows straight to the later owner that the row names",
    "B6.8",
    60,
    QUIET_STORE,
    **CALM,
    send_every_s=0.008,
    chain=1.0,
    options=LATE_READS,
)
def _plant(world: World) -> None:
    world.straight_follow = True


@mutant(
    "an older handoff of the object installs its follow route late",
    "B9.2",
    60,
    QUIET_STORE,
    **CALM,
    options=LATE_READS,
    nodes=3,
    chain=1.0,
    move_every_s=0.03,
    send_every_s=0.008,
)
def _plant(world: World) -> None:
    world.old_handoffs_install = True


@mutant(
    "the target's own marker need not come home",
    "B9.4",
    60,
    QUIET_STORE,
    **{**CALM, "cancels": 0.3},
    send_every_s=0.008,
    burst=1.0,
    chain=1.0,
)
def _plant(world: World) -> None:
    def first(self: Any, state: AwaitingMarker, event: MarkerAnswered, now: float) -> None:
        if event.marker_id == state.marker_id:
            self._switch(event.route, state.held)

    path(world, {(AwaitingMarker, MarkerAnswered): first})


@mutant(
    "what comes from nodes whose marker was taken here waits too",
    "B9.4",
    60,
    QUIET_STORE,
    **CALM,
    send_every_s=0.008,
    burst=1.0,
    chain=1.0,
    survives="costs a marker timeout (2 s) now and then, never order; a story in tests/machines covers it",
)
def _plant(world: World) -> None:
    world.takes_note_of_markers = False
