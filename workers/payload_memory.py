"""Memory for payloads that are kept whole: a copy of each piece, in blocks that one payload after the other uses.

Owns where the pieces of large payloads lie. As hundreds of separate `bytes` they would cost a page fault for every
4 KiB, the larger part of keeping them, and the allocator gives all of them back in one go when the last one ends, in
which nobody else has a turn. Objects move one after the other when a node is drained: blocks wait a while for the
next payload and go back to the system one by one.
"""

from __future__ import annotations

import asyncio
import mmap
from typing import TypeAlias

from sojourn.workers.letting_go import let_go

__all__ = ["BLOCK_OCTETS", "SPARE_S", "Blocks", "Kept", "PayloadMemory"]

Kept: TypeAlias = bytes | memoryview
"""A piece that is kept: read only. Its memory is not used otherwise as long as somebody holds it."""

BLOCK_OCTETS = 2 * 1024 * 1024
"""One block; a larger piece gets memory of its own."""

SPARE_S = 5.0
"""A block that nobody needed for so long goes back to the system, at the latest after twice as long."""

_SMALL_OCTETS = 1024 * 1024


class Blocks:
    """The blocks of one process that no payload uses at the moment."""

    __slots__ = ("_not_needed", "_spare", "_timer")

    def __init__(self) -> None:
        self._spare: list[mmap.mmap] = []
        self._not_needed = 0
        """Fewest that were spare since the timer was set."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def octets(self) -> int:
        """What is kept for the next payload."""
        return len(self._spare) * BLOCK_OCTETS

    def take(self) -> mmap.mmap:
        """A block that nobody looks at."""
        while self._spare:
            block = self._spare.pop()
            self._not_needed = min(self._not_needed, len(self._spare))
            if _is_free(block):
                return block
        return mmap.mmap(-1, BLOCK_OCTETS, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def give_back(self, blocks: list[mmap.mmap], loop: asyncio.AbstractEventLoop) -> None:
        """A payload does not need them any more. A transport may still read from one: it is left to it."""
        self._spare += blocks
        if self._timer is None and self._spare:
            self._arm(loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._not_needed = len(self._spare)
        self._timer = loop.call_later(SPARE_S, self._expire, loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        count = self._not_needed
        expired, self._spare = self._spare[:count], self._spare[count:]
        let_go(expired, loop)
        if self._spare:
            self._arm(loop)


class PayloadMemory:
    """The pieces of one payload. The first MiB is kept as plain `bytes`: most payloads are smaller."""

    __slots__ = ("_at", "_blocks", "_mine", "_small", "_view")

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._mine: list[mmap.mmap] = []
        self._view = memoryview(b"")
        self._at = 0
        self._small = _SMALL_OCTETS

    def keep(self, piece: bytes | memoryview) -> Kept:
        """A copy of `piece`."""
        octets = len(piece)
        if octets <= self._small:
            self._small -= octets
            return bytes(piece)
        if octets > BLOCK_OCTETS:
            return bytes(piece)
        if octets > len(self._view) - self._at:
            block = self._blocks.take()
            self._mine.append(block)
            self._view, self._at = memoryview(block), 0
        at, self._at = self._at, self._at + octets
        kept = self._view[at : self._at]
        kept[:] = piece
        return kept.toreadonly()

    def release(self, kept: list[Kept], loop: asyncio.AbstractEventLoop) -> None:
        """The payload is not needed any more; `kept`, which is emptied, has the only references to its pieces."""
        plain = [piece for piece in kept if isinstance(piece, bytes)]
        kept.clear()
        let_go(plain, loop)
        mine, self._mine, self._view, self._at = self._mine, [], memoryview(b""), 0
        self._blocks.give_back(mine, loop)


def _is_free(block: mmap.mmap) -> bool:
    """True when no view of `block` exists: memory that somebody looks at cannot change its size."""
    try:
        block.resize(BLOCK_OCTETS)
    except (BufferError, SystemError, OSError, ValueError):  # or this system cannot change the size of any
        return False
    return True
