"""The owner lease of a simulated run: the driver of `LeaseClock`, on a clock of its own (B6.4)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sojourn.handoff.terms import RowFacts
from sojourn.lease import LeaseClock, LeaseSettings, PutLease, ReadLease, RenewLease, WaitUntil

from tests.simulation.clock import LocalClock, Timer

if TYPE_CHECKING:
    from tests.simulation.node import Node
    from tests.simulation.objects import LocalObject

__all__ = ["SETTINGS", "Lease"]

SETTINGS = LeaseSettings(ttl_ms=3_000, renew_ms=800, renew_timeout_ms=500, margin_ms=800)
"""A fifth of the defaults, so that pauses and outages of a few seconds outlast a lease."""


class Lease:
    """Puts, renews and re-reads the lease of one run; `admitted_until` is the run's admission deadline.

    `offset_s` is how far its clock lies beside virtual time at the start.
    """

    def __init__(self, node: Node, offset_s: float) -> None:
        self.node = node
        self._local = LocalClock(node.world.clock, offset_s, node.local.rate)
        self.clock = LeaseClock(node.world.lease_settings)
        self.admitted_until = 0.0
        """On virtual time; 0 = nothing may run."""
        self._attempt = 0
        self._out = False
        self._timer: Timer | None = None
        self._watch: Timer | None = None
        self.cut_until = 0.0
        """A fault: until then every write and read of the lease fails, and everything else goes on."""

    def now_ms(self) -> int:
        return int(self._local.now() * 1000)

    def start_held(self) -> None:
        """At the start of the world every run has put its lease."""
        self.clock.sent(self.now_ms())
        self.clock.applied(self.node.world.store.put_lease_now(self.node.run, SETTINGS.ttl_ms / 1000))
        self._moved()
        self.step()

    def step(self) -> None:
        """Do what the clock says next."""
        if not self.node.alive:
            return
        step = self.clock.next_step(self.now_ms())
        if isinstance(step, WaitUntil):
            if step.at_ms is not None:
                if self._timer is not None:
                    self._timer.cancel()
                due = max(0.0, self._local.when(step.at_ms / 1000)) + 0.001
                self._timer = self.node.world.clock.at(due, self.node.step, self.step)
            return
        self.clock.sent(self.now_ms())
        self._attempt += 1
        self._out = True
        answered = partial(self.node.step, self._answered, self._attempt, step)
        if self.node.world.clock.now < self.cut_until:
            outcome = self.node.world.clock.random.choice(("failed", "unknown"))
            self.node.world.clock.after(0.05, answered, outcome, None)
            return
        store, run, ttl_s = self.node.world.store, self.node.run, SETTINGS.ttl_ms / 1000
        if self.node.world.blind_leases:
            version = store.put_lease_now(run, ttl_s)
            self.node.world.clock.after(0.001, answered, "applied", version)
        elif isinstance(step, ReadLease):
            store.read_lease(run, answered)
        elif isinstance(step, RenewLease):
            store.write_lease(run, step.version, ttl_s, answered)
        else:
            store.write_lease(run, None, ttl_s, answered)
        timeout_s = SETTINGS.renew_timeout_ms / 1000
        self.node.world.clock.after(timeout_s, self.node.step, self._timed_out, self._attempt)

    def _timed_out(self, attempt: int) -> None:
        if self._out and attempt == self._attempt:
            self._out = False
            self.clock.failed(self.now_ms(), unknown=True)
            self._settled()

    def _answered(
        self, attempt: int, step: PutLease | RenewLease | ReadLease, outcome: str, version: str | None
    ) -> None:
        if not self._out or attempt != self._attempt:
            return
        self._out = False
        if outcome == "applied":
            assert version is not None
            if self.node.world.deadline_from_answer:
                self.clock._sent_ms = self.now_ms()
            self.clock.applied(version)
        elif outcome == "conflict":
            self.clock.conflicted(self.now_ms())
        elif outcome == "read":
            self.clock.read(version, self.now_ms())
        else:
            self.clock.failed(self.now_ms(), unknown=outcome == "unknown")
        self._settled()

    def _settled(self) -> None:
        ticket = self.clock.recheck
        if ticket is None:
            self._moved()
            self.step()
            return
        self._moved()
        self.recheck(ticket)

    def recheck(self, ticket: int) -> None:
        """Read the rows of everything this run holds before anything runs again."""
        node = self.node
        node.lease_was_over()
        if not node.world.rechecks:
            self._rows_read(ticket, [], [])
            return
        items = [item for key, item in node.objects.items() if item.key == key]
        read = partial(node.step, self._rows_read, ticket, items)
        node.world.store.read_many([item.key for item in items], read)

    def _rows_read(self, ticket: int, items: list[LocalObject], rows: list[RowFacts | None] | None) -> None:
        if rows is not None:
            for item, row in zip(items, rows, strict=True):
                self.node.recheck(item, row)
            self.clock.rechecked(ticket)
        self._moved()
        self.step()

    def _moved(self) -> None:
        """Tell everybody here the admission deadline; a turn that runs past it is cancelled."""
        deadline_ms = self.clock.admission_deadline_ms
        self.admitted_until = self._local.when(deadline_ms / 1000) if deadline_ms else 0.0
        if self._watch is None:
            self._watch = self.node.world.clock.at(self.admitted_until, self.node.step, self._over)
        if self.node.admits():
            self.node.admitted()

    def _over(self) -> None:
        self._watch = None
        if self.node.world.clock.now < self.admitted_until:
            self._watch = self.node.world.clock.at(self.admitted_until, self.node.step, self._over)
        else:
            self.node.admission_over()
