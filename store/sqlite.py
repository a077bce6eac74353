"""Stores in an SQLite file: the default for nodes on one machine (B6.2).

Owns the tables and the statements. It must not know threads or transactions (`sqlite_thread`).
"""

from __future__ import annotations

import secrets
import sqlite3
from pathlib import Path

from sojourn.blobs import RETENTION_MS
from sojourn.errors import NotConfigured
from sojourn.location import (
    Applied,
    Condition,
    Conflict,
    Delete,
    DeleteBlob,
    Found,
    IfVersion,
    Missing,
    Mutation,
    Put,
    PutBlob,
    ReadResult,
    ScanPage,
    StoreRow,
    WriteResult,
)
from sojourn.store.clock import StoreClock, boot_clock_ms, boot_identity
from sojourn.store.limits import check_key, check_namespace, check_scan, check_ttl, check_write
from sojourn.store.mounts import refuse_network_file_system
from sojourn.store.sqlite_thread import SqliteThread

__all__ = ["SqliteLocationStore", "SqliteRelocationStore"]

CLEAN_INTERVAL_MS = 30_000
"""How often a process removes expired rows; until then they are only treated as missing."""

_TABLES = """
CREATE TABLE IF NOT EXISTS location (
    key BLOB PRIMARY KEY, value BLOB NOT NULL, version TEXT NOT NULL, expires_ms INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS location_expiry ON location (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE TABLE IF NOT EXISTS blob (key BLOB PRIMARY KEY, value BLOB NOT NULL, expires_ms INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS blob_expiry ON blob (expires_ms);
CREATE TABLE IF NOT EXISTS store (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID
"""
_READ = (
    "SELECT value, version, expires_ms FROM location WHERE key = ? AND (expires_ms IS NULL OR expires_ms > ?)"
)
_VERSION = "SELECT version FROM location WHERE key = ? AND (expires_ms IS NULL OR expires_ms > ?)"
_PUT = (
    "INSERT INTO location (key, value, version, expires_ms) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE "
    "SET value = excluded.value, version = excluded.version, expires_ms = excluded.expires_ms"
)
_SCAN = (
    "SELECT key, value, version FROM location WHERE key > ? AND key < ? "
    "AND (expires_ms IS NULL OR expires_ms > ?) ORDER BY key LIMIT ?"
)

_PUT_BLOB = "INSERT OR REPLACE INTO blob VALUES (?, ?, ?)"
_DELETE_BLOB = "DELETE FROM blob WHERE key = ?"


class _SqliteStore:
    """What both stores share: the file, the namespace, the thread."""

    def __init__(
        self,
        path: Path,
        namespace: str,
        *,
        clock: StoreClock = boot_clock_ms,
        boot: str | None = None,
        timeout_ms: int = 5_000,
    ) -> None:
        if not path.parent.is_dir():
            raise NotConfigured(f"the folder of the SQLite store {path} does not exist: create it first")
        refuse_network_file_system(path)
        self._space = check_namespace(namespace).encode("ascii") + b"\x00"
        self._boot = boot_identity() if boot is None else boot
        self._cleaned_ms = 0
        self._thread = SqliteThread(path, self._prepare, clock, timeout_ms)

    async def close(self) -> None:
        """See `LocationStore.close`."""
        await self._thread.close()

    def _key(self, key: str) -> bytes:
        return self._space + check_key(key)

    def _prepare(self, connection: sqlite3.Connection, now_ms: int) -> None:
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        found = connection.execute("SELECT value FROM store WHERE name = 'boot'").fetchone()
        if found is not None and found[0] != self._boot:
            # Times of another boot mean nothing now. Every run that held a lease died with that boot; blobs are
            # kept for a whole retention time from here on.
            connection.execute("DELETE FROM location WHERE expires_ms IS NOT NULL")
            connection.execute("UPDATE blob SET expires_ms = ?", (now_ms + RETENTION_MS,))
        connection.execute("INSERT OR REPLACE INTO store (name, value) VALUES ('boot', ?)", (self._boot,))

    def _clean(self, connection: sqlite3.Connection, now_ms: int) -> None:
        if now_ms >= self._cleaned_ms + CLEAN_INTERVAL_MS:
            self._cleaned_ms = now_ms
            connection.execute("DELETE FROM location WHERE expires_ms <= ?", (now_ms,))
            connection.execute("DELETE FROM blob WHERE expires_ms <= ?", (now_ms,))


