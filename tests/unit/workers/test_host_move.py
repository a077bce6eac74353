"""Emptying a node: what is moved, what counts as staying, who shares the operation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from sojourn.control import RegistryEntry
from sojourn.errors import InvalidOperation
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, describe_key
from sojourn.rows import HostState
from sojourn.workers.host_move import HostMove, MoveResult, check_mode
from sojourn.workers.objects import LocalObject, Place

ELSEWHERE = NodeRun(b"node-1", 7)
MOVED = MoveResult("moved", interruption_ns=1_000)
REGISTRY = {
    "Hall": RegistryEntry("Hall", ObjectKind.USER_SPOT, "preserve", 1, shares_turn=True),
    "Arena": RegistryEntry("Arena", ObjectKind.USER_SPOT, "recreate", 1),
}


def make_objects(*keys: bytes) -> dict[ObjectKey, LocalObject]:
    return {
        key: LocalObject(
            key, ObjectKind.ACTOR if key.startswith(b"a") else ObjectKind.INSTANCE_SPOT, "T", Place.ACTIVE
        )
        for key in keys
    }


class Node:
    """A node that moves by a given function and writes down what it was asked."""

    def __init__(
        self, objects: dict[ObjectKey, LocalObject], move: Callable[[LocalObject], Awaitable[MoveResult]]
    ) -> None:
        self.objects = objects
        self.asked: list[bytes] = []
        self.states: list[HostState] = []
        self._move = move
        self.host_move = HostMove(objects, self._move_unit, self.states.append, REGISTRY)

    async def _move_unit(self, unit: LocalObject, version: int, deadline: float) -> MoveResult:
        self.asked.append(unit.key)
        return await self._move(unit)


async def leave(unit: LocalObject) -> MoveResult:
    await asyncio.sleep(0)
    unit.place, unit.follow_run = Place.SOURCE, ELSEWHERE
    return MOVED


async def test_everything_leaves_actors_first() -> None:
    node = Node(make_objects(b"s1", b"a1", b"s2", b"a2"), leave)
    result = await node.host_move.relocate(HostState.SERVING, "PlannedMaintenance", 1, 30.0)
    assert (result.outcome, result.reason, result.moved, result.stayed) == ("Relocated", "", 4, [])
    assert result.interruptions_ns == [1_000] * 4
    assert {*node.asked[:2]} == {b"a1", b"a2"}
    assert node.states == [HostState.RELOCATING, HostState.RELOCATED]


def make_guests() -> dict[ObjectKey, LocalObject]:
    """Of every kind of unit two, in an order in which none of them may move."""
    objects = make_objects(b"s-inst-1", b"a-entry-1", b"s-inst-2", b"a-entry-2", b"a-member-1", b"a-member-2")
    spots = {b"s-hall-1": "Hall", b"s-arena-1": "Arena", b"s-hall-2": "Hall", b"s-arena-2": "Arena"}
    for key, stable_type in spots.items():
        objects[key] = LocalObject(key, ObjectKind.USER_SPOT, stable_type, Place.ACTIVE)
    guest = objects[b"a-guest"] = LocalObject(b"a-guest", ObjectKind.ACTOR, "T", Place.ACTIVE)
    guest.lead = objects[b"s-hall-1"]
    return objects


SHELLS = {b"s-arena-1", b"s-arena-2"}
ACTORS = {b"a-entry-1", b"a-entry-2", b"a-member-1", b"a-member-2"}
SPOTS = {b"s-hall-1", b"s-hall-2", b"s-inst-1", b"s-inst-2"}
"""The batches of B10.3; a guest of a hall moves with it."""


async def test_shells_of_per_actor_spots_go_first_and_what_holds_others_last() -> None:
    """Each batch begins when the one before it has ended (B10.3)."""
    under_way: set[bytes] = set()
    together: set[frozenset[bytes]] = set()

    async def move(unit: LocalObject) -> MoveResult:
        under_way.add(unit.key)
        together.add(frozenset(under_way))
        result = await leave(unit)
        under_way.discard(unit.key)
        return result

    node = Node(make_guests(), move)
    result = await node.host_move.relocate(HostState.SERVING, "PlannedMaintenance", 1, 30.0)
    assert (result.outcome, result.moved) == ("Relocated", 10)
    assert [{*node.asked[:2]}, {*node.asked[2:6]}, {*node.asked[6:]}] == [SHELLS, ACTORS, SPOTS]
    assert {frozenset(batch) for batch in (SHELLS, ACTORS, SPOTS)} <= together, (
        "units of a batch side by side"
    )
    assert all(any(units <= batch for batch in (SHELLS, ACTORS, SPOTS)) for units in together)


@pytest.mark.parametrize("bad", [b"s-arena-1", b"a-member-2", b"s-hall-2"])
async def test_a_bad_unit_stops_neither_its_batch_nor_later_ones(bad: bytes) -> None:
    async def move(unit: LocalObject) -> MoveResult:
        return MoveResult("failed", "RelocationFailed", "bad") if unit.key == bad else await leave(unit)

    node = Node(make_guests(), move)
    result = await node.host_move.relocate(HostState.SERVING, "PlannedMaintenance", 1, 30.0)
    assert (result.outcome, result.reason, result.moved) == ("Blocked", "RelocationFailed", 9)
    assert {*node.asked} == SHELLS | ACTORS | SPOTS
    assert [unit.object for unit in result.stayed] == [describe_key(bad)]


async def test_a_deadline_that_passes_over_the_shells_stops_the_later_batches() -> None:
    async def move(unit: LocalObject) -> MoveResult:
        return MoveResult("failed", "DeadlineExceeded", "too late")

    node = Node(make_guests(), move)
    result = await node.host_move.relocate(HostState.SERVING, "PlannedMaintenance", 1, 30.0)
    assert {*node.asked} <= SHELLS
    assert (result.reason, len(result.stayed)) == ("DeadlineExceeded", 10)


async def test_what_moved_away_by_itself_does_not_stay() -> None:
    objects = make_objects(b"s1", b"s2", b"s3")

    async def move(unit: LocalObject) -> MoveResult:
        if unit.key == b"s1":  # its own move ended meanwhile
            await leave(unit)
            return MoveResult("failed", "RelocationFailed", "changed meanwhile")
        if unit.key == b"s2":  # it was dropped meanwhile
            del objects[unit.key]
            return MoveResult("failed", "RelocationFailed", "changed meanwhile")
        return await leave(unit)

    result = await Node(objects, move).host_move.relocate(HostState.SERVING, "PlannedMaintenance", 1, 30.0)
    assert (result.outcome, result.moved, result.stayed) == ("Relocated", 1, [])


async def test_a_bad_unit_stops_no_other_and_is_named() -> None:
    async def move(unit: LocalObject) -> MoveResult:
        if unit.key == b"s2":
            return MoveResult("failed", "StateIncompatible", "attribute socket")
        return await leave(unit)

    node = Node(make_objects(b"s1", b"s2", b"s3"), move)
    result = await node.host_move.relocate(HostState.SERVING, "PlannedMaintenance", 1, 30.0)
    assert (result.outcome, result.reason, result.moved) == ("Blocked", "StateIncompatible", 2)
    (stayed,) = result.stayed
    assert (stayed.object, stayed.outcome, stayed.reason, stayed.detail) == (
        "spot '2'",
        "failed",
        "StateIncompatible",
        "attribute socket",
    )
    assert node.states[-1] is HostState.SERVING


async def test_no_target_stops_later_batches() -> None:
    async def move(unit: LocalObject) -> MoveResult:
        return MoveResult("failed", "TargetUnavailable", "all cordoned")

    node = Node(make_objects(b"a1", b"s1"), move)
    result = await node.host_move.relocate(HostState.SERVING, "PlannedMaintenance", 1, 30.0)
    assert (result.outcome, result.reason) == ("Blocked", "TargetUnavailable")
    assert node.asked == [b"a1"]
    assert [unit.reason for unit in result.stayed] == ["TargetUnavailable"] * 2  # each is named (B10.2)


async def test_a_bug_in_a_move_leaves_the_node_serving() -> None:
    async def move(unit: LocalObject) -> MoveResult:
        raise RuntimeError("a bug")

    node = Node(make_objects(b"a1"), move)
    with pytest.raises(ExceptionGroup):
        await node.host_move.relocate(HostState.SERVING, "PlannedMaintenance", 1, 30.0)
    assert node.states == [HostState.RELOCATING, HostState.SERVING]


async def test_a_node_that_stops_is_never_called_serving_again() -> None:
    """Everybody who shares the operation is told why it ended, and which units stayed (B10.2, B10.4)."""
    started, ending = asyncio.Event(), asyncio.Event()

    async def move(unit: LocalObject) -> MoveResult:
        started.set()
        await ending.wait()
        return MoveResult("in_doubt", "ShutdownRequested", "the node stopped while it moved")

    objects = make_objects(b"a1", b"s1", b"s2")
    objects[b"s2"].place = Place.TARGET
    node = Node(objects, move)
    waiting = [
        asyncio.create_task(node.host_move.relocate(state, "PlannedMaintenance", 1, 30.0))
        for state in (HostState.SERVING, HostState.RELOCATING)
    ]
    await started.wait()
    node.host_move.shut_down()
    ending.set()
    await node.host_move.close()
    assert node.states == [HostState.RELOCATING]
    for result in await asyncio.gather(*waiting):
        assert (result.outcome, result.reason) == ("Blocked", "ShutdownRequested")
        assert [(unit.object, unit.outcome) for unit in result.stayed] == [
            ("actor '1'", "in doubt"),
            ("spot '1'", "failed"),
            ("spot '2'", "failed"),
        ]
    assert node.asked == [b"a1"]


async def test_an_unknown_outcome_is_said_in_the_words_of_a_single_move() -> None:
    async def move(unit: LocalObject) -> MoveResult:
        return MoveResult("in_doubt", "StoreUnavailable")

    node = Node(make_objects(b"s1"), move)
    result = await node.host_move.relocate(HostState.SERVING, "PlannedMaintenance", 1, 30.0)
    assert [unit.outcome for unit in result.stayed] == ["in doubt"]


async def test_the_same_operation_is_shared_and_another_is_refused() -> None:
    gate = asyncio.Event()

    async def move(unit: LocalObject) -> MoveResult:
        await gate.wait()
        return await leave(unit)

    node = Node(make_objects(b"s1"), move)
    first = asyncio.create_task(node.host_move.relocate(HostState.SERVING, "PlannedMaintenance", 1, 30.0))
    await asyncio.sleep(0)
    shared = asyncio.create_task(node.host_move.relocate(HostState.RELOCATING, "PlannedMaintenance", 1, 30.0))
    other = await node.host_move.relocate(HostState.RELOCATING, "RollingUpdate", 2, 30.0)
    assert (other.outcome, other.reason) == ("Blocked", "OperationInProgress")
    await asyncio.sleep(0)
    first.cancel()  # a cancelled caller ends only its own wait
    gate.set()
    assert (await shared).outcome == "Relocated"
    assert node.asked == [b"s1"]


@pytest.mark.parametrize("state", [HostState.PREPARING, HostState.DRAINING, HostState.STOPPED])
async def test_only_a_ready_node_is_emptied(state: HostState) -> None:
    node = Node(make_objects(b"s1"), leave)
    result = await node.host_move.relocate(state, "PlannedMaintenance", 1, 30.0)
    assert (result.outcome, result.reason) == ("Blocked", "RuntimeNotReady")


def test_modes_and_versions_that_do_not_fit_are_refused() -> None:
    assert check_mode("PlannedMaintenance", None, 3) == 3
    assert check_mode("RollingUpdate", 4, 3) == 4
    for mode, version in [
        ("PlannedMaintenance", 4),
        ("RollingUpdate", None),
        ("RollingUpdate", 3),
        ("Move", None),
    ]:
        with pytest.raises(InvalidOperation):
            check_mode(mode, version, 3)


async def test_what_was_on_its_way_here_is_waited_for_and_moved_too() -> None:
    objects = make_objects(b"s1", b"s2")
    objects[b"s2"].place = Place.TARGET

    async def land_then_leave(unit: LocalObject) -> MoveResult:
        objects[b"s2"].place = Place.ACTIVE if objects[b"s2"].place is Place.TARGET else Place.SOURCE
        return await leave(unit)

    node = Node(objects, land_then_leave)
    deadline = asyncio.get_running_loop().time() + 30.0
    result = await node.host_move.relocate(HostState.SERVING, "PlannedMaintenance", 1, deadline)
    assert (result.outcome, result.moved) == ("Relocated", 2)
    assert node.asked == [b"s1", b"s2"]


async def test_what_never_arrives_is_named_when_the_time_is_over() -> None:
    objects = make_objects(b"s1", b"s2")
    objects[b"s2"].place = Place.CREATING
    node = Node(objects, leave)
    result = await node.host_move.relocate(HostState.SERVING, "PlannedMaintenance", 1, 0.0)
    assert (result.outcome, result.reason, result.moved) == ("Blocked", "DeadlineExceeded", 1)
    assert [unit.object for unit in result.stayed] == ["spot '2'"]
