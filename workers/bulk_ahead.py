"""State on its way over one link: handed to the writer a little at a time, so that others get in between.

Owns the frames of state that wait. What the writer has goes out in the order of the calls; a record sent now
stands behind what is in there, so no more than `BULK_AHEAD_OCTETS` of state, or one larger frame, is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from sojourn.workers.stream import Piece

__all__ = ["BULK_AHEAD_OCTETS", "BulkAhead"]

BULK_AHEAD_OCTETS = 256 * 1024
"""Most octets of state that are in front of a record that is sent now, and not yet with the kernel."""

_OnWritten: TypeAlias = Callable[[bool], None]


class BulkAhead:
    """The frames of state of one link, in order. `send` is the writer's `send_parts`.

    Every `on_written` is called exactly once, in order: True when the kernel has the frame, False when the
    connection broke first.
    """

    __slots__ = ("_ahead", "_open", "_send", "_waiting")

    def __init__(self, send: Callable[[Sequence[Piece], _OnWritten], None]) -> None:
        self._send = send
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
        while waiting and (not self._ahead or self._ahead + waiting[0][1] <= BULK_AHEAD_OCTETS):
            self._hand_over(*waiting.popleft())

    def _hand_over(self, pieces: Sequence[Piece], octets: int, on_written: _OnWritten) -> None:
        self._ahead += octets

        def told(written: bool) -> None:
            self._ahead -= octets
            try:
                on_written(written)
            finally:
                if written and self._open:
                    self._feed()

        self._send(pieces, told)
