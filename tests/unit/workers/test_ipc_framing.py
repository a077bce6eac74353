"""Frames survive every way a stream can cut them, in both event loops' transports."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from sojourn.errors import InvalidOperation, ProtocolError
from sojourn.frames import LENGTH
from sojourn.workers.framing import BULK_AHEAD_OCTETS, VIEW_OCTETS, FrameChannel, attach


class Ends:
    """Both ends of one connected channel, and what the receiving end saw."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.viewed: list[bytes] = []
        self.closed: list[BaseException | None] = []
        self._awaited: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    def take(self, body: bytes) -> None:
        self.received.append(body)
        self.check()

    def take_view(self, view: memoryview) -> None:
        self.viewed.append(bytes(view))
        self.check()

    def end(self, failure: BaseException | None) -> None:
        self.closed.append(failure)
        self.check()

    def check(self) -> None:
        for condition, waiter in self._awaited:
            if condition() and not waiter.done():
                waiter.set_result(None)

    async def until(self, condition: Callable[[], bool]) -> None:
        if not condition():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._awaited.append((condition, waiter))
            async with asyncio.timeout(10):
                await waiter


@asynccontextmanager
async def connected(
    ends: Ends, *, views: bool = False, octets_max: int = 1 << 24
) -> AsyncIterator[tuple[FrameChannel, FrameChannel]]:
    loop = asyncio.get_running_loop()
    left, right = socket.socketpair()
    _, sender = await loop.create_unix_connection(
        lambda: FrameChannel(lambda _: None, lambda _: None), sock=left
    )
    _, receiver = await loop.create_unix_connection(
        lambda: FrameChannel(
            ends.take, ends.end, on_view=ends.take_view if views else None, frame_octets_max=octets_max
        ),
        sock=right,
    )
    try:
        yield sender, receiver
    finally:
        sender.abort()
        receiver.abort()
        await asyncio.gather(sender.wait_closed(), receiver.wait_closed())


def receiver_alone(ends: Ends, octets_max: int = 1 << 22) -> FrameChannel:
    return FrameChannel(ends.take, ends.end, frame_octets_max=octets_max)


def feed(channel: FrameChannel, stream: bytes, sizes: Callable[[], int]) -> None:
    at = 0
    while at < len(stream):
        room = channel.get_buffer(-1)
        assert len(room) > 0
        taken = min(len(room), sizes(), len(stream) - at)
        room[:taken] = stream[at : at + taken]
        channel.buffer_updated(taken)
        at += taken


@pytest.mark.parametrize("seed", range(12))
async def test_any_cut_of_the_stream_gives_the_same_frames(seed: int) -> None:
    chance = random.Random(seed)
    bodies = [
        chance.randbytes(chance.choice([1, 2, 60, 500, 65_530, 65_536, 70_000, 700_000]))
        for _ in range(chance.randint(1, 60))
    ]
    stream = b"".join(LENGTH.pack(len(body)) + body for body in bodies)
    ends = Ends()
    largest = chance.choice([1 << 20, 3_000, 70_000])
    feed(receiver_alone(ends), stream, lambda: chance.randint(1, largest))
    assert ends.received == bodies


async def test_one_octet_at_a_time() -> None:
    ends = Ends()
    bodies = [b"a", b"bc" * 40, b"d"]
    feed(receiver_alone(ends), b"".join(LENGTH.pack(len(b)) + b for b in bodies), lambda: 1)
    assert ends.received == bodies


async def test_a_burst_arrives_in_order_and_large_frames_as_views() -> None:
    ends = Ends()
    async with connected(ends, views=True) as (sender, _):
        large = bytes(range(256)) * 4096
        for number in range(5_000):
            sender.send(b"%d" % number)
        sender.send_parts([b"head", memoryview(large)])
        sender.send(b"last")
        await ends.until(lambda: len(ends.received) == 5_001)
        assert ends.received == [b"%d" % number for number in range(5_000)] + [b"last"]
        assert ends.viewed == [b"head" + large]
        sender.close()
        await ends.until(lambda: bool(ends.closed))
        assert ends.closed == [None]


