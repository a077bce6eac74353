"""Single objects that move between nodes while others talk to them."""

from __future__ import annotations

import asyncio

import pytest

from tests.runtime.cluster import Cluster, cluster, gate
from tests.runtime.fleet import Brittle, Device, Forgetful, Player, Rooted, Sender, Sink, Ticker


def assert_calm(it: Cluster) -> None:
    """Nothing happened that an undisturbed run must not see."""
    for name in ("marker_timeout", "cutover_timeout", "cutover_mismatch", "dead_letter", "object_lost"):
        assert not it.journal.named(name), it.journal.named(name)


@pytest.mark.timeout(120)
async def test_three_senders_on_three_nodes_over_moves_there_and_back() -> None:
    """Each message is handled once, each sender's in order (B9.4), whether it asks, tells or mixes."""
    count = 600
    async with cluster() as it:
        sink = it.client.spot(Sink, "sink")
        await sink.request(Sink.result)
        senders = [
            await it.on_node(name, lambda text: it.client.spot(Sender, text), Sender.ready)
            for name in it.nodes
        ]
        runs = [
            asyncio.ensure_future(sender.with_timeout(90).request(Sender.run, "sink", count, kind))
            for sender, kind in zip(senders, ("request", "send", "mixed"), strict=True)
        ]
        moves = 0
        while moves < 20 or (moves < 60 and not all(run.done() for run in runs)):
            names = await it.others(sink)
            result = await sink.relocate(names[moves % 2])
            assert result.outcome == "moved", result
            moves += 1
        assert await asyncio.gather(*runs) == [count] * 3
        last, wrong, total = await sink.request(Sink.result)
        while total < 3 * count and not wrong:
            last, wrong, total = await sink.request(Sink.result)
        assert (wrong, total) == ([], 3 * count)
        assert last == {sender.id: count for sender in senders}
        assert_calm(it)


async def test_round_trip_keeps_state_and_generation_order() -> None:
    async with cluster() as it:
        device = it.client.spot(Device, "d")
        total = await device.request(Device.add, 1)
        here = await it.where(device)
        first, second = await it.others(device)
        for name in (first, here, second, first):
            result = await device.relocate(name)
            assert (result.outcome, result.node) == ("moved", name)
            assert result.interruption_ns > 0
            assert await it.where(device) == name  # the next request is handled there (B8.9)
            total = await device.request(Device.add, 1)
        assert total == 5
        assert await device.request(Device.history) == [1] * 5
        player = await it.client.create(Player, "p", 7, at=here)
        for name in (second, here):
            assert (await player.relocate(name)).outcome == "moved"
        assert await player.request(Player.hit, 3) == 10
        assert_calm(it)


async def test_request_in_flight_and_queue_go_along() -> None:
    """The running turn ends at the source; what waited behind it runs on the target (R4.2.1, R5.2)."""
    async with cluster() as it, gate() as entrance:
        device = it.client.spot(Device, "d")
        await device.request(Device.add, 1)
        target = (await it.others(device))[0]
        running = asyncio.ensure_future(device.request(Device.held, entrance.port))
        await entrance.arrived()
        queued = [asyncio.ensure_future(device.request(Device.add, 10**i)) for i in range(1, 4)]
        moving = asyncio.ensure_future(device.relocate(target))
        await it.client.spot(Device, "other").request(Device.add, 1)
        entrance.open()
        assert await running == 1
        assert (await moving).outcome == "moved"
        assert await asyncio.gather(*queued) == [11, 111, 1111]
        assert await it.where(device) == target
        assert_calm(it)


async def test_large_state_goes_in_chunks() -> None:
    async with cluster(nodes=2) as it:
        device = it.client.spot(Device, "d")
        assert await device.request(Device.grow, 5 * 2**20) == 5 * 2**20
        for _ in range(2):
            (target,) = await it.others(device)
            assert (await device.relocate(target)).outcome == "moved"
            assert await device.request(Device.measure) == (5 * 2**20, True)
        assert_calm(it)


