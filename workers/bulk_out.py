"""A payload on its way from this supervisor into a worker, no faster than the worker takes it.

Owns the chunks that wait. What is behind a socket's buffer waits here, where others get their turn, and not in
the transport, which would write and let go of a hundred megabytes in one turn of the loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

__all__ = ["STEP_OCTETS", "BulkOut"]

STEP_OCTETS = 256 * 1024
"""What goes out in one turn of the loop, or one larger chunk: some 100 µs of copying."""


class BulkPool(Protocol):
    """What is needed of the pool."""

    def send_bulk(self, worker: int, handoff: int, last: bool, chunk: bytes | memoryview) -> bool: ...
    def bulk_room(self, worker: int) -> bool: ...
    async def wait_bulk_room(self, worker: int) -> None: ...


class BulkOut:
    """One payload for one worker. `start` runs a task that somebody owns.

    What is put goes out at once up to `STEP_OCTETS`; from then on a task sends so much in each turn of the loop in
    which the worker has room, however much waits and however fast the worker takes it.
    """

    def __init__(
        self,
        pool: BulkPool,
        worker: int,
        handoff: int,
        start: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._pool = pool
        self._worker = worker
        self._handoff = handoff
        self._start = start
        self._waiting: deque[tuple[bool, bytes | memoryview]] = deque()
        self._room = STEP_OCTETS
        self._sending = False

    def put(self, chunk: bytes | memoryview) -> None:
        """Send the next chunk when its time comes."""
        self._add(False, chunk)

    def end(self) -> None:
        """Send the frame that says that the payload is whole, behind everything put before."""
        self._add(True, b"")

    def stop(self) -> None:
        """Send nothing more."""
        self._waiting.clear()

    def _add(self, last: bool, chunk: bytes | memoryview) -> None:
        self._waiting.append((last, chunk))
        if not self._sending:
            self._send_some()
            if self._waiting:
                self._sending = True
                self._start(self._send_rest())

    def _send_some(self) -> None:
        waiting, whole = self._waiting, self._room == STEP_OCTETS
        while waiting and (whole or len(waiting[0][1]) <= self._room) and self._pool.bulk_room(self._worker):
            last, chunk = waiting.popleft()
            whole = False
            self._room = max(0, self._room - len(chunk))
            if not self._pool.send_bulk(self._worker, self._handoff, last, chunk):
                waiting.clear()  # the worker is gone: the end of its calls tells whom it concerns

    async def _send_rest(self) -> None:
        while self._waiting:
            await self._pool.wait_bulk_room(self._worker)
            self._room = STEP_OCTETS
            self._send_some()
        self._sending = False
