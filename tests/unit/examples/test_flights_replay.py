"""The replay against a fleet inside this process that can be told to go wrong."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter

import msgspec
import pytest
from sojourn.errors import DeadlineExceeded, NotConfigured, NotFound, SojournError, Unavailable

from examples.flights import cli
from examples.flights.data import FlightData
from examples.flights.display import Counts, LineDisplay, open_display
from examples.flights.fleet import Emptied, Move
from examples.flights.logbook import Flight, Logbook
from examples.flights.outcome import Outcome, percentile
from examples.flights.pace import Pace
from examples.flights.replay import Replay, partition
from examples.flights.settings import Settings, parse_settings


class FakeFleet:
    """Aircraft in a dictionary. Answers after one turn of the loop; `faults` names what goes wrong."""

    def __init__(self, faults: dict[tuple[str, int], str] | None = None) -> None:
        self.nodes = 3
        self.faults = faults or {}
        self.logbooks: dict[str, Logbook] = {}
        self.emptied: list[int] = []
        self.moves: list[tuple[str, int]] = []
        self.in_flight = 0
        self.in_flight_max = 0
        self._late: dict[str, Flight] = {}

    async def fly(self, flight: Flight) -> None:
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            self._handle(flight)
            await asyncio.sleep(0)
        finally:
            self.in_flight -= 1

    def _handle(self, flight: Flight) -> None:
        logbook = self.logbooks.setdefault(flight.tailnum, Logbook())
        match self.faults.get((flight.tailnum, flight.number)):
            case "lose":
                return
            case "fail":
                raise Unavailable("the route broke", applied="unknown")
            case "repeat":
                logbook.enter(flight)
            case "delay":
                self._late[flight.tailnum] = flight
                return
        logbook.enter(flight)
        if (late := self._late.pop(flight.tailnum, None)) is not None:
            logbook.enter(late)

    async def read_logbook(self, tailnum: str) -> Logbook:
        return msgspec.structs.replace(self.logbooks[tailnum])

    async def move(self, tailnum: str, node: int) -> Move:
        self.moves.append((tailnum, node))
        await asyncio.sleep(0)
        if tailnum not in self.logbooks:
            raise NotFound("no such aircraft")
        if len(self.moves) % 5 == 0:
            raise Unavailable("in a handoff already")
        return Move("moved", interruption_s=0.001 * len(self.moves))

    async def empty(self, node: int) -> Emptied:
        self.emptied.append(node)
        await asyncio.sleep(0)
        return Emptied(f"node-{node}", "Relocated", moved=1, interruptions_s=(0.002,), took_s=0.5)


class Clock:
    """Time that passes only by waiting."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        await asyncio.sleep(0)


def make_data(aircraft: int = 20, flights: int = 10) -> FlightData:
    messages = [
        Flight(f"N{plane}", number, "2013-01-01", 600, "UA", "1", "EWR", "IAH", 1400, False)
        for number in range(1, flights + 1)
        for plane in range(aircraft)
    ]
    return FlightData(messages, len(messages) + 7, 7, 0)


async def replay(
    fleet: FakeFleet, data: FlightData | None = None, settings: Settings | None = None
) -> tuple[Outcome, str]:
    clock, out = Clock(), io.StringIO()
    data = data or make_data()
    settings = settings or Settings(rate=2000, senders=4, window=8)
    display = LineDisplay(len(data.flights), out, clock.now)
    with display:
        outcome = await Replay(fleet, data, settings, display, clock.now, clock.sleep).run()
    return outcome, out.getvalue()


async def test_a_clean_run_with_moves() -> None:
    fleet = FakeFleet()
    outcome, text = await replay(fleet)
    assert outcome.passed
    assert (outcome.sent, outcome.handled, outcome.failed) == (200, 200, 0)
    assert (outcome.lost, outcome.duplicated, outcome.out_of_order, outcome.altered) == (0, 0, 0, 0)
    assert outcome.aircraft == 20
    assert outcome.skipped_without_tailnum == 7
    assert sorted(fleet.emptied) == [0, 1, 2]
    assert outcome.moves.nodes_emptied == 3
    assert outcome.moves.by_emptying == 3
    assert outcome.moves.single > 0
    assert outcome.interruption is not None
    assert outcome.interruption.p50_ms > 0
    assert text.count("emptied under load: Relocated") == 3


