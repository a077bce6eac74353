"""What a record in this process owes: credit that goes back to where it came from once it has left (B5.2).

Owns the pairing of a record with its origin's credit. Who waits for what is elsewhere.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["STAGED_OCTETS_MAX", "Creditor", "Debt"]

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
