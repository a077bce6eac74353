"""What happened, and whether it was allowed: the checker of the simulation.

It sees every acceptance, turn, terminal, store change and payload, and knows nothing of the machines. A
broken promise raises `Violation` at the step that breaks it; what can only be judged at the end is judged
by `finish`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sojourn.ids import NodeRun

if TYPE_CHECKING:
    from tests.simulation.jobs import Permit

__all__ = ["LOST_ON_THE_WAY", "LOST_WITH_OBJECT", "History", "Payload", "Record", "Violation"]

LOST_ON_THE_WAY = "lost with a connection"
LOST_WITH_OBJECT = "lost with its object"
ORDER_SLACK_S = 2.1
"""A disturbance excuses order this long after it: the limit of a marker (B9.4)."""


class Violation(AssertionError):
    """A promise was broken."""


class Record:
    """One message or marker. `where` is the run that holds it now, for what dies with a node."""

    __slots__ = (
        "accepted_at",
        "ended_elsewhere",
        "excuse",
        "fate",
        "held",
        "hops",
        "kept",
        "key",
        "marker",
        "moved",
        "number",
        "origin",
        "permit",
        "queued_at",
        "replies",
        "reply_arrived",
        "reply_excuse",
        "request",
        "sender",
        "sequence",
        "stamp",
        "terminal",
        "unit",
        "where",
    )

    def __init__(
        self, number: int, origin: NodeRun, key: bytes, sender: int, sequence: int, accepted_at: float
    ) -> None:
        self.number = number
        self.origin = origin
        self.key = key
        self.sender = sender
        self.sequence = sequence
        self.accepted_at = accepted_at
        self.marker: int | None = None
        self.fate: str | None = None
        self.excuse: str | None = None
        self.where = origin
        self.hops = 0
        self.queued_at = 0.0
        """Since when it waits, or last waited, for the credit of a connection."""
        self.unit = key
        """Key of the unit's own row: the object itself, or the Spot that the Actor is in."""
        self.stamp: tuple[object, int] | None = None
        """Its place in the order of the whole unit, as the source of a handoff fixed it."""
        self.permit: Permit | None = None
        """Held from its admission to right before its turn (B5.1)."""
        self.held = False
        """A handoff has it, as it came from a connection, and counts it as retained (B5.3)."""
        self.ended_elsewhere = False
        """The source of a move ended it, since nobody else was there to do so."""
        self.moved = False
        """It came to where it is with a move (B7.1)."""
        self.kept = False
        """Its reply is repeated until its requester has it."""
        self.request = False
        self.replies = 0
        self.reply_excuse: str | None = None
        self.reply_arrived = False
        self.terminal: str | None = None
        """How a request ended where it was made."""

    def __repr__(self) -> str:
        kind = "marker" if self.marker is not None else f"s{self.sender}#{self.sequence}"
        return f"<{self.number} {kind} {self.key.decode()}>"


class Payload:
    """A captured object: its state and saved work. `uses` after `released` are violations."""

    __slots__ = ("data", "generation", "handled", "permits", "released", "run", "saved")

    def __init__(
        self, run: NodeRun, data: bytes, generation: int, handled: dict[bytes, int], saved: list[Record]
    ) -> None:
        self.run = run
        self.data = data
        self.generation = generation
        self.handled = handled
        self.saved = saved
        self.permits: tuple[Permit, ...] = ()
        """Of the captured records: out until the cutover submit is terminal (B5.1)."""
        self.released = 0

    def use(self) -> Payload:
        if self.released:
            raise Violation("a payload was used after it was released")
        return self


