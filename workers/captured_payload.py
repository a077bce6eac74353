"""The payload of one handoff at its source: kept whole in memory from its capture to the boundary (R4.2.1).

Owns the captured pieces and how they go out under the node's budget for payloads in flight (R5.4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sojourn.errors import Unavailable
from sojourn.wire import AttemptFrames
from sojourn.workers.budget import Budget
from sojourn.workers.debt import Retention
from sojourn.workers.link import Link
from sojourn.workers.payload_memory import Kept, PayloadMemory

__all__ = ["CapturedPayload"]


class CapturedPayload:
    """What a worker captured, piece by piece; each piece becomes one chunk.

    Attributes:
        chunks: the pieces in order; a new list once they were released.
    """

    def __init__(
        self, frames: AttemptFrames, budget: Budget, retention: Retention, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._frames = frames
        self._budget = budget
        self._retention = retention
        self._loop = loop
        self._whole: asyncio.Future[None] = loop.create_future()
        self._memory = PayloadMemory(retention.blocks)
        self.chunks: list[Kept] = []

    @property
    def octets(self) -> int:
        """Octets kept in memory, 0 once the payload is released (R4.4.3)."""
        return sum(map(len, self.chunks))

    def take(self, last: bool, piece: memoryview) -> None:
        """A piece came from the worker."""
        if len(piece) or not last:
            self.chunks.append(self._memory.keep(piece))
            self._retention.keep(len(piece))
        if last and not self._whole.done():
            self._whole.set_result(None)

    async def whole(self) -> None:
        """Wait for the last piece.

        Raises:
            Unavailable: the worker ended before it.
        """
        await self._whole

    def worker_lost(self) -> bool:
        """The worker that captures ended. True when the payload is lost with it: it is not whole yet.

        Asked for every participant of a unit, and the same is true of all of them.
        """
        if not self._whole.done():
            self._whole.set_exception(Unavailable("the worker ended while it captured"))
        return self._whole.exception() is not None

    def release(self) -> None:
        """Nothing needs the payload any more."""
        self._retention.free(self.octets)
        chunks, self.chunks = self.chunks, []
        self._memory.release(chunks, self._loop)

    # sending ------------------------------------------------------------------------------------

    def send_at_once(self, link: Link) -> bool:
        """Send a payload of one chunk if the budget has room now."""
        if len(self.chunks) != 1 or not self._budget.take(link.peer, len(self.chunks[0])):
            return False
        self._send(link, 0, self.chunks[0])
        return True

    def send(self, link: Link, stands: Callable[[], bool]) -> Awaitable[bool]:
        """Send the chunks kept now as the budget has room. False: link or payload were gone before the last."""
        return self._send_all(link, self.chunks, stands)

    async def _send_all(self, link: Link, chunks: list[Kept], stands: Callable[[], bool]) -> bool:
        for ordinal, chunk in enumerate(chunks):
            await self._budget.wait(link.peer, len(chunk))
            if not stands() or self.chunks is not chunks:
                self._budget.free(link.peer, len(chunk))
                return False
            self._send(link, ordinal, chunk)
        return self.chunks is chunks  # a payload that was released meanwhile has no further ones

    def _send(self, link: Link, ordinal: int, chunk: Kept) -> None:
        budget, peer, octets = self._budget, link.peer, len(chunk)
        head = self._frames.state_head(ordinal, octets)
        link.send_bulk([[head, chunk]], lambda _: budget.free(peer, octets))
