"""The application that both languages have: a Counter whose state is bytes of its own."""

from __future__ import annotations

import asyncio
import json

from sojourn.spots.app import App
from sojourn.spots.declarations import request, send
from sojourn.spots.objects import InstanceSpot

__all__ = ["VERSION", "Counter", "app"]

VERSION = 1
app = App("counting", version=VERSION)


@app.spot
class Counter(InstanceSpot):
    """Adds up, and remembers what was added where."""

    def __init__(self) -> None:
        self.total = 0
        self.log: list[list[int | str]] = []
        self.ballast = ""
        self.unreadable = False

    def capture(self) -> bytes:
        if self.unreadable:
            return b"not JSON"
        return json.dumps({"total": self.total, "log": self.log, "ballast": self.ballast}).encode()

    def restore(self, state: bytes) -> None:
        found = json.loads(state)
        self.total, self.log, self.ballast = found["total"], found["log"], found["ballast"]

    @request
    async def add(self, by: int, number: int) -> int:
        """Add and return the new total."""
        self.total += by
        self.log.append([number, "python"])
        return self.total

    @send
    async def note(self, by: int, number: int) -> None:
        """Add without an answer."""
        self.total += by
        self.log.append([number, "python"])

    @request
    async def history(self) -> list[list[int | str]]:
        """Number and language of every addition, in order."""
        return self.log

    @request
    async def load(self, octets: int) -> None:
        """Make the state this much larger."""
        self.ballast = "x" * octets

    @request
    async def garble(self, unreadable: bool) -> None:
        """Make the captured state one that no peer can restore, or mend it."""
        self.unreadable = unreadable

    @request
    async def wait_for(self, port: int) -> int:
        """Hold this turn until a connection to the port ends."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        return self.total
