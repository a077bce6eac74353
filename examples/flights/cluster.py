"""The fleet on a real cluster: translates the demo's wishes into calls of Sojourn."""

from __future__ import annotations

import time

import sojourn as sj

from examples.flights.aircraft import Aircraft
from examples.flights.fleet import Emptied, Move
from examples.flights.logbook import Flight, Logbook
from examples.flights.settings import Settings

__all__ = ["ClusterFleet"]


class ClusterFleet:
    """A `Fleet` on a running cluster."""

    def __init__(self, cluster: sj.LocalCluster, settings: Settings) -> None:
        self._cluster = cluster
        self._request_timeout_s = settings.request_timeout_s
        self._empty_timeout_s = settings.empty_timeout_s

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self._cluster.nodes)

    async def fly(self, flight: Flight) -> None:
        """Send one flight to its aircraft and wait for the answer."""
        await self._aircraft(flight.tailnum).request(Aircraft.fly, flight)

    async def read_logbook(self, tailnum: str) -> Logbook:
        """What an aircraft wrote down."""
        return await self._aircraft(tailnum).request(Aircraft.read_logbook)

    async def move(self, tailnum: str, node: int) -> Move:
        """Move one aircraft to a node."""
        result = await self._aircraft(tailnum).relocate(to=self._cluster.nodes[node])
        if result.outcome != "moved":
            return Move(result.outcome, result.reason)
        return Move("moved", interruption_s=result.interruption_ns / 1e9 or None)

    async def empty(self, node: int) -> Emptied:
        """Move everything off a node, then let it serve again."""
        handle = self._cluster.nodes[node]
        started = time.monotonic()
        result = await handle.relocate(mode="PlannedMaintenance", deadline=self._empty_timeout_s)
        took_s = time.monotonic() - started
        await handle.uncordon()
        return Emptied(
            node=handle.rid,
            outcome=result.outcome,
            reason=result.reason,
            moved=result.moved,
            stayed=tuple(Move(unit.outcome, _reason(unit)) for unit in result.stayed),
            interruptions_s=tuple(ns / 1e9 for ns in result.interruptions_ns),
            took_s=took_s,
        )

    def _aircraft(self, tailnum: str) -> sj.SpotRef[Aircraft]:
        return self._cluster.client.spot(Aircraft, tailnum).with_timeout(self._request_timeout_s)


def _reason(unit: sj.StayedUnit) -> str:
    """Why an aircraft stayed, without its name: equal reasons are counted together."""
    detail = unit.detail.replace(unit.object, "the aircraft")
    return f"{unit.reason}: {detail}" if detail else unit.reason
