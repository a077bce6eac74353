"""What the replay asks of a cluster, in the words of the demo.

The replay is written against `Fleet`; `examples.flights.cluster` is the real one, the tests bring one
that loses, repeats and reorders on purpose.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from examples.flights.logbook import Flight, Logbook

__all__ = ["Emptied", "Fleet", "Move"]


class Move(NamedTuple):
    """How the move of one aircraft ended."""

    outcome: str
    """`moved`, `stayed` (it was there already), `failed` (it serves on where it was) or `in doubt`."""
    reason: str = ""
    interruption_s: float | None = None
    """Seal to first turn on the target (B10.7); None when it did not move."""


class Emptied(NamedTuple):
    """How the emptying of a node ended."""

    node: str
    outcome: str
    """`Relocated` or `Blocked` (B10.2)."""
    reason: str = ""
    moved: int = 0
    stayed: tuple[Move, ...] = ()
    """One for each object that is still there, with the reason."""
    interruptions_s: tuple[float, ...] = ()
    took_s: float = 0.0


class Fleet(Protocol):
    """Every call ends within a bounded time: with its result, or with a `sojourn.errors.SojournError`."""

    @property
    def nodes(self) -> int:
        """How many nodes there are; they are named by index."""

    async def fly(self, flight: Flight) -> None:
        """Send one flight to its aircraft and wait for the answer."""

    async def read_logbook(self, tailnum: str) -> Logbook:
        """What an aircraft wrote down."""

    async def move(self, tailnum: str, node: int) -> Move:
        """Move one aircraft to a node."""

    async def empty(self, node: int) -> Emptied:
        """Move everything off a node, then let it serve again."""
