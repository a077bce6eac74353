"""In-flight payload budgets of a sending node (R5.4): per peer connection and for the node.

Owns the charges. A chunk is charged when it is submitted and freed when the transport has let go of it. A
payload larger than a budget still starts and finishes: the first chunk of an empty budget always fits.
"""

from __future__ import annotations

import asyncio
from collections import deque

from sojourn.ids import NodeRun

__all__ = ["Budget"]


class Budget:
    """Both budgets; 0 = off. Waiters are served in order."""

    def __init__(self, per_peer: int, per_node: int) -> None:
        self._per_peer = per_peer
        self._per_node = per_node
        self._used: dict[NodeRun, int] = {}
        self._total = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    def used(self, peer: NodeRun) -> int:
        """Octets charged for one peer."""
        return self._used.get(peer, 0)

    @property
    def total(self) -> int:
        """Octets charged in all."""
        return self._total

    def _fits(self, peer: NodeRun, octets: int) -> bool:
        used = self._used.get(peer, 0)
        peer_fits = not self._per_peer or not used or used + octets <= self._per_peer
        node_fits = not self._per_node or not self._total or self._total + octets <= self._per_node
        return peer_fits and node_fits

    def take(self, peer: NodeRun, octets: int) -> bool:
        """Charge at once if it fits and nobody waits."""
        if self._waiters or not self._fits(peer, octets):
            return False
        self._charge(peer, octets)
        return True

    def _charge(self, peer: NodeRun, octets: int) -> None:
        self._used[peer] = self._used.get(peer, 0) + octets
        self._total += octets

    async def wait(self, peer: NodeRun, octets: int) -> None:
        """Charge as soon as it fits."""
        while not self._fits(peer, octets):
            await self._changed()
        self._charge(peer, octets)

    async def wait_room(self, peer: NodeRun) -> None:
        """Wait until a new unit may start: before its seal, while it still works (R5.4)."""
        while not self._fits(peer, 1):
            await self._changed()

    async def _changed(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def free(self, peer: NodeRun, octets: int) -> None:
        """The transport has let go of a chunk, or its connection broke (B8.14)."""
        left = self._used.get(peer, 0) - octets
        if left > 0:
            self._used[peer] = left
        else:
            self._used.pop(peer, None)
        self._total -= octets
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
