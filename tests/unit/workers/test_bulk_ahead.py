"""State on a link stands in front of other frames only a little at a time, and each of its frames ends once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sojourn.workers.bulk_ahead import BULK_AHEAD_OCTETS, BulkAhead
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
        self.bulk = BulkAhead(self.writer.send_parts)
        self.told: list[tuple[bytes, bool]] = []

    def put(self, name: bytes, octets: int) -> None:
        self.bulk.put((name,), octets, lambda written: self.told.append((name, written)))


def test_the_writer_has_no_more_than_the_bound_and_gets_the_next_when_the_kernel_has_the_first() -> None:
    sending = Sending()
    for name in (b"a", b"b", b"c", b"d"):
        sending.put(name, HALF)
    assert sending.writer.names == [b"a", b"b"]
    sending.writer.end(True)
    assert sending.writer.names == [b"b", b"c"]
    for _ in range(3):
        sending.writer.end(True)
    assert sending.told == [(b"a", True), (b"b", True), (b"c", True), (b"d", True)]


def test_a_frame_above_the_bound_goes_alone_and_a_small_one_does_not_overtake_it() -> None:
    sending = Sending()
    sending.put(b"large", 3 * BULK_AHEAD_OCTETS)
    sending.put(b"large too", 3 * BULK_AHEAD_OCTETS)
    sending.put(b"small", 1)
    assert sending.writer.names == [b"large"]
    sending.writer.end(True)
    assert sending.writer.names == [b"large too"]
    sending.writer.end(True)
    assert sending.writer.names == [b"small"]


def test_a_goodbye_lets_everything_out_at_once_in_order() -> None:
    sending = Sending()
    for name in (b"a", b"b", b"c", b"d"):
        sending.put(name, HALF)
    sending.bulk.hurry()
    assert sending.writer.names == [b"a", b"b", b"c", b"d"]


def test_at_the_end_every_frame_is_told_once_in_order_and_nothing_more_is_sent() -> None:
    sending = Sending()
    for name in (b"a", b"b", b"c", b"d"):
        sending.put(name, HALF)
    sending.writer.end(False)
    sending.writer.end(False)
    assert not sending.writer.given
    sending.bulk.fail()
    assert sending.told == [(name, False) for name in (b"a", b"b", b"c", b"d")]
