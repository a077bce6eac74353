"""The Location Store of the simulation: rows under versions, slow, conflicting, and sometimes silent.

A call reaches the store after one delay and its answer comes back after another. Either may be lost; a
request whose caller was told "unknown" may still be carried out later, as a packet on the way would be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sojourn.handoff.terms import RowFacts
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
        self.versions = 0
        self.object_generations = 0

    def next_version(self) -> str:
        self.versions += 1
        return f"v{self.versions}"

    def create(self, key: bytes, owner: NodeRun) -> RowFacts:
        """Write the row of a new incarnation, at once (B1.3)."""
        self.object_generations += 1
        row = RowFacts(self.next_version(), owner, self.object_generations, 1)
        self.rows[key] = row
        return row

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
        row = self.rows.get(key)
        self._clock.after(self._way(), reply, True, row)

    def write(
        self, key: bytes, version: str, change: Callable[[RowFacts], RowFacts], reply: Callable[[str], None]
    ) -> None:
        """Change the row if it has this version: `reply` gets applied, conflict, unknown or failed."""
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
                self._clock.after(late, self._write_now, key, version, change, None)
        elif dice < faults.unavailable + faults.lost_before + faults.lost_after:
            self._clock.after(self._way(), self._write_now, key, version, change, None)
            self._clock.after(0.1, reply, "unknown")
        else:
            self._clock.after(self._way(), self._write_now, key, version, change, reply)

    def _write_now(
        self,
        key: bytes,
        version: str,
        change: Callable[[RowFacts], RowFacts],
        reply: Callable[[str], None] | None,
    ) -> None:
        row = self.rows.get(key)
        outcome = "conflict"
        if row is not None and row.version == version:
            new = change(row)._replace(version=self.next_version())
            check_change(row, new)
            self.rows[key] = new
            if new.lost:
                self.on_lost(key)
            outcome = "applied"
        if reply is not None:
            self._clock.after(self._way(), reply, outcome)


def check_change(old: RowFacts, new: RowFacts) -> None:
    """Owner generations grow by exactly one, and only with the owner (B1.3, R1.2)."""
    if new.object_generation != old.object_generation:
        return
    step = new.owner_generation - old.owner_generation
    if step not in (0, 1) or (step == 0) != (new.owner == old.owner):
        raise Violation(f"owner change {old} -> {new}")
