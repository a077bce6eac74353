"""The SQLite thread: group commit, locks, time limits, faults."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sojourn.errors import NotConfigured
from sojourn.location import (
    Applied,
    Found,
    IfMissing,
    IfVersion,
    Missing,
    Put,
    StoreUnavailable,
    StoreUnknown,
)
from sojourn.store.sqlite import CLEAN_INTERVAL_MS, SqliteLocationStore, SqliteRelocationStore
from sojourn.store.sqlite_thread import SqliteThread

from tests.stores.providers import FakeClock


@pytest.fixture
async def thread(tmp_path: Path) -> AsyncIterator[SqliteThread]:
    def prepare(connection: sqlite3.Connection, now_ms: int) -> None:
        connection.execute("CREATE TABLE IF NOT EXISTS t (x INTEGER PRIMARY KEY)")

    opened = SqliteThread(tmp_path / "t.db", prepare, lambda: 0, 10_000)
    yield opened
    await opened.close()


def insert(number: int) -> Any:
    def work(connection: sqlite3.Connection, now_ms: int) -> int:
        connection.execute("INSERT INTO t VALUES (?)", (number,))
        return number

    return work


def count(connection: sqlite3.Connection, now_ms: int) -> int:
    (rows,) = connection.execute("SELECT count(*) FROM t").fetchone()
    return int(rows)


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_that_was_taken_away_is_not_used_any_more(
    thread: SqliteThread, tmp_path: Path, replaced: bool
) -> None:
    await thread.run(insert(1), writes=True)
    (tmp_path / "t.db").rename(tmp_path / "elsewhere.db")
    if replaced:
        (tmp_path / "t.db").touch()
    for writes, work in ((True, insert(2)), (False, count)):
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            await thread.run(work, writes=writes)
    (tmp_path / "t.db").unlink(missing_ok=True)
    (tmp_path / "elsewhere.db").rename(tmp_path / "t.db")
    assert await thread.run(count, writes=False) == 1


async def blocked(thread: SqliteThread, *, writes: bool) -> tuple[asyncio.Task[None], threading.Event]:
    """Work that holds the thread until the event is set; it has started when this returns."""
    loop = asyncio.get_running_loop()
    started: asyncio.Future[None] = loop.create_future()
    gate = threading.Event()

    def work(connection: sqlite3.Connection, now_ms: int) -> None:
        loop.call_soon_threadsafe(lambda: None if started.done() else started.set_result(None))
        gate.wait()

    task = asyncio.create_task(thread.run(work, writes=writes))
    await started
    return task, gate


async def test_what_waits_is_committed_together(
    thread: SqliteThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    commit = SqliteThread._commit

    def counting(self: SqliteThread, connection: sqlite3.Connection, calls: list[Any]) -> None:
        groups.append(len(calls))
        commit(self, connection, calls)

    monkeypatch.setattr(SqliteThread, "_commit", counting)
    blocker, gate = await blocked(thread, writes=False)
    writes = [asyncio.create_task(thread.run(insert(number), writes=True)) for number in range(100)]
    await asyncio.sleep(0)
    gate.set()
    assert await asyncio.gather(*writes) == list(range(100))
    await blocker
    assert groups == [100]


async def test_work_at_fault_fails_alone(thread: SqliteThread) -> None:
    def broken(connection: sqlite3.Connection, now_ms: int) -> None:
        connection.execute("INSERT INTO t VALUES (77)")
        raise ValueError("broken")

    await thread.run(insert(1), writes=True)
    blocker, gate = await blocked(thread, writes=False)
    calls = [thread.run(insert(2), writes=True), thread.run(broken, writes=True), thread.run(insert(1), writes=True),
             thread.run(insert(3), writes=True)]  # fmt: skip
    tasks = [asyncio.create_task(call) for call in calls]
    await asyncio.sleep(0)
    gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    await blocker
    assert results[0] == 2
    assert isinstance(results[1], ValueError)
    assert isinstance(results[2], StoreUnavailable)
    assert "UNIQUE" in str(results[2])
    assert results[3] == 3
    assert await thread.run(count, writes=False) == 3, "nothing of broken work stays"


async def test_a_file_locked_by_another_process_is_waited_for(tmp_path: Path, thread: SqliteThread) -> None:
    await thread.run(insert(1), writes=True)
    other = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    write = asyncio.create_task(thread.run(insert(2), writes=True))
    await asyncio.sleep(0)
    other.execute("ROLLBACK")
    other.close()
    assert await write == 2


async def test_a_lock_that_is_not_let_go_ends_as_unavailable(tmp_path: Path) -> None:
    # The thread gives up after four fifths of the time: the rest has to be enough for its answer.
    store = SqliteLocationStore(tmp_path / "s.db", "n", timeout_ms=1_500)
    await store.write([], [Put("a", b"")])
    other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked") as caught:
        await store.write([], [Put("b", b"")])
    assert caught.value.applied == "no"
    assert isinstance(await store.read("a"), Found), "readers need no lock"
    other.execute("ROLLBACK")
    other.close()
    assert isinstance(await store.read("b"), Missing)
    await store.close()


async def test_out_of_time_a_started_write_is_unknown_and_a_waiting_one_never_runs(tmp_path: Path) -> None:
    thread = SqliteThread(tmp_path / "t.db", lambda connection, now_ms: None, lambda: 0, 50)
    await thread.run(lambda connection, now_ms: None, writes=False)
    ran: list[str] = []
    blocker, gate = await blocked(thread, writes=True)
    waiting = asyncio.create_task(thread.run(lambda connection, now_ms: ran.append("waiting"), writes=True))
    with pytest.raises(StoreUnknown, match="did not finish this write") as unknown:
        await blocker
    assert unknown.value.applied == "unknown"
    with pytest.raises(StoreUnavailable, match="did not get to this call"):
        await waiting
    gate.set()
    reader, gate = await blocked(thread, writes=False)
    with pytest.raises(StoreUnavailable, match="did not answer"):
        await reader
    gate.set()
    await thread.close()
    assert ran == []


async def test_a_cancelled_call_that_was_not_started_never_runs(thread: SqliteThread) -> None:
    await thread.run(count, writes=False)
    blocker, gate = await blocked(thread, writes=True)
    task = asyncio.create_task(thread.run(insert(1), writes=True))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.set()
    await blocker
    assert await thread.run(count, writes=False) == 0


async def test_a_failed_commit_is_rolled_back_or_unknown(thread: SqliteThread) -> None:
    def deferred(connection: sqlite3.Connection, now_ms: int) -> None:
        connection.execute("PRAGMA defer_foreign_keys = ON")
        connection.execute("INSERT INTO child VALUES (1)")

    def make(connection: sqlite3.Connection, now_ms: int) -> None:
        connection.execute("CREATE TABLE child (x INTEGER REFERENCES t (x) DEFERRABLE INITIALLY DEFERRED)")

    await thread.run(make, writes=True)
    await thread.run(
        lambda connection, now_ms: connection.execute("PRAGMA foreign_keys = ON") and None, writes=False
    )
    with pytest.raises(StoreUnavailable, match="FOREIGN KEY") as caught:
        await thread.run(deferred, writes=True)
    assert caught.value.applied == "no"
    assert await thread.run(insert(9), writes=True) == 9

    def ends_transaction(connection: sqlite3.Connection, now_ms: int) -> None:
        connection.execute("COMMIT")

    with pytest.raises(StoreUnknown, match="while it committed"):
        await thread.run(ends_transaction, writes=True)
    assert await thread.run(count, writes=False) == 1


async def test_a_commit_that_finds_a_fault_leaves_no_transaction_open(
    thread: SqliteThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that fails with its transaction still open is rolled back, so nothing was changed."""
    await thread.run(insert(1), writes=True)
    assert thread._connection is not None
    seen: list[bool] = []

    def begins_and_fails(connection: sqlite3.Connection, now_ms: int) -> None:
        seen.append(connection.in_transaction)
        raise sqlite3.OperationalError("broken")

    with pytest.raises(StoreUnavailable, match="broken"):
        await thread.run(begins_and_fails, writes=True)
    assert seen == [True]
    assert await thread.run(count, writes=False) == 1