async def test_large_frames_let_other_connections_have_their_turn() -> None:
    """Two streams of large frames to one loop: neither has to wait until the other is at its end."""
    order: list[str] = []
    streams = {"one": Ends(), "two": Ends()}
    async with (
        connected(streams["one"]) as (first, _),
        connected(streams["two"]) as (second, _),
    ):
        for name, ends in streams.items():
            check = ends.check
            ends.check = lambda name=name, check=check: (order.append(name), check())  # type: ignore[method-assign,misc,assignment]
        for _ in range(20):
            first.send(bytes(4 * VIEW_OCTETS))
            second.send(bytes(4 * VIEW_OCTETS))
        for ends in streams.values():
            await ends.until(lambda ends=ends: len(ends.received) == 20)  # type: ignore[misc]
    assert order.index("two") < 20
    assert order.index("one") < 20
    assert {"one", "two"} == set(order[:20])


async def test_reading_that_was_paused_by_its_owner_stays_paused_after_a_large_frame() -> None:
    ends = Ends()
    async with connected(ends) as (sender, receiver):

        def take(body: bytes) -> None:
            receiver.pause_reading()
            ends.take(body)

        receiver.on_frame = take
        for _ in range(2):
            sender.send(bytes(16 * VIEW_OCTETS))  # more than one read takes
        await ends.until(lambda: len(ends.received) == 1)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(ends.received) == 1
        receiver.resume_reading()
        await ends.until(lambda: len(ends.received) == 2)


async def test_a_slow_reader_congests_its_sender_and_lets_it_go_again() -> None:
    ends = Ends()
    async with connected(ends) as (sender, receiver):
        receiver.pause_reading()
        sent = 0
        while not sender.congested:
            sender.send(bytes(VIEW_OCTETS - 1))
            sent += 1
            assert sent < 1_000
            await asyncio.sleep(0)
        waiter = asyncio.ensure_future(sender.wait_uncongested())
        await asyncio.sleep(0)
        assert not waiter.done()
        receiver.resume_reading()
        async with asyncio.timeout(10):
            await waiter
            await sender.wait_written()
        assert sender.waiting_octets == 0
        await ends.until(lambda: len(ends.received) == sent)
        sender.close()


