"""The relay section of a target: which relay records count, and where they stand (R4.4.5, B8.4, B8.5).

Owns the batches that connections brought before the boundary was settled, and afterwards k: how many
records of the source's one sequence were taken. It must not know states, time or effects.

Every connection carries the sequence from its first record, so a record's position on its connection is
its position in the sequence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sojourn.handoff.terms import Checksum, Frozen

__all__ = ["RelaySection"]


@dataclass(slots=True)
class _Arrival:
    """What one connection brought. `closed`: its cutover arrived; what follows is behind the boundary."""

    records: list[Any] = field(default_factory=list)
    checksum: int = 0
    closed: bool = False


class RelaySection:
    """Relay records of one identity, before and after the boundary is settled."""

    __slots__ = ("_arrivals", "_checksum", "_frozen", "_positions", "records", "seen", "settled", "taken")

    def __init__(self, checksum: Checksum, frozen: Frozen) -> None:
        self._checksum = checksum
        self._frozen = frozen
        self._arrivals: dict[int, _Arrival] = {}
        self._positions: dict[int, int] = {}
        self.records: list[Any] = []
        """The section, once settled; what is taken later in place is appended."""
        self.taken = 0
        """k of B8.4, once settled."""
        self.settled = False
        self.seen = False
        """A 31 or 34 of this identity arrived: proof that the source is past its boundary (B8.15)."""

    def add(self, record: Any, connection: int) -> bool:
        """Before settling: take a record into its connection's batch; False = it is behind the boundary."""
        self.seen = True
        arrival = self._arrivals.setdefault(connection, _Arrival())
        if arrival.closed:
            return False
        arrival.records.append(record)
        arrival.checksum = self._checksum(self._frozen(record), arrival.checksum)
        return True

    def verify(self, count: int, checksum: int, connection: int) -> bool:
        """Before settling: compare a cutover with its connection's batch, and settle if it matches (R4.4.4)."""
        self.seen = True
        arrival = self._arrivals.setdefault(connection, _Arrival())
        if arrival.closed or len(arrival.records) != count or arrival.checksum != checksum:
            arrival.closed = True
            return False
        self._settle(arrival)
        return True

    def received(self, connection: int) -> tuple[int, int]:
        """Count and checksum of what this connection brought before settling, for the log."""
        arrival = self._arrivals.get(connection, _Arrival())
        return len(arrival.records), arrival.checksum

    def fall_back(self) -> None:
        """Settle without a cutover: the longest batch stays, since all are prefixes of one sequence (B8.4)."""
        self._settle(
            max(self._arrivals.values(), key=lambda arrival: len(arrival.records), default=_Arrival())
        )

    def _settle(self, arrival: _Arrival) -> None:
        self.settled = True
        self.records = arrival.records
        self.taken = len(arrival.records)
        self._positions = {number: len(each.records) for number, each in self._arrivals.items()}
        self._arrivals = {}

    def take(self, connection: int) -> bool:
        """After settling: whether the next record of this connection is new; the first k are dropped."""
        self.seen = True
        position = self._positions.get(connection, 0)
        self._positions[connection] = position + 1
        if position < self.taken:
            return False
        self.taken = position + 1
        return True

    def forget_records(self) -> None:
        """The section was handed over; positions and k stay."""
        self.records = []
