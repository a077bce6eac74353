"""Location and Relocation Stores: in memory, SQLite, Redis.

`open_location_store` and `open_relocation_store` choose the provider by the URL. Opening does no I/O on
the network: an unreachable store shows in the first call.
"""

from __future__ import annotations

from sojourn.blobs import RelocationStore
from sojourn.location import LocationStore
from sojourn.store.limits import check_namespace
from sojourn.store.urls import StoreUrl, parse_store_url

__all__ = ["StoreUrl", "open_location_store", "open_relocation_store", "parse_store_url"]


def open_location_store(url: str, namespace: str, *, timeout_ms: int = 5_000) -> LocationStore:
    """Open the Location Store behind a URL.

    Args:
        url: `sqlite:///absolute/path`, `redis://[user:password@]host[:port][/db]` or `memory://[name]`.
        namespace: keeps clusters apart inside one store; the cluster's name.
        timeout_ms: longest wait for one call.

    Raises:
        NotConfigured: a URL no provider knows, a folder that is missing, a network file system.
    """
    parsed = parse_store_url(url)
    if parsed.scheme == "memory":
        from sojourn.store.memory import MemoryLocationStore, shared_rows

        return MemoryLocationStore(shared_rows(parsed.location, check_namespace(namespace)))
    if parsed.scheme == "sqlite":
        from sojourn.store.sqlite import SqliteLocationStore

        return SqliteLocationStore(parsed.path, namespace, timeout_ms=timeout_ms)
    from sojourn.store.redis import RedisLocationStore

    return RedisLocationStore(parsed.location, namespace, timeout_ms=timeout_ms)


def open_relocation_store(url: str, namespace: str, *, timeout_ms: int = 5_000) -> RelocationStore:
    """Open the Relocation Store behind a URL; arguments and errors are those of `open_location_store`."""
    parsed = parse_store_url(url)
    if parsed.scheme == "memory":
        from sojourn.store.memory import MemoryRelocationStore, shared_rows

        return MemoryRelocationStore(shared_rows(parsed.location, check_namespace(namespace)))
    if parsed.scheme == "sqlite":
        from sojourn.store.sqlite import SqliteRelocationStore

        return SqliteRelocationStore(parsed.path, namespace, timeout_ms=timeout_ms)
    from sojourn.store.redis import RedisRelocationStore

    return RedisRelocationStore(parsed.location, namespace, timeout_ms=timeout_ms)
