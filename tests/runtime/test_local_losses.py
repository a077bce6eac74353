"""Workers that die and stores that do not answer while an object moves to another worker of its node (B8.7, B6.6)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sojourn.errors import DataLost, ShuttingDown, Unavailable
from sojourn.location import StoreUnknown, StoreWrite
from sojourn.ownership import delete_object, rewrite_object
from sojourn.rows import authority_row_key
from sojourn.spots.references import Reference
from sojourn.workers import local_driver
from sojourn.workers.local_driver import LocalDriver
from sojourn.workers.objects import Place

from tests.links.members import turn_until
from tests.runtime.cluster import Cluster, cluster, gate, hold_answer, hold_step, outcome
from tests.runtime.fleet import Device, Sender, Sink
from tests.runtime.test_local_moves import senders_of, slot

PHASES: dict[str, tuple[Any, str]] = {
    "captured": (LocalDriver, "_await_capture"),
    "restored": (LocalDriver, "_restored"),
    "written": (local_driver, "write_owner"),
}
"""Whose answer is held back: the old worker's, the new worker's, the store's."""


# workers that die -------------------------------------------------------------------------------


async def held_device(it: Cluster) -> Reference[Device]:
    device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
    await device.request(Device.add, 5)
    return device


async def comes_through(it: Cluster, device: Reference[Device], moving: Any, queued: Any) -> Any:
    """Whatever the move ended in, nothing is lost and the next move succeeds."""
    result = await moving
    assert await queued == 6
    assert result.node == "n0"
    assert await device.request(Device.history) == [5, 1]
    worker = await slot(it, device)
    await turn_until(lambda: len(it.nodes["n0"].object_counts) == it.nodes["n0"].workers)
    for number in (1 - worker, worker):
        assert (await device.relocate(worker=number)).outcome == "moved"
    assert await device.request(Device.add, 1) == 7
    assert not it.journal.named("object_lost")
    assert not it.nodes["n0"].coordinator.under_way
    return result


async def test_before_the_capture_it_is_lost_with_its_worker() -> None:
    async with cluster(nodes=1) as it, gate() as entrance:
        device = await held_device(it)
        running = asyncio.ensure_future(outcome(device.request(Device.held, entrance.port)))
        await entrance.arrived()
        moving = asyncio.ensure_future(device.relocate(worker=1 - await slot(it, device)))
        held = it.held("n0", device)
        assert held is not None
        await turn_until(lambda: held.place is Place.SOURCE)
        queued = asyncio.ensure_future(outcome(device.request(Device.add, 1)))
        await it.client.spot(Device, "other").request(Device.history)
        await it.kill_worker("n0", device)
        assert (await moving).outcome == "failed"
        assert isinstance(await running, Unavailable)
        assert isinstance(await queued, DataLost)
        assert await device.request(Device.add, 2) == 2  # made anew by its next message
        assert not it.nodes["n0"].coordinator.under_way


@pytest.mark.parametrize("moment", ["worker_lost", "was replaced"])
@pytest.mark.parametrize("phase", ["captured", "restored", "written"])
async def test_the_old_worker_dies_once_the_state_is_captured(
    monkeypatch: pytest.MonkeyPatch, phase: str, moment: str
) -> None:
    async with cluster(nodes=1) as it:
        device = await held_device(it)
        step = hold_answer(monkeypatch, *PHASES[phase])
        moving = asyncio.ensure_future(device.relocate(worker=1 - await slot(it, device)))
        await step.wait()
        queued = asyncio.ensure_future(device.request(Device.add, 1))
        await it.kill_worker("n0", device)
        await it.journal.wait(moment)
        step.release()
        assert (await comes_through(it, device, moving, queued)).outcome == "moved"


