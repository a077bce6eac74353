"""A node of the simulation: links, route cache with markers, objects, and the drivers of its handoffs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sojourn.handoff import events as ev
from sojourn.handoff.machine import Log
from sojourn.handoff.path import (
    FailSubmitted,
    LookUpRoute,
    MarkerAnswered,
    MarkerFailed,
    MarkerTaken,
    PathLost,
    PathTaken,
    RecordSubmitted,
    Route,
    RouteExpired,
    RouteLearned,
    RouteRefused,
    SenderPath,
    SendMarker,
    SendOn,
    StagingBegun,
)
from sojourn.handoff.rivals import RivalVerdict, judge_rivals
from sojourn.handoff.terms import FAILURE_SPOT_STALE, HandoffIdentity, RowFacts
from sojourn.ids import NodeRun

from tests.simulation.drivers import Driver, SourceDriver, TargetDriver
from tests.simulation.history import LOST_ON_THE_WAY, Record
from tests.simulation.network import Connection
from tests.simulation.objects import LocalObject

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["HOPS_MAX", "Node", "PathDriver"]

HOPS_MAX = 8


class PathDriver(Driver):
    """Drives one `SenderPath`."""

    machine: SenderPath

    def __init__(self, node: Node, key: bytes) -> None:
        super().__init__(node, key)
        self.machine = self.world.new_path()
        self.learned_at = self.world.clock.now

    def _send_on(self, effect: SendOn) -> None:
        for record in effect.records:
            self.node.send_record(record, effect.run)

    def _send_marker(self, effect: SendMarker) -> None:
        marker = Record(self.world.next_number(), self.node.run, self.key, -1, 0, self.world.clock.now)
        marker.marker = effect.marker_id
        self.node.send_record(marker, effect.run)

    def _look_up(self, effect: LookUpRoute) -> None:
        self.node.look_up(self.key)

    def _fail(self, effect: FailSubmitted) -> None:
        for record in effect.records:
            self.node.fail(record, effect.reason)

    _carriers = {  # noqa: RUF012
        Log: Driver.log,
        SendOn: _send_on,
        SendMarker: _send_marker,
        LookUpRoute: _look_up,
        FailSubmitted: _fail,
    }


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
        self.judging: dict[HandoffIdentity, list[tuple[Connection, tuple[Any, ...]]]] = {}
        self.follows: dict[bytes, tuple[Driver, Route, set[NodeRun]]] = {}
        """Follow routes: whose, where to, and who was told (B9.2)."""
        self.inherited: dict[bytes, list[Record]] = {}
        self.paths: dict[bytes, PathDriver] = {}
        self.outbox: dict[NodeRun, list[tuple[Any, ...]]] = {}
        self.creating: set[bytes] = set()
        self.checking: set[bytes] = set()

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
        for item in self.objects.values():
            if item.running is not None:
                self.world.history.turn_died(item.key)
        for target in self.staged.values():
            if target.item is not None:
                self.world.history.excuse(target.item.mailbox, "died with its node")
        for call, arguments in self._deferred:
            if call == self.frame_arrived:
                self.world.frames_lost([arguments[1]])
        self._deferred = []
        self.paused = False

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
        age = self.world.clock.now - path.learned_at
        current = path.machine.current
        if current is not None and current != self.run and age > self.world.mix.route_age_s:
            path.deliver(RouteExpired(path.learned_at + self.world.mix.route_age_s))

    def send_record(self, record: Record, run: NodeRun) -> None:
        if run == self.run:
            self.take(record, None)
        else:
            self.send(run, ("record", record, None))

    def look_up(self, key: bytes) -> None:
        self.world.store.read(key, partial(self.step, self._looked_up, key))

    def _looked_up(self, key: bytes, known: bool, row: RowFacts | None) -> None:
        path = self.path(key)
        path.learned_at = self.world.clock.now
        if not known:
            path.deliver(RouteRefused("Unavailable"))
        elif row is None or row.lost or self.world.is_gone(row.owner):
            self._create_anew(key, row)
        elif row.owner == self.run and not self._accounted(key):
            path.deliver(RouteRefused("DataLost"))
            self.check_lost(key)
        else:
            path.deliver(RouteLearned(Route(row.owner, row.object_generation, row.owner_generation)))

    def _create_anew(self, key: bytes, row: RowFacts | None) -> None:
        """Instance Spots come back on demand, as a new incarnation (B6.6, B6.8)."""
        assert row is not None
        new = self.world.new_incarnation(self.run)
        self.creating.add(key)
        change = partial(self._incarnate, new)
        reply = partial(self.step, self._created, key, new)
        self.world.store.write(key, row.version, change, reply)

    @staticmethod
    def _incarnate(new: RowFacts, row: RowFacts) -> RowFacts:
        return new

    def _created(self, key: bytes, new: RowFacts, outcome: str) -> None:
        self.creating.discard(key)
        if outcome == "applied":
            self.world.reborn(key)
            item = LocalObject(self, key, new.object_generation, 0, ())
            self.objects[key] = item
            self.sources.pop(key, None)
            item.open()
            self.path(key).deliver(RouteLearned(Route(self.run, new.object_generation, 1)))
        elif outcome == "conflict":
            self.look_up(key)
        else:
            self.path(key).deliver(RouteRefused("Unavailable"))

    # records that came here

    def take(self, record: Record, connection: Connection | None) -> None:
        """A record for an object came here: to the object, its staging, its source handoff, or nowhere."""
        key = record.key
        record.where, record.excuse = self.run, None
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
            elif connection is not None and record.hops:
                staged.arrived(ev.FollowArrived(record, connection.number), record)
            else:
                staged.arrived(ev.DirectArrived(record), record)
        elif item is not None and item.status == "open":
            if record.marker is None:
                item.put(record)
            else:
                row = self.world.store.rows[key]
                self.answer(record, Route(self.run, item.generation, row.owner_generation))
        else:
            self._take_elsewhere(record, key)

    def _take_elsewhere(self, record: Record, key: bytes) -> None:
        source = self.sources.get(key)
        if source is not None and source.begun and source.follow_owner is None:
            source.deliver(ev.RecordArrived(record))
            return
        if key in self.follows:
            self._follow_on(record)
            return
        self.fail(record, "Unavailable")
        self.check_lost(key)

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
        key = driver.key
        if self.latest.get(key) is not driver and not self.world.old_handoffs_install:
            return
        if self.world.straight_follow:
            first = route.run
        self.follows[key] = (driver, route, set())
        if not self.holds(key):
            path = self.path(key)
            if path.machine.last_run in (None, self.run) or path.machine.holds_arrivals:
                path.deliver(PathTaken(route._replace(run=first)))
            if route.run != first:
                path.deliver(RouteLearned(route))

    def remove_follow(self, driver: Driver) -> None:
        held = self.follows.get(driver.key)
        if held is not None and held[0] is driver:
            del self.follows[driver.key]

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

    def fail(self, record: Record, reason: str) -> None:
        if record.marker is None:
            self.world.history.failed(record, reason)
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
        path.learned_at = self.world.clock.now
        path.deliver(MarkerAnswered(marker, route))

    def holds(self, key: bytes) -> bool:
        item = self.objects.get(key)
        return key in self.staged or (item is not None and item.status != "closed")

    def drop_object(self, item: LocalObject) -> None:
        if self.objects.get(item.key) is item:
            del self.objects[item.key]

    def check_lost(self, key: bytes) -> None:
        """A message shows that the row may name this run as owner of what it does not hold (B6.8)."""
        if key in self.checking or not self.world.sweeps:
            return
        self.checking.add(key)
        self.path(key).deliver(PathLost(self.run))
        self.world.store.read(key, partial(self.step, self._checked, key))

    def _accounted(self, key: bytes) -> bool:
        """Whether this run holds the object, or a handoff here will account for it."""
        return self.holds(key) or key in self.sources or key in self.objects or key in self.creating

    def _checked(self, key: bytes, known: bool, row: RowFacts | None) -> None:
        if known and row is not None and row.owner == self.run and not row.lost and not self._accounted(key):
            change = partial(RowFacts._replace, lost=True)
            reply = partial(self.step, self._marked, key)
            self.world.store.write(key, row.version, change, reply)
        else:
            self.checking.discard(key)

    def _marked(self, key: bytes, outcome: str) -> None:
        self.checking.discard(key)
        if outcome == "applied":
            self.world.history.counts["lost by sweep"] += 1
        elif outcome != "conflict":
            self.check_lost(key)

    # frames

    def send(self, run: NodeRun, frame: tuple[Any, ...], *, queue: bool = True) -> None:
        connection = self.links.get(run)
        if self.world.telling:
            self.world.trace(self, b"", ("send", run, connection and connection.number, frame))
        if connection is not None:
            self.world.network.send(connection, self, frame)
        elif queue:
            if self.world.is_gone(run):
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

    def frame_arrived(self, connection: Connection, frame: tuple[Any, ...]) -> None:
        kind = frame[0]
        if kind == "record":
            self.take(frame[1], connection)
        elif kind in ("restore", "chunk", "relay", "cutover", "withdrawn"):
            self._handoff_frame(connection, frame)
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
            self._learned(frame[1], frame[2])
        elif kind == "marker answered":
            self._marker_answered(*frame[1:])
        elif kind == "marker failed":
            self.path(frame[1]).deliver(MarkerFailed(frame[2]))

    def _learned(self, key: bytes, route: Route) -> None:
        if self.holds(key) or key in self.sources:
            return
        path = self.path(key)
        path.learned_at = self.world.clock.now
        path.deliver(RouteLearned(route))

    def cutover_handed(self, identity: HandoffIdentity, connection: int) -> None:
        source = self.handoffs.get(identity)
        if source is not None:
            source.deliver(ev.CutoverSubmitted(connection))

    # the target's side of a handoff

    def _handoff_frame(self, connection: Connection, frame: tuple[Any, ...]) -> None:
        identity: HandoffIdentity = frame[1]
        if identity in self.judging:
            self.judging[identity].append((connection, frame))
            return
        target = self.targets.get(identity)
        number = connection.number
        kind = frame[0]
        if target is None:
            if kind == "restore":
                self._new_restore(connection, frame)
            elif kind == "relay":
                self.fail(frame[2], "Unavailable")
        elif kind == "restore":
            target.deliver(ev.RestoreRequested(frame[3], number))
        elif kind == "withdrawn":
            target.deliver(ev.WithdrawnReceived())
        elif kind == "chunk":
            target.deliver(ev.ChunkArrived(frame[2], frame[3], number))
        elif kind == "relay":
            record = frame[2]
            if record.excuse == LOST_ON_THE_WAY:
                record.excuse = None
            if self.staged.get(record.key) is target:  # else it may be a late copy
                record.where = self.run
            target.arrived(ev.RelayArrived(frame[2], number), frame[2])
        else:
            target.deliver(ev.CutoverArrived(frame[2], frame[3], number))

    def _new_restore(self, connection: Connection, frame: tuple[Any, ...]) -> None:
        _, identity, key, manifest, remaining_s = frame
        target = self.world.target_driver(self, identity, key, self.world.clock.now + remaining_s)
        item = self.objects.get(key)
        source = self.sources.get(key)
        if (item is not None and item.status == "open") or (source is not None and source.before_boundary):
            self.targets[identity] = target
            target.deliver(ev.RestoreRefused(FAILURE_SPOT_STALE, connection.number))
        elif key in self.staged or any(f[0][1][2] == key for f in self.judging.values() if f):
            self.judging[identity] = [(connection, frame)]
            self.world.store.read(key, partial(self.step, self._judge, target, connection, frame))
        else:
            self.targets[identity] = target
            target.deliver(ev.RestoreRequested(manifest, connection.number))

    def _judge(
        self,
        target: TargetDriver,
        connection: Connection,
        frame: tuple[Any, ...],
        known: bool,
        row: RowFacts | None,
    ) -> None:
        """Two identities for one object (B8.16)."""
        if not known:
            read = partial(self.step, self._judge, target, connection, frame)
            self.world.clock.after(0.05, self.step, self.world.store.read, target.key, read)
            return
        waiting = self.judging.pop(target.identity)
        self.targets[target.identity] = target
        older = self.staged.get(target.key)
        number = connection.number
        lives = row is not None and row.version == target.identity.expected_version
        if older is not None:
            verdict = judge_rivals(row, older.machine, target.identity)  # type: ignore[arg-type]
            if self.world.newest_identity_wins:
                verdict = RivalVerdict(older_lives=False, newcomer_lives=True)
            lives = verdict.newcomer_lives
            if not verdict.older_lives:
                older.deliver(ev.RivalPreferred())
        item = self.objects.get(target.key)
        if item is not None and item.status == "open":
            lives = False
        if not lives:
            target.deliver(ev.RestoreRefused(FAILURE_SPOT_STALE, number))
        else:
            target.deliver(ev.RestoreRequested(frame[3], number))
        for record in self.inherited.pop(target.key, []):
            if lives:
                target.deliver(ev.DirectArrived(record))
            else:
                self.take(record, None)
        for each in waiting[1:]:
            self.frame_arrived(*each)

    def stage(self, target: TargetDriver) -> None:
        """Register the temporary queue; this node's own path leads here from now on (B8.14, B9.4)."""
        key = target.key
        self.staged[key] = self.latest[key] = target
        if not self.world.divert_at_commit:
            self.lead_here(target)

    def lead_here(self, target: TargetDriver) -> None:
        key = target.key
        path = self.path(key)
        source = self.sources.get(key)
        last = path.machine.last_run
        if last in (None, self.run) and source is not None and source.follow_owner is None:
            path.deliver(PathTaken(Route(source.target.run, 0, 0)))  # what this node followed went there
        path.deliver(StagingBegun(self.run, target.identity.source))

    def unstage(self, target: TargetDriver) -> None:
        if self.staged.get(target.key) is target:
            del self.staged[target.key]

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

    def link_down(self, connection: Connection) -> None:
        run = self._peer(connection)
        if self.links.get(run) is not connection:
            return
        del self.links[run]
        unsent = list(connection.pipes[self.run].outbound)
        connection.pipes[self.run].outbound.clear()
        for source in list(self.handoffs.values()):
            if source.target.run == run and source.begun:
                left = sum(1 for f in unsent if f[0] == "relay" and f[1] == source.identity)
                back = tuple(f[1] for f in unsent if f[0] == "record" and f[2] is source)
                source.deliver(ev.LinkLost(connection.number, source.relayed - left, back))
        for target in list(self.targets.values()):
            if target.identity.source == run:
                target.deliver(ev.LinkLost(connection.number))
        for path in list(self.paths.values()):
            path.deliver(PathLost(run))
        for frame in unsent:
            if frame[0] == "record" and (frame[2] is None or frame[2].identity not in self.handoffs):
                self._unsent_record(frame[1], frame[2])

    def _unsent_record(self, record: Record, source: SourceDriver | None) -> None:
        """Never handed to a connection: it waits on, or fails with `applied` = no (B3.4)."""
        if source is not None or record.marker is not None or record.hops:
            self.fail(record, "Unavailable")
        else:
            self.submit(record)

    def run_gone(self, run: NodeRun) -> None:
        """The lease of that run is over."""
        for source in list(self.handoffs.values()):
            if source.target.run == run:
                source.deliver(ev.TargetRunGone())
        for path in list(self.paths.values()):
            path.deliver(PathLost(run))
        for frame in self.outbox.pop(run, []):
            self._fail_frame(frame)
