"""Making objects: by a first message, by a call; what goes wrong in the middle ends typed (B2.1, B2.2, B6.8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sojourn.control import Created, CreateObject, DropObject, ErrorBody, OpenObject, RegistryEntry
from sojourn.errors import (
    AlreadyExists,
    DeadlineExceeded,
    InternalFailure,
    NotConfigured,
    Rejected,
    SojournError,
    Unavailable,
)
from sojourn.frames import FLAG_REQUEST, KIND_RECORD
from sojourn.ids import ObjectKind, actor_key, spot_key
from sojourn.location import StoreUnavailable
from sojourn.options import Options
from sojourn.rows import RowState
from sojourn.workers import creation
from sojourn.workers.directory import CreatedRow
from sojourn.workers.objects import LocalObject, Place
from sojourn.workers.routes import Route

from tests.unit.workers.fake_node import THERE, FakeNode, reply_to

DEVICE, PLAYER = spot_key("d"), actor_key("p")
FAILED = ErrorBody.of(InternalFailure("Device.__init__ raised ValueError: not today"))


@pytest.fixture
async def node() -> AsyncIterator[FakeNode]:
    it = FakeNode()
    it.worker_ready(0)
    it.worker_ready(1)
    yield it
    await it.close()


def kinds(node: FakeNode) -> list[tuple[int, str]]:
    return [(number, error.kind) for number, error in node.failed]


# by the first message


async def test_the_first_message_makes_the_spot_and_follows_into_its_mailbox(node: FakeNode) -> None:
    node.first_record(DEVICE, 1)
    node.first_record(DEVICE, 2)
    await node.settle()
    node.first_record(DEVICE, 3)
    (made,) = node.pool.asked
    assert isinstance(made, CreateObject)
    assert (made.key, made.stable_type, made.opened) == (DEVICE, "Device", True)
    assert node.records == [1, 2, 3]
    held = node.router.objects[DEVICE]
    assert (held.place, node.object_counts[held.worker]) == (Place.ACTIVE, 1)
    node.pool.answer(Created(1))
    await node.settle()
    found = await node.directory.read(DEVICE)
    assert found is not None
    assert (found.row.owner, found.row.object_generation) == (node.owner, held.object_generation)
    assert node.failed == []


async def test_a_failing_init_takes_the_row_back_and_ends_what_comes_meanwhile(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, remove = asyncio.Event(), node.directory.remove

    async def held_back(*arguments: Any) -> bool:
        await gate.wait()
        return await remove(*arguments)

    monkeypatch.setattr(node.directory, "remove", held_back)
    node.first_record(DEVICE, 1)
    await node.settle()
    node.pool.answer(Created(1, FAILED))
    await node.settle()
    node.first_record(DEVICE, 2)
    gate.set()
    await node.settle()
    # The first is with the worker, which answers it; the second never went there.
    assert node.records == [1]
    assert kinds(node) == [(2, "InternalFailure")]
    assert [type(message) for message in node.ordered] == [DropObject]
    assert DEVICE not in node.router.objects
    assert sum(node.object_counts.values()) == 0
    assert await node.directory.read(DEVICE) is None
    node.first_record(DEVICE, 3)
    await node.settle()
    assert node.records == [1, 3]  # the next message tries again


async def test_a_worker_that_dies_while_it_makes_the_spot(node: FakeNode) -> None:
    node.first_record(DEVICE, 1)
    await node.settle()
    worker = node.router.objects[DEVICE].worker
    node.worker_lost(worker)
    await node.settle()
    assert DEVICE not in node.router.objects
    assert await node.directory.read(DEVICE) is None
    node.first_record(DEVICE, 2)
    await node.settle()
    assert node.router.objects[DEVICE].worker == 1 - worker


async def test_without_intent_nothing_is_made(node: FakeNode) -> None:
    node.first_record(DEVICE, 1, flags=FLAG_REQUEST)
    await node.settle()
    assert kinds(node) == [(1, "NotFound")]
    assert node.pool.asked == []


@pytest.mark.parametrize(("stable_type", "named"), [(b"Nothing", "Nothing"), (b"Player", "Player")])
async def test_a_type_that_is_not_registered_is_named(node: FakeNode, stable_type: bytes, named: str) -> None:
    node.first_record(DEVICE, 1, stable_type=stable_type)
    await node.settle()
    ((_, error),) = node.failed
    assert isinstance(error, NotConfigured)
    assert f"no instance_spot type {named!r} (registered: Device, Player)" in error.message


async def test_a_spot_of_another_node_is_followed_there_in_order(node: FakeNode) -> None:
    other = FakeNode(node.rows, THERE)
    entry = other.registry["Device"]
    assert isinstance(await other.directory.create(DEVICE, entry), CreatedRow)
    node.first_record(DEVICE, 1)
    node.first_record(DEVICE, 2)
    await node.settle()
    assert [run for run, _ in node.sent] == [THERE, THERE]
    assert node.router.objects[DEVICE].place is Place.FOLLOW
    await other.close()


async def test_a_spot_of_a_node_that_cannot_be_reached(node: FakeNode) -> None:
    other = FakeNode(node.rows, THERE)
    await other.directory.create(DEVICE, other.registry["Device"])
    node.links.clear()
    node.first_record(DEVICE, 1)
    await node.settle()
    assert kinds(node) == [(1, "Unavailable")]
    assert DEVICE not in node.router.objects
    await other.close()


async def test_a_row_of_this_run_without_its_object_is_lost_and_made_anew(node: FakeNode) -> None:
    """With intent the message has it made; without it learns what happened (B6.8)."""
    first = await node.directory.create(DEVICE, node.registry["Device"])
    assert isinstance(first, CreatedRow)
    node.first_record(DEVICE, 1, flags=FLAG_REQUEST)
    await node.settle()
    assert kinds(node) == [(1, "DataLost")]
    found = await node.directory.read(DEVICE)
    assert found is not None
    assert found.row.state is RowState.LOST
    node.first_record(DEVICE, 2)
    await node.settle()
    assert node.router.objects[DEVICE].object_generation > first.object_generation
    assert node.records == [2]


async def test_a_store_that_is_away_ends_the_message_typed(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any) -> None:
        raise StoreUnavailable("the store is away", applied="no")

    monkeypatch.setattr(node.store, "read", away)
    node.first_record(DEVICE, 1)
    node.first_record(spot_key("other"), 2, flags=FLAG_REQUEST)
    await node.settle()
    assert kinds(node) == [(1, "Unavailable"), (2, "Unavailable")]
    assert node.router.objects == {}


async def test_a_node_that_takes_nothing_new_passes_the_first_message_on(node: FakeNode) -> None:
    node.takes_new_objects = False
    node.routes[DEVICE] = Route(THERE, ObjectKind.INSTANCE_SPOT, 0, 0, b"", 0.0)
    node.first_record(DEVICE, 1)
    await node.settle()
    assert [run for run, _ in node.sent] == [THERE]
    assert node.pool.asked == []


# while no worker is ready


async def test_a_message_waits_for_the_worker_that_replaces_the_last(node: FakeNode) -> None:
    node.worker_lost(0)
    node.worker_lost(1)
    node.first_record(DEVICE, 1)
    await node.settle()
    assert node.failed == []
    node.worker_ready(1)
    await node.settle()
    assert node.router.objects[DEVICE].worker == 1
    assert node.records == [1]


async def test_a_create_waits_for_the_worker_that_replaces_the_last(node: FakeNode) -> None:
    node.worker_lost(0)
    node.worker_lost(1)
    making = asyncio.ensure_future(create(node))
    await node.settle()
    assert not making.done()
    node.pool.at_once = lambda message: Created(0)
    node.worker_ready(0)
    assert (await making)["object_generation"] > 0
    assert node.router.objects[PLAYER].worker == 0


async def test_the_wait_for_a_worker_is_bounded(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation, "WORKER_WAIT_S", 0.01)
    node.worker_lost(0)
    node.worker_lost(1)
    node.first_record(DEVICE, 1)
    with pytest.raises(Unavailable, match="no worker of this node is ready") as caught:
        await create(node)
    assert caught.value.applied == "no"
    await asyncio.gather(*node.tasks)
    assert kinds(node) == [(1, "Unavailable")]
    assert await node.directory.read(DEVICE) is None
    assert node.router.objects == {}


async def test_objects_spread_over_the_workers(node: FakeNode) -> None:
    for number in range(10):
        node.first_record(spot_key(f"d{number}"), number + 1)
    await node.settle()
    assert node.object_counts == {0: 5, 1: 5}


# by a call


async def create(node: FakeNode, stable_type: str = "Player") -> dict[str, int]:
    return await node.creation.create_actor(PLAYER, stable_type, "x", b"")


async def test_a_create_opens_the_actor_after_its_row_is_written(node: FakeNode) -> None:
    making = asyncio.ensure_future(create(node))
    await node.settle()
    node.first_record(PLAYER, 1, kind=ObjectKind.ACTOR, stable_type=b"", flags=FLAG_REQUEST)
    assert node.records == []  # it waits for the object
    assert node.ordered == []
    node.pool.answer(Created(1))
    made = await making
    found = await node.directory.read(PLAYER)
    assert found is not None
    assert found.row.object_generation == made["object_generation"]
    (opened,) = node.ordered
    assert isinstance(opened, OpenObject)
    assert (opened.owner_generation, opened.object_generation) == (
        made["owner_generation"],
        made["object_generation"],
    )
    assert node.records == [1]


async def test_a_failing_init_of_an_actor(node: FakeNode) -> None:
    making = asyncio.ensure_future(create(node))
    await node.settle()
    node.first_record(PLAYER, 1, kind=ObjectKind.ACTOR, stable_type=b"", flags=FLAG_REQUEST)
    node.pool.answer(Created(1, FAILED))
    with pytest.raises(InternalFailure, match="not today"):
        await making
    assert kinds(node) == [(1, "InternalFailure")]
    assert [message for _, message in node.pool.controls] == [DropObject(PLAYER, "")]
    assert await node.directory.read(PLAYER) is None
    assert node.router.objects == {}


async def test_a_second_create_of_one_id_is_answered_when_the_first_has_ended(node: FakeNode) -> None:
    """Whoever hears AlreadyExists finds the object: not before its row is written."""
    first = asyncio.ensure_future(create(node))
    await node.settle()
    others = [asyncio.ensure_future(create(node)) for _ in range(2)]
    await node.settle()
    assert not any(other.done() for other in others)
    assert len(node.pool.asked) == 1
    node.pool.answer(Created(1))
    made = await first
    ended = await asyncio.gather(*others, return_exceptions=True)
    assert [type(error) for error in ended] == [AlreadyExists] * 2
    found = await node.directory.read(PLAYER)
    assert found is not None
    assert found.row.object_generation == made["object_generation"]
    with pytest.raises(AlreadyExists):
        await create(node)


async def test_a_second_create_tries_itself_when_the_first_fails(node: FakeNode) -> None:
    first, second, third = (asyncio.ensure_future(create(node)) for _ in range(3))
    await node.settle()
    node.pool.answer(Created(1, FAILED))
    with pytest.raises(InternalFailure, match="not today"):
        await first
    await node.settle()
    assert not third.done()
    node.pool.answer(Created(2))
    assert (await second)["owner_generation"] == 1
    with pytest.raises(AlreadyExists):
        await third


async def test_a_create_waits_for_the_look_up_of_a_message_for_a_missing_actor(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, look_up = asyncio.Event(), node.directory.owner_of

    async def slow(*arguments: Any) -> Any:
        await gate.wait()
        return await look_up(*arguments)

    monkeypatch.setattr(node.directory, "owner_of", slow)
    node.pool.at_once = lambda message: Created(0)
    node.first_record(PLAYER, 1, kind=ObjectKind.ACTOR, stable_type=b"", flags=FLAG_REQUEST)
    making = asyncio.ensure_future(create(node))
    await node.settle()
    assert not making.done()
    gate.set()
    assert (await making)["owner_generation"] == 1
    assert kinds(node) == [(1, "NotFound")]


async def test_a_create_that_waits_for_another_and_is_cancelled(node: FakeNode) -> None:
    first = asyncio.ensure_future(create(node))
    await node.settle()
    second = asyncio.ensure_future(create(node))
    await node.settle()
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    node.pool.answer(Created(1))
    assert (await first)["owner_generation"] == 1


async def test_a_create_that_waited_on_a_node_that_takes_nothing_any_more(node: FakeNode) -> None:
    first = asyncio.ensure_future(create(node))
    await node.settle()
    second = asyncio.ensure_future(create(node))
    await node.settle()
    node.takes_new_objects = False
    node.pool.answer(Created(1, FAILED))
    with pytest.raises(InternalFailure):
        await first
    with pytest.raises(Unavailable, match="takes no new objects"):
        await second


async def test_an_id_that_lives_on_another_node(node: FakeNode) -> None:
    other = FakeNode(node.rows, THERE)
    await other.directory.create(PLAYER, other.registry["Player"])
    node.pool.at_once = lambda message: Created(0)
    with pytest.raises(AlreadyExists, match="exists on node there"):
        await create(node)
    assert node.router.objects == {}
    assert sum(node.object_counts.values()) == 0
    await other.close()


async def test_a_worker_that_dies_before_the_row_is_written(node: FakeNode) -> None:
    making = asyncio.ensure_future(create(node))
    await node.settle()
    node.worker_lost(node.router.objects[PLAYER].worker)
    with pytest.raises(Unavailable, match="the worker ended"):
        await making
    assert await node.directory.read(PLAYER) is None
    assert node.router.objects == {}


async def test_a_worker_that_dies_while_the_row_is_written(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is taken back: nothing is left of an object that never opened."""
    written = node.directory.create

    async def write(*arguments: Any) -> Any:
        outcome = await written(*arguments)
        node.worker_lost(node.router.objects[PLAYER].worker)
        return outcome

    monkeypatch.setattr(node.directory, "create", write)
    node.pool.at_once = lambda message: Created(0)
    with pytest.raises(Unavailable, match="the worker that made actor 'p' ended"):
        await create(node)
    assert await node.directory.read(PLAYER) is None


