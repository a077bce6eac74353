"""Worker processes that are killed in the middle of a move (B6.6, B6.8)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sojourn.errors import DataLost, Rejected, Unavailable
from sojourn.handoff import events
from sojourn.workers import target_driver
from sojourn.workers.source_driver import SourceDriver
from sojourn.workers.target_driver import TargetDriver

from tests.runtime.cluster import Cluster, cluster, gate, hold_answer, hold_step, outcome
from tests.runtime.fleet import Device, Player


async def serves_on(it: Cluster) -> None:
    """Every node still makes objects and answers."""
    for name in it.nodes:
        await it.on_node(name, lambda text: it.client.spot(Device, f"later-{text}"), Device.history)


async def test_before_the_seal_the_object_is_lost_with_its_worker() -> None:
    async with cluster(nodes=2) as it, gate() as entrance:
        player = await it.client.create(Player, "p", 3, at="n0")
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        await device.request(Device.add, 5)
        running = asyncio.ensure_future(outcome(device.request(Device.held, entrance.port)))
        await entrance.arrived()
        moving = asyncio.ensure_future(outcome(device.relocate("n1")))
        await it.client.spot(Device, "other").request(Device.add, 1)
        held = it.held("n0", device)
        assert held is not None
        assert held.staging is not None
        queued = asyncio.ensure_future(outcome(device.request(Device.add, 1)))
        await it.client.spot(Device, "other").request(Device.add, 1)
        await it.kill_worker("n0", device)
        result = await moving
        assert result.outcome == "failed"
        assert isinstance(await running, Unavailable)
        assert isinstance(await queued, DataLost)
        await it.journal.wait("worker_lost")
        assert await device.request(Device.add, 2) == 2  # made anew by its next message
        survived = await outcome(player.request(Player.hit, 1))
        assert survived == 4 or isinstance(survived, DataLost)
        await serves_on(it)


async def test_a_captured_object_goes_on_with_its_move(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(nodes=2) as it:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        await device.request(Device.add, 5)
        step = hold_answer(monkeypatch, SourceDriver, "_await_capture")
        moving = asyncio.ensure_future(device.relocate("n1"))
        await step.wait()
        await it.kill_worker("n0", device)
        await it.journal.wait("worker_lost")
        step.release()
        assert (await moving).outcome == "moved"
        assert await device.request(Device.add, 1) == 6
        await serves_on(it)


async def test_a_captured_object_comes_back_in_another_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when its slot has been filled again meanwhile."""
    async with cluster(nodes=2) as it:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        await device.request(Device.add, 5)
        step = hold_answer(monkeypatch, SourceDriver, "_await_capture")
        moving = asyncio.ensure_future(device.relocate("n1"))
        await step.wait()
        await it.kill_worker("n0", device)
        await it.journal.wait("was replaced")
        queued = asyncio.ensure_future(device.request(Device.add, 1))
        await it.client.spot(Device, "other").request(Device.add, 1)
        with monkeypatch.context() as patch:
            patch.setattr(
                TargetDriver, "_verify", lambda self, effect: self.handle(events.AssemblyMismatched())
            )
            step.release()
            result = await moving
        assert (result.outcome, result.node) == ("failed", "n0")
        assert await queued == 6
        assert await device.request(Device.history) == [5, 1]
        assert (await device.relocate("n1")).outcome == "moved"  # a later move succeeds
        assert await device.request(Device.add, 1) == 7
        await serves_on(it)


async def test_the_target_s_worker_dies_before_it_has_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(nodes=2) as it:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        await device.request(Device.add, 5)
        step = hold_answer(monkeypatch, TargetDriver, "_restored")
        moving = asyncio.ensure_future(device.relocate("n1"))
        await step.wait()
        target = next(iter(it.nodes["n1"].coordinator.targets.values()))
        it.kill_slot("n1", target._worker)
        await it.journal.wait("was replaced")
        queued = asyncio.ensure_future(device.request(Device.add, 1))
        step.release()
        result = await moving
        assert (result.outcome, result.node) == ("failed", "n0")
        assert await queued == 6
        assert (await device.relocate("n1")).outcome == "moved"
        assert await device.request(Device.history) == [5, 1]
        await serves_on(it)


@pytest.mark.parametrize(
    "hold",
    [(hold_step, TargetDriver, "_send_ready"), (hold_answer, target_driver, "write_owner")],
    ids=["ready", "owner"],
)
@pytest.mark.parametrize("moment", ["worker_lost", "was replaced"])
async def test_the_target_s_worker_dies_with_the_staged_object(
    monkeypatch: pytest.MonkeyPatch, hold: tuple[Any, Any, str], moment: str
) -> None:
    """From relay-ready on the target becomes the owner all the same, and says that the object is lost."""
    async with cluster(nodes=2) as it:
        player = await it.client.create(Player, "p", 3, at="n0")
        step = hold[0](monkeypatch, *hold[1:])
        moving = asyncio.ensure_future(player.relocate("n1"))
        await step.wait()
        queued = asyncio.ensure_future(outcome(player.request(Player.hit, 1)))
        await it.client.spot(Device, "other").request(Device.add, 1)
        await it.kill_worker("n1", player)
        await it.journal.wait(moment)
        step.release()
        assert (await moving).outcome == "moved"
        assert isinstance(await queued, DataLost)
        await it.journal.wait("object_lost")
        assert isinstance(await outcome(player.request(Player.hit, 1)), DataLost)
        again = await it.client.create(Player, "p", 1)
        assert await again.request(Player.hit, 1) == 2
        await serves_on(it)


async def test_a_create_right_after_the_last_worker_of_a_node_ended() -> None:
    """It waits for the replacement, and so does the Entry Spot that is asked about it."""
    async with cluster(nodes=1, workers=1) as it:
        it.kill_slot("n0", 0)
        await it.journal.wait("worker_lost")
        player = await it.client.create(Player, "p", 3)
        assert await player.request(Player.hit, 1) == 4
        with pytest.raises(Rejected):
            await it.client.create(Player, "banned", 3)
        await it.client.spot(Device, "d").request(Device.add, 1)