class SqliteLocationStore(_SqliteStore):
    """A Location Store in an SQLite file.

    A version is a random text of this store object and a count: it never repeats, whatever was deleted.
    """

    def __init__(
        self,
        path: Path,
        namespace: str,
        *,
        clock: StoreClock = boot_clock_ms,
        boot: str | None = None,
        timeout_ms: int = 5_000,
    ) -> None:
        super().__init__(path, namespace, clock=clock, boot=boot, timeout_ms=timeout_ms)
        self._writer = secrets.token_hex(8)
        self._writes = 0

    async def read(self, key: str) -> ReadResult:
        """See `LocationStore.read`."""
        stored_key = self._key(key)

        def work(connection: sqlite3.Connection, now_ms: int) -> ReadResult:
            row = connection.execute(_READ, (stored_key, now_ms)).fetchone()
            return Missing(now_ms) if row is None else Found(row[0], row[1], row[2], now_ms)

        return await self._thread.run(work, writes=False)

    async def write(self, conditions: list[Condition], mutations: list[Mutation]) -> WriteResult:
        """See `LocationStore.write`."""
        check_write(conditions, mutations)
        checks = [
            (self._key(condition.key), condition.version if isinstance(condition, IfVersion) else None)
            for condition in conditions
        ]
        puts = [(self._key(item.key), item.value, item.ttl_ms) for item in mutations if isinstance(item, Put)]
        deletes = [(self._key(item.key),) for item in mutations if isinstance(item, Delete)]
        blobs = [
            (self._key(item.key), item.value, item.ttl_ms) for item in mutations if isinstance(item, PutBlob)
        ]
        ended = [(self._key(item.key),) for item in mutations if isinstance(item, DeleteBlob)]
        self._writes += 1
        version = f"{self._writer}-{self._writes}"
        applied = Applied({item.key: version for item in mutations if isinstance(item, Put)})

        def work(connection: sqlite3.Connection, now_ms: int) -> WriteResult:
            for at, (key, wanted) in enumerate(checks):
                row = connection.execute(_VERSION, (key, now_ms)).fetchone()
                if (None if row is None else row[0]) != wanted:
                    return Conflict(conditions[at].key)
            rows = [(key, value, version, None if ttl is None else now_ms + ttl) for key, value, ttl in puts]
            if len(rows) == 1:
                connection.execute(_PUT, rows[0])
            elif rows:
                connection.executemany(_PUT, rows)
            if deletes:
                connection.executemany("DELETE FROM location WHERE key = ?", deletes)
            if ended:
                connection.executemany(_DELETE_BLOB, ended)
            if blobs:
                connection.executemany(_PUT_BLOB, [(key, blob, now_ms + ttl) for key, blob, ttl in blobs])
            self._clean(connection, now_ms)
            return applied

        return await self._thread.run(work, writes=True)

    async def scan(self, prefix: str, cursor: str | None = None, limit: int = 1000) -> ScanPage:
        """See `LocationStore.scan`."""
        check_scan(prefix, cursor, limit)
        first = self._space + prefix.encode("utf-8")
        after = self._key(cursor) if cursor is not None else first
        # UTF-8 has no byte 0xFF, so the last byte can always be counted up. Keys equal to the prefix belong in.
        below = first[:-1] + bytes([first[-1] + 1])
        statement = _SCAN if cursor is not None else _SCAN.replace("key > ?", "key >= ?")
        cut = len(self._space)

        def work(connection: sqlite3.Connection, now_ms: int) -> ScanPage:
            found = connection.execute(statement, (after, below, now_ms, limit + 1)).fetchall()
            rows = [
                StoreRow(key[cut:].decode("utf-8"), value, version) for key, value, version in found[:limit]
            ]
            return ScanPage(tuple(rows), rows[-1].key if len(found) > limit else None, now_ms)

        return await self._thread.run(work, writes=False)


class SqliteRelocationStore(_SqliteStore):
    """A Relocation Store in an SQLite file."""

    async def put(self, reference: str, blob: bytes, ttl_ms: int = RETENTION_MS) -> bool:
        """See `RelocationStore.put`."""
        check_ttl(ttl_ms)
        key = self._key(reference)

        def work(connection: sqlite3.Connection, now_ms: int) -> bool:
            found = connection.execute(
                "SELECT value FROM blob WHERE key = ? AND expires_ms > ?", (key, now_ms)
            ).fetchone()
            if found is not None:
                return bool(found[0] == blob)
            connection.execute(_PUT_BLOB, (key, blob, now_ms + ttl_ms))
            self._clean(connection, now_ms)
            return True

        return await self._thread.run(work, writes=True)

    async def read(self, reference: str) -> bytes | None:
        """See `RelocationStore.read`."""
        key = self._key(reference)

        def work(connection: sqlite3.Connection, now_ms: int) -> bytes | None:
            found = connection.execute(
                "SELECT value FROM blob WHERE key = ? AND expires_ms > ?", (key, now_ms)
            ).fetchone()
            return None if found is None else bytes(found[0])

        return await self._thread.run(work, writes=False)

    async def renew(self, reference: str, ttl_ms: int = RETENTION_MS) -> bool:
        """See `RelocationStore.renew`."""
        check_ttl(ttl_ms)
        key = self._key(reference)

        def work(connection: sqlite3.Connection, now_ms: int) -> bool:
            changed = connection.execute(
                "UPDATE blob SET expires_ms = ? WHERE key = ? AND expires_ms > ?",
                (now_ms + ttl_ms, key, now_ms),
            )
            return changed.rowcount == 1

        return await self._thread.run(work, writes=True)

    async def delete(self, reference: str) -> None:
        """See `RelocationStore.delete`."""
        key = self._key(reference)

        def work(connection: sqlite3.Connection, now_ms: int) -> None:
            connection.execute(_DELETE_BLOB, (key,))

        await self._thread.run(work, writes=True)
