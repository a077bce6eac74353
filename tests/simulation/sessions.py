"""Sessions in the simulation: clients bound to objects, their seals, and those who move the objects.

The client at a session owner sends, by way of its node's own path to the object, and listens; what it sends is judged at the seal (nothing left out, nothing
twice, in order) and again by the history. Pushes are numbered by the turns of the object that sent them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sojourn.handoff.machine import Effect, Event, Log, State
from sojourn.handoff.path import Route
from sojourn.handoff.terms import HandoffIdentity, RowFacts
from sojourn.ids import NodeRun
from sojourn.rows import Binding
from sojourn.session import effects as sx
from sojourn.session import events as se
from sojourn.session.contact import SessionContact
from sojourn.session.seal import RouteOpen, Sealed, SessionOver, SessionSeal
from sojourn.session.terms import (
    CloseCode,
    SealIdentity,
    SealTerms,
    SessionOptions,
    SessionPlan,
    SessionRoute,
)

from tests.simulation.driver import Driver
from tests.simulation.history import Record, Violation

if TYPE_CHECKING:
    from tests.simulation.node import Node
    from tests.simulation.objects import LocalObject

__all__ = [
    "FRAMES",
    "ClientSession",
    "ContactDriver",
    "abort_of",
    "arrived",
    "commit_of",
    "push_of_turn",
    "terms_of",
]

FRAMES = frozenset(("seal", "sealed", "seal refused", "route", "push"))
HERE = 0
CLIENTS_FROM = 100
"""Sender numbers of clients start here."""


class ClientSession(Driver):
    """A client bound to an object, and the machine of its seal at the session owner."""

    machine: SessionSeal

    def __init__(self, node: Node, key: bytes, number: int, row: RowFacts) -> None:
        super().__init__(node, key)
        world = self.world
        self.binding = Binding(node.run.rid, node.run.generation, "owner", 1, key, 1)
        self.object_generation = row.object_generation
        options = SessionOptions(follow_duration_s=world.mix.options.follow_duration_s)
        plan = SessionPlan(self.binding, key, row.object_generation)
        self.machine = world.seal_class(plan, SessionRoute(row.owner, row.owner_generation, 1), options)
        self.sender = CLIENTS_FROM + number
        self.sequence = 0
        self.pending: deque[Record] = deque()
        """Accepted and not submitted: what the seal holds, in order."""
        self.last_push = -1
        self.sealed_at = 0.0
        self._asked = HERE
        self._last_terms: SealTerms

    @property
    def over(self) -> bool:
        return isinstance(self.machine.state, SessionOver)

    # the client

    def send_later(self) -> None:
        delay = self.world.clock.random.expovariate(1.0 / self.world.mix.client_every_s)
        self.world.clock.after(delay, self._send_and_repeat)

    def _send_and_repeat(self) -> None:
        if not self.world.senders_stop and not self.over and self.node.alive:
            self.node.step(self.send)
            self.send_later()

    def send(self) -> None:
        if self.over:
            return
        world = self.world
        record = Record(
            world.next_number(), self.node.run, self.key, self.sender, self.sequence, world.clock.now
        )
        self.sequence += 1
        self.pending.append(record)
        self.deliver(se.ClientMessageArrived(record))

    # the seal

    def asked(self, terms: SealTerms, connection: int) -> None:
        self._asked = connection
        self.deliver(se.SealRequested(terms, connection))

    def deliver(self, event: Event, not_before: float = 0.0) -> None:
        before = self.machine.state
        super().deliver(event, not_before)
        self._judge(before, event)

    def _judge(self, before: State, event: Event) -> None:
        after, name = self.machine.state, self.key.decode()
        if isinstance(before, Sealed) and isinstance(after, RouteOpen):
            own = getattr(event, "identity", None) == before.terms.identity
            if not own:
                raise Violation(f"the seal of {name} was released by {event}")
        if isinstance(before, RouteOpen) and isinstance(after, RouteOpen) and before.route != after.route:
            raise Violation(f"the route of {name}'s session changed without a seal: {event}")
        if isinstance(before, RouteOpen) and isinstance(after, Sealed):
            self.sealed_at, self._last_terms = self.world.clock.now, after.terms
            for _ in range(self.world.clock.random.randint(0, 3)):
                self.world.clock.after(self.world.clock.random.random() * 0.02, self.node.step, self.send)
        ends_at = self.sealed_at + self._seal_timeout_s() + 1e-6
        if isinstance(after, Sealed) and self.world.clock.now > ends_at and not self.world.mix.pauses:
            raise Violation(f"the seal of {name} is older than its time")

    def _seal_timeout_s(self) -> float:
        """On virtual time: this node measures it with its own clock."""
        return self.machine.options.seal_timeout_s / self.node.local.rate

    def _reply(self, frame: tuple[Any, ...]) -> None:
        if self._asked == HERE:
            self.world.clock.after(0.0, self.node.step, arrived, self.node, HERE, frame)
        else:
            self.node.send_on(self._asked, frame)

    def _sealed(self, effect: sx.SendSealed) -> None:
        self._reply(("sealed", self.key, effect.terms))

    def _refused(self, effect: sx.RefuseSeal) -> None:
        self.world.history.counts["seals refused"] += 1
        self._reply(("seal refused", self.key, effect.terms, effect.kind))

    def _switch(self, effect: sx.SwitchRoute) -> None:
        row = self.world.store.rows[self.key]
        if row.object_generation == self.object_generation and (
            row.owner_generation < effect.route.owner_generation
        ):
            raise Violation(f"a session is switched to {effect.route}, while the store says {row}")
        self.world.history.counts["sessions switched"] += 1
        route = effect.route
        self.node.learned(self.key, Route(route.run, self.object_generation, route.owner_generation))

    def _submit(self, effect: sx.SubmitMessages) -> None:
        for record in effect.messages:
            if not self.pending or self.pending.popleft() is not record:
                raise Violation(f"{record} of a client was submitted out of its turn or twice")
            record.accepted_at = self.world.clock.now
            self.world.history.accepted(record)
            self.node.submit(record)
        if self.pending and isinstance(self.machine.state, RouteOpen):
            raise Violation(f"{len(self.pending)} messages of a client were left behind a released seal")

    def _deliver_push(self, effect: sx.DeliverPush) -> None:
        push: Record = effect.push
        history = self.world.history
        if push.sequence <= self.last_push:
            if not history._was_disturbed(push, self.world.clock.now):
                raise Violation(f"push {push.sequence} of {self.key.decode()} came after {self.last_push}")
        elif self.world.calm and push.sequence != self.last_push + 1:
            raise Violation(f"push {push.sequence} of {self.key.decode()} came after {self.last_push}")
        self.last_push = max(self.last_push, push.sequence)
        history.counts["pushes"] += 1

    def _drop_push(self, effect: sx.DropPush) -> None:
        if self.world.calm:
            raise Violation("a push was dropped although there was no fault")

    def _drop(self, effect: sx.DropMessages) -> None:
        if list(effect.messages) != list(self.pending):
            raise Violation("a client's messages were dropped that were not those held")
        self.pending.clear()

    def _close(self, effect: sx.CloseSocket) -> None:
        self.world.history.counts[f"sockets closed: {effect.code.name}"] += 1
        sealed_s = self.world.clock.now - self.sealed_at
        if effect.code is CloseCode.SEAL_TIMEOUT:
            if self.world.calm:
                raise Violation("a seal timed out although there was no fault")
            self._check_not_aborted()
            if sealed_s < self._seal_timeout_s() - 1e-6:
                raise Violation(f"a socket was closed {sealed_s:.3f} s after its seal")

    def _check_not_aborted(self) -> None:
        """A seal that was given back runs out only if the abort had no connection to come on (B11.4)."""
        world = self.world
        terms = self._last_terms
        at = world.aborted.get(terms.identity.relocation_id)
        link = self.node.links.get(terms.identity.source)
        if at is None or link is None or world.mix.stalls or world.mix.pauses or world.mix.lease_cuts:
            return
        if max(at, link.since) < world.clock.now - 1.0:
            raise Violation(f"the seal of {self.key.decode()} ran out although it had been given back")

    def _log(self, effect: Log) -> None:
        self.world.logged(self.node, self.key, effect)
        if self.world.calm:
            raise Violation(f"{effect.name} although there was no fault")

    def check_sealed(self, relocation_id: tuple[int, int]) -> None:
        """The object is being captured: its client's messages must wait here, or there is no client (R4.1.2)."""
        state = self.machine.state
        if not self.node.alive or self.node.paused or isinstance(state, SessionOver):
            return
        if not isinstance(state, Sealed) or state.terms.identity.relocation_id != relocation_id:
            raise Violation(f"{self.key.decode()} is captured while its session is not sealed")

    def check_settled(self) -> None:
        """At the end no seal stands, and nothing that was accepted is kept back."""
        if isinstance(self.machine.state, Sealed):
            raise Violation(f"the session of {self.key.decode()} is still sealed")
        if self.pending:
            raise Violation(f"{len(self.pending)} messages of a client were never submitted")

    _carriers = {  # noqa: RUF012
        Log: _log,
        sx.SendSealed: _sealed,
        sx.RefuseSeal: _refused,
        sx.SwitchRoute: _switch,
        sx.SubmitMessages: _submit,
        sx.DeliverPush: _deliver_push,
        sx.DropPush: _drop_push,
        sx.DropMessages: _drop,
        sx.CloseSocket: _close,
        sx.ForgetBinding: lambda self, effect: None,
    }


