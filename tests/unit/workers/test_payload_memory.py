"""Payloads lie in blocks that one uses after the other, never two at a time, and that go back in the end."""

from __future__ import annotations

import asyncio
import gc
import mmap
import weakref
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from sojourn.workers import payload_memory
from sojourn.workers.debt import Retention
from sojourn.workers.payload_memory import BLOCK_OCTETS, SPARE_S, Blocks, Kept, PayloadMemory

from tests.unit.workers.fake_node import VirtualLoop

CHUNK = 256 * 1024
PER_BLOCK = BLOCK_OCTETS // CHUNK
MADE: list[weakref.ref[mmap.mmap]] = []


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every block made is in `MADE`."""
    MADE.clear()

    def make(*arguments: int, **options: int) -> mmap.mmap:
        block = mmap.mmap(*arguments, **options)
        MADE.append(weakref.ref(block))
        return block

    names = SimpleNamespace(mmap=make, MAP_PRIVATE=mmap.MAP_PRIVATE, MAP_ANONYMOUS=mmap.MAP_ANONYMOUS)
    monkeypatch.setattr(payload_memory, "mmap", names)
    yield
    MADE.clear()


def alive() -> int:
    gc.collect()
    return sum(block() is not None for block in MADE)


def filled(memory: PayloadMemory, mark: int, chunks: int) -> list[Kept]:
    source = bytearray(bytes([mark]) * CHUNK)
    kept = [memory.keep(memoryview(source)) for _ in range(chunks)]
    source[:] = bytes(CHUNK)  # the receive buffer is used again
    return kept


def test_pieces_are_copies_that_nobody_changes() -> None:
    memory = PayloadMemory(Blocks())
    kept = filled(memory, 7, 4 + PER_BLOCK + 1)
    assert all(piece == bytes([7]) * CHUNK for piece in kept)
    assert [type(piece) for piece in kept] == [bytes] * 4 + [memoryview] * (PER_BLOCK + 1)
    assert all(piece.readonly for piece in kept if isinstance(piece, memoryview))
    assert len(MADE) == 2
    assert memory.keep(bytes(BLOCK_OCTETS + 1)) == bytes(BLOCK_OCTETS + 1)
    assert len(MADE) == 2


def test_the_next_payload_uses_the_blocks_again_and_time_gives_them_back() -> None:
    loop, blocks = VirtualLoop(), Blocks()
    for mark in (1, 2, 3):
        memory = PayloadMemory(blocks)
        kept = filled(memory, mark, 4 + 2 * PER_BLOCK)
        assert kept[-1] == bytes([mark]) * CHUNK
        assert blocks.octets == 0
        memory.release(kept, loop)  # type: ignore[arg-type]
        assert not kept
        del memory
    assert len(MADE) == alive() == 2
    assert blocks.octets == 2 * BLOCK_OCTETS
    loop.advance(SPARE_S)
    loop.advance(SPARE_S)
    assert alive() == 1  # one in each turn of the loop
    loop.advance(0)
    assert blocks.octets == alive() == loop.armed == 0


def test_blocks_that_are_needed_now_and_then_stay_and_the_others_go() -> None:
    loop, blocks = VirtualLoop(), Blocks()
    memory = PayloadMemory(blocks)
    memory.release(filled(memory, 1, 4 + 3 * PER_BLOCK), loop)  # type: ignore[arg-type]
    for _ in range(3):
        loop.advance(SPARE_S / 2)
        small = PayloadMemory(blocks)
        small.release(filled(small, 2, 4 + PER_BLOCK), loop)  # type: ignore[arg-type]
        loop.advance(SPARE_S / 2)
    assert blocks.octets == BLOCK_OCTETS
    assert len(MADE) == 3


def test_a_block_that_somebody_still_reads_is_left_to_him() -> None:
    loop, blocks = VirtualLoop(), Blocks()
    memory = PayloadMemory(blocks)
    kept = filled(memory, 1, 4 + PER_BLOCK)
    unsent = memoryview(kept[-1])[CHUNK // 2 :]  # a transport has it
    memory.release(kept, loop)  # type: ignore[arg-type]
    again = PayloadMemory(blocks)
    filled(again, 2, 4 + PER_BLOCK)
    assert unsent == bytes([1]) * (CHUNK // 2)
    assert len(MADE) == 2


async def test_the_payloads_of_a_node_share_the_blocks() -> None:
    retention = Retention(1 << 30)
    first, second = PayloadMemory(retention.blocks), PayloadMemory(retention.blocks)
    first.release(filled(first, 1, 4 + PER_BLOCK), asyncio.get_running_loop())
    filled(second, 2, 4 + PER_BLOCK)
    assert len(MADE) == 1
