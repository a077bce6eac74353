"""The providers of the conformance suite behind one face: stores that share rows, and time that passes."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from sojourn.blobs import RelocationStore
from sojourn.location import LocationStore
from sojourn.store.memory import MemoryLocationStore, MemoryRelocationStore, MemoryRows
from sojourn.store.redis import RedisLocationStore, RedisRelocationStore
from sojourn.store.sqlite import SqliteLocationStore, SqliteRelocationStore

__all__ = ["FakeClock", "MemoryProvider", "Provider", "RedisProvider", "SqliteProvider"]


READS_MAX = 100_000
"""Bound of waiting by reading."""


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


class RedisProvider:
    """A namespace of its own on a shared server. Its clock is the server's: time passes by reading it."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name

    def location(self, namespace: str = "test") -> LocationStore:
        return RedisLocationStore(self.url, f"{self.name}-{namespace}")

    def relocation(self) -> RelocationStore:
        return RedisRelocationStore(self.url, f"{self.name}-test")

    async def pass_time(self, ms: int) -> None:
        store = self.location("clock")
        try:
            end_ms = (await store.read("clock")).store_now_ms + ms
            for _ in range(READS_MAX):
                if (await store.read("clock")).store_now_ms > end_ms:
                    return
            raise AssertionError(f"the server's clock did not pass {ms} ms within {READS_MAX} reads")
        finally:
            await store.close()
