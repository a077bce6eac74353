"""The path from one sending node to one object, and the marker that keeps its order (B9.4).

Owns, per (sender node, object): where records go now, the marker that is out, and the records that wait
meanwhile. It must not know records, connections or how a route is found. Whoever holds the node's route
cache runs one `SenderPath` for each object it sends to; it covers every worker of the node.

How the router drives it:

- Hot path: while `current` is a run, a record may be sent there at once, without an event. Otherwise the
  record is given as `RecordSubmitted`; it comes back in a `SendOn` or a `FailSubmitted`.
- `LookUpRoute` is answered by `RouteLearned` or `RouteRefused`. Command 50 and other news of the owner are
  `RouteLearned` as well. A cache entry that grows too old is `RouteExpired`.
- `SendMarker(run, id)` goes out behind everything sent to `run`. Its answer, from whoever took it into a
  mailbox or staging, is `MarkerAnswered`; an error answer is `MarkerFailed`. An id that is no longer
  waited for is ignored.
- `PathTaken` is a switch that needs no marker, because everything sent so far stays in front anyway: the
  source that learned its own commit (its follow frames and its new records share one connection), a target
  that gave the object up (it follows first, on the same connection).
- `StagingBegun` is the same for a target, and sends a marker where B9.4 wants one.
- A link or lease that ended is `PathLost`: order across cuts is not promised.
- In `NoPath` the object may be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from sojourn.handoff.machine import DeadlineReached, Effect, Event, Ignored, Machine, Reasons, Same, State, on
from sojourn.ids import NodeRun

__all__ = [
    "AwaitingMarker",
    "FailSubmitted",
    "LookUpRoute",
    "LookingUp",
    "MarkerAnswered",
    "MarkerFailed",
    "MarkerTaken",
    "NoPath",
    "OnPath",
    "PathLost",
    "PathTaken",
    "RecordSubmitted",
    "Route",
    "RouteExpired",
    "RouteLearned",
    "RouteRefused",
    "SendMarker",
    "SendOn",
    "SenderPath",
    "StagingBegun",
    "StalePath",
]

MARKER_TIMEOUT_S = 2.0
"""How long records wait for a marker before the path is switched anyway (B9.4)."""
PATH_KEPT_S = 30.0
"""How long the last path is kept after its cache entry aged out: the follow duration (B9.1, B9.4)."""


class Route(NamedTuple):
    """An owner of the object: its node run and both generations of the row that named it (0 = unknown)."""

    run: NodeRun
    object_generation: int
    owner_generation: int

    def older_than(self, other: Route) -> bool:
        """Whether this names an earlier owner or incarnation than `other` (B9.1)."""
        return self[1:] < other[1:]


# Events


class RecordSubmitted(Event, frozen=True):
    """A record for the object was accepted at this node while `current` was None."""

    heavy = True
    record: Any


class RouteLearned(Event, frozen=True):
    """A look-up, command 50 or other news named an owner."""

    route: Route


class RouteRefused(Event, frozen=True):
    """The look-up ended without an owner; `reason` goes to the senders as it is."""

    reason: Any


class RouteExpired(Event, frozen=True):
    """The route cache entry aged out (B9.1): look up again before the next record.

    `expired_at` is when, if that is only noticed at the next record; None = now.
    """

    expired_at: float | None = None


class PathTaken(Event, frozen=True):
    """Switch to this route without a marker: nothing sent before can be overtaken."""

    route: Route


class StagingBegun(Event, frozen=True):
    """A move of the object to this node, `run`, registered its temporary queue here (B8.14).

    From now on the path leads here: this node's own senders, and what comes here directly, are given as
    `RecordSubmitted` and come back in a `SendOn` to `run`, behind a marker if the last path led anywhere
    else than to `source`, the node the object comes from (B9.4). While that marker is out, also after the
    object opened, ask `holds_from(peer)` for what comes here: what `source` sends passes by, and what comes
    from a node whose own marker was taken here meanwhile (`MarkerTaken`). What this node still followed for a move
    away whose commit it has not learned counts as its last path: tell it by `PathTaken` first.
    """

    run: NodeRun
    source: NodeRun
    queued: bool = False
    """Records of this node still wait here on their way to `source`, where the relay-ready would overtake them."""


class MarkerTaken(Event, frozen=True):
    """A marker of the node `run` was answered here, by the staging or the mailbox: from now on everything it
    sends here directly is in order of itself, and passes by this node's own marker."""

    run: NodeRun


class PathLost(Event, frozen=True):
    """The link to this run broke, or its lease ended."""

    run: NodeRun


