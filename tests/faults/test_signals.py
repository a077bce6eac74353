"""SIGSTOP, SIGCONT and SIGKILL of every process of a move, at every phase of it: no hang, no orphan, no message
without an end, never two owners, and the object lives on, or its id is free again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.faults.network import CHUNK, CUTOVER, READY
from tests.faults.stand import FaultStand, Moving

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.allow_leaks("connections and processes of the module's cluster come and go"),
]
OPTIONS = {"relocation_commit_reserve_ms": 500, "store_timeout_ms": 500}
SHORT_S = 1.0
ENDS = {2, 3, "Unavailable", "DataLost"}
"""What a request made during the move may end in: never in its own deadline, and never in nothing."""

BEFORE = ("chunk", "ready")
_COMMANDS = {"chunk": CHUNK, "ready": READY, "cutover": CUTOVER}


@asynccontextmanager
async def halted(it: FaultStand, phase: str) -> AsyncIterator[tuple[Moving, Any]]:
    """A move that has come to this phase and no further, and what lets it go on."""
    if phase in _COMMANDS:
        moving, trap = await it.held_up(_COMMANDS[phase], deadline_s=SHORT_S)
        yield moving, trap.release
        return
    store = it.stores[1]
    moving, trap = await it.held_up(CUTOVER, deadline_s=SHORT_S)
    if phase == "owner call":
        store.leave()
        trap.release()
        await it.sent()
    else:
        store.keep_answer()
        trap.release()
        await it.owned(moving.item, it.b.rid)
    yield moving, store.come_back


async def settled(it: FaultStand, moving: Moving) -> str:
    """Wait for everybody who waits; the object then lives, or its id is free. Returns the outcome."""
    outcome = await moving.ended()
    answers = await moving.answers()
    assert set(answers) <= ENDS, answers
    await it.mend()
    await it.lives_or_is_free(moving.item, [answer for answer in answers if isinstance(answer, int)])
    ran = it.ran(moving.item)
    assert len(ran) == len(set(ran)), f"something ran twice: {ran}"
    return outcome


@pytest.mark.parametrize("phase", ["chunk", "ready", "owner answer"])
async def test_the_source_s_worker_is_killed(it: FaultStand, phase: str) -> None:
    """It is captured: the move goes on without its worker (B6.6)."""
    async with halted(it, phase) as (moving, go_on):
        await it.kill_worker(it.a)
        go_on()
        outcome = await settled(it, moving)
        if phase == "owner answer":
            assert outcome == "moved"


@pytest.mark.parametrize("phase", ["chunk", "ready", "cutover", "owner call"])
async def test_the_target_s_worker_is_killed(it: FaultStand, phase: str) -> None:
    """Before relay-ready the move fails; after it the payload goes into the successor, and nothing is lost."""
    async with halted(it, phase) as (moving, go_on):
        await it.kill_worker(it.b)
        go_on()
        outcome = await settled(it, moving)
        if phase in ("ready", "cutover"):
            assert outcome == "moved"
            assert await moving.answers() == [2, 3]


@pytest.mark.parametrize("phase", ["ready", "cutover"])
async def test_the_source_is_killed(it: FaultStand, phase: str) -> None:
    """What the target had been given it opens; what died with the source ends typed."""
    async with halted(it, phase) as (moving, go_on):
        await it.a.kill()
        go_on()
        assert await settled(it, moving) == "Unavailable"


@pytest.mark.parametrize("phase", ["chunk", "ready", "owner call"])
async def test_the_target_is_killed(it: FaultStand, phase: str) -> None:
    """Before the boundary the source fences and goes on; past it the object is lost and its id made anew."""
    async with halted(it, phase) as (moving, go_on):
        await it.b.kill()
        if phase == "ready":
            it.network.cut(it.a.rid, it.b.rid)  # what the dead node had said is not heard
        else:
            go_on()
        outcome = await settled(it, moving)
        assert outcome.split()[0] == "failed"
        if phase in BEFORE:
            assert await moving.answers() == [2, 3]


@pytest.mark.parametrize("victim", ["source", "target"])
@pytest.mark.parametrize("phase", ["ready", "cutover"])
async def test_a_supervisor_is_stopped_for_a_moment(it: FaultStand, phase: str, victim: str) -> None:
    """Longer than the cutover wait, shorter than its lease: nothing is lost, whoever went on meanwhile."""
    async with halted(it, phase) as (moving, go_on):
        node = it.a if victim == "source" else it.b
        await it.paused(node.pid, go_on)
        await settled(it, moving)


async def test_a_worker_is_stopped_for_a_moment(it: FaultStand) -> None:
    async with halted(it, "chunk") as (moving, go_on):
        pid = await it.worker_of(it.b)
        os.kill(pid, signal.SIGSTOP)
        go_on()
        await it.sent()
        os.kill(pid, signal.SIGCONT)
        assert await settled(it, moving) in ("moved", "failed DeadlineExceeded")


@pytest.mark.parametrize("phase", ["chunk", "cutover"])
async def test_nobody_has_a_store_for_longer_than_the_deadline(it: FaultStand, phase: str) -> None:
    """Whoever asked is told in time; the object is settled when the store is back."""
    async with halted(it, phase) as (moving, go_on):
        for store in it.stores[:2]:
            store.leave()
        if phase != "chunk":
            go_on()
        async with asyncio.timeout(6.0):
            outcome = await moving.ended()
        assert outcome == "in doubt StoreUnavailable"
        await it.mend()
        await settled(it, moving)
