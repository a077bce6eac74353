"""Planted bugs of session seals."""

from __future__ import annotations

from typing import Any

from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff import source_states as ss
from sojourn.handoff.machine import DeadlineReached
from sojourn.handoff.source import SourceHandoff
from sojourn.handoff.target import TargetHandoff
from sojourn.session import contact as ct
from sojourn.session import effects as sx
from sojourn.session import events as se
from sojourn.session import seal as sl
from sojourn.session.contact import SessionContact
from sojourn.session.seal import SessionSeal

from tests.simulation.mutants.planting import CUTS, changed, mutant, source, target
from tests.simulation.world import World

__all__: list[str] = []

BOUND = {"sessions": 5, "client_every_s": 0.005}


def seal(world: World, cells: dict[Any, Any] | None = None, **members: Any) -> None:
    world.seal_class = changed(SessionSeal, cells or {}, **members)


def contact(world: World, cells: dict[Any, Any] | None = None, **members: Any) -> None:
    world.contact_class = changed(SessionContact, cells or {}, **members)


# the session owner


@mutant("held messages are dropped at the commit", "B11.4", 3, **BOUND)
def _plant(world: World) -> None:
    def forgetful(self: Any, state: sl.Sealed, route: Any, former: Any, settled: Any) -> None:
        self.state = sl.RouteOpen(route, former, {**state.settled, state.terms.identity: settled})

    seal(world, _unseal=forgetful)


@mutant("a client's messages pass the seal", "R4.1.2", 3, **BOUND)
def _plant(world: World) -> None:
    def passed_on(self: Any, state: sl.Sealed, event: se.ClientMessageArrived, now: float) -> None:
        if len(state.held) % 2:
            self._do(sx.SubmitMessages(state.route, (event.message,)))
        else:
            state.held.append(event.message)

    seal(world, {(sl.Sealed, se.ClientMessageArrived): passed_on})


@mutant("a late route update is applied", "B11.4", 40, long_turns=0.002, move_every_s=0.03, **CUTS, **BOUND)
def _plant(world: World) -> None:
    def applied(self: Any, state: sl.Bound, event: se.RouteCommitted, now: float) -> None:
        self._do(sx.SwitchRoute(event.route))
        self.state = sl.RouteOpen(event.route, state.former, state.settled)

    def any_move(self: Any, state: sl.Sealed, event: Any, now: float) -> bool:
        return True

    seal(world, {(sl.RouteOpen, se.RouteCommitted): applied}, _in_time=any_move)


@mutant("a repeated 42 starts the seal's time anew", "B11.5", 60, stalls=2.0, cuts=3.0, pauses=0.0, **BOUND)
def _plant(world: World) -> None:
    honest = SessionSeal._seal_again

    def anew(self: Any, state: sl.Sealed, event: se.SealRequested, now: float) -> None:
        honest(self, state, event, now)
        state.closes_at = now + self.options.seal_timeout_s

    seal(world, {(sl.Sealed, se.SealRequested): anew})


@mutant("a seal has no time limit", "R7.3", 60, kills=0.3, pauses=0.0, **BOUND)
def _plant(world: World) -> None:
    def waits(self: Any, state: sl.Sealed, event: Any, now: float) -> None:
        state.closes_at = now + 1000.0

    seal(world, {(sl.Sealed, DeadlineReached): waits})


# the source


def _accept_at_once(self: Any, state: ss.TargetRestoring, event: ev.RelayReadyReceived, now: float) -> None:
    state.confirming = frozenset()
    _honest_accept(self, state, event, now)


_honest_accept = SourceHandoff._accept


@mutant("the cutover does not wait for the second 43", "B11.3", 40, stalls=4.0, link_delay_s=0.005, **BOUND)
def _plant(world: World) -> None:
    source(world, _accept=_accept_at_once)


@mutant("the abort goes out before the queue is back", "R7.2", 5, cancels=0.3, **BOUND)
def _plant(world: World) -> None:
    restore = SourceHandoff._restore

    def early(self: Any, hold: list[Any], reason: Any, **how: Any) -> None:
        self._do(fx.AbortSessions())
        restore(self, hold, reason, **how)

    source(world, _restore=early)


@mutant("the abort goes out while the fence's outcome is not known", "B6.7", 20, cancels=0.3, **BOUND)
def _plant(world: World) -> None:
    fence = SourceHandoff._fence

    def early(self: Any, state: Any, reason: Any) -> None:
        self._do(fx.AbortSessions())
        fence(self, state, reason)

    source(world, _fence=early)


@mutant("the object stops before its session is sealed", "R4.1.2", 10, link_delay_s=0.005, **BOUND)
def _plant(world: World) -> None:
    def stops(self: Any, connection: int) -> None:
        self._do(fx.SealObject(self.plan.gives_up_at))
        self.state = ss.Sealing(connection, self.plan.gives_up_at)

    source(world, _reach_boundary=stops)


@mutant(
    "an abort that a connection lost is not repeated",
    "B11.4",
    80,
    cuts=4.0,
    cancels=0.8,
    stalls=0.0,
    pauses=0.0,
    **BOUND,
)
def _plant(world: World) -> None:
    def silent(self: Any, state: ct.ContactTelling, event: se.ConnectionUp, now: float) -> None:
        state.connection = event.connection

    contact(world, {(ct.ContactTelling, se.ConnectionUp): silent})


# the target


@mutant("the target does not tell the session owner", "R4.6.4", 3, **BOUND)
def _plant(world: World) -> None:
    def silent(self: Any, state: Any, event: ev.DispatchOpened, now: float) -> None:
        state.bound = False
        _honest_opened(self, state, event, now)

    target(world, _opened=silent)


_honest_opened = TargetHandoff._opened
