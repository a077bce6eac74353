"""Seals at session owners that are themselves nodes: the source, the target, a third one; and ones that go away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sojourn.rows import Binding
from sojourn.session.terms import CloseCode, SessionPlan, SessionRoute
from sojourn.spots.references import Reference
from sojourn.workers.bindings import binding_fields
from sojourn.workers.supervisor import Supervisor

from tests.runtime.cluster import QUICK_LEASE, Cluster, cluster
from tests.runtime.fleet import Player

SESSION = b"session-1"


class Port:
    """A client's socket that writes everything down; what it submits is not sent on."""

    def __init__(self) -> None:
        self.story: list[Any] = []

    def switch_route(self, route: SessionRoute) -> None:
        self.story.append(("switch", route.run.rid.decode(), route.owner_generation))

    def submit(self, route: SessionRoute, messages: tuple[Any, ...]) -> None:
        self.story += [(message, route.run.rid.decode()) for message in messages]

    def deliver(self, push: Any) -> None:
        self.story.append(("push", push))

    def drop_push(self, push: Any) -> None:
        self.story.append(("no push", push))

    def drop(self, messages: tuple[Any, ...]) -> None:
        self.story.append(("dropped", messages))

    def close(self, code: CloseCode, resume_token: bytes) -> None:
        self.story.append(("close", code))


async def bind(it: Cluster, owner: Supervisor, player: Reference[Player]) -> tuple[Port, Binding]:
    """Bind a player to a session of this node."""
    binding = Binding(owner.run.rid, owner.run.generation, owner.owner_id, owner.lease_generation, SESSION, 1)
    arguments = {"key": player.key, "binding": binding_fields(binding)}
    told = await owner.call("bind_session", arguments)
    node = it.nodes[await it.where(player)]
    route = SessionRoute(node.run, told["owner_generation"], told["lease_generation"])
    port = Port()
    owner.sessions.desk.bind(
        SessionPlan(binding, player.key, told["object_generation"], b"again"), route, port
    )
    return port, binding


async def settled(it: Cluster) -> None:
    """No seal stands and nobody has anything left to say, but to repeat it on a new connection."""
    while any(node.sessions.desk.sealed() for node in it.nodes.values()):
        await it.client.locate(it.client.actor(Player, "p"))


@pytest.mark.parametrize("owner", ["source", "target", "third node"])
async def test_a_session_is_sealed_and_switched_wherever_its_owner_is(owner: str) -> None:
    async with cluster() as it:
        player = await it.client.create(Player, "p", at="n0")
        node = it.nodes[{"source": "n0", "target": "n1", "third node": "n2"}[owner]]
        port, binding = await bind(it, node, player)
        desk = node.sessions.desk
        desk.message(SESSION, player.key, "m1")
        assert (await player.relocate("n1")).outcome == "moved"
        await settled(it)
        desk.message(SESSION, player.key, "m2")
        assert (await player.relocate("n2")).outcome == "moved"
        await settled(it)
        assert port.story == [("m1", "n0"), ("switch", "n1", 2), ("m2", "n1"), ("switch", "n2", 3)]
        assert not it.journal.named("late_session_route_update")
        row = (await it.nodes["n2"].directory.read(player.key)).row  # type: ignore[union-attr]
        assert row.binding == binding


async def test_the_newest_binding_wins_and_an_older_one_is_refused() -> None:
    async with cluster(2, 1) as it:
        player = await it.client.create(Player, "p", at="n0")
        node = it.nodes["n1"]
        port, binding = await bind(it, node, player)
        newer = Binding(*(*binding_fields(binding)[:5], 2))
        await node.call("bind_session", {"key": player.key, "binding": binding_fields(newer)})
        older = {"key": player.key, "binding": binding_fields(binding)}
        with pytest.raises(Exception, match="newer binding"):
            await node.call("bind_session", older)
        await node.call("unbind_session", older)  # not the one that stands: nothing changes
        row = (await node.directory.read(player.key)).row  # type: ignore[union-attr]
        assert row.binding == newer
        # The desk still holds the older one: for the move of the newer it counts as none.
        assert (await player.relocate("n1")).outcome == "moved"
        assert port.story == []


async def test_a_session_owner_whose_run_is_gone_holds_up_no_move() -> None:
    async with cluster(3, 1, **QUICK_LEASE) as it:
        player = await it.client.create(Player, "p", at="n0")
        await bind(it, it.nodes["n2"], player)
        await it.crash("n2")
        await it.journal.wait("link_down")
        result = await player.relocate("n1")
        while result.outcome != "moved":  # until its lease is over it may still hold the client
            assert "session owner" in (result.reason or ""), result
            result = await player.relocate("n1")
        assert not any(len(node.sessions) for name, node in it.nodes.items() if name == "n0")


async def test_an_object_that_dies_while_its_session_is_sealed_gives_no_seal_back() -> None:
    """R7.2: the queue is not restored, so no abort goes out; the seal ends by its own time (R7.3)."""
    async with cluster(3, 1, session_seal_timeout_ms=2_000) as it:
        player = await it.client.create(Player, "p", at="n0")
        node = it.nodes["n2"]
        port, _ = await bind(it, node, player)
        desk, waiting = node.sessions.desk, asyncio.get_running_loop().create_future()
        carry_out = desk.seal_requested

        def answered_late(command: Any, answer: Any) -> None:
            carry_out(command, lambda sealed: waiting.set_result(lambda: answer(sealed)))

        desk.seal_requested = answered_late  # type: ignore[method-assign]
        moving = asyncio.ensure_future(player.relocate("n1"))
        answer = await waiting
        await it.kill_worker("n0", player)
        await it.journal.wait("worker_lost")
        answer()
        assert (await moving).outcome == "failed"
        await it.journal.wait("session_seal_timeout")
        assert port.story == [("close", CloseCode.SEAL_TIMEOUT)]
        assert not it.journal.named("late_session_route_update")
        assert not it.nodes["n0"].coordinator.sources


async def test_a_session_owner_that_lost_its_lease_closes_its_clients() -> None:
    async with cluster(2, 1) as it:
        player = await it.client.create(Player, "p", at="n0")
        node = it.nodes["n1"]
        port, _ = await bind(it, node, player)
        await node.recheck_objects()
        assert port.story == [("close", CloseCode.LEASE_OVER)]
        assert (await player.relocate("n1")).outcome == "moved"
