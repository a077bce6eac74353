"""Moves between the workers of one node (B8.7)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sojourn.errors import InvalidOperation, Unavailable
from sojourn.rows import HostState
from sojourn.spots.references import Reference
from sojourn.workers.bindings import binding_fields
from sojourn.workers.local_driver import LocalDriver
from sojourn.workers.objects import Place

from tests.links.members import turn_until
from tests.runtime.cluster import Cluster, cluster, gate, hold_answer
from tests.runtime.fleet import Device, Forgetful, Player, Rooted, Sender, Sink, Ticker
from tests.runtime.test_moves import assert_calm
from tests.runtime.test_sessions import SESSION, bind, settled


async def slot(it: Cluster, reference: Reference[Any]) -> int:
    return (await it.client.locate(reference)).worker


async def senders_of(it: Cluster, per_slot: int, names: tuple[str, ...]) -> list[Reference[Any]]:
    """Senders in every worker of these nodes."""
    found: dict[tuple[str, int], list[Reference[Any]]] = {
        (name, worker): [] for name in names for worker in range(it.nodes[name].workers)
    }
    for number in range(400):
        sender = it.client.spot(Sender, f"sender-{number}")
        await sender.request(Sender.ready)
        at = await it.client.locate(sender)
        mine = found.get((at.node, at.worker))
        if mine is not None and len(mine) < per_slot:
            mine.append(sender)
        if all(len(each) == per_slot for each in found.values()):
            return [sender for each in found.values() for sender in each]
    raise AssertionError(f"placement left a worker empty: {found}")


@pytest.mark.timeout(120)
async def test_senders_in_every_worker_and_on_another_node_keep_their_order() -> None:
    """Over 20 moves and more: in the object's worker of the moment, in the other, on the other node."""
    count = 400
    async with cluster(nodes=2) as it:
        sink = await it.on_node("n0", lambda text: it.client.spot(Sink, text), Sink.result)
        senders = await senders_of(it, 1, ("n0", "n1"))
        kinds = ("request", "send", "mixed", "mixed")
        runs = [
            asyncio.ensure_future(sender.with_timeout(90).request(Sender.run, sink.id, count, kind))
            for sender, kind in zip(senders, kinds, strict=True)
        ]
        moves = 0
        while moves < 20 or (moves < 80 and not all(run.done() for run in runs)):
            worker = 1 - await slot(it, sink)
            result = await sink.relocate(worker=worker)
            assert (result.outcome, result.node) == ("moved", "n0"), result
            assert await slot(it, sink) == worker
            moves += 1
        assert await asyncio.gather(*runs) == [count] * 4
        last, wrong, total = await sink.request(Sink.result)
        while total < 4 * count and not wrong:
            last, wrong, total = await sink.request(Sink.result)
        assert (wrong, total) == ([], 4 * count)
        assert last == {sender.id: count for sender in senders}
        assert_calm(it)


async def test_state_queue_and_generations_go_along() -> None:
    async with cluster(nodes=1, workers=3) as it, gate() as entrance:
        device = it.client.spot(Device, "d")
        await device.request(Device.add, 1)
        before = await it.nodes["n0"].directory.read(device.key)
        running = asyncio.ensure_future(device.request(Device.held, entrance.port))
        await entrance.arrived()
        queued = [asyncio.ensure_future(device.request(Device.add, 10**i)) for i in range(1, 4)]
        worker = (await slot(it, device) + 1) % 3
        moving = asyncio.ensure_future(device.relocate(worker=worker))
        await it.client.spot(Device, "other").request(Device.add, 1)
        entrance.open()
        assert await running == 1
        result = await moving
        assert result.outcome == "moved"
        assert result.interruption_ns > 0
        assert await asyncio.gather(*queued) == [11, 111, 1111]
        assert await slot(it, device) == worker
        after = await it.nodes["n0"].directory.read(device.key)
        assert before is not None
        assert after is not None
        assert after.row.owner == before.row.owner
        assert after.row.object_generation == before.row.object_generation
        assert after.row.owner_generation == before.row.owner_generation + 1
        held = it.held("n0", device)
        assert held is not None
        assert held.owner_generation == after.row.owner_generation
        assert not it.nodes["n0"].coordinator.under_way
        assert it.nodes["n0"].coordinator.payload_octets() == 0
        assert sum(it.nodes["n0"].object_counts.values()) == 2
        assert_calm(it)


