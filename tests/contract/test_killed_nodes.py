"""What the Relocation Store keeps when the process of a node is killed (B7.1)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sojourn.errors import SojournError
from sojourn.workers.reply_frames import reply_reference

from tests.contract.app import Ledger
from tests.contract.stand import Stand, fresh, standing
from tests.runtime.cluster import QUICK_LEASE, gate


async def ledger_on_a(stand: Stand) -> str:
    """The name of a Ledger that was made on the first node."""
    for _ in range(100):
        name = fresh("ledger")
        ledger = stand.client.spot(Ledger, name)
        await ledger.request(Ledger.history)
        if (await stand.client.locate(ledger)).node == stand.a.rid:
            return name
    raise AssertionError("placement never chose the first node")


@pytest.mark.timeout(90)
async def test_a_reply_outlives_the_target_it_was_given_on(tmp_path: Path) -> None:
    async with standing(tmp_path, **QUICK_LEASE) as stand, gate() as entrance, gate() as way_out:
        client, name = stand.client, await ledger_on_a(stand)
        ledger = client.spot(Ledger, name)
        first = asyncio.ensure_future(ledger.request(Ledger.hold, entrance.port))
        await entrance.arrived()
        moved = asyncio.ensure_future(ledger.with_timeout(60).request(Ledger.hold, way_out.port))
        await client.spot(Ledger, fresh("other")).request(Ledger.history)
        before = await stand.started(stand.a)
        moving = asyncio.ensure_future(ledger.relocate(stand.b.rid))
        await stand.sealing(stand.a, before)
        entrance.open()
        assert await first == 1
        assert (await moving).outcome == "moved"
        await way_out.arrived()
        (request,) = client.senders.outstanding.values()
        run = stand.run_of(stand.b)
        client.links.unwant(run)
        link = client.links.get(run)
        assert link is not None
        link.abort("cut by the test")
        await link.wait_closed()
        way_out.open()
        reference = reply_reference(client.run.generation, request.operation_high, request.operation_low)
        async with asyncio.timeout(20):
            while await stand.blobs.read(reference) is None:
                await stand.b.status()
        assert not moved.done()
        await stand.b.kill()
        assert await moved == 2
        assert stand.ran(name) == ["held", "held"]


@pytest.mark.timeout(90)
async def test_a_first_send_outlives_the_node_that_was_to_handle_it(tmp_path: Path) -> None:
    async with standing(tmp_path, **QUICK_LEASE) as stand, gate() as entrance:
        name = fresh("ledger")
        ledger = stand.client.spot(Ledger, name)
        await ledger.send(Ledger.hold_note, entrance.port)
        await entrance.arrived()
        there = (await stand.client.locate(ledger)).node
        await (stand.a if stand.a.rid == there else stand.b).kill()
        entrance.open()
        async with asyncio.timeout(40):
            while True:
                try:
                    history = await ledger.request(Ledger.history)
                    break
                except SojournError:
                    continue
        assert history == ["noted"]
        assert stand.ran(name) == ["noted"]
        assert (await stand.client.locate(ledger)).node != there
