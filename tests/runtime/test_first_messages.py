"""A first send outlives the worker and the node that were to handle it (B7.1)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sojourn.errors import SojournError
from sojourn.workers import member
from sojourn.workers.cold import cold_reference

from tests.runtime.cluster import QUICK_LEASE, Cluster, cluster, gate
from tests.runtime.fleet import Device


@pytest.fixture(autouse=True)
def quick_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "REFRESH_S", 0.2)


@pytest.fixture(params=["memory", "sqlite", "redis"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str) -> str:
    if request.param == "redis":
        return redis_url
    return "memory://first" if request.param == "memory" else f"sqlite:{tmp_path / 'store.db'}"


async def answered(device: Any) -> list[int]:
    """What the object remembers, once it can be reached again."""
    async with asyncio.timeout(30):
        while True:
            try:
                return list(await device.request(Device.history))
            except SojournError:
                continue


async def stored(it: Cluster, name: str, device: Any) -> bytes | None:
    """The record of the object that this node made."""
    held = it.held(name, device)
    assert held is not None
    return await it.nodes[name].blobs.read(cold_reference(device.key, held.object_generation))


async def ended(it: Cluster, name: str, device: Any) -> None:
    """The record is not there any more."""
    async with asyncio.timeout(20):
        while await stored(it, name, device) is not None:
            await it.nodes[name].call("status", {})


async def test_a_first_send_is_run_by_the_next_node_when_its_own_dies(store_url: str) -> None:
    async with cluster(nodes=2, workers=1, store_url=store_url, **QUICK_LEASE) as it, gate() as entrance:
        device = it.client.spot(Device, "d")
        await device.send(Device.note_held, entrance.port, 5)
        await entrance.arrived()
        name = await it.where(device)
        assert await stored(it, name, device) is not None
        await it.crash(name)
        entrance.open()
        assert await answered(device) == [5]
        other = await it.where(device)
        assert other != name
        await ended(it, other, device)
        assert it.nodes[other].counters["first_messages_recovered"] == 1


async def test_a_first_send_is_run_by_the_next_worker_when_its_own_dies() -> None:
    async with cluster(nodes=1, workers=2) as it, gate() as entrance:
        device = it.client.spot(Device, "d")
        await device.send(Device.note_held, entrance.port, 5)
        await entrance.arrived()
        await it.kill_worker("n0", device)
        await it.journal.wait("worker_lost")
        entrance.open()
        assert await answered(device) == [5]
        await ended(it, "n0", device)


async def test_a_first_send_that_was_handled_is_not_run_again() -> None:
    async with cluster(nodes=1, workers=2) as it:
        device = it.client.spot(Device, "d")
        await device.send(Device.note, 5)
        assert await device.request(Device.history) == [5]
        await ended(it, "n0", device)
        await it.kill_worker("n0", device)
        await it.journal.wait("worker_lost")
        assert await answered(device) == []
        assert "first_messages_recovered" not in it.nodes["n0"].counters


async def test_a_first_send_that_moves_leaves_no_record() -> None:
    """The target answers for it from then on: its death loses the message with the object."""
    async with cluster(nodes=2, workers=1) as it, gate() as entrance:
        device = it.client.spot(Device, "d")
        await device.send(Device.note_held, entrance.port, 5)
        await entrance.arrived()
        name = await it.where(device)
        (target,) = await it.others(device)
        held = it.held(name, device)
        assert held is not None
        reference = cold_reference(device.key, held.object_generation)
        moving = asyncio.ensure_future(device.relocate(target))
        await it.client.spot(Device, "other").request(Device.add, 1)
        entrance.open()
        assert (await moving).outcome == "moved"
        assert await device.request(Device.history) == [5]
        async with asyncio.timeout(20):
            while await it.nodes[name].blobs.read(reference) is not None:
                await it.nodes[name].call("status", {})


async def test_a_first_request_is_not_run_again() -> None:
    """Its requester was told, and decides (B3.1)."""
    async with cluster(nodes=1, workers=2) as it, gate() as entrance:
        device = it.client.spot(Device, "d")
        asked = asyncio.ensure_future(device.request(Device.held, entrance.port))
        await entrance.arrived()
        assert await stored(it, "n0", device) is None
        await it.kill_worker("n0", device)
        with pytest.raises(SojournError):
            await asked
        assert await answered(device) == []
