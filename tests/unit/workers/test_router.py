"""Deliveries of one node: what each record meets, wherever in its life the object is (B3.4, B5.2, R10.1)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from sojourn.errors import (
    InternalFailure,
    InvalidOperation,
    ProtocolError,
    SojournError,
    TypeMismatch,
    Unavailable,
)
from sojourn.frames import (
    FLAG_ACTIVATE,
    FLAG_COMPLETE,
    FLAG_FOLLOW,
    FLAG_INTENT,
    FLAG_LOOP,
    FLAG_MARKER,
    FLAG_REQUEST,
    HOPS_MAX,
    RecordHeader,
    complete_record,
    parse_record_header,
    parse_reply_header,
    record_frame,
    set_hops,
)
from sojourn.ids import NodeRun, ObjectKind, actor_key, spot_key
from sojourn.workers.debt import Debt
from sojourn.workers.objects import LocalObject, Place, route_fence
from sojourn.workers.records import (
    frame_of_record,
    frozen_record,
    is_follow,
    marker_frame,
    unbind_frame,
    unbind_payload,
)
from sojourn.workers.replies import MovedHere
from sojourn.workers.routes import Route
from sojourn.workers.senders import Outstanding

from tests.unit.workers.fake_node import HERE, THERE, Credits, FakeNode, reply_to

KEY = spot_key("d")


@pytest.fixture
async def node() -> AsyncIterator[FakeNode]:
    it = FakeNode()
    it.worker_ready(0)
    yield it
    await it.close()


def hold(node: FakeNode, place: Place = Place.ACTIVE, generation: int = 5) -> LocalObject:
    held = LocalObject(KEY, ObjectKind.INSTANCE_SPOT, "Device", place)
    held.worker = 0
    held.settle(generation, 3, HERE, 7)
    node.router.objects[KEY] = held
    return held


class Taken:
    """A handoff that keeps what it takes."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes, NodeRun | None]] = []

    def record_arrived(
        self, body: bytes, header: RecordHeader, from_run: NodeRun | None, debt: Debt | None
    ) -> None:
        self.records.append((body, from_run))
        if debt is not None:
            debt.settle()


async def test_the_end_of_a_request_followed_to_an_object_that_moved_here_is_said_to_be_kept(
    node: FakeNode,
) -> None:
    held, credits = hold(node), Credits()
    body = set_hops(node.record(KEY, 1, origin=THERE, generation=5), 1, FLAG_FOLLOW)
    node.router.from_link(THERE, body, credits)
    assert node.told == [], "an object that was made here keeps no ends"
    held.moved = MovedHere(cast(Any, None), 1, 0)
    node.router.from_link(THERE, body, credits)
    assert node.told == [("taken", THERE)]
    node.router.from_link(THERE, node.record(KEY, 2, origin=THERE, generation=5), credits)
    assert node.told == [("taken", THERE)], "one that came straight is a request like any other"
    assert node.records == [1, 1, 2]


async def test_a_record_for_an_object_here_goes_to_its_worker_as_it_came(node: FakeNode) -> None:
    hold(node)
    credits = Credits()
    body = node.record(KEY, 1)
    node.router.from_local(body, credits)
    assert node.to_worker == [(0, body)]
    assert not body[1] & FLAG_COMPLETE
    assert (credits.records, credits.octets) == (1, len(body))


async def test_a_worker_s_record_for_an_unknown_object_takes_the_path_of_senders(node: FakeNode) -> None:
    node.routes[KEY] = _route(THERE)
    node.router.from_local(node.record(KEY, 1), Credits())
    await node.settle()
    assert [run for run, _ in node.sent] == [THERE]


async def test_a_worker_s_record_never_overtakes_those_that_wait_for_a_route(node: FakeNode) -> None:
    node.routes[KEY] = _route(HERE)
    node.router.from_local(node.record(KEY, 1), Credits())
    hold(node)
    node.router.from_local(node.record(KEY, 2), Credits())
    assert node.records == []
    await node.settle()
    assert node.records == [1, 2]


async def test_a_peer_s_record_for_an_unknown_object_activates(node: FakeNode) -> None:
    body = node.record(KEY, 1, origin=THERE)
    node.router.from_link(THERE, body, Credits())
    assert node.activated == [body]


async def test_who_asked_for_activation_is_told_the_generations_once(node: FakeNode) -> None:
    hold(node)
    for number in (1, 2):
        body = set_hops(node.record(KEY, number, origin=THERE), 0, FLAG_ACTIVATE)
        node.router.from_link(THERE, body, Credits())
    assert node.told == [("route", THERE)]
    assert node.records == [1, 2]