class MarkerAnswered(Event, frozen=True):
    """Whoever took the marker into its mailbox or staging answered.

    `route.owner_generation` is one that is committed for sure: a node that only stages the object answers
    with the source's, so that news of a failed move is not taken for old.
    """

    marker_id: int
    route: Route


class MarkerFailed(Event, frozen=True):
    """The marker ended in an error: nobody there holds the object."""

    marker_id: int


# Effects


class SendOn(Effect, frozen=True):
    """Send the records to `run`, in order and before anything submitted later."""

    run: NodeRun
    records: tuple[Any, ...]


class SendMarker(Effect, frozen=True):
    """Send a marker record to `run` behind everything sent there for this object."""

    run: NodeRun
    marker_id: int


class LookUpRoute(Effect, frozen=True):
    """Find the owner of the object (own table, cache, row, placement)."""


class FailSubmitted(Effect, frozen=True):
    """End these records with the reason the look-up gave; none was sent (`applied` = no)."""

    records: tuple[Any, ...]
    reason: Any


# States


@dataclass(slots=True)
class NoPath(State):
    """Nothing is known and nothing is under way: the object may be forgotten."""


@dataclass(slots=True)
class OnPath(State):
    """Records go to `route.run` as they come."""

    route: Route


@dataclass(slots=True)
class StalePath(State):
    """The cache entry aged out; the last path still counts for order until `forget_at`."""

    route: Route
    forget_at: float

    @property
    def deadline(self) -> float | None:
        return self.forget_at


@dataclass(slots=True)
class LookingUp(State):
    """Records wait for a look-up; `last` is the path used before, None when there is none to mind."""

    last: Route | None
    held: list[Any]


@dataclass(slots=True)
class AwaitingMarker(State):
    """A marker is out on `last`; records wait behind it. `learned` is the newest route, None when lost.

    `home` is this node's own run after `StagingBegun`: then the marker must come back to this very node.
    `passing` are the nodes whose records need not wait (None = nobody's arrivals wait); it stays until the
    wait ends, even if the staging is given up meanwhile.
    """

    last: Route
    learned: Route | None
    marker_id: int
    until: float
    held: list[Any] = field(default_factory=list)
    home: NodeRun | None = None
    passing: set[NodeRun] | None = None

    @property
    def deadline(self) -> float | None:
        return self.until


_NOT_ON_IT = "no path is in use"
_NO_WAIT: Reasons = {MarkerTaken: "nothing waits here"}
_NO_MARKER: Reasons = dict.fromkeys(
    (MarkerAnswered, MarkerFailed), "the answer of a marker no longer waited for"
)
_NO_TIMER: Reasons = {DeadlineReached: "a timer of an earlier state"}
_NO_LOOK_UP: Reasons = {RouteRefused: "the answer of a look-up no longer waited for"}


