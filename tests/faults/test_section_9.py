"""Section 9 of the contract, row by row, on real processes: who owns the object then, and that it lives on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from sojourn.errors import SojournError
from sojourn.location import Applied, Found, IfVersion, Put
from sojourn.rows import authority_row_key
from sojourn.spots.references import ActorRef

from tests.contract.app import Member
from tests.faults.network import CHUNK, CUTOVER, READY, RELAY, contradicted, corrupted
from tests.faults.stand import FaultStand, outcome
from tests.runtime.cluster import gate

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.allow_leaks("connections and processes of the module's cluster come and go"),
]
ALL = ["before", "first", "second"]
SHORT_S = 1.2
"""Deadline of a move that is to end unknown: the target has a second more."""


async def test_target_choice_or_preparation_fails(it: FaultStand) -> None:
    """R4.1.1: source keeps it, dispatch is never blocked, the operation fails."""
    item = await it.item()
    it.network.part(it.a.rid, it.b.rid)
    moving = it.move(item)
    assert [await each for each in it.ask(item, "first", "second")] == [2, 3]
    result = await moving
    assert (result.outcome, result.node) == ("failed", it.a.rid)
    assert "TargetUnavailable" in result.reason
    assert await it.owner(item) == it.a.rid
    await it.mend()
    await it.moves_again(item, ALL)


async def test_an_explicit_failure_before_relay_ready(it: FaultStand) -> None:
    """Its state cannot be restored in another process: source queue restored, and the move fails."""
    moving, trap = await it.held_up(CHUNK, rooted=True)
    trap.release()
    assert await moving.ended() == "failed StateIncompatible"
    assert await moving.answers() == [2, 3]
    assert await it.owner(moving.item) == it.a.rid
    await moving.item.request(Member.root, False)
    await it.moves_again(moving.item, ALL)


async def test_the_target_s_worker_dies_with_a_part_of_the_payload(it: FaultStand) -> None:
    """Explicit failure where the part was in it; where it was not, its successor gets the whole."""
    moving, trap = await it.held_up(CHUNK, skip=2, size=600_000)
    await it.kill_worker(it.b)
    trap.release()
    outcome = await moving.ended()
    assert outcome in ("failed RelocationFailed", "moved")
    assert await moving.answers() == [2, 3]
    assert await it.owner(moving.item) == (it.b.rid if outcome == "moved" else it.a.rid)
    await it.moves_again(moving.item, ALL)


@pytest.mark.parametrize(
    "change",
    [corrupted, contradicted],
    ids=["the checksum differs", "the same identity with another checksum"],
)
async def test_the_payload_is_not_what_was_announced(
    it: FaultStand, change: Callable[[bytes], bytes]
) -> None:
    """An explicit failure, or conflict: the attempt ends, the source restores, nothing is tried again."""
    it.network.way(it.a.rid, it.b.rid).change = change
    moving, trap = await it.held_up(CHUNK)
    trap.release()
    assert await moving.ended() == "failed RelocationFailed"
    assert await moving.answers() == [2, 3]
    assert await it.owner(moving.item) == it.a.rid
    await it.moves_again(moving.item, ALL)


async def test_the_cas_condition_failed(it: FaultStand) -> None:
    """Somebody wrote the row after relay-ready: the target is dropped, the source not reopened, the id lost."""
    moving, trap = await it.held_up(CUTOVER, deadline_s=SHORT_S)
    await _touch(it, moving.item)
    trap.release()
    assert set(await moving.answers()) <= {"Unavailable", "DataLost"}  # of the target, or of the source
    assert await moving.ended() == "failed RelocationFailed"
    assert it.ran(moving.item) == ["before"]
    assert await it.owner(moving.item) == f"{it.a.rid} lost"
    await it.made_anew(moving.item)


async def _touch(it: FaultStand, item: ActorRef[Member]) -> None:
    key = authority_row_key(item.key)
    found = await it.stand.store.read(key)
    assert isinstance(found, Found)
    written = await it.stand.store.write([IfVersion(key, found.version)], [Put(key, found.value)])
    assert isinstance(written, Applied)


@pytest.mark.parametrize("fault", ["refuse", "lose"])
async def test_no_cas_answer(it: FaultStand, fault: str) -> None:
    """Found by reading again: the target owns it."""
    moving, trap = await it.held_up(CUTOVER)
    setattr(it.stores[1], fault, 1)
    trap.release()
    assert await moving.ended() == "moved"
    assert await moving.answers() == [2, 3]
    assert await it.owner(moving.item) == it.b.rid
    await it.moves_again(moving.item, ALL)


async def test_store_retry_exhausted(it: FaultStand) -> None:
    """The last confirmed owner keeps it: the target is dropped, and the source marks the object lost."""
    moving, trap = await it.held_up(CUTOVER, deadline_s=SHORT_S)
    it.stores[1].leave()
    trap.release()
    await it.logged("location_update_failed", moving.item)
    it.stores[1].come_back()
    assert set(await moving.answers()) <= {"Unavailable", "DataLost"}  # of the target, or of the source
    assert await moving.ended() == "failed RelocationFailed"
    assert it.ran(moving.item) == ["before"]
    assert await it.owner(moving.item) == f"{it.a.rid} lost"
    await it.mend()
    await it.made_anew(moving.item)


async def test_the_connection_broke_and_the_cutover_was_lost(it: FaultStand) -> None:
    """Batch and cutover go again on a new connection, and replace what had come of them."""
    moving, trap = await it.held_up(CUTOVER)
    it.network.cut(it.a.rid, it.b.rid)
    assert await moving.ended() == "moved"
    assert await moving.answers() == [2, 3]
    assert it.logs("cutover_timeout", moving.item) == 0
    assert await it.owner(moving.item) == it.b.rid
    trap.release()
    await it.moves_again(moving.item, ALL)


@pytest.mark.parametrize("command", [RELAY, CUTOVER], ids=["relay", "cutover"])
async def test_the_cutover_wait_is_over(it: FaultStand, command: int) -> None:
    """Warning, CAS and open; what comes late is handled all the same, and the late cutover ignored."""
    moving, trap = await it.held_up(command)
    await it.owned(moving.item, it.b.rid)
    assert it.logs("cutover_timeout", moving.item) == 1
    assert await moving.ended() == "moved"
    trap.release()
    assert await moving.answers() == [2, 3]
    await it.logged("late_cutover", moving.item)
    await it.moves_again(moving.item, ALL)


async def test_the_target_ends_after_the_cas(it: FaultStand) -> None:
    """R1.4: its authority stays, the object is unavailable; nothing is rolled back or started elsewhere."""
    moving, trap = await it.held_up(CUTOVER)
    it.stores[1].keep_answer()
    trap.release()
    await it.owned(moving.item, it.b.rid)
    await it.b.kill()
    assert await moving.ended() == "moved"
    it.stores[1].come_back()
    await it.restart(it.b)  # the new run tells everybody that the former ended
    assert await moving.answers() == ["Unavailable", "Unavailable"]
    assert it.ran(moving.item) == ["before"]
    assert await it.owner(moving.item) == it.b.rid
    await it.lease_over(moving.item)
    await it.made_anew(moving.item)


async def test_the_caller_cancels(it: FaultStand) -> None:
    """The shared move goes on; only that waiter ends."""
    item = await it.item()
    trap = it.network.way(it.b.rid, it.a.rid).trap(READY)
    callers = [it.move(item), it.move(item)]
    await trap.sprung()
    await it.sent()
    requests = it.ask(item, "first", "second")
    callers[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await callers[0]
    trap.release()
    assert (await callers[1]).outcome == "moved"
    assert [await each for each in requests] == [2, 3]
    await it.moves_again(item, ALL)


async def test_a_shutdown_after_the_seal(it: FaultStand) -> None:
    """The seal was first: the stop waits for the move, and nothing of it is lost."""
    moving, trap = await it.held_up(READY)
    stopping = asyncio.ensure_future(it.a.stop(5.0))
    await it.draining(it.a)
    trap.release()
    assert await moving.ended() == "moved"
    assert await moving.answers() == [2, 3]
    assert await stopping
    assert await it.owner(moving.item) == it.b.rid
    await it.mend()
    await it.moves_again(moving.item, ALL)


async def test_a_shutdown_that_cannot_wait_for_the_move(it: FaultStand) -> None:
    """The target, which had said that it is ready, takes the object over; what the source held ends typed."""
    moving, _ = await it.held_up(READY)
    await it.a.stop(0.8)
    assert await moving.ended() in ("in doubt ShutdownRequested", "Unavailable")
    assert set(await moving.answers()) <= {"Unavailable", "ShuttingDown"}
    await it.owned(moving.item, it.b.rid)
    await it.mend()
    await it.moves_again(moving.item, ["before"])


async def test_a_shutdown_before_the_seal(it: FaultStand) -> None:
    """No new move begins on a node that stops."""
    async with gate() as door:
        item = await it.item()
        running = asyncio.ensure_future(outcome(item.request(Member.hold, door.port)))
        await door.arrived()
        stopping = asyncio.ensure_future(it.a.stop(5.0))
        await it.draining(it.a)
        refused = await it.move(item)
        assert isinstance(refused, SojournError) or refused.outcome == "failed", refused
        door.open()
        assert await running == 2
        assert await stopping
    assert await it.owner(item) == it.a.rid
    await it.mend()
    await it.lease_over(item)
    await it.made_anew(item)


async def test_the_cutover_submit_failed_and_the_target_committed(it: FaultStand) -> None:
    """Reconciliation: the row names the target, its route is adopted, what is held is drained to it."""
    moving, trap = await it.held_up(CUTOVER)
    it.network.part(it.a.rid, it.b.rid)
    await it.owned(moving.item, it.b.rid)
    assert await moving.ended() == "moved"
    moving.requests += it.ask(moving.item, "third")
    await it.sent()
    await it.mend()
    assert await moving.answers() == [2, 3, 4]
    trap.release()
    await it.moves_again(moving.item, [*ALL, "third"])


async def test_the_cutover_submit_failed_and_the_target_did_not_commit(it: FaultStand) -> None:
    """Reconciliation: the row still names the source, which never reopens; the object is lost and made anew."""
    moving, trap = await it.held_up(CUTOVER, deadline_s=SHORT_S)
    await it.b.kill()
    assert await moving.ended() == "failed RelocationFailed"
    assert await moving.answers() == ["DataLost", "DataLost"]
    assert it.ran(moving.item) == ["before"]
    assert await it.owner(moving.item) == f"{it.a.rid} lost"
    trap.release()
    await it.mend()
    await it.made_anew(moving.item)
