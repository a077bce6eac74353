"""The application: one kind of object, an aircraft.

This is all that a user of Sojourn writes; the rest of the demo feeds it and checks it. Nothing here
says where an aircraft lives or that it moves.
"""

from __future__ import annotations

import sojourn as sj

from examples.flights.logbook import Flight, Logbook

__all__ = ["Aircraft", "app"]

app = sj.App("flights", version=1)


@app.spot
class Aircraft(sj.InstanceSpot):
    """One aircraft, made by its first message; its id is its tail number."""

    def __init__(self) -> None:
        self.logbook = Logbook()

    @sj.request
    async def fly(self, flight: Flight) -> int:
        """Enter one flight; returns how many messages were entered."""
        self.logbook.enter(flight)
        return len(self.logbook.order)

    @sj.request
    async def read_logbook(self) -> Logbook:
        """Everything written down so far."""
        return self.logbook

    @sj.timer(every=5.0)
    async def count(self, tick: sj.Tick) -> None:
        """Count up; a move may neither repeat nor leave out a tick."""
        self.logbook.tick(tick.delivery_index)