async def test_state_leaves_room_for_what_others_send_whether_the_reader_stands_or_keeps_up() -> None:
    ends = Ends()
    piece = bytes(BULK_AHEAD_OCTETS // 2)
    async with connected(ends) as (sender, receiver):
        sent, most = 0, 0

        async def send_in_this_turn() -> asyncio.Task[None]:
            nonlocal sent, most
            before = sent
            while sender.bulk_room:
                sender.send_parts([piece])
                sent, most = sent + 1, max(most, sender.waiting_octets)
            assert 1 <= sent - before <= 2
            waiter = asyncio.ensure_future(sender.wait_bulk_room())
            for _ in range(3):
                await asyncio.sleep(0)
            return waiter

        receiver.pause_reading()
        while (waiter := await send_in_this_turn()).done():
            assert sent < 100
        assert not sender.congested  # messages are not held back by it
        receiver.resume_reading()
        async with asyncio.timeout(10):
            await waiter
            for _ in range(40):
                await (await send_in_this_turn())
        assert most < BULK_AHEAD_OCTETS + len(piece)
        await ends.until(lambda: len(ends.received) == sent)
        sender.close()


async def test_wait_written_lets_a_caller_use_its_buffer_again() -> None:
    ends = Ends()
    async with connected(ends) as (sender, _):
        buffer = bytearray(b"x" * 3_000_000)
        sender.send_parts([memoryview(buffer)])
        async with asyncio.timeout(10):
            await sender.wait_written()
        buffer[:] = b"y" * len(buffer)
        await ends.until(lambda: bool(ends.received))
        assert ends.received[0] == b"x" * 3_000_000
        sender.close()


@pytest.mark.parametrize("octets", [0, 1_001])
async def test_a_frame_of_forbidden_size_ends_the_connection(octets: int) -> None:
    ends = Ends()
    async with connected(ends, octets_max=1_000) as (sender, _):
        transport = sender.transport
        assert transport is not None
        transport.write(LENGTH.pack(5) + b"first" + LENGTH.pack(octets) + bytes(octets))
        await ends.until(lambda: bool(ends.closed))
        assert ends.received == [b"first"]
        assert isinstance(ends.closed[0], ProtocolError)


async def test_the_end_inside_a_frame_is_an_error() -> None:
    ends = Ends()
    async with connected(ends) as (sender, _):
        transport = sender.transport
        assert transport is not None
        transport.write(LENGTH.pack(500) + b"cut")
        sender.close()
        await ends.until(lambda: bool(ends.closed))
        assert isinstance(ends.closed[0], ConnectionResetError)


async def test_a_callback_that_raises_ends_the_connection_with_its_error() -> None:
    ends = Ends()
    async with connected(ends) as (sender, receiver):

        def refuse(body: bytes) -> None:
            raise ProtocolError(f"unwanted {body!r}")

        receiver.on_frame = refuse
        sender.send(b"one")
        sender.send(b"two")
        await ends.until(lambda: bool(ends.closed))
        assert [str(failure) for failure in ends.closed] == ["unwanted b'one'"]


async def test_too_large_a_send_is_refused_before_anything_is_queued() -> None:
    channel = FrameChannel(lambda _: None, lambda _: None, frame_octets_max=10)
    with pytest.raises(InvalidOperation, match="1 to 10 octets, not 11"):
        channel.send(bytes(11))
    with pytest.raises(InvalidOperation):
        channel.send_parts([])
    assert channel.waiting_octets == 0


@asynccontextmanager
async def writing_to_a_socket() -> AsyncIterator[tuple[FrameChannel, socket.socket]]:
    """A channel that knows its socket, and the other end of it, which nobody reads."""
    left, right = socket.socketpair()
    right.setblocking(False)
    channel = FrameChannel(lambda _: None, lambda _: None)
    await attach((left, channel))
    try:
        yield channel, right
    finally:
        channel.abort()
        await channel.wait_closed()
        right.close()


def read_all(end: socket.socket) -> bytes:
    octets = b""
    while True:
        try:
            octets += end.recv(1 << 20)
        except BlockingIOError:
            return octets


def framed(*bodies: bytes) -> bytes:
    return b"".join(LENGTH.pack(len(body)) + body for body in bodies)


async def test_few_frames_wait_for_the_end_of_the_loop_turn_and_many_do_not() -> None:
    async with writing_to_a_socket() as (channel, end):
        channel.send(b"one")
        assert read_all(end) == b""
        await asyncio.sleep(0)
        assert read_all(end) == framed(b"one")
        bodies = [b"%d" % number for number in range(100)]
        for body in bodies:
            channel.send(body)
        early = read_all(end)
        assert 0 < len(early) < len(framed(*bodies))
        await asyncio.sleep(0)
        assert early + read_all(end) == framed(*bodies)


async def test_what_is_sent_between_hold_and_release_needs_no_loop_turn() -> None:
    async with writing_to_a_socket() as (channel, end):
        channel.hold()
        channel.send(b"one")
        channel.send(b"two")
        assert read_all(end) == b""
        channel.release()
        assert read_all(end) == framed(b"one", b"two")
        channel.send(b"three")
        await asyncio.sleep(0)
        assert read_all(end) == framed(b"three")


async def test_what_the_kernel_does_not_take_at_once_comes_in_order() -> None:
    async with writing_to_a_socket() as (channel, end):
        bodies = [bytes([number % 251]) * 5_000 for number in range(400)]
        for body in bodies:
            channel.send(body)
        assert channel.waiting_octets > 0, "the socket is full"
        octets = b""
        async with asyncio.timeout(10):
            while len(octets) < len(framed(*bodies)):
                octets += await asyncio.get_running_loop().sock_recv(end, 1 << 20)
        assert octets == framed(*bodies)
