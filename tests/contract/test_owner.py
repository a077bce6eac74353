"""CT-15 to CT-18: who changes the owner, and when."""

from __future__ import annotations

import msgspec
import pytest
from sojourn.ownership import fence_unit, rewrite_object
from sojourn.rows import MarkOutcome, RelocationMark, RowState
from sojourn.wire import RelocationCutover, RelocationData, RelocationFailed

from tests.contract.hands import HandTarget, Taken, ledger_at, move_to, source, take
from tests.contract.peer import Peer
from tests.contract.stand import Stand

pytestmark = pytest.mark.asyncio(loop_scope="module")
OPTIONS = {"relocation_commit_reserve_ms": 200}


async def test_ct_15_no_row_is_written_before_the_object_stands(stand: Stand, peer: Peer) -> None:
    key = await ledger_at(peer, stand.a)
    taken = await take(peer, stand.a, key)
    before = await stand.authority_rows()
    move = await source(peer, stand.b, taken, chunk_octets=8)
    move.prepare()
    for ordinal in range(len(move.chunks) - 1):
        move.chunk(ordinal)
    await peer.settle(stand.b)
    assert await stand.authority_rows() == before
    assert not move.replies()
    move.chunk(len(move.chunks) - 1)
    await move.ready()
    assert await stand.authority_rows() == before  # nor a prepared one afterwards
    move.cutover()
    await move.committed()
    # A real source writes none either while its target assembles.
    back = HandTarget(peer, stand.b, key)
    before = await stand.authority_rows()
    moving = move_to(peer, stand.b, key)
    await back.prepared()
    assert await stand.authority_rows() == before
    back.ready()
    await back.cutover()
    await back.commit()
    assert (await moving)["outcome"] == "moved"


@pytest.mark.parametrize("settled_by", ["cutover", "timeout"])
async def test_ct_16_no_owner_and_no_turn_before_cutover_or_timeout(
    stand: Stand, peer: Peer, settled_by: str
) -> None:
    """R4.3.4, R4.3.6: relay-ready is no completion. Saved work, relay and what came directly wait, each in its
    place, and the owner is still the source."""
    key = await ledger_at(peer, stand.a)
    taken = await take(peer, stand.a, key)
    move = await source(peer, stand.b, taken, [peer.saved(key, "note", "saved")])
    await move.ready()
    move.relay(peer.saved(key, "note", "relayed"))
    direct = peer.submit(stand.b, key, "add", "direct")
    await peer.settle(stand.b)
    assert await stand.row(key) == taken.row
    assert direct not in peer.answers
    assert stand.ran(key[1:].decode()) == []
    if settled_by == "cutover":
        move.cutover()
    else:
        event = await stand.event("cutover_timeout", move.name)
        assert event.level == "WARNING"
    await move.committed()
    assert (await peer.answer(direct)).value == 3
    assert stand.ran(key[1:].decode()) == ["saved", "relayed", "direct"]


async def test_ct_17_the_source_never_changes_the_owner(stand: Stand, peer: Peer) -> None:
    """R2.1: a target that never writes. The source waits, reads, and at last marks the object lost, under its own name."""
    key = await ledger_at(peer, stand.a)
    first = await stand.row(key)
    assert first is not None
    target = HandTarget(peer, stand.a, key)
    moving = move_to(peer, stand.a, key, deadline_s=2.3)
    await target.prepared()
    target.ready()
    await target.cutover()
    owners = set()
    while not moving.done():
        found = await stand.row(key)
        assert found is not None
        owners.add((found.row.owner, found.row.owner_generation))
        await peer.settle(stand.a)
    assert owners == {(first.row.owner, first.row.owner_generation)}
    assert (await moving)["outcome"] == "failed"
    last = await stand.row(key)
    assert last is not None
    assert (last.row.owner, last.row.state) == (first.row.owner, RowState.LOST)
    assert (await stand.event("object_lost", target.key[1:].decode())).level == "ERROR"


async def test_ct_18_nothing_runs_after_a_conflict(stand: Stand, peer: Peer) -> None:
    """The row changes under the target's feet between relay-ready and cutover."""
    key = await ledger_at(peer, stand.a)
    taken = await take(peer, stand.a, key)
    made = stand.made(key[1:].decode())
    route = peer.new_route()
    move = await source(peer, stand.b, taken, [peer.saved(key, "add", "saved", route=route)])
    await move.ready()
    assert stand.made(key[1:].decode()) == made + 1
    move.relay(peer.saved(key, "note", "relayed"))
    peer.submit(stand.b, key, "note", "direct", request=False)
    direct = peer.submit(stand.b, key, "add", "direct request")
    row = taken.row.row
    changed = msgspec.structs.replace(row, relocation=RelocationMark(1, 1, MarkOutcome.COMMITTED))
    await peer.write(rewrite_object(taken.row, changed))
    move.cutover()
    for each in (direct, route):  # a relay came: nobody else will ever answer what was saved
        answer = await peer.answer(each)
        assert (answer.error, answer.applied) == ("Unavailable", "no")
    removed = await stand.fact(lambda: stand.log.events("dead_letter", about=move.name), stand.b)
    assert len(removed) >= 1
    await peer.settle(stand.b)
    assert stand.ran(key[1:].decode()) == []
    found = await stand.row(key)
    assert found is not None
    assert found.row == changed
    # The id is not blocked: the row's owner moves it by a new attempt.
    again = await source(peer, stand.b, Taken(key, found, taken.envelope))
    await again.give()
    assert await peer.ask(stand.b, key, "add", "afterwards") == 1