@pytest.mark.parametrize(
    ("stable_type", "takes", "error"),
    [("Device", True, NotConfigured), ("Nobody", True, NotConfigured), ("Player", False, Unavailable)],
)
async def test_what_cannot_be_created_here(
    node: FakeNode, stable_type: str, takes: bool, error: type[SojournError]
) -> None:
    node.takes_new_objects = takes
    with pytest.raises(error):
        await create(node, stable_type)
    assert node.router.objects == {}


async def test_a_create_that_fails_gives_the_follow_route_back(node: FakeNode) -> None:
    """The object moved away from here and was lost there: what comes while it is made anew is followed again."""
    former = LocalObject(PLAYER, ObjectKind.ACTOR, "Player", Place.FOLLOW)
    node.install_follow(former, THERE)
    node.router.objects[PLAYER] = former
    making = asyncio.ensure_future(create(node))
    await node.settle()
    node.first_record(PLAYER, 1, kind=ObjectKind.ACTOR, stable_type=b"", flags=FLAG_REQUEST)
    node.pool.answer(Created(1, FAILED))
    with pytest.raises(InternalFailure):
        await making
    assert node.router.objects[PLAYER] is former
    assert [run for run, _ in node.sent] == [THERE]


async def test_a_create_that_is_cancelled_leaves_nothing(node: FakeNode) -> None:
    making = asyncio.ensure_future(create(node))
    await node.settle()
    node.first_record(PLAYER, 1, kind=ObjectKind.ACTOR, stable_type=b"", flags=FLAG_REQUEST)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert kinds(node) == [(1, "Unavailable")]
    assert node.router.objects == {}


