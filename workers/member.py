"""A member of the mesh: what supervisors and clients have in common (B13.1).

Owns the run's identity, its lease, its links, the roster of the others and the calls between nodes. What a
member does with records and replies that reach it is decided by its router; objects, workers and moves are
the supervisor's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sojourn import frames, mesh
from sojourn.errors import (
    NotConfigured,
    ProtocolError,
    SojournError,
    Unavailable,
    error_from_fields,
)
from sojourn.handshake_octets import PeerRole
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, actor_key, describe_key, spot_key
from sojourn.lease import LeaseClock
from sojourn.options import Options
from sojourn.ownership import publish_descriptor
from sojourn.rows import (
    HostState,
    NodeDescriptor,
    OwnerLease,
    decode_descriptor,
    encode_descriptor,
)
from sojourn.store import open_location_store, open_relocation_store
from sojourn.wire import ActorRouteFence, MessageFollow, ReplyRelay, decode_command
from sojourn.wire.companion_commands import MessageFollowEnvelope
from sojourn.workers.directory import Directory
from sojourn.workers.exchange import Exchange
from sojourn.workers.lease_keeper import LeaseKeeper, boot_ms
from sojourn.workers.link import Link, LinkOptions
from sojourn.workers.links import Links
from sojourn.workers.objects import route_fence
from sojourn.workers.relayed import RelayedEnds
from sojourn.workers.router import Router
from sojourn.workers.routes import Route
from sojourn.workers.senders import SenderPaths
from sojourn.workers.store_health import WatchedLocationStore, WatchedRelocationStore
from sojourn.workers.stream import Piece
from sojourn.workers.twins import read_descriptors, refuse_twin

__all__ = ["Member"]

REFRESH_S = 5.0
"""How often the rows of the nodes are scanned again; news travels over links, this only repairs."""
CLIENT_REFRESH_S = 1.0
"""The same for a client: nobody dials it, so that a new node can answer it only once a scan has found that node."""
LOOK_S = 0.5
"""Shortest time between two scans for a run that somebody names: most of those that are not known have ended."""


class Member(Exchange):
    """See the module text. Subclasses: `Supervisor`, `Client`."""

    _scanning: asyncio.Future[None] | None = None
    """The scan out of turn that runs."""
    _scan_behind = False
    """Another one is to follow it: a connection ended meanwhile."""
    _scan_again_at = 0.0

    # life ---------------------------------------------------------------------------------------

    async def join(self) -> None:
        """Open stores and the listener, take the lease, and link up with every live node.

        Raises:
            NotConfigured: a setting is wrong (store address, port in use, secret missing), or a node of this
                RID is alive.
            StoreUnavailable: the store cannot be reached.
        """
        options = self.options
        self.loop = asyncio.get_running_loop()
        timeout_ms = options.store_timeout_ms
        location = open_location_store(options.store_url, options.cluster, timeout_ms=timeout_ms)
        self.store = WatchedLocationStore(location, self.store_health)
        relocation = open_relocation_store(options.store_url, options.cluster, timeout_ms=timeout_ms)
        self.blobs = WatchedRelocationStore(relocation, self.store_health)
        self.links = Links(
            self.run,
            options.cluster,
            options.secret.encode(),
            self,
            role=self.role,
            host=self._host,
            port=self._port,
            advertise=self._advertise,
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
        self.relayed = RelayedEnds(self)
        clock = LeaseClock(options.lease)
        self.directory = Directory(
            self.store, lambda: self.owner, self._connected, lambda: clock.may_admit(boot_ms())
        )
        await self.links.start()
        if self.role is PeerRole.NODE:
            await refuse_twin(self.store, self.links, self.run)
        lease = OwnerLease(self.run.rid, self.run.generation, self.owner_id, self.lease_generation)
        self.keeper = LeaseKeeper(
            self.store,
            lease,
            self.descriptor,
            clock,
            self.lease_moved,
            self.recheck_objects,
            self.store_health.failed,
        )
        await self.keeper.put_first(options.store_timeout_ms / 1000)
        if self.role is PeerRole.NODE:
            await refuse_twin(self.store, self.links, self.run)
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

    # lease and descriptor -----------------------------------------------------------------------

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
        fresh = await self._scan()
        dials = [self.links.ensure(node.run, node.endpoints[0]) for node in fresh]
        await asyncio.gather(*dials, return_exceptions=True)

    async def look_for(self, run: NodeRun) -> None:  # see Exchange
        if self.role is not PeerRole.CLIENT or self._connected(run) or self.roster.get(run) is not None:
            return
        if self._scanning is None and self.loop.time() >= self._scan_again_at:
            self._scan_again_at = self.loop.time() + LOOK_S
            self._scan_now()
        if self._scanning is not None:
            await asyncio.wait((self._scanning,))

    def _scan_now(self) -> None:
        """Scan out of turn; behind the scan that runs, if one does."""
        if self._scanning is not None:
            self._scan_behind = True
            return
        self._scan_behind = False
        self._scanning = self.loop.create_future()
        self.start(self._scan_once(self._scanning))

    async def _scan_once(self, done: asyncio.Future[None]) -> None:
        try:
            await self._scan()
        except SojournError as error:
            self.log("scan_failed", "warning", error=str(error))
        finally:
            self._scanning = None
            done.set_result(None)
            if self._scan_behind and self.state is not HostState.STOPPED:
                self._scan_now()

    async def _scan(self) -> list[NodeDescriptor]:
        """Take what the store says of all members. Returns those that are new; their links are on the way."""
        rows = await read_descriptors(self.store)
        rows = [row for row in rows if row.run != self.run]
        known = {node.run for node in self.roster.nodes()}
        self.roster.refresh(rows, [link.peer for link in self.links.all()])
        self.roster.heard(self.descriptor())
        self.roster_read()
        fresh = [node for node in self.roster.nodes() if node.run != self.run and node.run not in known]
        for node in fresh:
            self.links.want(node.run, node.endpoints[0])
        for run in known - {node.run for node in self.roster.nodes()}:
            self.run_ended(run)
        return fresh

    def roster_read(self) -> None:
        """The roster is as the store has it: what waited for runs that ended is settled (B7.1)."""
        self.relayed.look_around()

    def run_ended(self, run: NodeRun) -> None:
        """A run ended for certain: its lease is over, or it is not connected and another run of its RID stands."""
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
            await asyncio.sleep(CLIENT_REFRESH_S if self.role is PeerRole.CLIENT else REFRESH_S)
            self.senders.sweep()
            try:
                await self.refresh()
            except SojournError as error:
                self.log("scan_failed", "warning", error=str(error))

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
        self._scan_now()  # a node that stopped has given its lease back before: its objects are free at once
        self.senders.resubmit(unsent)
        in_doubt = [route for route in handed if route not in kept]
        if in_doubt:
            self.start(self._settle_lost(link.peer, in_doubt))

    async def _settle_lost(self, run: NodeRun, routes: list[int]) -> None:
        """Requests handed to a run that is gone: those whose object lives elsewhere by now may still be
        answered (they moved with it); the others end as Unavailable."""
        elsewhere: dict[ObjectKey, NodeRun | None] = {}
        for route in routes:
            request = self.senders.outstanding.get(route)
            if request is None or request.run != run or self.relayed.may_still_come(request):
                continue
            key = request.key
            if key not in elsewhere:
                try:
                    found = await self.directory.owner_of(key)
                except SojournError:
                    found = None
                moved = found is not None and found.run != run and not found.lost
                elsewhere[key] = found.run if found is not None and moved else None
            there = elsewhere[key]
            if there is not None:
                self.senders.followed(route, there, kept=True)  # it may be among what moved there
            if there is not None or request.moved or self.senders.outstanding.get(route) is not request:
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
        """A contract record: a member without objects takes only commands 33 and 50."""
        command = decode_command(parts[0], parts[1:])
        if isinstance(command, ReplyRelay):
            self.relayed.relay_arrived(link, command, parts)
            return
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
        elif isinstance(message, mesh.RequestsTaken):
            self.relayed.requests_taken(link.peer, message)

    def _announced(self, link: Link, descriptor: NodeDescriptor) -> None:
        if descriptor.run != link.peer:
            self.log("false_announcement", "warning", peer=str(link.peer), named=str(descriptor.run))
            return
        if descriptor.rid == self.run.rid and descriptor.run != self.run:
            self.log("rid_in_use", "error", peer=str(descriptor.run))
        for former in self.roster.replaced_by(descriptor, self.connected_runs()):
            self.run_ended(former)
        self.roster.heard(descriptor)

    def _requests_lost(self, message: mesh.RequestsLost) -> None:
        for route, operation_low in message.requests:
            request = self.senders.outstanding.get(route)
            if request is not None and request.operation_low == operation_low:
                self.fail_request(route, request, error_from_fields(message.error.kind, message.error.fields))


def _link_options(options: Options) -> LinkOptions:
    if not options.secret:
        raise NotConfigured("a cluster needs a secret of at least 16 bytes (option `secret`)")
    return LinkOptions(
        max_frame_bytes=options.max_frame_bytes,
        receive_chunk_limit=options.relocation_chunk_bytes,
        handshake_timeout_s=options.handshake_timeout_ms / 1000,
        unauthenticated_max=options.handshake_max_connections,
    )
