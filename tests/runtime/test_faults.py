"""What goes wrong in one object stays there: typed errors, and everything else serves on."""

from __future__ import annotations

import asyncio

import pytest
import sojourn as sj
from sojourn.options import Options
from sojourn.workers.client import Client

from tests.runtime.cluster import cluster, gate
from tests.runtime.fleet import Device, Stillborn, app


async def test_a_result_that_no_frame_holds_is_an_error_and_the_worker_lives() -> None:
    async with cluster(nodes=1, workers=1) as it:
        device = it.client.spot(Device, "d")
        assert await device.request(Device.add, 1) == 1
        with pytest.raises(sj.InternalFailure, match="max_frame_bytes = 1048576"):
            await device.request(Device.give, 2_000_000)
        with pytest.raises(sj.InternalFailure, match="characters"):
            await device.request(Device.complain, 2_000_000)
        assert await device.request(Device.add, 1) == 2


async def test_a_member_that_reads_less_gets_an_error_instead_of_the_frame() -> None:
    settings = {"relocation_chunk_bytes": 1024}
    async with cluster(nodes=1, workers=1, **settings) as it:
        less = Options.from_mapping(it.options.to_mapping() | {"max_frame_bytes": 4096})
        async with Client(app, less, "less") as client:
            device = client.spot(Device, "d")
            with pytest.raises(sj.InvalidOperation, match="max_frame_bytes"):
                await device.request(Device.give, 200_000)
            assert await device.request(Device.add, 1) == 1


async def test_no_move_to_a_node_that_could_not_read_every_relayed_message() -> None:
    async with cluster(nodes=2, workers=1) as it:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        link = it.nodes["n0"].links.get(it.nodes["n1"].run)
        assert link is not None
        reads, link.peer_frame_octets_max = link.peer_frame_octets_max, 5000
        result = await device.relocate("n1")
        assert result.outcome == "failed"
        assert "TargetUnavailable" in result.reason
        assert "max_frame_bytes" in result.reason
        assert await device.request(Device.add, 1) == 1
        link.peer_frame_octets_max = reads
        assert (await device.relocate("n1")).outcome == "moved"


async def test_a_spot_that_cannot_be_made_says_why_every_time() -> None:
    async with cluster(nodes=1) as it:
        for _ in range(3):
            with pytest.raises(sj.InternalFailure, match="no such thing"):
                await it.client.spot(Stillborn, "s").request(Stillborn.ping)


async def test_a_move_ends_at_its_deadline_while_a_turn_goes_on() -> None:
    settings = {"move_deadline_ms": 300, "relocation_seal_reserve_ms": 0}
    async with cluster(nodes=2, **settings) as it, gate() as entrance:
        device = it.client.spot(Device, "d")
        await device.request(Device.add, 1)
        (target,) = await it.others(device)
        running = asyncio.ensure_future(device.request(Device.held, entrance.port))
        await entrance.arrived()
        queued = asyncio.ensure_future(device.request(Device.add, 10))
        result = await device.relocate(target)
        assert result.outcome == "failed"
        assert "DeadlineExceeded" in result.reason
        assert not running.done()
        entrance.open()
        assert await running == 1
        assert await queued == 11
        assert (await device.relocate(target)).outcome == "moved"


async def test_a_spot_that_died_with_its_worker_comes_back_by_the_next_message() -> None:
    async with cluster(nodes=2) as it, gate() as entrance:
        device = it.client.spot(Device, "d")
        await device.request(Device.add, 1)
        running = asyncio.ensure_future(device.request(Device.held, entrance.port))
        await entrance.arrived()
        await it.kill_worker(await it.where(device), device)
        with pytest.raises(sj.Unavailable):
            await running
        assert await device.request(Device.add, 1) == 1
