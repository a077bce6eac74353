"""`SessionSeal`: one binding at its session owner, while its Actor stays or moves (R4.1.2, R7, B11).

Owns the route of the client's messages, the messages held under a seal and their order, and whose pushes are
believed. It chooses no target, judges no readiness and knows no store (section 2). It checks the binding,
the incarnation of the Actor and the relocation identity, and nothing else (B11.1).

1. `SealRequested` → `SendSealed`: from here on what the client sends waits (R4.1.2). The same 42 again is
   answered again and changes nothing; any other is refused and the link stays (B11.2).
2. `RouteCommitted` → `SwitchRoute`, `SubmitMessages`, and the seal is gone, in one step (B11.4).
   `RouteAborted` → `SubmitMessages` to the old route.
3. Neither in time: the socket is closed, binding, held messages and seal are dropped (R7.3). What comes later,
   or of another relocation, is a Warning and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from sojourn.handoff.machine import DeadlineReached, Event, Ignored, Machine, Reasons, Same, State, on
from sojourn.ids import describe_key
from sojourn.session.effects import (
    CloseSocket,
    DeliverPush,
    DropMessages,
    DropPush,
    ForgetBinding,
    RefuseSeal,
    SendSealed,
    SubmitMessages,
    SwitchRoute,
)
from sojourn.session.events import (
    ClientMessageArrived,
    LeaseOver,
    PushArrived,
    RouteAborted,
    RouteCommitted,
    SealRequested,
    SocketClosed,
    Unbound,
)
from sojourn.session.terms import (
    CloseCode,
    SealIdentity,
    SealTerms,
    SessionOptions,
    SessionPlan,
    SessionRoute,
)

__all__ = ["RouteOpen", "Sealed", "SessionOver", "SessionSeal"]


@dataclass(frozen=True, slots=True)
class Settled:
    """A seal that is over. `route` None = it was aborted."""

    terms: SealTerms
    route: SessionRoute | None
    until: float


@dataclass(slots=True)
class Bound(State):
    """The binding stands. `former`: previous owner generations and until when their pushes are believed;
    `settled`: seals of the recent past, so that a straggler changes nothing."""

    route: SessionRoute
    former: dict[int, float] = field(default_factory=dict)
    settled: dict[SealIdentity, Settled] = field(default_factory=dict)


@dataclass(slots=True)
class RouteOpen(Bound):
    """The client's messages go to the route as they come."""

    phase = "open"


@dataclass(slots=True)
class Sealed(Bound):
    """The Actor is moving: the client's messages are held, in order, until `closes_at` at most."""

    phase = "sealed"
    terms: SealTerms = field(kw_only=True)
    closes_at: float = field(kw_only=True)
    held: list[Any] = field(default_factory=list)

    @property
    def deadline(self) -> float | None:
        return self.closes_at


@dataclass(slots=True)
class SessionOver(State):
    """The binding is over: unbound, its socket closed, or its owner no longer believed."""

    phase = "over"


_OVER: Reasons = dict.fromkeys((Unbound, SocketClosed, LeaseOver, DeadlineReached), "the binding is over")


