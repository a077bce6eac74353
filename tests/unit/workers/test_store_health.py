"""Whether a member's stores work, as its status shows it (B12.2)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sojourn.location import Applied, Found, Put, StoreUnavailable, StoreUnknown
from sojourn.store import open_location_store, open_relocation_store
from sojourn.workers.store_health import StoreHealth, WatchedLocationStore, WatchedRelocationStore


async def test_a_file_that_is_gone_shows_until_it_is_back(tmp_path: Path) -> None:
    changes: list[bool] = []
    health = StoreHealth(lambda failing, error: changes.append(failing))
    url = f"sqlite:///{tmp_path / 'store.db'}"
    rows = WatchedLocationStore(open_location_store(url, "c"), health)
    blobs = WatchedRelocationStore(open_relocation_store(url, "c"), health)
    assert isinstance(await rows.write([], [Put("k", b"v")]), Applied)
    assert await blobs.put("r", b"blob")
    assert await blobs.renew("r")
    assert health.figures() == {"failing": False, "errors": 0, "last_error": ""}
    (tmp_path / "store.db").rename(tmp_path / "away")
    for call in (rows.read("k"), rows.scan("k"), rows.write([], []), blobs.read("r"), blobs.delete("r")):
        with pytest.raises(StoreUnavailable):
            await call
    assert (health.failing, health.errors, changes) == (True, 5, [True])
    assert "was removed or replaced while it was in use" in health.last_error
    (tmp_path / "away").rename(tmp_path / "store.db")
    found = await rows.read("k")
    assert isinstance(found, Found)
    assert await blobs.read("r") == b"blob"
    assert (health.failing, health.errors, changes) == (False, 5, [True, False])
    await rows.close()
    await blobs.close()


async def test_an_unknown_outcome_counts_and_a_caller_that_ended_does_not() -> None:
    health = StoreHealth(lambda failing, error: None)

    async def unknown() -> None:
        raise StoreUnknown("no answer", applied="unknown")

    with pytest.raises(StoreUnknown):
        await health.watch(unknown())
    assert (health.errors, health.last_error) == (1, "no answer")
    waiting = asyncio.ensure_future(health.watch(asyncio.Event().wait()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert health.errors == 1
