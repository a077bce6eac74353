"""Replies that moved, at both ends, without processes: what is kept, sent, stored and let go of (B7.1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sojourn import mesh
from sojourn.control import ErrorBody, SavedRequest, decode_error, encode_error
from sojourn.errors import ERROR_KINDS, ProtocolError, Unavailable
from sojourn.frames import FLAG_ERROR, parse_reply_header, reply_frame
from sojourn.handoff import replies as rp
from sojourn.ids import NodeRun, ObjectKind, spot_key
from sojourn.location import StoreUnavailable
from sojourn.options import Options
from sojourn.rows import Owner
from sojourn.spots.results import read_result
from sojourn.store.memory import MemoryRelocationStore
from sojourn.wire import (
    ColdActivationContext,
    CoordinatorFence,
    GenerationFence,
    MaintenanceRelocationContext,
    OperationId,
    RelocationId,
    RelocationIdentity,
    ReplyRelay,
    ReplyRelayAck,
    ReplyRelayStatus,
    decode_command,
    encode_command,
)
from sojourn.wire.companion_commands import ActivationFailure
from sojourn.wire.fast_record import encode_payload
from sojourn.wire.results import FailureCode, TerminalResult
from sojourn.workers import replies as module
from sojourn.workers.debt import Retention
from sojourn.workers.lanes import RunningRequest, WorkerLane
from sojourn.workers.objects import LocalObject, Place
from sojourn.workers.relayed import RelayedEnds
from sojourn.workers.replies import MovedReplies, TakenRequests
from sojourn.workers.reply_frames import (
    blob_of_reply,
    error_of,
    relay_of,
    reply_of_blob,
    reply_reference,
    terminal_of,
)
from sojourn.workers.senders import Outstanding

from tests.links.members import turn_until

ASKER, HERE = NodeRun(b"asker", 5), NodeRun(b"here", 7)
KEY = spot_key("x")
ROUTE = (1 << 48) | 3
OPERATION = (9, 10)
REQUEST = RunningRequest(KEY, *OPERATION, True, 4)
IDENTITY = RelocationIdentity(RelocationId(1, 2), 1, CoordinatorFence("s@1", 1, b"s", 1, "v1"))
REFERENCE = reply_reference(ASKER.generation, *OPERATION)


class Wire:
    """One link's sending half."""

    def __init__(self, node: FakeMember, peer: NodeRun, limit: int = 2**20) -> None:
        self.peer = peer
        self.connection_id = len(node.wires) + 1
        self.peer_frame_octets_max = limit
        self.closing = False
        self.sent: list[Any] = []
        self.unwritten: list[Callable[[bool], None]] = []
        node.wires.append(self)

    def send(self, body: bytes) -> None:
        self.sent.append(("reply", body))

    def send_control(self, message: mesh.MeshControl) -> None:
        self.sent.append(("control", message))

    def send_contract(
        self, parts: list[bytes], deadline_ms: int = 0, on_written: Callable[[bool], None] | None = None
    ) -> None:
        self.sent.append(("contract", decode_command(parts[0], parts[1:]), parts))
        if on_written is not None:
            self.unwritten.append(on_written)

    def commands(self) -> list[Any]:
        return [entry[1] for entry in self.sent if entry[0] == "contract"]


class Leaving(Wire):
    """The sending half of a link whose goodbye is out: it refuses everything, as a real one does."""

    def __init__(self, node: FakeMember, peer: NodeRun) -> None:
        super().__init__(node, peer)
        self.closing = True

    def send_control(self, message: mesh.MeshControl) -> None:
        raise Unavailable("the link is closed")

    def send_contract(
        self, parts: list[bytes], deadline_ms: int = 0, on_written: Callable[[bool], None] | None = None
    ) -> None:
        raise Unavailable("the link is closed")