async def test_timers_tick_on_without_a_gap() -> None:
    async with cluster(nodes=1) as it, gate() as door:
        ticker = it.client.spot(Ticker, "t")
        for tick in (3, 6, 9):
            await ticker.request(Ticker.knock_at, tick, door.port)
        for _ in range(2):
            await door.arrived()
            assert (await ticker.relocate(worker=1 - await slot(it, ticker))).outcome == "moved"
        await door.arrived()
        ticks = await ticker.request(Ticker.seen)
        assert [delivery for delivery, _ in ticks] == list(range(1, len(ticks) + 1))
        scheduled = [index for _, index in ticks]
        assert scheduled == sorted(set(scheduled))


async def test_what_may_be_asked_for() -> None:
    """To where it is: success, nothing happens. A worker that the node has not: refused before anything changes."""
    async with cluster(nodes=2) as it:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        here = await slot(it, device)
        before = await it.nodes["n0"].directory.read(device.key)
        for to in (None, "n0"):
            assert (await device.relocate(to, worker=here)).outcome == "moved"
        assert await it.nodes["n0"].directory.read(device.key) == before
        for number in (2, 77):
            for to in (None, "n0", "n1"):
                with pytest.raises(InvalidOperation, match="workers 0 to 1"):
                    await device.relocate(to, worker=number)
        for wrong in (-1, True, "1", 1.0):
            with pytest.raises(InvalidOperation, match="number of a worker"):
                await device.relocate(worker=wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidOperation, match="say where to"):
            await device.relocate()
        assert await it.nodes["n0"].directory.read(device.key) == before
        rooted = it.client.spot(Rooted, "r")
        await rooted.request(Rooted.ping)
        at = await it.client.locate(rooted)
        assert (await rooted.relocate(worker=at.worker)).outcome == "moved"
        refused = await rooted.relocate(worker=1 - at.worker)
        assert (refused.outcome, refused.node) == ("failed", at.node)
        assert "RelocationDisabled" in refused.reason
        status = await it.nodes["n0"].call("status", {})
        assert sum(status["objects_by_worker"].values()) == status["objects"]
        assert status["handoffs"] == 0


async def test_to_a_worker_of_another_node() -> None:
    """A move to that node and one within it, as it has to be."""
    async with cluster(nodes=2) as it:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        await device.request(Device.add, 1)
        for worker in (0, 1, 1, 0):
            for node in ("n1", "n0"):
                result = await device.relocate(node, worker=worker)
                assert (result.outcome, result.node) == ("moved", node)
                assert result.interruption_ns > 0
                at = await it.client.locate(device)
                assert (at.node, at.worker) == (node, worker)
                await device.request(Device.add, 1)
        assert await device.request(Device.history) == [1] * 9
        assert_calm(it)


async def test_actors_types_that_recreate_and_an_object_s_own_wish() -> None:
    async with cluster(nodes=1) as it:
        player = await it.client.create(Player, "p", 7)
        for _ in range(4):
            worker = 1 - await slot(it, player)
            assert (await player.relocate(worker=worker)).outcome == "moved"
            assert await slot(it, player) == worker
        assert await player.request(Player.hit, 3) == 10
        forgetful = it.client.spot(Forgetful, "f")
        assert await forgetful.request(Forgetful.add, 5) == 5
        assert (await forgetful.relocate(worker=1 - await slot(it, forgetful))).outcome == "moved"
        assert await forgetful.request(Forgetful.add, 2) == 2
        device = it.client.spot(Device, "d")
        await device.request(Device.add, 1)
        worker = 1 - await slot(it, device)
        assert await device.request(Device.shift, worker) == "d"  # exactly one reply (B8.8)
        while await slot(it, device) != worker:
            await device.request(Device.add, 1)
        total = await device.request(Device.add, 1)
        assert len(await device.request(Device.history)) == total
        assert_calm(it)


async def test_a_large_state_goes_whole() -> None:
    async with cluster(nodes=1) as it:
        device = it.client.spot(Device, "d")
        await device.request(Device.grow, 5 * 2**20)
        for _ in range(2):
            assert (await device.relocate(worker=1 - await slot(it, device))).outcome == "moved"
            assert await device.request(Device.measure) == (5 * 2**20, True)
        assert it.nodes["n0"].retention.octets == 0
        assert_calm(it)


async def test_state_that_cannot_be_captured_stays_and_serves_on() -> None:
    async with cluster(nodes=1) as it:
        device = it.client.spot(Device, "d")
        await device.request(Device.add, 1)
        await device.request(Device.take_lock)
        worker = await slot(it, device)
        result = await device.relocate(worker=1 - worker)
        assert (result.outcome, result.node) == ("failed", "n0")
        assert "StateIncompatible" in result.reason
        assert await slot(it, device) == worker
        assert await device.request(Device.add, 1) == 2
        await device.request(Device.drop_lock)
        assert (await device.relocate(worker=1 - worker)).outcome == "moved"
        assert await device.request(Device.add, 1) == 3