class SenderPath(Machine):
    """Where one node's records for one object go, in the order they were submitted (B9.4).

    Args:
        new_marker_id: gives an id that this node never uses twice.
        marker_timeout_s: the limit of B9.4.
        path_kept_s: the follow duration.
    """

    STATES = (NoPath, OnPath, StalePath, LookingUp, AwaitingMarker)
    EVENTS = (
        RecordSubmitted,
        RouteLearned,
        RouteRefused,
        RouteExpired,
        PathTaken,
        StagingBegun,
        MarkerTaken,
        PathLost,
        MarkerAnswered,
        MarkerFailed,
        DeadlineReached,
    )
    IGNORED: ClassVar[Ignored] = {
        NoPath: {
            RouteExpired: _NOT_ON_IT,
            PathLost: _NOT_ON_IT,
            **_NO_MARKER,
            **_NO_TIMER,
            **_NO_LOOK_UP,
            **_NO_WAIT,
        },
        OnPath: {**_NO_MARKER, **_NO_TIMER, **_NO_LOOK_UP, **_NO_WAIT},
        StalePath: {RouteExpired: "it has expired", **_NO_MARKER, **_NO_LOOK_UP, **_NO_WAIT},
        LookingUp: {RouteExpired: "it has expired", **_NO_MARKER, **_NO_TIMER, **_NO_WAIT},
        AwaitingMarker: {RouteExpired: "the answer will name the path", **_NO_LOOK_UP},
    }

    def __init__(
        self,
        new_marker_id: Callable[[], int],
        marker_timeout_s: float = MARKER_TIMEOUT_S,
        path_kept_s: float = PATH_KEPT_S,
    ) -> None:
        super().__init__(NoPath())
        self._new_marker_id = new_marker_id
        self._marker_timeout_s = marker_timeout_s
        self._path_kept_s = path_kept_s

    @property
    def current(self) -> NodeRun | None:
        """Where a record may be sent at once; None = give it as `RecordSubmitted`."""
        state = self.state
        return state.route.run if type(state) is OnPath else None

    @property
    def last_run(self) -> NodeRun | None:
        """The run that the records sent so far went to, as long as that matters for order; else None."""
        state = self.state
        if isinstance(state, OnPath | StalePath):
            return state.route.run
        if isinstance(state, LookingUp | AwaitingMarker) and state.last is not None:
            return state.last.run
        return None

    @property
    def marker_out(self) -> bool:
        """Whether a marker of this node is out: the object must not be sealed here meanwhile (B9.4)."""
        return type(self.state) is AwaitingMarker

    @property
    def holds_arrivals(self) -> bool:
        """Whether the marker of `StagingBegun` is out, so that `holds_from` must be asked."""
        state = self.state
        return type(state) is AwaitingMarker and state.passing is not None

    def holds_from(self, peer: NodeRun | None) -> bool:
        """Whether a record that came for the object from `peer` must be given as `RecordSubmitted`.

        `peer` None: from this node's own senders.
        """
        state = self.state
        return type(state) is AwaitingMarker and state.passing is not None and peer not in state.passing

    # records

    @on(RecordSubmitted, NoPath, StalePath, to=(LookingUp,))
    def _look_up_first(self, state: NoPath | StalePath, event: RecordSubmitted, now: float) -> None:
        last = state.route if isinstance(state, StalePath) else None
        self._do(LookUpRoute())
        self.state = LookingUp(last, [event.record])

    @on(RecordSubmitted, OnPath)
    def _send_at_once(self, state: OnPath, event: RecordSubmitted, now: float) -> None:
        self._do(SendOn(state.route.run, (event.record,)))

    @on(RecordSubmitted, LookingUp, AwaitingMarker)
    def _hold(self, state: LookingUp | AwaitingMarker, event: RecordSubmitted, now: float) -> None:
        state.held.append(event.record)

    # routes

    @on(RouteLearned, NoPath, to=(OnPath,))
    def _first_route(self, state: NoPath, event: RouteLearned, now: float) -> None:
        self.state = OnPath(event.route)

    @on(RouteLearned, OnPath, to=(OnPath, AwaitingMarker))
    def _news_on_path(self, state: OnPath, event: RouteLearned, now: float) -> None:
        if event.route.run == state.route.run:
            if state.route.older_than(event.route):
                state.route = event.route
        elif not event.route.older_than(state.route):
            self._mark(state.route, event.route, [], now + self._marker_timeout_s)

    @on(RouteLearned, StalePath, LookingUp, to=(OnPath, AwaitingMarker))
    def _route_found(self, state: StalePath | LookingUp, event: RouteLearned, now: float) -> None:
        last, held = (state.route, []) if isinstance(state, StalePath) else (state.last, state.held)
        if last is None or last.run == event.route.run:
            self._switch(event.route, held)
        else:
            self._mark(last, event.route, held, now + self._marker_timeout_s)

    @on(RouteLearned, AwaitingMarker)
    def _news_while_waiting(self, state: AwaitingMarker, event: RouteLearned, now: float) -> None:
        if state.home is None and (state.learned is None or not event.route.older_than(state.learned)):
            state.learned = event.route

    @on(PathTaken, AwaitingMarker)
    def _taken_while_waiting(self, state: AwaitingMarker, event: PathTaken, now: float) -> None:
        state.learned, state.home = event.route, None

    @on(StagingBegun, AwaitingMarker)
    def _staged_while_waiting(self, state: AwaitingMarker, event: StagingBegun, now: float) -> None:
        state.learned, state.home = Route(event.run, 0, 0), event.run
        state.passing = {event.source}

    @on(StagingBegun, NoPath, OnPath, StalePath, LookingUp, to=(OnPath, AwaitingMarker))
    def _staged_here(self, state: State, event: StagingBegun, now: float) -> None:
        here = Route(event.run, 0, 0)
        last = state.route if isinstance(state, OnPath | StalePath) else None
        held: list[Any] = []
        if isinstance(state, LookingUp):
            last, held = state.last, state.held
        if last is None or last.run == event.run or (last.run == event.source and not event.queued):
            self._switch(here, held)
        else:
            until = now + self._marker_timeout_s
            self._mark(last, here, held, until, home=event.run, passing={event.source})

    @on(MarkerTaken, AwaitingMarker)
    def _marker_taken(self, state: AwaitingMarker, event: MarkerTaken, now: float) -> None:
        if state.passing is not None:
            state.passing.add(event.run)

    @on(RouteRefused, LookingUp, to=(NoPath, StalePath))
    def _refused(self, state: LookingUp, event: RouteRefused, now: float) -> None:
        if state.held:
            self._do(FailSubmitted(tuple(state.held), event.reason))
        self.state = NoPath() if state.last is None else StalePath(state.last, now + self._path_kept_s)

    @on(RouteExpired, OnPath, to=(StalePath, NoPath))
    def _expired(self, state: OnPath, event: RouteExpired, now: float) -> None:
        expired_at = now if event.expired_at is None else event.expired_at
        forget_at = expired_at + self._path_kept_s
        self.state = NoPath() if forget_at <= now else StalePath(state.route, forget_at)

    @on(DeadlineReached, StalePath, to=(NoPath, StalePath))
    def _forget(self, state: StalePath, event: DeadlineReached, now: float) -> None:
        if now >= state.forget_at:
            self.state = NoPath()

    @on(PathTaken, NoPath, OnPath, StalePath, LookingUp, to=(OnPath,))
    def _taken(self, state: State, event: PathTaken, now: float) -> None:
        self._switch(event.route, state.held if isinstance(state, LookingUp) else [])

    # losses

    @on(PathLost, OnPath, StalePath, to=(Same, NoPath))
    def _path_lost(self, state: OnPath | StalePath, event: PathLost, now: float) -> None:
        if event.run == state.route.run:
            self.state = NoPath()

    @on(PathLost, LookingUp)
    def _last_path_lost(self, state: LookingUp, event: PathLost, now: float) -> None:
        if state.last is not None and event.run == state.last.run:
            state.last = None

    @on(PathLost, AwaitingMarker, to=(AwaitingMarker, OnPath, LookingUp))
    def _marked_path_lost(self, state: AwaitingMarker, event: PathLost, now: float) -> None:
        if state.learned is not None and event.run == state.learned.run:
            state.learned = None
        if event.run == state.home:  # the staging here was given up
            state.home = None
        if event.run == state.last.run:
            self._log("marker_lost", "info", run=str(event.run))
            self._give_up(state)

    # markers

    @on(MarkerAnswered, AwaitingMarker, to=(AwaitingMarker, OnPath))
    def _answered(self, state: AwaitingMarker, event: MarkerAnswered, now: float) -> None:
        if event.marker_id != state.marker_id:
            return
        if state.home is None or event.route.run == state.home:
            self._switch(event.route, state.held)
            return
        # Another node took it, for instance one that stages a move which was taken back: behind everything
        # sent there a new marker follows, until it comes home.
        if state.held:
            self._do(SendOn(event.route.run, tuple(state.held)))
        here = Route(state.home, 0, 0)
        self._mark(event.route, here, [], state.until, home=state.home, passing=state.passing)

    @on(MarkerFailed, AwaitingMarker, to=(AwaitingMarker, OnPath, LookingUp))
    def _failed(self, state: AwaitingMarker, event: MarkerFailed, now: float) -> None:
        if event.marker_id == state.marker_id:
            self._log("marker_failed", "info", run=str(state.last.run))
            self._give_up(state)

    @on(DeadlineReached, AwaitingMarker, to=(AwaitingMarker, OnPath, LookingUp))
    def _overdue(self, state: AwaitingMarker, event: DeadlineReached, now: float) -> None:
        if now >= state.until:
            self._log("marker_timeout", "warning", run=str(state.last.run), held=len(state.held))
            self._give_up(state)

    def _mark(
        self,
        last: Route,
        learned: Route,
        held: list[Any],
        until: float,
        *,
        home: NodeRun | None = None,
        passing: set[NodeRun] | None = None,
    ) -> None:
        marker_id = self._new_marker_id()
        self._do(SendMarker(last.run, marker_id))
        self.state = AwaitingMarker(last, learned, marker_id, until, held, home, passing)

    def _give_up(self, state: AwaitingMarker) -> None:
        """Switch without an answer: order is not promised on this path."""
        if state.learned is not None:
            self._switch(state.learned, state.held)
        else:
            self._do(LookUpRoute())
            self.state = LookingUp(None, state.held)

    def _switch(self, route: Route, held: list[Any]) -> None:
        if held:
            self._do(SendOn(route.run, tuple(held)))
        self.state = OnPath(route)
