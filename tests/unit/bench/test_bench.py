"""What the bench computes and how its references frame messages; it measures nothing here."""

from __future__ import annotations

import asyncio
import io
import json
import math

import pytest
from rich.console import Console

from bench.bare_move import bare_mover
from bench.framing import FramePeer, Requester, echo, forward
from bench.interleaving import PACE_S, Asked, _Move, measure_paced, share, split_by_worker
from bench.report import Figure, print_figures, to_json
from bench.timing import measure_latency, measure_one_way, measure_rate, percentile
from bench.usage import proportional_bytes


class Wire:
    """Carries what one peer writes to another, in pieces as small as asked."""

    def __init__(self, piece: int) -> None:
        self.piece = piece
        self.to: FramePeer | None = None
        self.writes = 0

    def write(self, data: bytes) -> None:
        self.writes += 1
        assert self.to is not None
        for at in range(0, len(data), self.piece):
            asyncio.get_running_loop().call_soon(self.to.data_received, data[at : at + self.piece])

    def close(self) -> None:
        pass


def join(one: FramePeer, other: FramePeer, piece: int = 1 << 20) -> tuple[Wire, Wire]:
    there, back = Wire(piece), Wire(piece)
    there.to, back.to = other, one
    one.connection_made(there)  # type: ignore[arg-type]
    other.connection_made(back)  # type: ignore[arg-type]
    return there, back


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
async def test_requests_are_answered_however_the_bytes_are_cut(piece: int) -> None:
    requester = Requester()
    join(requester.peer, echo(), piece)
    answers = await asyncio.gather(*[requester.request(bytes([number]) * number) for number in range(20)])
    assert answers == [bytes([number]) * number for number in range(20)]


async def test_one_write_for_each_turn_and_no_answer_to_a_message() -> None:
    requester = Requester()
    there, back = join(requester.peer, echo())
    for _ in range(10):
        requester.send(b"note")
    assert await requester.request(b"last") == b"last"
    assert (there.writes, back.writes) == (1, 1)


async def test_a_forwarder_changes_nothing() -> None:
    requester = Requester()
    inward, outward = FramePeer(lambda frame: None), FramePeer(lambda frame: None)
    forward(inward, outward)
    join(requester.peer, inward, 5)
    join(outward, echo(), 3)
    assert await requester.request(b"through") == b"through"


async def test_loops_call_as_often_as_said() -> None:
    calls = 0

    async def call() -> None:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)

    found = await measure_latency(call, 100)
    assert calls == 111
    assert 0 < found.p50_us <= found.p99_us
    calls = 0
    assert await measure_rate(call, 8, 100) > 0
    assert calls == 100
    calls = 0
    assert await measure_one_way(call, call, 100) > 0
    assert calls == 101


async def test_paced_requests_start_at_their_time_and_not_when_the_one_before_is_back() -> None:
    begun = 0
    enough = asyncio.Event()

    async def call() -> None:
        nonlocal begun
        begun += 1
        if begun == 12:
            enough.set()
        await enough.wait()

    async with asyncio.timeout(10):
        asked = await measure_paced([call, call], enough.wait)
    assert len(asked) == begun >= 12
    dues = [each.due for each in asked if each.call == 0]
    assert dues == pytest.approx([dues[0] + number * PACE_S for number in range(len(dues))], abs=0.002)
    assert len(dues) in (begun // 2, begun - begun // 2)
    assert max(each.took_s for each in asked) >= 4 * PACE_S, "the first waited for those behind it"
    assert min(each.took_s for each in asked) >= 0


def test_requests_count_for_the_workers_of_the_move_in_which_they_were_due() -> None:
    places = [("a", 0), ("a", 1), ("b", 0)]
    moves = [_Move(10.0, 11.0, {places[0], places[2]}), _Move(12.0, 13.0, {places[1], places[2]})]
    asked = [Asked(call, due, 0.001) for due in (9.0, 10.5, 11.5, 12.5) for call in range(3)]
    other, same = split_by_worker(asked, moves, places)
    assert [(each.due, each.call) for each in other] == [(10.5, 1), (12.5, 0)]
    assert [(each.due, each.call) for each in same] == [(10.5, 0), (10.5, 2), (12.5, 1), (12.5, 2)]
    assert share([Asked(0, 0.0, took / 1e3) for took in range(1, 201)]) == pytest.approx((198.0, 200.0, 200))


async def test_bare_processes_pass_on_what_they_are_asked_for() -> None:
    async with asyncio.timeout(60), bare_mover() as move:
        for octets in (1_000_001, 1, 262_144):
            await move(octets, math.inf)
        await move(1_000_001, 1e9)


def test_percentile_is_nearest_rank() -> None:
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert percentile([1.0], 0.99) == 1.0


def test_reached_and_times_worse_in_both_directions() -> None:
    slow = Figure(name="trip", value=100, unit="µs", aim=150, raw=40, bare=80)
    assert slow.reached
    assert (slow.ratio(slow.raw), slow.ratio(slow.bare)) == (2.5, 1.25)
    rate = Figure(name="rate", value=10, unit="/s", aim=20, more_is_better=True, raw=40)
    assert rate.reached is False
    assert rate.ratio(rate.raw) == 4
    assert Figure(name="plain", value=1, unit="s").reached is None


def test_the_report_names_aims_and_misses() -> None:
    figures = [
        Figure(name="trip", value=100, unit="µs", aim=150, raw=40, bare=80),
        Figure(name="rate", value=10, unit="/s", aim=20, more_is_better=True),
    ]
    out = io.StringIO()
    print_figures(figures, Console(file=out, width=150))
    text = out.getvalue()
    for word in ("trip", "≤ 150", "reached", "≥ 20", "missed", "2.50"):
        assert word in text
    rows = json.loads(to_json(figures))
    assert [row["reached"] for row in rows] == [True, False]
    assert rows[0]["times_bare"] == 1.25


def test_memory_of_processes_that_are_gone_is_nothing() -> None:
    assert proportional_bytes([2**22 + 1]) == 0
