"""Emptying a node of one application version into nodes of the next (B10.1, B1.9)."""

from __future__ import annotations

from tests.runtime.cluster import cluster
from tests.runtime.versions import Book, Note, new, old


async def test_a_rolling_update_moves_state_through_upgrade() -> None:
    async with cluster(nodes=3, workers=1, apps=(old, new, old)) as fleet:
        client, node = fleet.client, fleet.client.node("n0")
        books = [await client.create(Book, f"b{number}", at="n0") for number in range(5)]
        for book in books:
            assert await book.request(Book.write, 10) == (1, 10)
        result = await node.relocate(mode="RollingUpdate", target_version=2, deadline=20)
        assert (result.outcome, result.moved, result.stayed) == ("Relocated", 5, [])
        assert {await fleet.where(book) for book in books} == {"n1"}  # n2 is of the old version
        for book in books:
            assert await book.request(Book.write, 4) == (2, 7)


async def test_state_without_an_upgrade_stays_and_serves_on() -> None:
    async with cluster(nodes=3, workers=1, apps=(old, new, new)) as fleet:
        client, node = fleet.client, fleet.client.node("n0")
        note, book = await client.create(Note, "n", at="n0"), await client.create(Book, "b", at="n0")
        assert await note.request(Note.write, 3) == 3
        result = await node.relocate(mode="RollingUpdate", target_version=2, deadline=20)
        assert (result.outcome, result.reason, result.moved) == ("Blocked", "StateIncompatible", 1)
        (stayed,) = result.stayed
        assert (stayed.object, stayed.reason) == ("actor 'n'", "StateIncompatible")
        assert "write upgrade(self, old_version, state)" in stayed.detail
        assert await fleet.where(note) == "n0"
        assert await note.request(Note.write, 1) == 4
        assert await fleet.where(book) != "n0"
