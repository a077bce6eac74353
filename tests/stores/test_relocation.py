"""The Relocation Store rules of B7.1, the same for every provider."""

from __future__ import annotations

import pytest
from sojourn.blobs import RelocationStore
from sojourn.errors import InvalidOperation
from sojourn.location import StoreUnavailable

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