async def test_timer_ticks_on_without_a_gap() -> None:
    async with cluster(nodes=2) as it, gate() as door:
        ticker = it.client.spot(Ticker, "t")
        for tick in (4, 8, 12):
            await ticker.request(Ticker.knock_at, tick, door.port)
        for _ in range(2):
            await door.arrived()
            (target,) = await it.others(ticker)
            assert (await ticker.relocate(target)).outcome == "moved"
        await door.arrived()
        ticks = await ticker.request(Ticker.seen)
        assert len(ticks) >= 12
        assert [delivery for delivery, _ in ticks] == list(range(1, len(ticks) + 1))
        scheduled = [index for _, index in ticks]
        assert scheduled == sorted(set(scheduled))


async def test_recreate_moves_the_queue_and_not_the_state() -> None:
    async with cluster(nodes=2) as it, gate() as entrance:
        spot = it.client.spot(Forgetful, "f")
        assert await spot.request(Forgetful.add, 5) == 5
        (target,) = await it.others(spot)
        running = asyncio.ensure_future(spot.request(Forgetful.held, entrance.port))
        await entrance.arrived()
        queued = asyncio.ensure_future(spot.request(Forgetful.add, 2))
        moving = asyncio.ensure_future(spot.relocate(target))
        await it.client.spot(Device, "other").request(Device.add, 1)
        entrance.open()
        assert (await moving).outcome == "moved"
        assert await running == 5
        assert await queued == 2


async def test_disabled_never_moves_and_a_move_home_is_nothing() -> None:
    """B1.8, B8.7."""
    async with cluster(nodes=2) as it:
        rooted = it.client.spot(Rooted, "r")
        await rooted.request(Rooted.ping)
        home = await it.where(rooted)
        (other,) = await it.others(rooted)
        result = await rooted.relocate(other)
        assert (result.outcome, result.node) == ("failed", home)
        assert "RelocationDisabled" in result.reason
        device = it.client.spot(Device, "d")
        await device.request(Device.add, 1)
        result = await device.relocate(await it.where(device))
        assert result.outcome == "moved"
        assert await device.request(Device.add, 1) == 2


async def test_state_that_cannot_be_captured_is_named_and_serves_on() -> None:
    async with cluster(nodes=2) as it:
        device = it.client.spot(Device, "d")
        await device.request(Device.add, 1)
        home = await it.where(device)
        (other,) = await it.others(device)
        await device.request(Device.take_lock)
        result = await device.relocate(other)
        assert (result.outcome, result.node) == ("failed", home)
        assert "StateIncompatible" in result.reason
        assert "handle" in result.reason
        assert await device.request(Device.add, 1) == 2
        await device.request(Device.drop_lock)
        assert (await device.relocate(other)).outcome == "moved"
        assert await device.request(Device.add, 1) == 3


async def test_state_that_cannot_be_restored_is_named_and_serves_on() -> None:
    """The exception of the target reaches whoever asked for the move (B10.2), and no other target is tried."""
    async with cluster() as it:
        spot = it.client.spot(Brittle, "b")
        assert await spot.request(Brittle.ping) == "pong"
        home = await it.where(spot)
        other = (await it.others(spot))[0]
        result = await spot.relocate(other)
        assert (result.outcome, result.node) == ("failed", home)
        assert "StateIncompatible" in result.reason
        assert f"node {other}" in result.reason
        assert "ValueError: no such ledger 7" in result.reason
        assert await spot.request(Brittle.ping) == "pong"
        host = await it.nodes[home].call("relocate_node", {"deadline_s": 20})
        (stayed,) = host["stayed"]
        assert (host["outcome"], stayed["reason"]) == ("Blocked", "StateIncompatible")
        assert "ValueError: no such ledger 7" in stayed["detail"]
        assert await spot.request(Brittle.ping) == "pong"
        assert_calm(it)


async def test_own_move_from_a_handler() -> None:
    """It starts after the turn, and the caller gets exactly one reply (B8.8)."""
    async with cluster(nodes=2) as it:
        device = it.client.spot(Device, "d")
        await device.request(Device.add, 1)
        (other,) = await it.others(device)
        assert await device.request(Device.go, other) == "d"
        while await it.where(device) != other:
            await device.request(Device.add, 1)
        total = await device.request(Device.add, 1)
        assert len(await device.request(Device.history)) == total
