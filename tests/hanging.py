"""Ends async tests that wait forever, and says what each task was waiting for."""

from __future__ import annotations

import asyncio
import functools
import linecache
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

__all__ = ["limited"]


def limited(
    function: Callable[..., Coroutine[Any, Any, None]], limit_s: float
) -> Callable[..., Coroutine[Any, Any, None]]:
    """A test that fails after `limit_s` seconds with the stacks of all tasks as they were then."""

    @functools.wraps(function)
    async def run(*arguments: Any, **named: Any) -> None:
        test = asyncio.current_task()
        assert test is not None
        stacks: list[str] = []

        def expire() -> None:
            stacks.extend(stack_of(task) for task in asyncio.all_tasks())
            test.cancel()

        alarm = asyncio.get_running_loop().call_later(limit_s, expire)
        try:
            await function(*arguments, **named)
        except asyncio.CancelledError:
            if not stacks:
                raise
        finally:
            alarm.cancel()
        if stacks:
            pytest.fail(f"not done after {limit_s:g} s\n" + "\n".join(stacks), pytrace=False)

    return run


def stack_of(task: asyncio.Task[Any]) -> str:
    """Where a task waits, from its outermost coroutine to the innermost."""
    lines = [repr(task)]
    waiting: Any = task.get_coro()
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        code = frame.f_code
        text = linecache.getline(code.co_filename, frame.f_lineno).strip()
        lines.append(f"  {code.co_filename}:{frame.f_lineno} in {code.co_qualname}: {text}")
        waiting = waiting.cr_await
    return "\n".join(lines)