async def test_a_file_that_is_no_database_is_told_and_may_be_put_right(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(b"this is no database, whatever it may be" * 50)
    store = SqliteLocationStore(path, "n")
    with pytest.raises(StoreUnavailable, match=r"s\.db cannot be used: file is not a database") as caught:
        await store.write([], [Put("a", b"")])
    assert caught.value.applied == "no"
    path.unlink()
    assert isinstance(await store.write([], [Put("a", b"")]), Applied)
    await store.close()


def test_a_folder_that_is_missing_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured, match=r"nowhere/s\.db does not exist"):
        SqliteLocationStore(tmp_path / "nowhere" / "s.db", "n")


async def test_a_file_system_without_wal_is_refused(
    thread: SqliteThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def in_memory(path: Path, **settings: Any) -> sqlite3.Connection:
        return connect(":memory:", **settings)

    monkeypatch.setattr(sqlite3, "connect", in_memory)
    with pytest.raises(StoreUnavailable, match="gives no WAL"):
        await thread.run(count, writes=False)


async def test_callers_of_a_loop_that_is_gone_are_let_go(thread: SqliteThread) -> None:
    started, gate = threading.Event(), threading.Event()

    def work(connection: sqlite3.Connection, now_ms: int) -> None:
        started.set()
        gate.wait()

    def other_loop() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(thread.run(work, writes=False))
        loop.run_until_complete(asyncio.sleep(0))
        started.wait()
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()

    await asyncio.to_thread(other_loop)
    gate.set()
    assert await thread.run(count, writes=False) == 0


async def test_an_unused_store_closes_without_a_thread(tmp_path: Path) -> None:
    store = SqliteLocationStore(tmp_path / "s.db", "n")
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.read("a")


async def test_another_boot_ends_every_lease_and_keeps_blobs_for_a_retention(tmp_path: Path) -> None:
    clock = FakeClock()
    first = SqliteLocationStore(tmp_path / "s.db", "n", clock=clock, boot="one")
    blobs = SqliteRelocationStore(tmp_path / "s.db", "n", clock=clock, boot="one")
    await first.write([], [Put("lease", b"", 60_000), Put("row", b"")])
    await blobs.put("blob", b"x", 60_000)
    await first.close()
    await blobs.close()
    clock.now_ms = 500  # a new boot counts from 0
    again = SqliteLocationStore(tmp_path / "s.db", "n", clock=clock, boot="two")
    blobs = SqliteRelocationStore(tmp_path / "s.db", "n", clock=clock, boot="two")
    assert isinstance(await again.read("lease"), Missing)
    assert isinstance(await again.read("row"), Found)
    assert await blobs.read("blob") == b"x"
    clock.now_ms += 25 * 3600 * 1000
    assert await blobs.read("blob") is None
    await again.close()
    await blobs.close()


async def test_expired_rows_are_removed_in_time(tmp_path: Path) -> None:
    clock = FakeClock()
    store = SqliteLocationStore(tmp_path / "s.db", "n", clock=clock)
    await store.write([], [Put(f"lease{number}", b"", 10) for number in range(5)])
    clock.now_ms += CLEAN_INTERVAL_MS
    await store.write([IfMissing("a")], [Put("a", b"")])
    await store.close()
    reader = sqlite3.connect(tmp_path / "s.db")
    assert reader.execute("SELECT count(*) FROM location").fetchone() == (1,)
    reader.close()


async def test_versions_of_two_store_objects_on_one_file_differ(tmp_path: Path) -> None:
    stores = [SqliteLocationStore(tmp_path / "s.db", "n") for _ in range(2)]
    first = await stores[0].write([], [Put("a", b"")])
    assert isinstance(first, Applied)
    second = await stores[1].write([IfVersion("a", first.versions["a"])], [Put("a", b"")])
    assert isinstance(second, Applied)
    assert first.versions["a"] != second.versions["a"]
    for store in stores:
        await store.close()
