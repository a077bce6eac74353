"""Emptying a node from the client, over the mesh."""

from __future__ import annotations

import asyncio

import pytest
from sojourn.errors import InvalidOperation, NotConfigured

from tests.runtime.cluster import cluster
from tests.runtime.fleet import Player


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
        await node.uncordon()
        back = await asyncio.gather(*(player.relocate(to=first) for player in players))
        assert {move.outcome for move in back} == {"moved"}
        await client.node(second).cordon()
        assert (await client.node(second).status())["cordoned"]
        with pytest.raises(NotConfigured, match="nowhere"):
            await client.node("nowhere").status()
