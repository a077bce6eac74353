"""What a member knows of its stores' health: how many calls failed, the last error, whether the last call failed.

Owns the counting around the calls (B12.2). What a failed call means is its caller's business; every call passes
unchanged.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from sojourn.blobs import RETENTION_MS, RelocationStore
from sojourn.location import (
    Condition,
    LocationStore,
    Mutation,
    ReadResult,
    ScanPage,
    StoreUnavailable,
    StoreUnknown,
    WriteResult,
)

__all__ = ["StoreHealth", "WatchedLocationStore", "WatchedRelocationStore"]

T = TypeVar("T")


class StoreHealth:
    """See the module text. `changed(failing, error)` is told when calls begin to fail, and when one succeeds again.

    Attributes:
        errors: calls that failed, or were given up, since the start.
        last_error: text of the last of them, also when the store works again; empty before the first.
        failing: no call has succeeded since.
    """

    def __init__(self, changed: Callable[[bool, str], None]) -> None:
        self._changed = changed
        self.errors = 0
        self.last_error = ""
        self.failing = False

    async def watch(self, call: Awaitable[T]) -> T:
        """The outcome of one store call, counted. A cancelled one says nothing: its caller ended."""
        try:
            result = await call
        except (StoreUnavailable, StoreUnknown) as error:
            self.failed(error.message)
            raise
        if self.failing:
            self.failing = False
            self._changed(False, self.last_error)
        return result

    def failed(self, error: str) -> None:
        """A call failed, or its caller gave it up."""
        self.errors += 1
        self.last_error = error
        if not self.failing:
            self.failing = True
            self._changed(True, error)

    def figures(self) -> dict[str, Any]:
        """For a node's `status`."""
        return {"failing": self.failing, "errors": self.errors, "last_error": self.last_error}


class WatchedLocationStore:
    """A Location Store whose calls are counted."""

    def __init__(self, store: LocationStore, health: StoreHealth) -> None:
        self._store = store
        self._health = health

    async def read(self, key: str) -> ReadResult:
        """See `LocationStore.read`."""
        return await self._health.watch(self._store.read(key))

    async def write(self, conditions: list[Condition], mutations: list[Mutation]) -> WriteResult:
        """See `LocationStore.write`."""
        return await self._health.watch(self._store.write(conditions, mutations))

    async def scan(self, prefix: str, cursor: str | None = None, limit: int = 1000) -> ScanPage:
        """See `LocationStore.scan`."""
        return await self._health.watch(self._store.scan(prefix, cursor, limit))

    async def close(self) -> None:
        """See `LocationStore.close`."""
        await self._store.close()


class WatchedRelocationStore:
    """A Relocation Store whose calls are counted."""

    def __init__(self, store: RelocationStore, health: StoreHealth) -> None:
        self._store = store
        self._health = health

    async def put(self, reference: str, blob: bytes, ttl_ms: int = RETENTION_MS) -> bool:
        """See `RelocationStore.put`."""
        return await self._health.watch(self._store.put(reference, blob, ttl_ms))

    async def read(self, reference: str) -> bytes | None:
        """See `RelocationStore.read`."""
        return await self._health.watch(self._store.read(reference))

    async def renew(self, reference: str, ttl_ms: int = RETENTION_MS) -> bool:
        """See `RelocationStore.renew`."""
        return await self._health.watch(self._store.renew(reference, ttl_ms))

    async def delete(self, reference: str) -> None:
        """See `RelocationStore.delete`."""
        await self._health.watch(self._store.delete(reference))

    async def close(self) -> None:
        """See `RelocationStore.close`."""
        await self._store.close()
