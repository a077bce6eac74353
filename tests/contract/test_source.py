"""What a real source shows to whoever is its target: one protocol, chunks as announced, and Message Follow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sojourn import mesh
from sojourn.frames import parse_record_header
from sojourn.ids import ObjectKey
from sojourn.rows import encode_descriptor
from sojourn.wire import RelocationCutover, RelocationPrepare, RelocationState, read_record

from tests.contract.hands import HandTarget, ledger_at, move_to, take
from tests.contract.peer import Peer, joined
from tests.contract.stand import Stand

pytestmark = pytest.mark.asyncio(loop_scope="module")
NODES = 1
OPTIONS = {"max_queued_jobs": 16, "relocation_cutover_wait_ms": 4_000}
KIB = 1024


async def _asked_by_an_operator(peer: Peer, key: ObjectKey) -> object:
    return (await move_to(peer, peer.stand.a, key))["outcome"]


async def _asked_by_itself(peer: Peer, key: ObjectKey) -> object:
    assert await peer.ask(peer.stand.a, key, "go", peer.name) == peer.name
    await peer.stand.owned_by(key, peer.run)
    return "moved"


async def _the_node_is_emptied(peer: Peer, key: ObjectKey) -> object:
    peer.weight = 1
    for link in peer.links.all():
        link.send_control(mesh.Announce(encode_descriptor(peer.descriptor())))
    await peer.settle(peer.stand.a)
    result = await peer.stand.a.call("relocate_node", {"deadline_s": 20.0}, timeout_s=30.0)
    await peer.stand.a.call("uncordon")
    return "moved" if (result["outcome"], result["moved"]) == ("Relocated", 1) else result


@pytest.mark.parametrize("start", [_asked_by_an_operator, _asked_by_itself, _the_node_is_emptied])
async def test_every_way_to_start_a_move_speaks_one_protocol(
    stand: Stand, peer: Peer, start: Callable[[Peer, ObjectKey], Awaitable[object]]
) -> None:
    """R1.1: the same commands in the same order, whoever asked."""
    key = await ledger_at(peer, stand.a)
    target = HandTarget(peer, stand.a, key)
    moving: asyncio.Future[Any] = asyncio.ensure_future(start(peer, key))
    await target.prepared()
    target.ready()
    await target.cutover()
    row = await target.commit()
    assert await moving == "moved"
    assert [type(each.command) for each in target.arrived()] == [
        RelocationPrepare,
        RelocationState,
        RelocationCutover,
    ]
    assert row.row.owner == peer.owner


@pytest.mark.parametrize(
    ("announced", "expected"),
    [(8 * KIB, 8 * KIB), (0, 32 * KIB), (1024 * KIB, 256 * KIB)],
    ids=["the target's limit", "nothing announced", "the source's limit"],
)
async def test_chunks_keep_to_every_limit(stand: Stand, announced: int, expected: int) -> None:
    """R4.2.5, B8.11: the target's limit comes with the link, before any seal; of the budget: CT-12."""
    async with joined(stand, "limited", receive_chunk_limit=announced) as peer:
        key = await ledger_at(peer, stand.a)
        await peer.ask(stand.a, key, "grow", 600 * KIB)
        target = HandTarget(peer, stand.a, key)
        moving = move_to(peer, stand.a, key)
        prepare = await target.prepared()
        sizes = [len(each.command.chunk_data) for each in target.arrived(RelocationState)]
        assert set(sizes[:-1]) == {expected}
        assert 0 < sizes[-1] <= expected
        assert (sum(sizes), len(sizes)) == (prepare.payload_total_length, prepare.payload_chunk_count)
        target.ready()
        await target.cutover()
        await target.commit()
        assert (await moving)["outcome"] == "moved"


async def test_follow_has_no_limit_of_its_own_and_reads_no_deadline(stand: Stand, peer: Peer) -> None:
    """R10.2: far more than there are job permits. R10.3: their time is over, which is for the new owner to say."""
    key = await ledger_at(peer, stand.a)
    await take(peer, stand.a, key)
    before = len(peer.records)
    routes = [peer.submit(stand.a, key, "add", str(number), deadline_ms=1) for number in range(600)]
    await peer.until(lambda: len(peer.records) == before + len(routes))
    headers = [parse_record_header(body) for body in peer.records[before:]]
    assert [header.reply_route for header in headers] == routes
    assert {header.hops for header in headers} == {1}
    records = [
        read_record(body[header.record_at :])
        for body, header in zip(peer.records[before:], headers, strict=True)
    ]
    assert {record.deadline_ms for record in records} == {1}
    assert not any(route in peer.answers for route in routes)
