"""The one thread that talks to an SQLite file.

Owns the connection, the queue in front of it and group commit: what is waiting when the thread is free
runs in one transaction, each piece of work with its own outcome. Busy locks are waited for here and never
reach a caller. It must not know what the work does.
"""

from __future__ import annotations

import asyncio
import queue
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sojourn.location import StoreUnavailable, StoreUnknown
from sojourn.store.clock import StoreClock
from sojourn.store.limits import closed_error

__all__ = ["SqliteThread", "Work"]

T = TypeVar("T")

Work = Callable[[sqlite3.Connection, int], T]
"""Work on the connection at one store time in ms. It checks everything before it changes anything, and may
run more than once: a transaction that found the file locked is rolled back and tried again."""

GROUP_MAX = 512
"""Most pieces of work in one transaction: bounds how long another process waits for the lock."""

BUSY_PAUSE_MAX_S = 0.002
"""Longest pause between two attempts on a locked file. Pauses are random, so that writers do not march in
step; SQLite's own busy handler waits up to 100 ms between attempts."""

_BUSY_CODES = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class _Call:
    """One piece of work with the future of its caller. Whoever claims it first decides: the thread (it runs) or
    the caller (it never will)."""

    __slots__ = ("_claim", "error", "future", "loop", "result", "work", "writes")

    def __init__(self, work: Work[Any], writes: bool, loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.writes = writes
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None
        self._claim = threading.Lock()

    def claim(self) -> bool:
        return self._claim.acquire(blocking=False)

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class SqliteThread:
    """Runs work on an SQLite file: what waits at one time first all reads, then all writes in their order.

    Args:
        path: the file; its folder exists.
        prepare: work that makes tables and checks the boot, run once on each new connection.
        clock: the store's clock.
        timeout_ms: longest wait of a caller.
    """

    def __init__(self, path: Path, prepare: Work[None], clock: StoreClock, timeout_ms: int) -> None:
        self._path = path
        self._prepare = prepare
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._queue: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._last: _Call | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    async def run(self, work: Work[T], *, writes: bool) -> T:
        """Run `work` in the thread, writes inside a transaction.

        Raises:
            StoreUnavailable: nothing was changed.
            StoreUnknown: a write was started and not finished in time.
        """
        if self._closed:
            raise closed_error(str(self._path))
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="sojourn-sqlite", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        call = _Call(work, writes, loop)
        timer = loop.call_later(self._timeout_ms / 1000, self._expire, call)
        self._queue.put(call)
        try:
            result: T = await call.future
            return result
        finally:
            timer.cancel()
            # Cancelled before the thread took it: it never runs. Afterwards its outcome is unknown.
            call.claim()

    async def close(self) -> None:
        """Finish what is queued, close the file and end the thread."""
        if self._closed:
            return
        self._closed = True
        if self._thread is None:
            return
        # The last call is never run: it only brings the news that the thread has ended.
        last = self._last = _Call(self._prepare, False, asyncio.get_running_loop())
        self._queue.put(last)
        # Shielded: the thread ends also when the closing task is cancelled.
        await asyncio.shield(last.future)
        self._thread.join()

    def _expire(self, call: _Call) -> None:
        name = f"the store {self._path}"
        if call.claim():
            call.error = StoreUnavailable(
                f"{name} did not get to this call within {self._timeout_ms} ms", applied="no"
            )
        elif call.writes:
            call.error = StoreUnknown(
                f"{name} did not finish this write within {self._timeout_ms} ms", applied="unknown"
            )
        else:
            call.error = StoreUnavailable(f"{name} did not answer within {self._timeout_ms} ms", applied="no")
        call.settle()

    def _serve(self) -> None:
        ended = False
        while not ended:
            group = [self._queue.get()]
            while len(group) < GROUP_MAX and not self._queue.empty():
                group.append(self._queue.get())
            ended = group[-1] is self._last
            calls = [call for call in group if call is not self._last and call.claim()]
            # Reads first: they wait for no lock, so they need not wait for writes that do.
            for writes in (False, True):
                part = [call for call in calls if call.writes is writes]
                if part:
                    self._run_group(part)
                    _deliver(part)
            if ended:
                self._disconnect()
                _deliver([group[-1]])

    def _run_group(self, calls: list[_Call]) -> None:
        give_up = time.monotonic() + self._timeout_ms / 1000 * 0.8
        while True:
            try:
                self._attempt(calls)
                return
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY_CODES:
                    if time.monotonic() < give_up:
                        time.sleep(random.uniform(0, BUSY_PAUSE_MAX_S))
                        continue
                    for call in calls:
                        call.error = self._unavailable(error)
                    return
                # What state the connection is in is not known: the next call opens another.
                self._disconnect()
                failure: Exception = self._unavailable(error)
            except Exception as error:
                failure = error
            break
        if len(calls) == 1:
            calls[0].error = failure
            return
        # One of them is at fault: each alone, so that only that one fails.
        for call in calls:
            self._run_group([call])

    def _attempt(self, calls: list[_Call]) -> None:
        connection = self._connect()
        if not calls[0].writes:
            for call in calls:
                call.result = call.work(connection, self._clock())
            return
        try:
            connection.execute("BEGIN IMMEDIATE")
            now_ms = self._clock()
            for call in calls:
                call.result = call.work(connection, now_ms)
        except BaseException:
            _roll_back(connection)
            raise
        self._commit(connection, calls)

    def _commit(self, connection: sqlite3.Connection, calls: list[_Call]) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                _roll_back(connection)
                raise
            for call in calls:
                call.error = StoreUnknown(
                    f"the store {self._path} failed while it committed: {error}", applied="unknown"
                )

    def _check_file(self) -> None:
        """Refuse to go on with a file that another process would not find: each would be its own owner of all."""
        if self._file is not None and _identity(self._path) != self._file:
            self._disconnect()
            raise StoreUnavailable(
                f"the file of the store {self._path} was removed or replaced while it was in use: stop every node "
                "and start them again",
                applied="no",
            )

    def _connect(self) -> sqlite3.Connection:
        self._check_file()
        if self._connection is None:
            connection = sqlite3.connect(self._path, timeout=0, isolation_level=None)
            try:
                (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
                if mode != "wal":
                    raise StoreUnavailable(
                        f"the file system of the store {self._path} gives no WAL", applied="no"
                    )
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute("BEGIN IMMEDIATE")
                self._prepare(connection, self._clock())
                connection.execute("COMMIT")
            except BaseException:
                connection.close()
                raise
            self._connection = connection
            self._file = self._file or _identity(self._path)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _unavailable(self, error: sqlite3.Error) -> StoreUnavailable:
        return StoreUnavailable(
            f"the store {self._path} cannot be used: {error} ({getattr(error, 'sqlite_errorname', 'SQLITE_ERROR')})",
            applied="no",
        )


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and number of the file behind a path; None when there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _deliver(calls: list[_Call]) -> None:
    """One wake-up of the loop for a whole group."""
    waiting = list(calls)
    while waiting:
        loop = waiting[0].loop
        mine = [call for call in waiting if call.loop is loop]
        waiting = [call for call in waiting if call.loop is not loop]
        try:
            loop.call_soon_threadsafe(_settle, mine)
        except RuntimeError:
            # The loop was closed under its callers: nobody waits for these outcomes any more.
            continue


def _settle(calls: list[_Call]) -> None:
    for call in calls:
        call.settle()
