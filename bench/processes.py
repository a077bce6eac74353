"""Starts the processes of the references and ends them again."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import uvloop

__all__ = ["child", "run_child"]

_END_S = 5.0

Serve = Callable[..., Coroutine[Any, Any, None]]


@contextmanager
def child(serve: Serve, *arguments: Any) -> Iterator[None]:
    """Run `serve(*arguments)` in a process of its own; it is killed at the end of the block."""
    process = multiprocessing.get_context("spawn").Process(
        target=run_child, args=(serve, *arguments), daemon=True
    )
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join(_END_S)
        process.close()


def run_child(serve: Serve, *arguments: Any) -> None:
    """Entry of a child process."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(*arguments))
