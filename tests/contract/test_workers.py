"""A Spot and the Actors that share its turn move to another worker of their node as one unit (B8.7, R3.3)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.contract.peer import joined
from tests.contract.stand import standing
from tests.contract.test_units import Party


@pytest.mark.timeout(60)
async def test_a_unit_moves_to_another_worker_whole_and_in_one_order(tmp_path: Path) -> None:
    async with standing(tmp_path, 1, 2) as stand, joined(stand) as peer:
        party = await Party(peer, "Hall").made()
        await party.give(stand.a)
        ann, bob, spot = party.keys
        for key in party.keys:
            assert await peer.ask(stand.a, key, "add", party.book, "0") == 1
        number = 0
        for moves, asked in enumerate((spot, ann, bob, spot), 1):
            worker = (await stand.a.call("locate", {"key": ann}))["worker"]
            arguments = {"key": asked, "worker": 1 - worker, "deadline_s": 10.0}
            moving = asyncio.ensure_future(stand.a.call("relocate", arguments, timeout_s=30.0))
            sent = []
            for key in (bob, spot, ann) * 5:
                number += 1
                sent.append(peer.submit(stand.a, key, "add", party.book, str(number)))
            result = await moving
            assert (result["outcome"], result["node"]) == ("moved", stand.a.rid)
            assert [(await peer.answer(each)).error for each in sent] == [""] * 15
            places = [await stand.a.call("locate", {"key": key}) for key in party.keys]
            assert {place["worker"] for place in places} == {1 - worker}
            rows = await party.rows()
            assert {(each.row.owner.rid, each.row.owner_generation) for each in rows.values()} == {
                (stand.a.rid.encode(), 2 + moves)
            }
            assert len({each.row.relocation for each in rows.values()}) == 1
            assert rows[spot].row.members == (ann[1:].decode(), bob[1:].decode())
        ran = [int(line.split()[1]) for line in stand.ran(party.book)]
        assert ran == [0, 0, 0, *range(1, number + 1)]
        for key in party.keys:
            assert await peer.ask(stand.a, key, "add", party.book, "last") == 22
        assert (await stand.a.status())["objects"] == 3
