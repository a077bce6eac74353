"""What a record in this process owes: credit that goes back to where it came from once it has left (B5.2).

Owns the pairing of a record with its origin's credit. Who waits for what is elsewhere.
"""

from __future__ import annotations

from typing import Protocol

from sojourn.workers.payload_memory import Blocks
from sojourn.workers.waiters import Waiters

__all__ = ["STAGED_OCTETS_MAX", "Creditor", "Debt", "Retention"]

STAGED_OCTETS_MAX = 1024 * 1024
"""Octets of records a moving object may hold before their senders are held back: what is relayed at the
boundary has to fit into the cutover wait (R4.4.5). Nothing accepted is refused for it (B5.3)."""


class Creditor(Protocol):
    """Where a record came from, and what wants its credit back once the record has left this process."""

    def give_back(self, records: int, octets: int) -> None:
        """`records` records of `octets` bytes in all have left."""
        ...


class Debt:
    """The credit of one record. `octets` are those it came with, whatever its frame became since."""

    __slots__ = ("_creditor", "_octets")

    def __init__(self, creditor: Creditor, octets: int) -> None:
        self._creditor = creditor
        self._octets = octets

    def settle(self) -> None:
        """Give the credit back."""
        self._creditor.give_back(1, self._octets)


class Retention:
    """What a node keeps for objects that cannot take it now: queues before workers, holds, temporary queues,
    payloads (B5.3). Above its limit nobody gets credit before his record has left, and no move starts.

    Args:
        limit: option `max_retained_bytes`.
    """

    __slots__ = ("_limit", "_waiters", "blocks", "octets")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiters = Waiters()
        self.octets = 0
        self.blocks = Blocks()
        """Memory of payloads that are not kept any more, for those that come."""

    @property
    def over(self) -> bool:
        """More is kept than the limit."""
        return self.octets > self._limit

    def keep(self, octets: int) -> None:
        """Octets are kept from now on."""
        self.octets += octets

    def free(self, octets: int) -> None:
        """They are not any more."""
        self.octets -= octets
        if self._waiters and not self.over:
            self._waiters.wake()

    async def room(self) -> None:
        """Wait until the node keeps no more than its limit."""
        while self.over:
            await self._waiters.wait()
