"""Limits of one store call, the same for every provider (B6.1).

Owns the argument checks, so that a call that one provider takes is taken by all. It must not know any
provider.
"""

from __future__ import annotations

from sojourn.errors import InvalidOperation, NotConfigured
from sojourn.location import Condition, DeleteBlob, Mutation, Put, PutBlob, StoreUnavailable

__all__ = [
    "KEYS_MAX",
    "KEY_BYTES_MAX",
    "SCAN_ROWS_MAX",
    "WRITE_BYTES_MAX",
    "check_key",
    "check_namespace",
    "check_scan",
    "check_ttl",
    "check_write",
    "closed_error",
]

KEYS_MAX = 65_536
"""Most distinct keys of one write, conditions included."""

WRITE_BYTES_MAX = 64 * 1024 * 1024
"""Most bytes of keys and values in one write."""

KEY_BYTES_MAX = 1_024
"""Longest key; an authority key has at most 776 bytes."""

SCAN_ROWS_MAX = 10_000
"""Most rows of one scan page."""


def check_key(key: str) -> bytes:
    """The UTF-8 bytes of a key, or `InvalidOperation`."""
    try:
        raw = key.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidOperation(f"store key {key!r:.80} is not valid Unicode text") from None
    if not 1 <= len(raw) <= KEY_BYTES_MAX or b"\x00" in raw:
        raise InvalidOperation(f"a store key has 1 to {KEY_BYTES_MAX} bytes without NUL, not {key!r:.80}")
    return raw


def check_ttl(ttl_ms: int | None) -> None:
    """A time to live is None or at least 1 ms."""
    if ttl_ms is not None and not 1 <= ttl_ms < 2**52:
        raise InvalidOperation(f"a TTL is at least 1 ms, not {ttl_ms}")


def check_write(conditions: list[Condition], mutations: list[Mutation]) -> None:
    """Refuse a write that no provider could carry out as one."""
    written: set[str] = set()
    blobs: set[str] = set()
    total = 0
    for mutation in mutations:
        total += len(check_key(mutation.key))
        if isinstance(mutation, Put | PutBlob):
            check_ttl(mutation.ttl_ms)
            total += len(mutation.value)
        (blobs if isinstance(mutation, PutBlob | DeleteBlob) else written).add(mutation.key)
    if len(written) + len(blobs) != len(mutations):
        raise InvalidOperation("a key stands in two mutations of one write: which one counts is not defined")
    for condition in conditions:
        total += len(check_key(condition.key))
    keys = len(written.union([condition.key for condition in conditions])) + len(blobs)
    if keys > KEYS_MAX or len(conditions) > 2 * KEYS_MAX:
        raise InvalidOperation(f"one write may touch {KEYS_MAX} keys, not {keys}: split it")
    if total > WRITE_BYTES_MAX:
        raise InvalidOperation(f"one write may carry {WRITE_BYTES_MAX} bytes, not {total}: split it")


def check_scan(prefix: str, cursor: str | None, limit: int) -> None:
    """Refuse a scan with a bad cursor or page size; an empty prefix means every row."""
    if prefix:
        check_key(prefix)
    if cursor is not None and not check_key(cursor).startswith(prefix.encode("utf-8")):
        raise InvalidOperation(f"scan cursor {cursor!r:.80} is not from a scan of prefix {prefix!r:.80}")
    if not 1 <= limit <= SCAN_ROWS_MAX:
        raise InvalidOperation(f"a scan page has 1 to {SCAN_ROWS_MAX} rows, not {limit}")


def check_namespace(namespace: str) -> str:
    """A namespace separates clusters inside one store; it becomes part of stored keys."""
    if not 1 <= len(namespace) <= 64 or not all(
        letter.isascii() and letter.isprintable() for letter in namespace
    ):
        raise NotConfigured(
            f"a store namespace has 1 to 64 printable ASCII characters, not {namespace!r:.80}"
        )
    if set("{}") & set(namespace):
        raise NotConfigured(f"a store namespace cannot contain braces: {namespace!r}")
    return namespace


def closed_error(name: str) -> StoreUnavailable:
    """The error of every call after `close`."""
    return StoreUnavailable(f"the store {name} is closed", applied="no")
