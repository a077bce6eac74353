"""Emptying a node from the client, over the mesh."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sojourn.errors import InvalidOperation, NotConfigured, SojournError, Unavailable
from sojourn.options import Options
from sojourn.rows import HostState
from sojourn.workers import member
from sojourn.workers.client import Client
from sojourn.workers.pool import WorkerPool
from sojourn.workers.program import reference_for
from sojourn.workers.supervisor import Supervisor

from tests.links.members import turn_until
from tests.runtime.cluster import QUICK_LEASE, Config, cluster, hold_answer, outcome
from tests.runtime.fleet import Player, app


async def test_a_client_empties_a_node_and_lets_it_serve_again() -> None:
    async with cluster(nodes=2, workers=1) as fleet:
        client, (first, second) = fleet.client, list(fleet.nodes)
        players = [await client.create(Player, f"p{number}", at=first) for number in range(5)]
        node = client.node(first)
        assert (await node.status())["objects"] == 5
        assert (await node.relocate(dry_run=True)).outcome == "Relocated"
        assert {await fleet.where(player) for player in players} == {first}
        result = await node.relocate(deadline=20)
        assert (result.outcome, result.moved, result.stayed) == ("Relocated", 5, [])
        assert {await fleet.where(player) for player in players} == {second}
        assert (await node.status())["state"] == "Relocated"
        with pytest.raises(InvalidOperation, match="unknown mode"):
            await node.relocate(mode="Sideways")  # type: ignore[arg-type]
        for wrong in (0, -1, "30s", True, float("inf"), None):
            with pytest.raises(InvalidOperation, match="deadline in seconds above 0"):
                await node.relocate(deadline=wrong)  # type: ignore[arg-type]
        await node.uncordon()
        back = await asyncio.gather(*(player.relocate(to=first) for player in players))
        assert {move.outcome for move in back} == {"moved"}
        await client.node(second).cordon()
        assert (await client.node(second).status())["cordoned"]
        with pytest.raises(NotConfigured, match="nowhere"):
            await client.node("nowhere").status()


async def test_a_client_finds_what_went_to_a_node_that_has_just_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody dials a client, and its next scan may be far away: it asks the store for a run that it does not know."""
    monkeypatch.setattr(member, "CLIENT_REFRESH_S", 3600.0)
    async with cluster(nodes=1, workers=1) as fleet:
        player = await fleet.client.create(Player, "p", at="n0")
        late = Supervisor(Config("n1", fleet.options, reference_for(app), 1))
        await late.start_node()
        try:
            assert "n1" not in fleet.client.nodes()
            result = await fleet.client.node("n0").relocate(deadline=20)
            assert (result.outcome, result.moved) == ("Relocated", 1)
            assert await fleet.where(player) == "n1"
            assert "n1" in fleet.client.nodes()
        finally:
            await late.stop(5.0)


async def test_a_node_that_nobody_knows_one_that_stops_and_one_that_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster(nodes=2, workers=1) as fleet:
        client, former = fleet.client, fleet.nodes["n1"].run
        player = await client.create(Player, "p", at="n0")

        async def both(node: str) -> tuple[SojournError, str]:
            error = await outcome(client.create(Player, f"at {node}", at=node))
            assert isinstance(error, SojournError)
            moved = await outcome(player.relocate(to=node))
            return error, moved.message if isinstance(
                moved, NotConfigured
            ) else f"{moved.outcome} {moved.reason}"

        error, moved = await both("mars")
        assert isinstance(error, NotConfigured)
        assert error.message == moved == "no node has the RID 'mars'; known: n0, n1"

        step = hold_answer(monkeypatch, WorkerPool, "stop")
        fleet.crashed.add("n1")  # nobody else is to stop it
        stopping = asyncio.ensure_future(fleet.nodes["n1"].stop(5.0))
        await step.wait()
        for member in (client, fleet.nodes["n0"]):
            await turn_until(lambda it=member: it.roster.get(former).state is HostState.DRAINING)
        error, moved = await both("n1")
        assert isinstance(error, Unavailable)
        assert "it is Draining, not Serving" in error.message
        assert moved.startswith("failed TargetUnavailable: ")
        assert "it is Draining, not Serving" in moved

        step.release()
        await stopping
        error, moved = await both("n1")
        assert isinstance(error, Unavailable)
        assert error.message == "node 'n1' has ended; running: n0"
        assert moved.startswith("failed TargetUnavailable: ")
        assert await player.request(Player.hit, 1) == 1


async def test_the_status_of_a_node_shows_that_its_store_file_is_gone(tmp_path: Path) -> None:
    file, away = tmp_path / "store.db", tmp_path / "away.db"
    async with cluster(nodes=1, workers=1, store_url=f"sqlite:///{file}", **QUICK_LEASE) as fleet:
        node = fleet.client.node("n0")
        before = await node.status()
        assert (before["ready"], before["store"]) == (True, {"failing": False, "errors": 0, "last_error": ""})
        file.rename(away)
        await turn_until(lambda: fleet.nodes["n0"].store_health.failing)
        during = await node.status()
        assert during["state"] == "Serving"  # what is here goes on as long as the lease does
        assert (during["store"]["failing"], during["store"]["errors"] > 0) == (True, True)
        assert "was removed or replaced" in during["store"]["last_error"]
        assert "was removed or replaced" in fleet.journal.named("store_failing")[0]["error"]
        await turn_until(lambda: not fleet.nodes["n0"].admission_open())
        assert not (await node.status())["ready"]
        away.rename(file)
        await turn_until(lambda: fleet.nodes["n0"].admission_open())
        after = await node.status()
        assert (after["ready"], after["store"]["failing"]) == (True, False)
        assert after["store"]["errors"] >= during["store"]["errors"]
        assert fleet.journal.named("store_works_again")


async def test_a_client_with_another_secret_is_told_so_when_it_connects() -> None:
    async with cluster(nodes=1, workers=1) as fleet:
        options = Options.from_mapping(fleet.options.to_mapping() | {"secret": "another secret of 16 bytes"})
        stranger = Client(fleet.client._app, options, "stranger")
        with pytest.raises(NotConfigured, match=r"have another secret \(option `secret`\): n0@\d+ refused"):
            await stranger.connect_cluster()