class ContactDriver(Driver):
    """One handoff's talk with one session owner."""

    machine: SessionContact

    def __init__(self, node: Node, session: ClientSession, terms: SealTerms) -> None:
        super().__init__(node, session.key)
        self.session = session
        self.terms = terms
        self.report: Callable[[Effect], None] = lambda effect: None
        self.machine = self.world.contact_class()
        node.contacts.append(self)
        owner = session.node.run
        link = node.links.get(owner)
        if owner == node.run:
            self.deliver(se.ConnectionUp(HERE))
        elif link is not None:
            self.deliver(se.ConnectionUp(link.number))
        elif owner in self.node.gone:
            self.deliver(se.OwnerGone())

    @property
    def owner(self) -> NodeRun:
        return self.session.node.run

    def _send(self, connection: int, frame: tuple[Any, ...]) -> None:
        if connection == HERE:
            self.world.clock.after(0.0, self.node.step, arrived, self.node, HERE, frame)
        else:
            self.node.send_on(connection, frame)

    def _send_seal(self, effect: sx.SendSeal) -> None:
        self._send(effect.connection, ("seal", self.key, self.terms))

    def _send_route(self, effect: sx.SendRoute) -> None:
        self._send(effect.connection, ("route", self.key, effect.update))

    def _report(self, effect: Effect) -> None:
        self.world.clock.after(0.0, self.node.step, self.report, effect)

    def _forget(self, effect: sx.ForgetContact) -> None:
        self.node.contacts.remove(self)

    _carriers = {  # noqa: RUF012
        Log: Driver.log,
        sx.SendSeal: _send_seal,
        sx.SendRoute: _send_route,
        sx.ReportSealed: _report,
        sx.ReportNoBinding: _report,
        sx.ReportRefused: _report,
        sx.ForgetContact: _forget,
    }


