"""The Location Store interface (B6.1): small conditional writes over opaque keys and bytes.

Expected results are values, never exceptions. What a provider cannot know (a cancelled or broken call)
it raises as `StoreUnknown`: the caller re-reads, it never guesses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from sojourn.errors import Unavailable

__all__ = [
    "Applied",
    "Condition",
    "Conflict",
    "Delete",
    "DeleteBlob",
    "Found",
    "IfMissing",
    "IfVersion",
    "LocationStore",
    "Missing",
    "Mutation",
    "Put",
    "PutBlob",
    "ReadResult",
    "ScanPage",
    "StoreRow",
    "StoreUnavailable",
    "StoreUnknown",
    "StoreWrite",
    "WriteResult",
]


class StoreUnavailable(Unavailable):
    """The store could not be reached and nothing was changed (`applied` is ``"no"``)."""


class StoreUnknown(Unavailable):
    """A write was started and its outcome is not known (`applied` is ``"unknown"``): re-read, never guess."""


@dataclass(frozen=True, slots=True)
class Missing:
    """No live row under the key. `store_now_ms` is the store's own clock in ms."""

    store_now_ms: int


@dataclass(frozen=True, slots=True)
class Found:
    """A live row. `expires_ms` is on the store's own clock, None = never; versions are opaque text."""

    value: bytes
    version: str
    expires_ms: int | None
    store_now_ms: int


ReadResult: TypeAlias = Missing | Found


@dataclass(frozen=True, slots=True)
class IfMissing:
    """Holds when the key has no live row; an expired row is missing (B6.1)."""

    key: str


@dataclass(frozen=True, slots=True)
class IfVersion:
    """Holds when the key's live row has exactly this version."""

    key: str
    version: str


Condition: TypeAlias = IfMissing | IfVersion


@dataclass(frozen=True, slots=True)
class Put:
    """Write a row. `ttl_ms` None = no expiry; else at least 1."""

    key: str
    value: bytes
    ttl_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a row; removing a missing row is no error."""

    key: str


@dataclass(frozen=True, slots=True)
class PutBlob:
    """Store a blob of the Relocation Store in the same write (B7.1). The reference is the writer's own: what
    stands under it is replaced."""

    key: str
    value: bytes
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class DeleteBlob:
    """Remove a blob of the Relocation Store in the same write; removing a missing one is no error."""

    key: str


Mutation: TypeAlias = Put | Delete | PutBlob | DeleteBlob
"""Rows and blobs have keys of their own: one text may name both. Blobs are under no condition."""


class StoreWrite(NamedTuple):
    """One conditional write that is not carried out yet: `await store.write(*store_write)`.

    The pure builders of `sojourn.ownership` make them; `+` joins two into one all-or-nothing write.
    """

    conditions: list[Condition]
    mutations: list[Mutation]

    def __add__(self, other: object) -> StoreWrite:
        if not isinstance(other, StoreWrite):
            return NotImplemented
        return StoreWrite(self.conditions + other.conditions, self.mutations + other.mutations)


@dataclass(frozen=True, slots=True)
class Applied:
    """Every condition held and every mutation is done. New version per Put key."""

    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Some condition did not hold; nothing was changed. `key` is the first that failed."""

    key: str


WriteResult: TypeAlias = Applied | Conflict


@dataclass(frozen=True, slots=True)
class StoreRow:
    """One row of a scan."""

    key: str
    value: bytes
    version: str


@dataclass(frozen=True, slots=True)
class ScanPage:
    """Part of a scan in key order (UTF-8 bytes); `cursor` None = the end."""

    rows: tuple[StoreRow, ...]
    cursor: str | None
    store_now_ms: int


class LocationStore(Protocol):
    """What every provider offers. All methods raise `StoreUnavailable` or, once a write was started, `StoreUnknown`.

    Providers know nothing of what rows mean: also the store-wide ObjectGeneration counter (B1.3) is an
    ordinary row, see `sojourn.ownership`. A cancelled call is an unknown outcome too.
    """

    async def read(self, key: str) -> ReadResult:
        """The live row under `key`."""
        ...

    async def write(self, conditions: list[Condition], mutations: list[Mutation]) -> WriteResult:
        """All mutations if all conditions hold, else nothing; up to 65,536 keys and 64 MiB.

        A key stands in at most one mutation. Every condition is judged on the rows before the write.
        Beyond the limits, or with a bad key: `InvalidOperation`.
        """
        ...

    async def scan(self, prefix: str, cursor: str | None = None, limit: int = 1000) -> ScanPage:
        """Live rows whose key starts with `prefix`, after `cursor`, in key order."""
        ...

    async def close(self) -> None:
        """Let go of every connection, thread and file. Later calls raise `StoreUnavailable`."""
        ...
