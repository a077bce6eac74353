"""What leaves a member for the mesh: look-ups and placement, records, replies, markers, notices (B9, B3.4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from sojourn import mesh
from sojourn.control import RegistryEntry, decode_error
from sojourn.errors import DataLost, InternalFailure, NotFound, SojournError, Unavailable
from sojourn.frames import (
    FLAG_ERROR,
    FLAG_INTENT,
    FLAG_LOOP,
    FLAG_MARKER,
    FLAG_REQUEST,
    complete_record,
    parse_record_header,
    parse_reply_header,
    set_hops,
)
from sojourn.handshake_octets import HandshakeRefused
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, actor_key, spot_key
from sojourn.options import Options
from sojourn.rows import HostState, NodeDescriptor, TypeSupport
from sojourn.spots.app import App
from sojourn.workers.client import Client
from sojourn.workers.debt import Debt
from sojourn.workers.directory import OwnedElsewhere
from sojourn.workers.exchange import Exchange, new_generation
from sojourn.workers.objects import LocalObject, Place, route_fence
from sojourn.workers.records import marker_frame, unbind_frame
from sojourn.workers.router import Router
from sojourn.workers.senders import Outstanding, SenderPaths

from tests.unit.workers.fake_node import THERE, Credits, FakeNode, reply_to

KEY = spot_key("d")
ENTRY = RegistryEntry("Device", ObjectKind.INSTANCE_SPOT, "preserve", 1)


class FakeLink:
    """A link that keeps what it is to send."""

    def __init__(self, peer: NodeRun) -> None:
        self.peer = peer
        self.peer_frame_octets_max = 10_000
        self.records: list[bytes] = []
        self.frames: list[bytes] = []
        self.controls: list[Any] = []

    def send_record(self, body: bytes, debt: Debt | None = None) -> None:
        self.records.append(body)
        if debt is not None:
            debt.settle()

    def send(self, body: bytes) -> None:
        self.frames.append(body)

    def send_control(self, message: Any) -> None:
        self.controls.append(message)


class FakeLinks:
    def __init__(self) -> None:
        self.up: dict[NodeRun, FakeLink] = {}
        self.dialled: list[tuple[NodeRun, str]] = []
        self.refused: dict[NodeRun, HandshakeRefused] = {}

    def get(self, run: NodeRun) -> FakeLink | None:
        return self.up.get(run)

    def all(self) -> list[FakeLink]:
        return list(self.up.values())

    def refusals(self) -> dict[NodeRun, HandshakeRefused]:
        return self.refused

    async def ensure(self, run: NodeRun, endpoint: str) -> None:
        self.dialled.append((run, endpoint))


class FakeDirectory:
    def __init__(self) -> None:
        self.found: OwnedElsewhere | None = None

    async def owner_of(self, key: ObjectKey) -> OwnedElsewhere | None:
        return self.found


class Member(Exchange):
    """A member whose links and directory are fakes; `answers` are its own requesters' replies."""

    def __init__(self) -> None:
        super().__init__(b"me", Options(), None, 0)
        self.loop = asyncio.get_running_loop()
        self.wires = FakeLinks()
        self.links = cast(Any, self.wires)
        self.rows = FakeDirectory()
        self.directory = cast(Any, self.rows)
        self.senders = SenderPaths(self, self.loop, cache_age_s=15.0, marker_limit_s=2.0, follow_s=30.0)
        self.router = Router(self, self.senders)
        self.answers: list[tuple[int, bytes]] = []

    def deliver_reply(self, reply_route: int, body: bytes) -> None:
        self.answers.append((reply_route, body))

    def connect_to(self, run: NodeRun) -> FakeLink:
        link = self.wires.up[run] = FakeLink(run)
        return link

    def knows(self, run: NodeRun) -> None:
        self.roster.heard(
            NodeDescriptor(
                rid=run.rid,
                generation=run.generation,
                owner_id=f"{run}",
                lease_generation=run.generation,
                application="app",
                application_version=1,
                endpoints=("there:7000",),
                types=(TypeSupport(ObjectKind.INSTANCE_SPOT, "Device", "preserve"),),
                state=HostState.SERVING,
            )
        )


