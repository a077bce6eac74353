"""CT-12 to CT-14: in-flight budgets, resent batches, and what is kept for how long."""

from __future__ import annotations

import asyncio
import time

import pytest
from sojourn.wire import RelocationCutover, RelocationData, decode_envelope

from tests.contract.app import Ledger
from tests.contract.hands import HandTarget, checksum_of, ledger_at, move_to, source, take, taken_by
from tests.contract.peer import Peer
from tests.contract.stand import Stand

pytestmark = pytest.mark.asyncio(loop_scope="module")
WINDOW_S = 2.0
"""The resend window: as long as the cutover wait."""
OPTIONS = {
    "relocation_in_flight_bytes": 64 * 1024,
    "relocation_chunk_bytes": 32 * 1024,
    "relocation_cutover_wait_ms": int(WINDOW_S * 1000),
}
LARGE = 24 * 2**20
"""More than the kernel holds of a connection that nobody reads."""


async def test_ct_12_a_full_budget_holds_back_the_next_unit(stand: Stand, peer: Peer) -> None:
    """R5.3, R5.4: it waits before it is sealed; what has begun is never failed for room."""
    large, small = await ledger_at(peer, stand.a, "large"), await ledger_at(peer, stand.a, "small")
    await peer.ask(stand.a, large, "grow", LARGE)
    begun = await stand.started(stand.a)
    link = peer.links.get(stand.run_of(stand.a))
    assert link is not None
    assert link._transport is not None
    link._transport.pause_reading()
    moves = {large: HandTarget(peer, stand.a, large), small: HandTarget(peer, stand.a, small)}
    moving = [move_to(peer, stand.a, large)]
    await full(stand)
    moving.append(move_to(peer, stand.a, small))
    waiting = stand.client.spot(Ledger, small[1:].decode())
    for number in range(20):
        assert await waiting.request(Ledger.add, str(number)) == number + 1
    assert await stand.started(stand.a) == begun + 1  # it waits before its seal, and works
    link._transport.resume_reading()
    for key, target in moves.items():
        await target.prepared()
        assert len(target.payload()) > (LARGE if key == large else 0)
        target.ready()
        await target.cutover()
        await target.commit()
    assert [result["outcome"] for result in await asyncio.gather(*moving)] == ["moved", "moved"]
    assert moves[large].prepare.payload_chunk_count > LARGE / 64 / 1024


async def test_ct_13_a_resent_batch_replaces_what_was_staged(stand: Stand, peer: Peer) -> None:
    """Both halves: a real target takes each record once and in order, a real source resends the whole batch."""
    key = await ledger_at(peer, stand.a)
    taken = await take(peer, stand.a, key)
    batch = [peer.saved(key, "note", f"record {number}") for number in range(4)]
    move = await source(peer, stand.b, taken, [peer.saved(key, "note", "saved")])
    await move.ready()
    move.relay(*batch[:2])
    await peer.settle(stand.b)
    await peer.cut(stand.b)
    await peer.link_to(stand.b)
    move.relayed.clear()
    move.relay(*batch)
    move.cutover()
    await move.committed()
    expected = ["saved", *(f"record {number}" for number in range(4))]
    assert await peer.ask(stand.b, key, "history") == expected

    target = HandTarget(peer, stand.b, key)
    moving = move_to(peer, stand.b, key)
    await target.prepared()
    first = target.connection
    for number in range(4):
        peer.submit(stand.b, key, "note", f"held {number}", request=False)
    await peer.settle(stand.b)
    target.ready()
    await peer.until(lambda: target.arrived(RelocationData))
    await peer.cut(stand.b)
    await peer.link_to(stand.b)
    cutover = await peer.until(
        lambda: [each for each in target.arrived(RelocationCutover) if each.connection != first]
    )
    again = target.relay(cutover[-1].connection)
    assert [each.command.boundary_record_count for each in cutover] == [4]
    assert cutover[0].command.boundary_checksum_crc32c == checksum_of(again)
    assert again[: len(target.relay(first))] == target.relay(first)
    await target.commit()
    assert (await moving)["outcome"] == "moved"


