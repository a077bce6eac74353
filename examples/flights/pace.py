"""Spreads messages evenly over time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

__all__ = ["Pace"]

_SLACK_S = 0.002
"""Shorter waits are left out: an event loop's timer is no finer."""


class Pace:
    """Says when the next message may go.

    Args:
        rate: messages per second; 0 means at once.
        now: a clock in seconds.
        sleep: waits that many seconds.
    """

    def __init__(
        self, rate: float, now: Callable[[], float], sleep: Callable[[float], Awaitable[object]]
    ) -> None:
        self._interval_s = 1.0 / rate if rate > 0 else 0.0
        self._now = now
        self._sleep = sleep
        self._due = now()

    async def wait_turn(self) -> None:
        """Wait until the next message is due. A sender that fell behind catches up without a wait."""
        if not self._interval_s:
            return
        self._due += self._interval_s
        ahead = self._due - self._now()
        if ahead > _SLACK_S:
            await self._sleep(ahead)
