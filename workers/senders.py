"""The sending side of one node: how records find an object that is not here.

Owns, per object, the path records take (look-up, cached route, path marker: B9.1, B9.4) and the list of
requests sent over links whose reply has not come back. There is one of these per node, shared by all its
workers, so that per-sender order holds whichever worker sends. It does not deliver anything here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple, Protocol

from sojourn import frames
from sojourn.errors import SojournError, Unavailable
from sojourn.frames import (
    FLAG_ACTIVATE,
    FLAG_COMPLETE,
    FLAG_FOLLOW,
    FLAG_INTENT,
    FLAG_MARKER,
    FLAG_REQUEST,
    RecordHeader,
)
from sojourn.handoff import path as machine
from sojourn.handoff.machine import DeadlineReached, Event, Log
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, describe_key
from sojourn.workers.debt import Creditor, Debt
from sojourn.workers.objects import LocalObject, route_fence
from sojourn.workers.records import record_origin
from sojourn.workers.routes import Route

__all__ = ["Exits", "Outstanding", "SenderPaths"]


class Exits(Protocol):
    """What the sending side needs from its node."""

    run: NodeRun

    async def resolve(self, key: ObjectKey, header: RecordHeader) -> Route:
        """Look an object up; for a missing Instance Spot choose a node. Raises a typed error otherwise."""
        ...

    def send_to(self, run: NodeRun, body: bytes, debt: Debt | None) -> bool:
        """Put a record on the link to a run, which settles the debt; False when there is no link."""
        ...

    def accounts_for(self, key: ObjectKey) -> bool:
        """Whether the object, a staging or an unfinished move of it is here: notices do not count then."""
        ...

    async def connect(self, run: NodeRun) -> None:
        """Establish the link to a run. Raises Unavailable when it cannot be reached."""
        ...

    def deliver_here(self, body: bytes, header: RecordHeader, debt: Debt | None) -> bool:
        """Give a record to the object on this node; False when it is not here."""
        ...

    def fail_record(self, body: bytes, header: RecordHeader, error: SojournError) -> None:
        """End a record with a typed error (request) or a dead letter (send)."""
        ...

    def send_marker(self, run: NodeRun, key: ObjectKey, kind: int, number: int) -> bool:
        """Put a path marker on the link to a run; False when there is no link."""
        ...

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that the node owns."""
        ...

    def marker_ended(self) -> None:
        """A marker of this node ended, with or without an answer."""
        ...

    def log(self, event: str, level: str, **fields: object) -> None:
        """Write a structured log event; `level` is debug, info, warning or error."""
        ...


class Outstanding(NamedTuple):
    """A request of this node that was handed to a link."""

    key: ObjectKey
    run: NodeRun
    operation_high: int
    operation_low: int
    moved: bool = False
    """It moved with its object to `run`, which repeats its end until this node has it (B7.1)."""


class PathEntry:
    """The path from this node to one object: the machine that keeps its order, and what the cache knows.

    `path` None: records go to `route.run`, and nothing else is to be known. Most objects are like that most
    of the time, so the machine is made again when something happens.
    """

    __slots__ = ("header", "key", "marker", "path", "route", "timer", "timer_at")

    def __init__(self, key: ObjectKey, header: RecordHeader | None, path: machine.SenderPath | None) -> None:
        self.key = key
        self.header = header
        """Header of the record that steers the look-up by its kind, type and intent: the last one that needed
        it, and of those that wait together rather one with instance intent."""
        self.route: Route | None = None
        self.path = path
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at = 0.0
        self.marker = 0


