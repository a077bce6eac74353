"""CT-22 to CT-25: backlog, order, and the techniques that do not exist."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from sojourn import mesh
from sojourn.wire import (
    MessageFollow,
    RelocationCutover,
    RelocationData,
    RelocationPrepare,
    RelocationReady,
    RelocationState,
    decode_envelope,
    read_record,
)

from tests.contract.app import Ledger
from tests.contract.hands import HandTarget, ledger_at, move_to, source, take, taken_by
from tests.contract.peer import Peer
from tests.contract.stand import Stand
from tests.runtime.cluster import gate

pytestmark = pytest.mark.asyncio(loop_scope="module")
OPTIONS = {"max_queued_jobs": 16, "relocation_cutover_wait_ms": 4_000}


async def test_ct_22_saved_work_runs_before_relay_and_relay_before_direct(stand: Stand, peer: Peer) -> None:
    """R4.3.1, R4.6.1: the temporary queue stands before the first chunk, so what comes directly meanwhile is in it."""
    key = await ledger_at(peer, stand.a)
    taken = await take(peer, stand.a, key)
    saved = [peer.saved(key, "note", f"saved {number}") for number in range(2)]
    move = await source(peer, stand.b, taken, saved)
    move.offer()
    peer.submit(stand.b, key, "note", "direct", request=False)  # first to arrive, last to run
    await move.ready()
    move.relay(peer.saved(key, "note", "relayed"))
    move.cutover()
    peer.submit(stand.b, key, "note", "behind the boundary", request=False)
    await move.committed()
    expected = ["saved 0", "saved 1", "relayed", "direct", "behind the boundary"]
    assert await peer.ask(stand.b, key, "history") == expected


async def test_a_backlog_goes_first_and_locks_nobody_out(stand: Stand, peer: Peer) -> None:
    """R4.6.2: while a turn of the backlog lasts, new messages are taken in behind it and other objects run."""
    key, other = await ledger_at(peer, stand.a), await ledger_at(peer, stand.b, "other")
    taken = await take(peer, stand.a, key)
    async with gate() as entrance:
        route = peer.new_route()
        saved = [peer.saved(key, "hold", entrance.port, route=route), peer.saved(key, "note", "saved")]
        move = await source(peer, stand.b, taken, saved)
        await move.give(peer.saved(key, "note", "relayed"))
        await entrance.arrived()
        direct = [peer.submit(stand.b, key, "add", str(number)) for number in range(10)]
        assert await peer.ask(stand.b, other, "add", "meanwhile") == 1
        assert stand.ran(key[1:].decode()) == []
        entrance.open()
    assert (await peer.answer(route)).value == 1
    assert [(await peer.answer(each)).value for each in direct] == list(range(4, 14))
    assert (await peer.ask(stand.b, key, "history"))[:4] == ["held", "saved", "relayed", "0"]


async def test_ct_23_a_backlog_above_the_job_limit_runs_in_order(stand: Stand, peer: Peer) -> None:
    """16 permits, and 1,024 credits of a link, for 2,300 waiting messages; other objects of the node go on meanwhile:
    what waits in the backlog holds neither (R4.3.5, R4.6.3, B5.4), and no limit applies to it alone (R5.3)."""
    key, other = await ledger_at(peer, stand.a), await ledger_at(peer, stand.b, "other")
    taken = await take(peer, stand.a, key)
    texts = [str(number) for number in range(2300)]
    move = await source(peer, stand.b, taken, [peer.saved(key, "note", text) for text in texts[:500]])
    await move.ready()
    for text in texts[1000:]:
        peer.submit(stand.b, key, "note", text, request=False)
    assert await peer.ask(stand.b, other, "add", "while staged") == 1
    move.relay(*(peer.saved(key, "note", text) for text in texts[500:1000]))
    move.cutover()
    await move.committed()
    assert await peer.ask(stand.b, other, "add", "while it opens") == 2
    assert await peer.ask(stand.b, key, "history") == texts
    assert not stand.log.events("dead_letter", about=move.name)


async def test_ct_24_requests_keep_their_identity_and_sends_need_no_answer(stand: Stand, peer: Peer) -> None:
    """R4.2.3, R5.2: operation, reply route and deadline are those the requester gave."""
    key = await ledger_at(peer, stand.a)
    deadline_ms = int(time.time() * 1000) + 60_000
    async with gate() as entrance:
        peer.submit(stand.a, key, "hold", entrance.port)
        await entrance.arrived()
        operations = [(7, 1), (7, 2)]
        routes = [
            peer.submit(stand.a, key, "add", f"queued {at}", deadline_ms=deadline_ms, operation=operation)
            for at, operation in enumerate(operations)
        ]
        expired = peer.submit(stand.a, key, "add", "too late", deadline_ms=1)
        peer.submit(stand.a, key, "note", "sent", request=False)
        await peer.settle(stand.a)
        target, before = HandTarget(peer, stand.a, key), await stand.started(stand.a)
        moving = move_to(peer, stand.a, key)
        await stand.sealing(stand.a, before)
        entrance.open()
        await target.prepared()
    envelope = decode_envelope(target.payload())
    held = peer.submit(stand.a, key, "add", "held", deadline_ms=deadline_ms, operation=(7, 3))
    await peer.settle(stand.a)
    target.ready()
    await target.cutover()
    row = await target.commit()
    assert (await moving)["outcome"] == "moved"
    saved = [read_record(work.record) for work in envelope.saved_work]
    assert [(each.operation_high, each.operation_low) for each in saved[:2]] == operations
    assert [(each.reply_route, each.deadline_ms) for each in saved[:2]] == [
        (route, deadline_ms) for route in routes
    ]
    (relayed,) = [read_record(record) for record in target.relay()]
    assert (relayed.operation_high, relayed.operation_low) == (7, 3)
    assert (relayed.reply_route, relayed.deadline_ms) == (held, deadline_ms)
    # What a real target makes of it: each request is answered once, to its caller, under its own operation.
    taken = await taken_by(target)
    assert taken.row == row
    move = await source(peer, stand.b, taken, [work.record for work in envelope.saved_work])
    await move.give(*target.relay())
    answers = [await peer.answer(route) for route in (*routes, held)]
    assert [answer.operation for answer in answers] == [(7, 1), (7, 2), (7, 3)]
    assert [answer.value for answer in answers] == [2, 3, 5]
    assert await peer.ask(stand.b, key, "history") == ["held", "queued 0", "queued 1", "sent", "held"]
    assert all(answer.error for answer in peer.answers.get(expired, []))  # never a result
    assert 0 not in peer.answers


async def test_ct_25_no_acknowledgement_no_high_water_no_gate(stand: Stand, peer: Peer) -> None:
    """R11.2: a relay far above every job limit causes no frame of the target; a source asks once and waits for nothing.
    R3.6: equal payloads are as many messages."""
    key = await ledger_at(peer, stand.a)
    target = HandTarget(peer, stand.a, key)
    moving = move_to(peer, stand.a, key)
    await target.prepared()
    for number in range(300):
        peer.submit(stand.a, key, "note", str(number), request=False)
    await peer.settle(stand.a)
    target.ready()
    await target.cutover()
    kinds = [type(each.command) for each in target.arrived()]
    chunks = kinds.count(RelocationState)
    assert kinds == [
        RelocationPrepare,
        *[RelocationState] * chunks,
        *[RelocationData] * 300,
        RelocationCutover,
    ]
    await target.commit()
    assert (await moving)["outcome"] == "moved"
    taken = await taken_by(target)
    move = await source(peer, stand.b, taken)
    since, controls = len(peer.arrivals), len(peer.controls)
    await move.ready()
    rows = await stand.authority_rows()
    move.relay(*target.relay())
    await peer.settle(stand.b)
    assert answered(peer, since) == [RelocationReady]
    assert peer.controls[controls:] == []
    assert await stand.authority_rows() == rows  # no journal either
    move.cutover()
    await move.committed()
    assert await peer.ask(stand.b, key, "history") == [str(number) for number in range(300)]
    await peer.settle(stand.b)
    assert answered(peer, since) == [RelocationReady]  # nor is the relay acknowledged once it ran
    assert [type(each) for each in peer.controls[controls:]] == [mesh.HandoffTimes]  # one for the whole move
    # The boundary holds one count and one checksum over the whole batch; two live moves of two objects share nothing.
    keys = [await ledger_at(peer, stand.a) for _ in range(2)]
    both = [await source(peer, stand.b, await take(peer, stand.a, name)) for name in keys]
    for each in both:
        await each.ready()
    for each in reversed(both):
        each.relay(*(peer.saved(each.taken.key, "note", "relayed") for _ in range(2)))
        each.cutover()
    await asyncio.gather(*(each.committed() for each in both))
    for name in keys:
        spot = stand.client.spot(Ledger, name[1:].decode())
        assert await spot.request(Ledger.history) == ["relayed", "relayed"]


def answered(peer: Peer, since: int) -> list[type[Any]]:
    """Contract commands that came since; senders' routes (command 50) belong to no move."""
    commands = [each.command for each in peer.arrivals[since:]]
    return [type(each) for each in commands if not isinstance(each, MessageFollow)]