def terms_of(session: ClientSession, identity: HandoffIdentity, owner_generation: int) -> SealTerms:
    """What the 42 of a handoff says."""
    seal = SealIdentity(
        identity.relocation_id,
        identity.owner_id,
        identity.lease_generation,
        identity.source,
        identity.expected_version,
    )
    return SealTerms(seal, session.binding, session.object_generation, owner_generation)


def commit_of(contact: ContactDriver, run: NodeRun) -> se.RouteCommitted:
    """Command 44 of a target."""
    terms = contact.terms
    route = SessionRoute(run, terms.owner_generation + 1, 1)
    return se.RouteCommitted(terms.identity, terms.binding, terms.object_generation, route)


def abort_of(contact: ContactDriver) -> se.RouteAborted:
    """Command 44 of a source."""
    terms = contact.terms
    return se.RouteAborted(terms.identity, terms.binding, terms.object_generation)


def push_of_turn(node: Node, item: LocalObject, sequence: int) -> None:
    """A turn ended: the object tells its client, under its present owner generation."""
    session = node.world.sessions.get(item.key)
    if session is None or session.object_generation != item.generation:
        return
    push = Record(0, node.run, item.key, -2, sequence, node.world.clock.now)
    frame = ("push", item.key, push, node.world.store.rows[item.key].owner_generation)
    if session.node.run == node.run:
        arrived(node, HERE, frame)
    else:
        node.send(session.node.run, frame)


def arrived(node: Node, connection: int, frame: tuple[Any, ...]) -> None:
    """A frame about a session arrived at this node."""
    kind, key = frame[0], frame[1]
    if kind in ("sealed", "seal refused"):
        for contact in list(node.contacts):
            if contact.terms == frame[2]:
                contact.deliver(
                    se.SealAnswered(connection)
                    if kind == "sealed"
                    else se.SealDenied(connection, frame[3] == "NotFound")
                )
        return
    session = node.world.sessions.get(key)
    if session is None or session.node is not node:
        return
    if kind == "seal":
        session.asked(frame[2], connection)
    elif kind == "route":
        session.deliver(frame[2])
    else:
        session.deliver(se.PushArrived(frame[2], frame[3]))
