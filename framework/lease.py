"""The owner lease of one node run, as arithmetic (B6.4).

Owns when to renew, until when work may be admitted, and what an expired run has to do before it works
again. It must not know the store, a clock or a timer: every method takes `now_ms` (CLOCK_BOOTTIME) or
reports what happened.

    ABSENT ──put──▶ HELD ◀──renewal applied── HELD
                     │ outcome unknown            ▲
                     ▼                            │ read: still ours
                  UNCERTAIN ──────────────────────┘
                     │ read: missing, or a conflict
                     ▼
                  EXPIRED ──put again, only under `missing`──▶ RECHECKING ──objects re-read──▶ HELD
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from sojourn.errors import InvalidOperation, NotConfigured

__all__ = [
    "LeaseClock",
    "LeasePhase",
    "LeaseSettings",
    "LeaseStep",
    "PutLease",
    "ReadLease",
    "RenewLease",
    "WaitUntil",
]

RETRY_MS = 250
"""Pause after a failed attempt, or a tenth of the renewal interval where that is shorter."""


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """The four times of a lease, all in ms."""

    ttl_ms: int = 15_000
    renew_ms: int = 5_000
    renew_timeout_ms: int = 3_000
    margin_ms: int = 5_000

    def check(self) -> None:
        """One late renewal must not end admission: max(interval, timeout) + timeout < TTL - margin (B6.4).

        Raises:
            NotConfigured: the settings do not leave that room.
        """
        needed = max(self.renew_ms, self.renew_timeout_ms) + self.renew_timeout_ms
        room = self.ttl_ms - self.margin_ms
        if needed >= room:
            raise NotConfigured(
                f"options lease_renew_ms = {self.renew_ms} and lease_renew_timeout_ms = {self.renew_timeout_ms} "
                f"need {needed} ms, which must be less than lease_ttl_ms = {self.ttl_ms} minus "
                f"lease_margin_ms = {self.margin_ms} ({room} ms): raise the TTL, or renew more often (B6.4)"
            )

    @property
    def retry_ms(self) -> int:
        """Pause between a failed attempt and the next."""
        return max(1, min(RETRY_MS, self.renew_ms // 10))


class LeasePhase(enum.Enum):
    """What a run knows about its lease row."""

    ABSENT = "absent"
    """Never put."""
    HELD = "held"
    """The row stands under the version last written."""
    UNCERTAIN = "uncertain"
    """A write has an unknown outcome: the row must be read before the next one."""
    EXPIRED = "expired"
    """The row is gone: others may have taken objects over."""
    RECHECKING = "rechecking"
    """Put again; nothing runs until the objects' rows were re-read."""
    RELEASED = "released"
    """Given back for good."""


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing to do before `at_ms`; None = nothing ever again, or an attempt is out."""

    at_ms: int | None


@dataclass(frozen=True, slots=True)
class PutLease:
    """Write the row under `missing`."""


@dataclass(frozen=True, slots=True)
class RenewLease:
    """Write the row under the version it has."""

    version: str


@dataclass(frozen=True, slots=True)
class ReadLease:
    """Read the row: an outcome is unknown."""


LeaseStep: TypeAlias = WaitUntil | PutLease | RenewLease | ReadLease


class LeaseClock:
    """Renewals in, admission deadline out.

    The driver asks `next_step(now)`; for anything but a wait it calls `sent(now)`, carries the step out
    and reports exactly one of `applied`, `conflicted`, `failed` or, for a read, `read`.

    Attributes:
        phase: see `LeasePhase`.
        admission_deadline_ms: no turn, timer or store change starts at or after this instant. It counts
            from the moment BEFORE the last applied write was sent, so that it always lies `margin_ms`
            before the instant at which the store can first treat the lease as over. 0 = nothing may run.
    """

    def __init__(self, settings: LeaseSettings) -> None:
        settings.check()
        self.settings = settings
        self.phase = LeasePhase.ABSENT
        self.admission_deadline_ms = 0
        self._held_before = False
        self._recheck = self._tickets = 0
        self._version: str | None = None
        self._sent_ms: int | None = None
        self._due_ms = 0
        self._covered_until_ms = 0

    def next_step(self, now_ms: int) -> LeaseStep:
        """What the driver has to do now."""
        if self._sent_ms is not None or self.phase is LeasePhase.RELEASED:
            return WaitUntil(None)
        if now_ms < self._due_ms:
            return WaitUntil(self._due_ms)
        if self.phase in (LeasePhase.ABSENT, LeasePhase.EXPIRED):
            return PutLease()
        if self._version is None:
            return ReadLease()
        return RenewLease(self._version)

    def sent(self, now_ms: int) -> None:
        """A step is about to be carried out; `now_ms` is read BEFORE it goes out."""
        if self._sent_ms is not None:
            raise InvalidOperation("a lease attempt is already out")
        self._sent_ms = now_ms

    def applied(self, version: str) -> None:
        """The write was applied and the row has this version."""
        sent_ms = self._end_attempt()
        if self.phase is LeasePhase.EXPIRED:
            self._start_recheck()
        elif self.phase is not LeasePhase.RECHECKING:
            self.phase = LeasePhase.HELD
        self._version = version
        self._covered_until_ms = sent_ms + self.settings.ttl_ms - self.settings.margin_ms
        self._due_ms = sent_ms + self.settings.renew_ms
        self._held_before = True
        self._admit()

    def conflicted(self, now_ms: int) -> None:
        """The condition did not hold.

        A renewal that conflicts has lost its row. A put that conflicts found a row of an earlier attempt
        of this very run (its key names the run), so the row must be read.
        """
        self._end_attempt()
        if self.phase in (LeasePhase.ABSENT, LeasePhase.EXPIRED):
            self._lose_version()
            self._due_ms = now_ms
        else:
            self._expire(now_ms)

    def failed(self, now_ms: int, *, unknown: bool) -> None:
        """The attempt did not succeed; `unknown` when its write may have been applied all the same (B6.1)."""
        self._end_attempt()
        self._due_ms = now_ms + self.settings.retry_ms
        if unknown:
            self._lose_version()

    def read(self, version: str | None, now_ms: int) -> None:
        """The row was read: its version, or None when it is missing.

        A read moves no deadline forward: only a write whose sending moment is known does. Where the lease
        may have ended meanwhile, a row found now proves nothing about the time between.
        """
        self._end_attempt()
        if version is None:
            if self._held_before:
                self._expire(now_ms)
            else:
                self.phase = LeasePhase.ABSENT
                self._due_ms = now_ms
            return
        self._due_ms = now_ms
        over = self._held_before and now_ms >= self._covered_until_ms + self.settings.margin_ms
        if over:
            self._recheck = 0
        if over or self.phase is LeasePhase.RECHECKING:
            self._start_recheck()
        else:
            self.phase = LeasePhase.HELD
        self._version = version

    @property
    def recheck(self) -> int | None:
        """A ticket while the objects' rows have to be re-read, else None.

        The lease is known to stand, so that no takeover can slip in behind the reading (B6.6). The driver
        reads every row, drops objects whose version changed and hands the ticket to `rechecked`.
        """
        return self._recheck if self.phase is LeasePhase.RECHECKING and self._recheck else None

    def rechecked(self, ticket: int) -> bool:
        """Every object's row was re-read under this ticket; False when the lease was lost again meanwhile."""
        if ticket == 0 or ticket != self.recheck:
            return False
        self._recheck = 0
        self.phase = LeasePhase.HELD if self._version is not None else LeasePhase.UNCERTAIN
        self._admit()
        return True

    def released(self) -> str | None:
        """Stop for good; the version for the compare-and-delete of the row, None when it is not known."""
        version, self._version = self._version, None
        self.phase = LeasePhase.RELEASED
        self._sent_ms = None
        self._covered_until_ms = self.admission_deadline_ms = 0
        return version

    def may_admit(self, now_ms: int) -> bool:
        """Whether a turn, a timer or a store change may start now."""
        return now_ms < self.admission_deadline_ms

    def _end_attempt(self) -> int:
        if self._sent_ms is None:
            raise InvalidOperation("no lease attempt is out")
        sent_ms, self._sent_ms = self._sent_ms, None
        return sent_ms

    def _lose_version(self) -> None:
        self._version = None
        if self.phase is LeasePhase.EXPIRED:
            self.phase = LeasePhase.RECHECKING
        elif self.phase is not LeasePhase.RECHECKING:
            self.phase = LeasePhase.UNCERTAIN

    def _start_recheck(self) -> None:
        if self.phase is not LeasePhase.RECHECKING or not self._recheck:
            self._tickets += 1
            self._recheck = self._tickets
        self.phase = LeasePhase.RECHECKING

    def _expire(self, now_ms: int) -> None:
        self.phase = LeasePhase.EXPIRED
        self._version = None
        self._recheck = 0
        self._covered_until_ms = self.admission_deadline_ms = 0
        self._due_ms = now_ms

    def _admit(self) -> None:
        if self.phase in (LeasePhase.HELD, LeasePhase.UNCERTAIN):
            self.admission_deadline_ms = self._covered_until_ms
