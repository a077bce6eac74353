"""An unbind that comes while its Actor moves: it travels among the messages, and the new owner writes it, once (B11.1)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from sojourn.rows import AuthorityRow, Binding
from sojourn.spots.references import Reference
from sojourn.workers import target_driver
from sojourn.workers.bindings import Bindings, binding_fields
from sojourn.workers.source_driver import SourceDriver
from sojourn.workers.source_sessions import SourceSessions
from sojourn.workers.supervisor import Supervisor
from sojourn.workers.target_driver import TargetDriver

from tests.runtime.cluster import Cluster, HeldStep, cluster, hold_answer, hold_step
from tests.runtime.fleet import Player

BINDING = Binding(b"n9", 1, "n9@1", 1, b"session", 1)
"""Of a session owner that nobody reaches and that has no lease: for a move it counts as none (B11.2)."""


async def bound(it: Cluster) -> tuple[Reference[Player], Binding]:
    """A player on n0 with a binding in its row."""
    player = await it.client.create(Player, "p", at="n0")
    return player, await bind(it.nodes["n0"], player, 1)


async def bind(node: Supervisor, player: Reference[Player], generation: int) -> Binding:
    binding = msgspec.structs.replace(BINDING, binding_generation=generation)
    await node.call("bind_session", {"key": player.key, "binding": binding_fields(binding)})
    return binding


async def row_of(it: Cluster, player: Reference[Player]) -> AuthorityRow:
    found = await it.nodes["n0"].directory.read(player.key)
    assert found is not None
    return found.row


async def written(it: Cluster, player: Reference[Player], by: str) -> None:
    """Wait for the write; there is one, of this node, and the Actor works on."""
    told = await it.journal.wait("session_unbound")
    assert told["node"] == str(it.nodes[by].run)
    row = await row_of(it, player)
    assert (row.binding, row.owner.rid) == (None, by.encode())
    assert await player.request(Player.hit, 1) == 1
    assert len(it.journal.named("session_unbound")) == 1
    assert not it.journal.named("unbind_failed")
    assert not it.journal.named("dead_letter")


def held_at(patch: pytest.MonkeyPatch, where: str) -> HeldStep:
    """A move that has come so far and no further."""
    if where == "the session is asked":
        return hold_step(patch, SourceSessions, "ask")
    if where == "captured":
        return hold_answer(patch, SourceDriver, "_await_capture")
    if where == "staged":
        return hold_step(patch, TargetDriver, "_send_ready")
    return hold_answer(patch, target_driver, "write_owner")


@pytest.mark.parametrize(
    ("where", "comes_to"),
    [
        ("the session is asked", "n0"),
        ("captured", "n0"),
        ("staged", "n0"),
        ("staged", "n1"),
        ("the owner is written", "n0"),
        ("the owner is written", "n1"),
    ],
)
async def test_the_new_owner_writes_it_whenever_it_comes(
    monkeypatch: pytest.MonkeyPatch, where: str, comes_to: str
) -> None:
    """Held, relayed, followed behind the boundary, or come directly."""
    async with cluster(2, 1) as it:
        player, binding = await bound(it)
        step = held_at(monkeypatch, where)
        moving = asyncio.ensure_future(player.relocate("n1"))
        await step.wait()
        told = await it.nodes[comes_to].bindings.unbind(player.key, binding)
        assert told["object_generation"]
        assert (await row_of(it, player)).binding == binding, "nobody writes a binding while the Actor moves"
        step.release()
        assert (await moving).outcome == "moved"
        await written(it, player, "n1")


async def test_a_move_that_fails_gives_it_back_to_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(2, 1, relocation_seal_reserve_ms=500) as it:
        player, binding = await bound(it)
        step = hold_answer(monkeypatch, TargetDriver, "_restored")
        arguments = {"key": player.key, "to": b"n1", "deadline_s": 1.5}
        moving = asyncio.ensure_future(it.nodes["n0"].call("relocate_here", arguments))
        await step.wait()
        await it.nodes["n0"].bindings.unbind(player.key, binding)
        assert (await moving)["outcome"] == "failed"
        step.release()
        await written(it, player, "n0")


async def test_a_move_that_ends_before_its_seal_leaves_it_to_the_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Actor ran all the time; its row was not written all the same, as a target may have read it."""
    async with cluster(2, 1, session_seal_timeout_ms=1_000) as it:
        player, binding = await bound(it)
        step = hold_step(monkeypatch, SourceSessions, "ask")
        moving = asyncio.ensure_future(player.relocate("n1"))
        await step.wait()
        await it.nodes["n0"].bindings.unbind(player.key, binding)
        assert (await row_of(it, player)).binding == binding
        result = await moving  # nobody is asked, so nobody answers in time
        assert result.outcome == "failed"
        await written(it, player, "n0")