@pytest.fixture
async def member() -> AsyncIterator[Member]:
    it = Member()
    yield it
    it.senders.close()


@pytest.fixture
async def maker() -> AsyncIterator[FakeNode]:
    """Makes records, as if they came from this very member."""
    it = FakeNode(run=NodeRun(b"me", 1))
    yield it
    await it.close()


def error_of(body: bytes) -> SojournError:
    header = parse_reply_header(body)
    assert header.flags & FLAG_ERROR
    told = decode_error(memoryview(body)[header.body_at :])
    return cast(SojournError, told)


def owned(run: NodeRun, *, lost: bool = False) -> OwnedElsewhere:
    return OwnedElsewhere(run, ObjectKind.INSTANCE_SPOT, 5, 3, b"fence", lost=lost)


# look-ups


async def test_an_object_that_exists_is_where_its_row_says(member: Member, maker: FakeNode) -> None:
    member.rows.found = owned(THERE)
    member.connect_to(THERE)
    route = await member.resolve(KEY, parse_record_header(maker.record(KEY, 1, flags=0)))
    assert (route.run, route.object_generation, route.owner_generation) == (THERE, 5, 3)


@pytest.mark.parametrize(
    ("found", "error"),
    [(None, NotFound), (owned(THERE, lost=True), DataLost), (owned(THERE), Unavailable)],
    ids=["missing", "lost", "owner gone"],
)
async def test_without_intent_an_object_that_is_not_there_is_told_of(
    member: Member, maker: FakeNode, found: OwnedElsewhere | None, error: type[SojournError]
) -> None:
    member.rows.found = found
    with pytest.raises(error):
        await member.resolve(KEY, parse_record_header(maker.record(KEY, 1, flags=FLAG_REQUEST)))


@pytest.mark.parametrize("found", [None, owned(THERE, lost=True), owned(NodeRun(b"dead", 1))])
async def test_with_intent_a_node_is_chosen_for_it(
    member: Member, maker: FakeNode, found: OwnedElsewhere | None
) -> None:
    member.rows.found = found
    member.knows(THERE)
    member.connect_to(THERE)
    route = await member.resolve(KEY, parse_record_header(maker.record(KEY, 1, flags=FLAG_INTENT)))
    assert (route.run, route.object_generation) == (THERE, 0)


async def test_where_no_node_can_be_reached_the_reason_is_told(member: Member, maker: FakeNode) -> None:
    member.knows(THERE)
    header = parse_record_header(maker.record(KEY, 1, flags=FLAG_INTENT))
    with pytest.raises(Unavailable, match=r"there@9: there is no authenticated connection to this run$"):
        await member.resolve(KEY, header)
    member.wires.refused[THERE] = HandshakeRefused.of("too-many-connections", "refused by the peer")
    with pytest.raises(Unavailable, match=r"to this run \(too-many-connections: refused by the peer\)"):
        await member.resolve(KEY, header)


async def test_a_link_is_dialled_only_where_there_is_none(member: Member) -> None:
    member.knows(THERE)
    await member.connect(THERE)
    assert member.wires.dialled == [(THERE, "there:7000")]
    member.connect_to(THERE)
    await member.connect(THERE)
    assert len(member.wires.dialled) == 1
    assert member.connected_runs() == {member.run, THERE}


# records and replies


async def test_a_record_goes_over_the_link_or_not_at_all(member: Member, maker: FakeNode) -> None:
    body, credits = maker.record(KEY, 1), Credits()
    assert not member.send_to(THERE, body, Debt(credits, 1))
    assert credits.records == 0
    link = member.connect_to(THERE)
    assert member.send_to(THERE, body, Debt(credits, 1))
    assert (link.records, credits.records) == ([body], 1)


