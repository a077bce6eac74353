"""CT-27, CT-30 and CT-33: late cutovers, the one way back, and what is not promised."""

from __future__ import annotations

import asyncio

import pytest
from sojourn.rows import MarkOutcome
from sojourn.wire import decode_envelope

from tests.contract.hands import HandSource, HandTarget, ledger_at, move_to, source, take
from tests.contract.peer import Peer, joined
from tests.contract.stand import Event, Stand
from tests.runtime.cluster import gate

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_ct_27_a_late_or_repeated_cutover_is_only_a_warning(stand: Stand, peer: Peer) -> None:
    key = await ledger_at(peer, stand.a)
    taken = await take(peer, stand.a, key)
    move = await source(peer, stand.b, taken)
    row = await move.give(peer.saved(key, "note", "relayed"))
    move.cutover()
    move.cutover(17, 4)
    await stand.fact(lambda: len(stand.log.events("late_cutover", about=move.name)) == 2, stand.b)
    assert {event.level for event in stand.log.events("late_cutover", about=move.name)} == {"WARNING"}
    assert await stand.row(key) == row
    assert await peer.ask(stand.b, key, "history") == ["relayed"]
    # R4.4.4, B8.5: a cutover that lies is an Error and counts as not arrived; the wait goes on to its end.
    back = await take(peer, stand.b, key)
    lying = await source(peer, stand.a, back)
    await lying.ready()
    lying.cutover(3, 5)
    event = await stand.event("cutover_mismatch", lying.name)
    assert event.level == "ERROR"
    assert await stand.row(key) == back.row
    await stand.event("cutover_timeout", lying.name)
    await lying.committed()
    lying.cutover(0, 0)
    await stand.fact(lambda: len(stand.log.events("late_cutover", about=lying.name)) == 3, stand.a)
    assert await peer.ask(stand.a, key, "history") == ["relayed"]


async def test_ct_30_only_an_explicit_failure_before_relay_ready_restores(stand: Stand, peer: Peer) -> None:
    key = await ledger_at(peer, stand.a)
    async with gate() as entrance:
        peer.submit(stand.a, key, "hold", entrance.port)
        await entrance.arrived()
        peer.submit(stand.a, key, "note", "queued", request=False)
        await peer.settle(stand.a)
        target, before = HandTarget(peer, stand.a, key), await stand.started(stand.a)
        moving = move_to(peer, stand.a, key)
        await stand.sealing(stand.a, before)
        entrance.open()
        await target.prepared()
    assert len(decode_envelope(target.payload()).saved_work) == 1
    peer.submit(stand.a, key, "note", "held", request=False)
    await peer.settle(stand.a)
    target.failed()
    assert (await moving)["outcome"] == "failed"
    peer.submit(stand.a, key, "note", "new", request=False)
    assert await peer.ask(stand.a, key, "history") == ["held", "queued", "held", "new"]
    target.ready()  # too late: the identity is over
    await peer.settle(stand.a)
    assert await peer.ask(stand.a, key, "add", "still here") == 5

    target = HandTarget(peer, stand.a, key)
    moving = move_to(peer, stand.a, key)
    await target.prepared()
    target.ready()
    await target.cutover()
    target.failed()  # past the boundary nothing gives the object back
    followed = len(peer.records)
    route = peer.submit(stand.a, key, "add", "where to")
    await peer.until(lambda: len(peer.records) > followed)
    await peer.settle(stand.a)
    assert route not in peer.answers
    assert "where to" not in stand.ran(key[1:].decode())
    await target.commit()
    assert (await moving)["outcome"] == "moved"


async def test_ct_30_a_fence_restores_when_nobody_answers(stand: Stand, peer: Peer) -> None:
    """R4.2.8: the source's deadline passes before relay-ready; its fence counts as the failure."""
    key = await ledger_at(peer, stand.a)
    first = await stand.row(key)
    assert first is not None
    target = HandTarget(peer, stand.a, key)
    moving = move_to(peer, stand.a, key, deadline_s=2.2)
    await target.prepared()
    route = peer.submit(stand.a, key, "add", "held")
    assert (await moving)["outcome"] == "failed"
    assert (await peer.answer(route)).value == 1
    fenced = await stand.row(key)
    assert fenced is not None
    assert fenced.row.owner == first.row.owner
    assert fenced.row.owner_generation == first.row.owner_generation
    assert fenced.row.relocation is not None
    assert fenced.row.relocation.outcome is MarkOutcome.FENCED
    target.ready()
    assert await peer.ask(stand.a, key, "add", "again") == 2


async def test_ct_33_what_is_not_promised_shows_in_the_log(stand: Stand, peer: Peer) -> None:
    """R4.4.6: on the fallback path a late relay runs behind newer direct messages. R5.1: there is no order across
    connections. Across a crash a turn runs twice."""
    key = await ledger_at(peer, stand.a)
    taken = await take(peer, stand.a, key)
    move = await source(peer, stand.b, taken)
    await move.ready()
    older = peer.saved(key, "note", "relayed, older")
    async with joined(stand, "another") as another:
        another.generations.update(peer.generations)
        another.submit(stand.b, key, "note", "direct, newer", request=False)
        assert warning(await stand.event("cutover_timeout", move.name), move)
        await move.committed()
        # Dispatch is open when the newer one has run: the relay comes late, and is run all the same.
        assert await another.ask(stand.b, key, "history") == ["direct, newer"]
        move.relay(older)
        move.cutover()
        assert warning(await stand.event("late_cutover", move.name), move)
        assert await peer.ask(stand.b, key, "history") == ["direct, newer", "relayed, older"]

    crash = await ledger_at(peer, stand.b, "crash")
    answer = await peer.answer(peer.submit(stand.b, crash, "break_off", "charged"))
    assert (answer.error, answer.applied) == ("Unavailable", "unknown")
    lost = await stand.fact(lambda: stand.log.events("worker_lost"), stand.b)
    assert lost[0].level == "ERROR"
    assert crash[1:].decode() in lost[0].fields["objects"]
    lost_again = await peer.answer(peer.submit(stand.b, crash, "add", "charged"))
    assert lost_again.error == "DataLost"
    again = answer
    async with asyncio.timeout(20):  # its caller tries again, until the node has a worker again
        while again.error:
            assert again.error == "Unavailable"
            again = await peer.answer(peer.submit(stand.b, crash, "add", "charged", create="Ledger"))
    assert again.value == 1
    assert stand.ran(crash[1:].decode()) == ["charged", "charged"]


def warning(event: Event, move: HandSource) -> bool:
    """Whether an event warns of that very attempt."""
    high, low = move.relocation
    return (event.level, event.fields["relocation_id"]) == ("WARNING", f"{high:016x}{low:016x}")
