"""The table-driven base of every pure machine in this package.

Owns how a machine reacts: one table from (state, event type) to a transition, a bounded story, the one
deadline, and the bug error for whatever the table does not list. It must not know what any machine is for.

A machine is synchronous: `handle(event, now)` returns the effects to carry out, in order. `now` and
`deadline` are seconds on the driver's monotonic clock. The driver arms one timer for `deadline` and
delivers `DeadlineReached` when it is over; a timer that fires early or late does no harm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import msgspec
from sojourn.errors import InternalFailure

__all__ = [
    "NO_STORY",
    "STORY_EVENTS_MAX",
    "DeadlineReached",
    "Effect",
    "Event",
    "Ignored",
    "IllegalTransition",
    "Log",
    "Machine",
    "Reasons",
    "Rule",
    "Same",
    "State",
    "on",
]

STORY_EVENTS_MAX = 50
"""How many past events a machine remembers for its bug reports."""


NO_STORY: deque[tuple[float, str, Any]] = deque(maxlen=0)
"""For machines that have little left to do and are many: remembers nothing, and one does for all of them."""


class Event(msgspec.Struct, frozen=True):
    """A fact, named in the past tense. `heavy` events carry user bytes and stand in the story by name only."""

    heavy: ClassVar[bool] = False


class Effect(msgspec.Struct, frozen=True):
    """A command to the driver, named in the imperative."""


_State = TypeVar("_State", bound="State")


class State:
    """One state of a machine; the data of a phase lives in its state. `phase` is the contract's word (R11.1)."""

    __slots__ = ()
    phase: ClassVar[str] = ""

    @property
    def deadline(self) -> float | None:
        """When this state wants `DeadlineReached`, or None."""
        return None

    def into(self, kind: type[_State], **changes: Any) -> _State:
        """A state of another class with the data that both own, and `changes`."""
        data = {name: getattr(self, name) for name in _shared_fields(type(self), kind)}
        data.update(changes)
        return kind(**data)


class Same(State):
    """In `on(..., to=...)`: the state in which the event came."""


_shared: dict[tuple[type[State], type[State]], tuple[str, ...]] = {}


def _shared_fields(old: type[State], new: type[State]) -> tuple[str, ...]:
    shared = _shared.get((old, new))
    if shared is None:
        known = {field.name for field in fields(old)}  # type: ignore[arg-type]
        shared = tuple(field.name for field in fields(new) if field.name in known)  # type: ignore[arg-type]
        _shared[old, new] = shared
    return shared


class DeadlineReached(Event, frozen=True):
    """The driver's timer for `Machine.deadline` fired."""


class Log(Effect, frozen=True):
    """Write one structured log event (B12.1). `level` is debug, info, warning or error."""

    name: str
    level: str
    fields: Mapping[str, Any]


Reasons: TypeAlias = Mapping[type[Event], str]
"""Why an event changes nothing."""
Ignored: TypeAlias = Mapping[type[State], Reasons]
"""Per state, the events that change nothing."""


class IllegalTransition(InternalFailure):
    """A machine met an event its table does not allow in this state: a bug of ours, told with its story."""

    kind = "IllegalTransition"


class Rule(NamedTuple):
    """One cell of a table: the method that carries the transition out and the states it may end in."""

    method: Callable[..., None]
    targets: frozenset[type[State]]


_Method = TypeVar("_Method", bound=Callable[..., None])
_IGNORED = Rule(lambda *_: None, frozenset())


def on(
    event: type[Event], *states: type[State], to: Iterable[type[State]] = ()
) -> Callable[[_Method], _Method]:
    """Register a method for `event` in `states`. `to` lists where it may lead, `Same` for the state itself;
    empty = it stays."""
    goals = tuple(to)

    def register(method: _Method) -> _Method:
        cells: list[Any] = method.__dict__.setdefault("_cells", [])
        cells.extend(
            (state, event, frozenset(state if goal is Same else goal for goal in goals)) for state in states
        )
        return method

    return register


class Machine:
    """Base of the machines: a subclass lists `STATES`, `EVENTS`, `IGNORED` and methods marked with `on`."""

    STATES: ClassVar[tuple[type[State], ...]] = ()
    EVENTS: ClassVar[tuple[type[Event], ...]] = ()
    IGNORED: ClassVar[Ignored] = {}
    """Events that change nothing in a state, each with the reason."""
    rules: ClassVar[dict[tuple[type[State], type[Event]], Rule]] = {}

    def __init_subclass__(cls) -> None:
        rules: dict[tuple[type[State], type[Event]], Rule] = {}
        for owner in reversed(cls.__mro__):
            for method in vars(owner).values():
                for state, event, targets in getattr(method, "_cells", ()):
                    rules[state, event] = Rule(method, targets or frozenset((state,)))
        for state, reasons in cls.IGNORED.items():
            for event in reasons:
                if (state, event) in rules:
                    raise TypeError(
                        f"{cls.__name__}: {state.__name__}/{event.__name__} is handled and ignored"
                    )
                rules[state, event] = _IGNORED
        cls.rules = rules

    def __init__(self, state: State) -> None:
        self.state: State = state
        self.story: deque[tuple[float, str, Any]] = deque(maxlen=STORY_EVENTS_MAX)
        self._effects: list[Effect] = []

    @property
    def phase(self) -> str:
        """The contract's name of the phase the machine is in (R11.1)."""
        return self.state.phase

    @property
    def deadline(self) -> float | None:
        """When the driver must deliver `DeadlineReached`: seconds on its clock, or None."""
        return self.state.deadline

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event and return the effects, to be carried out in order and before the next event.

        Raises:
            IllegalTransition: the table does not allow this event now; a bug of ours.
        """
        state = self.state
        kind = type(event)
        self.story.append((now, type(state).__name__, kind.__name__ if kind.heavy else event))
        rule = self.rules.get((type(state), kind))
        if rule is None:
            raise self._illegal(f"{kind.__name__} is not allowed")
        if rule is _IGNORED:
            return []
        effects: list[Effect] = []
        self._effects = effects
        rule.method(self, state, event, now)
        if type(self.state) not in rule.targets:
            raise self._illegal(f"{kind.__name__} led to {type(self.state).__name__}, which the table omits")
        return effects

    def tell_story(self) -> str:
        """The last events, one a line: time, state before it, event."""
        return "\n".join(f"{at:12.6f} {state:<20} {event}" for at, state, event in self.story)

    def _do(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _log(self, name: str, level: str, **fields: Any) -> None:
        self._effects.append(Log(name, level, fields))

    def _illegal(self, what: str) -> IllegalTransition:
        name = type(self).__name__
        return IllegalTransition(
            f"{name} in {type(self.state).__name__}: {what}; its story:\n{self.tell_story()}",
            phase=self.state.phase,
        )
