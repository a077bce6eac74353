"""What a node may still do with an object whose row says something else (B6.4, B6.6, B6.8)."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from sojourn.control import CallNode
from sojourn.errors import DataLost, Unavailable
from sojourn.location import StoreUnavailable, StoreUnknown, StoreWrite
from sojourn.ownership import delete_object
from sojourn.rows import RowState
from sojourn.workers.directory import OwnedElsewhere
from sojourn.workers.objects import LocalObject, Place
from sojourn.workers.source_driver import SourceDriver

from tests.runtime.cluster import cluster, gate, hold_answer, outcome
from tests.runtime.fleet import Device, Forgetful, Player


async def test_an_incarnation_made_after_a_loss_is_not_marked_lost() -> None:
    """Marking many lost objects takes a while; the first message makes one anew before its turn comes."""
    async with cluster(nodes=1) as it:
        node = it.nodes["n0"]
        device = it.client.spot(Device, "d")
        await device.request(Device.add, 1)
        held = it.held("n0", device)
        assert held is not None
        former = LocalObject(device.key, held.kind, held.stable_type, Place.ACTIVE)
        former.object_generation = held.object_generation - 1
        await node.losses.mark_lost([former])
        await node._object_gone(former, "a late notice")
        found = await node.directory.read(device.key)
        assert found is not None
        assert found.row.state is RowState.LIVE
        await node.losses.mark_lost([held])
        found = await node.directory.read(device.key)
        assert found is not None
        assert found.row.state is RowState.LOST


async def test_a_store_that_fails_while_a_loss_is_marked_wedges_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster(nodes=1) as it:
        node = it.nodes["n0"]
        player = await it.client.create(Player, "p", 3)
        held = it.held("n0", player)
        assert held is not None
        node.drop(held, "")

        async def fails(found: object) -> bool:
            raise StoreUnavailable("the store is out", applied="no")

        with monkeypatch.context() as patch:
            patch.setattr(node.directory, "lose", fails)
            assert isinstance(await outcome(player.request(Player.hit, 1)), Unavailable)
        assert isinstance(await outcome(player.request(Player.hit, 1)), DataLost)
        assert await (await it.client.create(Player, "p", 1)).request(Player.hit, 1) == 2


async def test_an_object_taken_over_while_it_moved_is_not_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lease was over between seal and failure: the explicit failure gives nothing back (two owners)."""
    async with cluster(nodes=2) as it:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        await device.request(Device.add, 5)
        step = hold_answer(monkeypatch, SourceDriver, "_await_capture")
        moving = asyncio.ensure_future(device.relocate("n1"))
        await step.wait()
        node = it.nodes["n0"]
        found = await node.directory.read(device.key)
        assert found is not None
        write = delete_object(found)
        await node.store.write(write.conditions, write.mutations)
        await node.recheck_objects()
        step.release()
        assert (await moving).outcome == "failed"
        await it.journal.wait("authority_lost")
        assert it.held("n0", device) is None
        assert await device.request(Device.history) == []
        assert (await device.relocate("n1" if await it.where(device) == "n0" else "n0")).outcome == "moved"


