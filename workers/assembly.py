"""The payload of one handoff at its target, as its chunks come in (R4.3.2).

Owns the chunks and the checksum over all of them; what a wrong one means is the machine's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from sojourn.wire.checksum import checksum
from sojourn.workers.debt import Retention
from sojourn.workers.letting_go import let_go

__all__ = ["Assembly"]


class Assembly:
    """The chunks taken in so far, by offset. `checksum` is the CRC-32C of them in order."""

    def __init__(self, retention: Retention, loop: asyncio.AbstractEventLoop) -> None:
        self._retention = retention
        self._loop = loop
        self._chunks: dict[int, bytes] = {}
        self.checksum = 0

    def store(self, offset: int, data: bytes) -> None:
        """Keep the next chunk."""
        self._chunks[offset] = data
        self._retention.keep(len(data))
        self.checksum = checksum(data, self.checksum)

    def same(self, offset: int, data: bytes) -> bool:
        """Whether a chunk that came again is the one that is kept."""
        return self._chunks.get(offset) == data

    def chunks(self) -> Iterable[bytes]:
        """What is kept, in order."""
        return self._chunks.values()

    def clear(self) -> None:
        """The chunks are not needed any more; the checksum stays."""
        self._retention.free(sum(map(len, self._chunks.values())))
        chunks, self._chunks = self._chunks, {}
        let_go(chunks.values(), self._loop)
