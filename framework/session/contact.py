"""`SessionContact`: what one handoff has to say to one session owner (B11.2 to B11.4).

Owns when a 42 and a 44 go out again on a new connection, and which 43 answers which 42. The handoff machines
say what is wanted (`AskSessionSeal`, `AbortSessions`, `CommitSessions`); what a connection lost is repeated
here. A source asks, and perhaps aborts; a target only tells its commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sojourn.handoff.machine import DeadlineReached, Event, Ignored, Machine, Reasons, Same, State, on
from sojourn.session.effects import (
    ForgetContact,
    ReportNoBinding,
    ReportRefused,
    ReportSealed,
    SendRoute,
    SendSeal,
)
from sojourn.session.events import (
    ConnectionDown,
    ConnectionUp,
    ContactReleased,
    OwnerGone,
    RouteDecided,
    SealAnswered,
    SealDenied,
    SealWanted,
)
from sojourn.session.terms import SessionOptions

__all__ = [
    "ContactAsking",
    "ContactNobody",
    "ContactOver",
    "ContactQuiet",
    "ContactTelling",
    "SessionContact",
]


@dataclass(slots=True)
class ContactQuiet(State):
    """Nothing is asked. `asked`: a 42 went out, so the seal may stand and an abort is owed (R7.2)."""

    phase = "quiet"
    connection: int | None = None
    asked: bool = False


@dataclass(slots=True)
class ContactAsking(State):
    """A 42 waits for its 43. `unanswered` counts those on the present connection: a connection answers in
    order, so the last of them answers the latest request."""

    phase = "asking"
    connection: int | None
    unanswered: int = 0
    asked: bool = False


@dataclass(slots=True)
class ContactTelling(State):
    """The 44 is known; it goes out again on every new connection until `until` (B11.4)."""

    phase = "telling"
    connection: int | None
    update: Any
    until: float

    @property
    def deadline(self) -> float | None:
        return self.until


@dataclass(slots=True)
class ContactNobody(State):
    """There is no such session any more; the handoff may still ask."""

    phase = "nobody"


@dataclass(slots=True)
class ContactOver(State):
    """There is nothing more to say."""

    phase = "over"


_LATE: Reasons = dict.fromkeys((SealAnswered, SealDenied), "an answer that nobody waits for any more")
_NO_TIMER: Reasons = {DeadlineReached: "a timer of an earlier state"}
_NO_NEWS: Reasons = {
    **_LATE,
    **dict.fromkeys((ConnectionUp, ConnectionDown, OwnerGone), "nobody is there to be told"),
}


class SessionContact(Machine):
    """One handoff's talk with one session owner. `options` hold the time a 44 is repeated for."""

    STATES = (ContactQuiet, ContactAsking, ContactTelling, ContactNobody, ContactOver)
    EVENTS: ClassVar[tuple[type[Event], ...]] = (
        ConnectionUp,
        ConnectionDown,
        SealWanted,
        SealAnswered,
        SealDenied,
        RouteDecided,
        OwnerGone,
        ContactReleased,
        DeadlineReached,
    )
    IGNORED: ClassVar[Ignored] = {
        ContactQuiet: {**_LATE, **_NO_TIMER},
        ContactAsking: _NO_TIMER,
        ContactTelling: {**_LATE, ContactReleased: "the update still has to arrive"},
        ContactNobody: {**_NO_NEWS, **_NO_TIMER},
        ContactOver: {
            **_NO_NEWS,
            **_NO_TIMER,
            **dict.fromkeys((RouteDecided, ContactReleased), "everything is said"),
        },
    }

    def __init__(self, options: SessionOptions | None = None) -> None:
        super().__init__(ContactQuiet())
        self.options = options or SessionOptions()

    # connections

    @on(ConnectionUp, ContactQuiet)
    def _up(self, state: ContactQuiet, event: ConnectionUp, now: float) -> None:
        state.connection = event.connection

    @on(ConnectionUp, ContactAsking)
    def _ask_again(self, state: ContactAsking, event: ConnectionUp, now: float) -> None:
        state.connection, state.unanswered = event.connection, 0
        self._ask(state)

    @on(ConnectionUp, ContactTelling)
    def _tell_again(self, state: ContactTelling, event: ConnectionUp, now: float) -> None:
        state.connection = event.connection
        self._do(SendRoute(event.connection, state.update))

    @on(ConnectionDown, ContactQuiet, ContactAsking, ContactTelling)
    def _down(
        self, state: ContactQuiet | ContactAsking | ContactTelling, event: ConnectionDown, now: float
    ) -> None:
        if event.connection == state.connection:
            state.connection = None

    # the seal

    @on(SealWanted, ContactQuiet, to=(ContactAsking,))
    def _first(self, state: ContactQuiet, event: SealWanted, now: float) -> None:
        asking = state.into(ContactAsking)
        self._ask(asking)
        self.state = asking

    @on(SealWanted, ContactAsking)
    def _once_more(self, state: ContactAsking, event: SealWanted, now: float) -> None:
        self._ask(state)

    @on(SealWanted, ContactNobody)
    def _nobody_to_ask(self, state: ContactNobody, event: SealWanted, now: float) -> None:
        self._do(ReportNoBinding())

    def _ask(self, state: ContactAsking) -> None:
        if state.connection is not None:
            state.unanswered += 1
            state.asked = True
            self._do(SendSeal(state.connection))

    @on(SealAnswered, ContactAsking, to=(ContactAsking, ContactQuiet))
    def _answered(self, state: ContactAsking, event: SealAnswered, now: float) -> None:
        if event.connection != state.connection or not state.unanswered:
            return
        state.unanswered -= 1
        if not state.unanswered:
            self._do(ReportSealed())
            self.state = state.into(ContactQuiet)

    @on(SealDenied, ContactAsking, to=(ContactAsking, ContactQuiet, ContactNobody))
    def _denied(self, state: ContactAsking, event: SealDenied, now: float) -> None:
        """A refused 42 has left no seal of this relocation behind."""
        if event.connection != state.connection or not state.unanswered:
            return
        if event.no_binding:
            self._do(ReportNoBinding())
            self.state = ContactNobody()
        else:
            self._do(ReportRefused(event.reason))
            self.state = ContactQuiet(state.connection)

    # the route update

    @on(RouteDecided, ContactQuiet, ContactAsking, to=(ContactTelling, ContactOver))
    def _decided(self, state: ContactQuiet | ContactAsking, event: RouteDecided, now: float) -> None:
        if not (event.commit or state.asked):  # no 42 left this node: no seal stands
            self._over()
            return
        if state.connection is not None:
            self._do(SendRoute(state.connection, event.update))
        self.state = ContactTelling(state.connection, event.update, now + self.options.seal_timeout_s)

    @on(DeadlineReached, ContactTelling, to=(Same, ContactOver))
    def _told_long_enough(self, state: ContactTelling, event: DeadlineReached, now: float) -> None:
        if now >= state.until:
            self._over()

    # endings

    @on(OwnerGone, ContactAsking, to=(ContactNobody,))
    def _gone_while_asking(self, state: ContactAsking, event: OwnerGone, now: float) -> None:
        self._do(ReportNoBinding())
        self.state = ContactNobody()

    @on(OwnerGone, ContactQuiet, to=(ContactNobody,))
    def _gone(self, state: ContactQuiet, event: OwnerGone, now: float) -> None:
        self.state = ContactNobody()

    @on(OwnerGone, ContactTelling, to=(ContactOver,))
    @on(ContactReleased, ContactQuiet, ContactAsking, ContactNobody, to=(ContactOver,))
    @on(RouteDecided, ContactNobody, to=(ContactOver,))
    def _end(self, state: State, event: OwnerGone | ContactReleased | RouteDecided, now: float) -> None:
        self._over()

    def _over(self) -> None:
        self._do(ForgetContact())
        self.state = ContactOver()
