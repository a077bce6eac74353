"""Timers on virtual time: schedules, policies, cancelling, repeats, what a tick tells (B4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import sojourn as sj
from sojourn.control import Admission
from sojourn.spots.host import ObjectHost

from tests.unit.spots.worlds import START_UNIX_MS, World, settle

app = sj.App("timers")


@app.spot
class Clockwork(sj.InstanceSpot):
    def __init__(self) -> None:
        self.ticks: list[tuple[int, int, int]] = []
        self.all: list[sj.Tick] = []
        self.gate: asyncio.Event | None = None

    async def _take(self, tick: sj.Tick) -> None:
        self.ticks.append((tick.delivery_index, tick.scheduled_index, tick.skipped))
        self.all.append(tick)
        if self.gate is not None:
            await self.gate.wait()

    @sj.timer
    async def tick(self, tick: sj.Tick) -> None:
        await self._take(tick)

    @sj.timer
    async def failing(self, tick: sj.Tick) -> None:
        await self._take(tick)
        raise ValueError("tick failed")

    @sj.request
    async def block(self) -> None:
        self.gate = asyncio.Event()
        await self.gate.wait()
        self.gate = None

    @sj.request
    async def start(self, settings: dict[str, Any]) -> None:
        self.start_timer(Clockwork.tick, **settings)

    @sj.request
    async def start_failing(self, settings: dict[str, Any]) -> None:
        self.start_timer(Clockwork.failing, **settings)

    @sj.request
    async def start_closure(self) -> None:
        async def closure(tick: sj.Tick) -> None: ...

        self.start_timer(closure)  # type: ignore[arg-type]

    @sj.request
    async def cancel(self, name: str) -> bool:
        return self.cancel_timer(name)


@app.actor
class Pulse(sj.Actor):
    beats = 0

    @sj.timer(every=0.5)
    async def beat(self, tick: sj.Tick) -> None:
        self.beats = tick.scheduled_index


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(app)
    yield world
    await world.close()


@pytest.fixture
async def host(world: World) -> ObjectHost:
    host = world.host()
    world.make(host, Clockwork, "w")
    return host


@pytest.fixture
async def clockwork(host: ObjectHost) -> Clockwork:
    instance = host.cells[b"sw"].instance
    assert isinstance(instance, Clockwork)
    return instance


@pytest.fixture
async def reference(host: ObjectHost) -> sj.SpotRef[Clockwork]:
    return host.references.spot(Clockwork, "w")


async def test_declared_timer_starts_with_its_object(world: World) -> None:
    host = world.host()
    world.make(host, Pulse, "p")
    await world.clock.advance(1.6)
    pulse: Any = host.cells[b"ap"].instance
    assert pulse.beats == 3


async def test_tick_tells_what_it_is(
    world: World, clockwork: Clockwork, reference: sj.SpotRef[Clockwork]
) -> None:
    await reference.request(Clockwork.start, {"name": "t", "every": 0.2, "after": 1, "payload": (1, "x")})
    await world.clock.advance(1.3)
    assert clockwork.ticks == [(1, 1, 0), (2, 2, 0)]
    assert clockwork.all[1] == sj.Tick("t", 2, 2, 0, START_UNIX_MS + 1200, START_UNIX_MS + 1200, (1, "x"))


async def test_single_tick(world: World, clockwork: Clockwork, reference: sj.SpotRef[Clockwork]) -> None:
    await reference.request(Clockwork.start, {"after": 2})
    await world.clock.advance(1.9)
    assert clockwork.ticks == []
    await world.clock.advance(10)
    assert clockwork.ticks == [(1, 1, 0)]
    assert await reference.request(Clockwork.cancel, "tick") is False


async def test_repeat_count(world: World, clockwork: Clockwork, reference: sj.SpotRef[Clockwork]) -> None:
    await reference.request(Clockwork.start, {"every": 1, "repeat": 3})
    await world.clock.advance(10)
    assert [index for index, _, _ in clockwork.ticks] == [1, 2, 3]


async def blocked(
    world: World, clockwork: Clockwork, reference: sj.SpotRef[Clockwork], seconds: float
) -> None:
    """Keep the object busy for a time, then let it go on."""
    busy = asyncio.ensure_future(reference.request(Clockwork.block))
    await world.clock.advance(seconds)
    assert clockwork.gate is not None
    clockwork.gate.set()
    await busy
    await settle()


async def test_skip_late_runs_the_newest_due_tick(
    world: World, clockwork: Clockwork, reference: sj.SpotRef[Clockwork]
) -> None:
    await reference.request(Clockwork.start, {"every": 1})
    await blocked(world, clockwork, reference, 4.5)
    assert clockwork.ticks == [(1, 4, 3)]
    assert clockwork.all[0].scheduled_at_ms == START_UNIX_MS + 4000
    await world.clock.advance(1)
    assert clockwork.ticks[1:] == [(2, 5, 0)]


async def test_skip_late_after_a_long_callback(
    world: World, clockwork: Clockwork, reference: sj.SpotRef[Clockwork]
) -> None:
    await reference.request(Clockwork.start, {"every": 1})
    clockwork.gate = asyncio.Event()
    await world.clock.advance(3.5)
    assert clockwork.ticks == [(1, 1, 0)]
    clockwork.gate.set()
    await settle()
    await world.clock.advance(0)
    assert clockwork.ticks == [(1, 1, 0), (2, 3, 1)]


async def test_catch_up_runs_all_in_order_up_to_its_limit(
    world: World, clockwork: Clockwork, reference: sj.SpotRef[Clockwork]
) -> None:
    await reference.request(Clockwork.start, {"every": 1, "overrun": "catch_up", "max_catch_up": 3})
    await blocked(world, clockwork, reference, 6.5)
    await world.clock.advance(0)
    # The tick made at the first instant waits as it is; of the five later ones the newest three are run.
    assert clockwork.ticks == [(1, 1, 0), (2, 4, 2), (3, 5, 0), (4, 6, 0)]
    await world.clock.advance(0.5)
    assert clockwork.ticks[-1] == (5, 7, 0)


async def test_delay_next_counts_from_the_end(
    world: World, clockwork: Clockwork, reference: sj.SpotRef[Clockwork]
) -> None:
    await reference.request(Clockwork.start, {"every": 1, "overrun": "delay_next"})
    clockwork.gate = asyncio.Event()
    await world.clock.advance(2.5)
    clockwork.gate.set()
    clockwork.gate = None
    await settle()
    await world.clock.advance(0.9)
    assert clockwork.ticks == [(1, 1, 0)]
    await world.clock.advance(0.2)
    assert clockwork.ticks == [(1, 1, 0), (2, 2, 0)]
    assert clockwork.all[1].scheduled_at_ms == START_UNIX_MS + 3500


async def test_cancelled_timer_never_fires_again(
    world: World, clockwork: Clockwork, reference: sj.SpotRef[Clockwork]
) -> None:
    await reference.request(Clockwork.start, {"every": 1})
    busy = asyncio.ensure_future(reference.request(Clockwork.block))
    cancelled = asyncio.ensure_future(reference.request(Clockwork.cancel, "tick"))
    await world.clock.advance(1.5)  # a tick waits behind the cancel
    assert clockwork.gate is not None
    clockwork.gate.set()
    assert await cancelled is True
    await busy
    await world.clock.advance(5)
    assert clockwork.ticks == []


async def test_restart_under_the_same_name_begins_anew(
    world: World, clockwork: Clockwork, reference: sj.SpotRef[Clockwork]
) -> None:
    await reference.request(Clockwork.start, {"every": 1})
    await world.clock.advance(2.5)
    await reference.request(Clockwork.start, {"every": 2})
    await world.clock.advance(2.1)
    assert clockwork.ticks == [(1, 1, 0), (2, 2, 0), (1, 1, 0)]


async def test_failing_tick(
    world: World, clockwork: Clockwork, reference: sj.SpotRef[Clockwork], caplog: pytest.LogCaptureFixture
) -> None:
    await reference.request(Clockwork.start_failing, {"every": 1})
    await reference.request(Clockwork.start_failing, {"every": 1, "name": "once", "stop_on_error": True})
    await world.clock.advance(2.5)
    assert [tick.name for tick in clockwork.all] == ["failing", "once", "failing"]
    assert "tick failed" in caplog.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs every="),
        ({"every": 0}, "at least 0.001 s"),
        ({"every": "1"}, "number of seconds"),
        ({"every": 1, "overrun": "never"}, "overrun is one of skip_late, catch_up, delay_next"),
        ({"every": 1, "repeat": 0}, "repeat is 1 or more"),
        ({"every": 1, "max_catch_up": 0}, "max_catch_up is 1 or more"),
        ({"every": 1, "name": ""}, "1 to 255 bytes"),
        ({"every": 1, "name": "ä" * 128}, "1 to 255 bytes"),
    ],
)
async def test_bad_settings_are_named(
    reference: sj.SpotRef[Clockwork], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(sj.InternalFailure, match=message):
        await reference.request(Clockwork.start, settings)


async def test_closure_is_refused_with_the_way_out(reference: sj.SpotRef[Clockwork]) -> None:
    with pytest.raises(sj.InternalFailure, match=r"declared in Clockwork with @sj\.timer.*Clockwork\.tick"):
        await reference.request(Clockwork.start_closure)


async def test_payload_does_not_alias(
    world: World, host: ObjectHost, clockwork: Clockwork, reference: sj.SpotRef[Clockwork]
) -> None:
    given = [1]
    clockwork.start_timer(Clockwork.tick, every=1, payload=given)
    given.append(2)
    await world.clock.advance(1)
    assert clockwork.all[0].payload == [1]


async def test_one_loop_timer_for_all(world: World, host: ObjectHost) -> None:
    for number in range(50):
        world.make(host, Clockwork, f"n{number}")
        host.references.spot(Clockwork, f"n{number}")
        await host.references.spot(Clockwork, f"n{number}").request(Clockwork.start, {"every": 1 + number})
    # One for all timers, one for the admission deadline.
    assert world.clock.armed == 2


async def test_no_tick_past_the_admission_deadline(
    world: World, host: ObjectHost, clockwork: Clockwork, reference: sj.SpotRef[Clockwork]
) -> None:
    await reference.request(Clockwork.start, {"every": 1000})
    await world.clock.advance(4500)
    assert [index for _, index, _ in clockwork.ticks] == [1, 2, 3]
    host.receive_control(Admission(world.clock.boottime_ns() + 10**12))
    await world.clock.advance(0)
    assert clockwork.ticks[3:] == [(4, 4, 0)]


async def test_wall_clock_step(world: World, clockwork: Clockwork, reference: sj.SpotRef[Clockwork]) -> None:
    await reference.request(Clockwork.start, {"every": 1})
    await world.clock.advance(1)
    world.clock.wall_step_ms = 5000
    await world.clock.advance(1)
    assert clockwork.ticks == [(1, 1, 0), (2, 7, 5)]
