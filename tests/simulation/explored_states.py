"""Copies and hashable pictures of machines, for the walk over every interleaving."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import copy
from dataclasses import fields
from typing import Any

from sojourn.handoff.machine import Machine, State
from sojourn.handoff.relay import RelaySection
from sojourn.handoff.source_states import Batch

__all__ = ["clone_machine", "instant", "picture", "records_in"]

TIMES = frozenset(
    (
        "gives_up_at",
        "retry_at",
        "window_until",
        "commit_by",
        "follow_until",
        "read_at",
        "ends_at",
        "wait_until",
        "forget_at",
        "report_at",
        "submit_by",
    )
)
_FIXED = frozenset(("state", "story", "plan", "options", "_checksum", "_frozen", "_effects", "_picture"))
"""What a machine has beside its state and does not change. The target's plan is in the model's key."""
_PLAIN = frozenset((bool, int, float, str))
_FIELDS: dict[type[Any], tuple[str, ...]] = {}


def _names(kind: type[Any]) -> tuple[str, ...]:
    names = _FIELDS.get(kind)
    if names is None:
        names = _FIELDS[kind] = tuple(field.name for field in fields(kind))
    return names


def clone_machine(machine: Machine) -> Machine:
    """A machine that can go another way from here; the story is not copied."""
    other = object.__new__(type(machine))
    other.__dict__.update(machine.__dict__)
    other.state = _clone_state(machine.state)
    other.story = deque(maxlen=1)
    other.__dict__.pop("_picture", None)
    return other


def _clone_state(state: State) -> State:
    other = object.__new__(type(state))
    for name in _names(type(other)):
        value = getattr(state, name)
        kind = type(value)
        if kind is list:
            value = list(value)
        elif kind is Batch:
            value = copy(value)
        elif kind is RelaySection:
            value = _clone_relay(value)
        setattr(other, name, value)
    return other


def _clone_relay(relay: RelaySection) -> RelaySection:
    other = copy(relay)
    other.records = list(relay.records)
    other._positions = dict(relay._positions)
    other._arrivals = {}
    for number, arrival in relay._arrivals.items():
        twin = copy(arrival)
        twin.records = list(arrival.records)
        other._arrivals[number] = twin
    return other


def instant(at: float, now: float) -> int:
    """A time from now on in microseconds. Never negative: Python gives -1 and -2 one hash."""
    return round((at - now) * 1e6) + 10**12


def picture(machine: Machine, now: float) -> Any:
    """A hashable picture of a machine's state, with instants relative to now."""
    known = machine.__dict__.get("_picture")
    if known is None or known[0] != now:
        beside = tuple(value for name, value in machine.__dict__.items() if name not in _FIXED)
        known = machine.__dict__["_picture"] = (now, (_freeze(machine.state, now), beside))
    return known[1]


def _freeze(value: Any, now: float) -> Any:
    if isinstance(value, State | Batch):
        frozen: list[Any] = [type(value).__name__]
        for name in _names(type(value)):
            item = getattr(value, name)
            if item is None or type(item) in _PLAIN:
                frozen.append(instant(item, now) if name in TIMES and item is not None else item)
            else:
                frozen.append(_freeze(item, now))
        return tuple(frozen)
    if isinstance(value, RelaySection):
        arrivals = tuple((n, tuple(a.records), a.closed) for n, a in value._arrivals.items())
        positions = tuple(value._positions.items())
        return (tuple(value.records), value.taken, value.settled, value.seen, arrivals, positions)
    if isinstance(value, list):
        return tuple(value)
    return value


def records_in(state: State) -> Iterator[str]:
    """Every record that a state has in its hands."""
    for name in ("hold", "backlog", "queue"):
        yield from getattr(state, name, ())
    batch = getattr(state, "batch", None)
    if batch is not None:
        yield from batch.records
    relay = getattr(state, "relay", None)
    if relay is not None:
        yield from relay.records
        for arrival in relay._arrivals.values():
            yield from arrival.records
