"""One transition rule owns one unit's move (R11.1): its phases, its one way back, and what it shares with others."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff import source_states as ss
from sojourn.handoff import target_states as ts
from sojourn.handoff.machine import DeadlineReached, Effect, Event, Machine, State
from sojourn.handoff.source import SourceHandoff
from sojourn.handoff.target import TargetHandoff
from sojourn.handoff.terms import Phase

from tests.machines.samples import (
    ENDS,
    MANIFEST,
    ROW_FIRST,
    ROW_MOVED,
    SAMPLES,
    Play,
    checksum_of,
    new_source,
    new_target,
    source_in,
)

FOLLOW_S = 30.0
SOURCE_STORY: list[Event] = [
    ev.RelocationStarted(1),
    ev.ObjectCaptured(MANIFEST),
    ev.RecordArrived("r1"),
    ev.RelayReadyReceived(1),
    ev.CutoverSubmitted(1),
    ev.RowRead(ROW_MOVED),
]
TARGET_STORY: list[Event] = [
    ev.RestoreRequested(MANIFEST, 1),
    ev.ChunkArrived(0, b"01234", 1),
    ev.RowRead(ROW_FIRST),
    ev.ChunkArrived(1, b"56789", 1),
    ev.AssemblyVerified(),
    ev.ObjectRestored(),
    ev.RelayArrived("r1", 1),
    ev.CutoverArrived(1, checksum_of("r1"), 1),
    ev.OwnerWriteUnknown(),
    ev.RowRead(ROW_MOVED),
    ev.DispatchOpened(),
]


def phases(play: Play, story: list[Event]) -> list[str]:
    """The phases that a machine passes through, one after another."""
    found = [play.machine.phase]
    for event in story:
        play(event)
        if play.machine.phase != found[-1]:
            found.append(play.machine.phase)
    return found


def test_a_move_passes_through_the_phases_in_their_order() -> None:
    """R11.1, word for word; each half sees its own of them."""
    assert phases(Play(new_source()), SOURCE_STORY) == [
        "SourceRunning", "TargetRestoring", "RelayReady", "FollowOnly"
    ]  # fmt: skip
    assert phases(Play(new_target()), TARGET_STORY) == [
        "SourcePaused", "TargetRestoring", "RelayReady", "CutoverReceived", "StoreRetry", "OwnerCommitted",
        "TargetOpen",
    ]  # fmt: skip
    waits = Play(new_target())
    for event in TARGET_STORY[:6]:
        waits(event)
    waits.wait()
    assert waits.machine.phase == "CutoverFallback"
    fails = [*TARGET_STORY[:8], ev.OwnerWriteConflicted(), ev.RowRead(None)]
    assert phases(Play(new_target()), fails)[-1] == "TargetRemoved"
    cut = [ev.RelocationStarted(1), ev.LinkLost(1), ev.ObjectCaptured(MANIFEST)]
    assert phases(Play(new_source()), cut) == ["SourceRunning", "SourcePaused"]


def edges(machine: type[Machine]) -> set[tuple[str, str]]:
    """Every step from one phase to another that a table lists."""
    return {
        (str(state.phase), str(target.phase))
        for (state, _), rule in machine.rules.items()
        for target in rule.targets
        if isinstance(state.phase, str) and isinstance(target.phase, str) and state.phase != target.phase
    }


def test_the_only_way_back_is_from_the_pause_before_the_boundary() -> None:
    """R11.1, R4.4.2: SourcePaused to SourceRunning; a connection that breaks, or a fence, leads into the pause."""
    order = [
        Phase.SOURCE_RUNNING,
        Phase.SOURCE_PAUSED,
        Phase.TARGET_RESTORING,
        Phase.RELAY_READY,
        Phase.FOLLOW_ONLY,
    ]
    back = {
        step for step in edges(SourceHandoff) if order.index(Phase(step[0])) > order.index(Phase(step[1]))
    }
    assert back == {("SourcePaused", "SourceRunning"), ("TargetRestoring", "SourcePaused")}
    past = {Phase.RELAY_READY, Phase.FOLLOW_ONLY}
    assert {after for before, after in edges(SourceHandoff) if before in past} == {"FollowOnly"}
    # Of the target nothing leads back at all: what it has reached it keeps, or is removed.
    reached = {
        (before, after)
        for before, after in edges(TargetHandoff)
        if after in ("SourcePaused", "TargetRestoring")
    }
    assert reached == {("SourcePaused", "TargetRestoring")}
    assert {after for before, after in edges(TargetHandoff) if before == "TargetOpen"} == {"TargetRemoved"}


LATE = [
    event
    for kind in SourceHandoff.EVENTS
    for event in SAMPLES[kind]
    if (ss.FollowOnly, kind) in SourceHandoff.rules and kind not in (ev.TargetRunGone, DeadlineReached)
]


@pytest.mark.parametrize("event", LATE, ids=lambda event: type(event).__name__)
def test_nothing_late_prolongs_the_follow_route_and_nothing_early_cuts_it_off(event: Event) -> None:
    """R10.4: it ends when the latest possible commit is a follow duration ago (B8.10), and gives nothing back."""
    play = source_in(ss.FollowOnly)
    play.wait()  # the resend window
    assert play.machine.deadline == ENDS + FOLLOW_S
    effects = play(event, at=5.0)
    assert not any(isinstance(effect, fx.RestoreDispatch | fx.RemoveFollowRoute) for effect in effects)
    state: State = play.state
    assert isinstance(state, ss.FollowOnly)
    assert state.follow_until == ENDS + FOLLOW_S
    while not isinstance(play.state, ss.SourceClosed):
        effects = play.wait()
    assert fx.RemoveFollowRoute() in effects
    assert play.now == ENDS + FOLLOW_S


@pytest.mark.parametrize("seed", range(40))
def test_two_moves_at_once_share_nothing(seed: int) -> None:
    """R3.5: whatever the order in which news of two handoffs comes, each does what it does alone."""
    stories: list[tuple[Callable[[], SourceHandoff | TargetHandoff], list[Event]]]
    stories = [(new_source, SOURCE_STORY), (new_target, TARGET_STORY)] * 2
    alone = [played(Play(make()), story) for make, story in stories]
    plays = [Play(make()) for make, _ in stories]
    turns = [number for number, (_, story) in enumerate(stories) for _ in story]
    random.Random(seed).shuffle(turns)
    waiting = [iter(story) for _, story in stories]
    together: list[list[list[Effect]]] = [[] for _ in stories]
    for number in turns:
        together[number].append(plays[number](next(waiting[number])))
    assert together == alone
    assert [type(play.state) for play in plays] == [ss.FollowOnly, ts.TargetOpen] * 2


def played(play: Play, story: list[Event]) -> list[list[Effect]]:
    """What a story makes a machine do."""
    return [play(event) for event in story]