@pytest.mark.parametrize(
    ("fault", "expected"),
    [("lose", (1, 0, 0)), ("repeat", (0, 1, 0)), ("delay", (0, 0, 1))],
)
async def test_each_planted_fault_is_found_as_what_it_is(fault: str, expected: tuple[int, int, int]) -> None:
    outcome, _ = await replay(FakeFleet({("N3", 5): fault}))
    assert (outcome.lost, outcome.duplicated, outcome.out_of_order) == expected
    assert not outcome.passed
    assert len(outcome.faults) == 1
    assert outcome.faults[0].startswith("N3: ")


async def test_typed_failures_are_counted_and_are_no_loss() -> None:
    outcome, _ = await replay(FakeFleet({("N3", 5): "fail", ("N4", 1): "fail"}))
    assert outcome.passed
    assert (outcome.sent, outcome.handled, outcome.failed) == (200, 198, 2)
    assert outcome.failures == {"Unavailable": 2}


async def test_messages_in_flight_are_bounded() -> None:
    fleet = FakeFleet()
    await replay(fleet, settings=Settings(rate=0, senders=2, window=3, moves=False))
    assert 1 < fleet.in_flight_max <= 6


async def test_without_moves_nothing_moves() -> None:
    fleet = FakeFleet()
    outcome, _ = await replay(fleet, settings=Settings(moves=False))
    assert fleet.moves == []
    assert fleet.emptied == []
    assert outcome.interruption is None


async def test_the_seed_decides_the_moves() -> None:
    first, second, other = FakeFleet(), FakeFleet(), FakeFleet()
    await replay(first, settings=Settings(seed=1))
    await replay(second, settings=Settings(seed=1))
    await replay(other, settings=Settings(seed=2))
    assert first.moves == second.moves
    assert first.moves != other.moves


async def test_refused_moves_are_counted_by_reason() -> None:
    outcome, _ = await replay(FakeFleet(), settings=Settings(rate=200, moves_per_second=50))
    assert outcome.moves.failed == outcome.moves.failure_reasons["Unavailable"] > 0


async def test_a_blocked_node_is_said_and_does_not_stop_the_run() -> None:
    class Stubborn(FakeFleet):
        async def empty(self, node: int) -> Emptied:
            raise DeadlineExceeded("30 s are over")

    outcome, text = await replay(Stubborn())
    assert outcome.passed
    assert outcome.moves.nodes_blocked == 3
    assert "Blocked (DeadlineExceeded)" in text


async def test_a_logbook_that_cannot_be_read_ends_the_run_with_a_typed_error() -> None:
    class Mute(FakeFleet):
        async def read_logbook(self, tailnum: str) -> Logbook:
            raise Unavailable("gone")

    with pytest.raises(ExceptionGroup) as caught:
        await replay(Mute())
    assert caught.group_contains(DeadlineExceeded)


async def test_pace_spreads_messages_and_full_speed_does_not_wait() -> None:
    clock = Clock()
    pace = Pace(100, clock.now, clock.sleep)
    for _ in range(50):
        await pace.wait_turn()
    assert clock.seconds == pytest.approx(0.5, abs=0.02)
    clock = Clock()
    pace = Pace(0, clock.now, clock.sleep)
    for _ in range(50):
        await pace.wait_turn()
    assert clock.seconds == 0


def test_every_aircraft_belongs_to_one_sender() -> None:
    spread = Counter(partition(f"N{number}", 8) for number in range(1000))
    assert set(spread) == set(range(8))
    assert partition("N1", 8) == partition("N1", 8)


def test_percentiles_are_nearest_rank() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, part) for part in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert percentile([7.0], 0.5) == 7.0