class FakeMember:
    """What both ends need from their member."""

    def __init__(self, run: NodeRun, blobs: MemoryRelocationStore) -> None:
        self.loop = asyncio.get_running_loop()
        self.run = run
        self.owner = Owner(run.rid, run.generation, f"{run}", run.generation)
        self.options = Options()
        self.blobs = blobs
        self.retention = Retention(2**30)
        self.lanes = {0: WorkerLane(lambda body: None, 10)}
        self.wires: list[Wire] = []
        self.counters: dict[str, int] = {}
        self.logged: list[str] = []
        self.delivered: list[bytes] = []
        self.failed: list[Any] = []
        self.alive: set[NodeRun] = set()
        self.up: dict[NodeRun, Wire] = {}
        self.senders = cast(Any, self)
        self.outstanding: dict[int, Outstanding] = {}
        self.links = cast(Any, self.up)
        self.roster = cast(Any, self)
        self._tasks: set[asyncio.Task[None]] = set()

    def get(self, run: NodeRun) -> NodeRun | None:
        return run if run in self.alive else None

    def connect(self, run: NodeRun, limit: int = 2**20) -> Wire:
        wire = self.up[run] = Wire(self, run, limit)
        return wire

    def count(self, name: str, amount: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + amount

    def log(self, event: str, level: str, **fields: object) -> None:
        self.logged.append(event)

    def start(self, work: Any) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def idle(self) -> None:
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def send_reply(self, run: NodeRun, body: bytes) -> bool:
        wire = self.up.get(run)
        if wire is not None:
            wire.send(body)
        return wire is not None

    def deliver_reply(self, route: int, body: bytes) -> None:
        self.delivered.append(body)

    def fail_request(self, route: int, request: Outstanding, error: Any) -> None:
        del self.outstanding[route]
        self.failed.append(error)


class Ends:
    """The node where a request ended, and the one that asked."""

    def __init__(self) -> None:
        self.blobs = MemoryRelocationStore()
        self.here, self.asker = FakeMember(HERE, self.blobs), FakeMember(ASKER, self.blobs)
        self.kept = MovedReplies(cast(Any, self.here))
        self.relayed = RelayedEnds(cast(Any, self.asker))
        self.held = LocalObject(KEY, ObjectKind.INSTANCE_SPOT, "X", Place.ACTIVE)
        self.taken = TakenRequests(cast(Any, self.here), [self.held], IDENTITY, 0, [])
        self.asker.outstanding[ROUTE] = Outstanding(KEY, HERE, *OPERATION, moved=True)

    def end(self, result: bytes = b"", flags: int = 0, request: RunningRequest = REQUEST) -> bytes:
        body = reply_frame(
            flags, ROUTE, request.operation_high, request.operation_low, *ASKER, result or RESULT
        )
        self.kept.ended(self.held, request, parse_reply_header(body), body)
        return body

    def up(self, limit: int = 2**20) -> Wire:
        wire = self.here.connect(ASKER, limit)
        self.kept.link_up(cast(Any, wire))
        return wire

    def down(self) -> None:
        wire = self.here.up.pop(ASKER)
        self.kept.link_down(cast(Any, wire))

    def pass_on(self, wire: Wire) -> ReplyRelayAck:
        """The asker takes the last 33, and its 46 comes back."""
        _, command, parts = next(entry for entry in reversed(wire.sent) if entry[0] == "contract")
        back = Wire(self.asker, HERE)
        self.relayed.relay_arrived(cast(Any, back), command, parts)
        (ack,) = back.commands()
        self.kept.acknowledged(cast(Any, wire), ack)
        return cast(ReplyRelayAck, ack)


RESULT = encode_payload("h", "application/x-sojourn+msgpack", b"\x07")


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    it = Ends()
    yield it
    it.kept.close()
    await it.here.idle()
    await it.asker.idle()


async def test_the_reply_goes_at_once_and_the_33_once_it_is_stored(ends: Ends) -> None:
    wire = ends.up()
    body = ends.end()
    assert wire.sent == [("reply", body)]
    await ends.here.idle()
    (command,) = wire.commands()
    assert (command.terminal_result, command.failure_code) == (TerminalResult.OK, FailureCode.NONE)
    assert command.context.relocation_identity == IDENTITY
    assert command.context.sequence == 4
    assert reply_of_blob(await ends.blobs.read(REFERENCE) or b"") == body
    ack = ends.pass_on(wire)
    assert ack.status is ReplyRelayStatus.TERMINAL_RECEIVED
    assert ack.request_source_fence.node_rid == ASKER.rid
    assert ends.asker.delivered == [body]
    assert ends.asker.outstanding == {}
    await ends.here.idle()
    assert await ends.blobs.read(REFERENCE) is None
    assert (len(ends.kept), ends.kept.octets, ends.here.retention.octets) == (0, 0, 0)


async def test_a_33_again_is_acknowledged_again(ends: Ends) -> None:
    wire = ends.up()
    ends.end()
    await ends.here.idle()
    assert ends.pass_on(wire).status is ReplyRelayStatus.TERMINAL_RECEIVED
    assert ends.pass_on(wire).status is ReplyRelayStatus.ALREADY_TERMINAL


async def test_a_stored_reply_stays_until_its_requester_has_it_from_whoever_found_it(ends: Ends) -> None:
    """The node that stored it has ended; the source of the move brings it (R5.2), over a link that breaks."""
    body = reply_frame(0, ROUTE, *OPERATION, *ASKER, RESULT)
    await ends.blobs.put(REFERENCE, blob_of_reply(body))
    first = ends.up()
    ends.kept.bring(body, MaintenanceRelocationContext(IDENTITY, 1, 1))
    assert first.sent == [("reply", body)]
    await ends.here.idle()
    ends.down()  # the reply was on its way
    assert await ends.blobs.read(REFERENCE) is not None
    ends.pass_on(ends.up())
    assert ends.asker.delivered == [body]
    await ends.here.idle()
    assert await ends.blobs.read(REFERENCE) is None
    assert (len(ends.kept), ends.here.retention.octets) == (0, 0)


async def test_a_stored_reply_to_the_own_node_is_delivered_and_deleted(ends: Ends) -> None:
    delivered: list[bytes] = []
    cast(Any, ends.here).router = SimpleNamespace(reply=delivered.append)
    body = reply_frame(0, ROUTE, *OPERATION, *HERE, RESULT)
    reference = reply_reference(HERE.generation, *OPERATION)
    await ends.blobs.put(reference, blob_of_reply(body))
    ends.kept.bring(body, MaintenanceRelocationContext(IDENTITY, 1, 1))
    await ends.here.idle()
    assert delivered == [body]
    assert await ends.blobs.read(reference) is None
    assert len(ends.kept) == 0


async def test_it_waits_for_the_requester_and_is_repeated(ends: Ends) -> None:
    ends.end()
    await ends.here.idle()
    first = ends.up()
    assert len(first.commands()) == 1
    ends.down()
    second = ends.up()
    ends.pass_on(second)
    ends.down()
    assert ends.up().sent == []


async def test_an_error_is_told_whole_and_in_front_of_its_33(ends: Ends) -> None:
    error = ErrorBody.of(ProtocolError("what happened"))
    body = ends.end(encode_error(error), FLAG_ERROR)
    await ends.here.idle()
    wire = ends.up()
    assert wire.sent[0] == ("reply", body)
    (command,) = wire.commands()
    assert (command.terminal_result, command.payload) == (TerminalResult.PROTOCOL_ERROR, None)
    ends.pass_on(wire)
    told = ends.asker.delivered[0]
    header = parse_reply_header(told)
    assert header.flags & FLAG_ERROR
    assert decode_error(memoryview(told)[header.body_at :]).kind == "ProtocolError"


async def test_a_reply_that_the_requester_cannot_read_becomes_an_error(ends: Ends) -> None:
    ends.end(encode_payload("h", "application/x-sojourn+msgpack", bytes(5000)))
    await ends.here.idle()
    wire = ends.up(limit=4096)
    (command,) = wire.commands()
    assert command.terminal_result is TerminalResult.INVALID_STATE
    assert wire.sent[0][0] == "reply"
    assert ends.kept.octets < 4096


async def test_a_store_that_is_away_costs_only_the_copy(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*arguments: Any) -> bool:
        raise StoreUnavailable("away", applied="no")

    monkeypatch.setattr(ends.blobs, "put", away)
    ends.end()
    await ends.here.idle()
    assert ends.here.counters["replies_not_stored"] == 1
    assert len(ends.up().commands()) == 1


async def test_memory_is_bounded_by_what_the_store_has(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_OCTETS_MAX", 150)
    body = ends.end()
    await ends.here.idle()
    other = RunningRequest(KEY, 9, 11, True, 0)
    ends.end(request=other)
    assert len(ends.kept) == 2
    assert ends.kept.octets == len(body)
    await ends.here.idle()
    wire = ends.up()
    await ends.here.idle()
    assert {command.operation_id.low for command in wire.commands()} == {10, 11}
    assert {command.context.sequence for command in wire.commands()} == {1, 4}
    assert ends.kept.octets == len(body)


@pytest.mark.parametrize("written", [True, False], ids=["written", "connection broke"])
async def test_what_is_read_back_and_not_written_is_bounded_in_octets(
    monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    monkeypatch.setattr(module, "KEPT_OCTETS_MAX", 150)
    monkeypatch.setattr(module, "FETCHED_OCTETS_MAX", 150)
    ends = Ends()
    for low in range(10, 14):
        ends.end(request=RunningRequest(KEY, 9, low, True, low))
        await ends.here.idle()
    assert ends.kept._room(150)
    assert ends.kept.octets == 0
    wire = ends.up()
    for answered in range(1, 5):
        await turn_until(lambda count=answered: len(wire.unwritten) == count)
        await asyncio.sleep(0)
        assert [command.operation_id.low for command in wire.commands()] == list(range(10, 10 + answered))
        assert ends.kept.octets == 0
        wire.unwritten[-1](written)
    await ends.here.idle()
    assert ends.kept._fetched.total == 0
    ends.kept.close()


async def test_a_reply_that_is_not_needed_any_more_is_not_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_OCTETS_MAX", 150)
    monkeypatch.setattr(module, "FETCHED_OCTETS_MAX", 150)
    ends = Ends()
    for low in (10, 11):
        ends.end(request=RunningRequest(KEY, 9, low, True, low))
        await ends.here.idle()
    assert ends.kept._room(150)
    reads: list[str] = []
    read = ends.blobs.read

    async def noted(reference: str) -> bytes | None:
        reads.append(reference)
        return await read(reference)

    monkeypatch.setattr(ends.blobs, "read", noted)
    wire = ends.up()
    await turn_until(lambda: wire.unwritten)
    ends.down()  # the second still waits for its turn
    wire.unwritten[0](False)
    await ends.here.idle()
    assert len(reads) == 1
    wire = ends.up()
    await turn_until(lambda: wire.unwritten)
    wire.unwritten[0](True)
    await turn_until(lambda: len(wire.unwritten) == 2)
    wire.unwritten[1](True)
    await ends.here.idle()
    assert ends.kept._fetched.total == 0
    ends.kept.close()


async def test_more_than_may_be_kept_is_sent_once_as_any_reply(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_REPLIES_MAX", 0)
    wire = ends.up()
    body = ends.end()
    await ends.here.idle()
    assert wire.sent == [("reply", body)]
    assert ends.here.counters["replies_not_kept"] == 1
    assert await ends.blobs.read(REFERENCE) is None


async def test_a_look_for_room_in_vain_is_not_repeated_at_once(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*arguments: Any) -> bool:
        raise StoreUnavailable("away", applied="no")

    monkeypatch.setattr(ends.blobs, "put", away)
    monkeypatch.setattr(module, "KEPT_OCTETS_MAX", 150)
    ends.end()
    await ends.here.idle()
    looks: list[Any] = []
    handle = ends.kept._handle

    def counting(kept: Any, event: Any) -> None:
        looks.append(event)
        handle(kept, event)

    monkeypatch.setattr(ends.kept, "_handle", counting)
    for low in (11, 12, 13):
        ends.end(request=RunningRequest(KEY, 9, low, True))
    assert looks == [rp.MemoryShort()]
    assert ends.here.counters["replies_not_kept"] == 3
    assert len(ends.kept) == 1


async def test_a_requester_that_ended_ends_it(ends: Ends) -> None:
    ends.here.alive.add(ASKER)
    ends.end()
    await ends.here.idle()
    ends.kept.look_around()
    assert len(ends.kept) == 1
    ends.here.alive.clear()
    ends.kept.look_around()
    await ends.here.idle()
    assert len(ends.kept) == 0
    assert await ends.blobs.read(REFERENCE) is None


async def test_a_reply_of_an_object_that_did_not_move_is_any_reply(ends: Ends) -> None:
    wire = ends.up()
    ends.held.moved = None
    body = ends.end()
    await ends.here.idle()
    assert wire.sent == [("reply", body)]


async def test_a_node_that_ended_left_its_reply_in_the_store(ends: Ends) -> None:
    body = ends.end()
    await ends.here.idle()
    ends.asker.alive.add(HERE)
    ends.relayed.look_around()
    await ends.asker.idle()
    assert ends.asker.delivered == []
    ends.asker.alive.clear()
    ends.relayed.look_around()
    await ends.asker.idle()
    assert ends.asker.delivered == [body]
    assert await ends.blobs.read(REFERENCE) is None


async def away(reference: str) -> bytes | None:
    raise StoreUnavailable("away", applied="no")


async def nothing(reference: str) -> bytes | None:
    return None


async def damaged(reference: str) -> bytes | None:
    return blob_of_reply(b"no reply")


@pytest.mark.parametrize("read", [away, nothing, damaged])
async def test_without_a_stored_reply_it_is_in_doubt(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, read: Callable[[str], Any]
) -> None:
    monkeypatch.setattr(ends.blobs, "read", read)
    ends.relayed.look_around()
    await ends.asker.idle()
    (error,) = ends.asker.failed
    assert (error.kind, error.applied) == ("Unavailable", "unknown")


async def test_requesters_are_told_where_their_ends_will_come_from(ends: Ends) -> None:
    wire = ends.up()
    saved = [
        SavedRequest(KEY, *ASKER, ROUTE, *OPERATION, 2),
        SavedRequest(KEY, b"nobody", 1, 4, 5, 6, 3),
    ]
    taken = TakenRequests(cast(Any, ends.here), [ends.held], IDENTITY, 0, saved)
    taken.tell()
    lane = ends.here.lanes[0]
    assert lane.answered(*ASKER, ROUTE) == RunningRequest(KEY, *OPERATION, True, 2)
    (entry,) = wire.sent
    assert entry[1] == mesh.RequestsTaken(KEY, [(ROUTE, *OPERATION)])
    ends.asker.outstanding.clear()
    ends.relayed.requests_taken(HERE, entry[1])
    assert ends.asker.outstanding == {ROUTE: Outstanding(KEY, HERE, *OPERATION, moved=True)}
    ends.asker.outstanding[ROUTE] = Outstanding(KEY, ASKER, 1, 1)
    ends.relayed.requests_taken(HERE, entry[1])
    assert ends.asker.outstanding[ROUTE].run == ASKER, "the route belongs to another request by now"


async def test_an_unknown_end_is_acknowledged_whatever_its_context(ends: Ends) -> None:
    fence = GenerationFence(1, "o@1", 1, 1, "v")
    command = ReplyRelay(
        operation_id=OperationId(5, 6),
        reply_route_id=7,
        context=ColdActivationContext(ActivationFailure(fence)),
        terminal_result=TerminalResult.TIMED_OUT,
        failure_code=FailureCode.NONE,
    )
    wire = Wire(ends.asker, HERE)
    ends.relayed.relay_arrived(cast(Any, wire), command, encode_command(command))
    (ack,) = wire.commands()
    assert (ack.status, ack.operation_id) == (ReplyRelayStatus.ALREADY_TERMINAL, OperationId(5, 6))
    assert ends.asker.delivered == [], "no route of a worker or client"


async def test_a_member_that_leaves_takes_an_end_and_answers_nothing(ends: Ends) -> None:
    """Its link refuses what is sent behind the goodbye; an error there would cut what was accepted before."""
    wire = ends.up()
    ends.end()
    await ends.here.idle()
    (entry,) = (entry for entry in wire.sent if entry[0] == "contract")
    _, command, parts = entry
    leaving = Leaving(ends.asker, HERE)
    ends.relayed.relay_arrived(cast(Any, leaving), command, parts)
    assert ends.asker.outstanding == {}
    assert len(ends.asker.delivered) == 1


async def test_an_ok_without_a_payload_is_none(ends: Ends) -> None:
    body = reply_frame(0, ROUTE, *OPERATION, *ASKER, RESULT)
    context = ends.held.moved and ends.held.moved.context(REQUEST)
    assert context
    parts = relay_of(body, parse_reply_header(body), context)[:1]
    command = decode_command(parts[0], [])
    wire = Wire(ends.asker, HERE)
    ends.relayed.relay_arrived(cast(Any, wire), cast(ReplyRelay, command), parts)
    (told,) = ends.asker.delivered
    assert told[read_result(told, parse_reply_header(told).body_at)[1] :] == b"\xc0"


@pytest.mark.parametrize("kind", sorted(ERROR_KINDS))
def test_every_error_kind_survives_a_33(kind: str) -> None:
    error = error_of(*terminal_of(kind), "op")
    assert error.kind == kind
    assert error.operation_id == "op"


@pytest.mark.parametrize("result", [result for result in TerminalResult if result])
def test_every_terminal_is_an_error(result: TerminalResult) -> None:
    assert error_of(result, FailureCode.NONE, "op").kind in ERROR_KINDS
