"""Compares what the aircraft wrote down with a direct computation over the file.

Pure. Each kind of damage is told apart, per aircraft:

- lost: sent, no failure reported to the sender, and not in the aircraft's logbook;
- duplicated: in the logbook more than once (each repetition counts);
- out of order: first written down after a message with a higher number;
- altered: a message that was never sent, or totals and digest that differ from entering the very
  flights the logbook names in the order it names them;
- timer faults: ticks made twice or left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from examples.flights.logbook import Flight, Logbook

__all__ = ["AircraftVerdict", "Comparison", "compare_aircraft", "compare_all"]


class AircraftVerdict(NamedTuple):
    """What is wrong with one aircraft; all empty or zero when nothing is."""

    tailnum: str
    handled: int
    """Messages handled at least once."""
    lost: tuple[int, ...] = ()
    duplicated: tuple[int, ...] = ()
    out_of_order: tuple[int, ...] = ()
    altered: bool = False
    tick_faults: int = 0

    @property
    def clean(self) -> bool:
        """Nothing is wrong."""
        return not (self.lost or self.duplicated or self.out_of_order or self.altered or self.tick_faults)

    def describe(self) -> str:
        """The faults in one line, for people."""
        parts = [
            f"{name} {', '.join(map(str, numbers[:8]))}{' …' if len(numbers) > 8 else ''}"
            for name, numbers in (
                ("lost", self.lost),
                ("duplicated", self.duplicated),
                ("out of order", self.out_of_order),
            )
            if numbers
        ]
        if self.altered:
            parts.append("contents or totals altered")
        if self.tick_faults:
            parts.append(f"{self.tick_faults} timer faults")
        return f"{self.tailnum}: {'; '.join(parts) if parts else 'as expected'}"


class Comparison(NamedTuple):
    """The verdict over all aircraft."""

    aircraft: int
    handled: int
    lost: int
    duplicated: int
    out_of_order: int
    altered: int
    """Aircraft, not messages."""
    ticks: int
    tick_faults: int
    faults: tuple[AircraftVerdict, ...]
    """Every aircraft with a fault."""

    @property
    def passed(self) -> bool:
        """No fault of any kind."""
        return not self.faults


def compare_aircraft(
    tailnum: str, sent: Sequence[Flight], failed: Collection[int], logbook: Logbook
) -> AircraftVerdict:
    """Judge one aircraft.

    Args:
        tailnum: whose logbook it is.
        sent: its messages, in the order sent.
        failed: numbers whose sender got a typed failure. They may or may not have been handled.
        logbook: what the aircraft reports; an empty one when it does not exist.
    """
    by_number = {flight.number: flight for flight in sent}
    seen: set[int] = set()
    duplicated: list[int] = []
    out_of_order: list[int] = []
    expected = Logbook()
    invented = False
    highest = 0
    for number in logbook.order:
        flight = by_number.get(number)
        if flight is None:
            invented = True
            continue
        expected.enter(flight)
        if number in seen:
            duplicated.append(number)
            continue
        seen.add(number)
        if number < highest:
            out_of_order.append(number)
        highest = max(highest, number)
    lost = [number for number in by_number if number not in seen and number not in failed]
    return AircraftVerdict(
        tailnum,
        len(seen),
        tuple(lost),
        tuple(duplicated),
        tuple(out_of_order),
        invented or _totals(expected) != _totals(logbook),
        logbook.tick_faults,
    )


def compare_all(
    sent: Mapping[str, Sequence[Flight]],
    failed: Mapping[str, Collection[int]],
    logbooks: Mapping[str, Logbook],
) -> Comparison:
    """Judge every aircraft that was sent anything or reports anything."""
    verdicts = [
        compare_aircraft(
            tailnum, sent.get(tailnum, ()), failed.get(tailnum, ()), logbooks.get(tailnum) or Logbook()
        )
        for tailnum in sorted(sent.keys() | logbooks.keys())
    ]
    return Comparison(
        aircraft=len(verdicts),
        handled=sum(verdict.handled for verdict in verdicts),
        lost=sum(len(verdict.lost) for verdict in verdicts),
        duplicated=sum(len(verdict.duplicated) for verdict in verdicts),
        out_of_order=sum(len(verdict.out_of_order) for verdict in verdicts),
        altered=sum(verdict.altered for verdict in verdicts),
        ticks=sum(logbook.ticks for logbook in logbooks.values()),
        tick_faults=sum(verdict.tick_faults for verdict in verdicts),
        faults=tuple(verdict for verdict in verdicts if not verdict.clean),
    )


def _totals(logbook: Logbook) -> tuple[int, int, int, str, bytes]:
    return (logbook.flights, logbook.cancelled, logbook.miles, logbook.last_airport, logbook.digest)