def test_settings_from_options_and_environment() -> None:
    assert parse_settings([], {}) == Settings()
    found = parse_settings(["--nodes", "2", "--workers", "1", "--no-moves", "--seed", "9", "--json"], {})
    assert (found.nodes, found.workers, found.moves, found.seed, found.json) == (2, 1, False, 9, True)
    assert parse_settings([], {"RATE": "0", "FLIGHTS": "all"}).rate == 0
    assert parse_settings([], {"FLIGHTS": "all"}).month is None
    assert parse_settings(["--flights", "december"], {"FLIGHTS": "all"}).month == 12
    assert parse_settings(["--flights", "500"], {}).limit == 500
    assert not parse_settings(["--nodes", "1"], {}).moves


@pytest.mark.parametrize(
    "arguments",
    [["--rate", "fast"], ["--rate", "-1"], ["--flights", "some"], ["--flights", "0"], ["--nodes", "0"]],
)
def test_wrong_options_end_with_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_settings(arguments, {})
    assert caught.value.code == 2
    assert arguments[0].removeprefix("--") in capsys.readouterr().err.lower()


def test_plain_lines_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    display = open_display(100, out)
    assert isinstance(display, LineDisplay)
    clock = Clock()
    display = LineDisplay(100, out, clock.now)
    with display:
        display.show(Counts(50, 0, 0, 0))
        assert out.getvalue() == ""
        clock.seconds = 3
        display.show(Counts(60, 1, 2, 0, "emptying node 1"))
    assert out.getvalue() == "60 of 100 flights, moved 2, failed 1; emptying node 1\n"


@pytest.fixture
def one_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "read_flights", lambda settings: make_data(3, 4))


async def run_on(fleet: FakeFleet, data: FlightData, settings: Settings) -> Outcome:
    clock = Clock()
    display = LineDisplay(len(data.flights), io.StringIO(), clock.now)
    return await Replay(fleet, data, settings, display, clock.now, clock.sleep).run()


@pytest.mark.usefixtures("one_flight")
@pytest.mark.parametrize(("faults", "code"), [({}, 0), ({("N1", 2): "lose"}, 1)])
def test_exit_code_and_json(
    faults: dict[tuple[str, int], str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(data: FlightData, settings: Settings) -> Outcome:
        return await run_on(FakeFleet(faults), data, settings)

    assert cli.main(["--json"], run) == code
    found = json.loads(capsys.readouterr().out)
    assert found["sent"] == 12
    assert found["lost"] == code
    assert found["passed"] is (code == 0)


@pytest.mark.usefixtures("one_flight")
def test_the_table_names_the_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    async def run(data: FlightData, settings: Settings) -> Outcome:
        return await run_on(FakeFleet({("N1", 2): "repeat"}), data, settings)

    assert cli.main([], run) == 1
    text = capsys.readouterr().out
    for word in ("messages sent", "lost", "duplicated", "out of order", "interruption", "FAILED", "N1: "):
        assert word in text


@pytest.mark.usefixtures("one_flight")
@pytest.mark.parametrize(
    "error",
    [NotConfigured("no store"), ExceptionGroup("beside", [Unavailable("gone")])],
    ids=["plain", "from a task"],
)
def test_a_run_that_cannot_go_on_says_so_without_a_traceback(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(data: FlightData, settings: Settings) -> Outcome:
        raise error

    assert cli.main([], run) == 1
    known: list[SojournError] = [
        leaf
        for leaf in (error.exceptions if isinstance(error, ExceptionGroup) else [error])
        if isinstance(leaf, SojournError)
    ]
    text = capsys.readouterr().err
    assert text == f"{known[0].kind}: {known[0]}\n"


@pytest.mark.usefixtures("one_flight")
def test_a_bug_is_not_hidden() -> None:
    async def run(data: FlightData, settings: Settings) -> Outcome:
        raise ExceptionGroup("beside", [ValueError("bug")])

    with pytest.raises(ExceptionGroup):
        cli.main([], run)