async def test_a_creation_keeps_records_until_it_ends(node: FakeNode) -> None:
    held = hold(node, Place.CREATING)
    held.waiting = []
    credits = Credits()
    node.router.from_local(node.record(KEY, 1), credits)
    assert len(held.waiting) == 1
    assert credits.records == 0


async def test_a_move_takes_records_with_where_they_came_from(node: FakeNode) -> None:
    held = hold(node, Place.SOURCE)
    held.staging = taken = Taken()
    credits = Credits()
    node.router.from_local(node.record(KEY, 1), credits)
    node.router.from_link(THERE, node.record(KEY, 2, origin=THERE), credits)
    assert [run for _, run in taken.records] == [None, THERE]
    assert all(body[1] & FLAG_COMPLETE for body, _ in taken.records)
    assert credits.records == 2


@pytest.mark.parametrize(
    ("flags", "sent_for", "delivered"),
    [
        (FLAG_INTENT | FLAG_REQUEST, 4, True),  # for whichever incarnation there is (B6.6)
        (FLAG_REQUEST, 4, False),
        (FLAG_INTENT | FLAG_REQUEST, 6, False),  # of an incarnation that is not here yet
    ],
)
async def test_a_record_for_another_incarnation(
    node: FakeNode, flags: int, sent_for: int, delivered: bool
) -> None:
    held = hold(node)
    body = node.record(KEY, 1, flags=flags, origin=THERE)
    known = LocalObject(KEY, ObjectKind.INSTANCE_SPOT, "Device", Place.ACTIVE)
    known.settle(sent_for, 1, HERE, 7)
    body = complete_record(body, parse_record_header(body), known.fence, sent_for)
    credits = Credits()
    node.router.from_link(THERE, body, credits)
    assert credits.records == 1
    if delivered:
        ((_, renewed),) = node.to_worker
        assert parse_record_header(renewed).object_generation == held.object_generation
        return
    ((_, error),) = node.failed
    assert isinstance(error, InvalidOperation)
    assert "was made anew since this route was learned" in error.message
    assert node.told == [("route", THERE)]


async def test_a_record_for_another_type_names_both(node: FakeNode) -> None:
    hold(node)
    credits = Credits()
    node.router.from_local(node.record(KEY, 1, stable_type=b"Room"), credits)
    ((_, error),) = node.failed
    assert isinstance(error, TypeMismatch)
    assert "is a Device, not a Room" in error.message
    assert (credits.records, node.to_worker) == (1, [])


async def test_a_marker_is_answered_where_the_object_is_and_gives_its_credit_back(node: FakeNode) -> None:
    hold(node)
    body = marker_frame(node.source_prefix, 9, KEY, ObjectKind.INSTANCE_SPOT, (1, 9))
    assert parse_record_header(body).flags & FLAG_MARKER
    credits = Credits()
    node.router.from_link(THERE, body, credits)
    assert node.told == [("marker 9", HERE)]  # whose marker it is stands in it
    assert (credits.records, node.to_worker) == (1, [])


# Message Follow


async def test_what_comes_for_an_object_that_left_is_followed_and_its_sender_told(node: FakeNode) -> None:
    node.install_follow(hold(node), THERE)
    asker = NodeRun(b"asker", 1)
    for number, flags in ((1, FLAG_INTENT | FLAG_REQUEST), (2, FLAG_INTENT), (3, FLAG_INTENT)):
        node.router.from_link(asker, node.record(KEY, number, flags=flags, origin=asker), Credits())
    await node.settle()
    followed = [parse_record_header(body) for _, body in node.sent]
    assert [header.operation_low for header in followed] == [1, 2, 3]
    assert all(
        is_follow(body) and header.hops == 1 for header, (_, body) in zip(followed, node.sent, strict=True)
    )
    assert node.told == [("follow", asker)] * 2  # each request, and the first of the sends


async def test_a_record_that_was_followed_too_often_ends(node: FakeNode) -> None:
    node.install_follow(hold(node), THERE)
    credits = Credits()
    body = set_hops(node.record(KEY, 1, origin=THERE), HOPS_MAX, FLAG_FOLLOW)
    node.router.from_link(THERE, body, credits)
    ((_, error),) = node.failed
    assert isinstance(error, Unavailable)
    assert (error.applied, credits.records) == ("no", 1)
    assert f"was followed {HOPS_MAX} times" in error.message


async def test_an_object_that_left_without_a_trace_ends_its_records(node: FakeNode) -> None:
    hold(node, Place.FOLLOW)
    node.router.from_local(node.record(KEY, 1), Credits())
    assert [type(error) for _, error in node.failed] == [Unavailable]


# unbinds (B11.1)

ACTOR = actor_key("p")
FIELDS = b"\x96the six fields"


