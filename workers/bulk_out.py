"""A payload on its way from this supervisor into a worker, no faster than the worker takes it.

Owns the chunks that wait. What is behind a socket's buffer waits here, where others get their turn, and not in
the transport, which would write and let go of a hundred megabytes in one turn of the loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

__all__ = ["BulkOut"]


class BulkPool(Protocol):
    """What is needed of the pool."""

    def send_bulk(self, worker: int, handoff: int, last: bool, chunk: bytes | memoryview) -> bool: ...
    def congested(self, worker: int) -> bool: ...
    async def wait_uncongested(self, worker: int) -> None: ...


class BulkOut:
    """One payload for one worker. `start` runs a task that somebody owns."""

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
        self._waiting: deque[tuple[bool, bytes]] = deque()
        self._sending = False

    def put(self, chunk: bytes) -> None:
        """Send the next chunk when its time comes."""
        self._add(False, chunk)

    def end(self) -> None:
        """Send the frame that says that the payload is whole, behind everything put before."""
        self._add(True, b"")

    def stop(self) -> None:
        """Send nothing more."""
        self._waiting.clear()

    def _add(self, last: bool, chunk: bytes) -> None:
        self._waiting.append((last, chunk))
        if not self._sending:
            self._send_some()
            if self._waiting:
                self._sending = True
                self._start(self._send_rest())

    def _send_some(self) -> None:
        waiting = self._waiting
        while waiting and not self._pool.congested(self._worker):
            if not self._pool.send_bulk(self._worker, self._handoff, *waiting.popleft()):
                waiting.clear()  # the worker is gone: the end of its calls tells whom it concerns

    async def _send_rest(self) -> None:
        while self._waiting:
            await self._pool.wait_uncongested(self._worker)
            self._send_some()
        self._sending = False
