"""What a cluster of real nodes must do: move objects there and back under load, and lose or repeat nothing."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from sojourn.workers.local_cluster import LocalCluster

from tests.cluster.under_load import counters, progress, senders_on_every_node, started_cluster, where
from tests.runtime.cluster import gate
from tests.runtime.fleet import Device, Player, Sender, Sink, Ticker

pytestmark = pytest.mark.asyncio(loop_scope="module")
MESSAGES = 10_000
MOVES = 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def on_sqlite() -> AsyncIterator[LocalCluster]:
    """Three nodes on an SQLite store of their own."""
    async with started_cluster(None, "cluster") as cluster:
        yield cluster


@pytest.mark.timeout(150)
async def test_three_senders_and_twenty_moves_on_sqlite(on_sqlite: LocalCluster) -> None:
    await three_senders_and_twenty_moves(on_sqlite)


@pytest.mark.timeout(150)
async def test_three_senders_and_twenty_moves_on_redis(redis_url: str) -> None:
    async with started_cluster(redis_url, f"cluster-{secrets.token_hex(4)}") as cluster:
        await three_senders_and_twenty_moves(cluster)


async def three_senders_and_twenty_moves(cluster: LocalCluster) -> None:
    """Three senders on three nodes send 10,000 messages each, by request, by send and mixed, while their object
    moves A→B→A: each is handled once, each sender's in order, none becomes a dead letter (B9.4)."""
    name = f"sink-{secrets.token_hex(4)}"
    sink = cluster.client.spot(Sink, name)
    await sink.request(Sink.result)
    home = await where(cluster, sink)
    away = next(node.rid for node in cluster.nodes if node.rid != home)
    senders = await senders_on_every_node(cluster, f"{name}-sender")
    before = await counters(cluster)
    runs = [
        asyncio.ensure_future(sender.with_timeout(100).request(Sender.run, name, MESSAGES, kind))
        for sender, kind in zip(senders, ("request", "send", "mixed"), strict=True)
    ]
    total = len(runs) * MESSAGES
    for move in range(MOVES):
        result = await sink.relocate(away if move % 2 == 0 else home)
        assert result.outcome == "moved", result
        due = (move + 1) * total // (MOVES + 1)
        _, wrong, _ = await progress(sink, lambda count, due=due: count >= due)
        assert wrong == []
    assert await asyncio.gather(*runs) == [MESSAGES] * len(runs)
    last, wrong, count = await progress(sink, lambda count: count >= total)
    assert (wrong, count) == ([], total)
    assert last == {sender.id: MESSAGES for sender in senders}
    assert await where(cluster, sink) == home
    after = await counters(cluster)
    for counter in ("dead_letters", "in_doubt", "failed_requests"):
        assert after.get(counter, 0) == before.get(counter, 0), counter
    assert after["relocations_moved"] - before.get("relocations_moved", 0) == MOVES


async def test_a_timer_ticks_once_each_over_two_moves(on_sqlite: LocalCluster) -> None:
    """200 ms: ticks 1 to 40, no gap and no repeat."""
    ticker = on_sqlite.client.spot(Ticker, "ticker")
    async with gate() as door:
        for tick in (13, 26, 40):
            await ticker.request(Ticker.knock_at, tick, door.port)
        for _ in range(2):
            await door.arrived()
            here = await where(on_sqlite, ticker)
            target = next(node.rid for node in on_sqlite.nodes if node.rid != here)
            assert (await ticker.relocate(target)).outcome == "moved"
        await door.arrived()
    ticks = await ticker.request(Ticker.seen)
    assert [delivery for delivery, _ in ticks[:40]] == list(range(1, 41))
    scheduled = [index for _, index in ticks]
    assert scheduled == sorted(set(scheduled))


async def test_requests_queue_and_timers_survive(on_sqlite: LocalCluster) -> None:
    """The running request ends at the source, what waits behind it is answered from the target."""
    cluster = on_sqlite
    async with gate() as entrance:
        device = cluster.client.spot(Device, "survivor")
        await device.request(Device.add, 1)
        home = await where(cluster, device)
        target = next(node for node in cluster.nodes if node.rid != home)
        source = next(node for node in cluster.nodes if node.rid == home)
        begun = (await source.status())["counters"].get("relocations_started", 0)
        running = asyncio.ensure_future(device.request(Device.held, entrance.port))
        await entrance.arrived()
        queued = [asyncio.ensure_future(device.request(Device.add, 10**i)) for i in range(1, 4)]
        await cluster.client.spot(Device, "another").request(Device.add, 1)
        moving = asyncio.ensure_future(device.relocate(target.rid))
        while (await source.status())["counters"].get("relocations_started", 0) == begun:
            assert not moving.done()
        held = asyncio.ensure_future(device.request(Device.add, 10**4))
        entrance.open()
        assert await running == 1
        assert (await moving).outcome == "moved"
        assert await asyncio.gather(*queued, held) == [11, 111, 1111, 11111]
        assert await where(cluster, device) == target.rid


@pytest.mark.timeout(90)
async def test_a_node_is_emptied_under_load_and_comes_back(on_sqlite: LocalCluster) -> None:
    cluster = on_sqlite
    node = cluster.nodes[1]
    devices = [cluster.client.spot(Device, f"load-{number}") for number in range(60)]
    for device in devices:
        await device.request(Device.add, 0)
    players = [await cluster.client.create(Player, f"player-{number}", at=node.rid) for number in range(5)]
    before = await counters(cluster)
    enough = asyncio.Event()
    sent = [0] * len(devices)

    async def keep_adding(number: int) -> None:
        while not enough.is_set():
            sent[number] += 1
            assert await devices[number].request(Device.add, 1) == sent[number]

    load = [asyncio.ensure_future(keep_adding(number)) for number in range(len(devices))]
    result = await node.relocate()
    assert (result.outcome, result.stayed) == ("Relocated", [])
    assert result.moved >= len(players)
    status = await node.status()
    assert (status["state"], status["objects"]) == ("Relocated", 0)
    for number in range(20):
        newcomer = cluster.client.spot(Device, f"newcomer-{number}")
        await newcomer.request(Device.add, 1)
        assert await where(cluster, newcomer) != node.rid
    await node.uncordon()
    back = devices[:10]
    for device in back:
        assert (await device.relocate(node.rid)).outcome == "moved"
    enough.set()
    await asyncio.gather(*load)
    for device, count in zip(devices, sent, strict=True):
        assert await device.request(Device.add, 0) == count
    for device in back:
        assert await where(cluster, device) == node.rid
    for player in players:
        assert await player.request(Player.hit, 3) == 3
    after = await counters(cluster)
    assert after.get("dead_letters", 0) == before.get("dead_letters", 0)