async def test_a_record_that_the_peer_would_refuse_ends_here(member: Member, maker: FakeNode) -> None:
    member.connect_to(THERE).peer_frame_octets_max = 10
    body, credits = maker.record(KEY, 1, origin=member.run), Credits()
    assert member.send_to(THERE, body, Debt(credits, 1))
    ((route, answer),) = member.answers
    error = error_of(answer)
    assert (route, error.kind, credits.records) == (1, "InvalidOperation", 1)
    assert member.counters == {"failed_requests": 1}


async def test_a_reply_that_the_peer_would_refuse_becomes_an_error(member: Member, maker: FakeNode) -> None:
    reply = reply_to(maker.record(KEY, 1, origin=THERE), "x" * 20_000)
    assert not member.send_reply(THERE, reply)
    assert member.counters == {"replies_without_link": 1}
    link = member.connect_to(THERE)
    assert member.send_reply(THERE, reply)
    (sent,) = link.frames
    assert error_of(sent).kind == "InvalidOperation"
    assert parse_reply_header(sent).reply_route == 1
    small = reply_to(maker.record(KEY, 2, origin=THERE), "x")
    assert member.send_reply(THERE, small)
    assert link.frames[-1] == small


async def test_a_record_is_delivered_to_what_is_here(member: Member, maker: FakeNode) -> None:
    body = maker.record(KEY, 1)
    header = parse_record_header(body)
    assert not member.deliver_here(body, header, None)
    assert not member.accounts_for(KEY)
    held = LocalObject(KEY, ObjectKind.INSTANCE_SPOT, "Device", Place.CREATING)
    held.waiting = []
    member.router.objects[KEY] = held
    assert member.deliver_here(body, header, None)
    assert len(held.waiting) == 1
    assert member.accounts_for(KEY)
    held.place = Place.FOLLOW
    assert not member.accounts_for(KEY)


# endings