# the Entry Spot

LOBBY = RegistryEntry("Lobby", ObjectKind.ENTRY_SPOT, "disabled", 1, has_admission=True)


@pytest.fixture
async def guarded(node: FakeNode) -> FakeNode:
    node.registry["Lobby"] = LOBBY
    node.pool.at_once = lambda message: Created(0)
    await node.creation.entry_spot.create()
    return node


async def answered(node: FakeNode, making: asyncio.Future[dict[str, int]], answer: object) -> dict[str, int]:
    await node.settle()
    _, asked = next(entry for entry in node.to_worker if entry[1][0] == KIND_RECORD)
    node.router.reply_from_worker(node.lanes[0], reply_to(asked, answer))
    return await making


async def test_an_actor_that_is_admitted(guarded: FakeNode) -> None:
    assert await answered(guarded, asyncio.ensure_future(create(guarded)), True)


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (False, Rejected, "the Entry Spot of here.* rejected actor 'p'$"),
        (None, Rejected, "returned None, and only True admits"),
        (Rejected("the doors are closed"), Rejected, "rejected actor 'p': the doors are closed"),
        (InternalFailure("it raised"), InternalFailure, "it raised"),
    ],
)
async def test_an_actor_that_is_not_admitted(
    guarded: FakeNode, answer: object, error: type[SojournError], text: str
) -> None:
    with pytest.raises(error, match=text):
        await answered(guarded, asyncio.ensure_future(create(guarded)), answer)
    assert await guarded.directory.read(PLAYER) is None
    assert guarded.router.objects == {}


