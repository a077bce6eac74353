"""State on a link stands in front of other frames only a little at a time, and each of its frames ends once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sojourn.workers.bulk_ahead import BULK_AHEAD_OCTETS, UNREAD_OCTETS, BulkAhead
from sojourn.workers.stream import Piece

HALF = BULK_AHEAD_OCTETS // 2


class Writer:
    """Has what it was given until it is told that the kernel took it."""

    def __init__(self) -> None:
        self.given: list[tuple[bytes, Callable[[bool], None]]] = []

    def send_parts(self, pieces: Sequence[Piece], on_written: Callable[[bool], None]) -> None:
        self.given.append((bytes(pieces[0]), on_written))

    @property
    def names(self) -> list[bytes]:
        return [name for name, _ in self.given]

    def end(self, written: bool) -> None:
        _, on_written = self.given.pop(0)
        on_written(written)


class Sending:
    def __init__(self) -> None:
        self.writer = Writer()
        self.signs: list[asyncio.Future[bool]] = []
        self.bulk = BulkAhead(self.writer.send_parts, self.ask)
        self.told: list[tuple[bytes, bool]] = []

    def ask(self) -> asyncio.Future[bool]:
        self.signs.append(asyncio.get_running_loop().create_future())
        return self.signs[-1]

    async def read_on(self) -> None:
        """The peer answers the oldest question."""
        self.signs.pop(0).set_result(True)
        await asyncio.sleep(0)

    def write_all(self) -> int:
        """The kernel takes what it is given; returns the frames."""
        frames = 0
        while self.writer.given:
            self.writer.end(True)
            frames += 1
        return frames

    def put(self, name: bytes, octets: int) -> None:
        self.bulk.put((name,), octets, lambda written: self.told.append((name, written)))


async def test_the_writer_has_no_more_than_the_bound_and_gets_the_next_when_the_kernel_has_the_first() -> (
    None
):
    sending = Sending()
    for name in (b"a", b"b", b"c", b"d"):
        sending.put(name, HALF)
    assert sending.writer.names == [b"a", b"b"]
    sending.writer.end(True)
    assert sending.writer.names == [b"b", b"c"]
    for _ in range(3):
        sending.writer.end(True)
    assert sending.told == [(b"a", True), (b"b", True), (b"c", True), (b"d", True)]


async def test_a_frame_above_the_bound_goes_alone_and_a_small_one_does_not_overtake_it() -> None:
    sending = Sending()
    sending.put(b"large", 3 * BULK_AHEAD_OCTETS)
    sending.put(b"large too", 3 * BULK_AHEAD_OCTETS)
    sending.put(b"small", 1)
    assert sending.writer.names == [b"large"]
    sending.writer.end(True)
    assert not sending.writer.given
    await sending.read_on()
    assert sending.writer.names == [b"large too"]
    sending.writer.end(True)
    await sending.read_on()
    assert sending.writer.names == [b"small"]


async def test_a_goodbye_lets_everything_out_at_once_in_order() -> None:
    sending = Sending()
    for name in (b"a", b"b", b"c", b"d"):
        sending.put(name, HALF)
    sending.bulk.hurry()
    assert sending.writer.names == [b"a", b"b", b"c", b"d"]


async def test_at_the_end_every_frame_is_told_once_in_order_and_nothing_more_is_sent() -> None:
    sending = Sending()
    for name in (b"a", b"b", b"c", b"d"):
        sending.put(name, HALF)
    sending.writer.end(False)
    sending.writer.end(False)
    assert not sending.writer.given
    sending.bulk.fail()
    assert sending.told == [(name, False) for name in (b"a", b"b", b"c", b"d")]


async def test_no_more_is_with_the_kernel_than_the_peer_may_have_unread() -> None:
    sending = Sending()
    many = 8 * UNREAD_OCTETS // HALF
    for number in range(many):
        sending.put(b"%d" % number, HALF)
    window = UNREAD_OCTETS // HALF
    assert sending.write_all() == window
    assert len(sending.signs) == 2
    for _ in range(3):
        await sending.read_on()
        assert sending.write_all() == window // 2
    while sending.signs:
        await sending.read_on()
        sending.write_all()
    assert sending.told == [(b"%d" % number, True) for number in range(many)]


async def test_a_rest_that_was_not_asked_for_does_not_stop_a_large_frame_for_ever() -> None:
    sending = Sending()
    sending.put(b"rest", 1)
    sending.put(b"large", 2 * UNREAD_OCTETS)
    assert sending.write_all() == 1
    assert len(sending.signs) == 1
    await sending.read_on()
    assert sending.writer.names == [b"large"]


async def test_small_states_ask_for_nothing() -> None:
    sending = Sending()
    for _ in range(10):
        sending.put(b"small", 1000)
        sending.write_all()
    assert not sending.signs
    assert len(sending.told) == 10
