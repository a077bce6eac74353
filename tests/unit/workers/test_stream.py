"""Frames on a stream: cutting in place, batches, and what is known about octets at the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sojourn.errors import ProtocolError
from sojourn.frames import LENGTH
from sojourn.workers.stream import LARGE_FRAME, FrameReader, FrameWriter, Piece


def framed(*bodies: bytes) -> bytes:
    return b"".join(LENGTH.pack(len(body)) + body for body in bodies)


def push(reader: FrameReader, octets: bytes, step: int) -> None:
    """Give octets the way a transport does: at most `step` at a time, and what the buffer has room for."""
    at = 0
    while at < len(octets):
        space = reader.get_buffer()
        assert len(space) > 0
        part = octets[at : at + min(step, len(space))]
        space[: len(part)] = part
        del space
        reader.buffer_updated(len(part))
        at += len(part)


bodies_strategy = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=40),
        st.integers(LARGE_FRAME - 2, LARGE_FRAME + 2).map(lambda size: bytes((size % 251,)) * size),
        st.integers(LARGE_FRAME, 600_000).map(lambda size: bytes((size % 241,)) * size),
    ),
    max_size=8,
)


@given(bodies_strategy, st.sampled_from([1000, 4096, 65536, 65540, 262_144, 10_000_000]))
def test_every_frame_comes_out_whole_and_in_order(bodies: list[bytes], step: int) -> None:
    got: list[Piece] = []
    reader = FrameReader(got.append, 1_000_000)
    push(reader, framed(*bodies), step)
    assert [bytes(body) for body in got] == bodies  # also those kept while later ones arrived
    assert all(isinstance(body, bytes) == (len(body) <= LARGE_FRAME) for body in got)
    assert reader.held == 0


@given(st.lists(st.binary(min_size=1, max_size=10), max_size=10), st.integers(1, 30))
def test_small_frames_split_anywhere(bodies: list[bytes], step: int) -> None:
    got: list[Piece] = []
    push(FrameReader(got.append, 1000), framed(*bodies), step)
    assert got == bodies


def test_what_follows_a_handshake_is_fed() -> None:
    got: list[Piece] = []
    reader = FrameReader(got.append, 1_000_000)
    octets = framed(b"one", bytes(500_000), b"two")
    reader.feed(octets[:400_000])
    push(reader, octets[400_000:], 65536)
    assert [len(body) for body in got] == [3, 500_000, 3]


def test_a_large_buffer_is_used_again_only_when_nobody_holds_it() -> None:
    kept: list[Piece] = []
    addresses: list[int] = []

    def deliver(body: Piece) -> None:
        assert isinstance(body, memoryview)
        assert body.readonly
        addresses.append(id(body.obj))
        if len(addresses) == 2:
            kept.append(body[10:20])

    reader = FrameReader(deliver, 1_000_000)
    for value in range(5):
        push(reader, framed(bytes((value,)) * 200_000), 65536)
    first, second, third, fourth, fifth = addresses
    assert first == second
    assert third != second
    assert third == fourth == fifth
    assert bytes(kept[0]) == bytes((1,)) * 10


@pytest.mark.parametrize("octets", [b"\x00\x00\x00\x00", LENGTH.pack(1001) + b"x"])
@pytest.mark.parametrize("before", [b"", framed(b"good")])
def test_empty_and_oversized_frames_are_protocol_errors(octets: bytes, before: bytes) -> None:
    got: list[Piece] = []
    with pytest.raises(ProtocolError, match="1 to 1000"):
        push(FrameReader(got.append, 1000), before + octets, 100)
    assert got == ([b"good"] if before else [])


class FakeTransport(asyncio.Transport):
    """Takes at most `room` octets at once, like a kernel buffer; `drain` makes room."""

    def __init__(self, room: int = 1 << 30) -> None:
        super().__init__()
        self.room = room
        self.writer: FrameWriter | None = None
        self.writes: list[bytes] = []
        self.held = 0
        self.limits: tuple[Any, Any] = (None, None)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (high, low)

    def write(self, data: Any) -> None:
        octets = bytes(data)
        self.writes.append(octets)
        taken = min(self.room, len(octets))
        self.room -= taken
        self.held += len(octets) - taken
        if self.held and self.writer is not None:
            self.writer.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def drain(self) -> None:
        self.held = 0
        self.room = 1 << 30
        assert self.writer is not None
        self.writer.resume_writing()


def attached(transport: FakeTransport) -> FrameWriter:
    writer = FrameWriter(asyncio.get_running_loop())
    transport.writer = writer
    writer.attach(transport)
    return writer


async def turn() -> None:
    await asyncio.sleep(0)


async def test_one_write_per_loop_turn() -> None:
    transport = FakeTransport()
    writer = attached(transport)
    assert transport.limits == (0, 0)
    for number in range(100):
        writer.send(b"%d" % number)
    assert transport.writes == []
    assert writer.octets == sum(len(b"%d" % number) for number in range(100))
    await turn()
    assert transport.writes == [framed(*(b"%d" % number for number in range(100)))]
    assert writer.octets == 0
    await turn()
    assert len(transport.writes) == 1


async def test_large_pieces_are_not_joined() -> None:
    seen: list[list[Piece]] = []

    class Recording(FakeTransport):
        def writelines(self, list_of_data: Any) -> None:
            seen.append(list(list_of_data))

    chunk = memoryview(bytearray(100_000))
    writer = attached(Recording())
    writer.send(b"before")
    writer.send_parts((b"head", chunk))
    writer.send(b"after")
    await turn()
    ((first, middle, last),) = seen
    assert first == framed(b"before") + LENGTH.pack(100_004) + b"head"
    assert middle is chunk
    assert last == framed(b"after")


async def test_written_is_told_when_the_transport_is_empty() -> None:
    told: list[tuple[str, bool]] = []
    transport = FakeTransport(room=10)
    writer = attached(transport)
    writer.send_parts((b"0123456789",), lambda done: told.append(("first", done)))
    writer.send_parts((b"second",), lambda done: told.append(("second", done)))
    await turn()
    writer.send_parts((b"third",), lambda done: told.append(("third", done)))
    await turn()
    assert told == []  # one batch: the kernel has a part of it
    assert len(transport.writes) == 1
    transport.drain()
    assert told == [("first", True), ("second", True), ("third", True)]
    assert transport.writes[1] == framed(b"third")


async def test_a_turn_writes_one_batch() -> None:
    transport = FakeTransport()
    writer = attached(transport)
    for _ in range(3):
        writer.send(bytes(700_000))
    await turn()
    assert [len(written) for written in transport.writes] == [1_400_008]
    await turn()
    assert [len(written) for written in transport.writes] == [1_400_008, 700_004]


async def test_the_end_reports_what_was_never_handed_over() -> None:
    told: list[bool] = []
    transport = FakeTransport(room=5)
    writer = attached(transport)
    writer.send(b"handed over")
    writer.send_parts((b"handed over too",), told.append)
    await turn()
    writer.send(b"waits")
    writer.send_parts((b"waits too",), told.append)
    writer.send(b"waits as well")
    await turn()
    assert writer.close() == [b"waits", b"waits as well"]
    assert told == [False, False]
    assert writer.octets == 0
    await turn()
    assert len(transport.writes) == 1


@pytest.mark.allow_loop_errors
async def test_a_callback_that_raises_does_not_hide_the_others() -> None:
    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    told: list[bool] = []
    writer = attached(FakeTransport())

    def broken(written: bool) -> None:
        raise ValueError("mine")

    writer.send_parts((b"one",), broken)
    writer.send_parts((b"two",), told.append)
    await turn()
    assert told == [True]
    assert [str(error) for error in errors] == ["mine"]


async def test_frames_sent_before_the_connection_go_out_with_it() -> None:
    writer = FrameWriter(asyncio.get_running_loop())
    writer.send(b"early")
    await turn()
    transport = FakeTransport()
    writer.attach(transport)
    await turn()
    assert transport.writes == [framed(b"early")]