@pytest.mark.parametrize("moment", ["worker_lost", "was replaced"])
@pytest.mark.parametrize("phase", ["captured", "restored", "written"])
async def test_the_new_worker_dies(monkeypatch: pytest.MonkeyPatch, phase: str, moment: str) -> None:
    """Before the owner is written it stays where it is; after it the payload goes into whichever worker there is."""
    async with cluster(nodes=1) as it:
        device = await held_device(it)
        worker = 1 - await slot(it, device)
        step = hold_answer(monkeypatch, *PHASES[phase])
        moving = asyncio.ensure_future(device.relocate(worker=worker))
        await step.wait()
        queued = asyncio.ensure_future(device.request(Device.add, 1))
        it.kill_slot("n0", worker)
        await it.journal.wait(moment)
        step.release()
        result = await comes_through(it, device, moving, queued)
        if (phase, moment) == ("captured", "worker_lost"):
            assert result.outcome == "failed"
            assert "ended" in result.reason
        elif result.outcome == "failed":
            assert "goes on in worker" in result.reason


async def test_the_new_worker_dies_while_it_restores(monkeypatch: pytest.MonkeyPatch) -> None:
    """An explicit failure: what was held comes behind what was captured (R4.2.8)."""
    async with cluster(nodes=1) as it:
        device = await held_device(it)
        worker = 1 - await slot(it, device)
        step = hold_step(monkeypatch, LocalDriver, "_restore_object")
        moving = asyncio.ensure_future(device.relocate(worker=worker))
        await step.wait()
        queued = asyncio.ensure_future(device.request(Device.add, 1))
        it.kill_slot("n0", worker)
        step.release()  # the supervisor has not heard of it yet
        assert (await comes_through(it, device, moving, queued)).outcome == "failed"


async def test_both_workers_die(monkeypatch: pytest.MonkeyPatch) -> None:
    """The payload is in the supervisor: the object comes back in whichever worker comes first (B6.6)."""
    async with cluster(nodes=1) as it:
        device = await held_device(it)
        here = await slot(it, device)
        step = hold_answer(monkeypatch, LocalDriver, "_await_capture")
        moving = asyncio.ensure_future(device.relocate(worker=1 - here))
        await step.wait()
        queued = asyncio.ensure_future(device.request(Device.add, 1))
        it.kill_slot("n0", here)
        it.kill_slot("n0", 1 - here)
        await turn_until(lambda: not it.nodes["n0"].object_counts)
        step.release()
        assert (await comes_through(it, device, moving, queued)).outcome == "failed"


@pytest.mark.parametrize("dies", ["nobody", "the old worker", "the new worker"])
@pytest.mark.parametrize("phase", ["restored", "written"])
async def test_the_figures_of_the_node_add_up(monkeypatch: pytest.MonkeyPatch, phase: str, dies: str) -> None:
    """B3.5: the messages that go along are accepted once and handled once, whichever worker ends."""
    async with cluster(nodes=1) as it, gate() as entrance:
        node, device = it.nodes["n0"], await held_device(it)
        here = await slot(it, device)
        running = asyncio.ensure_future(device.request(Device.held, entrance.port))
        await entrance.arrived()
        queued = [asyncio.ensure_future(device.request(Device.add, 1)) for _ in range(3)]
        await it.client.spot(Device, "other").request(Device.add, 1)
        step = hold_answer(monkeypatch, *PHASES[phase])
        moving = asyncio.ensure_future(device.relocate(worker=1 - here))
        entrance.open()
        assert await running == 5
        await step.wait()
        await node.call("status", {})  # every worker tells its figures
        if dies != "nobody":
            it.kill_slot("n0", here if dies == "the old worker" else 1 - here)
            await it.journal.wait("worker_lost")
        step.release()
        await moving
        assert await asyncio.gather(*queued) == [6, 7, 8]
        found = (await node.call("status", {}))["messages"]
        assert (found["waiting"], found["in_doubt"], found["failed"], found["dead"]) == (0, 0, 0, 0)
        assert found["arrived"] == found["left"] == (0 if dies == "the new worker" else 3)
        assert found["accepted"] == found["handled"]


