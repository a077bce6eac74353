"""The providers of the conformance suite behind one face: stores that share rows, and time that passes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from sojourn.blobs import RelocationStore
from sojourn.location import LocationStore
from sojourn.store.memory import MemoryLocationStore, MemoryRelocationStore, MemoryRows
from sojourn.store.sqlite import SqliteLocationStore, SqliteRelocationStore

__all__ = ["FakeClock", "MemoryProvider", "Provider", "SqliteProvider"]


class FakeClock:
    """A store clock that a test moves."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


class Provider(Protocol):
    """Opens stores over one and the same set of rows."""

    def location(self, namespace: str = "test") -> LocationStore: ...

    def relocation(self) -> RelocationStore: ...

    async def pass_time(self, ms: int) -> None:
        """Let at least this much store time pass."""


class MemoryProvider:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.rows: dict[str, MemoryRows] = {}

    def location(self, namespace: str = "test") -> LocationStore:
        return MemoryLocationStore(self.rows.setdefault(namespace, MemoryRows()), clock=self.clock)

    def relocation(self) -> RelocationStore:
        return MemoryRelocationStore(self.rows.setdefault("test", MemoryRows()), clock=self.clock)

    async def pass_time(self, ms: int) -> None:
        self.clock.now_ms += ms


class SqliteProvider:
    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.path = folder / "store.db"

    def location(self, namespace: str = "test") -> LocationStore:
        return SqliteLocationStore(self.path, namespace, clock=self.clock)

    def relocation(self) -> RelocationStore:
        return SqliteRelocationStore(self.path, "test", clock=self.clock)

    async def pass_time(self, ms: int) -> None:
        self.clock.now_ms += ms


@contextlib.asynccontextmanager
async def closing_stores(*stores: LocationStore | RelocationStore) -> AsyncIterator[None]:
    """Close stores at the end, whatever happens."""
    try:
        yield
    finally:
        for store in stores:
            await store.close()
