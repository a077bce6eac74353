"""Worker processes that are killed in the middle of a move (B6.6, B6.8)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sojourn.errors import DataLost, Rejected, Unavailable
from sojourn.handoff import events
from sojourn.workers import target_driver
from sojourn.workers.objects import Place
from sojourn.workers.source_driver import SourceDriver
from sojourn.workers.target_driver import TargetDriver

from tests.links.members import turn_until
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
    """From relay-ready on there is no way back to the source: the payload goes into another worker (B6.6)."""
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
        assert await queued == 4
        assert await it.where(player) == "n1"
        assert not it.journal.named("object_lost")
        assert (await player.relocate("n0")).outcome == "moved"
        assert await player.request(Player.hit, 1) == 5
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


async def test_the_owner_is_written_before_another_worker_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker in each node: its successor takes a moment, and what comes meanwhile waits for it."""
    async with cluster(nodes=2, workers=1) as it:
        player = await it.client.create(Player, "p", 3, at="n0")
        step = hold_answer(monkeypatch, target_driver, "write_owner")
        moving = asyncio.ensure_future(player.relocate("n1"))
        await step.wait()
        await it.kill_worker("n1", player)
        await it.journal.wait("worker_lost")
        step.release()
        assert (await moving).outcome == "moved"
        assert [await player.request(Player.hit, 1) for _ in range(2)] == [4, 5]
        assert (await player.relocate("n0")).outcome == "moved"
        assert await player.request(Player.hit, 1) == 6


async def test_the_worker_that_restores_it_again_dies_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(nodes=2) as it:
        player = await it.client.create(Player, "p", 3, at="n0")
        step = hold_step(monkeypatch, TargetDriver, "_send_ready")
        moving = asyncio.ensure_future(player.relocate("n1"))
        await step.wait()
        original = it.nodes["n1"].creation.worker_for_new
        killed: list[int] = []

        async def doomed() -> int:
            slot = await original()
            if not killed:
                it.kill_slot("n1", slot)
                killed.append(slot)
            return slot

        monkeypatch.setattr(it.nodes["n1"].creation, "worker_for_new", doomed)
        await it.kill_worker("n1", player)
        await it.journal.wait("restored_again")
        step.release()
        assert (await moving).outcome == "moved"
        assert await player.request(Player.hit, 1) == 4
        assert killed


@pytest.mark.parametrize("hold", ["_send_ready", "write_owner"])
async def test_no_worker_is_left_to_restore_it(monkeypatch: pytest.MonkeyPatch, hold: str) -> None:
    """The target becomes the owner and says that the object is lost; what it had queued ends typed."""
    async with cluster(nodes=2) as it, gate() as entrance:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        running = asyncio.ensure_future(device.request(Device.held, entrance.port))
        await entrance.arrived()
        saved = asyncio.ensure_future(outcome(device.request(Device.add, 1)))
        await it.client.spot(Device, "other").request(Device.add, 1)
        step = (
            hold_step(monkeypatch, TargetDriver, hold)
            if hold == "_send_ready"
            else hold_answer(monkeypatch, target_driver, hold)
        )
        moving = asyncio.ensure_future(device.relocate("n1"))
        await it.client.spot(Device, "other").request(Device.add, 1)
        entrance.open()
        assert await running == 0
        await step.wait()
        late = asyncio.ensure_future(outcome(device.request(Device.add, 1)))
        await it.client.spot(Device, "other").request(Device.add, 1)

        async def none() -> int:
            raise Unavailable("no worker", applied="no")

        monkeypatch.setattr(it.nodes["n1"].creation, "worker_for_new", none)
        await it.kill_worker("n1", device)
        await it.journal.wait("restored_again")
        step.release()
        assert (await moving).outcome == "moved"
        assert isinstance(await saved, DataLost)
        assert isinstance(await late, DataLost)
        await it.journal.wait("object_lost")
        monkeypatch.undo()
        assert await device.request(Device.history) == []  # made anew
        assert (await device.relocate((await it.others(device))[0])).outcome == "moved"


async def test_the_target_s_worker_dies_right_after_opening() -> None:
    """What came with the payload ends as soon as what came by itself: this node knows it from opening on."""
    async with cluster(nodes=2) as it, gate() as first, gate() as second:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        running = asyncio.ensure_future(device.request(Device.held, first.port))
        await first.arrived()
        saved = [
            asyncio.ensure_future(outcome(device.request(Device.held, second.port))),
            asyncio.ensure_future(outcome(device.request(Device.add, 1))),
        ]
        await it.client.spot(Device, "other").request(Device.add, 1)
        moving = asyncio.ensure_future(device.relocate("n1"))
        await it.client.spot(Device, "other").request(Device.add, 1)
        first.open()
        assert await running == 0
        assert (await moving).outcome == "moved"
        await second.arrived()
        await it.kill_worker("n1", device)
        async with asyncio.timeout(10):
            ended = await asyncio.gather(*saved)
        assert [(type(error), error.applied) for error in ended] == [(Unavailable, "unknown")] * 2
        assert await device.request(Device.history) == []
        await serves_on(it)


async def test_what_comes_while_the_source_restores_it_into_another_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits for it, behind what had waited before; so does what the object had queued when it was captured."""
    async with cluster(nodes=2, workers=1) as it, gate() as entrance:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        running = asyncio.ensure_future(device.request(Device.held, entrance.port))
        await entrance.arrived()
        asked = [asyncio.ensure_future(device.request(Device.add, 1))]
        await it.client.spot(Device, "other").request(Device.add, 1)
        monkeypatch.setattr(
            TargetDriver, "_verify", lambda self, effect: self.handle(events.AssemblyMismatched())
        )
        step = hold_answer(monkeypatch, SourceDriver, "_await_capture")
        moving = asyncio.ensure_future(device.relocate("n1"))
        await it.client.spot(Device, "other").request(Device.add, 1)
        entrance.open()
        assert await running == 0
        await step.wait()
        asked.append(asyncio.ensure_future(device.request(Device.add, 1)))
        await it.kill_worker("n0", device)
        await it.journal.wait("worker_lost")
        step.release()
        held = it.held("n0", device)
        assert held is not None
        await turn_until(lambda: held.place is Place.CREATING)
        asked.append(asyncio.ensure_future(device.request(Device.add, 1)))
        assert (await moving).outcome == "failed"
        assert await asyncio.gather(*asked) == [1, 2, 3]
        monkeypatch.undo()
        assert (await device.relocate("n1")).outcome == "moved"
        assert await device.request(Device.add, 1) == 4
