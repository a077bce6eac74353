"""The sending side of a node: look-ups, the route cache, path markers and what a lost link means (B9.1, B9.4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sojourn.frames import (
    FLAG_ACTIVATE,
    FLAG_COMPLETE,
    FLAG_FOLLOW,
    FLAG_INTENT,
    FLAG_REQUEST,
    parse_record_header,
    set_hops,
)
from sojourn.ids import NodeRun, ObjectKind, spot_key
from sojourn.workers.debt import Debt
from sojourn.workers.objects import LocalObject, Place, route_fence
from sojourn.workers.records import marker_frame
from sojourn.workers.routes import Route
from sojourn.workers.senders import Outstanding

from tests.unit.workers.fake_node import HERE, THERE, Credits, FakeNode, VirtualLoop

KEY = spot_key("d")
OTHER = NodeRun(b"other", 3)


class Sender(FakeNode):
    def __init__(self) -> None:
        self.timers = VirtualLoop()
        super().__init__(timers=self.timers)
        self.links = {THERE, OTHER}

    def route(self, run: NodeRun, generation: int = 5, owner_generation: int = 1) -> Route:
        fence = route_fence(KEY, ObjectKind.INSTANCE_SPOT, generation or 1, run, owner_generation or 1, 1)
        return Route(
            run,
            ObjectKind.INSTANCE_SPOT,
            generation,
            owner_generation,
            fence if generation else b"",
            self.timers.now,
        )

    def submit(self, *numbers: int, flags: int = FLAG_INTENT | FLAG_REQUEST) -> None:
        for number in numbers:
            body = self.record(KEY, number, flags=flags)
            self.senders.submit(body, parse_record_header(body), None)

    @property
    def went(self) -> list[tuple[NodeRun, int]]:
        return [(run, parse_record_header(body).operation_low) for run, body in self.sent]

    async def on_path(self, run: NodeRun = THERE) -> None:
        """The first record found the object at `run`."""
        self.routes[KEY] = self.route(run)
        self.submit(1)
        await self.settle()
        self.sent.clear()
        self.asked.clear()

    async def hear(self, run: NodeRun, owner_generation: int = 2) -> None:
        """A notice names another owner."""
        self.routes[KEY] = self.route(run, 5, owner_generation)
        self.senders.learned(KEY, self.routes[KEY])
        await self.settle()


@pytest.fixture
async def node() -> AsyncIterator[Sender]:
    it = Sender()
    yield it
    await it.close()
    assert it.timers.armed == 0


# look-ups and cache


async def test_records_wait_for_one_look_up_and_go_in_order(node: Sender) -> None:
    node.routes[KEY] = node.route(THERE)
    node.submit(1, 2, 3)
    assert node.senders.busy(KEY)
    assert node.sent == []
    await node.settle()
    assert node.went == [(THERE, 1), (THERE, 2), (THERE, 3)]
    assert len(node.asked) == 1
    assert all(body[1] & FLAG_COMPLETE for _, body in node.sent)
    assert set(node.senders.outstanding) == {1, 2, 3}
    assert not node.senders.busy(KEY)


async def test_a_node_that_is_to_make_the_object_is_asked_to(node: Sender) -> None:
    node.routes[KEY] = node.route(THERE, 0, 0)
    node.submit(1)
    await node.settle()
    ((_, body),) = node.sent
    assert body[1] & FLAG_ACTIVATE
    assert not body[1] & FLAG_COMPLETE


async def test_a_look_up_in_vain_ends_all_that_waits_and_gives_credit_back(node: Sender) -> None:
    credits = Credits()
    for number in (1, 2):
        body = node.record(KEY, number)
        node.senders.submit(body, parse_record_header(body), Debt(credits, 1))
    await node.settle()
    assert [(number, error.kind) for number, error in node.failed] == [(1, "NotFound"), (2, "NotFound")]
    assert credits.records == 2


async def test_a_cached_route_serves_until_it_is_old(node: Sender) -> None:
    await node.on_path()
    node.timers.now += 15.0
    node.submit(2)
    assert node.went == [(THERE, 2)]
    node.timers.now += 0.1
    node.submit(3)
    await node.settle()
    assert node.asked == [3]
    assert node.went == [(THERE, 2), (THERE, 3)]


async def test_an_old_route_gives_way_to_what_a_store_that_forgot_says(node: Sender) -> None:
    """Its counter began anew: the object made since has a lower generation than the cached route (B9.1)."""
    node.routes[KEY] = node.route(THERE, 1002)
    node.submit(1)
    await node.settle()
    node.timers.now += 15.1
    node.routes[KEY] = node.route(THERE, 1)
    node.submit(2)
    await node.settle()
    assert [parse_record_header(body).object_generation for _, body in node.sent] == [1002, 1]


async def test_a_path_nobody_uses_is_forgotten(node: Sender) -> None:
    await node.on_path()
    node.timers.advance(15 + 30 - 1)
    node.senders.sweep()
    assert KEY in node.senders._entries
    node.timers.advance(2)
    node.senders.sweep()
    node.timers.advance(31)
    assert node.senders._entries == {}


async def test_an_object_here_gets_records_without_a_link(node: Sender) -> None:
    node.worker_ready(0)
    held = LocalObject(KEY, ObjectKind.INSTANCE_SPOT, "Device", Place.ACTIVE)
    held.worker = 0
    held.settle(5, 1, HERE, 7)
    node.routes[KEY] = node.route(HERE)
    node.submit(1)
    node.router.objects[KEY] = held
    await node.settle()
    assert node.records == [1]
    assert node.senders.outstanding == {}


async def test_an_object_that_is_not_here_after_all_is_looked_up_again(node: Sender) -> None:
    node.routes[KEY] = node.route(HERE)
    node.submit(1)
    await asyncio.sleep(0)
    node.routes[KEY] = node.route(THERE, 5, 2)
    await node.settle()
    assert node.went == [(THERE, 1)]
    assert len(node.asked) >= 2


async def test_a_restarted_node_does_not_wait_for_its_former_run(node: Sender) -> None:
    """The row names the former run of this very RID: what waits ends typed, and the next record asks the row again.

    Nothing that names the former run later on is believed, since nothing leads there (B3.4, B9.1).
    """
    former = NodeRun(HERE.rid, HERE.generation - 1)
    node.routes[KEY] = node.route(former)
    credits = Credits()
    for number in (1, 2):
        body = node.record(KEY, number)
        node.senders.submit(body, parse_record_header(body), Debt(credits, 1))
    await node.settle()
    assert [(number, error.kind, error.applied) for number, error in node.failed] == [
        (1, "Unavailable", "no"),
        (2, "Unavailable", "no"),
    ]
    assert credits.records == 2
    node.routes[KEY] = node.route(THERE, 6)
    node.submit(3)
    await node.settle()
    await node.hear(former)
    node.submit(4)
    await node.settle()
    assert node.went == [(THERE, 3), (THERE, 4)]
    assert not node.senders.busy(KEY)


async def test_a_path_to_the_former_run_of_this_node_is_left_at_once(node: Sender) -> None:
    """However it came to be: no link leads there, so the row decides."""
    former = NodeRun(HERE.rid, HERE.generation - 1)
    await node.on_path()
    node.senders.made(KEY, ObjectKind.INSTANCE_SPOT, former, 6, 1)
    node.routes[KEY] = node.route(THERE, 7)
    node.submit(2)
    await node.settle()
    assert (node.asked, node.went, node.failed) == ([2], [(THERE, 2)], [])


async def test_a_link_that_is_gone_when_a_record_wants_it(node: Sender) -> None:
    await node.on_path()
    node.links = {OTHER}
    node.routes[KEY] = node.route(OTHER, 5, 2)
    node.submit(2)
    await node.settle()
    assert node.went == [(OTHER, 2)]


async def test_an_owner_that_cannot_be_reached_ends_the_message(node: Sender) -> None:
    node.links = set()
    node.routes[KEY] = node.route(THERE)
    node.submit(1)
    await node.settle()
    assert [error.kind for _, error in node.failed] == ["Unavailable"]


# notices and markers


async def test_a_notice_sends_a_marker_and_what_comes_then_waits_for_it(node: Sender) -> None:
    await node.on_path()
    await node.hear(OTHER)
    ((marked, number),) = node.markers
    assert marked == THERE
    assert node.senders.marker_out(KEY)
    node.submit(2, 3)
    assert node.sent == []
    assert node.senders.marker_answered(number, node.route(OTHER, 5, 2))
    assert node.went == [(OTHER, 2), (OTHER, 3)]
    assert node.logged == ["marker_ended"]
    assert not node.senders.marker_answered(number, node.route(OTHER, 5, 2))  # a second answer is nobody's


@pytest.mark.parametrize("end", ["refused", "too late", "link lost"])
async def test_a_marker_without_an_answer_does_not_hold_records_up(node: Sender, end: str) -> None:
    await node.on_path()
    await node.hear(OTHER)
    ((_, number),) = node.markers
    node.submit(2)
    if end == "refused":
        node.senders.marker_refused(number)
    elif end == "too late":
        node.timers.advance(1.9)
        assert node.sent == []
        node.timers.advance(0.2)
    else:
        node.links.discard(THERE)
        node.senders.run_lost(THERE)
    await node.settle()
    assert node.went == [(OTHER, 2)]
    assert not node.senders.marker_out(KEY)


async def test_a_marker_that_no_link_takes(node: Sender) -> None:
    await node.on_path()
    node.links.discard(THERE)
    await node.hear(OTHER)
    node.submit(2)
    node.timers.advance(0)
    await node.settle()
    assert node.went == [(OTHER, 2)]


@pytest.mark.parametrize("why", ["older", "same run", "object here", "unknown object", "no link"])
async def test_a_notice_that_changes_nothing(node: Sender, why: str) -> None:
    await node.on_path()
    match why:
        case "older":
            await node.hear(OTHER, 0)
        case "same run":
            await node.hear(THERE)
        case "object here":
            node.here.add(KEY)
            await node.hear(OTHER)
        case "no link":
            node.links.discard(OTHER)
            await node.hear(OTHER)
        case _:
            node.senders.learned(spot_key("unknown"), node.route(OTHER))
            await node.settle()
    assert node.markers == []
    node.submit(2)
    assert node.went == [(THERE, 2)]


async def test_an_object_made_anew_is_sent_to_without_a_marker(node: Sender) -> None:
    """Nothing can be under way to the new incarnation."""
    await node.on_path()
    node.senders.made(KEY, ObjectKind.INSTANCE_SPOT, OTHER, 9, 3)
    node.senders.made(spot_key("unknown"), ObjectKind.INSTANCE_SPOT, OTHER, 9, 3)
    node.submit(2)
    assert node.markers == []
    ((run, body),) = node.sent
    assert (run, parse_record_header(body).object_generation) == (OTHER, 9)


# moves of the object


async def test_an_object_that_left_is_followed_where_it_went(node: Sender) -> None:
    held = LocalObject(KEY, ObjectKind.INSTANCE_SPOT, "Device", Place.FOLLOW)
    held.settle(5, 2, THERE, 9)
    node.install_follow(held, THERE)
    node.senders.install_follow(held, THERE, node.route(THERE, 5, 2))
    node.submit(1)
    assert node.went == [(THERE, 1)]
    assert node.markers == []  # its own records went there all along (B9.4)


async def test_what_is_passed_on_takes_the_node_s_own_path(node: Sender) -> None:
    held = LocalObject(KEY, ObjectKind.INSTANCE_SPOT, "Device", Place.FOLLOW)
    held.settle(5, 2, THERE, 9)
    held.follow_run = THERE
    passed = node.record(KEY, 1, origin=OTHER)
    node.senders.follow(held, set_hops(passed, 1, FLAG_FOLLOW), parse_record_header(passed), None)
    node.submit(2)
    assert node.went == [(THERE, 1), (THERE, 2)]
    assert set(node.senders.outstanding) == {2}  # the first is another node's request


async def test_a_path_that_led_here_is_forgotten_when_the_object_is_not_here(node: Sender) -> None:
    node.worker_ready(0)
    held = LocalObject(KEY, ObjectKind.INSTANCE_SPOT, "Device", Place.TARGET)
    node.senders.staging_begun(held, THERE, None, False)
    node.senders.left_here(KEY)
    node.senders.left_here(spot_key("unknown"))
    node.routes[KEY] = node.route(THERE)
    node.submit(1)
    await node.settle()
    assert node.went == [(THERE, 1)]


# losses


async def test_a_lost_link_names_the_requests_it_was_given(node: Sender) -> None:
    await node.on_path()
    node.submit(2, 3)
    node.submit(4, flags=FLAG_INTENT)
    node.senders.outstanding[99] = Outstanding(KEY, OTHER, 1, 99)
    node.links.discard(THERE)
    assert sorted(node.senders.run_lost(THERE)) == [1, 2, 3]
    node.routes[KEY] = node.route(OTHER, 5, 2)
    node.submit(5)
    await node.settle()
    assert node.went[-1] == (OTHER, 5)


async def test_what_a_lost_link_never_sent_finds_its_way_anew(node: Sender) -> None:
    """This node's own records; what it only passed on, and markers, end (B3.4)."""
    await node.on_path()
    own = set_hops(node.record(KEY, 2), 0, FLAG_ACTIVATE)
    passed = set_hops(node.record(KEY, 3, origin=OTHER), 1, FLAG_FOLLOW)
    marker = marker_frame(node.source_prefix, 7, KEY, ObjectKind.INSTANCE_SPOT, (1, 7))
    node.senders.run_lost(THERE)
    node.routes[KEY] = node.route(OTHER, 5, 2)
    node.senders.resubmit([own, passed, marker])
    await node.settle()
    assert node.went == [(OTHER, 2)]
    assert [(number, error.kind) for number, error in node.failed] == [(3, "Unavailable"), (7, "Unavailable")]


