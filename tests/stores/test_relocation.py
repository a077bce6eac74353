"""The Relocation Store rules of B7.1, the same for every provider."""

from __future__ import annotations

import pytest
from sojourn.blobs import RelocationStore
from sojourn.errors import InvalidOperation
from sojourn.location import (
    Applied,
    Conflict,
    DeleteBlob,
    Found,
    IfMissing,
    Put,
    PutBlob,
    StoreRow,
    StoreUnavailable,
)

from tests.stores.providers import Provider


async def test_a_blob_reads_back(blobs: RelocationStore) -> None:
    blob = bytes(range(256)) * 1000
    assert await blobs.put("reference", blob)
    assert await blobs.read("reference") == blob
    assert await blobs.read("other") is None


async def test_a_blob_never_changes(blobs: RelocationStore) -> None:
    assert await blobs.put("reference", b"first")
    assert await blobs.put("reference", b"first"), "the same bytes again are no conflict"
    assert not await blobs.put("reference", b"second")
    assert await blobs.read("reference") == b"first"


async def test_delete_frees_the_reference(blobs: RelocationStore) -> None:
    await blobs.put("reference", b"first")
    await blobs.delete("reference")
    await blobs.delete("reference")
    assert await blobs.read("reference") is None
    assert await blobs.put("reference", b"second")


async def test_a_blob_ends_with_its_retention(blobs: RelocationStore, provider: Provider) -> None:
    await blobs.put("short", b"x", ttl_ms=30)
    await blobs.put("long", b"x", ttl_ms=60_000)
    await provider.pass_time(50)
    assert await blobs.read("short") is None
    assert await blobs.read("long") == b"x"
    assert not await blobs.renew("short")
    assert await blobs.put("short", b"other")


async def test_renewing_starts_the_retention_anew(blobs: RelocationStore, provider: Provider) -> None:
    await blobs.put("reference", b"x", ttl_ms=500)
    for _ in range(3):
        await provider.pass_time(200)
        assert await blobs.renew("reference", 500)
    assert await blobs.read("reference") == b"x"
    assert not await blobs.renew("other")


async def test_an_empty_blob_is_a_blob(blobs: RelocationStore) -> None:
    assert await blobs.put("reference", b"")
    assert await blobs.read("reference") == b""


async def test_bad_arguments_are_refused(blobs: RelocationStore) -> None:
    for bad in ("", "a\x00", "x" * 1025):
        for call in (blobs.put(bad, b""), blobs.read(bad), blobs.renew(bad), blobs.delete(bad)):
            with pytest.raises(InvalidOperation):
                await call
    with pytest.raises(InvalidOperation, match="TTL"):
        await blobs.put("reference", b"", ttl_ms=0)
    with pytest.raises(InvalidOperation, match="TTL"):
        await blobs.renew("reference", ttl_ms=0)


async def test_after_close_every_call_is_refused(provider: Provider) -> None:
    blobs = provider.relocation()
    await blobs.put("reference", b"x")
    await blobs.close()
    for call in (blobs.put("r", b""), blobs.read("r"), blobs.renew("r"), blobs.delete("r")):
        with pytest.raises(StoreUnavailable, match="closed"):
            await call


async def test_rows_and_blobs_do_not_meet(blobs: RelocationStore, provider: Provider) -> None:
    store = provider.location()
    await blobs.put("key", b"blob")
    assert (await store.scan("")).rows == ()
    await store.close()


async def test_blobs_change_with_rows_in_one_write(blobs: RelocationStore, provider: Provider) -> None:
    """A cold activation stores its first message with the row (B7.1)."""
    store = provider.location()
    try:
        done = await store.write(
            [IfMissing("row")],
            [Put("row", b"1"), PutBlob("blob", b"first", 60_000), PutBlob("row", b"x", 60_000)],
        )
        assert isinstance(done, Applied)
        assert list(done.versions) == ["row"]
        assert await blobs.read("blob") == b"first"
        assert await blobs.read("row") == b"x", "a blob and a row of one name are two things"
        conflict = await store.write(
            [IfMissing("row")], [PutBlob("blob", b"second", 60_000), DeleteBlob("row")]
        )
        assert isinstance(conflict, Conflict)
        assert await blobs.read("blob") == b"first"
        assert await blobs.read("row") == b"x"
        await store.write([], [DeleteBlob("row"), PutBlob("blob", b"second", 60_000), DeleteBlob("missing")])
        assert await blobs.read("row") is None
        assert await blobs.read("blob") == b"second", "the writer's own reference"
        found = await store.read("row")
        assert isinstance(found, Found)
        assert found.value == b"1"
        assert (await store.scan("")).rows == (StoreRow("row", b"1", found.version),)
    finally:
        await store.close()


async def test_a_blob_of_a_write_ends_with_its_retention(blobs: RelocationStore, provider: Provider) -> None:
    store = provider.location()
    try:
        await store.write([], [PutBlob("short", b"x", 30), PutBlob("long", b"x", 60_000)])
        await provider.pass_time(50)
        assert await blobs.read("short") is None
        assert await blobs.read("long") == b"x"
        with pytest.raises(InvalidOperation):
            await store.write([], [PutBlob("two", b"x", 30), DeleteBlob("two")])
        with pytest.raises(InvalidOperation):
            await store.write([], [PutBlob("none", b"x", 0)])
    finally:
        await store.close()