class Latched:
    """Writes of bindings at one node that wait for the test."""

    def __init__(self, patch: pytest.MonkeyPatch, node: Supervisor) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()
        write = Bindings._write

        async def latched(bindings: Bindings, *arguments: Any) -> AuthorityRow:
            if bindings is node.bindings and not self.open.is_set():
                self.reached.set()
                await self.open.wait()
            return await write(bindings, *arguments)

        patch.setattr(Bindings, "_write", latched)


@pytest.mark.parametrize("next_move", ["sealed", "over"])
async def test_it_goes_on_with_an_actor_that_moves_on(
    monkeypatch: pytest.MonkeyPatch, next_move: str
) -> None:
    """A to B to C: the next move began before B could write it, so C does; with the Actor, or after it."""
    async with cluster(3, 1) as it:
        player, binding = await bound(it)
        latch = Latched(monkeypatch, it.nodes["n1"])
        first = hold_answer(monkeypatch, SourceDriver, "_await_capture")
        moving = asyncio.ensure_future(player.relocate("n1"))
        await first.wait()
        await it.nodes["n0"].bindings.unbind(player.key, binding)
        first.release()
        assert (await moving).outcome == "moved"
        async with asyncio.timeout(20):
            await latch.reached.wait()
        second = hold_step(monkeypatch, TargetDriver, "_send_ready")
        if next_move == "over":
            second.release()
        moving = asyncio.ensure_future(player.relocate("n2"))
        if next_move == "over":
            assert (await moving).outcome == "moved"
        else:
            await second.wait()
        latch.open.set()
        second.release()
        assert (await moving).outcome == "moved"
        await written(it, player, "n2")


async def test_the_newest_binding_wins_over_an_unbind_that_was_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster(2, 1) as it:
        player, binding = await bound(it)
        latch = Latched(monkeypatch, it.nodes["n1"])
        step = hold_answer(monkeypatch, SourceDriver, "_await_capture")
        moving = asyncio.ensure_future(player.relocate("n1"))
        await step.wait()
        await it.nodes["n0"].bindings.unbind(player.key, binding)
        step.release()
        assert (await moving).outcome == "moved"
        async with asyncio.timeout(20):
            await latch.reached.wait()
        newer = msgspec.structs.replace(binding, binding_generation=2)
        node = it.nodes["n1"]
        found = await node.directory.read(player.key)
        assert found is not None
        monkeypatch.undo()
        await bind(node, player, 2)
        latch.open.set()
        told = await it.journal.wait("session_unbound")
        assert told["newer_binding"] is True
        assert (await row_of(it, player)).binding == newer


async def test_one_that_cannot_be_written_is_told_by_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(2, 1) as it:
        player, binding = await bound(it)
        step = hold_answer(monkeypatch, SourceDriver, "_await_capture")
        moving = asyncio.ensure_future(player.relocate("n1"))
        await step.wait()
        wrong = msgspec.structs.replace(binding, session_rid="not octets")
        await it.nodes["n0"].bindings.unbind(player.key, wrong)
        step.release()
        assert (await moving).outcome == "moved"
        told = await it.journal.wait("unbind_failed")
        assert (told["kind"], told["object_id"]) == ("InvalidOperation", "actor 'p'")
        assert (await row_of(it, player)).binding == binding
