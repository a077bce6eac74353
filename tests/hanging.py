"""Ends tests that never end, and says what they were waiting for.

`limited` cancels an async test on its own loop, so that the others go on. `Watchdog` is for the rest: a blocked
loop, a fixture that never comes back, an event loop that cannot be closed. It ends the whole process; under
pytest-xdist that one test is reported as crashed, and another worker takes over.
"""

from __future__ import annotations

import asyncio
import faulthandler
import functools
import linecache
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

__all__ = ["Watchdog", "limited"]


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


class Watchdog:
    """Ends this process when what was announced takes too long; shows where every thread stands.

    Unlike pytest's own alarms it stays armed when a test has failed and its fixtures are being put away.

    Args:
        output: descriptor that the stacks are written to; kept open.
    """

    def __init__(self, output: int) -> None:
        self._output = output
        self._changed = threading.Condition()
        self._limit_s: float | None = None
        self._name = ""
        threading.Thread(target=self._watch, name="watchdog of the tests", daemon=True).start()

    def expect(self, name: str, limit_s: float | None) -> None:
        """Announce something that takes `limit_s` seconds at most; None: nothing is running."""
        with self._changed:
            self._name, self._limit_s = name, limit_s
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while True:
                if self._changed.wait(self._limit_s) or self._limit_s is None:
                    continue
                os.write(self._output, f"\n{self._name}: not over after {self._limit_s:g} s\n".encode())
                faulthandler.dump_traceback(self._output)
                os._exit(70)
