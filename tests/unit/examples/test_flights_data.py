"""How rows of the file become messages."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

import pytest
from sojourn.errors import NotConfigured

from examples.flights import data
from examples.flights.data import build_flights, find_archive, read_archive

HEADER = "year,month,day,dep_time,sched_dep_time,carrier,flight,tailnum,origin,dest,distance"


def table(*rows: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO("\n".join((HEADER, *rows)))))


def test_order_is_month_day_scheduled_departure_then_row() -> None:
    found = build_flights(
        table(
            "2013,10,1,500,500,UA,6,N1,EWR,SFO,2565",
            "2013,2,3,600,900,UA,3,N1,EWR,SFO,2565",
            "2013,2,3,1000,545,UA,2,N1,EWR,SFO,2565",
            "2013,2,3,100,900,UA,4,N2,EWR,SFO,2565",
            "2013,2,3,100,900,UA,5,N1,EWR,SFO,2565",
            "2013,2,1,100,2300,UA,1,N2,EWR,SFO,2565",
        ),
        month=None,
    )
    assert [flight.flight for flight in found.flights] == ["1", "2", "3", "4", "5", "6"]


def test_every_message_carries_its_number_in_its_aircrafts_sequence() -> None:
    found = build_flights(
        table(
            "2013,1,1,500,500,UA,1,N1,EWR,SFO,2565",
            "2013,1,1,500,501,UA,2,N2,EWR,SFO,2565",
            "2013,1,1,500,502,UA,3,N1,EWR,SFO,2565",
        )
    )
    assert [(flight.tailnum, flight.number) for flight in found.flights] == [("N1", 1), ("N2", 1), ("N1", 2)]
    assert [flight.number for flight in found.by_aircraft()["N1"]] == [1, 2]


def test_rows_without_tail_number_are_counted_and_skipped_and_cancelled_flights_are_messages() -> None:
    found = build_flights(
        table(
            "2013,1,1,NA,500,UA,1,NA,EWR,SFO,2565",
            "2013,1,1,,500,UA,1,,EWR,SFO,2565",
            "2013,1,1,NA,600,UA,2,N1,EWR,SFO,2565",
            "2013,1,1,700,700,UA,3,N1,EWR,IAH,1400",
        )
    )
    assert (found.rows, found.without_tailnum, found.cancelled) == (4, 2, 1)
    assert [flight.cancelled for flight in found.flights] == [True, False]
    assert found.flights[1].miles == 1400
    assert found.flights[1].destination == "IAH"
    assert found.flights[1].day == "2013-01-01"


def test_only_the_month_asked_for() -> None:
    rows = table("2013,1,1,500,500,UA,1,N1,EWR,SFO,1", "2013,12,1,500,500,UA,2,N1,EWR,SFO,1")
    assert [flight.flight for flight in build_flights(rows, month=12).flights] == ["2"]


def test_a_missing_column_is_named() -> None:
    with pytest.raises(NotConfigured, match="tailnum"):
        build_flights([["year", "month"], ["2013", "1"]])


def test_an_archive_is_read_without_unpacking(tmp_path: Path) -> None:
    archive = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("flights.csv", f"{HEADER}\n2013,1,1,500,500,UA,1,N1,EWR,SFO,2565\n")
    assert len(read_archive(archive).flights) == 1


def test_an_archive_without_the_table_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("else.txt", "")
    with pytest.raises(NotConfigured, match=r"flights\.csv"):
        read_archive(archive)


def test_a_missing_data_package_is_said_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "_PACKAGE", "a_package_that_nobody_has")
    with pytest.raises(NotConfigured, match="pip install --no-deps"):
        find_archive()


def test_january_of_the_real_file() -> None:
    try:
        archive = find_archive()
    except NotConfigured:
        pytest.fail("the data package is not installed: run make install")
    found = read_archive(archive, month=1)
    assert (found.rows, found.without_tailnum, found.cancelled) == (27_004, 155, 521 - 155)
    assert len(found.flights) == 27_004 - 155
    assert len(found.by_aircraft()) == 3_148
