"""Knowing when a child process has ended, without asking again and again.

Owns one waiting descriptor per child (`pidfd` on Linux, a waiting thread elsewhere). A zombie is dead: the
descriptor wakes when the process ends, whoever reaps it and whenever. It must not know what the child does.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable

__all__ = ["ExitWatch"]


class ExitWatch:
    """Waits for the end of one child of this process, and reaps it.

    `reap` is called once, when the child has ended, and returns its exit code: negative for a signal.
    """

    def __init__(self, pid: int, reap: Callable[[], int]) -> None:
        self.pid = pid
        self._reap = reap
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[int] = self._loop.create_future()
        self._descriptor = -1
        if hasattr(os, "pidfd_open"):
            self._descriptor = os.pidfd_open(pid)
            self._loop.add_reader(self._descriptor, self._ended)
        else:
            threading.Thread(target=self._wait_elsewhere, name=f"exit of {pid}", daemon=True).start()

    @property
    def exit_code(self) -> int | None:
        """Exit code, None while the process runs."""
        return self._exited.result() if self._exited.done() else None

    def when_done(self, callback: Callable[[int], object]) -> None:
        """Call back in the loop with the exit code."""
        self._exited.add_done_callback(lambda exited: callback(exited.result()))

    async def wait(self, timeout_s: float | None = None) -> int | None:
        """Exit code, or None when the process still runs after `timeout_s`."""
        if not self._exited.done():
            await asyncio.wait((self._exited,), timeout=timeout_s)
        return self.exit_code

    def send_signal(self, number: int) -> None:
        """Send a signal to the process if it has not ended; never to a process that got its id later."""
        if not self._exited.done():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return  # ended and reaped just now

    def _ended(self) -> None:
        self.close()
        if not self._exited.done():
            self._exited.set_result(self._reap())

    def _wait_elsewhere(self) -> None:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        try:
            self._loop.call_soon_threadsafe(self._ended)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    def close(self) -> None:
        """Stop watching; the child is not touched."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
