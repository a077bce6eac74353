"""Records that need nothing from their supervisor pass it untouched; all others take the long way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sojourn import frames
from sojourn.frames import FLAG_FOLLOW, FLAG_INTENT, FLAG_REQUEST
from sojourn.ids import NodeRun, ObjectKind, spot_key
from sojourn.wire import fast_record
from sojourn.wire.record import NodeSource
from sojourn.workers.debt import Debt
from sojourn.workers.lanes import WorkerLane
from sojourn.workers.objects import LocalObject, Place, route_fence
from sojourn.workers.router import Router
from sojourn.workers.senders import Outstanding, SenderPaths

HERE, THERE = NodeRun(b"here", 3), NodeRun(b"there", 4)
KEY = spot_key("device")


class Bank:
    """A creditor that counts what it gets back."""

    def __init__(self) -> None:
        self.records = 0

    def give_back(self, records: int, octets: int) -> None:
        self.records += records


class Node:
    """A node with one worker that only takes notes; what takes another way is listed by its name."""

    run = HERE

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.linked: list[tuple[NodeRun, bytes]] = []
        self.replies: list[tuple[int | NodeRun, bytes]] = []
        self.failed: list[str] = []
        self.other: list[str] = []
        self.has_link = True
        self.bank = Bank()
        self.lane = WorkerLane(self.sent.append, 8, None, HERE)
        self.lanes = {0: self.lane}
        self.senders = SenderPaths(
            self,  # type: ignore[arg-type]
            asyncio.get_running_loop(),
            cache_age_s=15.0,
            marker_limit_s=2.0,
            follow_s=30.0,
        )
        self.router = Router(self, self.senders)  # type: ignore[arg-type]
        self.held = LocalObject(KEY, ObjectKind.INSTANCE_SPOT, "Device", Place.ACTIVE)
        self.held.worker = 0
        self.held.settle(7, 1, HERE, 9)
        self.router.objects[KEY] = self.held

    def send_to(self, run: NodeRun, body: bytes, debt: Debt | None) -> bool:
        if self.has_link:
            self.linked.append((run, body))
            if debt is not None:
                debt.settle()
        return self.has_link

    def deliver_reply(self, route: int, body: bytes) -> None:
        self.replies.append((route, body))

    def send_reply(self, run: NodeRun, body: bytes) -> bool:
        self.replies.append((run, body))
        return True

    def fail_record(self, body: bytes, header: frames.RecordHeader, error: Any) -> None:
        self.failed.append(error.kind)

    def notice_route(self, to: NodeRun, held: LocalObject) -> None:
        self.other.append("notice")

    def activate(self, body: bytes, header: frames.RecordHeader, debt: Debt | None) -> None:
        self.other.append("activate")

    def start(self, work: Any) -> None:
        work.close()
        self.other.append("look up")


def make_record(
    *, route: int = 5, flags: int = FLAG_INTENT, stable_type: bytes = b"Device", generation: int = 0
) -> bytes:
    prefix = fast_record.encode_source_prefix(NodeSource(*HERE, "here@3", 3))
    head = fast_record.encode_record_head(prefix, None, 1, 2, 6 if route else 5, route)
    payload = fast_record.encode_payload("say", "text/x", b"payload")
    flags |= FLAG_REQUEST if route else 0
    kind = ObjectKind.INSTANCE_SPOT
    return frames.record_frame(
        flags, 0, kind, generation, route, 1, 2, len(head), KEY, stable_type, head + payload
    )


def complete(body: bytes, fence: bytes, generation: int) -> bytes:
    return frames.complete_record(body, frames.parse_record_header(body), fence, generation)


@pytest.mark.parametrize("route", [0, 5])
async def test_an_own_record_for_a_serving_object_goes_as_it_is(route: int) -> None:
    node, body = Node(), make_record(route=route)
    node.router.from_local(body, node.bank)
    assert node.sent == [body]
    assert node.bank.records == 1
    assert len(node.lane.running) == (1 if route else 0)


@pytest.mark.parametrize("case", ["guarded", "no fence", "type", "generation", "creating", "busy", "follow"])
async def test_what_is_special_takes_the_long_way(case: str) -> None:
    node, body = Node(), make_record()
    expected: list[bytes] = [complete(body, node.held.fence, 7)]
    if case == "guarded":
        node.held.guarded = True  # no marker is out after all: it goes on, but was looked at
    elif case == "no fence":
        node.held.fence, expected = b"", [body]
    elif case == "type":
        body, expected = make_record(stable_type=b"Lamp"), []
    elif case == "generation":
        body, expected = make_record(generation=8), []
    elif case == "creating":
        node.held.place, node.held.waiting, expected = Place.CREATING, [], []
    elif case == "busy":
        node.senders.submit(body, frames.parse_record_header(body), None)
        expected = []
    else:
        body = make_record(flags=FLAG_INTENT | FLAG_FOLLOW)
        expected = [complete(body, node.held.fence, 7)]
    node.router.from_local(body, node.bank)
    assert node.sent == expected
    refusals = {"type": ["TypeMismatch"], "generation": ["InvalidOperation"]}
    assert node.failed == refusals.get(case, [])
    assert len(node.held.waiting or ()) == (case == "creating")
    node.senders.close()


async def test_an_own_record_for_an_object_on_a_known_node_goes_there_complete() -> None:
    node, body = Node(), make_record()
    del node.router.objects[KEY]
    node.senders.submit(body, frames.parse_record_header(body), None)  # a path that is being looked up
    node.senders.made(KEY, ObjectKind.INSTANCE_SPOT, THERE, 7, 4)
    fence = route_fence(KEY, ObjectKind.INSTANCE_SPOT, 7, THERE, 1, 4)
    node.linked.clear()
    node.router.from_local(body, node.bank)
    assert node.linked == [(THERE, complete(body, fence, 7))]
    assert node.senders.outstanding[5] == Outstanding(KEY, THERE, 1, 2)
    assert node.bank.records == 1
    node.has_link = False
    assert not node.senders.pass_on(body, KEY, node.bank), "without a link it is looked up anew"
    node.senders.close()


async def test_a_complete_record_of_a_peer_goes_as_it_is() -> None:
    node = Node()
    body = complete(make_record(), node.held.fence, 7)
    node.router.from_link(THERE, body, node.bank)
    assert node.sent == [body]
    earlier = complete(make_record(), node.held.fence, 6)
    node.router.from_link(THERE, earlier, node.bank)
    assert node.sent == [body, body], "an earlier incarnation of an Instance Spot: renewed by the long way"


async def test_replies_go_to_their_run() -> None:
    node = Node()
    node.router.from_local(make_record(), node.bank)
    mine = frames.reply_frame(0, 5, 1, 2, HERE.rid, HERE.generation, b"result")
    node.router.reply_from_worker(node.lane, mine)
    assert not node.lane.running
    theirs = frames.reply_frame(0, 5, 1, 2, THERE.rid, THERE.generation, b"result")
    node.router.reply_from_worker(node.lane, theirs)
    node.router.reply(mine)
    node.router.reply(theirs)
    assert node.replies == [(5, mine), (THERE, theirs), (5, mine), (THERE, theirs)]
