"""The application that is measured, and the driver that measures from inside a worker.

The loops run in a handler of `Driver`, so that a path is worker to worker and the client process, which
has a socket and an event loop of its own, is not part of it.
"""

from __future__ import annotations

import sojourn as sj

from bench.sizes import PAYLOAD
from bench.timing import Latency, measure_latency, measure_one_way, measure_rate

__all__ = ["Ballast", "Driver", "Echo", "Idle", "app"]

app = sj.App("bench", version=1)


@app.spot
class Echo(sj.InstanceSpot):
    """Answers."""

    @sj.request
    async def echo(self, payload: bytes) -> bytes:
        """The payload."""
        return payload

    @sj.send
    async def note(self, payload: bytes) -> None:
        """Take a message."""


@app.spot
class Idle(sj.InstanceSpot):
    """Does nothing; made to be counted and weighed."""

    @sj.request
    async def touch(self) -> None:
        """Exist."""


@app.spot
class Ballast(sj.InstanceSpot):
    """Has a state of a given size."""

    def __init__(self) -> None:
        self.state = b""

    @sj.request
    async def fill(self, size: int) -> None:
        """Take on so many bytes."""
        self.state = bytes(size)

    @sj.request
    async def weigh(self) -> int:
        """Bytes of state."""
        return len(self.state)


@app.spot
class Driver(sj.InstanceSpot):
    """Runs the measuring loops against an Echo."""

    @sj.request
    async def latency(self, echo: str, count: int) -> Latency:
        """Round trips, one at a time."""
        target = self.spot(Echo, echo)
        return await measure_latency(lambda: target.request(Echo.echo, PAYLOAD), count)

    @sj.request
    async def rate(self, echo: str, window: int, count: int) -> float:
        """Requests per second with so many in flight."""
        target = self.spot(Echo, echo)
        return await measure_rate(lambda: target.request(Echo.echo, PAYLOAD), window, count)

    @sj.request
    async def one_way(self, echo: str, count: int) -> float:
        """Messages per second without an answer."""
        target = self.spot(Echo, echo)
        return await measure_one_way(
            lambda: target.send(Echo.note, PAYLOAD), lambda: target.request(Echo.echo, PAYLOAD), count
        )
