"""How a node or a command is asked to stop from outside: SIGTERM, Ctrl-C, or the end of its launcher.

Owns the meaning of the first and the second request: the first is graceful, the second quick. It must not know
what is stopped.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from types import TracebackType
from typing import Self

__all__ = ["StopRequests"]

logger = logging.getLogger("sojourn.node")


class StopRequests:
    """Counts requests to stop; a context manager that takes the signals while it is open.

    Args:
        interrupt: Ctrl-C counts too. A node whose launcher is in the same terminal leaves Ctrl-C to it.
    """

    def __init__(self, *, interrupt: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._numbers = [signal.SIGTERM, signal.SIGINT] if interrupt else [signal.SIGTERM]
        self.graceful = asyncio.Event()
        self.quick = asyncio.Event()
        self.timeout_s: float | None = None
        """Limit that came with the first request, None = the default."""

    def request(self, reason: str, timeout_s: float | None = None) -> None:
        """Ask to stop. The second request makes it quick."""
        if self.graceful.is_set():
            self.request_quick(reason)
            return
        logger.info("stopping: %s", reason)
        self.timeout_s = timeout_s
        self.graceful.set()

    def request_quick(self, reason: str) -> None:
        """Ask to stop without waiting for running work."""
        logger.info("stopping at once: %s", reason)
        self.graceful.set()
        self.quick.set()

    def __enter__(self) -> Self:
        for number in self._numbers:
            self._loop.add_signal_handler(number, self.request, signal.Signals(number).name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in self._numbers:
            self._loop.remove_signal_handler(number)
