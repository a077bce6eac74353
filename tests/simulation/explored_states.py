"""Copies and hashable pictures of machines, for the walk over every interleaving."""

from __future__ import annotations

from collections import deque
from copy import copy
from dataclasses import fields
from typing import Any

from sojourn.handoff.machine import Machine, State
from sojourn.handoff.relay import RelaySection
from sojourn.handoff.source_states import Batch

__all__ = ["clone_machine", "freeze"]

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
    )
)


def clone_machine(machine: Machine) -> Machine:
    other = copy(machine)
    other.state = clone_state(machine.state)
    other.story = deque(maxlen=1)
    return other


def clone_state(state: State) -> State:
    other = copy(state)
    for field in fields(other):  # type: ignore[arg-type]
        value = getattr(other, field.name)
        if isinstance(value, list):
            setattr(other, field.name, list(value))
        elif isinstance(value, Batch):
            setattr(other, field.name, copy(value))
        elif isinstance(value, RelaySection):
            setattr(other, field.name, clone_relay(value))
    return other


def clone_relay(relay: RelaySection) -> RelaySection:
    other = copy(relay)
    other.records = list(relay.records)
    other._positions = dict(relay._positions)
    other._arrivals = {}
    for number, arrival in relay._arrivals.items():
        twin = copy(arrival)
        twin.records = list(arrival.records)
        other._arrivals[number] = twin
    return other


def freeze(value: Any, now: float) -> Any:
    """A hashable picture of a state, with instants relative to now."""
    if isinstance(value, State | Batch):
        return (
            type(value).__name__,
            *(
                round(item - now, 6) if field.name in TIMES and item is not None else freeze(item, now)
                for field in fields(value)  # type: ignore[arg-type]
                for item in (getattr(value, field.name),)
            ),
        )
    if isinstance(value, RelaySection):
        arrivals = tuple((n, tuple(a.records), a.closed) for n, a in value._arrivals.items())
        return (
            tuple(value.records),
            value.taken,
            value.settled,
            value.seen,
            arrivals,
            tuple(value._positions.items()),
        )
    if isinstance(value, list):
        return tuple(value)
    return value
