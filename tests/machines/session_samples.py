"""Ready-made session machines for the tests: one in every state, and samples of every event."""

from __future__ import annotations

from sojourn.handoff.machine import DeadlineReached, Effect, Event, Machine, State
from sojourn.ids import NodeRun, actor_key
from sojourn.rows import Binding
from sojourn.session import contact as ct
from sojourn.session import events as se
from sojourn.session import seal as sl
from sojourn.session.contact import SessionContact
from sojourn.session.seal import SessionSeal
from sojourn.session.terms import SealIdentity, SealTerms, SessionPlan, SessionRoute

A, B = NodeRun(b"A", 1), NodeRun(b"B", 1)
BINDING = Binding(b"O", 1, "owner-o", 1, b"s1", 7)
OTHER_BINDING = Binding(b"O", 1, "owner-o", 1, b"s1", 6)
PLAN = SessionPlan(BINDING, actor_key("p1"), 3, b"token")
AT_A, AT_B = SessionRoute(A, 4, 1), SessionRoute(B, 5, 1)
MOVE = SealIdentity((0, 7), "owner-a", 1, A, "v5")
OTHER_MOVE = MOVE._replace(relocation_id=(0, 8))
TERMS = SealTerms(MOVE, BINDING, 3, 4)
OTHER_TERMS = TERMS._replace(identity=OTHER_MOVE)
COMMIT = se.RouteCommitted(MOVE, BINDING, 3, AT_B)
ABORT = se.RouteAborted(MOVE, BINDING, 3)
SEAL = se.SealRequested(TERMS, 1)


class SessionPlay:
    """A machine with a clock."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.now = 0.0

    def __call__(self, *events: Event, at: float | None = None) -> list[Effect]:
        self.now = self.now if at is None else at
        return [effect for event in events for effect in self.machine.handle(event, self.now)]

    @property
    def state(self) -> State:
        return self.machine.state


def seal_in(kind: type[State]) -> SessionPlay:
    """A binding in the wanted state."""
    play = SessionPlay(SessionSeal(PLAN, AT_A))
    if kind is not sl.RouteOpen:
        play(SEAL, se.ClientMessageArrived("m1"))
    if kind is sl.SessionOver:
        play(se.SocketClosed())
    assert type(play.state) is kind
    return play


CONTACT_SCRIPTS: dict[type[State], list[Event]] = {
    ct.ContactQuiet: [se.ConnectionUp(1)],
    ct.ContactAsking: [se.ConnectionUp(1), se.SealWanted()],
    ct.ContactTelling: [se.ConnectionUp(1), se.SealWanted(), se.RouteDecided("44", commit=False)],
    ct.ContactNobody: [se.OwnerGone()],
    ct.ContactOver: [se.OwnerGone(), se.ContactReleased()],
}


def contact_in(kind: type[State]) -> SessionPlay:
    """A contact in the wanted state, on connection 1."""
    play = SessionPlay(SessionContact())
    play(*CONTACT_SCRIPTS[kind])
    assert type(play.state) is kind
    return play


SESSION_SAMPLES: dict[type[Event], list[Event]] = {
    se.SealRequested: [
        SEAL,
        se.SealRequested(OTHER_TERMS, 1),
        se.SealRequested(TERMS._replace(owner_generation=9), 1),
        se.SealRequested(TERMS._replace(binding=OTHER_BINDING), 1),
        se.SealRequested(TERMS._replace(object_generation=2), 1),
    ],
    se.RouteCommitted: [COMMIT, se.RouteCommitted(OTHER_MOVE, BINDING, 3, AT_B)],
    se.RouteAborted: [ABORT, se.RouteAborted(MOVE, OTHER_BINDING, 3)],
    se.ClientMessageArrived: [se.ClientMessageArrived("m2")],
    se.PushArrived: [se.PushArrived("p", generation) for generation in (3, 4, 5)],
    se.Unbound: [se.Unbound()],
    se.SocketClosed: [se.SocketClosed()],
    se.LeaseOver: [se.LeaseOver()],
    se.ConnectionUp: [se.ConnectionUp(2)],
    se.ConnectionDown: [se.ConnectionDown(1), se.ConnectionDown(9)],
    se.SealWanted: [se.SealWanted()],
    se.SealAnswered: [se.SealAnswered(1), se.SealAnswered(9)],
    se.SealDenied: [se.SealDenied(1, no_binding=True), se.SealDenied(1, no_binding=False)],
    se.RouteDecided: [se.RouteDecided("44", commit=True), se.RouteDecided("44", commit=False)],
    se.OwnerGone: [se.OwnerGone()],
    se.ContactReleased: [se.ContactReleased()],
    DeadlineReached: [DeadlineReached()],
}
