"""What passes between a member and the mesh: records, replies, markers and notices on their way out.

Owns the run's identity and the sending of everything; how a member joins, keeps its lease and hears from its
peers is `sojourn.workers.member`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Coroutine
from typing import Any

from sojourn import frames, mesh
from sojourn.blobs import RelocationStore
from sojourn.control import ErrorBody, encode_error
from sojourn.errors import (
    NotFound,
    SojournError,
    Unavailable,
)
from sojourn.frames import FLAG_INTENT, FLAG_REQUEST, RecordHeader, ReplyHeader
from sojourn.handshake_octets import PeerRole
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, describe_key
from sojourn.location import LocationStore
from sojourn.options import Options
from sojourn.placement import PlacementQuery, choose_node
from sojourn.rows import (
    HostState,
    NodeDescriptor,
    Owner,
)
from sojourn.wire import fast_record
from sojourn.wire.record import NodeSource
from sojourn.workers.debt import Debt
from sojourn.workers.directory import Directory
from sojourn.workers.lanes import RunningRequest, WorkerLane
from sojourn.workers.lease_keeper import LeaseKeeper
from sojourn.workers.links import Links
from sojourn.workers.objects import LocalObject, Place, route_fence
from sojourn.workers.peer_calls import PeerCalls
from sojourn.workers.records import (
    error_reply,
    marker_frame,
    marker_number,
    record_origin,
    too_large,
    unbind_payload,
)
from sojourn.workers.roster import Roster
from sojourn.workers.router import Router, lost_error
from sojourn.workers.routes import Route
from sojourn.workers.senders import Outstanding, SenderPaths
from sojourn.workers.store_health import StoreHealth

__all__ = ["LEVELS", "Exchange", "new_generation"]

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def new_generation() -> int:
    """A node generation: non-zero, new for every process run (B1.1)."""
    return (time.time_ns() // 1000 << 10 | secrets.randbits(10)) & (2**62 - 1)


class Exchange:
    """The outward half of a member: what `SenderPaths` and `Router` need from it (`Exits`, `RouterHost`)."""

    role = PeerRole.NODE

    def __init__(
        self, rid: bytes, options: Options, host: str | None, port: int, advertise: str = ""
    ) -> None:
        self.options = options
        self.run = NodeRun(rid, new_generation())
        self.owner_id = f"{rid.decode('utf-8', 'backslashreplace')[:200]}@{self.run.generation}"
        self.lease_generation = self.run.generation
        self.state = HostState.PREPARING
        self.cordoned = False
        self.roster = Roster()
        self.lanes: dict[int, WorkerLane] = {}
        self.calls = PeerCalls(self._send_call)
        self.logger = logging.getLogger("sojourn.node")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._host = host
        self._port = port
        self._advertise = advertise
        self.loop: asyncio.AbstractEventLoop
        self.store: LocationStore
        self.blobs: RelocationStore
        self.links: Links
        self.directory: Directory
        self.senders: SenderPaths
        self.router: Router
        self.keeper: LeaseKeeper
        self.source_prefix = fast_record.encode_source_prefix(
            NodeSource(self.run.rid, self.run.generation, self.owner_id, self.lease_generation)
        )
        self.counters: dict[str, int] = {}
        self.store_health = StoreHealth(self._store_changed)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that this member owns; a failure in it is a bug and is logged as one."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.logger.error("internal task failed", exc_info=task.exception())

    def log(self, event: str, level: str, **fields: object) -> None:
        """One structured log event (B12.1): the name is the message, the fields are in `sojourn`."""
        number = LEVELS[level]
        if self.logger.isEnabledFor(number):
            self.logger.log(number, event, extra={"sojourn": {"node": str(self.run), **fields}})

    def _store_changed(self, failing: bool, error: str) -> None:
        if failing:
            self.log("store_failing", "warning", error=error)
        else:
            self.log("store_works_again", "info", errors=self.store_health.errors)

    def count(self, name: str, amount: int = 1) -> None:
        """Add to one of the member's counters (B3.5, B12.2)."""
        self.counters[name] = self.counters.get(name, 0) + amount

    @property
    def owner(self) -> Owner:
        """The owner block of rows that name this run."""
        return Owner(self.run.rid, self.run.generation, self.owner_id, self.lease_generation)

    def _connected(self, run: NodeRun) -> bool:
        return run == self.run or self.links.get(run) is not None

    def connected_runs(self) -> set[NodeRun]:
        """This run and every run with a usable link."""
        return {self.run, *(link.peer for link in self.links.all())}

    def refusals(self) -> dict[NodeRun, str]:
        """Why there is no link to a run, where one was tried in vain."""
        return {run: error.message for run, error in self.links.refusals().items()}

    def find_node(self, rid: bytes) -> NodeDescriptor:
        """The known node of a RID; see `Roster.by_rid`."""
        return self.roster.by_rid(rid, self.connected_runs())

    async def connect(self, run: NodeRun) -> None:
        """Establish the link to a run, or raise Unavailable."""
        if self.links.get(run) is None:
            await self.look_for(run)
            await self.links.ensure(run, self.roster.endpoint(run))

    async def look_for(self, run: NodeRun) -> None:
        """Ask the store for a run that somebody names and the roster has not. Nodes announce themselves to those they
        dial; nobody dials a client, which would know of a new node only at its next scan."""

    # Exits: what the sending side needs ---------------------------------------------------------

    async def resolve(self, key: ObjectKey, header: RecordHeader) -> Route:
        """Look an object up; for a missing Instance Spot choose a node (see `Exits`)."""
        found = await self.directory.owner_of(key)
        wanted = bool(header.flags & FLAG_INTENT)
        if found is not None and not found.lost:
            await self.look_for(found.run)
            if found.run == self.run or self._connected(found.run) or self.roster.get(found.run):
                return Route(
                    found.run,
                    found.kind,
                    found.object_generation,
                    found.owner_generation,
                    found.fence,
                    self.loop.time(),
                )
            if not wanted:
                raise Unavailable(
                    f"{describe_key(key)} was on node {found.run}, which is gone",
                    object_id=describe_key(key),
                    applied="no",
                )
        elif not wanted:
            raise lost_error(key) if found is not None else _missing(key)
        query = PlacementQuery(
            key,
            ObjectKind(header.object_kind),
            header.stable_type.decode(),
            connected=self.connected_runs(),
            refused=self.refusals(),
        )
        node = choose_node(query, self.roster.nodes()).require(query)
        return Route(node.run, header.object_kind, 0, 0, b"", self.loop.time())

    def send_to(self, run: NodeRun, body: bytes, debt: Debt | None) -> bool:
        """Put a record on the link to a run, which settles the debt; False when there is none."""
        link = self.links.get(run)
        if link is None:
            return False
        if len(body) > link.peer_frame_octets_max:
            if debt is not None:
                debt.settle()
            error = too_large("the message", len(body), run, link.peer_frame_octets_max)
            self.fail_record(body, frames.parse_record_header(body), error)
            return True
        link.send_record(body, debt)
        return True

    def send_reply(self, run: NodeRun, body: bytes) -> bool:
        """Put a reply on the link to a run; False when there is none."""
        link = self.links.get(run)
        if link is None:
            self.count("replies_without_link")
            return False
        if len(body) > link.peer_frame_octets_max:
            header = frames.parse_reply_header(body)
            error = too_large("the reply", len(body), run, link.peer_frame_octets_max)
            high, low = header.operation_high, header.operation_low
            body = error_reply(run, header.reply_route, high, low, encode_error(ErrorBody.of(error)))
        link.send(body)
        return True

    def deliver_here(self, body: bytes, header: RecordHeader, debt: Debt | None) -> bool:
        """Give a record to the object on this node; False when it is not here."""
        held = self.router.objects.get(header.key)
        if held is None:
            return False
        self.router.to_object(held, body, header, debt, None)
        return True

    def send_marker(self, run: NodeRun, key: ObjectKey, kind: int, number: int) -> bool:
        """Put a path marker (B9.4) on the link to a run; False when there is none."""
        link = self.links.get(run)
        if link is None:
            return False
        operation = (secrets.randbits(64) | 1, number)
        body = marker_frame(self.source_prefix, number, key, kind, operation)
        header = frames.parse_record_header(body)
        fence = route_fence(key, kind, 1, run, 1, 1)
        link.send_record(frames.complete_record(body, header, fence, 0))
        return True

    def fail_record(self, body: bytes, header: RecordHeader, error: SojournError) -> None:
        """End a record with a typed error (request) or a dead letter (send)."""
        if header.flags & FLAG_REQUEST:
            self.count("failed_requests")
            origin = record_origin(body, header.record_at)
            high, low = header.operation_high, header.operation_low
            encoded = encode_error(ErrorBody.of(error))
            self.router.reply(error_reply(origin, header.reply_route, high, low, encoded))
        elif header.flags & frames.FLAG_MARKER:
            self._refuse_marker(record_origin(body, header.record_at), marker_number(body))
        elif not header.flags & frames.FLAG_LOOP:
            self.count("dead_letters")
            self.log("dead_letter", "warning", object_id=describe_key(header.key), reason=str(error))
        elif unbind_payload(body, header) is not None:
            self.unbind_failed(header.key, error)

    def unbind_failed(self, key: ObjectKey, error: SojournError) -> None:
        """An unbind on its way did not come to the Actor's row: a later move of the Actor asks the session owner in
        vain, and goes on without a seal (B11.2)."""
        name = describe_key(key)
        self.log("unbind_failed", "warning", object_id=name, kind=error.kind, reason=str(error))

    def _refuse_marker(self, origin: NodeRun, number: int) -> None:
        """A path marker that nobody takes in: its sender need not wait for it."""
        if origin == self.run:
            self.senders.marker_refused(number)
            return
        link = self.links.get(origin)
        if link is not None:
            link.send_control(mesh.MarkerRefused(number))

    def accounts_for(self, key: ObjectKey) -> bool:
        """Whether the object, a staging or an unfinished move of it is here."""
        held = self.router.objects.get(key)
        return held is not None and held.place is not Place.FOLLOW

    def fail_request(self, reply_route: int, request: Outstanding, error: SojournError) -> None:
        """End one of this node's own requests with a typed error."""
        self.senders.outstanding.pop(reply_route, None)
        high, low = request.operation_high, request.operation_low
        body = error_reply(self.run, reply_route, high, low, encode_error(ErrorBody.of(error)))
        self.deliver_reply(reply_route, body)

    # RouterHost ---------------------------------------------------------------------------------

    def reply_moved(self, request: RunningRequest, header: ReplyHeader, body: bytes) -> None:
        """Send the reply to a request that came with a move; a member without objects has none."""

    def request_followed(self, held: LocalObject, body: bytes, header: RecordHeader) -> None:
        """A record that was followed here; a member without objects has none."""

    def deliver_reply(self, reply_route: int, body: bytes) -> None:
        """Give a reply to this node's own requester; a member without requesters has none."""

    def activate(self, body: bytes, header: RecordHeader, debt: Debt | None) -> None:
        """A record for an object that is not here: a member without objects refuses it."""
        if debt is not None:
            debt.settle()
        self.fail_record(body, header, _missing(header.key))

    def notice_route(self, to: NodeRun, held: LocalObject) -> None:
        """Tell a sender the generations of an object that is here."""
        link = self.links.get(to)
        if link is not None:
            link.send_control(
                mesh.RouteNotice(
                    held.key, held.kind, held.object_generation, held.owner_generation, self.lease_generation
                )
            )

    def unbind_arrived(self, held: LocalObject, body: bytes, header: RecordHeader) -> None:
        """Bindings are written by supervisors; a member without objects has none."""

    def notice_follow(self, to: NodeRun, held: LocalObject, header: RecordHeader) -> None:
        """Command 50 is the supervisor's."""

    def answer_marker(self, to: NodeRun, number: int, held: LocalObject) -> None:
        """Tell a sender that its marker was taken in here."""
        self.senders.marker_taken_from(held.key, to)
        taken = mesh.MarkerTaken(
            number,
            held.key,
            held.kind,
            held.object_generation,
            held.owner_generation,
            self.lease_generation,
        )
        if to == self.run:
            self.marker_taken(self.run, taken)
            return
        link = self.links.get(to)
        if link is not None:
            link.send_control(taken)

    def marker_taken(self, run: NodeRun, taken: mesh.MarkerTaken) -> None:
        """The node that took a marker of this node in answers (B9.4)."""
        self.senders.marker_answered(taken.number, self._route_of(run, taken))

    def marker_ended(self) -> None:
        """A marker of this node's senders ended, with or without an answer."""

    def _route_of(self, run: NodeRun, told: mesh.MarkerTaken | mesh.RouteNotice) -> Route:
        fence = route_fence(
            told.key, told.kind, told.object_generation, run, told.owner_generation, told.lease_generation
        )
        return Route(run, told.kind, told.object_generation, told.owner_generation, fence, self.loop.time())

    def _send_call(self, run: NodeRun, message: mesh.Call | mesh.CallResult) -> bool:
        link = self.links.get(run)
        if link is None:
            return False
        link.send_control(message)
        return True


def _missing(key: ObjectKey) -> NotFound:
    return NotFound(f"{describe_key(key)} does not exist", object_id=describe_key(key))