async def test_a_second_identity_for_one_object_is_judged_by_the_row(stand: Stand, peer: Peer) -> None:
    """B8.16: where the row names both, the newcomer lives unless the older has sent relay-ready."""
    key = await ledger_at(peer, stand.a)
    taken = await take(peer, stand.a, key)
    older, newer, newest = [await source(peer, stand.b, taken, chunk_octets=64) for _ in range(3)]
    older.prepare()
    older.chunk(0)
    direct = peer.submit(stand.b, key, "add", "direct")
    await peer.settle(stand.b)
    newer.offer()
    assert isinstance(await older.replied(), RelocationFailed)
    await newer.ready()
    newest.offer()
    assert isinstance(await newest.replied(), RelocationFailed)
    assert await stand.row(key) == taken.row
    final = await newer.give(peer.saved(key, "note", "relayed"))
    assert final.row.relocation is not None
    assert (final.row.relocation.high, final.row.relocation.low) == newer.relocation
    assert (await peer.answer(direct)).value == 2  # handed over from attempt to attempt, behind the relay
    assert await peer.ask(stand.b, key, "history") == ["relayed", "direct"]


async def test_a_fence_that_meets_a_commit_adopts_it(stand: Stand, peer: Peer) -> None:
    """B6.7: the target's answer never came, but its write did: the hold is followed, nothing is restored."""
    key = await ledger_at(peer, stand.a)
    target = HandTarget(peer, stand.a, key)
    moving = move_to(peer, stand.a, key, deadline_s=2.2)
    await target.prepared()
    followed = len(peer.records)
    peer.submit(stand.a, key, "note", "held", request=False)
    row = await target.commit()
    assert (await moving)["outcome"] == "moved"
    (record,) = await peer.until(lambda: peer.records[followed:])
    assert record[2] == 1  # one hop
    target.ready()
    peer.submit(stand.a, key, "note", "later", request=False)
    await peer.until(lambda: len(peer.records) == followed + 2)
    assert not target.arrived(RelocationData, RelocationCutover)
    assert stand.ran(key[1:].decode()) == []
    assert await stand.row(key) == row


@pytest.mark.parametrize("ended_by", ["conflict", "fence"])
async def test_work_of_an_attempt_that_ends_before_the_boundary_stays_its_sources(
    stand: Stand, peer: Peer, ended_by: str
) -> None:
    """B8.15: a target that saw neither relay nor cutover answers no saved request: the source runs it again."""
    key = await ledger_at(peer, stand.a)
    taken = await take(peer, stand.a, key)
    route = peer.new_route()
    saved = [peer.saved(key, "add", "saved", route=route)]
    move = await source(peer, stand.b, taken, saved)
    await move.ready()
    if ended_by == "conflict":
        move.prepare(manifest=move.manifest._replace(checksum=1))
        assert isinstance(await move.replied(2), RelocationFailed)
    else:
        await peer.write(fence_unit([taken.row], move.relocation))
        await stand.event("target_removed", move.name)
    await peer.ask(stand.b, await ledger_at(peer, stand.b, "other"), "history")  # the worker is past it
    assert route not in peer.answers
    found = await stand.row(key)
    assert found is not None
    again = await source(peer, stand.b, Taken(key, found, taken.envelope), saved)
    await again.give()
    assert (await peer.answer(route)).value == 1
    assert await peer.ask(stand.b, key, "history") == ["saved"]


async def test_fenced_attempt_ends_without_an_answer(stand: Stand, peer: Peer) -> None:
    """B6.7: a target that finds its own id fenced in the row gives up; what came to it directly is followed."""
    key = await ledger_at(peer, stand.a)
    taken = await take(peer, stand.a, key)
    move = await source(peer, stand.b, taken)
    await move.ready()
    direct = peer.submit(stand.b, key, "add", "direct")
    await peer.settle(stand.b)
    await peer.write(fence_unit([taken.row], move.relocation))
    since = len(peer.records)
    await stand.event("cutover_timeout", move.name)  # no relay came: nothing proves that the source went on
    (followed,) = await peer.until(lambda: peer.records[since:])
    assert followed[2] == 1  # one hop
    assert direct not in peer.answers
    assert len(move.replies()) == 1
