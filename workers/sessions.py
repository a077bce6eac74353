"""Sessions as a node that moves Actors sees them: its talk with session owners, and its own desk.

Owns one `SessionContact` for each handoff and session, and which link each speaks over. The session owner may
be this very node: then the same commands go straight to its desk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sojourn import mesh
from sojourn.errors import SojournError
from sojourn.handoff.machine import DeadlineReached, Effect, Event, IllegalTransition, Log
from sojourn.ids import NodeRun
from sojourn.location import Found
from sojourn.rows import lease_row_key
from sojourn.session import effects, events
from sojourn.session.contact import ContactNobody, ContactOver, SessionContact
from sojourn.session.terms import SessionOptions
from sojourn.wire import (
    SessionRelocationRoute,
    SessionRelocationSeal,
    SessionRelocationSealed,
    encode_command,
)
from sojourn.workers.link import Link
from sojourn.workers.session_desk import SessionDesk
from sojourn.workers.session_wire import SessionCommand, SessionWire, actor_of, binding_of, terms_of

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["Contact", "Report", "Sessions", "route_command", "send_command"]

Report = Callable[[Effect], None]
"""Told what became of a 42: `ReportSealed`, `ReportNoBinding` or `ReportRefused`."""

HERE = 0
"""The number of the connection from a node to itself; real ones start at 1."""
LEASE_LOOK_S = 0.5
"""How often the lease of a session owner without a link is looked at: once it is over, there is no binding."""


class Contact:
    """One handoff's talk with one session owner: drives a `SessionContact`."""

    def __init__(self, sessions: Sessions, wire: SessionWire, report: Report) -> None:
        self._sessions = sessions
        self._node = sessions.node
        self.wire = wire
        self.machine = SessionContact(sessions.options)
        self._report = report
        self._timer: asyncio.TimerHandle | None = None
        self._asked = self._confirms = False
        self._steps: dict[type[Effect], Callable[[Any], None]] = {
            effects.SendSeal: lambda effect: self._send(effect.connection, wire.seal(), self._confirms),
            effects.SendRoute: lambda effect: self._send(effect.connection, effect.update),
            effects.ReportSealed: self._tell,
            effects.ReportNoBinding: self._tell,
            effects.ReportRefused: self._tell,
            effects.ForgetContact: lambda _: self._sessions.forget(self),
            Log: lambda effect: self._node.log(effect.name, effect.level, **effect.fields),
        }

    def handle(self, event: Event) -> None:
        """Give the machine one event and carry out what it says, in order."""
        try:
            steps = self.machine.handle(event, self._node.loop.time())
        except IllegalTransition as bug:  # a bug of ours: told with its story, the link it came on stays
            self._node.log("illegal_transition", "error", story=bug.message)
            return
        for effect in steps:
            self._steps[type(effect)](effect)
        self._arm(self.machine.deadline)

    def _arm(self, deadline: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            self._timer = self._node.loop.call_at(deadline, self.handle, DeadlineReached())

    def close(self) -> None:
        """The node stops."""
        self._arm(None)

    def want_seal(self) -> None:
        """Ask for the seal, or for its confirmation behind what this node has pushed so far (B11.3)."""
        self._asked, self._confirms = True, self._asked
        self.handle(events.SealWanted())

    def abort(self) -> None:
        """The Actor runs here again for good: give the seal back, if one may stand (R7.2)."""
        self.handle(events.RouteDecided(self.wire.abort(), commit=False))

    def commit(self) -> None:
        """The Actor runs here now: tell the session owner (R4.6.4)."""
        update = self.wire.commit(self._node.run, self._node.lease_generation)
        self.handle(events.RouteDecided(update, commit=True))

    def release(self) -> None:
        """The handoff has nothing more to ask."""
        self.handle(events.ContactReleased())

    @property
    def over(self) -> bool:
        """There is nothing more to say, or nobody to say it to."""
        return isinstance(self.machine.state, ContactOver | ContactNobody)

    def _tell(self, report: Effect) -> None:
        """In a step of its own: the handoff may be carrying out the effect that asked."""
        self._node.loop.call_soon(self._report, report)

    def _send(self, connection: int, command: SessionCommand, behind_records: bool = False) -> None:
        if connection == HERE:
            self._node.loop.call_soon(self._sessions.arrived_here, command)
            return
        link = self._node.links.get(self.wire.session_owner)
        if link is not None and link.connection_id == connection and behind_records:
            link.send_behind_records(encode_command(command))
        elif link is not None and link.connection_id == connection:
            send_command(link, command)


class Sessions:
    """Contacts of this node's handoffs, and the bindings whose sessions it owns itself."""

    def __init__(self, node: Supervisor) -> None:
        self.node = node
        self.options = SessionOptions(
            seal_timeout_s=node.options.session_seal_timeout_ms / 1000,
            follow_duration_s=node.options.follow_duration_ms / 1000,
        )
        self.desk = SessionDesk(node, self.options)
        self._contacts: list[Contact] = []

    def __len__(self) -> int:
        return len(self._contacts)

    def contact(self, wire: SessionWire, report: Report) -> Contact:
        """Begin to talk with the owner of a session."""
        contact = Contact(self, wire, report)
        self._contacts.append(contact)
        run = wire.session_owner
        link = self.node.links.get(run)
        if run == self.node.run:
            contact.handle(events.ConnectionUp(HERE))
        elif link is not None and not link.closing:
            contact.handle(events.ConnectionUp(link.connection_id))
        else:
            self.node.start(self._look_for_owner(contact))
        return contact

    async def _look_for_owner(self, contact: Contact) -> None:
        """Without a link: a session owner whose lease is over counts as no binding (B11.2)."""
        binding = contact.wire.binding
        key = lease_row_key(binding.session_owner_id, binding.session_owner_lease_generation)
        while not contact.over and self.node.links.get(contact.wire.session_owner) is None:
            try:
                found = await self.node.store.read(key)
            except SojournError:
                found = None
            if found is not None and not isinstance(found, Found):
                contact.handle(events.OwnerGone())
                return
            await asyncio.sleep(LEASE_LOOK_S)

    def forget(self, contact: Contact) -> None:
        """Nothing is left to say."""
        contact.close()
        self._contacts.remove(contact)

    # links and runs -----------------------------------------------------------------------------

    def link_up(self, link: Link) -> None:
        """A new connection to a run stands."""
        for contact in self._of(link.peer):
            contact.handle(events.ConnectionUp(link.connection_id))

    def link_down(self, link: Link) -> None:
        """A connection broke."""
        for contact in self._of(link.peer):
            contact.handle(events.ConnectionDown(link.connection_id))
            if not contact.over:
                self.node.start(self._look_for_owner(contact))

    def run_gone(self, run: NodeRun) -> None:
        """A run ended for certain."""
        for contact in self._of(run):
            contact.handle(events.OwnerGone())

    def _of(self, run: NodeRun) -> list[Contact]:
        return [contact for contact in self._contacts if contact.wire.session_owner == run]

    # commands -----------------------------------------------------------------------------------

    def command_arrived(self, link: Link, command: SessionCommand) -> None:
        """Command 42, 43 or 44 from a peer."""
        if isinstance(command, SessionRelocationSealed):
            self._sealed(link.peer, link.connection_id, command)
        else:
            route_command(self.desk, link, command)

    def arrived_here(self, command: SessionCommand) -> None:
        """A command of this node to its own desk, or the answer."""
        if isinstance(command, SessionRelocationSealed):
            self._sealed(self.node.run, HERE, command)
        elif isinstance(command, SessionRelocationSeal):
            self.desk.seal_requested(command, self._answered_here)
        else:
            self.desk.route_updated(command)

    def _answered_here(self, answer: SessionRelocationSealed | mesh.SealRefused) -> None:
        if isinstance(answer, mesh.SealRefused):
            self.node.loop.call_soon(self.refused, self.node.run, HERE, answer)
        else:
            self.node.loop.call_soon(self.arrived_here, answer)

    def _sealed(self, run: NodeRun, connection: int, command: SessionRelocationSealed) -> None:
        """A 43 counts for the handoff and the Actor whose 42 it repeats, on a connection to the session owner (R3.4)."""
        terms, (key, _) = terms_of(command), actor_of(command)
        for contact in self._of(run):
            if contact.wire.terms == terms and contact.wire.key == key:
                contact.handle(events.SealAnswered(connection))

    def refused(self, run: NodeRun, connection: int, message: mesh.SealRefused) -> None:
        """A refused 42 was answered."""
        relocation = message.relocation_high, message.relocation_low
        no_binding = message.error.kind == "NotFound"
        reason = str(message.error.fields.get("message", ""))
        for contact in self._of(run):
            binding = contact.wire.binding
            if (
                contact.wire.identity.relocation_id == relocation
                and binding.session_rid == message.session_rid
                and binding.binding_generation == message.binding_generation
                and contact.wire.key == message.key
            ):
                contact.handle(events.SealDenied(connection, no_binding, reason))

    def close(self) -> None:
        """The node stops: nothing is told any more."""
        for contact in self._contacts:
            contact.close()
        self._contacts.clear()
        self.desk.close()


def send_command(link: Link, command: SessionCommand) -> None:
    """Put command 42, 43 or 44 on a link."""
    link.send_contract(encode_command(command))


def route_command(desk: SessionDesk, link: Link, command: SessionCommand) -> None:
    """Give a 42 or 44 that arrived on a link to a session owner's desk; a 42 is answered on the same link."""

    def answer(answered: SessionRelocationSealed | mesh.SealRefused) -> None:
        if link.closing:
            return  # this member leaves, and its bindings with it
        if isinstance(answered, mesh.SealRefused):
            link.send_control(answered)
        else:
            send_command(link, answered)

    if isinstance(command, SessionRelocationSeal):
        desk.seal_requested(command, answer)
    elif isinstance(command, SessionRelocationRoute):
        desk.route_updated(command)
    else:
        desk.host.log(
            "unexpected_session_command",
            "info",
            peer=str(link.peer),
            session=binding_of(command).session_rid.hex(),
        )
