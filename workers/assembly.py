"""The payload of one handoff at its target, as its chunks come in (R4.3.2).

Owns the chunks and the checksum over all of them; what a wrong one means is the machine's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from sojourn.wire.checksum import checksum
from sojourn.workers.debt import Retention
from sojourn.workers.payload_memory import Kept, PayloadMemory

__all__ = ["Assembly"]


class Assembly:
    """The chunks taken in so far, by offset. `checksum` is the CRC-32C of them in order."""

    def __init__(self, retention: Retention, loop: asyncio.AbstractEventLoop) -> None:
        self._retention = retention
        self._loop = loop
        self._chunks: dict[int, Kept] = {}
        self._memory = PayloadMemory(retention.blocks)
        self.checksum = 0

    def store(self, offset: int, data: bytes | memoryview) -> Kept:
        """Keep a copy of the next chunk; returns the copy."""
        kept = self._chunks[offset] = self._memory.keep(data)
        self._retention.keep(len(kept))
        self.checksum = checksum(kept, self.checksum)
        return kept

    def same(self, offset: int, data: bytes | memoryview) -> bool:
        """Whether a chunk that came again is the one that is kept."""
        return self._chunks.get(offset) == data

    def chunks(self) -> Iterable[Kept]:
        """What is kept, in order."""
        return self._chunks.values()

    def clear(self) -> None:
        """The chunks are not needed any more; the checksum stays."""
        self._retention.free(sum(map(len, self._chunks.values())))
        chunks, self._chunks = list(self._chunks.values()), {}
        self._memory.release(chunks, self._loop)