async def test_what_a_captured_object_had_queued_is_answered_once_although_its_worker_died(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster(nodes=2) as it, gate() as entrance:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        step = hold_answer(monkeypatch, SourceDriver, "_await_capture")
        running = asyncio.ensure_future(device.request(Device.held, entrance.port))
        await entrance.arrived()
        queued = asyncio.ensure_future(device.request(Device.add, 1))
        await it.client.spot(Device, "other").request(Device.add, 1)
        moving = asyncio.ensure_future(device.relocate("n1"))
        await it.client.spot(Device, "other").request(Device.add, 1)
        entrance.open()
        assert await running == 0
        await step.wait()
        await it.kill_worker("n0", device)
        await it.journal.wait("worker_lost")
        step.release()
        assert (await moving).outcome == "moved"
        assert await queued == 1


async def test_a_payload_captured_in_part_is_not_kept() -> None:
    async with cluster(nodes=2) as it:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        await device.request(Device.history)
        node = it.nodes["n0"]
        before = node.retention.octets
        held = it.held("n0", device)
        assert held is not None
        target = node.find_node(b"n1")
        driver = await node.coordinator._source_driver(held, target, it.nodes["n0"].loop.time() + 30)
        assert driver is not None
        driver.bulk_arrived(False, memoryview(b"half of it"))
        assert node.retention.octets == before + 10
        driver.worker_lost()
        driver._forget(None)  # type: ignore[arg-type]
        assert node.retention.octets == before


async def test_an_object_that_is_made_anew_moves_more_than_once() -> None:
    """A node that took an object in knows its relocation policy (B1.8, B8.1)."""
    async with cluster(nodes=2) as it:
        forgetful = it.client.spot(Forgetful, "f")
        await forgetful.request(Forgetful.add, 5)
        for _ in range(3):
            to = (await it.others(forgetful))[0]
            assert (await forgetful.relocate(to)).outcome == "moved"
            assert await forgetful.request(Forgetful.add, 1) == 1


async def test_emptying_a_node_ends_although_a_row_is_another_s() -> None:
    async with cluster(nodes=2) as it:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        node = it.nodes["n0"]
        found = await node.directory.read(device.key)
        assert found is not None
        write = delete_object(found)
        await node.store.write(write.conditions, write.mutations)
        async with asyncio.timeout(20):
            result = await node.call("relocate_node", {})
        assert (result["outcome"], len(result["stayed"])) == ("Blocked", 1)


async def test_what_a_worker_that_ended_was_owed_is_not_given_to_the_next() -> None:
    """Neither its credit (B5.1) nor the answer to its call."""
    async with cluster(nodes=1, workers=1) as it:
        node = it.nodes["n0"]
        device = it.client.spot(Device, "d")
        await device.request(Device.history)
        former = node.creditors[0]
        answer: asyncio.Future[str] = node.loop.create_future()
        node.calls.operations["wait"] = lambda arguments: answer
        node._on_worker_control(0, CallNode(1, "wait", msgspec.msgpack.encode({})))
        await asyncio.sleep(0)
        await it.kill_worker("n0", device)
        await it.journal.wait("was replaced")
        granted: list[object] = []
        original = node.pool.control
        node.pool.control = lambda worker, message: granted.append(message) or original(worker, message)  # type: ignore[method-assign,func-returns-value]
        former.give_back(1, 10)
        answer.set_result("done")
        for _ in range(5):
            await asyncio.sleep(0)
        assert granted == []
        assert node.creditors[0] is not former


async def test_the_deadline_of_a_move_does_not_wait_for_a_handler() -> None:
    """A turn without a limit holds up the seal, not whoever asked for the move (B8.2, B10.1)."""
    async with cluster(nodes=2) as it, gate() as entrance:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        running = asyncio.ensure_future(device.request(Device.held, entrance.port))
        await entrance.arrived()
        async with asyncio.timeout(20):
            result = await it.nodes["n0"].call("relocate_node", {"deadline_s": 3.0})
        assert (result["outcome"], result["reason"]) == ("Blocked", "DeadlineExceeded")
        assert len(result["stayed"]) == 1
        assert not running.done()
        wanted = {"key": device.key, "to": "n1", "deadline_s": 3.0}
        again = await it.nodes["n0"].call("relocate", wanted)
        assert again["outcome"] == "failed"
        queued = asyncio.ensure_future(device.request(Device.add, 2))
        entrance.open()
        assert await running == 0
        assert await queued == 2
        assert (await device.relocate("n1")).outcome == "moved"


async def test_an_unknown_outcome_is_no_claim_to_an_earlier_incarnation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only what this creation wrote itself is its own (B1.3, B6.1)."""
    async with cluster(nodes=1) as it:
        node = it.nodes["n0"]
        device = it.client.spot(Device, "d")
        await device.request(Device.add, 1)
        original = node.directory._write
        answers = iter([StoreUnknown("no answer", applied="unknown")])

        async def write(wanted: StoreWrite) -> object:
            for error in answers:
                raise error
            return await original(wanted)

        monkeypatch.setattr(node.directory, "_write", write)
        made = await node.directory.create(device.key, node.registry["Device"])
        assert isinstance(made, OwnedElsewhere)
        assert made.run == node.run
