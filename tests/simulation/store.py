"""The Location Store of the simulation: rows under versions, slow, conflicting, and sometimes silent.

A call reaches the store after one delay and its answer comes back after another. Either may be lost; a
request whose caller was told "unknown" may still be carried out later, as a packet on the way would be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sojourn.handoff.effects import Conditions
from sojourn.handoff.terms import ParticipantFacts, RowFacts
from sojourn.ids import NodeRun

from tests.simulation.clock import Clock
from tests.simulation.history import Violation

__all__ = ["Store", "StoreFaults"]


class StoreFaults(NamedTuple):
    """Chances per call, and the delay in seconds one way."""

    delay_s: float = 0.0005
    slow: float = 0.0
    """Chance that one way takes a hundred times as long."""
    unavailable: float = 0.0
    """Chance that nothing is carried out, and the caller knows."""
    lost_before: float = 0.0
    """Chance that the caller is told "unknown" and the request may still arrive late, or never."""
    lost_after: float = 0.0
    """Chance that it is carried out and the caller is told "unknown"."""


class Store:
    """Rows by key. Answers are given to `reply`, a function of the caller's node."""

    def __init__(self, clock: Clock, faults: StoreFaults) -> None:
        self._clock = clock
        self.faults = faults
        self.down = False
        self.on_lost: Callable[[bytes], None] = lambda key: None
        self.rows: dict[bytes, RowFacts] = {}
        self.members: dict[bytes, tuple[bytes, ...]] = {}
        """The other participants of each unit, by the key of its own row (B6.3)."""
        self.versions = 0
        self.object_generations = 0

    def next_version(self) -> str:
        self.versions += 1
        return f"v{self.versions}"

    def create(self, key: bytes, owner: NodeRun) -> RowFacts:
        """Write the row of a new incarnation, at once (B1.3)."""
        self.object_generations += 1
        row = RowFacts(self.next_version(), owner, self.object_generations, 1)
        for each in (key, *self.members.get(key, ())):
            self.rows[each] = row
        return row

    def touch(self, key: bytes) -> None:
        """Somebody else rewrites a row without changing what a move asks of it: a new version."""
        self.rows[key] = self.rows[key]._replace(version=self.next_version())

    def _way(self) -> float:
        random, faults = self._clock.random, self.faults
        delay = faults.delay_s * (0.5 + random.random())
        return delay * 100 if faults.slow and random.random() < faults.slow else delay

    def read(self, key: bytes, reply: Callable[[bool, RowFacts | None], None]) -> None:
        """`reply(True, row)` or `reply(False, None)`."""
        random, faults = self._clock.random, self.faults
        if self.down or random.random() < faults.unavailable + faults.lost_before:
            self._clock.after(0.05, reply, False, None)
            return
        self._clock.after(self._way(), self._read_now, key, reply)

    def _read_now(self, key: bytes, reply: Callable[[bool, RowFacts | None], None]) -> None:
        members = self.members.get(key)
        if members is not None:  # the own row is read last
            others = tuple(participant(each, self.rows[each]) for each in members)
            self._clock.after(self._way(), self._read_own, key, others, reply)
        else:
            self._clock.after(self._way(), reply, True, self.rows.get(key))

    def _read_own(
        self,
        key: bytes,
        others: tuple[ParticipantFacts, ...],
        reply: Callable[[bool, RowFacts | None], None],
    ) -> None:
        self._clock.after(self._way(), reply, True, self.rows[key]._replace(others=others))

    def write(
        self,
        key: bytes,
        version: str,
        change: Callable[[RowFacts], RowFacts],
        reply: Callable[[str], None],
        others: Conditions = (),
    ) -> None:
        """Change the rows of a unit if all have these versions: `reply` gets applied, conflict, unknown or
        failed."""
        random, faults = self._clock.random, self.faults
        dice = random.random()
        if self.down:
            self._clock.after(0.02, reply, "failed" if dice < 0.5 else "unknown")
        elif dice < faults.unavailable:
            self._clock.after(0.02, reply, "failed")
        elif dice < faults.unavailable + faults.lost_before:
            self._clock.after(0.1, reply, "unknown")
            if random.random() < 0.5:
                again = 0.1 + faults.delay_s * 6 * random.random()  # about when the caller tries again
                late = random.choice((0.02, again, again, 3.0))
                self._clock.after(late, self._write_now, key, version, change, None, others)
        elif dice < faults.unavailable + faults.lost_before + faults.lost_after:
            self._clock.after(self._way(), self._write_now, key, version, change, None, others)
            self._clock.after(0.1, reply, "unknown")
        else:
            self._clock.after(self._way(), self._write_now, key, version, change, reply, others)

    def _write_now(
        self,
        key: bytes,
        version: str,
        change: Callable[[RowFacts], RowFacts],
        reply: Callable[[str], None] | None,
        others: Conditions,
    ) -> None:
        outcome = "conflict"
        conditions = ((key, version), *others)
        if all(self.rows[each].version == expected for each, expected in conditions):
            for each, _ in conditions:
                row = self.rows[each]
                new = change(row)._replace(version=self.next_version(), others=())
                check_change(row, new)
                self.rows[each] = new
            self._check_unit(key)
            if self.rows[key].lost:
                self.on_lost(key)
            outcome = "applied"
        if reply is not None:
            self._clock.after(self._way(), reply, outcome)

    def _check_unit(self, key: bytes) -> None:
        """Owner, fence and lost mark of a unit stand in all of its rows, or in none (R3.3, B6.7, B6.8)."""
        own = self.rows[key]._replace(version="", bound=False)
        for member in self.members.get(key, ()):
            row = self.rows[member]._replace(version="", bound=False)
            if row != own:
                raise Violation(f"a write tears a unit: {key.decode()} {own}, {member.decode()} {row}")


def participant(key: bytes, row: RowFacts) -> ParticipantFacts:
    """What a member's row says."""
    return ParticipantFacts(
        key, row.version, row.owner, row.object_generation, row.owner_generation, lost=row.lost
    )


def check_change(old: RowFacts, new: RowFacts) -> None:
    """Owner generations grow by exactly one, and only with the owner (B1.3, R1.2)."""
    if new.object_generation != old.object_generation:
        return
    step = new.owner_generation - old.owner_generation
    if step not in (0, 1) or (step == 0) != (new.owner == old.owner):
        raise Violation(f"owner change {old} -> {new}")