# moves that meet each other ---------------------------------------------------------------------


async def test_moves_of_one_object_to_several_places_at_once() -> None:
    """B10.4: the same goal is shared; another one waits for the end of the first, wherever that leads."""
    async with cluster(nodes=2) as it, gate() as entrance:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        running = asyncio.ensure_future(device.request(Device.held, entrance.port))
        await entrance.arrived()
        worker = 1 - await slot(it, device)
        started = it.nodes["n0"].counters.get("relocations_started", 0)
        same = [asyncio.ensure_future(device.relocate(worker=worker)) for _ in range(3)]
        held = it.held("n0", device)
        assert held is not None
        await turn_until(lambda: held.place is Place.SOURCE)
        away = asyncio.ensure_future(device.relocate("n1"))
        host = asyncio.ensure_future(it.nodes["n0"].call("relocate_node", {"mode": "PlannedMaintenance"}))
        await it.client.spot(Device, "other").request(Device.add, 1)
        entrance.open()
        assert await running == 0
        assert {result.outcome for result in await asyncio.gather(*same)} == {"moved"}
        assert (await away).outcome == "moved"
        assert (await host)["outcome"] == "Relocated"
        assert await it.where(device) == "n1"
        assert it.nodes["n0"].counters["relocations_started"] >= started + 2
        assert await device.request(Device.add, 1) == 1


async def test_a_node_that_empties_takes_no_move_to_another_worker() -> None:
    async with cluster(nodes=1) as it:
        device = it.client.spot(Device, "d")
        await device.request(Device.add, 1)
        it.nodes["n0"]._set_state(HostState.RELOCATING)
        result = await device.relocate(worker=1 - await slot(it, device))
        assert (result.outcome, result.reason.partition(":")[0]) == ("failed", "TargetUnavailable")
        it.nodes["n0"]._set_state(HostState.SERVING)
        assert await device.request(Device.add, 1) == 2


async def test_a_bound_actor_moves_without_its_session_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The route of its session names the node: nothing of it changes. No binding is written meanwhile (B11.1)."""
    async with cluster(nodes=2) as it:
        player = await it.client.create(Player, "p", at="n0")
        port, binding = await bind(it, it.nodes["n1"], player)
        step = hold_answer(monkeypatch, LocalDriver, "_restored")
        moving = asyncio.ensure_future(player.relocate(worker=1 - await slot(it, player)))
        await step.wait()
        arguments = {"key": player.key, "binding": binding_fields(binding)}
        with pytest.raises(Unavailable, match="is moving"):
            await it.nodes["n0"].call("bind_session", arguments)
        step.release()
        assert (await moving).outcome == "moved"
        row = (await it.nodes["n0"].directory.read(player.key)).row  # type: ignore[union-attr]
        assert (row.binding, row.owner_generation) == (binding, 2)
        desk = it.nodes["n1"].sessions.desk
        desk.message(SESSION, player.key, "m1")
        assert desk.push(SESSION, player.key, "p1", 2)  # of the generation the session was never told
        assert (await player.relocate("n1")).outcome == "moved"
        await settled(it)
        assert desk.push(SESSION, player.key, "p2", 2)  # the source's last push, behind the route commit
        assert port.story == [("m1", "n0"), ("push", "p1"), ("switch", "n1", 3), ("push", "p2")]


async def test_an_unbind_that_comes_meanwhile_is_written_when_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits among the Actor's messages (B11.1)."""
    async with cluster(nodes=1) as it:
        node, player = it.nodes["n0"], await it.client.create(Player, "p")
        _, binding = await bind(it, node, player)
        step = hold_answer(monkeypatch, LocalDriver, "_restored")
        moving = asyncio.ensure_future(player.relocate(worker=1 - await slot(it, player)))
        await step.wait()
        await node.call("unbind_session", {"key": player.key, "binding": binding_fields(binding)})
        row = (await node.directory.read(player.key)).row  # type: ignore[union-attr]
        assert row.binding == binding
        step.release()
        assert (await moving).outcome == "moved"
        await it.journal.wait("session_unbound")
        row = (await node.directory.read(player.key)).row  # type: ignore[union-attr]
        assert (row.binding, row.owner_generation) == (None, 2)
        assert await player.request(Player.hit, 1) == 1
