"""The envelope of an object that arrives, piece by piece, each laid down where it stays.

Owns the memory of one arrival. A large binary value of the first participant is written into its own `bytes` or
`bytearray` as it comes in, so that restoring it is no further pass over all of it, in which no other object of the
worker has a turn. The rest becomes an envelope without those values, which are then given beside it. It must not
know what an envelope is for.
"""

from __future__ import annotations

import contextlib
import io
import mmap
from collections.abc import Callable, Iterator
from itertools import pairwise

from sojourn.errors import ProtocolError
from sojourn.spots.capture import state_within
from sojourn.spots.state import LargeValue, large_values
from sojourn.wire.envelope import StatePlace, find_first_state, shorten_first_state

__all__ = ["APART_OCTETS_MIN", "Arrival"]

APART_OCTETS_MIN = 1024 * 1024
"""From this size on a value gets its own memory as it arrives."""

_STEP_OCTETS = 1024 * 1024
_POPULATE_WRITE = 23
"""`MADV_POPULATE_WRITE` of Linux 5.14 and later, which Python does not name: pages at once, not one fault each."""


class Arrival:
    """So many octets on their way in.

    Attributes:
        length: octets announced.
        filled: octets taken so far, those beyond `length` counted as well.
    """

    __slots__ = ("_at", "_edge", "_envelope", "_place", "_sinks", "_values", "filled", "length")

    def __init__(self, length: int) -> None:
        self.length = length
        self.filled = 0
        self._sinks: Iterator[tuple[int, Callable[[memoryview], object]]] | None = None
        self._edge = 0
        self._at: Callable[[memoryview], object] = _drop
        self._envelope: _Envelope
        self._place: StatePlace | None = None
        self._values: dict[int, _Bytes | _Array] = {}

    def take(self, chunk: memoryview) -> None:
        """Lay down the next octets; `chunk` may be used otherwise afterwards."""
        if self._sinks is None:
            self._sinks = self._plan(chunk)
        at = 0
        while at < len(chunk):
            if self.filled == self._edge:
                self._edge, self._at = next(self._sinks, (self.filled + len(chunk), _drop))
            part = chunk[at : at + self._edge - self.filled]
            self._at(part)
            at += len(part)
            self.filled += len(part)

    def finish(self) -> tuple[memoryview, dict[int, bytes | bytearray]]:
        """The envelope without the values that have their own memory, and these by the number of their attribute
        of the first participant. To be called once, when `filled` is `length`."""
        envelope = self._envelope.view
        if self._place is not None:
            shorten_first_state(envelope, self._place, self.length - len(envelope))
        return envelope, {number: value.whole() for number, value in self._values.items()}

    def _plan(self, first: memoryview) -> Iterator[tuple[int, Callable[[memoryview], object]]]:
        """What the octets up to each offset are for, as the first chunk tells it."""
        values: list[LargeValue] = []
        if self.length >= APART_OCTETS_MIN:
            self._place, values = _find(first, self.length)
        self._envelope = _Envelope(self.length - sum(value.octets for value in values))
        edges: list[tuple[int, Callable[[memoryview], object]]] = []
        for value in values:
            sink = self._values[value.number] = (_Array if value.mutable else _Bytes)(value.octets)
            edges += [(value.start, self._envelope.add), (value.start + value.octets, sink.add)]
        edges.append((self.length, self._envelope.add))
        return iter(edges)


def _find(first: memoryview, length: int) -> tuple[StatePlace | None, list[LargeValue]]:
    """The large values that the first chunk announces; none when it is not as expected, which is for those to say
    who decode the whole."""
    place = find_first_state(first)
    if place is None or place.start + place.octets > length:
        return None, []
    try:
        start, state = state_within(first[place.start : place.start + place.octets])
        values = large_values(state, place.octets - start, APART_OCTETS_MIN)
    except ProtocolError:
        return None, []
    moved = [value._replace(start=place.start + start + value.start) for value in values]
    if not all(before.start + before.octets <= after.start for before, after in pairwise(moved)):
        return None, []
    return (place, moved) if moved else (None, [])


class _Envelope:
    """Everything else, in one piece. Large memory gets its pages a step at a time."""

    __slots__ = ("_area", "_end", "_ready", "view")

    def __init__(self, octets: int) -> None:
        self._end = self._ready = 0
        self._area: mmap.mmap | None = None
        if octets < _STEP_OCTETS:
            self.view = memoryview(bytearray(octets))
        else:
            self._area = mmap.mmap(-1, octets, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self.view = memoryview(self._area)

    def add(self, part: memoryview) -> None:
        end = self._end + len(part)
        while self._area is not None and self._ready < end:
            step = min(_STEP_OCTETS, len(self.view) - self._ready)
            with contextlib.suppress(OSError, ValueError):  # then each page comes when it is written
                self._area.madvise(_POPULATE_WRITE, self._ready, step)
            self._ready += step
        self.view[self._end : end] = part
        self._end = end


class _Bytes:
    """A `bytes` that is written as it arrives: its pages come one by one, and nothing copies it in the end."""

    __slots__ = ("_file", "add")

    def __init__(self, octets: int) -> None:
        self._file = io.BytesIO(bytes(octets))
        self.add = self._file.write

    def whole(self) -> bytes:
        return self._file.getvalue()


class _Array:
    """The same for a `bytearray`."""

    __slots__ = ("_array", "_end")

    def __init__(self, octets: int) -> None:
        self._array = bytearray(octets)
        self._end = 0

    def add(self, part: memoryview) -> None:
        end = self._end + len(part)
        self._array[self._end : end] = part
        self._end = end

    def whole(self) -> bytearray:
        return self._array


def _drop(part: memoryview) -> None:
    """More than was announced: it is only counted."""
