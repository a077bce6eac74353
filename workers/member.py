"""A member of the mesh: what supervisors and clients have in common (B13.1).

Owns the run's identity, its lease, its links, the roster of the others and the calls between nodes. What a
member does with records and replies that reach it is decided by its router; objects, workers and moves are
the supervisor's.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Coroutine, Sequence
from typing import Any

from sojourn import frames, mesh
from sojourn.blobs import RelocationStore
from sojourn.control import encode_error
from sojourn.errors import (
    NotConfigured,
    NotFound,
    ProtocolError,
    SojournError,
    Unavailable,
    error_from_fields,
)
from sojourn.frames import FLAG_INTENT, FLAG_REQUEST, RecordHeader
from sojourn.handshake_octets import PeerRole
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, actor_key, describe_key, spot_key
from sojourn.lease import LeaseClock
from sojourn.location import LocationStore
from sojourn.options import Options
from sojourn.ownership import publish_descriptor
from sojourn.placement import PlacementQuery, choose_node
from sojourn.rows import (
    NODE_PREFIX,
    HostState,
    NodeDescriptor,
    Owner,
    OwnerLease,
    decode_descriptor,
    encode_descriptor,
)
from sojourn.store import open_location_store, open_relocation_store
from sojourn.wire import ActorRouteFence, MessageFollow, decode_command, fast_record
from sojourn.wire.companion_commands import MessageFollowEnvelope
from sojourn.wire.record import NodeSource
from sojourn.workers.debt import Debt
from sojourn.workers.directory import Directory
from sojourn.workers.lanes import WorkerLane
from sojourn.workers.lease_keeper import LeaseKeeper, boot_ms
from sojourn.workers.link import Link, LinkOptions
from sojourn.workers.links import Links
from sojourn.workers.objects import LocalObject, Place, route_fence
from sojourn.workers.peer_calls import PeerCalls, error_body
from sojourn.workers.records import error_reply, marker_frame, marker_number, record_origin, too_large
from sojourn.workers.roster import Roster
from sojourn.workers.router import Router, lost_error
from sojourn.workers.routes import Route
from sojourn.workers.senders import Outstanding, SenderPaths
from sojourn.workers.stream import Piece

__all__ = ["Member", "new_generation"]

REFRESH_S = 5.0
"""How often the rows of the nodes are scanned again; news travels over links, this only repairs."""
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def new_generation() -> int:
    """A node generation: non-zero, new for every process run (B1.1); later runs are greater."""
    return (time.time_ns() // 1000 << 10 | secrets.randbits(10)) & (2**62 - 1)


class Member:
    """See the module text. Subclasses: `Supervisor`, `Client`."""

    role = PeerRole.NODE

    def __init__(self, rid: bytes, options: Options, host: str | None, port: int) -> None:
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

    # life ---------------------------------------------------------------------------------------

    async def join(self) -> None:
        """Open stores and the listener, take the lease, and link up with every live node.

        Raises:
            NotConfigured: a setting is wrong (store address, port in use, secret missing).
            StoreUnavailable: the store cannot be reached.
        """
        options = self.options
        self.loop = asyncio.get_running_loop()
        timeout_ms = options.store_timeout_ms
        self.store = open_location_store(options.store_url, options.cluster, timeout_ms=timeout_ms)
        self.blobs = open_relocation_store(options.store_url, options.cluster, timeout_ms=timeout_ms)
        self.links = Links(
            self.run,
            options.cluster,
            options.secret.encode(),
            self,
            role=self.role,
            host=self._host,
            port=self._port,
            options=_link_options(options),
        )
        self.senders = SenderPaths(
            self,
            self.loop,
            cache_age_s=options.route_cache_age_ms / 1000,
            marker_limit_s=options.marker_limit_ms / 1000,
            follow_s=options.follow_duration_ms / 1000,
        )
        self.router = Router(self, self.senders)
        clock = LeaseClock(options.lease)
        self.directory = Directory(
            self.store, lambda: self.owner, self._connected, lambda: clock.may_admit(boot_ms())
        )
        await self.links.start()
        lease = OwnerLease(self.run.rid, self.run.generation, self.owner_id, self.lease_generation)
        self.keeper = LeaseKeeper(
            self.store, lease, self.descriptor, clock, self.lease_moved, self.recheck_objects
        )
        await self.keeper.put_first(options.store_timeout_ms / 1000)
        self.start(self._keep_lease())
        await self.refresh()
        self.start(self._keep_refreshing())

    async def leave(self, timeout_s: float) -> None:
        """Give back the lease, say goodbye to every peer, close the stores; bounded by `timeout_s`."""
        self.state = HostState.STOPPED
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if hasattr(self, "senders"):
            self.senders.close()
        if hasattr(self, "keeper"):
            try:
                async with asyncio.timeout(min(timeout_s, 2.0)):
                    await self.keeper.release()
            except (SojournError, TimeoutError) as error:
                self.log("lease_not_released", "info", error=str(error))
        if hasattr(self, "links"):
            await self.links.stop(min(timeout_s, 2.0))
        for store in (getattr(self, "store", None), getattr(self, "blobs", None)):
            if store is not None:
                await store.close()

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

    def count(self, name: str, amount: int = 1) -> None:
        """Add to one of the member's counters (B3.5, B12.2)."""
        self.counters[name] = self.counters.get(name, 0) + amount

    # lease and descriptor -----------------------------------------------------------------------

    @property
    def owner(self) -> Owner:
        """The owner block of rows that name this run."""
        return Owner(self.run.rid, self.run.generation, self.owner_id, self.lease_generation)

    def descriptor(self) -> NodeDescriptor:
        """What this member tells the others about itself."""
        return NodeDescriptor(
            rid=self.run.rid,
            generation=self.run.generation,
            owner_id=self.owner_id,
            lease_generation=self.lease_generation,
            application="",
            application_version=0,
            state=self.state,
            client=self.role is PeerRole.CLIENT,
        )

    def lease_moved(self, deadline_ms: int) -> None:
        """The admission deadline moved (B6.4); a member without workers has nobody to tell."""

    async def recheck_objects(self) -> None:
        """The lease had expired: re-read the rows of all objects (B6.4)."""

    def announce(self) -> None:
        """Tell every peer, and the store, what changed about this member."""
        descriptor = self.descriptor()
        message = mesh.Announce(encode_descriptor(descriptor))
        for link in self.links.all():
            link.send_control(message)
        self.start(self._publish(descriptor))

    async def _publish(self, descriptor: NodeDescriptor) -> None:
        write = publish_descriptor(descriptor, self.options.lease_ttl_ms)
        try:
            await self.store.write(write.conditions, write.mutations)
        except SojournError as error:
            self.log("descriptor_not_written", "warning", error=str(error))

    # the others ---------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Read which members there are, and connect to those that are new."""
        rows: list[NodeDescriptor] = []
        cursor: str | None = None
        while True:
            page = await self.store.scan(NODE_PREFIX, cursor)
            rows.extend(decode_descriptor(row.value) for row in page.rows)
            cursor = page.cursor
            if cursor is None:
                break
        rows = [row for row in rows if row.run != self.run]
        known = {node.run for node in self.roster.nodes()}
        self.roster.refresh(rows, [link.peer for link in self.links.all()])
        self.roster.heard(self.descriptor())
        fresh = [node for node in self.roster.nodes() if node.run != self.run and node.run not in known]
        for node in fresh:
            self.links.want(node.run, node.endpoints[0])
        for run in known - {node.run for node in self.roster.nodes()}:
            self.run_ended(run)
        dials = [self.links.ensure(node.run, node.endpoints[0]) for node in fresh]
        await asyncio.gather(*dials, return_exceptions=True)

    def run_ended(self, run: NodeRun) -> None:
        """A run ended for certain: its lease is over, or a later run of its RID stands."""
        self.links.unwant(run)
        self.roster.gone(run)

    async def _keep_lease(self) -> None:
        """Renew the lease until this member leaves; without it the member must not go on."""
        try:
            await self.keeper.run()
        except Exception as error:
            self.log("lease_keeper_failed", "error", error=repr(error))
            self.broken(error)
            raise

    def broken(self, error: Exception) -> None:
        """Something that this member cannot do without has ended; a client only logs it."""

    async def _keep_refreshing(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            self.senders.sweep()
            try:
                await self.refresh()
            except SojournError as error:
                self.log("scan_failed", "warning", error=str(error))

    def _connected(self, run: NodeRun) -> bool:
        return run == self.run or self.links.get(run) is not None

    def connected_runs(self) -> set[NodeRun]:
        """This run and every run with a usable link."""
        return {self.run, *(link.peer for link in self.links.all())}

    def find_node(self, rid: bytes) -> NodeDescriptor:
        """The known node of a RID; see `Roster.by_rid`."""
        return self.roster.by_rid(rid)

    async def connect(self, run: NodeRun) -> None:
        """Establish the link to a run, or raise Unavailable."""
        if self.links.get(run) is None:
            await self.links.ensure(run, self.roster.endpoint(run))

    # Exits: what the sending side needs ---------------------------------------------------------

    async def resolve(self, key: ObjectKey, header: RecordHeader) -> Route:
        """Look an object up; for a missing Instance Spot choose a node (see `Exits`)."""
        found = await self.directory.owner_of(key)
        wanted = bool(header.flags & FLAG_INTENT)
        if found is not None and not found.lost:
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
            body = error_reply(run, header.reply_route, high, low, encode_error(error_body(error)))
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
            encoded = encode_error(error_body(error))
            self.router.reply(error_reply(origin, header.reply_route, high, low, encoded))
        elif header.flags & frames.FLAG_MARKER:
            self._refuse_marker(record_origin(body, header.record_at), marker_number(body))
        elif not header.flags & frames.FLAG_LOOP:
            self.count("dead_letters")
            self.log("dead_letter", "warning", object_id=describe_key(header.key), reason=str(error))

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
        body = error_reply(self.run, reply_route, high, low, encode_error(error_body(error)))
        self.deliver_reply(reply_route, body)

    # RouterHost ---------------------------------------------------------------------------------

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

    # links --------------------------------------------------------------------------------------

    def on_up(self, link: Link) -> None:
        """A link stands: introduce ourselves."""
        link.send_control(mesh.Announce(encode_descriptor(self.descriptor())))

    def on_down(self, link: Link, reason: str) -> None:
        """A link is over: what was not handed over finds another way, what was is in doubt (B3.4)."""
        self.link_lost(link, reason, link.unsent)

    def link_lost(self, link: Link, reason: str, unsent: list[bytes]) -> None:
        """See `on_down`; `unsent` are the records that never left and belong to no handoff."""
        self.log("link_down", "info", peer=str(link.peer), reason=reason)
        self.calls.run_lost(link.peer)
        handed = self.senders.run_lost(link.peer)
        kept = {frames.parse_record_header(body).reply_route for body in unsent}
        if self.state is HostState.STOPPED:
            return
        self.senders.resubmit(unsent)
        in_doubt = [route for route in handed if route not in kept]
        if in_doubt:
            self.start(self._settle_lost(link.peer, in_doubt))

    async def _settle_lost(self, run: NodeRun, routes: list[int]) -> None:
        """Requests handed to a run that is gone: those whose object lives elsewhere by now may still be
        answered (they moved with it); the others end as Unavailable."""
        elsewhere: dict[ObjectKey, bool] = {}
        for route in routes:
            request = self.senders.outstanding.get(route)
            if request is None or request.run != run:
                continue
            key = request.key
            if key not in elsewhere:
                try:
                    found = await self.directory.owner_of(key)
                except SojournError:
                    found = None
                elsewhere[key] = found is not None and found.run != run and not found.lost
            if elsewhere[key] or self.senders.outstanding.get(route) is not request:
                continue
            self.count("in_doubt")
            name = describe_key(key)
            self.fail_request(
                route,
                request,
                Unavailable(
                    f"the connection to node {run} broke while {name} was handling the request",
                    object_id=name,
                    applied="unknown",
                ),
            )

    def on_record(self, link: Link, body: bytes) -> None:
        """An application record from a peer."""
        self.router.from_link(link.peer, body, link)

    def on_reply(self, link: Link, body: bytes) -> None:
        """A reply from a peer."""
        self.router.reply(body)

    def on_contract(self, link: Link, parts: Sequence[Piece], deadline_ms: int) -> None:
        """A contract record: a member without objects takes only command 50."""
        command = decode_command(parts[0], parts[1:])
        if not isinstance(command, MessageFollow):
            raise ProtocolError(f"{type(command).__name__} is not expected by a client")
        self.follow_noticed(command.envelope)

    def follow_noticed(self, notice: MessageFollowEnvelope) -> None:
        """A former owner says where an object went: later records go there, through a marker (B9.2, B9.4)."""
        target = notice.target_route
        if isinstance(target, ActorRouteFence):
            key, kind = actor_key(target.actor_ref.actor_id), ObjectKind.ACTOR
            generation = target.actor_ref.object_generation
        else:
            key, kind = spot_key(target.spot_ref.spot_id), ObjectKind.INSTANCE_SPOT
            generation = target.spot_ref.object_generation
        run = NodeRun(target.target_node_rid, target.target_node_generation)
        owner_generation = target.expected_authority_owner_generation
        lease_generation = target.expected_owner_lease_generation
        fence = route_fence(key, kind, generation, run, owner_generation, lease_generation)
        self.senders.followed(notice.original_reply_route_id, run)
        self.senders.learned(key, Route(run, kind, generation, owner_generation, fence, self.loop.time()))

    def on_control(self, link: Link, message: mesh.MeshControl) -> None:
        """A control message from a peer."""
        if isinstance(message, mesh.MarkerTaken):
            self.marker_taken(link.peer, message)
        elif isinstance(message, mesh.MarkerRefused):
            self.senders.marker_refused(message.number)
        elif isinstance(message, mesh.RouteNotice):
            self.senders.learned(message.key, self._route_of(link.peer, message))
        elif isinstance(message, mesh.Announce):
            self._announced(link, decode_descriptor(message.descriptor))
        elif isinstance(message, mesh.Call):
            self.start(self.calls.serve(link.peer, message))
        elif isinstance(message, mesh.CallResult):
            self.calls.answered(link.peer, message)
        elif isinstance(message, mesh.RequestsLost):
            self._requests_lost(message)

    def _announced(self, link: Link, descriptor: NodeDescriptor) -> None:
        if descriptor.run != link.peer:
            self.log("false_announcement", "warning", peer=str(link.peer), named=str(descriptor.run))
            return
        for former in self.roster.nodes():
            if former.rid == descriptor.rid and former.generation < descriptor.generation:
                self.run_ended(former.run)
        self.roster.heard(descriptor)

    def _requests_lost(self, message: mesh.RequestsLost) -> None:
        for route, operation_low in message.requests:
            request = self.senders.outstanding.get(route)
            if request is not None and request.operation_low == operation_low:
                self.fail_request(route, request, error_from_fields(message.error.kind, message.error.fields))

    def _send_call(self, run: NodeRun, message: mesh.Call | mesh.CallResult) -> bool:
        link = self.links.get(run)
        if link is None:
            return False
        link.send_control(message)
        return True


def _missing(key: ObjectKey) -> NotFound:
    return NotFound(f"{describe_key(key)} does not exist", object_id=describe_key(key))


def _link_options(options: Options) -> LinkOptions:
    if not options.secret:
        raise NotConfigured("a cluster needs a secret of at least 16 bytes (option `secret`)")
    return LinkOptions(
        max_frame_bytes=options.max_frame_bytes,
        receive_chunk_limit=options.relocation_chunk_bytes,
        handshake_timeout_s=options.handshake_timeout_ms / 1000,
        unauthenticated_max=options.handshake_max_connections,
    )