@pytest.mark.parametrize("phase", ["captured", "restored", "written"])
@pytest.mark.parametrize("dies", [False, True], ids=["nobody dies", "the new worker dies"])
async def test_a_request_from_mailbox_to_mailbox_is_answered_once(
    monkeypatch: pytest.MonkeyPatch, phase: str, dies: bool
) -> None:
    """Its requester is in the old worker, which only hands its queue on, or goes on with it."""
    async with cluster(nodes=1) as it, gate() as entrance:
        sink = it.client.spot(Sink, "sink")
        await sink.request(Sink.result)
        here = await slot(it, sink)
        (sender,) = [each for each in await senders_of(it, 1, ("n0",)) if await slot(it, each) == here]
        running = asyncio.ensure_future(sink.request(Sink.held, entrance.port))
        await entrance.arrived()
        asking = asyncio.ensure_future(sender.request(Sender.run, "sink", 20, "request"))
        await it.client.spot(Device, "other").request(Device.history)
        step = hold_answer(monkeypatch, *PHASES[phase])
        moving = asyncio.ensure_future(sink.relocate(worker=1 - here))
        entrance.open()
        assert await running == 0
        await step.wait()
        if dies:
            it.kill_slot("n0", 1 - here)
            await it.journal.wait("worker_lost")
        step.release()
        result = await moving
        assert result.outcome == ("failed" if dies else "moved")
        assert await asking == 20
        last, wrong, total = await sink.request(Sink.result)
        assert (last, wrong, total) == ({sender.id: 20}, [], 20)
        assert await slot(it, sink) == (here if dies else 1 - here)
        if dies and phase != "captured":
            assert f"goes on in worker {here}" in result.reason


