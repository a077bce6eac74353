"""The Relocation Store interface (B7.1): immutable blobs by reference, with a retention time.

It never holds move payloads and never decides owners.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["RETENTION_MS", "RelocationStore"]

RETENTION_MS = 24 * 3600 * 1000
"""How long a blob is kept unless renewed (B7.1)."""


class RelocationStore(Protocol):
    """Immutable blobs. All methods raise `StoreUnavailable` or `StoreUnknown` like the Location Store."""

    async def put(self, reference: str, blob: bytes, ttl_ms: int = RETENTION_MS) -> bool:
        """Store a blob; True if it is there now with these bytes, False if the reference holds others."""
        ...

    async def read(self, reference: str) -> bytes | None:
        """The blob, or None when it is missing or expired."""
        ...

    async def renew(self, reference: str, ttl_ms: int = RETENTION_MS) -> bool:
        """Start the retention time anew; False when the blob is missing."""
        ...

    async def delete(self, reference: str) -> None:
        """Remove a blob; removing a missing one is no error."""
        ...

    async def close(self) -> None:
        """Let go of every connection, thread and file."""
        ...
