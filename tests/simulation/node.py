"""A node of the simulation: links, senders, objects, Message Follow, and where a record goes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sojourn.handoff import events as ev
from sojourn.handoff.machine import Event
from sojourn.handoff.path import (
    MarkerAnswered,
    MarkerFailed,
    MarkerTaken,
    PathLost,
    PathTaken,
    RecordSubmitted,
    Route,
    RouteExpired,
    RouteLearned,
)
from sojourn.handoff.terms import HandoffIdentity, RowFacts
from sojourn.ids import NodeRun
from sojourn.session.events import ConnectionDown, ConnectionUp, LeaseOver, OwnerGone

from tests.simulation.driver import Driver
from tests.simulation.history import Record, Violation
from tests.simulation.jobs import JobPool
from tests.simulation.leases import Lease
from tests.simulation.lookups import Lookups
from tests.simulation.network import Connection
from tests.simulation.objects import LocalObject
from tests.simulation.path_driver import PathDriver
from tests.simulation.replies import MovedReplies
from tests.simulation.requests import Requests
from tests.simulation.retained import Retained, StagingPool
from tests.simulation.sessions import FRAMES, ContactDriver, arrived, push_of_turn
from tests.simulation.source_driver import SourceDriver
from tests.simulation.stagings import Stagings
from tests.simulation.target_driver import TargetDriver

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["HOPS_MAX", "Node"]

HOPS_MAX = 8
WATCH_S = 0.7
"""Time between two looks at the leases of all runs."""


class Node:
    """One run of one node."""

    def __init__(self, world: World, run: NodeRun) -> None:
        self.world = world
        self.run = run
        self.alive = True
        self.paused = False
        self._deferred: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.links: dict[NodeRun, Connection] = {}
        self.objects: dict[bytes, LocalObject] = {}
        self.sources: dict[bytes, SourceDriver] = {}
        """The newest source handoff of each object: it takes records while no object and no staging does."""
        self.handoffs: dict[HandoffIdentity, SourceDriver] = {}
        self.staged: dict[bytes, TargetDriver] = {}
        self.targets: dict[HandoffIdentity, TargetDriver] = {}
        self.latest: dict[bytes, Driver] = {}
        """The handoff of each object that began last here: an older one installs no route any more."""
        self.follows: dict[bytes, tuple[Driver, Route, set[NodeRun]]] = {}
        """Follow routes: whose, where to, and who was told (B9.2)."""
        self.paths: dict[bytes, PathDriver] = {}
        self.outbox: dict[NodeRun, list[tuple[Any, ...]]] = {}
        self.gone: set[NodeRun] = set()
        """Runs that were seen with a lease and have none now."""
        self.seen: set[NodeRun] = set()
        offset_s = world.clock.random.random() * 1000
        self.local = world.local_clock(offset_s)
        self.lease = Lease(self, offset_s)
        self.retained = Retained(self, world.mix.max_retained)
        self.staging = StagingPool(world.mix.staging_permits)
        self.pool = JobPool(self, world.mix.max_jobs)
        self.requests = Requests(self)
        self.replies = MovedReplies(self)
        self.lookups = Lookups(self)
        self.stagings = Stagings(self)
        self.contacts: list[ContactDriver] = []
        self.sealing: dict[bytes, SourceDriver] = {}
        """Objects whose handoff has begun and that still run, while their session is being sealed."""

    # time

    def step(self, call: Callable[..., object], *arguments: Any) -> None:
        """Run a call on this node, unless it is dead; later, if it is paused."""
        if self.paused:
            self._deferred.append((call, arguments))
        elif self.alive:
            call(*arguments)

    def resume(self) -> None:
        self.paused = False
        deferred, self._deferred = self._deferred, []
        for call, arguments in deferred:
            self.step(call, *arguments)

    def bury(self) -> None:
        """The process died: its turns end nowhere, and what waited to be read is lost."""
        for item in dict.fromkeys(self.objects.values()):
            if item.running is not None:
                self.world.history.turn_died(item.running)
        for target in dict.fromkeys(self.staged.values()):
            if target.item is not None:
                self.world.history.excuse(target.item.mailbox, "died with its node")
        for target in self.targets.values():
            self.world.history.excuse(target.work, "died with its node")
        for call, arguments in self._deferred:
            if call == self.frame_arrived:
                self.world.frames_lost([arguments[1]])
        self._deferred = []
        self.paused = False

    def contacts_of(self, run: NodeRun) -> list[ContactDriver]:
        return [contact for contact in self.contacts if contact.owner == run]

    def turn_ended(self, item: LocalObject, sequence: int) -> None:
        """An object that is bound tells its client of every turn."""
        push_of_turn(self, item, sequence)

    # the lease

    def admits(self) -> bool:
        """Whether a turn or a store change may start now (B6.4)."""
        return self.world.clock.now < self.lease.admitted_until or self.world.ignores_admission

    def admitted(self) -> None:
        """The admission deadline moved on: what waited for it starts."""
        for item in dict.fromkeys(self.objects.values()):
            item.start_next()

    def admission_over(self) -> None:
        """Running turns are cancelled."""
        for item in dict.fromkeys(self.objects.values()):
            item.cancel_turn()

    def lease_was_over(self) -> None:
        """Nobody believes the sessions of this run any more (B11.2)."""
        for session in self.world.sessions.values():
            if session.node is self and not session.over:
                session.deliver(LeaseOver())

    def recheck(self, item: LocalObject, row: RowFacts | None) -> None:
        """The lease had been over: an object whose row changed meanwhile is dropped."""
        key = item.key
        if self.objects.get(key) is not item:
            return
        gone = row is None or row.object_generation != item.generation or row.lost
        source = self.sources.get(key)
        if source is not None and source.before_boundary:
            source.authority_gone = source.authority_gone or gone
        elif item.status == "open" and (gone or row is None or row.owner != self.run):
            self.world.history.counts["dropped at recheck"] += 1
            self.drop_object(item)
            if key in self.sealing:
                self.sealing[key].deliver(ev.WorkerLost())
            self.pool.flush(item)
            item.status = "closed"
            item.cancel_turn()
            for record in item.mailbox:
                self.fail(record, "DataLost")
            for each in item.keys:
                self.path(each).deliver(PathLost(self.run))

    def watch(self) -> None:
        """Look from time to time whose lease stands."""
        if self.alive:
            self.world.store.scan_leases(partial(self.step, self._watched))

    def _watched(self, leased: set[NodeRun] | None) -> None:
        if leased is not None:
            for run in sorted((self.seen | self.outbox.keys()) - leased - self.gone):
                self.gone.add(run)
                self.run_gone(run)
            self.replies.look_around(leased)
            self.gone -= leased
            self.seen |= leased
        self.world.clock.after(WATCH_S, self.step, self.watch)

    # senders

    def submit(self, record: Record) -> None:
        """A record was accepted at this node."""
        path = self.path(record.key)
        self._age(path)
        run = path.machine.current
        if run is None:
            path.deliver(RecordSubmitted(record))
        else:
            self.send_record(record, run)

    def path(self, key: bytes) -> PathDriver:
        path = self.paths.get(key)
        if path is None:
            path = self.paths[key] = PathDriver(self, key)
        return path

    def _age(self, path: PathDriver) -> None:
        """A cache entry is trusted for 15 s (scaled); what this node owns itself does not age (B9.1)."""
        age = self.local.now() - path.learned_at
        current = path.machine.current
        if current is not None and current != self.run and age > self.world.mix.route_age_s:
            path.deliver(RouteExpired(path.learned_at + self.world.mix.route_age_s))

    def send_record(self, record: Record, run: NodeRun) -> None:
        if run == self.run:
            self.take(record, None)
        else:
            self.send(run, ("record", record, None))

    # records that came here

    def take(self, record: Record, connection: Connection | None) -> bool:
        """A record for an object came here: to the object, its staging, its source handoff, or nowhere.

        True when the credit of its connection is the job queue's to give back.
        """
        key = record.key
        record.where, record.excuse = self.run, None
        record.held = False
        if self.world.telling:
            self.world.trace(self, key, ("take", record))
        staged = self.staged.get(key)
        item = self.objects.get(key)
        path = self.path(key)
        peer = None if connection is None else self._peer(connection)
        if path.machine.holds_arrivals and path.machine.holds_from(peer):
            path.deliver(RecordSubmitted(record))
        elif staged is not None:
            if self.world.divert_at_commit and peer != staged.identity.source:
                self.follow(record, staged.identity.source, None)
            else:
                return self._stage(staged, record, connection)
        elif item is not None and item.status == "open":
            if record.marker is None:
                self.pool.admit(item, record, connection)
                return True
            row = self.world.store.rows[key]
            self.answer(record, Route(self.run, item.generation, row.owner_generation))
        else:
            return self._take_elsewhere(record, key, connection)
        return False

    def _stage(self, staged: TargetDriver, record: Record, connection: Connection | None) -> bool:
        keeps = staged.held.owe(record, connection)
        event: Event = ev.DirectArrived(record)
        if connection is not None and record.hops:
            event = ev.FollowArrived(record, connection.number)
        if connection is not None and self._peer(connection) == staged.identity.source:
            staged.lane.arrive(event, record)
        else:
            staged.arrived(event, record)
        return keeps

    def _take_elsewhere(self, record: Record, key: bytes, connection: Connection | None) -> bool:
        source = self.sources.get(key)
        if source is not None and source.begun and source.follow_owner is None:
            keeps = source.held.owe(record, connection)
            source.deliver(ev.RecordArrived(record))
            return keeps
        if key in self.follows:
            self._follow_on(record)
            return False
        self.fail(record, "Unavailable")
        self.lookups.check_lost(key)
        return False

    def follow(self, record: Record, run: NodeRun, source: SourceDriver | None) -> None:
        """Send a record on to where the object went (R10), at most 8 hops (B9.1)."""
        record.hops += 1
        if record.hops > HOPS_MAX:
            self.fail(record, "Unavailable")
        elif run == self.run:
            self.take(record, None)
        else:
            self.send(run, ("record", record, source))

    def install_follow(self, driver: Driver, route: Route, first: NodeRun) -> None:
        """Message Follow goes through this node's own path to the object."""
        if self.world.straight_follow:
            first = route.run
        for each in driver.keys:  # a member may still be to come when its Spot is staged here again
            if self.latest.get(each) is driver or self.world.old_handoffs_install:
                self._install_follow(driver, each, route, first)

    def _install_follow(self, driver: Driver, key: bytes, route: Route, first: NodeRun) -> None:
        self.follows[key] = (driver, route, set())
        if not self.holds(key):
            path = self.path(key)
            if path.machine.last_run in (None, self.run) or path.machine.holds_arrivals:
                path.deliver(PathTaken(route._replace(run=first)))
            if route.run != first:
                path.deliver(RouteLearned(route))

    def remove_follow(self, driver: Driver) -> None:
        for key in driver.keys:
            held = self.follows.get(key)
            if held is not None and held[0] is driver:
                del self.follows[key]

    def forget_source(self, driver: SourceDriver) -> None:
        for key in driver.keys:
            if self.sources.get(key) is driver:
                del self.sources[key]

    def _follow_on(self, record: Record) -> None:
        key = record.key
        _, route, told = self.follows[key]
        record.hops += 1
        if record.hops > HOPS_MAX:
            self.fail(record, "Unavailable")
            return
        origin = record.origin
        if origin != self.run and origin not in told:
            told.add(origin)
            self.send(origin, ("moved", key, route), queue=False)
        path = self.path(key)
        run = path.machine.current
        if path.machine.last_run in (None, self.run):
            run = route.run
            path.deliver(PathTaken(route))
        if run is None:
            path.deliver(RecordSubmitted(record))
        else:
            self.send(run, ("record", record, None))

    def fail(self, record: Record, reason: str, item: LocalObject | None = None) -> None:
        if record.marker is None:
            if record.permit is not None:
                record.permit.give_back()
                record.permit = None
            self.world.history.failed(record, reason)
            if record.request:
                self.requests.reply(record, item)
        elif record.origin == self.run:
            self.path(record.key).deliver(MarkerFailed(record.marker))
        else:
            self.send(record.origin, ("marker failed", record.key, record.marker), queue=False)

    def answer(self, marker: Record, route: Route) -> None:
        assert marker.marker is not None
        if self.world.takes_note_of_markers:
            self.path(marker.key).deliver(MarkerTaken(marker.origin))
        if marker.origin == self.run:
            self._marker_answered(marker.key, marker.marker, route)
        else:
            self.send(marker.origin, ("marker answered", marker.key, marker.marker, route), queue=False)

    def _marker_answered(self, key: bytes, marker: int, route: Route) -> None:
        path = self.path(key)
        path.learned_at = self.local.now()
        path.deliver(MarkerAnswered(marker, route))

    def holds(self, key: bytes) -> bool:
        item = self.objects.get(key)
        return key in self.staged or (item is not None and item.status != "closed")

    def drop_object(self, item: LocalObject) -> None:
        for key in item.keys:
            if self.objects.get(key) is item:
                del self.objects[key]

    # frames

    def send(self, run: NodeRun, frame: tuple[Any, ...], *, queue: bool = True) -> None:
        connection = self.links.get(run)
        if self.world.telling:
            self.world.trace(self, b"", ("send", run, connection and connection.number, frame))
        if connection is not None:
            self.world.network.send(connection, self, frame)
        elif queue:
            if run in self.gone:
                self._fail_frame(frame)
            else:
                self.outbox.setdefault(run, []).append(frame)

    def send_on(self, connection: int, frame: tuple[Any, ...]) -> None:
        """To exactly this connection; nothing if it is known to be broken."""
        for link in self.links.values():
            if link.number == connection:
                self.world.network.send(link, self, frame)
                return

    def stands(self, connection: int) -> bool:
        return any(link.number == connection for link in self.links.values())

    def _peer(self, connection: Connection) -> NodeRun:
        return connection.other(self).run

    def _fail_frame(self, frame: tuple[Any, ...]) -> None:
        if frame[0] == "record":
            self.fail(frame[1], "Unavailable")
        elif frame[0] == "reply" and not frame[1].kept:
            frame[1].reply_excuse = "the requester's run was gone"

    def frame_arrived(self, connection: Connection, frame: tuple[Any, ...]) -> None:
        kind = frame[0]
        if kind == "record":
            over = self.retained.over
            waits = self.take(frame[1], connection) or self.world.keeps_credit
            if not waits and frame[1].marker is None:
                if over and frame[1].held:
                    raise Violation(f"{self.run} gives credit for what it holds above its limit")
                self.world.network.give_credit(connection, self)
        elif kind == "reply":
            self.requests.arrived(frame[1])
        elif kind == "reply relay":
            self.replies.relay_arrived(connection, frame[1])
        elif kind == "reply ack":
            self.replies.acknowledged(frame[1])
        elif kind == "requests taken":
            self.replies.taken(self._peer(connection), frame[1])
        elif kind == "ended elsewhere":
            self.replies.ended_elsewhere(frame[1], frame[2])
        elif kind == "credit":
            self.world.network.credit_arrived(connection, self, frame[1])
        elif kind in ("restore", "chunk", "relay", "cutover", "withdrawn"):
            self.stagings.frame_arrived(connection, frame)
        elif kind in FRAMES:
            arrived(self, connection.number, frame)
        elif kind in ("ready", "failed"):
            source = self.handoffs.get(frame[1])
            if source is not None:
                number = connection.number
                source.deliver(
                    ev.RelayReadyReceived(number)
                    if kind == "ready"
                    else ev.RelocationFailedReceived(frame[2], number)
                )
        elif kind == "moved":
            self.learned(frame[1], frame[2])
        elif kind == "marker answered":
            self._marker_answered(*frame[1:])
        elif kind == "marker failed":
            self.path(frame[1]).deliver(MarkerFailed(frame[2]))

    def learned(self, key: bytes, route: Route) -> None:
        if self.holds(key) or key in self.sources:
            return
        path = self.path(key)
        path.learned_at = self.local.now()
        path.deliver(RouteLearned(route))

    def cutover_handed(self, identity: HandoffIdentity, connection: int) -> None:
        source = self.handoffs.get(identity)
        if source is not None:
            source.deliver(ev.CutoverSubmitted(connection))

    # links

    def link_up(self, connection: Connection, peer: Node) -> None:
        self.links[peer.run] = connection
        self.step(self._linked, connection, peer.run)

    def _linked(self, connection: Connection, run: NodeRun) -> None:
        if self.links.get(run) is not connection:
            return
        for source in list(self.handoffs.values()):
            if source.target.run == run:
                source.deliver(ev.LinkRestored(connection.number))
        for frame in self.outbox.pop(run, []):
            self.send(run, frame)
        self.replies.link_up(connection, run)
        for contact in self.contacts_of(run):  # behind the pushes that waited for this connection
            contact.deliver(ConnectionUp(connection.number))

    def link_down(self, connection: Connection) -> None:
        run = self._peer(connection)
        if self.links.get(run) is not connection:
            return
        del self.links[run]
        unsent = connection.pipes[self.run].take_back()
        for source in list(self.handoffs.values()):
            if source.target.run == run and source.begun:
                left = sum(1 for f in unsent if f[0] == "relay" and f[1] == source.identity)
                back = tuple(f[1] for f in unsent if f[0] == "record" and self._belongs(f, source))
                source.deliver(ev.LinkLost(connection.number, source.relayed - left, back))
        for target in list(self.targets.values()):
            if target.identity.source == run:
                target.lane.arrive(ev.LinkLost(connection.number))
        for contact in self.contacts_of(run):
            contact.deliver(ConnectionDown(connection.number))
        self.replies.link_down(connection, run)
        for path in list(self.paths.values()):
            path.deliver(PathLost(run))
        for frame in unsent:
            if frame[0] == "reply":
                if not (frame[1].kept or self.world.forgets_replies):
                    self.send(run, frame)
            elif frame[0] == "ended elsewhere":
                self.send(run, frame)
            elif frame[0] == "record" and not self._given_back(frame[2], run):
                self._unsent_record(frame[1], frame[2])

    def _belongs(self, frame: tuple[Any, ...], source: SourceDriver) -> bool:
        """Whether a follow frame that was never handed over goes back to this handoff, and to no other."""
        if self.world.shares_follow_frames:
            return frame[2] is not None and frame[1].unit == source.key
        return frame[2] is source

    def _given_back(self, source: SourceDriver | None, run: NodeRun) -> bool:
        """Whether a source got its follow frames back with the loss of the connection to its target. What it sent
        straight to a later owner is not its any more."""
        if source is None or source.identity not in self.handoffs:
            return False
        return source.target.run == run or self.world.forgets_later_owner

    def _unsent_record(self, record: Record, source: SourceDriver | None) -> None:
        """Never handed to a connection: it waits on, or fails with `applied` = no (B3.4)."""
        if source is not None or record.marker is not None or record.hops:
            self.fail(record, "Unavailable")
        else:
            self.submit(record)

    def run_gone(self, run: NodeRun) -> None:
        """The lease of that run is over."""
        for contact in self.contacts_of(run):
            contact.deliver(OwnerGone())
        self.world.history.disturb(self.world.clock.now)
        for source in list(self.handoffs.values()):
            if source.target.run == run:
                source.deliver(ev.TargetRunGone())
        for path in list(self.paths.values()):
            path.deliver(PathLost(run))
        for frame in self.outbox.pop(run, []):
            self._fail_frame(frame)
