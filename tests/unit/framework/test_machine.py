"""The base of every machine: a table decides, a bug is told with its story."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
from sojourn.handoff.machine import (
    STORY_EVENTS_MAX,
    DeadlineReached,
    Effect,
    Event,
    IllegalTransition,
    Log,
    Machine,
    Same,
    State,
    on,
)


class Pushed(Event, frozen=True):
    strength: int


class Fed(Event, frozen=True):
    heavy: ClassVar[bool] = True
    food: bytes


class Rung(Event, frozen=True):
    pass


class Ring(Effect, frozen=True):
    times: int


@dataclass(slots=True)
class Shut(State):
    phase = "shut"
    pushes: int = 0


@dataclass(slots=True)
class Ajar(State):
    phase = "ajar"
    closes_at: float = 0.0
    pushes: int = 0

    @property
    def deadline(self) -> float | None:
        return self.closes_at


class Door(Machine):
    STATES = (Shut, Ajar)
    EVENTS = (Pushed, Fed, Rung, DeadlineReached)
    IGNORED = {Shut: {DeadlineReached: "it is shut"}}  # noqa: RUF012

    @on(Pushed, Shut, to=(Same, Ajar))
    def _pushed(self, state: Shut, event: Pushed, now: float) -> None:
        state.pushes += 1
        if event.strength > 1:
            self.state = state.into(Ajar, closes_at=now + 5)

    @on(DeadlineReached, Ajar, to=(Shut,))
    def _closes(self, state: Ajar, event: DeadlineReached, now: float) -> None:
        self.state = state.into(Shut)

    @on(Rung, Shut, Ajar)
    def _rung(self, state: Shut | Ajar, event: Rung, now: float) -> None:
        self._log("rung", "info", pushes=state.pushes)
        self._do(Ring(state.pushes))

    @on(Fed, Shut)
    def _fed(self, state: Shut, event: Fed, now: float) -> None:
        self.state = Ajar()  # the table says that it stays shut


def test_the_table_decides() -> None:
    door = Door(Shut())
    assert door.handle(Pushed(1), 1.0) == []
    assert (door.phase, door.deadline) == ("shut", None)
    assert door.handle(DeadlineReached(), 1.5) == []
    door.handle(Pushed(2), 2.0)
    assert (door.phase, door.deadline) == ("ajar", 7.0)
    assert door.handle(Rung(), 3.0) == [
        Log("rung", "info", {"pushes": 2}),
        Ring(2),
    ]  # `into` kept what both own
    door.handle(DeadlineReached(), 7.0)
    assert door.phase == "shut"


def test_what_the_table_does_not_list_is_a_bug_with_its_story() -> None:
    door = Door(Shut())
    door.handle(Pushed(2), 1.0)
    with pytest.raises(IllegalTransition) as caught:
        door.handle(Pushed(3), 2.5)
    assert "Door in Ajar: Pushed is not allowed; its story:" in caught.value.message
    assert "1.000000 Shut                 Pushed(strength=2)" in caught.value.message
    assert "2.500000 Ajar                 Pushed(strength=3)" in caught.value.message
    assert caught.value.phase == "ajar"
    assert door.tell_story() in caught.value.message


def test_a_transition_that_the_table_omits_is_a_bug() -> None:
    door = Door(Shut())
    with pytest.raises(IllegalTransition, match="Fed led to Ajar, which the table omits") as caught:
        door.handle(Fed(b"secret"), 1.0)
    assert "secret" not in caught.value.message  # user bytes stand in no story


def test_a_story_is_bounded() -> None:
    door = Door(Shut())
    for number in range(STORY_EVENTS_MAX + 7):
        door.handle(Pushed(-number), float(number))
    assert len(door.story) == STORY_EVENTS_MAX
    assert door.tell_story().startswith("    7.000000 Shut")


def test_an_event_cannot_be_handled_and_ignored() -> None:
    with pytest.raises(TypeError, match="Stubborn: Shut/Pushed is handled and ignored"):

        class Stubborn(Door):
            IGNORED = {Shut: {Pushed: "no reason"}}  # noqa: RUF012