async def test_requests_that_had_come_with_a_move_stay_what_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B7.1: their requester sent them to another node, and gets their end from this one until it has it."""
    async with cluster(nodes=2) as it, gate() as entrance, gate() as second:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        running = asyncio.ensure_future(device.request(Device.held, entrance.port))
        await entrance.arrived()
        blocked = asyncio.ensure_future(device.request(Device.held, second.port))
        queued = asyncio.ensure_future(device.request(Device.add, 1))
        await it.client.spot(Device, "other").request(Device.add, 1)
        moving = asyncio.ensure_future(device.relocate("n1"))
        entrance.open()
        assert await running == 0
        assert (await moving).outcome == "moved"
        await second.arrived()
        node = it.nodes["n1"]
        worker = await slot(it, device)
        step = hold_step(monkeypatch, LocalDriver, "_open_dispatch")
        shifting = asyncio.ensure_future(device.relocate(worker=1 - worker))
        held = it.held("n1", device)
        assert held is not None
        await turn_until(lambda: held.place is Place.SOURCE)
        second.open()
        assert await blocked == 0
        await step.wait()
        driver = held.staging
        assert isinstance(driver, LocalDriver)
        assert driver._running is not None
        assert [request.moved for request in driver._running.values()] == [True]
        step.release()
        assert (await shifting).outcome == "moved"
        assert await queued == 1
        await turn_until(lambda: not node.lanes[1 - worker].running)


# the store --------------------------------------------------------------------------------------


@pytest.mark.parametrize("applied", [True, False])
async def test_an_unknown_outcome_of_the_write_is_read(
    monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    async with cluster(nodes=1) as it:
        device = await held_device(it)
        directory = it.nodes["n0"].directory
        original, unknown = directory.write, [True, True]

        async def write(wanted: StoreWrite) -> object:
            if unknown:
                unknown.pop()
                if applied:
                    await original(wanted)
                raise StoreUnknown("no answer", applied="unknown")
            return await original(wanted)

        monkeypatch.setattr(directory, "write", write)
        worker = 1 - await slot(it, device)
        assert (await device.relocate(worker=worker)).outcome == "moved"
        monkeypatch.undo()
        assert await slot(it, device) == worker
        found = await directory.read(device.key)
        assert found is not None
        assert found.row.owner_generation == 2
        assert await device.request(Device.add, 1) == 6


@pytest.mark.parametrize("ends", ["the store answers", "the node stops"])
async def test_who_asked_is_told_in_time_that_it_is_in_doubt(
    monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """The object is held until the store tells: it may be written, and nobody guesses (B6.5)."""
    async with cluster(nodes=2, relocation_seal_reserve_ms=100) as it:
        device, node = await held_device(it), it.nodes["n0"]
        worker, original, mute = 1 - await slot(it, device), node.directory.write, [True]
        row = authority_row_key(device.key)

        async def write(wanted: StoreWrite) -> object:
            if mute and row in {each.key for each in wanted.mutations}:
                raise StoreUnknown("no answer", applied="unknown")
            return await original(wanted)

        monkeypatch.setattr(node.directory, "write", write)
        arguments = {"key": device.key, "worker": worker, "deadline_s": 0.5}
        moving = asyncio.ensure_future(node.call("relocate", arguments))
        held = it.held("n0", device)
        assert held is not None
        await turn_until(lambda: held.place is Place.SOURCE)
        queued = asyncio.ensure_future(outcome(device.request(Device.add, 1)))
        result = await moving
        assert (result["outcome"], result["node"]) == ("in doubt", "n0")
        assert it.journal.named("location_update_failed")
        again = await device.relocate(worker=worker)
        assert (again.outcome, "has not ended" in again.reason) == ("failed", True)
        assert not queued.done()
        if ends == "the node stops":
            it.crashed.add("n0")  # it is stopped here
            await node.stop(2.0)
            assert isinstance(await queued, (ShuttingDown, Unavailable))
            return
        mute.clear()
        assert await queued == 6
        assert await slot(it, device) == worker
        found = await node.directory.read(device.key)
        assert found is not None
        assert found.row.owner_generation == 2
        await turn_until(lambda: not node.coordinator.under_way)


async def test_another_write_to_its_row_ends_the_move_where_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(nodes=1) as it:
        device = await held_device(it)
        step = hold_answer(monkeypatch, LocalDriver, "_restored")
        worker = await slot(it, device)
        moving = asyncio.ensure_future(device.relocate(worker=1 - worker))
        await step.wait()
        queued = asyncio.ensure_future(device.request(Device.add, 1))
        directory = it.nodes["n0"].directory
        found = await directory.read(device.key)
        assert found is not None
        await directory.write(rewrite_object(found, found.row))
        step.release()
        result = await comes_through(it, device, moving, queued)
        assert (result.outcome, "came between" in result.reason) == ("failed", True)


async def test_an_object_taken_over_meanwhile_is_not_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease was over, and the row is another's: two owners otherwise (B6.4)."""
    async with cluster(nodes=1) as it:
        device = await held_device(it)
        step = hold_answer(monkeypatch, LocalDriver, "_restored")
        moving = asyncio.ensure_future(device.relocate(worker=1 - await slot(it, device)))
        await step.wait()
        queued = asyncio.ensure_future(outcome(device.request(Device.add, 1)))
        held = it.held("n0", device)
        assert held is not None
        driver = held.staging
        assert isinstance(driver, LocalDriver)
        await turn_until(lambda: len(driver.machine.held) == 1)
        node = it.nodes["n0"]
        found = await node.directory.read(device.key)
        assert found is not None
        write = delete_object(found)
        await node.store.write(write.conditions, write.mutations)
        await node.recheck_objects()
        step.release()
        assert (await moving).outcome == "failed"
        assert isinstance(await queued, DataLost)
        assert it.held("n0", device) is None
        assert await device.request(Device.history) == []
        assert (await device.relocate(worker=1 - await slot(it, device))).outcome == "moved"
        assert sum(node.object_counts.values()) == len(node.router.objects)


async def test_a_node_that_stops_ends_what_was_held(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(nodes=2) as it:
        device = await held_device(it)
        step = hold_answer(monkeypatch, LocalDriver, "_restored")
        moving = asyncio.ensure_future(outcome(device.relocate(worker=1 - await slot(it, device))))
        await step.wait()
        queued = asyncio.ensure_future(outcome(device.request(Device.add, 1)))
        held = it.held("n0", device)
        assert held is not None
        driver = held.staging
        assert isinstance(driver, LocalDriver)
        await turn_until(lambda: len(driver.machine.held) == 1)
        it.crashed.add("n0")  # it is stopped here
        await it.nodes["n0"].stop(2.0)
        step.release()
        ended = await moving
        assert (ended.outcome, ended.reason.partition(":")[0]) == ("failed", "ShutdownRequested")
        assert isinstance(await queued, (ShuttingDown, Unavailable))