async def test_an_entry_spot_that_does_not_answer(guarded: FakeNode) -> None:
    guarded.options = Options.from_mapping({"hook_deadline_ms": 1})
    with pytest.raises(
        DeadlineExceeded, match=r"on_create_actor of here.* did not answer within 1 ms"
    ) as late:
        await create(guarded)
    assert late.value.applied == "no"


async def test_an_entry_spot_lives_again_in_the_worker_that_replaces_its_own(guarded: FakeNode) -> None:
    guarded.worker_lost(0)
    making = asyncio.ensure_future(create(guarded))
    await guarded.settle()
    assert not making.done()
    guarded.worker_ready(0)
    made = [message for message in guarded.pool.asked if isinstance(message, CreateObject)]
    lobbies = [message for message in made if message.stable_type == "Lobby"]
    assert [lobby.object_generation for lobby in lobbies] == [1, 2]
    assert await answered(guarded, making, True)


async def test_an_entry_spot_that_fails_to_live_again_is_told(guarded: FakeNode) -> None:
    guarded.worker_lost(0)
    guarded.pool.at_once = lambda message: Created(0, FAILED)
    guarded.worker_ready(0)
    await guarded.settle()
    assert guarded.logged == ["entry_spot_failed"]


async def test_without_its_worker_the_entry_spot_admits_nobody(
    guarded: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creation, "WORKER_WAIT_S", 0.01)
    guarded.worker_lost(0)
    with pytest.raises(Unavailable, match="lost with its worker"):
        await create(guarded)


async def test_a_failing_entry_spot_stops_the_start(node: FakeNode) -> None:
    node.registry["Lobby"] = LOBBY
    node.pool.at_once = lambda message: Created(0, FAILED)
    with pytest.raises(InternalFailure, match="not today"):
        await node.creation.entry_spot.create()
