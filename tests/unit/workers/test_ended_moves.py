"""What is kept of a handoff that is over: its identity, for what comes late (B8.4, B8.6)."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from sojourn.handoff import events as ev
from sojourn.handoff import target_states as ts
from sojourn.handoff.machine import NO_STORY, Event, IllegalTransition, Machine
from sojourn.handoff.source_states import FollowOnly
from sojourn.workers import source_driver, target_driver

from tests.machines.samples import KEY, SAMPLES, A, B, source_in, target_in
from tests.unit.workers.outside_rig import message
from tests.unit.workers.test_from_outside import rig_of


def released() -> Machine:
    """A source that follows, and has let go of its batch."""
    play = source_in(FollowOnly)
    play.wait()
    assert type(play.state) is FollowOnly
    assert play.state.batch is None
    return play.machine


def ended(kind: type[Any]) -> Machine:
    return released() if kind is FollowOnly else target_in(kind).machine


CASES = [
    (FollowOnly, source_driver.LATE_EFFECTS),
    (ts.TargetOpen, target_driver.LATE_EFFECTS),
    (ts.TargetRemoved, target_driver.LATE_EFFECTS),
]


@pytest.mark.parametrize(("state", "late"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_nothing_that_comes_late_asks_for_more_than_is_kept(state: type[Any], late: tuple[Any, ...]) -> None:
    """Any two events, at once or when the identity is forgotten."""
    asked: set[type[Any]] = set()
    events = [event for kind in type(ended(state)).EVENTS for event in SAMPLES[kind]]

    def play(machine: Machine, event: Event, now: float) -> Machine | None:
        machine = deepcopy(machine)
        try:
            asked.update(type(effect) for effect in machine.handle(event, now))
        except IllegalTransition:
            return None
        return machine

    for now in (50.0, 1e6):
        for first in events:
            after = play(ended(state), first, now)
            for second in events if after is not None else ():
                assert after is not None
                play(after, second, now)
    assert asked - set(late) == set()


async def test_a_target_that_is_open_keeps_no_more_than_late_frames_need() -> None:
    async with rig_of(B) as rig:
        driver = rig.target(target_in(ts.Opening).machine)
        driver._requests = [object()]  # type: ignore[list-item]
        rig.link(A)
        driver.handle(ev.DispatchOpened())
        driver.handle(ev.DirectArrived(message(5)))
        assert driver.is_over
        assert set(driver._steps) == set(target_driver.LATE_EFFECTS)
        assert driver._requests == []
        assert not driver.machine.story
        assert not NO_STORY
        assert driver.held.key == KEY


async def test_an_attempt_in_doubt_is_not_over() -> None:
    async with rig_of(B) as rig:
        driver = rig.target(target_in(ts.TargetDoubting).machine)
        driver.handle(ev.RowReadFailed())
        assert not driver.is_over
        driver.handle(ev.WithdrawnReceived())
        assert driver.is_over
