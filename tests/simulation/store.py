"""The Location Store of the simulation: rows under versions, slow, conflicting, and sometimes silent.

A call reaches the store after one delay and its answer comes back after another. Either may be lost; a
request whose caller was told "unknown" may still be carried out later, as a packet on the way would be.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

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
        self.on_taken_over: Callable[[bytes], None] = lambda key: None
        self.leases: dict[NodeRun, tuple[str, float]] = {}
        """Version and end of the lease of each run; a row past its end is missing (B6.1)."""
        self.rows: dict[bytes, RowFacts] = {}
        self.members: dict[bytes, tuple[bytes, ...]] = {}
        """The other participants of each unit, by the key of its own row (B6.3)."""
        self.versions = 0
        self.object_generations = 0

    def now(self) -> float:
        return self._clock.now

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

    def read_owner(self, key: bytes, reply: Callable[[bool, RowFacts | None, bool], None]) -> None:
        """As `read`, and whether the lease of the owner stands."""

        def then(known: bool, row: RowFacts | None) -> None:
            reply(known, row, row is not None and self.leased(row.owner))

        self.read(key, then)

    def read_many(self, keys: list[bytes], reply: Callable[[list[RowFacts | None] | None], None]) -> None:
        """All rows at one moment, or None."""
        self.ask(lambda: ([self.rows.get(key) for key in keys],), reply, (None,))

    def ask(
        self, look: Callable[[], tuple[Any, ...]], reply: Callable[..., None], failed: tuple[Any, ...]
    ) -> None:
        """One read on its way: what `look` sees, or `failed`."""
        random, faults = self._clock.random, self.faults
        if self.down or random.random() < faults.unavailable + faults.lost_before:
            self._clock.after(0.05, reply, *failed)
            return
        self._clock.after(self._way(), self._look, look, reply)

    def _look(self, look: Callable[[], tuple[Any, ...]], reply: Callable[..., None]) -> None:
        self._clock.after(self._way(), reply, *look())

    # leases

    def leased(self, run: NodeRun) -> bool:
        """Whether the lease of this run stands."""
        lease = self.leases.get(run)
        return lease is not None and lease[1] > self._clock.now

    def put_lease_now(self, run: NodeRun, ttl_s: float) -> str:
        version = self.next_version()
        self.leases[run] = (version, self._clock.now + ttl_s)
        return version

    def scan_leases(self, reply: Callable[[set[NodeRun] | None], None]) -> None:
        """The runs whose lease stands, or None."""
        self.ask(lambda: ({run for run in self.leases if self.leased(run)},), reply, (None,))

    def read_lease(self, run: NodeRun, reply: Callable[[str, str | None], None]) -> None:
        """`reply("read", version or None)` or `reply("failed", None)`."""
        self.ask(lambda: ("read", self.leases[run][0] if self.leased(run) else None), reply, ("failed", None))

    def write_lease(
        self, run: NodeRun, version: str | None, ttl_s: float, reply: Callable[[str, str | None], None]
    ) -> None:
        """Put the lease under `missing` (version None) or renew it under its version."""

        def change() -> tuple[str, str | None]:
            if version is None if self.leased(run) else version is not None:
                return "conflict", None
            if version is not None and self.leases[run][0] != version:
                return "conflict", None
            return "applied", self.put_lease_now(run, ttl_s)

        self.change(change, reply, ("unknown", None), ("failed", None))

    # writes of rows

    def write(
        self,
        key: bytes,
        version: str,
        change: Callable[[RowFacts], RowFacts],
        reply: Callable[[str], None],
        others: Conditions = (),
        missing_lease: NodeRun | None = None,
    ) -> None:
        """Change the rows of a unit if all have these versions, and if that run's lease is over: `reply` gets
        applied, conflict, unknown or failed."""
        carry_out = partial(self._write_now, key, version, change, missing_lease, others)
        self.change(carry_out, reply, ("unknown",), ("failed",))

    def change(
        self,
        carry_out: Callable[[], tuple[Any, ...]],
        reply: Callable[..., None],
        unknown: tuple[Any, ...],
        failed: tuple[Any, ...],
    ) -> None:
        """One write on its way, with what may happen to it and to its answer."""
        random, faults, after = self._clock.random, self.faults, self._clock.after
        dice = random.random()
        if self.down:
            after(0.02, reply, *(failed if dice < 0.5 else unknown))
        elif dice < faults.unavailable:
            after(0.02, reply, *failed)
        elif dice < faults.unavailable + faults.lost_before:
            after(0.1, reply, *unknown)
            if random.random() < 0.5:
                again = 0.1 + faults.delay_s * 6 * random.random()  # about when the caller tries again
                after(random.choice((0.02, again, again, 3.0)), carry_out)
        elif dice < faults.unavailable + faults.lost_before + faults.lost_after:
            after(self._way(), carry_out)
            after(0.1, reply, *unknown)
        else:
            after(self._way(), self._look, carry_out, reply)

    def _write_now(
        self,
        key: bytes,
        version: str,
        change: Callable[[RowFacts], RowFacts],
        missing_lease: NodeRun | None,
        others: Conditions,
    ) -> tuple[str]:
        conditions = ((key, version), *others)
        if any(self.rows[each].version != expected for each, expected in conditions):
            return ("conflict",)
        if missing_lease is not None and self.leased(missing_lease):
            return ("conflict",)
        generation = self.rows[key].object_generation
        for each, _ in conditions:
            row = self.rows[each]
            new = change(row)._replace(version=self.next_version(), others=())
            check_change(row, new)
            self.rows[each] = new
        self._check_unit(key)
        if self.rows[key].lost:
            self.on_lost(key)
        if self.rows[key].object_generation != generation:
            self.on_taken_over(key)
        return ("applied",)

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