async def test_each_record_that_ends_is_told_in_its_own_way(
    member: Member, maker: FakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    error = Unavailable("no way", applied="no")
    request = maker.record(KEY, 1, origin=member.run)
    send = maker.record(KEY, 2, flags=0, origin=member.run)
    probe = set_hops(maker.record(KEY, 3, flags=0, origin=member.run), 0, FLAG_LOOP)
    for body in (request, send, probe):
        member.fail_record(body, parse_record_header(body), error)
    assert [route for route, _ in member.answers] == [1]
    assert member.counters == {"failed_requests": 1, "dead_letters": 1}
    assert [record.getMessage() for record in caplog.records] == ["dead_letter"]


@pytest.mark.parametrize("complete", [True, False])
async def test_an_unbind_that_ends_is_told_with_its_kind_and_is_no_dead_letter(
    member: Member, caplog: pytest.LogCaptureFixture, complete: bool
) -> None:
    body = unbind_frame(member.source_prefix, actor_key("p"), b"\xc0", (1, 2))
    header = parse_record_header(body)
    if complete:
        fence = route_fence(header.key, ObjectKind.ACTOR, 1, member.run, 1, 1)
        body = complete_record(body, header, fence, 1)
    member.fail_record(body, parse_record_header(body), Unavailable("no way", applied="no"))
    assert member.counters == {}
    (record,) = caplog.records
    assert record.getMessage() == "unbind_failed"
    told = vars(record)["sojourn"]
    assert (told["object_id"], told["kind"], told["reason"]) == ("actor 'p'", "Unavailable", "no way")


def test_a_client_tells_the_fields_in_the_text_too(caplog: pytest.LogCaptureFixture) -> None:
    """A program that has not set up its logging sees only the text."""
    client = Client(App("logs"), Options(), rid="c")
    client.log("dead_letter", "warning", object_id="actor 'ghost'", reason="gone")
    client.log("link_up", "debug", peer="n")
    (record,) = caplog.records
    assert record.getMessage() == "dead_letter object_id=actor 'ghost' reason=gone"
    assert vars(record)["sojourn"] == {
        "node": str(client.run),
        "object_id": "actor 'ghost'",
        "reason": "gone",
    }


async def test_a_marker_that_nobody_takes_in_is_refused_to_its_sender(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[int] = []
    monkeypatch.setattr(member.senders, "marker_refused", refused.append)
    for prefix in (member.source_prefix, FakeNode(run=THERE).source_prefix):
        body = marker_frame(prefix, 9, KEY, ObjectKind.INSTANCE_SPOT, (1, 9))
        header = parse_record_header(body)
        assert header.flags & FLAG_MARKER
        member.fail_record(body, header, NotFound("not here"))
    assert refused == [9]
    link = member.connect_to(THERE)
    member.fail_record(body, header, NotFound("not here"))
    assert link.controls == [mesh.MarkerRefused(9)]


async def test_a_member_without_objects_refuses_what_comes(member: Member, maker: FakeNode) -> None:
    credits = Credits()
    member.router.from_link(THERE, maker.record(KEY, 1, origin=member.run), credits)
    ((_, answer),) = member.answers
    assert (error_of(answer).kind, credits.records) == ("NotFound", 1)


async def test_an_own_request_ends_once(member: Member) -> None:
    request = member.senders.outstanding[4] = Outstanding(KEY, THERE, 1, 2)
    member.fail_request(4, request, Unavailable("cut off", applied="unknown"))
    ((route, answer),) = member.answers
    assert (route, error_of(answer).kind) == (4, "Unavailable")
    assert member.senders.outstanding == {}


# markers and notices


async def test_a_marker_goes_where_there_is_a_link(member: Member) -> None:
    assert not member.send_marker(THERE, KEY, ObjectKind.INSTANCE_SPOT, 3)
    link = member.connect_to(THERE)
    assert member.send_marker(THERE, KEY, ObjectKind.INSTANCE_SPOT, 3)
    header = parse_record_header(link.records[0])
    assert header.flags & FLAG_MARKER
    assert header.key == KEY


async def test_senders_are_told_of_routes_and_markers(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = LocalObject(KEY, ObjectKind.INSTANCE_SPOT, "Device", Place.ACTIVE)
    held.settle(5, 3, member.run, member.lease_generation)
    member.notice_route(THERE, held)
    member.answer_marker(THERE, 9, held)  # nobody there to be told
    link = member.connect_to(THERE)
    member.notice_route(THERE, held)
    member.answer_marker(THERE, 9, held)
    notice, taken = link.controls
    assert isinstance(notice, mesh.RouteNotice)
    assert isinstance(taken, mesh.MarkerTaken)
    assert (notice.key, notice.object_generation, notice.owner_generation) == (KEY, 5, 3)
    assert (taken.number, taken.key) == (9, KEY)
    answered: list[int] = []
    monkeypatch.setattr(member.senders, "marker_answered", lambda number, route: answered.append(number))
    member.answer_marker(member.run, 10, held)
    assert answered == [10]


# the member itself


async def test_a_failing_internal_task_is_logged(member: Member, caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise InternalFailure("a bug")

    async def waits() -> None:
        await asyncio.Event().wait()

    member.start(fails())
    member.start(waits())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.records] == ["internal task failed"]
    (left,) = member._tasks
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    assert member._tasks == set()
    assert len(caplog.records) == 1


async def test_events_carry_their_fields(member: Member, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sojourn.node")
    member.log("too_fine", "debug", detail=1)
    member.log("worth_it", "info", detail=2)
    (record,) = caplog.records
    assert record.__dict__["sojourn"] == {"node": str(member.run), "detail": 2}


def test_generations_of_later_runs_are_greater() -> None:
    first = new_generation()
    assert 0 < first < 2**62
    assert new_generation() >> 10 >= first >> 10
