"""A payload goes into a worker as the worker takes it, in order, and stops when it is told to."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any

from sojourn.workers import letting_go
from sojourn.workers.bulk_out import STEP_OCTETS, BulkOut
from sojourn.workers.letting_go import let_go


class Pool:
    """A worker whose socket takes so many frames at a time."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.alive = True
        self.sent: list[tuple[int, int, bool, bytes]] = []
        self.taken = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    def send_bulk(self, worker: int, handoff: int, last: bool, chunk: bytes | memoryview) -> bool:
        if self.alive:
            self.sent.append((worker, handoff, last, bytes(chunk)))
            self.room -= 1
        return self.alive

    def bulk_room(self, worker: int) -> bool:
        return not self.alive or self.room > 0

    async def wait_bulk_room(self, worker: int) -> None:
        await asyncio.sleep(0)
        while not self.bulk_room(worker):
            self.taken.clear()
            await self.taken.wait()

    async def take(self, frames: int) -> None:
        self.room += frames
        self.taken.set()
        for _ in range(4):
            await asyncio.sleep(0)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def ended(self) -> None:
        async with asyncio.timeout(5):
            await asyncio.gather(*self.tasks)


async def test_a_small_payload_goes_at_once() -> None:
    pool = Pool(10)
    out = BulkOut(pool, 1, 7, pool.start)
    out.put(b"one")
    out.end()
    assert pool.sent == [(1, 7, False, b"one"), (1, 7, True, b"")]
    assert not pool.tasks


async def test_what_the_worker_does_not_take_waits_in_order() -> None:
    pool = Pool(1)
    out = BulkOut(pool, 0, 7, pool.start)
    for chunk in (b"a", b"b", b"c"):
        out.put(chunk)
    out.end()
    assert [chunk for *_, chunk in pool.sent] == [b"a"]
    await pool.take(2)
    assert [chunk for *_, chunk in pool.sent] == [b"a", b"b", b"c"]
    await pool.take(1)
    assert pool.sent[-1] == (0, 7, True, b"")
    await pool.ended()
    assert len(pool.tasks) == 1
    out.put(b"again")  # a second stretch needs a task of its own
    await pool.take(1)
    await pool.ended()
    assert pool.sent[-1] == (0, 7, False, b"again")


async def test_one_turn_of_the_loop_sends_one_step_however_much_waits_and_room_there_is() -> None:
    pool = Pool(1_000)
    out = BulkOut(pool, 0, 7, pool.start)
    chunk = bytes(STEP_OCTETS // 2)
    for _ in range(20):  # what had come before the worker was chosen
        out.put(chunk)
    out.put(bytes(3 * STEP_OCTETS))
    out.end()
    seen = [len(pool.sent)]
    while len(pool.sent) < 22:
        await asyncio.sleep(0)
        seen.append(len(pool.sent))
        assert len(seen) < 100
    await pool.ended()
    assert seen[0] == 2
    assert max(after - before for before, after in itertools.pairwise(seen)) == 2
    assert [last for _, _, last, _ in pool.sent] == [False] * 21 + [True]


async def test_nothing_is_sent_after_the_stop_or_to_a_worker_that_is_gone() -> None:
    pool = Pool(1)
    out = BulkOut(pool, 0, 7, pool.start)
    for chunk in (b"a", b"b"):
        out.put(chunk)
    out.stop()
    await pool.take(5)
    await pool.ended()
    assert len(pool.sent) == 1
    pool.room = 0
    out.put(b"c")
    pool.alive = False
    await pool.take(1)
    await pool.ended()
    assert len(pool.sent) == 1


class Chunk(bytes):
    """Tells when it is gone."""

    gone = 0

    def __del__(self) -> None:
        Chunk.gone += 1


async def test_a_payload_leaves_memory_over_several_turns() -> None:
    Chunk.gone = 0
    chunks = [Chunk(letting_go.STEP_OCTETS) for _ in range(4)]
    loop = asyncio.get_running_loop()
    let_go(chunks, loop)
    chunks.clear()
    seen = []
    for _ in range(4):
        seen.append(Chunk.gone)
        await asyncio.sleep(0)
    assert seen == [1, 2, 3, 4]
