"""References: what they take, what they refuse, and how they compare (B3.1, B8.9)."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator
from typing import Any

import pytest
import sojourn as sj
from sojourn.spots.references import node_name

from tests.unit.spots.worlds import World

app = sj.App("references")


@app.actor
class Clerk(sj.Actor):
    @sj.request
    async def ask(self) -> int:
        return 1

    @sj.send
    async def tell(self) -> None: ...

    @sj.timer
    async def tick(self, tick: sj.Tick) -> None: ...


@app.spot
class Desk(sj.InstanceSpot):
    @sj.request
    async def ask(self) -> int:
        return 2


@pytest.fixture
async def world() -> AsyncIterator[World]:
    it = World(app)
    it.host("a")
    yield it
    await it.close()


@pytest.fixture
def clerk(world: World) -> Any:
    return world.hosts[b"a"].references.actor(Clerk, "c")


def test_each_way_takes_the_handlers_declared_for_it(clerk: Any) -> None:
    for misused, says in (
        (
            lambda: clerk.request(Clerk.tell),
            r"declared with @send: it cannot be used with ref\.request.*use ref\.send",
        ),
        (
            lambda: clerk.send(Clerk.ask),
            r"declared with @request: it cannot be used with ref\.send.*use ref\.request",
        ),
        (lambda: clerk.send_nowait(Clerk.ask), r"declared with @request: it cannot be used with ref\.send"),
        (lambda: clerk.request(Clerk.tick), r"Clerk\.tick is declared with @timer: it cannot be used"),
        (lambda: clerk.request("ask"), r"takes a declared handler of Clerk, like Clerk\.name, not 'ask'"),
    ):
        with pytest.raises(sj.InvalidOperation, match=says):
            misused()


def test_actors_and_spots_are_named_as_what_they_are(world: World) -> None:
    references: Any = world.hosts[b"a"].references
    with pytest.raises(sj.InvalidOperation, match=r"Desk is a Spot: write spot\(Desk, \.\.\.\)"):
        references.actor(Desk, "d")
    with pytest.raises(sj.InvalidOperation, match=r"Clerk is an Actor: write actor\(Clerk, \.\.\.\)"):
        references.spot(Clerk, "c")


def test_references_are_equal_by_address_and_type(world: World, clerk: Any) -> None:
    references = world.hosts[b"a"].references
    assert clerk == references.actor(Clerk, "c").with_timeout(3)
    assert len({clerk, references.actor(Clerk, "c"), references.actor(Clerk, "d")}) == 2
    assert clerk != references.spot(Desk, "c")
    assert clerk != "c"
    assert repr(clerk) == "<ActorRef Clerk actor 'c'>"
    assert clerk.id == "c"


@pytest.mark.parametrize("timeout", [0, -1, True, "5", 1e9, None])
def test_a_timeout_is_seconds_above_0(clerk: Any, timeout: Any) -> None:
    with pytest.raises(sj.InvalidOperation, match="with_timeout takes seconds above 0"):
        clerk.with_timeout(timeout)
    assert clerk.with_timeout(5).timeout_s == 5.0


def test_a_reference_lives_in_messages_and_state_only(clerk: Any) -> None:
    with pytest.raises(sj.InvalidOperation, match="unpickled outside a message or an object's state"):
        pickle.loads(pickle.dumps(clerk))


async def test_a_move_names_a_node(world: World, clerk: Any) -> None:
    world.port().answers["relocate"] = {"outcome": "moved", "reason": "", "node": "n2", "interruption_ns": 7}
    result = await clerk.relocate("n2")
    assert (result.outcome, result.node, result.interruption_ns) == ("moved", "n2", 7)
    assert world.port().calls == [("relocate", {"key": b"ac", "to": "n2"})]
    for wrong in (3, "", object()):
        with pytest.raises(sj.InvalidOperation, match="a node is given as itself or by its name"):
            await clerk.relocate(wrong)


async def test_a_move_names_a_worker(world: World, clerk: Any) -> None:
    """B8.7: alone, or of a named node."""
    world.port().answers["relocate"] = {"outcome": "moved", "reason": "", "node": "n2", "interruption_ns": 7}
    await clerk.relocate(worker=0)
    await clerk.relocate("n2", worker=3)
    assert world.port().calls == [
        ("relocate", {"key": b"ac", "worker": 0}),
        ("relocate", {"key": b"ac", "to": "n2", "worker": 3}),
    ]
    for wrong in (-1, True, "1", 1.0):
        with pytest.raises(sj.InvalidOperation, match="number of a worker"):
            await clerk.relocate(worker=wrong)
    with pytest.raises(sj.InvalidOperation, match="say where to"):
        await clerk.relocate()
    assert len(world.port().calls) == 2


def test_a_node_is_named_by_itself_its_rid_or_its_bytes() -> None:
    class Node:
        rid = "n1"

    assert node_name("n1") == node_name(b"n1") == node_name(Node()) == "n1"  # type: ignore[arg-type]
    assert node_name(b"\xff").encode("utf-8", "surrogateescape") == b"\xff"  # type: ignore[arg-type]