def hold_actor(node: FakeNode, place: Place) -> tuple[LocalObject, bytes]:
    """An Actor, and an unbind for it."""
    held = LocalObject(ACTOR, ObjectKind.ACTOR, "Player", place)
    held.worker = 0
    held.settle(5, 3, HERE, 7)
    node.router.objects[ACTOR] = held
    return held, unbind_frame(node.source_prefix, ACTOR, FIELDS, (1, 2))


async def test_an_unbind_for_an_open_actor_is_the_node_s_and_never_a_worker_s(node: FakeNode) -> None:
    _, body = hold_actor(node, Place.ACTIVE)
    credits = Credits()
    node.router.from_link(THERE, body, credits)
    probe = set_hops(node.record(ACTOR, 3, flags=0, kind=ObjectKind.ACTOR, stable_type=b""), 0, FLAG_LOOP)
    node.router.from_local(probe, credits)
    (arrived,) = node.unbinds
    assert unbind_payload(arrived, parse_record_header(arrived)) == FIELDS
    assert node.records == [3], "a worker's own loop record goes to the worker"
    assert credits.records == 2


@pytest.mark.parametrize("place", [Place.SOURCE, Place.TARGET])
async def test_an_unbind_is_taken_along_and_known_again_where_it_comes_out(
    node: FakeNode, place: Place
) -> None:
    """Command 31 and saved work carry the frozen record alone."""
    held, body = hold_actor(node, place)
    held.staging = taken = Taken()
    node.router.from_local(body, Credits())
    assert node.unbinds == []
    ((kept, _),) = taken.records
    out = frame_of_record(frozen_record(kept), ObjectKind.ACTOR, ACTOR)
    header = parse_record_header(out)
    assert header.flags == FLAG_LOOP | FLAG_COMPLETE
    assert unbind_payload(out, header) == FIELDS
    held.place, held.staging = Place.ACTIVE, None
    node.router.into(held, out, header, None, None)
    assert node.unbinds == [out]


async def test_an_unbind_is_followed_as_it_is(node: FakeNode) -> None:
    held, body = hold_actor(node, Place.ACTIVE)
    node.install_follow(held, THERE)
    node.router.from_local(body, Credits())
    await node.settle()
    ((_, followed),) = node.sent
    header = parse_record_header(followed)
    assert (is_follow(followed), header.hops) == (True, 1)
    assert unbind_payload(followed, header) == FIELDS


# replies


@pytest.mark.parametrize("answer", [True, InternalFailure("it raised")])
async def test_a_worker_s_reply_goes_to_who_asked(node: FakeNode, answer: bool | SojournError) -> None:
    hold(node)
    node.router.from_link(THERE, node.record(KEY, 1, origin=THERE), Credits())
    node.router.from_local(node.record(KEY, 2), Credits())
    node.senders.outstanding[2] = Outstanding(KEY, HERE, 1, 2)
    lane = node.lanes[0]
    assert len(lane.running) == 2
    for _, body in list(node.to_worker):
        node.router.reply_from_worker(lane, reply_to(body, answer))
    assert [run for run, _ in node.replies] == [THERE, HERE]
    assert lane.running == {}
    assert node.senders.outstanding == {}


async def test_a_reply_that_comes_back_over_a_link_ends_its_request(node: FakeNode) -> None:
    node.senders.outstanding[2] = Outstanding(KEY, THERE, 1, 2)
    node.router.reply(reply_to(node.record(KEY, 2), 5))
    node.router.reply(reply_to(node.record(KEY, 3, origin=THERE), 5))
    assert node.senders.outstanding == {}
    assert [(run, parse_reply_header(body).reply_route) for run, body in node.replies] == [
        (HERE, 2),
        (THERE, 3),
    ]


def _route(run: NodeRun) -> Route:
    return Route(run, ObjectKind.INSTANCE_SPOT, 0, 0, b"", 0.0)


async def test_a_peer_s_record_for_another_object_than_its_header_says_is_not_kept(node: FakeNode) -> None:
    taken = Taken()
    hold(node, Place.SOURCE).staging = cast(Any, taken)
    body = node.record(spot_key("e"), 1, origin=THERE)
    fence = route_fence(spot_key("e"), ObjectKind.INSTANCE_SPOT, 5, HERE, 3, 7)
    other = frozen_record(complete_record(body, parse_record_header(body), fence, 5))
    header = parse_record_header(body)
    flags, place = header.flags | FLAG_COMPLETE, ObjectKind.INSTANCE_SPOT
    numbers = header.reply_route, header.operation_high, header.operation_low, header.fence_at
    misleading = record_frame(flags, 0, place, 5, *numbers, KEY, b"Device", other)
    with pytest.raises(ProtocolError, match="another object"):
        node.router.from_link(THERE, misleading, Credits())
    assert taken.records == []