class SenderPaths:
    """Every path of one node. See the module text."""

    def __init__(
        self,
        exits: Exits,
        loop: asyncio.AbstractEventLoop,
        *,
        cache_age_s: float,
        marker_limit_s: float,
        follow_s: float,
    ) -> None:
        self._exits = exits
        self._loop = loop
        self._cache_age_s = cache_age_s
        self._marker_limit_s = marker_limit_s
        self._follow_s = follow_s
        self._entries: dict[ObjectKey, PathEntry] = {}
        self._markers: dict[int, PathEntry] = {}
        self._next_marker = 0
        self.outstanding: dict[int, Outstanding] = {}
        """Own requests handed to a link, by reply route."""

    # what the node asks -------------------------------------------------------------------------

    def busy(self, key: ObjectKey) -> bool:
        """Whether records of this node to the object are held here (look-up or marker under way).

        While they are, later ones must go the same way even if the object has come to this node.
        """
        entry = self._entries.get(key)
        return (
            entry is not None
            and entry.path is not None
            and isinstance(entry.path.state, machine.LookingUp | machine.AwaitingMarker)
        )

    def marker_out(self, key: ObjectKey) -> bool:
        """Whether a marker of this node is out for the object: no seal meanwhile (B9.4)."""
        entry = self._entries.get(key)
        return entry is not None and entry.path is not None and entry.path.marker_out

    def holds_back(self, held: LocalObject, peer: NodeRun | None) -> bool:
        """Whether a record that came here from `peer` (None = this node) waits behind this node's own marker."""
        entry = self._entries.get(held.key)
        if entry is None or entry.path is None or not entry.path.holds_arrivals:
            held.guarded = False
            return False
        return entry.path.holds_from(peer)

    def hold(self, body: bytes, header: RecordHeader, debt: Debt | None) -> None:
        """Let a record that came here wait behind this node's own marker."""
        entry = self._entries[header.key]
        self._steer(entry, header)
        self._handle(entry, machine.RecordSubmitted((body, header, debt)))

    # records ------------------------------------------------------------------------------------

    def submit(self, body: bytes, header: RecordHeader, debt: Debt | None) -> None:
        """Send a record of this node, behind everything it sent to the object before."""
        entry = self._entries.get(header.key)
        if entry is None:
            entry = self._enter(header.key, header)
        route = entry.route
        if route is not None and (entry.path is None or entry.path.current == route.run):
            if self._loop.time() - route.learned_at <= self._cache_age_s:
                self._send(entry, route, body, header, debt)
                return
            self._handle(entry, machine.RouteExpired(route.learned_at + self._cache_age_s))
        self._steer(entry, header)
        self._handle(entry, machine.RecordSubmitted((body, header, debt)))

    def pass_on(self, body: bytes, key: ObjectKey, creditor: Creditor) -> bool:
        """`submit` for a new record without anything special about it, where its object's path is settled and
        leads to another run; False where it is not."""
        entry = self._entries.get(key)
        if entry is None:
            return False
        route = entry.route
        if route is None or not route.fence or route.run == self._exits.run:
            return False
        if entry.path is not None and entry.path.current != route.run:
            return False
        if self._loop.time() - route.learned_at > self._cache_age_s:
            return False
        complete, reply_route, high, low = frames.complete_open(body, route.fence, route.object_generation)
        if not self._exits.send_to(route.run, complete, Debt(creditor, len(body))):
            return False
        if reply_route:
            self.outstanding[reply_route] = Outstanding(key, route.run, high, low)
        return True

    def _steer(self, entry: PathEntry, header: RecordHeader) -> None:
        """A record needs a look-up. One that would have a missing Instance Spot made is not forgotten for
        another that waits behind it and would not."""
        known = entry.header
        wanted = known is not None and known.flags & FLAG_INTENT and not header.flags & FLAG_INTENT
        if not (wanted and self.busy(entry.key)):
            entry.header = header

    def _enter(self, key: ObjectKey, header: RecordHeader | None) -> PathEntry:
        entry = self._entries[key] = PathEntry(key, header, self._new_path())
        return entry

    def _new_path(self) -> machine.SenderPath:
        return machine.SenderPath(self._new_marker, self._marker_limit_s, self._follow_s)

    def _open(self, entry: PathEntry) -> machine.SenderPath:
        """The entry's machine, made again from its route if it is not there."""
        path = entry.path
        if path is None:
            path = entry.path = self._new_path()
            if entry.route is not None:
                path.handle(machine.PathTaken(_named(entry.route)), self._loop.time())
        return path

    def _new_marker(self) -> int:
        self._next_marker += 1
        return self._next_marker

    def _send(
        self, entry: PathEntry, route: Route, body: bytes, header: RecordHeader, debt: Debt | None
    ) -> None:
        run = route.run
        if run == self._exits.run:
            if not self._exits.deliver_here(body, header, debt):
                self._path_gone(entry, run)
                self.submit(body, header, debt)
            return
        if not body[1] & FLAG_COMPLETE:
            if route.object_generation:
                body = frames.complete_record(body, header, route.fence, route.object_generation)
            else:
                body = frames.set_hops(body, header.hops, FLAG_ACTIVATE)
        if not self._exits.send_to(run, body, debt):
            self._path_gone(entry, run)
            self.submit(body, header, debt)
            return
        if header.flags & FLAG_REQUEST and self._own(body, header):
            self.outstanding[header.reply_route] = Outstanding(
                header.key, run, header.operation_high, header.operation_low
            )

    def _own(self, body: bytes, header: RecordHeader) -> bool:
        return not body[1] & FLAG_FOLLOW or record_origin(body, header.record_at) == self._exits.run

    def resubmit(self, bodies: list[bytes]) -> None:
        """Records that a closed link never handed over: this node's own find their way anew, what it only
        followed ends as not delivered (B3.4)."""
        for body in bodies:
            header = frames.parse_record_header(body)
            if header.hops or header.flags & FLAG_MARKER:
                self._exits.fail_record(body, header, _cut_off(header.key))
                continue
            self.outstanding.pop(header.reply_route, None)
            self.submit(frames.set_hops(body, header.hops, 0, FLAG_ACTIVATE), header, None)

    # look-ups -----------------------------------------------------------------------------------

    def follow(self, held: LocalObject, body: bytes, header: RecordHeader, debt: Debt | None) -> None:
        """Send a record on to where its object went, by this node's own path to it (R10.1)."""
        run = held.follow_run
        assert run is not None
        entry = self._entries.get(held.key) or self._enter(held.key, header)
        if self._last_run(entry) in (None, self._exits.run):
            self._open(entry)
            entry.route = self._route_to(held, run)
            self._handle(entry, machine.PathTaken(_named(entry.route)))
        current = self._current(entry)
        if current is None:
            self._steer(entry, header)
            self._handle(entry, machine.RecordSubmitted((body, header, debt)))
        else:
            route = entry.route
            if route is None or route.run != current:
                route = self._route_to(held, current)
            self._send(entry, route, body, header, debt)

    @staticmethod
    def _last_run(entry: PathEntry) -> NodeRun | None:
        if entry.path is not None:
            return entry.path.last_run
        return None if entry.route is None else entry.route.run

    @staticmethod
    def _current(entry: PathEntry) -> NodeRun | None:
        if entry.path is not None:
            return entry.path.current
        return None if entry.route is None else entry.route.run

    def _route_to(self, held: LocalObject, run: NodeRun) -> Route:
        return Route(run, held.kind, held.object_generation, held.owner_generation, b"", self._loop.time())

    async def _look_up(self, entry: PathEntry) -> None:
        """Find the route and the link to it; what waited goes on in order, or fails with the reason."""
        header = entry.header
        if header is None:  # nobody waits for it
            self._handle(entry, machine.RouteRefused(_cut_off(entry.key)))
            return
        before = entry.route
        try:
            route = await self._exits.resolve(entry.key, header)
            if route.run != self._exits.run:
                await self._exits.connect(route.run)
        except SojournError as error:
            later = entry.header
            if later is not None and later.flags & FLAG_INTENT and not header.flags & FLAG_INTENT:
                self._exits.start(self._look_up(entry))  # what came meanwhile would have it made
                return
            self._handle(entry, machine.RouteRefused(error))
            return
        if (
            entry.route is before
        ):  # the row counts, also one of a store that forgot: a later route was not heard of
            entry.route = None
        self._learn(entry, route)

    def _learn(self, entry: PathEntry, route: Route) -> None:
        self._open(entry)
        if entry.route is None or not route.older_than(entry.route):
            entry.route = route
        self._handle(entry, machine.RouteLearned(_named(route)))

    def learned(self, key: ObjectKey, route: Route) -> None:
        """A notice (command 50, a node that made the object) names a route (B9.1, B9.2)."""
        entry = self._entries.get(key)
        if entry is None or self._exits.accounts_for(key):
            return
        if entry.route is not None and route.older_than(entry.route):
            return
        self._exits.start(self._learn_connected(entry, route))

    def made(self, key: ObjectKey, kind: int, run: NodeRun, generation: int, lease_generation: int) -> None:
        """An object was made anew at `run`: nothing is under way to this incarnation yet."""
        entry = self._entries.get(key)
        if entry is None or run == self._exits.run:
            return
        fence = route_fence(key, kind, generation, run, 1, lease_generation)
        entry.route = Route(run, kind, generation, 1, fence, self._loop.time())
        self._handle(entry, machine.PathTaken(_named(entry.route)))

    async def _learn_connected(self, entry: PathEntry, route: Route) -> None:
        try:
            if route.run != self._exits.run:
                await self._exits.connect(route.run)
        except SojournError:
            return
        self._learn(entry, route)

    def install_follow(self, held: LocalObject, first: NodeRun, route: Route) -> None:
        """The object left for `route.run`; what this node sent so far went to `first` (see the machines'
        `InstallFollowRoute`)."""
        entry = self._entries.get(held.key) or self._enter(held.key, None)
        path = self._open(entry)
        if path.last_run in (None, self._exits.run) or path.holds_arrivals:
            entry.route = self._route_to(held, first)
            self._handle(entry, machine.PathTaken(_named(entry.route)))
        if route.run != first:
            self._exits.start(self._learn_connected(entry, route))
        else:
            entry.route = route

    def staging_begun(
        self, held: LocalObject, source: NodeRun, followed: NodeRun | None, queued: bool
    ) -> None:
        """The object comes to this node: own senders lead here from now on, behind a marker if need be (B9.4).

        `followed` is where this node still followed for a move away whose commit it has not learned.
        """
        entry = self._entries.get(held.key) or self._enter(held.key, None)
        run = self._exits.run
        path = self._open(entry)
        if followed is not None and path.last_run in (None, run):
            self._handle(entry, machine.PathTaken(_named(self._route_to(held, followed))))
        entry.route = self._route_to(held, run)
        self._handle(entry, machine.StagingBegun(run, source, queued))
        held.guarded = path.holds_arrivals

    def left_here(self, key: ObjectKey) -> None:
        """The object is not here after all: forget the path that led here."""
        entry = self._entries.get(key)
        if entry is not None:
            self._path_gone(entry, self._exits.run)

    # markers and losses -------------------------------------------------------------------------

    def marker_answered(self, number: int, route: Route) -> bool:
        """The node that took the marker answers: records go there from now on. False when unknown."""
        entry = self._markers.pop(number, None)
        if entry is None:
            return False
        if entry.route is None or not route.older_than(entry.route) or route.run != entry.route.run:
            entry.route = route
        self._handle(entry, machine.MarkerAnswered(number, _named(route)))
        return True

    def marker_taken_from(self, key: ObjectKey, run: NodeRun) -> None:
        """A marker of `run` was answered here: what it sends directly is in order from now on."""
        entry = self._entries.get(key)
        if entry is not None:
            self._handle(entry, machine.MarkerTaken(run))

    def marker_refused(self, number: int) -> None:
        """Nobody took the marker in."""
        entry = self._markers.get(number)
        if entry is not None:
            self._marker_failed(entry, number)

    def followed(self, reply_route: int, run: NodeRun, *, kept: bool = False) -> None:
        """A request of this node was sent on to `run`: its end comes from there now (B7.1). Whether `run` keeps that end
        until this node has it, `run` itself says (`RequestsTaken`); `kept`: it is to be taken for granted."""
        request = self.outstanding.get(reply_route)
        if request is not None:
            moved = kept or (request.moved and request.run == run)
            self.outstanding[reply_route] = request._replace(run=run, moved=moved)

    def forget_requests(self, slot: int) -> None:
        """The worker in this slot ended: nobody waits for its requests any more."""
        for route in [route for route in self.outstanding if (route >> 48) - 1 == slot]:
            del self.outstanding[route]

    def run_lost(self, run: NodeRun) -> list[int]:
        """A link went down: its paths are lost. Returns the reply routes of requests that were handed to it."""
        for entry in list(self._entries.values()):
            self._path_gone(entry, run)
        return [route for route, request in self.outstanding.items() if request.run == run]

    def _path_gone(self, entry: PathEntry, run: NodeRun) -> None:
        self._open(entry)
        if entry.route is not None and entry.route.run == run:
            entry.route = None
        self._handle(entry, machine.PathLost(run))

    def _handle(self, entry: PathEntry, event: Event) -> None:
        path = self._open(entry)
        marked = path.marker_out
        for effect in path.handle(event, self._loop.time()):
            if isinstance(effect, machine.SendOn):
                self._send_on(entry, effect)
            elif isinstance(effect, machine.LookUpRoute):
                self._exits.start(self._look_up(entry))
            elif isinstance(effect, machine.SendMarker):
                self._send_marker(entry, effect)
            elif isinstance(effect, machine.FailSubmitted):
                self._fail(effect)
            elif isinstance(effect, Log):
                self._exits.log(effect.name, effect.level, object_id=describe_key(entry.key), **effect.fields)
        if entry.path is path:
            self._arm(entry, path)
        if marked and not path.marker_out:
            self._markers.pop(entry.marker, None)
            self._exits.marker_ended()

    def _send_on(self, entry: PathEntry, effect: machine.SendOn) -> None:
        route = entry.route
        if route is None or route.run != effect.run:
            # The marker's answer goes before what the cache knows: order first (B9.4).
            known = route or Route(effect.run, 0, 0, 0, b"", self._loop.time())
            route = Route(
                effect.run,
                known.kind,
                known.object_generation,
                known.owner_generation,
                known.fence,
                self._loop.time(),
            )
        for body, header, debt in effect.records:
            self._send(entry, route, body, header, debt)

    def _fail(self, effect: machine.FailSubmitted) -> None:
        for body, header, debt in effect.records:
            if debt is not None:
                debt.settle()
            self._exits.fail_record(body, header, effect.reason)

    def _send_marker(self, entry: PathEntry, effect: machine.SendMarker) -> None:
        self._markers.pop(entry.marker, None)
        self._markers[effect.marker_id] = entry
        entry.marker = effect.marker_id
        kind = entry.route.kind if entry.route is not None else ObjectKind.INSTANCE_SPOT
        if not self._exits.send_marker(effect.run, entry.key, kind, effect.marker_id):
            self._loop.call_soon(self._marker_failed, entry, effect.marker_id)

    def _marker_failed(self, entry: PathEntry, number: int) -> None:
        """The old path has no link any more: nothing sent on it can still be under way in order."""
        if self._markers.pop(number, None) is not None:
            self._handle(entry, machine.MarkerFailed(number))

    def _arm(self, entry: PathEntry, path: machine.SenderPath) -> None:
        """Set the entry's timer; forget what is not needed any more."""
        deadline = path.deadline
        if entry.timer is not None:
            if deadline == entry.timer_at:
                return
            entry.timer.cancel()
            entry.timer = None
        if deadline is not None:
            entry.timer_at = deadline
            entry.timer = self._loop.call_at(deadline, self._deadline, entry)
        elif isinstance(path.state, machine.NoPath):
            if self._entries.get(entry.key) is entry:
                del self._entries[entry.key]
        elif entry.route is not None and path.current == entry.route.run:
            entry.path = entry.header = None

    def _deadline(self, entry: PathEntry) -> None:
        entry.timer = None
        self._handle(entry, DeadlineReached())

    def sweep(self) -> None:
        """Forget the paths nobody used for longer than they matter: cache age plus follow duration (B9.1)."""
        old = self._loop.time() - self._cache_age_s - self._follow_s
        for entry in list(self._entries.values()):
            route = entry.route
            if route is not None and route.learned_at < old and self._current(entry) is not None:
                self._handle(entry, machine.RouteExpired(route.learned_at + self._cache_age_s))

    def close(self) -> None:
        """Cancel every timer."""
        for entry in self._entries.values():
            if entry.timer is not None:
                entry.timer.cancel()
        self._entries.clear()


def _named(route: Route) -> machine.Route:
    return machine.Route(route.run, route.object_generation, route.owner_generation)


def _cut_off(key: ObjectKey) -> Unavailable:
    name = describe_key(key)
    return Unavailable(
        f"the connection over which a message to {name} was to be followed broke before it was sent",
        object_id=name,
        applied="no",
    )
