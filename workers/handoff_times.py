"""The figures of a move (B10.7): the target tells the source when it opened, so that one side knows both ends.

Owns which figures are waited for. A figure that does not come in time is left out; nothing depends on it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from sojourn import mesh
from sojourn.control import Opened
from sojourn.workers.host_move import MoveResult

if TYPE_CHECKING:
    from sojourn.workers.source_driver import SourceDriver
    from sojourn.workers.supervisor import Supervisor
    from sojourn.workers.target_driver import TargetDriver

__all__ = ["HandoffTimes"]

TIMES_WAIT_S = 0.25
"""How long a finished move waits for the target's figures before it is reported without them."""
TIMES_KEPT_S = 60.0
"""How long figures that nobody has asked for yet are kept."""


class HandoffTimes:
    """The figures of one node's moves, by RelocationId."""

    def __init__(self, node: Supervisor) -> None:
        self._node = node
        self._times: dict[tuple[int, int], asyncio.Future[mesh.HandoffTimes]] = {}

    async def added(self, driver: SourceDriver, result: MoveResult) -> MoveResult:
        """The result of a move with its interruption, if the target's figures come in time."""
        if result.outcome != "moved" or not driver.sealed_ns:
            return result
        relocation = driver.plan.identity.relocation_id
        future = self._times.setdefault(relocation, self._node.loop.create_future())
        try:
            async with asyncio.timeout(TIMES_WAIT_S):
                times = await future
        except TimeoutError:
            return result
        finally:
            self._times.pop(relocation, None)
        ended_ns = times.first_turn_ns or times.opened_ns
        return replace(result, interruption_ns=max(0, ended_ns - driver.sealed_ns))

    def arrived(self, message: mesh.HandoffTimes) -> None:
        """The target's figures of one move."""
        relocation = (message.relocation_high, message.relocation_low)
        future = self._times.setdefault(relocation, self._node.loop.create_future())
        if not future.done():
            future.set_result(message)
            self._node.loop.call_later(TIMES_KEPT_S, self._times.pop, relocation, None)

    def tell(self, driver: TargetDriver, opened: Opened) -> None:
        """Send the figures of a move to its source."""
        identity = driver.plan.identity
        link = self._node.links.get(identity.source)
        if link is not None:
            high, low = identity.relocation_id
            link.send_control(mesh.HandoffTimes(high, low, time.monotonic_ns(), opened.first_turn_ns))
