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
from sojourn.handoff.terms import HandoffOptions

from tests.simulation.mutants.planting import (
    CALM,
    LATE_READS,
    QUIET_STORE,
    changed,
    mutant,
    path,
)
from tests.simulation.world import World

__all__ = ["LATE_NEWS"]


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
    _go_where_told(world)


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


def _go_where_told(world: World) -> None:
    def learned(self: Any, state: AwaitingMarker, event: MarkerAnswered, now: float) -> None:
        if event.marker_id == state.marker_id:
            self._switch(state.learned or event.route, state.held)

    path(world, {(AwaitingMarker, MarkerAnswered): learned})


def _take_older(self: Any, state: OnPath, event: RouteLearned, now: float) -> None:
    if event.route.run == state.route.run:
        state.route = event.route
    else:
        self._mark(state.route, event.route, [], now + self._marker_timeout_s)


def _await_older(self: Any, state: AwaitingMarker, event: RouteLearned, now: float) -> None:
    if state.home is None:
        state.learned = event.route


_OLDER_WINS: dict[Any, Any] = {
    (OnPath, RouteLearned): _take_older,
    (AwaitingMarker, RouteLearned): _await_older,
}
LATE_NEWS: dict[str, Any] = {
    "nodes": 8,
    "keys": 8,
    "chaos_s": 60.0,
    "send_every_s": 0.15,
    "move_every_s": 6.0,
    "chain": 0.9,
    "burst": 0.0,
    "link_delay_s": 0.002,
    "hand_delay_s": 0.2,
    "capture_s": 0.0005,
    "chunk_s": 0.0002,
    "options": HandoffOptions(
        cutover_wait_s=1.0,
        commit_reserve_s=4.0,
        follow_duration_s=7.0,
        sweep_s=2.0,
        ended_memory_s=10.0,
        retry_max_s=0.2,
    ),
}
"""Objects that move several times at once and then stay; senders that pause; command 50 comes in another order
than it was sent on two links. Who goes by an old one still sends to a node that follows no longer: an entry is
used for 6 s, follow lasts 7."""


@mutant(
    "an older route replaces a newer one, and a sender goes to the route it learned",
    "B9.1",
    60,
    QUIET_STORE,
    beside=_go_where_told,
    **CALM,
    **LATE_NEWS,
)
def _plant(world: World) -> None:
    world.path_class = changed(world.path_class, _OLDER_WINS)


@mutant(
    "an older route replaces a newer one",
    "B9.1",
    40,
    QUIET_STORE,
    **CALM,
    **LATE_NEWS,
    survives="alone: costs markers only, since a sender goes to the node that answered its marker, whatever it heard",
)
def _plant(world: World) -> None:
    path(world, _OLDER_WINS)


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
