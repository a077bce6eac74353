"""Nothing that comes from outside is ever refused by a table: not late, not twice, not in any state.

A machine may rely on its driver for the answers to its own effects. What a peer sends, what becomes of links,
callers, clients and timers is nobody's to choose.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
from sojourn.handoff import events as ev
from sojourn.handoff import path as pp
from sojourn.handoff.local import LocalHandoff
from sojourn.handoff.machine import DeadlineReached, Event, Machine, State
from sojourn.handoff.path import SenderPath
from sojourn.handoff.replies import ReplyRelay
from sojourn.handoff.source import SourceHandoff
from sojourn.handoff.target import TargetHandoff
from sojourn.ids import NodeRun
from sojourn.session.contact import SessionContact
from sojourn.session.seal import SessionSeal

from tests.machines import samples, session_samples, test_local, test_path, test_replies
from tests.machines.outside import ANSWERS, OUTSIDE, UNHEARD, outside_events

A, B = NodeRun(b"A", 1), NodeRun(b"B", 1)
AT_A, AT_B = pp.Route(A, 1, 1), pp.Route(B, 1, 2)
PATH_SAMPLES: dict[type[Event], list[Event]] = {
    pp.RecordSubmitted: [pp.RecordSubmitted("m")],
    pp.RouteLearned: [pp.RouteLearned(AT_A), pp.RouteLearned(AT_B), pp.RouteLearned(pp.Route(A, 1, 0))],
    pp.RouteRefused: [pp.RouteRefused("no")],
    pp.RouteExpired: [pp.RouteExpired()],
    pp.PathTaken: [pp.PathTaken(AT_A), pp.PathTaken(AT_B)],
    pp.StagingBegun: [pp.StagingBegun(B, A), pp.StagingBegun(A, B, queued=True)],
    pp.MarkerTaken: [pp.MarkerTaken(A)],
    pp.PathLost: [pp.PathLost(A), pp.PathLost(B)],
    pp.MarkerAnswered: [pp.MarkerAnswered(1, AT_B), pp.MarkerAnswered(77, AT_A)],
    pp.MarkerFailed: [pp.MarkerFailed(1), pp.MarkerFailed(77)],
    DeadlineReached: [DeadlineReached()],
}
PATH_SCRIPTS: dict[type[State], list[Event]] = {
    pp.NoPath: [],
    pp.OnPath: [pp.RouteLearned(AT_A)],
    pp.StalePath: [pp.RouteLearned(AT_A), pp.RouteExpired()],
    pp.LookingUp: [pp.RecordSubmitted("m1")],
    pp.AwaitingMarker: [pp.RouteLearned(AT_A), pp.RouteLearned(AT_B), pp.RecordSubmitted("m1")],
}


def path_in(kind: type[State]) -> Machine:
    path = test_path.new_path()
    for event in PATH_SCRIPTS[kind]:
        path.handle(event, 0.0)
    assert type(path.state) is kind
    return path


HANDOFF_SAMPLES = {
    **samples.SAMPLES,
    ev.RelayReadyReceived: [ev.RelayReadyReceived(1), ev.RelayReadyReceived(9)],
    ev.RelocationFailedReceived: [ev.RelocationFailedReceived(17, 1), ev.RelocationFailedReceived(99, 9)],
    ev.LinkLost: [ev.LinkLost(1), ev.LinkLost(9), ev.LinkLost(1, 1, ("f1",)), ev.LinkLost(1, 999)],
    ev.CutoverArrived: [ev.CutoverArrived(0, 0, 1), ev.CutoverArrived(3, 1, 2), ev.CutoverArrived(0, 0, 9)],
}
LOCAL_SAMPLES = {
    **samples.SAMPLES,
    ev.RecordArrived: [ev.RecordArrived("h1"), ev.RecordArrived("h2")],
}
Maker = Callable[[type[State]], Machine]
KINDS: list[tuple[type[Machine], Maker, dict[type[Event], list[Event]]]] = [
    (SourceHandoff, lambda state: samples.source_in(state).machine, HANDOFF_SAMPLES),
    (TargetHandoff, lambda state: samples.target_in(state).machine, HANDOFF_SAMPLES),
    (LocalHandoff, lambda state: test_local.in_state(state).machine, LOCAL_SAMPLES),
    (SenderPath, path_in, PATH_SAMPLES),
    (ReplyRelay, lambda state: test_replies.in_state(state).machine, test_replies.SAMPLES),
    (SessionSeal, lambda state: session_samples.seal_in(state).machine, session_samples.SESSION_SAMPLES),
    (
        SessionContact,
        lambda state: session_samples.contact_in(state).machine,
        session_samples.SESSION_SAMPLES,
    ),
]
IDS = [kind.__name__ for kind, _, _ in KINDS]


def test_every_machine_is_looked_at() -> None:
    known: set[type[Machine]] = set()
    todo = [Machine]
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        if kind.STATES and kind.__module__.startswith("sojourn"):
            known.add(kind)
    assert known == {kind for kind, _, _ in KINDS} == set(OUTSIDE)


@pytest.mark.parametrize("machine", list(OUTSIDE), ids=IDS)
def test_every_event_is_an_answer_or_comes_from_outside(machine: type[Machine]) -> None:
    assert sorted(map(str, OUTSIDE[machine] + ANSWERS[machine])) == sorted(map(str, machine.EVENTS))


@pytest.mark.parametrize("machine", list(OUTSIDE), ids=IDS)
def test_no_table_refuses_what_comes_from_outside(machine: type[Machine]) -> None:
    for state in machine.STATES:
        refused = {event for event in OUTSIDE[machine] if (state, event) not in machine.rules}
        assert refused == set(UNHEARD.get(state, {})), state.__name__


@pytest.mark.parametrize(("kind", "make", "known"), KINDS, ids=IDS)
@pytest.mark.parametrize("late", [0.0, 1e6], ids=["at once", "much later"])
def test_any_two_events_from_outside_are_taken_in_any_state(
    kind: type[Machine], make: Maker, known: dict[type[Event], list[Event]], late: float
) -> None:
    played = 0
    for state in kind.STATES:
        start = make(state)
        now = 0.0 if state.__name__ not in {"Reconciling", "LostMarking"} else samples.ENDS + 1
        for first in outside_events(start, known):
            once = deepcopy(start)
            once.handle(first, now)
            for second in outside_events(once, known):
                twice = deepcopy(once)
                twice.handle(second, now + late)
                played += 1
    assert played > 100
