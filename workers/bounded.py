"""Many waits of one kind, a few at a time.

Owns nothing but the limit: a hundred thousand reads asked of a store at once are a hundred thousand tasks and as many
answers in memory, and everybody else's read waits behind them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

__all__ = ["AT_ONCE", "in_turn"]

AT_ONCE = 16
"""How many of them wait at the same time."""
T = TypeVar("T")


async def in_turn(items: Iterable[T], work: Callable[[T], Awaitable[None]], at_once: int = AT_ONCE) -> None:
    """Await `work(item)` for every item, in their order, at most `at_once` of them at the same time.

    Raises:
        ExceptionGroup: what `work` raised; what had not begun by then is not begun.
    """
    left = iter(items)

    async def run() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(run())
