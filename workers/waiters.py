"""Everybody who waits for one condition, woken together to look at it again."""

from __future__ import annotations

import asyncio

__all__ = ["Waiters"]


class Waiters:
    """Callers inside one event loop; True while somebody waits.

    Whoever is woken looks whether what it waits for holds now: another may have been there first.
    """

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: list[asyncio.Future[None]] = []

    def __bool__(self) -> bool:
        return bool(self._futures)

    async def wait(self) -> None:
        """Return after the next `wake`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures.append(future)
        await future

    def wake(self) -> None:
        """Let everybody go on who waits now."""
        futures, self._futures = self._futures, []
        for future in futures:
            if not future.done():
                future.set_result(None)
