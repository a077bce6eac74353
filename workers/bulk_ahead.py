"""State on its way over one link: handed on a little at a time, so that others get in between.

Owns the frames of state that wait. What the writer and the kernel have goes out in the order of the calls: a record
sent now stands behind it. The buffers of a TCP connection hold megabytes when the peer reads more slowly than this
side writes, so a ping behind the state tells how far it has read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from sojourn.workers.stream import Piece

__all__ = ["BULK_AHEAD_OCTETS", "UNREAD_OCTETS", "BulkAhead"]

BULK_AHEAD_OCTETS = 256 * 1024
"""Most octets of state that are in front of a record that is sent now, and not yet with the kernel."""

UNREAD_OCTETS = 1024 * 1024
"""Most octets of state, or one larger frame, that were handed on and that the peer is not known to have read. So
much for each round trip: 1 GB/s where it takes 1 ms."""

_OnWritten: TypeAlias = Callable[[bool], None]


class BulkAhead:
    """The frames of state of one link, in order. `send` is the writer's `send_parts`; `ask` asks the peer for a sign
    behind everything sent so far.

    Every `on_written` is called exactly once, in order: True when the kernel has the frame, False when the
    connection broke first.
    """

    __slots__ = ("_ahead", "_ask", "_open", "_send", "_unasked", "_unread", "_waiting")

    def __init__(
        self,
        send: Callable[[Sequence[Piece], _OnWritten], None],
        ask: Callable[[], asyncio.Future[bool]],
    ) -> None:
        self._send = send
        self._ask = ask
        self._unread = 0
        self._unasked = 0
        """Of those that are unread: behind which no sign was asked for yet."""
        self._waiting: deque[tuple[Sequence[Piece], int, _OnWritten]] = deque()
        self._ahead = 0
        self._open = True

    def put(self, pieces: Sequence[Piece], octets: int, on_written: _OnWritten) -> None:
        """Send a frame of `octets` when those before it are with the kernel."""
        self._waiting.append((pieces, octets, on_written))
        self._feed()

    def hurry(self) -> None:
        """The link says goodbye: what was accepted goes out now, whole."""
        while self._waiting:
            self._hand_over(*self._waiting.popleft())

    def fail(self) -> None:
        """The connection is over: nothing that still waits here was written. To be called behind the writer's
        own end, so that those it had are told first."""
        self._open = False
        waiting, self._waiting = self._waiting, deque()
        for _, _, on_written in waiting:
            on_written(False)

    def _feed(self) -> None:
        waiting = self._waiting
        while (
            waiting
            and _fits(self._ahead, waiting[0][1], BULK_AHEAD_OCTETS)
            and _fits(self._unread, waiting[0][1], UNREAD_OCTETS)
        ):
            self._hand_over(*waiting.popleft())
            if self._unasked >= UNREAD_OCTETS // 2:
                self._ask_for_a_sign()
        if waiting and self._unasked and not _fits(self._unread, waiting[0][1], UNREAD_OCTETS):
            self._ask_for_a_sign()

    def _ask_for_a_sign(self) -> None:
        octets, self._unasked = self._unasked, 0

        def read(_: asyncio.Future[bool]) -> None:
            self._unread -= octets
            if self._open:
                self._feed()

        self._ask().add_done_callback(read)

    def _hand_over(self, pieces: Sequence[Piece], octets: int, on_written: _OnWritten) -> None:
        self._ahead += octets
        self._unread += octets
        self._unasked += octets

        def told(written: bool) -> None:
            self._ahead -= octets
            try:
                on_written(written)
            finally:
                if written and self._open:
                    self._feed()

        self._send(pieces, told)


def _fits(used: int, octets: int, limit: int) -> bool:
    return not used or used + octets <= limit
