"""Each kind of damage is told apart from the others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from examples.flights.logbook import Flight, Logbook
from examples.flights.verifier import compare_aircraft, compare_all


def make_flight(number: int, tailnum: str = "N1", cancelled: bool = False, miles: int = 100) -> Flight:
    return Flight(
        tailnum=tailnum,
        number=number,
        day="2013-01-01",
        scheduled=600 + number,
        carrier="UA",
        flight=str(number),
        origin="EWR",
        destination=f"A{number}",
        miles=miles,
        cancelled=cancelled,
    )


SENT = [make_flight(number, cancelled=number == 3) for number in range(1, 7)]


def logbook_of(numbers: Sequence[int]) -> Logbook:
    logbook = Logbook()
    for number in numbers:
        logbook.enter(SENT[number - 1])
    return logbook


def test_a_clean_run() -> None:
    verdict = compare_aircraft("N1", SENT, (), logbook_of([1, 2, 3, 4, 5, 6]))
    assert verdict.clean
    assert verdict.handled == 6
    assert verdict.describe() == "N1: as expected"


@pytest.mark.parametrize(
    ("order", "lost", "duplicated", "out_of_order"),
    [
        pytest.param([1, 2, 4, 5, 6], (3,), (), (), id="lost in the middle"),
        pytest.param([1, 2, 3, 4], (5, 6), (), (), id="lost at the end, as by an old state"),
        pytest.param([], (1, 2, 3, 4, 5, 6), (), (), id="never existed"),
        pytest.param([1, 2, 2, 3, 4, 5, 6], (), (2,), (), id="repeated at once"),
        pytest.param([1, 2, 3, 4, 5, 6, 2, 2], (), (2, 2), (), id="repeated later, twice"),
        pytest.param([1, 3, 2, 4, 5, 6], (), (), (2,), id="overtaken"),
        pytest.param([6, 1, 2, 3, 4, 5], (), (), (1, 2, 3, 4, 5), id="one overtook all"),
        pytest.param([1, 4, 3, 3, 6], (2, 5), (3,), (3,), id="all three at once"),
    ],
)
def test_planted_faults(
    order: list[int], lost: tuple[int, ...], duplicated: tuple[int, ...], out_of_order: tuple[int, ...]
) -> None:
    verdict = compare_aircraft("N1", SENT, (), logbook_of(order))
    assert (verdict.lost, verdict.duplicated, verdict.out_of_order) == (lost, duplicated, out_of_order)
    assert not verdict.altered
    assert not verdict.clean


def test_a_failure_the_sender_knows_of_is_not_a_loss() -> None:
    verdict = compare_aircraft("N1", SENT, {4}, logbook_of([1, 2, 3, 5, 6]))
    assert verdict.clean
    assert verdict.handled == 5


def test_a_failed_message_that_was_handled_after_all_is_no_fault() -> None:
    assert compare_aircraft("N1", SENT, {4}, logbook_of([1, 2, 3, 4, 5, 6])).clean


@pytest.mark.parametrize("field", ["miles", "flights", "cancelled", "last_airport", "digest"])
def test_altered_state(field: str) -> None:
    logbook = logbook_of([1, 2, 3, 4, 5, 6])
    setattr(logbook, field, {"last_airport": "ZZZ", "digest": b"?"}.get(field, 99))
    verdict = compare_aircraft("N1", SENT, (), logbook)
    assert verdict.altered
    assert (verdict.lost, verdict.duplicated, verdict.out_of_order) == ((), (), ())


def test_an_altered_message_shows_in_the_digest_alone() -> None:
    logbook = Logbook()
    for flight in SENT:
        logbook.enter(make_flight(5, miles=100) if flight.number == 5 else flight)
    assert compare_aircraft("N1", SENT, (), logbook).clean
    changed = Logbook()
    for flight in SENT:
        changed.enter(make_flight(3, cancelled=True, miles=1) if flight.number == 3 else flight)
    verdict = compare_aircraft("N1", SENT, (), changed)
    assert verdict.altered
    assert "altered" in verdict.describe()


def test_a_message_nobody_sent() -> None:
    logbook = logbook_of([1, 2, 3, 4, 5, 6])
    logbook.enter(make_flight(7))
    assert compare_aircraft("N1", SENT, (), logbook).altered


def test_timer_faults_are_their_own_kind() -> None:
    logbook = logbook_of([1, 2, 3, 4, 5, 6])
    for index in (1, 2, 2, 3, 5, 6):
        logbook.tick(index)
    assert (logbook.ticks, logbook.tick_faults) == (6, 2)
    verdict = compare_aircraft("N1", SENT, (), logbook)
    assert verdict.tick_faults == 2
    assert not verdict.clean
    assert not verdict.altered


def test_totals_over_all_aircraft() -> None:
    other = [make_flight(number, tailnum="N2") for number in (1, 2)]
    logbooks = {"N1": logbook_of([1, 2, 2, 4, 3, 6]), "N2": Logbook()}
    for flight in other:
        logbooks["N2"].enter(flight)
    found = compare_all({"N1": SENT, "N2": other}, {}, logbooks)
    assert (found.aircraft, found.handled) == (2, 7)
    assert (found.lost, found.duplicated, found.out_of_order, found.altered) == (1, 1, 1, 0)
    assert [verdict.tailnum for verdict in found.faults] == ["N1"]
    assert not found.passed


def test_an_aircraft_that_nothing_was_sent_to_is_altered() -> None:
    found = compare_all({}, {}, {"N1": logbook_of([1])})
    assert found.altered == 1


def test_no_two_logbooks_share_their_order() -> None:
    first, second = Logbook(), Logbook()
    first.enter(SENT[0])
    assert second.order == []
