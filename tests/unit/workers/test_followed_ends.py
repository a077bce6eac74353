"""Requests that were followed, or whose node has ended: where their ends come from (B7.1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sojourn import mesh
from sojourn.frames import parse_record_header
from sojourn.workers.bounded import AT_ONCE
from sojourn.workers.senders import Outstanding

from tests.links.members import turn_until
from tests.unit.workers.fake_node import FakeNode
from tests.unit.workers.test_moved_replies import ASKER, HERE, KEY, Ends


@pytest.fixture
async def pair() -> AsyncIterator[Ends]:
    it = Ends()
    yield it
    it.kept.close()


async def test_who_asks_is_told_where_the_end_of_a_followed_request_is_kept(pair: Ends) -> None:
    """By the node that keeps it: the former owner, which sent it on, does not know (B7.1)."""
    maker, wire = FakeNode(run=ASKER), pair.up()

    def follow(**record: Any) -> None:
        body = maker.record(KEY, 3, **record)
        pair.kept.followed(pair.held, body, parse_record_header(body))

    follow()
    assert wire.sent == [("control", mesh.RequestsTaken(KEY, [(3, 1, 3)]))]
    follow(origin=HERE)  # its own
    follow(flags=0)  # a send has no end to keep
    pair.down()
    follow()
    assert len(wire.sent) == 1


async def test_requests_of_a_node_that_ended_are_settled_a_few_at_a_time(
    pair: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred thousand of them must not be as many reads of the store at once."""
    reads: list[asyncio.Future[None]] = []

    async def read(reference: str) -> None:
        gate = asyncio.get_running_loop().create_future()
        reads.append(gate)
        await gate

    monkeypatch.setattr(pair.blobs, "read", read)
    outstanding = pair.asker.outstanding
    outstanding.clear()
    for number in range(100):
        outstanding[number] = Outstanding(KEY, HERE, 1, number, moved=True)
    for _ in range(3):  # the next look comes while they are being settled
        pair.relayed.look_around()
    answered = 0
    while answered < 100:
        await turn_until(lambda: reads)
        await asyncio.sleep(0)
        assert len(reads) <= AT_ONCE
        reads.pop().set_result(None)
        answered += 1
    await pair.asker.idle()
    assert not reads
    assert pair.asker.counters["in_doubt"] == 100
