"""Stores on a Redis or Valkey server, for nodes on several machines (B6.2).

Owns the keys and the Lua scripts (one file each; one script call is one store call). All keys of a
namespace share one hash tag. Times are those of the server.

An asynchronous failover can forget a write that was acknowledged: a stated non-guarantee.
"""

from __future__ import annotations

from typing import Any

from sojourn.blobs import RETENTION_MS
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
from sojourn.store.limits import check_key, check_namespace, check_scan, check_ttl, check_write
from sojourn.store.redis_lane import RedisLanes, Script

__all__ = ["RedisLocationStore", "RedisRelocationStore"]


class _RedisStore:
    """What both stores share: the server and the hash tag."""

    scripts: tuple[Script, ...] = ()

    def __init__(self, url: str, namespace: str, *, timeout_ms: int = 5_000) -> None:
        self._tag = b"{sojourn:" + check_namespace(namespace).encode("ascii") + b"}:"
        self._lanes = RedisLanes(url, self.scripts, timeout_ms)

    async def close(self) -> None:
        """See `LocationStore.close`."""
        await self._lanes.close()


class RedisLocationStore(_RedisStore):
    """A Location Store on a Redis server."""

    _read_script = Script("read")
    _write_script = Script("write")
    _scan_script = Script("scan")
    scripts = (_read_script, _write_script, _scan_script)

    def __init__(self, url: str, namespace: str, *, timeout_ms: int = 5_000) -> None:
        super().__init__(url, namespace, timeout_ms=timeout_ms)
        self._rows = self._tag + b"row:"
        self._blobs = self._tag + b"blob:"
        self._index = self._tag + b"index"
        self._version = self._tag + b"version"

    async def read(self, key: str) -> ReadResult:
        """See `LocationStore.read`."""
        keys = [self._rows + check_key(key)]
        answer: list[Any] = await self._lanes.run(self._read_script, keys, [], writes=False)
        if len(answer) == 1:
            return Missing(answer[0])
        now_ms, version, expires_ms, value = answer
        return Found(value, version.decode("ascii"), expires_ms or None, now_ms)

    async def write(self, conditions: list[Condition], mutations: list[Mutation]) -> WriteResult:
        """See `LocationStore.write`."""
        check_write(conditions, mutations)
        keys = [self._version, self._index]
        numbers: dict[str, bytes] = {}
        arguments_of_blobs: list[bytes] = []
        for item in (*conditions, *mutations):
            if isinstance(item, PutBlob | DeleteBlob):
                keys.append(self._blobs + check_key(item.key))
                arguments_of_blobs += (
                    b"%d" % len(keys),
                    b"b%d" % item.ttl_ms if isinstance(item, PutBlob) else b"d",
                    item.value if isinstance(item, PutBlob) else b"",
                )
            elif item.key not in numbers:
                keys.append(self._rows + check_key(item.key))
                numbers[item.key] = b"%d" % len(keys)
        arguments = [b"%d" % len(self._rows), b"%d" % len(conditions)]
        for condition in conditions:
            wanted = _version_text(condition.version) if isinstance(condition, IfVersion) else b""
            arguments += (numbers[condition.key], wanted)
        for mutation in mutations:
            if isinstance(mutation, Put):
                arguments += (numbers[mutation.key], b"%d" % (mutation.ttl_ms or 0), mutation.value)
            elif isinstance(mutation, Delete):
                arguments += (numbers[mutation.key], b"x", b"")
        arguments += arguments_of_blobs
        done, detail = await self._lanes.run(self._write_script, keys, arguments, writes=True)
        if not done:
            return Conflict(conditions[detail - 1].key)
        version = detail.decode("ascii")
        return Applied({mutation.key: version for mutation in mutations if isinstance(mutation, Put)})

    async def scan(self, prefix: str, cursor: str | None = None, limit: int = 1000) -> ScanPage:
        """See `LocationStore.scan`."""
        check_scan(prefix, cursor, limit)
        first = prefix.encode("utf-8")
        lower = b"(" + check_key(cursor) if cursor is not None else b"[" + first if first else b"-"
        # UTF-8 has no byte 0xFF, so the last byte can always be counted up.
        upper = b"(" + first[:-1] + bytes([first[-1] + 1]) if first else b"+"
        arguments = [self._rows, lower, upper, b"%d" % limit]
        answer: list[Any] = await self._lanes.run(self._scan_script, [self._index], arguments, writes=False)
        now_ms, more, *flat = answer
        rows = tuple(
            [
                StoreRow(flat[at].decode("utf-8"), flat[at + 2], flat[at + 1].decode("ascii"))
                for at in range(0, len(flat), 3)
            ]
        )
        return ScanPage(rows, rows[-1].key if more else None, now_ms)


class RedisRelocationStore(_RedisStore):
    """A Relocation Store on a Redis server; the server itself ends blobs whose retention is over."""

    _put_script = Script("put_blob")
    scripts = (_put_script,)

    async def put(self, reference: str, blob: bytes, ttl_ms: int = RETENTION_MS) -> bool:
        """See `RelocationStore.put`."""
        check_ttl(ttl_ms)
        arguments = [blob, b"%d" % ttl_ms]
        return bool(await self._lanes.run(self._put_script, [self._key(reference)], arguments, writes=True))

    async def read(self, reference: str) -> bytes | None:
        """See `RelocationStore.read`."""
        answer: bytes | None = await self._lanes.call([b"GET", self._key(reference)], writes=False)
        return answer

    async def renew(self, reference: str, ttl_ms: int = RETENTION_MS) -> bool:
        """See `RelocationStore.renew`."""
        check_ttl(ttl_ms)
        command = [b"PEXPIRE", self._key(reference), b"%d" % ttl_ms]
        return bool(await self._lanes.call(command, writes=True))

    async def delete(self, reference: str) -> None:
        """See `RelocationStore.delete`."""
        await self._lanes.call([b"DEL", self._key(reference)], writes=True)

    def _key(self, reference: str) -> bytes:
        return self._tag + b"blob:" + check_key(reference)


def _version_text(version: str) -> bytes:
    """A version as the script compares it; a text that is no version at all holds for no row."""
    return version.encode("ascii", "replace") or b"?"
