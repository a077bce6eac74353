"""Nodes that end without a goodbye, and nodes that are emptied."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sojourn.errors import InvalidOperation, ShuttingDown, Unavailable
from sojourn.ids import ObjectKind
from sojourn.rows import HostState
from sojourn.workers import member
from sojourn.workers.objects import LocalObject, Place
from sojourn.workers.pool import WorkerPool
from sojourn.workers.target_driver import TargetDriver

from tests.links.members import turn_until
from tests.runtime.cluster import QUICK_LEASE, cluster, gate, hold_answer, hold_step, outcome
from tests.runtime.fleet import Device, Rooted


@pytest.fixture(autouse=True)
def quick_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "REFRESH_S", 0.2)


async def test_the_target_dies_before_it_is_ready_and_the_object_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fenced first (B6.7), so that nothing of the dead target can commit; a later move succeeds."""
    async with cluster(**QUICK_LEASE) as it:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        await device.request(Device.add, 5)
        step = hold_step(monkeypatch, TargetDriver, "_send_ready")
        moving = asyncio.ensure_future(device.relocate("n1"))
        await step.wait()
        queued = asyncio.ensure_future(device.request(Device.add, 1))
        await it.client.spot(Device, "other").request(Device.history)
        await it.crash("n1")
        result = await moving
        assert (result.outcome, result.node) == ("failed", "n0")
        assert it.journal.named("relocation_fenced")
        assert await queued == 6
        step.release()
        assert (await device.relocate("n2")).outcome == "moved"
        assert await device.request(Device.history) == [5, 1]


async def test_a_dead_node_s_requests_are_in_doubt_and_its_spots_come_back() -> None:
    async with cluster(nodes=2, **QUICK_LEASE) as it, gate() as entrance:
        device = await it.on_node("n1", lambda text: it.client.spot(Device, text), Device.history)
        running = asyncio.ensure_future(outcome(device.request(Device.held, entrance.port)))
        await entrance.arrived()
        held = LocalObject(device.key, ObjectKind.INSTANCE_SPOT, "Device", Place.CREATING)
        it.nodes["n0"].router.objects[device.key] = held
        it.nodes["n0"].install_follow(held, it.nodes["n1"].run)
        gone = it.nodes["n1"].run
        await it.crash("n1")
        error = await running
        assert isinstance(error, Unavailable)
        assert error.applied == "unknown"
        while it.client.roster.get(gone) is not None or it.nodes["n0"].roster.get(gone) is not None:
            assert isinstance(await outcome(device.request(Device.add, 1)), Unavailable | int)
        assert it.held("n0", device) is None or it.held("n0", device) is not held
        assert await it.client.spot(Device, device.id).request(Device.add, 0) >= 0
        assert await it.where(device) == "n0"


async def test_a_node_with_a_rooted_object_is_blocked_and_serves_on() -> None:
    async with cluster(nodes=2) as it:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        rooted = await it.on_node("n0", lambda text: it.client.spot(Rooted, f"rooted-{text}"), Rooted.ping)
        node = it.nodes["n0"]
        dry = await node.call("relocate_node", {"dry_run": True})
        assert [unit["reason"] for unit in _stayed(dry)] == ["RelocationDisabled"]
        assert await it.where(device) == "n0"
        result = await node.call("relocate_node", {})
        assert (result["outcome"], result["reason"]) == ("Blocked", "RelocationDisabled")
        assert [unit["object"] for unit in result["stayed"]] == [f"spot '{rooted.id}'"]
        assert node.state is HostState.SERVING
        assert await it.where(device) == "n1"
        assert await rooted.request(Rooted.ping) == "pong"


async def test_an_emptied_node_takes_nothing_until_it_is_uncordoned() -> None:
    async with cluster(nodes=2) as it:
        devices = [it.client.spot(Device, f"d{number}") for number in range(30)]
        await asyncio.gather(*(device.request(Device.add, 1) for device in devices))
        node = it.nodes["n0"]
        await node.call("cordon", {})
        moves = asyncio.ensure_future(node.call("relocate_node", {}))
        answers = await asyncio.gather(*(device.request(Device.add, 1) for device in devices))
        assert answers == [2] * 30
        assert (await moves)["outcome"] == "Relocated"
        assert node.state is HostState.RELOCATED
        assert {await it.where(device) for device in devices} == {"n1"}
        with pytest.raises(InvalidOperation):
            await node.call("relocate_node", {"mode": "RollingUpdate", "target_version": 1})
        assert (await it.nodes["n1"].call("relocate_node", {}))["reason"] == "TargetUnavailable"
        await node.call("uncordon", {})
        assert node.state is HostState.SERVING
        assert (await devices[0].relocate("n0")).outcome == "moved"


async def test_a_node_that_stops_in_the_middle_of_moves_ends_cleanly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster(nodes=2) as it:
        device = await it.on_node("n0", lambda text: it.client.spot(Device, text), Device.history)
        step = hold_step(monkeypatch, TargetDriver, "_send_ready")
        moving = asyncio.ensure_future(outcome(device.relocate("n1")))
        emptying = asyncio.ensure_future(it.nodes["n0"].call("relocate_node", {}))
        await step.wait()
        await it.nodes["n0"].stop(3)
        ended = await moving
        assert (ended.outcome, ended.reason.partition(":")[0]) == ("in doubt", "ShutdownRequested")
        result = await emptying
        assert (result["outcome"], result["reason"]) == ("Blocked", "ShutdownRequested")
        assert device.id in str(result["stayed"])


def _stayed(answer: Any) -> list[dict[str, Any]]:
    units: list[dict[str, Any]] = answer["stayed"] if "stayed" in answer else answer["blocked"]
    return units


async def test_the_spots_of_a_node_that_stopped_come_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gave its lease back (B6.6); whoever loses the connection to it looks, and does not wait for a sweep."""
    for interval in ("REFRESH_S", "CLIENT_REFRESH_S"):
        monkeypatch.setattr(member, interval, 3600.0)
    async with cluster(nodes=2) as it:
        device = await it.on_node("n1", lambda text: it.client.spot(Device, text), Device.history)
        await device.request(Device.add, 5)
        gone = it.nodes["n1"].run
        it.crashed.add("n1")  # nobody else is to stop it
        await it.nodes["n1"].stop(5.0)
        await turn_until(lambda: it.client.roster.get(gone) is None)
        assert await device.request(Device.history) == []


async def test_what_comes_to_a_node_whose_workers_stop_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """B3.1: nothing of it ran, and nobody waits for the end of the connection to learn that."""
    async with cluster(nodes=2) as it:
        device = await it.on_node("n1", lambda text: it.client.spot(Device, text), Device.history)
        other = it.client.spot(Device, "other")
        step = hold_answer(monkeypatch, WorkerPool, "stop")
        it.crashed.add("n1")  # nobody else is to stop it
        stopping = asyncio.ensure_future(it.nodes["n1"].stop(5.0))
        await step.wait()
        error = await outcome(device.request(Device.history))
        assert isinstance(error, ShuttingDown)
        assert error.applied == "no"
        assert "is stopping" in str(error)
        assert await other.request(Device.history) == []
        step.release()
        assert await stopping
        assert await device.request(Device.history) == []