async def test_a_request_that_was_followed_depends_on_the_other_link(node: Sender) -> None:
    await node.on_path()
    node.senders.followed(1, OTHER)
    node.senders.followed(77, OTHER)
    assert node.senders.run_lost(THERE) == []
    assert node.senders.run_lost(OTHER) == [1]


async def test_a_followed_request_is_kept_only_where_the_target_says_so(node: Sender) -> None:
    """Command 50 names the node it went to. Taken for more, it would wait for its own timeout when the connection to a
    node breaks that keeps nothing of it (B3.4, B7.1)."""
    await node.on_path()
    outstanding = node.senders.outstanding
    node.senders.followed(1, OTHER)
    assert (outstanding[1].run, outstanding[1].moved) == (OTHER, False)
    outstanding[1] = outstanding[1]._replace(moved=True)  # its `RequestsTaken` came
    node.senders.followed(1, OTHER)  # the 50, later
    assert outstanding[1].moved
    node.senders.followed(1, THERE)  # it went on, and that node has not said so yet
    assert (outstanding[1].run, outstanding[1].moved) == (THERE, False)
    node.senders.followed(1, OTHER, kept=True)
    assert outstanding[1].moved


async def test_requests_of_a_worker_that_ended_are_nobody_s(node: Sender) -> None:
    for slot in (0, 1):
        node.senders.outstanding[(slot + 1) << 48 | 5] = Outstanding(KEY, THERE, 1, slot)
    node.senders.forget_requests(0)
    assert [request.operation_low for request in node.senders.outstanding.values()] == [1]


async def test_closing_ends_every_timer(node: Sender) -> None:
    await node.on_path()
    await node.hear(OTHER)
    assert node.timers.armed
    node.senders.close()
    assert node.timers.armed == 0
