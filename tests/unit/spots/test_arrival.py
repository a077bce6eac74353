"""A large state gives others their turn: it is checked in steps where it leaves, and laid down as it comes in."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
import sojourn as sj
from sojourn.control import Captured
from sojourn.spots.arrival import APART_OCTETS_MIN, Arrival
from sojourn.spots.moving import CHECKED_OCTETS
from sojourn.wire.envelope import decode_envelope, find_first_state

from tests.unit.spots.worlds import World, settle

app = sj.App("arrival", version=1)
LARGE = bytes(range(256)) * (APART_OCTETS_MIN // 256 + 3)


@app.actor
class Mixed(sj.Actor):
    def __init__(self) -> None:
        self.small = b"little"
        self.first = LARGE + b"1"
        self.array = bytearray(LARGE + b"2")
        self.packed = [str(number) for number in range(1000)]
        self.below = LARGE[: APART_OCTETS_MIN - 1]
        self.last = LARGE[::-1]

    @sj.request
    async def weigh(self) -> int:
        return len(self.last)


@app.actor
class Own(sj.Actor):
    def __init__(self) -> None:
        self.blob = LARGE

    def capture(self) -> bytes:
        return self.blob

    def restore(self, state: bytes) -> None:
        self.blob = state


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(app)
    yield world
    await world.close()


async def captured(world: World, cls: type, name: str = "a") -> bytes:
    host = world.host(name)
    world.make(host, cls, "x")
    world.seal(host, cls, "x", chunk_limit=1 << 30)
    await settle()
    return world.captured(host)


def arrived(envelope: bytes, chunk: int) -> Arrival:
    arrival = Arrival(len(envelope))
    for at in range(0, len(envelope), chunk):
        buffer = bytearray(envelope[at : at + chunk])
        arrival.take(memoryview(buffer))
        buffer[:] = bytes(len(buffer))  # it is used again
    assert arrival.filled == len(envelope)
    return arrival


@pytest.mark.parametrize("chunk", [1 << 30, 1 << 18, 65_537, 4_099])
async def test_large_values_have_their_own_memory_and_the_rest_is_an_envelope(
    world: World, chunk: int
) -> None:
    envelope = await captured(world, Mixed)
    rest, apart = arrived(envelope, chunk).finish()
    assert sorted(map(len, apart.values())) == [len(LARGE), len(LARGE) + 1, len(LARGE) + 1]
    assert {type(value) for value in apart.values()} == {bytes, bytearray}
    assert len(rest) == len(envelope) - sum(map(len, apart.values()))
    (state,) = decode_envelope(rest).application_states
    (whole,) = decode_envelope(envelope).application_states
    assert state.state is not None
    assert whole.state is not None
    assert len(whole.state) - len(state.state) == sum(map(len, apart.values()))


@pytest.mark.parametrize(("cls", "chunk"), [*itertools.product([Mixed, Own], [1 << 18, 4_099])])
async def test_what_arrives_is_what_was_captured(world: World, cls: type, chunk: int) -> None:
    envelope = await captured(world, cls)
    there = world.host("b")
    assert world.restore(there, cls, "x", envelope, chunk=chunk).error is None
    moved: Any = there.cells[b"ax"].instance
    for name, value in vars(cls()).items():
        assert getattr(moved, name) == value
        assert type(getattr(moved, name)) is type(value)


async def test_a_beginning_that_does_not_tell_leaves_the_envelope_whole(world: World) -> None:
    envelope = await captured(world, Mixed)
    place = find_first_state(memoryview(envelope))
    assert place is not None
    for chunk in (place.start, place.start + 20):  # the head of the state is in the second one
        rest, apart = arrived(envelope, chunk).finish()
        assert (bytes(rest), apart) == (envelope, {})
    for at in (place.lengths_at + 8, place.start, place.start + 30):
        spoilt = bytearray(envelope)
        spoilt[at : at + 4] = b"\xff\xff\xff\xff"
        rest, apart = arrived(bytes(spoilt), 1 << 18).finish()
        assert (bytes(rest), apart) == (spoilt, {})


async def test_octets_beyond_what_was_announced_are_only_counted(world: World) -> None:
    envelope = await captured(world, Mixed)
    arrival = Arrival(len(envelope) - 1)
    arrival.take(memoryview(envelope))
    assert arrival.filled == len(envelope)
    there = world.host("b")
    answer = world.restore(there, Mixed, "x", envelope[:-1] + b"!")
    assert answer.error is not None


async def test_a_large_capture_is_checked_in_steps_between_which_others_have_their_turn(world: World) -> None:
    here, there = world.host("a"), world.host("b")
    for name in ("x", "other"):
        world.make(here, Mixed, name)
    instance: Any = here.cells[b"ax"].instance
    instance.first = bytes(range(256)) * (12 * CHECKED_OCTETS // 256)
    world.seal(here, Mixed, "x", chunk_limit=1 << 18)
    answer = asyncio.ensure_future(here.references.actor(Mixed, "other").request(Mixed.weigh))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not world.port("a").controls(Captured)
    assert answer.result() == len(LARGE)
    await settle()
    assert world.restore(there, Mixed, "x", world.captured(here), chunk=1 << 18).error is None
    moved: Any = there.cells[b"ax"].instance
    assert moved.first == instance.first