class History:
    """Everything the checker knows about one run."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.turns: dict[bytes, tuple[NodeRun, Record]] = {}
        self.overtaken: set[Record] = set()
        """Turns that a pause caught inside, whose object was taken over meanwhile (B6.4)."""
        self.handled: dict[tuple[bytes, int], int] = defaultdict(int)
        self.last_sequence: dict[tuple[int, bytes, int], int] = {}
        self.disturbed: list[float] = []
        self.disturbed_keys: dict[bytes, list[float]] = defaultdict(list)
        self.payloads: list[Payload] = []
        self.counts: Counter[str] = Counter()
        self.stamps: dict[object, int] = {}
        self.ends_taken = False
        """Sources end what they took along and nobody else can (R5.2)."""

    # operations

    def accepted(self, record: Record) -> None:
        self.records.append(record)

    def disturb(self, now: float, key: bytes | None = None) -> None:
        """A cut, kill or pause (whole cluster) or a fallback or marker timeout (one object): order is off."""
        (self.disturbed if key is None else self.disturbed_keys[key]).append(now)

    def turn_started(self, record: Record, run: NodeRun, owner: NodeRun | None, leased: bool) -> None:
        if record.unit in self.turns:
            raise Violation(f"turns overlap: {record} at {run} while {self.turns[record.unit]} runs")
        if owner != run:
            raise Violation(f"{run} runs {record} while the store names {owner}: two owners")
        if not leased:
            raise Violation(f"{run} runs {record} although its lease is over")
        self.turns[record.unit] = (run, record)

    def turn_ended(self, record: Record, generation: int, handled: int, now: float) -> None:
        """`handled` is how many turns the object's own state has seen: a fork or a lost state shows here."""
        self._turn_over(record)
        identity = (record.key, generation)
        if handled != self.handled[identity]:
            raise Violation(
                f"state of {record.key.decode()} has seen {handled} turns, the history {self.handled[identity]}"
            )
        self.handled[identity] += 1
        self._end(record, "handled")
        self._check_order(record, generation, now)
        self._check_unit_order(record, now)

    def _turn_over(self, record: Record) -> None:
        running = self.turns.get(record.unit)
        if running is not None and running[1] is record:
            del self.turns[record.unit]
        elif record not in self.overtaken:
            raise Violation(f"the turn of {record} ended, but it did not run")

    def turn_cancelled(self, record: Record) -> None:
        """The end of its run's admission took it back (B6.4)."""
        self._turn_over(record)
        self.counts["turn cancelled"] += 1

    def turn_died(self, record: Record) -> None:
        self._turn_over(record)

    def taken_over(self, key: bytes) -> None:
        """A new incarnation was made: what still runs of the old one is a pause inside a turn."""
        running = self.turns.pop(key, None)
        if running is not None:
            self.overtaken.add(running[1])
            self.counts["turn overtaken"] += 1

    # requests

    def replied(self, record: Record) -> None:
        record.replies += 1
        if record.replies > 1:
            raise Violation(f"{record} is replied to twice")

    def request_ended(self, record: Record, how: str) -> None:
        if record.terminal is not None:
            raise Violation(f"{record} ends as {how} at its requester after it ended as {record.terminal}")
        record.terminal = how
        self.counts["request: " + how] += 1

    def failed(self, record: Record, reason: str) -> None:
        if record.marker is None:
            self._end(record, "failed")
            self.counts["failed: " + reason] += 1

    def excuse(self, records: Iterable[Record], reason: str) -> None:
        """No terminal can be promised for these: handed to a connection that broke, or died with a node."""
        for record in records:
            if record.excuse is None:
                record.excuse = reason

    def _end(self, record: Record, fate: str) -> None:
        if record.fate is not None:
            raise Violation(f"{record} is {fate} after it was {record.fate}")
        record.fate = fate
        self.counts[fate] += 1

    def _check_order(self, record: Record, generation: int, now: float) -> None:
        place = (record.sender, record.key, generation)
        last = self.last_sequence.get(place, -1)
        if record.sequence > last:
            self.last_sequence[place] = record.sequence
        elif not self._was_disturbed(record, now):
            raise Violation(f"{record} was handled after #{last} of the same sender")

    def _check_unit_order(self, record: Record, now: float) -> None:
        """Saved work, then the batch, whichever participant each is for (B1.6, R4.6.1)."""
        if record.stamp is None:
            return
        handoff, place = record.stamp
        last = self.stamps.get(handoff, -1)
        self.stamps[handoff] = max(last, place)
        if place < last and not self._was_disturbed(record, now):
            raise Violation(f"{record} was place {place} in its unit's order and ran after place {last}")

    def _was_disturbed(self, record: Record, now: float) -> bool:
        since = record.accepted_at - ORDER_SLACK_S
        for times in (self.disturbed, self.disturbed_keys.get(record.key, ())):
            index = bisect_right(times, now)
            if index and times[index - 1] >= since:
                return True
        return False

    # payloads

    def captured(self, payload: Payload) -> None:
        self.payloads.append(payload)

    def released(self, payload: Payload) -> None:
        payload.released += 1
        if payload.released > 1:
            raise Violation("a payload was released twice")

    # the end

    def finish(self, lost_runs: set[NodeRun]) -> None:
        for record in self.records:
            if record.request and record.origin not in lost_runs:
                self._check_request(record, lost_runs)
            if record.fate is not None:
                continue
            if record.excuse is None and record.where in lost_runs:
                record.excuse = "died with its node"
            if record.excuse is None:
                raise Violation(f"{record} vanished at {record.where}: no terminal, no excuse")
            self.counts["in doubt: " + record.excuse] += 1
        for payload in self.payloads:
            if payload.released != 1 and payload.run not in lost_runs:
                raise Violation(f"a payload was released {payload.released} times")

    def _check_request(self, record: Record, lost_runs: set[NodeRun]) -> None:
        if record.terminal is None:
            raise Violation(f"{record} has no terminal at its requester")
        if record.excuse == LOST_WITH_OBJECT and self.ends_taken and not record.ended_elsewhere:
            raise Violation(f"{record} was lost with its object and nobody was told")
        if record.fate is not None and not record.replies:
            raise Violation(f"{record} was {record.fate} and nobody was told")
        told = record.reply_arrived or record.reply_excuse is not None or record.where in lost_runs
        if record.replies and not told:
            raise Violation(f"the reply to {record} vanished")

    def summary(self) -> dict[str, Any]:
        return dict(self.counts)
