"""Cold-activation records: a first send outlives the worker and the node that were to handle it (B7.1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sojourn.control import Created, ErrorBody
from sojourn.errors import InternalFailure, ProtocolError
from sojourn.frames import FLAG_FIRST, FLAG_INTENT, KIND_RECORD, parse_record_header
from sojourn.ids import spot_key
from sojourn.location import StoreUnavailable
from sojourn.ownership import move_unit
from sojourn.store.memory import MemoryRelocationStore, MemoryRows
from sojourn.wire.store_envelope import StoredChunk, encode_stored_chunk
from sojourn.workers import cold as module
from sojourn.workers.cold import blob_of_records, cold_reference, records_of_blob

from tests.unit.workers.fake_node import HERE, THERE, FakeNode

DEVICE = spot_key("d")
FAILED = ErrorBody.of(InternalFailure("Device.__init__ raised ValueError: not today"))


class Two:
    """Two nodes over the same rows."""

    def __init__(self) -> None:
        self.rows = MemoryRows()
        self.a = FakeNode(self.rows, HERE)
        self.b = FakeNode(self.rows, THERE)
        self.blobs = MemoryRelocationStore(self.rows)
        for node in (self.a, self.b):
            node.worker_ready(0)

    def die(self) -> None:
        """The first node has ended, and its lease is over."""
        self.b.alive.discard(HERE)

    def stored(self) -> list[list[int]]:
        """Operation numbers of every record that is stored."""
        return [operations(records_of_blob(row.value)) for row in self.rows.blobs.values()]


def operations(bodies: list[bytes]) -> list[int]:
    return [parse_record_header(body).operation_low for body in bodies]


def tell(node: FakeNode, number: int) -> None:
    """A send for the Device arrives."""
    node.first_record(DEVICE, number, flags=FLAG_INTENT)


async def made(node: FakeNode) -> None:
    await node.settle()
    node.pool.answer(Created(1))
    await node.settle()


def handled(node: FakeNode, number: int) -> None:
    """A worker says that the handler of a first message has ended."""
    node.cold.handled(node.router.objects.get(DEVICE), (1, number))


def marked(node: FakeNode) -> list[int]:
    """Records that went to the worker as first ones."""
    headers = [parse_record_header(body) for _, body in node.to_worker if body[0] == KIND_RECORD]
    return [header.operation_low for header in headers if header.flags & FLAG_FIRST]


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    it = Two()
    yield it
    await it.a.close()
    await it.b.close()


async def test_the_first_send_is_stored_with_the_row_until_its_handler_has_ended(two: Two) -> None:
    tell(two.a, 1)
    tell(two.a, 2)
    await made(two.a)
    assert two.stored() == [[1]]
    assert (two.a.records, marked(two.a)) == ([1, 2], [1])
    handled(two.a, 2)
    await two.a.settle()
    assert two.stored() == [[1]]
    handled(two.a, 1)
    handled(two.a, 1)
    await two.a.settle()
    assert two.stored() == []


async def test_a_request_is_not_stored(two: Two) -> None:
    two.a.first_record(DEVICE, 1)
    tell(two.a, 2)
    await made(two.a)
    assert two.stored() == []
    assert marked(two.a) == []


async def test_the_next_node_runs_it_first_and_under_its_own_operation(two: Two) -> None:
    tell(two.a, 1)
    await made(two.a)
    two.die()
    two.b.first_record(DEVICE, 2)
    await made(two.b)
    assert (two.b.records, marked(two.b)) == ([1, 2], [1])
    assert two.stored() == [[1]]
    assert two.b.counters["first_messages_recovered"] == 1
    handled(two.b, 1)
    await two.b.settle()
    assert two.stored() == []


async def test_it_is_carried_on_from_one_dead_node_to_the_next(two: Two) -> None:
    tell(two.a, 1)
    await made(two.a)
    two.die()
    tell(two.b, 2)
    await made(two.b)
    assert two.stored() == [[1, 2]]
    two.a.alive = {HERE}
    two.a.router.objects.clear()
    tell(two.a, 3)
    await made(two.a)
    assert two.a.records[1:] == [1, 2, 3]
    for number in (1, 2, 3):
        assert two.stored() == [[1, 2, 3]]
        handled(two.a, number)
        await two.a.settle()
    assert two.stored() == []


async def test_what_was_handled_is_not_run_again(two: Two) -> None:
    tell(two.a, 1)
    await made(two.a)
    handled(two.a, 1)
    await two.a.settle()
    two.die()
    tell(two.b, 2)
    await made(two.b)
    assert two.b.records == [2]


async def test_the_loser_of_a_cold_activation_leaves_nothing(two: Two) -> None:
    tell(two.a, 1)
    await made(two.a)
    tell(two.b, 2)
    await two.b.settle()
    assert two.b.records == []
    assert two.stored() == [[1]]


async def test_one_that_moved_took_it_along(two: Two) -> None:
    tell(two.a, 1)
    await made(two.a)
    found = await two.a.directory.read(DEVICE)
    assert found is not None
    await two.a.directory.write(move_unit([found], two.a.owner, (1, 2), None))
    two.die()
    tell(two.b, 2)
    await made(two.b)
    assert two.b.records == [2]
    held = two.a.router.objects[DEVICE]
    two.a.cold.forget(held)
    await two.a.settle()
    assert two.stored() == [[2]]


async def test_a_worker_that_dies_while_it_makes_the_spot_leaves_the_message(two: Two) -> None:
    two.a.worker_ready(1)
    tell(two.a, 1)
    await two.a.settle()
    two.a.worker_lost(two.a.router.objects[DEVICE].worker)
    await two.a.settle()
    assert two.stored() == [[1]]
    two.a.to_worker.clear()
    tell(two.a, 2)
    await made(two.a)
    assert two.a.records == [1, 2]


async def test_a_spot_that_cannot_be_made_ends_its_first_message(two: Two) -> None:
    tell(two.a, 1)
    await two.a.settle()
    two.a.pool.answer(Created(1, FAILED))
    await two.a.settle()
    assert two.stored() == []
    assert await two.a.directory.read(DEVICE) is None


async def test_without_a_worker_nothing_stays(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    async def none() -> int:
        raise InternalFailure("no worker")

    monkeypatch.setattr(two.a.creation, "worker_for_new", none)
    tell(two.a, 1)
    await two.a.settle()
    assert [number for number, _ in two.a.failed] == [1]
    assert two.stored() == []


async def test_a_deletion_is_tried_until_the_store_helps(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(two.a, 1)
    await made(two.a)
    write = two.a.directory.write

    async def away(*arguments: Any) -> object:
        raise StoreUnavailable("away", applied="no")

    monkeypatch.setattr(two.a.directory, "write", away)
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    handled(two.a, 1)
    await two.a.settle()
    assert two.stored() == [[1]]
    monkeypatch.setattr(two.a.directory, "write", write)
    async with asyncio.timeout(5):
        while two.stored():
            await two.a.settle()
    assert "first_messages_not_deleted" in two.a.logged


@pytest.mark.parametrize("helps", [True, False])
async def test_a_node_that_stops_deletes_what_was_handled(
    two: Two, monkeypatch: pytest.MonkeyPatch, helps: bool
) -> None:
    tell(two.a, 1)
    await made(two.a)
    monkeypatch.setattr(two.a, "start", lambda work: work.close())
    if not helps:

        async def away(*arguments: Any) -> object:
            raise StoreUnavailable("away", applied="no")

        monkeypatch.setattr(two.a.directory, "write", away)
    handled(two.a, 1)
    await two.a.cold.close()
    assert two.stored() == ([] if helps else [[1]])
    assert ("first_messages_not_deleted" in two.a.logged) is not helps


async def test_deletions_that_wait_are_bounded(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELETIONS_MAX", 0)
    tell(two.a, 1)
    await made(two.a)
    handled(two.a, 1)
    await two.a.settle()
    assert two.a.counters["first_messages_not_deleted"] == 1


async def test_too_long_a_chain_is_reported(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECORDS_MAX", 2)
    tell(two.a, 1)
    await made(two.a)
    two.die()
    tell(two.b, 2)
    await made(two.b)
    two.a.alive = {HERE}
    two.a.router.objects.clear()
    tell(two.a, 3)
    await made(two.a)
    assert two.stored() == [[2, 3]]
    assert two.a.counters["dead_letters"] == 1


async def test_a_damaged_record_is_reported_and_the_spot_made(two: Two) -> None:
    tell(two.a, 1)
    await made(two.a)
    for row in two.rows.blobs.values():
        row.value = row.value[:-1] + b"?"
    two.die()
    tell(two.b, 2)
    await made(two.b)
    assert two.b.records == [2]
    assert two.b.counters["dead_letters"] == 1


async def test_nothing_is_made_while_the_record_cannot_be_read(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(two.a, 1)
    await made(two.a)
    two.die()

    async def away(reference: str) -> bytes | None:
        raise StoreUnavailable("away", applied="no")

    monkeypatch.setattr(two.b.blobs, "read", away)
    tell(two.b, 2)
    await two.b.settle()
    assert [error.kind for _, error in two.b.failed] == ["Unavailable"]
    assert two.stored() == [[1]]


@pytest.mark.parametrize("data", [b"\x00", b"\x00\x00\x00\x05\x02", b"\x00\x00\x00\x01\x03"])
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        records_of_blob(encode_stored_chunk(StoredChunk(0, data)))
    assert records_of_blob(blob_of_records([b"\x02a", b"\x02"])) == [b"\x02a", b"\x02"]
    assert cold_reference(DEVICE, 255) == "cold:00000000000000ff:sd"
