"""What a node reads in the store beside its handoffs: routes, and whether it still owns what a row says."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sojourn.handoff.effects import Conditions
from sojourn.handoff.path import (
    PathLost,
    Route,
    RouteLearned,
    RouteRefused,
)
from sojourn.handoff.terms import RowFacts

from tests.simulation.objects import LocalObject

if TYPE_CHECKING:
    from tests.simulation.node import Node

__all__ = ["Lookups"]


def conditions_of(row: RowFacts) -> Conditions:
    """The versions just read of a unit's other rows."""
    return tuple(each.condition for each in row.others)


class Lookups:
    """Looks routes up, makes objects anew and marks those lost that the row wrongly names this run for."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.creating: set[bytes] = set()
        self.checking: set[bytes] = set()

    def look_up(self, key: bytes) -> None:
        self.node.world.store.read_owner(key, partial(self.node.step, self._looked_up, key))

    def _looked_up(self, key: bytes, known: bool, row: RowFacts | None, leased: bool) -> None:
        path = self.node.path(key)
        path.learned_at = self.node.local.now()
        if not known:
            path.deliver(RouteRefused("Unavailable"))
        elif row is None or row.lost or not self._lives(row, leased):
            self._create_anew(key)
        elif row.owner == self.node.run and not self._accounted(key):
            path.deliver(RouteRefused("DataLost"))
            self.check_lost(key)
        else:
            path.deliver(RouteLearned(Route(row.owner, row.object_generation, row.owner_generation)))

    def _lives(self, row: RowFacts, leased: bool) -> bool:
        """Whether the owner is taken for alive: by its lease, never by whether it can be reached (B6.6)."""
        if self.node.world.suspects_unreachable and row.owner != self.node.run:
            return leased and row.owner in self.node.links
        return leased

    def _create_anew(self, key: bytes) -> None:
        """Whatever is lost comes back on demand, as a new incarnation of the whole unit (B6.6, B6.8)."""
        if not self.node.admits():
            self.node.path(key).deliver(RouteRefused("Unavailable"))
            return
        unit = self.node.world.unit_of(key)
        self.creating.add(unit)
        read = partial(self.node.step, self._read_to_create, key, unit)
        self.node.world.store.read_owner(unit, read)

    def _read_to_create(
        self, key: bytes, unit: bytes, known: bool, row: RowFacts | None, leased: bool
    ) -> None:
        world = self.node.world
        dead = row is not None and (row.lost or not self._lives(row, leased))
        if not known or row is None or not dead or not self.node.admits():
            self.creating.discard(unit)
            self.look_up(key)
            return
        new = world.new_incarnation(self.node.run)
        change = partial(self._incarnate, new)
        reply = partial(self.node.step, self._created, key, new)
        missing = None if row.lost or world.takes_over_blindly else row.owner
        world.store.write(unit, row.version, change, reply, conditions_of(row), missing)

    @staticmethod
    def _incarnate(new: RowFacts, row: RowFacts) -> RowFacts:
        return new

    def _created(self, key: bytes, new: RowFacts, outcome: str) -> None:
        unit = self.node.world.unit_of(key)
        self.creating.discard(unit)
        if outcome == "applied":
            self.node.world.reborn(unit)
            item = LocalObject(self.node, unit, new.object_generation, {}, ())
            for each in item.keys:
                self.node.objects[each] = item
                self.node.sources.pop(each, None)
            item.open()
            self.node.path(key).deliver(RouteLearned(Route(self.node.run, new.object_generation, 1)))
        elif outcome == "conflict":
            self.look_up(key)
        else:
            self.node.path(key).deliver(RouteRefused("Unavailable"))

    def check_lost(self, key: bytes) -> None:
        """A message shows that the row may name this run as owner of what it does not hold (B6.8)."""
        unit = self.node.world.unit_of(key)
        if self.node.world.sweeps:
            self.node.path(key).deliver(PathLost(self.node.run))
            self._check_unit(unit)

    def _check_unit(self, unit: bytes) -> None:
        if unit not in self.checking:
            self.checking.add(unit)
            self.node.world.store.read(unit, partial(self.node.step, self._checked, unit))

    def _accounted(self, key: bytes) -> bool:
        """Whether this run holds the object, or a handoff here will account for it."""
        return (
            self.node.holds(key)
            or key in self.node.sources
            or key in self.node.objects
            or self.node.world.unit_of(key) in self.creating
        )

    def _checked(self, key: bytes, known: bool, row: RowFacts | None) -> None:
        if (
            known
            and row is not None
            and row.owner == self.node.run
            and not row.lost
            and not self._accounted(key)
        ):
            change = partial(RowFacts._replace, lost=True)
            reply = partial(self.node.step, self._marked, key)
            self.node.world.store.write(key, row.version, change, reply, conditions_of(row))
        else:
            self.checking.discard(key)

    def _marked(self, key: bytes, outcome: str) -> None:
        self.checking.discard(key)
        if outcome == "applied":
            self.node.world.history.counts["lost by sweep"] += 1
        elif outcome != "conflict" or self.node.world.store.members:
            self._check_unit(key)
