"""Every (state, event) pair of every machine: moved by a transition, listed as ignorable, or refused as a bug."""

from __future__ import annotations

from collections import Counter

import pytest
from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff import source_states as ss
from sojourn.handoff import target_states as ts
from sojourn.handoff.local import LocalHandoff
from sojourn.handoff.machine import Event, IllegalTransition, Machine, State
from sojourn.handoff.path import SenderPath
from sojourn.handoff.source import SourceHandoff
from sojourn.handoff.target import TargetHandoff

from tests.machines.samples import SAMPLES, source_in, target_in

MACHINES: list[type[Machine]] = [SourceHandoff, TargetHandoff, LocalHandoff, SenderPath]


@pytest.mark.parametrize("machine", MACHINES)
def test_a_table_names_only_its_own_states_and_events(machine: type[Machine]) -> None:
    for (state, event), rule in machine.rules.items():
        assert state in machine.STATES
        assert event in machine.EVENTS
        assert rule.targets <= set(machine.STATES)


@pytest.mark.parametrize("machine", MACHINES)
def test_every_state_can_be_reached_and_every_event_matters_somewhere(machine: type[Machine]) -> None:
    reached = {machine.STATES[0]}
    for rule in machine.rules.values():
        reached |= rule.targets
    assert reached == set(machine.STATES)
    assert {event for (_, event), rule in machine.rules.items() if rule.targets} | {*()} >= {
        event for event in machine.EVENTS if event.__name__ not in {"ChunksSent"}
    }


def pairs(machine: type[Machine]) -> list[tuple[type[State], Event]]:
    return [(state, event) for state in machine.STATES for kind in machine.EVENTS for event in SAMPLES[kind]]


def check_effects(effects: list[object]) -> None:
    counts = Counter(type(effect) for effect in effects)
    assert counts[fx.ReleasePayload] <= 1
    assert counts[fx.ReportOutcome] <= 1
    assert counts[fx.ReadRow] <= 1
    assert not (counts[fx.RestoreDispatch] and counts[fx.EndDispatch])
    assert not (counts[fx.OpenDispatch] and counts[fx.SendRelocationFailed])


BEFORE = (
    ss.SourceRunning,
    ss.BoundaryAwaited,
    ss.SessionSealing,
    ss.Sealing,
    ss.Abandoning,
    ss.Paused,
    ss.Restoring,
    ss.SourceRestored,
)


@pytest.mark.parametrize(
    ("state", "event"), pairs(SourceHandoff), ids=lambda value: getattr(value, "__name__", str(value))
)
def test_source_pair(state: type[State], event: Event) -> None:
    play = source_in(state)
    if (state, type(event)) not in SourceHandoff.rules:
        with pytest.raises(IllegalTransition, match="its story"):
            play(event)
        return
    effects = play(event)
    check_effects(list(effects))
    kinds = {type(effect) for effect in effects}
    if not issubclass(state, BEFORE):
        assert fx.RestoreDispatch not in kinds, "source dispatch is reopened past the boundary (R4.4.2)"
        assert not isinstance(play.state, BEFORE)
    if fx.AbortSessions in kinds:
        assert not (kinds & {fx.RestoreDispatch, fx.DropObject}), "the queue is not back yet (R7.2)"
        assert isinstance(play.state, ss.SourceRestored)
    if issubclass(state, ss.Fencing):
        assert not kinds & {fx.SendRelay, fx.SendCutover}, "a fence is out (B6.7)"
    if fx.RestoreDispatch not in kinds and fx.ReportOutcome not in kinds and fx.FailHeld not in kinds:
        assert held(play.state) >= held_before(state) or kinds & {fx.SendFollow, fx.SendRelay}


def held(state: State) -> int:
    batch = getattr(state, "batch", None)
    unsent = 0 if batch is None or batch.submitting else len(batch.records) - batch.handed
    return unsent + sum(len(getattr(state, name, ())) for name in ("hold", "backlog"))


def held_before(kind: type[State]) -> int:
    return held(source_in(kind).state)


@pytest.mark.parametrize(
    ("state", "event"), pairs(TargetHandoff), ids=lambda value: getattr(value, "__name__", str(value))
)
def test_target_pair(state: type[State], event: Event) -> None:
    play = target_in(state)
    if (state, type(event)) not in TargetHandoff.rules:
        with pytest.raises(IllegalTransition, match="its story"):
            play(event)
        return
    effects = play(event)
    check_effects(list(effects))
    kinds = {type(effect) for effect in effects}
    if issubclass(state, ts.Committing | ts.Open):
        assert fx.SendRelocationFailed not in kinds, "a CAS was issued (R4.3.3)"
    if fx.OpenDispatch in kinds:
        assert state in (ts.OwnerWriting, ts.OwnerChecking)
    if fx.WriteOwner in kinds:
        assert fx.WriteOwner("v5", 5) in effects, "only ever the coordinator fence's version (R4.5.1)"
    if isinstance(play.state, ts.TargetRemoved) and issubclass(state, ts.Staged):
        assert fx.DropTarget in kinds
    marked = isinstance(event, ev.LostMarked)  # the read before it made the terminals
    if state is ts.TargetDoubting and type(play.state) is ts.TargetRemoved and not marked:
        assert len(kinds & {fx.EndWork, fx.ForgetWork}) == 1, "the saved work has one end (B8.15)"