class SessionSeal(Machine):
    """One binding at its session owner.

    Args:
        plan: the binding and its Actor.
        route: the Actor's owner when it was bound.
        options: durations.
    """

    STATES = (RouteOpen, Sealed, SessionOver)
    EVENTS: ClassVar[tuple[type[Event], ...]] = (
        SealRequested,
        RouteCommitted,
        RouteAborted,
        ClientMessageArrived,
        PushArrived,
        Unbound,
        SocketClosed,
        LeaseOver,
        DeadlineReached,
    )
    IGNORED: ClassVar[Ignored] = {
        RouteOpen: {DeadlineReached: "a timer of an earlier seal"},
        SessionOver: _OVER,
    }

    def __init__(self, plan: SessionPlan, route: SessionRoute, options: SessionOptions | None = None) -> None:
        super().__init__(RouteOpen(route))
        self.plan = plan
        self.options = options or SessionOptions()

    # the seal

    @on(SealRequested, RouteOpen, to=(RouteOpen, Sealed))
    def _seal(self, state: RouteOpen, event: SealRequested, now: float) -> None:
        terms = event.terms
        if not self._concerns(terms.binding, terms.object_generation):
            self._refuse(event, "NotFound", "this binding is not here")
            return
        self._forget_old(state, now)
        past = state.settled.get(terms.identity)
        if past is None:
            self._do(SendSealed(event.connection, terms))
            self.state = state.into(Sealed, terms=terms, closes_at=now + self.options.seal_timeout_s)
        elif past.route is not None and past.terms == terms:  # a repeat that its own commit has overtaken
            self._do(SendSealed(event.connection, terms))
        else:
            self._refuse(event, "InvalidOperation", "this relocation's seal is over")

    @on(SealRequested, Sealed)
    def _seal_again(self, state: Sealed, event: SealRequested, now: float) -> None:
        """The same request is no change, not even of the time it counts from (B11.2, B11.5)."""
        if not self._concerns(event.terms.binding, event.terms.object_generation):
            self._refuse(event, "NotFound", "this binding is not here")
        elif event.terms == state.terms:
            self._do(SendSealed(event.connection, event.terms))
        else:
            self._refuse(event, "InvalidOperation", "another relocation has sealed this binding")

    @on(SealRequested, SessionOver)
    def _seal_in_vain(self, state: SessionOver, event: SealRequested, now: float) -> None:
        self._refuse(event, "NotFound", "this binding is over")

    def _refuse(self, event: SealRequested, kind: str, reason: str) -> None:
        self._do(RefuseSeal(event.connection, event.terms, kind, reason))

    def _concerns(self, binding: object, object_generation: int) -> bool:
        return binding == self.plan.binding and object_generation == self.plan.object_generation

    # the route update

    @on(RouteCommitted, Sealed, to=(RouteOpen, Sealed, SessionOver))
    def _commit(self, state: Sealed, event: RouteCommitted, now: float) -> None:
        """Switch, submit, unseal, in one serial step (B11.4)."""
        if not self._in_time(state, event, now):
            return
        until = now + self.options.follow_duration_s
        # The one that sealed may be newer than the route: a move within a node tells no session (B8.7).
        former = {**state.former, state.route.owner_generation: until, state.terms.owner_generation: until}
        former.pop(event.route.owner_generation, None)
        self._do(SwitchRoute(event.route))
        self._unseal(state, event.route, former, Settled(state.terms, event.route, self._kept_until(now)))

    @on(RouteAborted, Sealed, to=(RouteOpen, Sealed, SessionOver))
    def _abort(self, state: Sealed, event: RouteAborted, now: float) -> None:
        """The source's queue is back: what was held goes to the old route (R7.2)."""
        if self._in_time(state, event, now):
            settled = Settled(state.terms, None, self._kept_until(now))
            self._unseal(state, state.route, state.former, settled)

    def _in_time(self, state: Sealed, event: RouteCommitted | RouteAborted, now: float) -> bool:
        if now >= state.closes_at:  # the timer is late, the time is over all the same (R7.3)
            self._close_unsettled(state)
            self._warn_late(event)
            return False
        mine = event.identity == state.terms.identity
        if not mine or not self._concerns(event.binding, event.object_generation):
            self._late(state, event)
            return False
        return True

    def _unseal(self, state: Sealed, route: SessionRoute, former: dict[int, float], settled: Settled) -> None:
        if state.held:
            self._do(SubmitMessages(route, tuple(state.held)))
        past = {**state.settled, state.terms.identity: settled}
        self.state = RouteOpen(route, former, past)

    @on(RouteCommitted, RouteOpen)
    @on(RouteAborted, RouteOpen)
    def _late(self, state: Bound, event: RouteCommitted | RouteAborted, now: float = 0.0) -> None:
        """Of a relocation whose seal does not stand: nothing changes; an identical repeat is no news either."""
        past = state.settled.get(event.identity)
        route = event.route if isinstance(event, RouteCommitted) else None
        if past is None or past.route != route:
            self._warn_late(event)

    @on(RouteCommitted, SessionOver)
    @on(RouteAborted, SessionOver)
    def _too_late(self, state: SessionOver, event: RouteCommitted | RouteAborted, now: float) -> None:
        self._warn_late(event)

    def _warn_late(self, event: RouteCommitted | RouteAborted) -> None:
        self._log(
            "late_session_route_update",
            "warning",
            relocation_id=event.identity.relocation_id,
            object_id=describe_key(self.plan.key),
            update="commit" if isinstance(event, RouteCommitted) else "abort",
        )

    # messages and pushes

    @on(ClientMessageArrived, RouteOpen)
    def _submit(self, state: RouteOpen, event: ClientMessageArrived, now: float) -> None:
        self._do(SubmitMessages(state.route, (event.message,)))

    @on(ClientMessageArrived, Sealed)
    def _hold(self, state: Sealed, event: ClientMessageArrived, now: float) -> None:
        state.held.append(event.message)

    @on(ClientMessageArrived, SessionOver)
    def _nobody_sends(self, state: SessionOver, event: ClientMessageArrived, now: float) -> None:
        self._do(DropMessages((event.message,)))

    @on(PushArrived, RouteOpen, Sealed)
    def _push(self, state: Bound, event: PushArrived, now: float) -> None:
        """A newer owner is believed at once: its first push may come before its route commit (B11.3)."""
        generation = event.owner_generation
        believed = generation >= state.route.owner_generation or now < state.former.get(generation, now)
        self._do(DeliverPush(event.push) if believed else DropPush(event.push))

    @on(PushArrived, SessionOver)
    def _nobody_listens(self, state: SessionOver, event: PushArrived, now: float) -> None:
        self._do(DropPush(event.push))

    # endings

    @on(DeadlineReached, Sealed, to=(Same, SessionOver))
    def _seal_timed_out(self, state: Sealed, event: DeadlineReached, now: float) -> None:
        if now >= state.closes_at:
            self._close_unsettled(state)

    def _close_unsettled(self, state: Sealed) -> None:
        self._log(
            "session_seal_timeout",
            "warning",
            relocation_id=state.terms.identity.relocation_id,
            object_id=describe_key(self.plan.key),
            held=len(state.held),
        )
        self._do(CloseSocket(CloseCode.SEAL_TIMEOUT, self.plan.resume_token))
        self._end(state)

    @on(Unbound, RouteOpen, Sealed, to=(SessionOver,))
    @on(SocketClosed, RouteOpen, Sealed, to=(SessionOver,))
    def _ended(self, state: Bound, event: Unbound | SocketClosed, now: float) -> None:
        self._end(state)

    @on(LeaseOver, RouteOpen, Sealed, to=(SessionOver,))
    def _not_believed(self, state: Bound, event: LeaseOver, now: float) -> None:
        """Whoever moves the Actor takes this binding for none: the client must not wait here (B11.2)."""
        self._do(CloseSocket(CloseCode.LEASE_OVER, self.plan.resume_token))
        self._end(state)

    def _end(self, state: Bound) -> None:
        if isinstance(state, Sealed) and state.held:
            self._do(DropMessages(tuple(state.held)))
        self._do(ForgetBinding())
        self.state = SessionOver()

    # memory

    def _kept_until(self, now: float) -> float:
        return now + self.options.follow_duration_s

    @staticmethod
    def _forget_old(state: Bound, now: float) -> None:
        state.former = {generation: until for generation, until in state.former.items() if now < until}
        state.settled = {each: past for each, past in state.settled.items() if now < past.until}
