"""Messages kept by name: each has one end, and what keeps them counts (B3.5, B5.3, B8.15)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

import pytest
from sojourn.control import SavedRequest, decode_error
from sojourn.errors import DataLost, Unavailable
from sojourn.frames import FLAG_MARKER, FLAG_REQUEST, parse_reply_header
from sojourn.handoff.machine import Log
from sojourn.ids import actor_key
from sojourn.wire import MaintenanceRelocationContext
from sojourn.workers.bounded import AT_ONCE, in_turn
from sojourn.workers.debt import Retention
from sojourn.workers.named_work import NAME_OCTETS, NamedWork
from sojourn.workers.reply_frames import blob_of_reply, reply_reference

from tests.unit.workers.fake_node import HERE, FakeNode, reply_to

KEY = actor_key("p1")
WIRE: Any = object()
LOST = DataLost("it is gone", applied="no")
DOUBT = Unavailable("nobody knows", applied="unknown")


def saved(number: int) -> SavedRequest:
    return SavedRequest(KEY, HERE.rid, HERE.generation, number, 1, number, number)


class Replies(list[Any]):
    """What the node answered itself, and what it brought out of the store to repeat."""

    def __init__(self) -> None:
        super().__init__()
        self.brought: list[bytes] = []

    def bring(self, body: bytes, context: MaintenanceRelocationContext) -> None:
        assert context.relocation_identity is WIRE
        self.brought.append(body)


class Bench:
    def __init__(self) -> None:
        self.node = FakeNode()
        self.replies = self.node.replies = Replies()
        self.node.retention = Retention(1_000_000)  # type: ignore[attr-defined]
        self.logs: list[Log] = []
        self.work = NamedWork(cast(Any, self.node), WIRE, self.logs.append)

    @property
    def kept(self) -> int:
        retention: Retention = self.node.retention  # type: ignore[attr-defined]
        return retention.octets

    def ends(self) -> dict[int, str]:
        """How each request ended at its requester, by its number."""
        headers = [(parse_reply_header(body), body) for _, body in self.node.replies]
        ends = {header.operation_low: decode_error(body[header.body_at :]).kind for header, body in headers}
        assert len(ends) == len(headers)
        return ends


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_what_nobody_runs_ends_once_and_is_counted(bench: Bench) -> None:
    bench.work.take([saved(1), saved(2)], 3)
    bench.work.fail(LOST)
    assert bench.ends() == {1: "DataLost", 2: "DataLost"}
    assert bench.node.counters == {"failed_requests": 2, "dead_letters": 3}
    assert [each.fields["messages"] for each in bench.logs] == [3]
    total = bench.node.ledger.total(bench.node.counters)
    assert [total[name] for name in ("accepted", "arrived", "failed", "dead", "waiting")] == [0, 5, 2, 3, 0]
    bench.work.fail(LOST)
    assert len(bench.node.replies) == 2
    assert bench.node.counters["dead_letters"] == 3


async def test_requests_that_the_source_ended_are_not_ended_twice(bench: Bench) -> None:
    bench.work.take([saved(1)], 2)
    bench.work.fail(LOST, requests=False)
    assert bench.node.replies == []
    assert bench.node.counters == {"dead_letters": 2}


async def test_a_request_in_doubt_ends_with_the_reply_that_was_stored_for_it(bench: Bench) -> None:
    record = bench.node.record(KEY, 2)
    reply = reply_to(record, "done")
    reference = reply_reference(HERE.generation, 1, 2)
    await bench.node.blobs.put(reference, blob_of_reply(reply), 60_000)
    bench.work.take([saved(1), saved(2)], 1)
    bench.work.doubt(DOUBT)
    await bench.node.settle()
    assert bench.ends() == {1: "Unavailable"}
    assert bench.replies.brought == [reply]
    assert bench.node.counters["in_doubt"] == 3
    assert "dead_letters" not in bench.node.counters, "somebody may have handled the send"
    assert await bench.node.blobs.read(reference) is not None, "it stays until its requester has it"
    await bench.node.close()


@pytest.mark.parametrize("end", ["fail", "doubt", "forget"])
async def test_names_count_as_retained_until_they_end(bench: Bench, end: str) -> None:
    bench.work.take([saved(number) for number in range(10)], 5)
    assert bench.kept == 0, "for the length of a move the payload itself counts"
    bench.work.retain()
    assert bench.kept == 10 * NAME_OCTETS
    getattr(bench.work, end)(*(() if end == "forget" else (LOST,)))
    assert bench.kept == 0
    assert (bench.work.requests, bench.work.sends) == ([], 0)
    await bench.node.close()


async def test_relayed_messages_are_named_by_their_records(bench: Bench) -> None:
    bench.work.take([], 0)
    for number, flags in ((1, FLAG_REQUEST), (2, 0), (3, FLAG_MARKER), (4, FLAG_REQUEST)):
        bench.work.add(bench.node.record(KEY, number, flags=flags))
    assert [each.operation_low for each in bench.work.requests] == [1, 4]
    assert bench.work.sends == 1
    bench.work.fail(LOST)  # they had been in no mailbox: their ends make them accepted (B3.5)
    total = bench.node.ledger.total(bench.node.counters)
    assert [total[name] for name in ("accepted", "arrived", "failed", "dead", "waiting")] == [3, 0, 2, 1, 0]


async def test_many_waits_are_done_a_few_at_a_time() -> None:
    """A hundred thousand requests of one node that ended must not be as many reads of the store at once."""
    waiting: list[asyncio.Future[None]] = []
    seen: Counter[int] = Counter()

    async def work(item: int) -> None:
        seen[item] += 1
        gate = asyncio.get_running_loop().create_future()
        waiting.append(gate)
        await gate

    task = asyncio.create_task(in_turn(iter(range(100)), work))
    while sum(seen.values()) < 100 or waiting:
        await asyncio.sleep(0)
        assert len(waiting) <= AT_ONCE
        if waiting:
            waiting.pop(0).set_result(None)
    await task
    assert seen == Counter(range(100))
