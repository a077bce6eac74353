"""How a bug is planted: a mutant is a function that changes a `World` before it plays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sojourn.handoff.machine import Event, Rule
from sojourn.handoff.path import SenderPath
from sojourn.handoff.replies import ReplyRelay
from sojourn.handoff.source import SourceHandoff
from sojourn.handoff.target import TargetHandoff
from sojourn.handoff.terms import HandoffOptions
from sojourn.session.contact import SessionContact
from sojourn.session.seal import SessionSeal

from tests.simulation.world import World

__all__ = [
    "CALM",
    "CANCELS",
    "CUTS",
    "LATE_READS",
    "MUTANTS",
    "QUIET_STORE",
    "UNKNOWN",
    "Mutant",
    "carrier",
    "changed",
    "mutant",
    "nothing",
    "path",
    "source",
    "target",
]


@dataclass(frozen=True)
class Mutant:
    """One planted bug. `mix` overrides fields of every seed's mix, so that the case comes up soon."""

    name: str
    rule: str
    plant: Callable[[World], None]
    seeds_max: int
    mix: dict[str, Any] = field(default_factory=dict)
    store: dict[str, float] = field(default_factory=dict)
    survives: str = ""
    """Why the simulation is expected to see no harm; empty = it must be caught."""
    beside: Callable[[World], None] | None = None
    """A second lock that is opened as well. A seed counts only if this alone keeps every promise in it, so
    that the harm is the planted bug's."""


MUTANTS: list[Mutant] = []
CUTS = {"cuts": 2.0}
CANCELS = {"cancels": 0.3}
CALM = dict.fromkeys(
    (
        "cuts",
        "stalls",
        "pauses",
        "kills",
        "store_outages",
        "lease_cuts",
        "cancels",
        "capture_fails",
        "restore_fails",
        "corrupt",
        "conflicts",
    ),
    0.0,
)
QUIET_STORE = {"slow": 0.0, "unavailable": 0.0, "lost_before": 0.0, "lost_after": 0.0}
"""With `CALM`: nothing may fail, and no marker may time out."""
LATE_READS = HandoffOptions(
    commit_reserve_s=4.0,
    follow_duration_s=12.0,
    sweep_s=2.0,
    ended_memory_s=10.0,
    retry_first_s=0.4,
    retry_max_s=0.8,
)
"""A source that learns of its commit late."""
UNKNOWN = {"lost_before": 0.08, "lost_after": 0.15}


def mutant(
    name: str,
    rule: str,
    seeds_max: int,
    store: dict[str, float] | None = None,
    survives: str = "",
    beside: Callable[[World], None] | None = None,
    **mix: Any,
) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    def register(plant: Callable[[World], None]) -> Callable[[World], None]:
        MUTANTS.append(Mutant(name, rule, plant, seeds_max, mix, store or {}, survives, beside))
        return plant

    return register


_ANY: frozenset[type[Any]] = frozenset(
    state
    for machine in (SourceHandoff, TargetHandoff, SenderPath, SessionSeal, SessionContact, ReplyRelay)
    for state in machine.STATES
)


def changed(
    base: type[Any], cells: dict[tuple[type[Any], type[Event]], Callable[..., None]], **members: Any
) -> Any:
    """A subclass of a machine with some cells of its table, or some methods, replaced."""
    kind = type("Mutant" + base.__name__, (base,), members)
    rules = {cell: Rule(rule.method, _ANY) if rule.targets else rule for cell, rule in base.rules.items()}
    for cell, method in cells.items():
        rules[cell] = Rule(method, _ANY)
    for cell, rule in list(rules.items()):  # replaced methods that transitions name
        replaced = members.get(getattr(rule.method, "__name__", ""))
        if replaced is not None:
            rules[cell] = Rule(replaced, _ANY)
    kind.rules = rules  # type: ignore[attr-defined]
    return kind


def source(world: World, cells: dict[Any, Any] | None = None, **members: Any) -> None:
    world.source_class = changed(SourceHandoff, cells or {}, **members)


def target(world: World, cells: dict[Any, Any] | None = None, **members: Any) -> None:
    world.target_class = changed(TargetHandoff, cells or {}, **members)


def path(world: World, cells: dict[Any, Any] | None = None, **members: Any) -> None:
    world.path_class = changed(SenderPath, cells or {}, **members)


def carrier(world: World, attribute: str, effect: type[Any], method: Callable[[Any, Any], None]) -> None:
    """Replace what a driver does for one effect."""
    base = getattr(world, attribute)
    carriers = {**base._carriers, effect: method}
    setattr(world, attribute, type("Mutant" + base.__name__, (base,), {"_carriers": carriers}))


def nothing(self: Any, state: Any, event: Event, now: float) -> None:
    """A cell that does nothing."""
