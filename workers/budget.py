"""In-flight payload budgets of a sending node (R5.4): per peer connection and for the node.

Owns the charges. A chunk is charged when it is submitted and freed when the transport has let go of it. A
payload larger than a budget still starts and finishes: the first chunk of an empty budget always fits.
"""

from __future__ import annotations

import asyncio
from collections import deque

from sojourn.ids import NodeRun

__all__ = ["Budget"]


class _Waiter:
    __slots__ = ("charge", "future", "octets", "peer")

    def __init__(self, peer: NodeRun, octets: int, charge: bool, future: asyncio.Future[None]) -> None:
        self.peer = peer
        self.octets = octets
        self.charge = charge
        self.future = future


class Budget:
    """Both budgets; 0 = off. Who waits for the same connection is served in order."""

    def __init__(self, per_peer: int, per_node: int) -> None:
        self._per_peer = per_peer
        self._per_node = per_node
        self._used: dict[NodeRun, int] = {}
        self._total = 0
        self._waiters: deque[_Waiter] = deque()

    def used(self, peer: NodeRun) -> int:
        """Octets charged for one peer."""
        return self._used.get(peer, 0)

    @property
    def total(self) -> int:
        """Octets charged for the whole node."""
        return self._total

    def _fits(self, peer: NodeRun, octets: int) -> bool:
        used = self._used.get(peer, 0)
        peer_fits = not self._per_peer or not used or used + octets <= self._per_peer
        node_fits = not self._per_node or not self._total or self._total + octets <= self._per_node
        return peer_fits and node_fits

    def take(self, peer: NodeRun, octets: int) -> bool:
        """Charge at once if it fits and nobody waits for the same connection."""
        if any(waiter.peer == peer for waiter in self._waiters) or not self._fits(peer, octets):
            return False
        self._charge(peer, octets)
        return True

    def _charge(self, peer: NodeRun, octets: int) -> None:
        self._used[peer] = self._used.get(peer, 0) + octets
        self._total += octets

    async def wait(self, peer: NodeRun, octets: int) -> None:
        """Charge as soon as it fits."""
        if not self.take(peer, octets):
            await self._turn(peer, octets, charge=True)

    async def wait_room(self, peer: NodeRun) -> None:
        """Wait until a new unit may start: before its seal, while it still works (R5.4)."""
        if any(waiter.peer == peer for waiter in self._waiters) or not self._fits(peer, 1):
            await self._turn(peer, 1, charge=False)

    async def _turn(self, peer: NodeRun, octets: int, *, charge: bool) -> None:
        waiter = _Waiter(peer, octets, charge, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            await waiter.future
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                self._serve()
            elif charge:
                self.free(peer, octets)  # it was served while it was being cancelled
            raise

    def free(self, peer: NodeRun, octets: int) -> None:
        """The transport has let go of a chunk, or its connection broke (B8.14)."""
        left = self._used.get(peer, 0) - octets
        if left > 0:
            self._used[peer] = left
        else:
            self._used.pop(peer, None)
        self._total -= octets
        self._serve()

    def _serve(self) -> None:
        full: set[NodeRun] = set()
        waiting, self._waiters = self._waiters, deque()
        for waiter in waiting:
            if waiter.peer in full or not self._fits(waiter.peer, waiter.octets):
                full.add(waiter.peer)
                self._waiters.append(waiter)
                continue
            if waiter.charge:
                self._charge(waiter.peer, waiter.octets)
            if not waiter.future.done():
                waiter.future.set_result(None)
