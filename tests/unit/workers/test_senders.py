"""The sending side of a node: what steers a look-up when several records wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from sojourn.errors import NotFound, SojournError
from sojourn.frames import FLAG_ACTIVATE, FLAG_INTENT, RecordHeader, parse_record_header, record_frame
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, spot_key
from sojourn.wire import fast_record
from sojourn.wire.record import NodeSource
from sojourn.workers.debt import Debt
from sojourn.workers.routes import Route
from sojourn.workers.senders import SenderPaths

HERE, THERE = NodeRun(b"here", 1), NodeRun(b"there", 2)
KEY = spot_key("device")


class Node:
    """`Exits` of a node whose look-ups the test lets through one by one; nothing exists."""

    run = HERE

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.sent: list[int] = []
        self.failed: list[tuple[int, str]] = []
        self.gate: asyncio.Queue[None] = asyncio.Queue()
        self.tasks: set[asyncio.Task[None]] = set()
        self.senders = SenderPaths(
            self, asyncio.get_running_loop(), cache_age_s=15.0, marker_limit_s=2.0, follow_s=30.0
        )

    async def resolve(self, key: ObjectKey, header: RecordHeader) -> Route:
        self.asked.append(header.operation_low)
        await self.gate.get()
        if not header.flags & FLAG_INTENT:
            raise NotFound("there is no such object")
        return Route(THERE, header.object_kind, 0, 0, b"", asyncio.get_running_loop().time())

    def send_to(self, run: NodeRun, body: bytes, debt: Debt | None) -> bool:
        assert run == THERE
        header = parse_record_header(body)
        assert header.flags & FLAG_ACTIVATE
        self.sent.append(header.operation_low)
        return True

    def accounts_for(self, key: ObjectKey) -> bool:
        return False

    async def connect(self, run: NodeRun) -> None:
        return None

    def deliver_here(self, body: bytes, header: RecordHeader, debt: Debt | None) -> bool:
        return False

    def fail_record(self, body: bytes, header: RecordHeader, error: SojournError) -> None:
        self.failed.append((header.operation_low, error.kind))

    def send_marker(self, run: NodeRun, key: ObjectKey, kind: int, number: int) -> bool:
        return False

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def marker_ended(self) -> None:
        """Nothing waits for it."""

    def log(self, event: str, level: str, **fields: object) -> None:
        """Nobody reads it."""

    def submit(self, number: int, *, intent: bool) -> None:
        prefix = fast_record.encode_source_prefix(NodeSource(b"here", 1, "here@1", 1))
        head = fast_record.encode_record_head(prefix, None, 1, number, 5, 0)
        kind = ObjectKind.INSTANCE_SPOT
        flags = FLAG_INTENT if intent else 0
        body = record_frame(flags, 0, kind, 0, 0, 1, number, len(head), KEY, b"Device", head)
        self.senders.submit(body, parse_record_header(body), None)

    async def settle(self) -> None:
        while self.tasks:
            await asyncio.wait(self.tasks)


async def asked(node: Node, times: int) -> None:
    while len(node.asked) < times:
        await _next_turn()


async def _next_turn() -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize("wait", [False, True], ids=["before it is asked", "while it is asked"])
async def test_a_later_record_takes_no_intent_away(wait: bool) -> None:
    """The first record would have the missing Spot made, the one behind it would not: it is made."""
    node = Node()
    node.submit(1, intent=True)
    if wait:
        await asked(node, 1)
    node.submit(2, intent=False)
    node.gate.put_nowait(None)
    await node.settle()
    assert (node.asked, node.sent, node.failed) == ([1], [1, 2], [])
    node.senders.close()


@pytest.mark.parametrize("wait", [False, True], ids=["before it is asked", "while it is asked"])
async def test_a_later_record_brings_its_intent(wait: bool) -> None:
    """A look-up without intent that ends in vain is made again for the record that has it."""
    node = Node()
    node.submit(1, intent=False)
    if wait:
        await asked(node, 1)
    node.submit(2, intent=True)
    node.gate.put_nowait(None)
    node.gate.put_nowait(None)
    await node.settle()
    assert node.asked == ([1, 2] if wait else [2])
    assert (node.sent, node.failed) == ([1, 2], [])
    node.senders.close()


async def test_without_intent_nothing_is_made() -> None:
    node = Node()
    node.submit(1, intent=False)
    node.submit(2, intent=False)
    node.gate.put_nowait(None)
    await node.settle()
    assert (node.sent, node.failed) == ([], [(1, "NotFound"), (2, "NotFound")])
    node.senders.close()
