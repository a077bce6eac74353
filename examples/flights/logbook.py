"""What one flight says and what an aircraft writes down about it.

Owns the message and the state. Pure: the Aircraft in the cluster and the verifier beside it enter
flights by the same rule, so that they differ only when a message was lost, repeated, reordered or
changed on its way.
"""

from __future__ import annotations

import hashlib

import msgspec

__all__ = ["Flight", "Logbook"]


class Flight(msgspec.Struct, frozen=True):
    """One row of the file, as the message that its aircraft gets."""

    tailnum: str
    number: int
    """Position in this aircraft's own sequence, from 1."""
    day: str
    """Date of departure, `2013-01-31`."""
    scheduled: int
    """Scheduled departure in local time, as the file writes it: 1730 is half past five in the evening."""
    carrier: str
    flight: str
    origin: str
    destination: str
    miles: int
    cancelled: bool
    """The flight never left; it is still a message, but adds no miles."""

    def line(self) -> bytes:
        """The flight as bytes, for the digest."""
        return (
            f"{self.number},{self.day},{self.scheduled},{self.carrier}{self.flight},"
            f"{self.origin},{self.destination},{self.miles},{self.cancelled:d}"
        ).encode()


class Logbook(msgspec.Struct):
    """The state of one aircraft."""

    flights: int = 0
    """Flights that left."""
    cancelled: int = 0
    miles: int = 0
    last_airport: str = ""
    digest: bytes = b""
    """Chained over the flights in the order handled: it says whether their content arrived unchanged."""
    order: list[int] = []
    """Numbers of the messages in the order handled: it says which were lost, repeated or overtaken."""
    ticks: int = 0
    """Counted up by a timer."""
    tick_faults: int = 0
    """Ticks whose delivery index was not the next one: made twice or left out (must stay 0)."""

    def enter(self, flight: Flight) -> None:
        """Write down one flight."""
        if flight.cancelled:
            self.cancelled += 1
        else:
            self.flights += 1
            self.miles += flight.miles
            self.last_airport = flight.destination
        self.digest = hashlib.blake2b(self.digest + flight.line(), digest_size=16).digest()
        self.order.append(flight.number)

    def tick(self, index: int) -> None:
        """Count one timer tick; `index` is its delivery index, from 1 and without gaps."""
        self.ticks += 1
        if index != self.ticks:
            self.tick_faults += 1
            self.ticks = index
