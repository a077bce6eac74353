"""Stores in the memory of one process, for tests and for clusters inside one process.

Owns the reference meaning of every store operation: it is the shortest of the providers and the
conformance suite holds all of them to the same answers.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

from sojourn.blobs import RETENTION_MS
from sojourn.location import (
    Applied,
    Condition,
    Conflict,
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
from sojourn.store.clock import StoreClock, boot_clock_ms
from sojourn.store.limits import check_key, check_scan, check_ttl, check_write, closed_error

__all__ = ["MemoryLocationStore", "MemoryRelocationStore", "MemoryRows", "shared_rows"]


@dataclass(slots=True)
class _Row:
    value: bytes
    version: str
    expires_ms: int | None

    def live(self, now_ms: int) -> bool:
        return self.expires_ms is None or now_ms < self.expires_ms


@dataclass(slots=True, weakref_slot=True)
class MemoryRows:
    """The rows and blobs behind every store object of one name."""

    rows: dict[str, _Row] = field(default_factory=dict)
    blobs: dict[str, _Row] = field(default_factory=dict)
    last_version: int = 0


_shared: weakref.WeakValueDictionary[tuple[str, str], MemoryRows] = weakref.WeakValueDictionary()


def shared_rows(name: str, namespace: str) -> MemoryRows:
    """The rows of this name in this process; they go when the last store that uses them goes."""
    rows = _shared.get((name, namespace))
    if rows is None:
        rows = _shared[name, namespace] = MemoryRows()
    return rows


class _MemoryStore:
    """What both stores share: rows that others may have open too, and a clock."""

    def __init__(self, rows: MemoryRows | None = None, *, clock: StoreClock = boot_clock_ms) -> None:
        self._shared: MemoryRows | None = MemoryRows() if rows is None else rows
        self._clock = clock

    async def close(self) -> None:
        """Let go of the rows. Later calls raise `StoreUnavailable`."""
        self._shared = None

    def _open(self) -> MemoryRows:
        if self._shared is None:
            raise closed_error("memory://")
        return self._shared


class MemoryLocationStore(_MemoryStore):
    """A Location Store in memory: every call is done at once, so no outcome is ever unknown."""

    async def read(self, key: str) -> ReadResult:
        """See `LocationStore.read`."""
        check_key(key)
        now_ms = self._clock()
        row = self._open().rows.get(key)
        if row is None or not row.live(now_ms):
            return Missing(now_ms)
        return Found(row.value, row.version, row.expires_ms, now_ms)

    async def write(self, conditions: list[Condition], mutations: list[Mutation]) -> WriteResult:
        """See `LocationStore.write`."""
        check_write(conditions, mutations)
        shared = self._open()
        now_ms = self._clock()
        for condition in conditions:
            row = shared.rows.get(condition.key)
            version = row.version if row is not None and row.live(now_ms) else None
            wanted = condition.version if isinstance(condition, IfVersion) else None
            if version != wanted:
                return Conflict(condition.key)
        shared.last_version += 1
        version = str(shared.last_version)
        versions: dict[str, str] = {}
        for mutation in mutations:
            if isinstance(mutation, Put):
                expires_ms = None if mutation.ttl_ms is None else now_ms + mutation.ttl_ms
                shared.rows[mutation.key] = _Row(bytes(mutation.value), version, expires_ms)
                versions[mutation.key] = version
            elif isinstance(mutation, PutBlob):
                shared.blobs[mutation.key] = _Row(bytes(mutation.value), "", now_ms + mutation.ttl_ms)
            elif isinstance(mutation, DeleteBlob):
                shared.blobs.pop(mutation.key, None)
            else:
                shared.rows.pop(mutation.key, None)
        return Applied(versions)

    async def scan(self, prefix: str, cursor: str | None = None, limit: int = 1000) -> ScanPage:
        """See `LocationStore.scan`."""
        check_scan(prefix, cursor, limit)
        rows = self._open().rows
        now_ms = self._clock()
        for key in [key for key, row in rows.items() if not row.live(now_ms)]:
            del rows[key]
        keys = sorted(
            (key for key in rows if key.startswith(prefix) and (cursor is None or _raw(key) > _raw(cursor))),
            key=_raw,
        )
        page = tuple([StoreRow(key, rows[key].value, rows[key].version) for key in keys[:limit]])
        return ScanPage(page, page[-1].key if len(keys) > limit else None, now_ms)


class MemoryRelocationStore(_MemoryStore):
    """A Relocation Store in memory."""

    async def put(self, reference: str, blob: bytes, ttl_ms: int = RETENTION_MS) -> bool:
        """See `RelocationStore.put`."""
        check_ttl(ttl_ms)
        row = self._live(reference)
        if row is not None:
            return row.value == blob
        self._open().blobs[reference] = _Row(bytes(blob), "", self._clock() + ttl_ms)
        return True

    async def read(self, reference: str) -> bytes | None:
        """See `RelocationStore.read`."""
        row = self._live(reference)
        return None if row is None else row.value

    async def renew(self, reference: str, ttl_ms: int = RETENTION_MS) -> bool:
        """See `RelocationStore.renew`."""
        check_ttl(ttl_ms)
        row = self._live(reference)
        if row is None:
            return False
        row.expires_ms = self._clock() + ttl_ms
        return True

    async def delete(self, reference: str) -> None:
        """See `RelocationStore.delete`."""
        check_key(reference)
        self._open().blobs.pop(reference, None)

    def _live(self, reference: str) -> _Row | None:
        check_key(reference)
        blobs = self._open().blobs
        row = blobs.get(reference)
        if row is not None and not row.live(self._clock()):
            del blobs[reference]
            return None
        return row


def _raw(key: str) -> bytes:
    return key.encode("utf-8")
