"""Targets that turned a unit away during one move, and whether another attempt makes sense.

Owns which runs are left out of the next choice, and how long is waited when nobody else is left. An attempt that ended
before its boundary has left the object where it was: nothing but time is lost with it (R4.2.8).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from sojourn.ids import NodeRun
from sojourn.workers.host_move import MoveResult

__all__ = ["PAUSE_FIRST_S", "PAUSE_MAX_S", "Refusals"]

PAUSE_FIRST_S = 0.1
"""How long is waited before those that refused are asked again; each time twice as long."""
PAUSE_MAX_S = 2.0


class Refusals:
    """See the module text. One for each move that may choose its target.

    Args:
        until: on the loop's clock; from then on nothing can be sealed any more (B8.2).

    Attributes:
        runs: left out of the choice.
    """

    __slots__ = ("_left", "_loop", "_pause_s", "_refused", "_texts", "_until", "runs")

    def __init__(self, until: float, loop: asyncio.AbstractEventLoop) -> None:
        self._until = until
        self._loop = loop
        self._pause_s = PAUSE_FIRST_S
        self._refused = False
        self._left = True
        self._texts: dict[str, None] = {}
        self.runs: set[NodeRun] = set()

    def add(self, run: NodeRun, why: str) -> None:
        """This run did not take it."""
        self._refused = True
        self.runs.add(run)
        self._texts[why] = None

    def nobody_left(self) -> None:
        """Everybody else cannot be a target: those that refused are asked again, if there are any."""
        self._refused = bool(self.runs)
        self._left = False

    async def another(self) -> bool:
        """Whether the move is to be tried again, now: after a refusal, while there is time. Waits first if nobody
        else is left; the object serves on meanwhile."""
        refused, self._refused = self._refused, False
        if not refused or self._loop.time() >= self._until:
            return False
        if not self._left:
            self._left = True
            self.runs.clear()
            await asyncio.sleep(min(self._pause_s, max(0.0, self._until - self._loop.time())))
            self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        return self._loop.time() < self._until

    def named(self, result: MoveResult) -> MoveResult:
        """The result, with what those said that had refused before, if it fails for want of a target."""
        if result.reason != "TargetUnavailable" or not self._texts:
            return result
        self._texts[result.detail] = None
        return replace(result, detail="; ".join(self._texts))