async def test_ct_13_a_batch_resent_too_late_adds_only_what_is_new(stand: Stand, peer: Peer) -> None:
    """B8.4: the boundary was settled with two records; of a longer batch the rest is appended, in order."""
    key = await ledger_at(peer, stand.a)
    taken = await take(peer, stand.a, key)
    batch = [peer.saved(key, "note", f"record {number}") for number in range(4)]
    move = await source(peer, stand.b, taken)
    row = await move.give(*batch[:2])
    await peer.cut(stand.b)
    await peer.link_to(stand.b)
    move.relayed.clear()
    move.relay(*batch)
    move.cutover()
    assert (await stand.event("late_cutover", move.name)).level == "WARNING"
    assert await peer.ask(stand.b, key, "history") == [f"record {number}" for number in range(4)]
    assert await stand.row(key) == row


async def test_a_cut_before_relay_ready_repeats_everything(stand: Stand, peer: Peer) -> None:
    """B8.6, both halves: the same Restore request and all chunks from the first, under the same identity."""
    key = await ledger_at(peer, stand.a)
    await peer.ask(stand.a, key, "grow", 128 * 1024)
    target = HandTarget(peer, stand.a, key)
    moving = move_to(peer, stand.a, key)
    first = await target.prepared()
    peer.submit(stand.a, key, "note", "held", request=False)
    await peer.settle(stand.a)
    before = target.connection
    await peer.cut(stand.a)
    await peer.link_to(stand.a)
    await peer.until(lambda: target.connection != before)
    assert await target.prepared() == first
    payload = target.payload()
    target.ready()
    await target.cutover()
    assert len(target.relay()) == 1
    await target.commit()
    assert (await moving)["outcome"] == "moved"

    made = stand.made(key[1:].decode())
    move = await source(peer, stand.b, await taken_by(target), chunk_octets=32 * 1024)
    assert len(move.payload) == len(payload)
    move.prepare()
    move.chunk(0)
    move.chunk(1)
    await peer.settle(stand.b)
    await peer.cut(stand.b)
    await peer.link_to(stand.b)
    await move.give(*target.relay())
    assert await peer.ask(stand.b, key, "history") == ["held"]
    assert await peer.ask(stand.b, key, "whole", 128 * 1024)
    assert stand.made(key[1:].decode()) == made + 1


async def test_ct_14_after_the_window_nothing_is_kept_and_nothing_resent(stand: Stand, peer: Peer) -> None:
    key = await ledger_at(peer, stand.a)
    await peer.ask(stand.a, key, "grow", 256 * 1024)
    async with asyncio.timeout(10):
        while await kept(stand):
            continue  # windows of earlier moves
    target = HandTarget(peer, stand.a, key)
    moving = move_to(peer, stand.a, key)
    await target.prepared()
    octets = len(target.payload())
    peer.submit(stand.a, key, "note", "held", request=False)
    await peer.settle(stand.a)
    assert await kept(stand) == octets
    target.ready()
    await target.cutover()
    ended = time.monotonic()
    await target.commit()
    assert (await moving)["outcome"] == "moved"
    assert await kept(stand) == octets  # the move is over for its caller, the window is not
    while await kept(stand):
        assert time.monotonic() < ended + 10 * WINDOW_S
    assert time.monotonic() > ended + 0.9 * WINDOW_S
    before = len(target.arrived())
    await peer.cut(stand.a)
    await peer.link_to(stand.a)
    await peer.settle(stand.a)
    await peer.settle(stand.a)
    assert len(target.arrived()) == before
    assert decode_envelope(target.payload()).saved_work == ()


async def full(stand: Stand) -> None:
    """Return when the first node's budget is used up and stays so: nobody takes over what it sends."""
    looks = 0
    async with asyncio.timeout(20):
        while looks < 50:
            in_flight = (await stand.a.status())["payload_octets_in_flight"]
            looks = looks + 1 if in_flight >= OPTIONS["relocation_in_flight_bytes"] else 0


async def kept(stand: Stand) -> int:
    """Octets of payloads that the first node keeps as a source."""
    return int((await stand.a.status())["payload_octets"])
