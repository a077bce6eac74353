"""The session owner's part of a member: the bindings it holds, each with its `SessionSeal` (B11).

Owns which bindings there are and hands every 42 and 44, message and push to the one it concerns. Where the
client's socket is, and how a message reaches the Actor, is the port's: gateways bring their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from sojourn.control import ErrorBody
from sojourn.handoff.machine import DeadlineReached, Effect, Event, Log
from sojourn.ids import ObjectKey, describe_key
from sojourn.mesh import SealRefused
from sojourn.session import effects, events
from sojourn.session.seal import SessionSeal
from sojourn.session.terms import CloseCode, SealTerms, SessionOptions, SessionPlan, SessionRoute
from sojourn.wire import SessionRelocationRoute, SessionRelocationSeal, SessionRelocationSealed
from sojourn.workers.session_wire import actor_of, sealed_answer, terms_of, update_of

__all__ = ["SealAnswer", "SessionDesk", "SessionHost", "SessionPort"]

SealAnswer = Callable[[SessionRelocationSealed | SealRefused], None]
"""Sends the answer to a 42 back where the 42 came from, at once."""


class SessionHost(Protocol):
    """What a desk needs of its member."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The member's event loop."""
        ...

    def log(self, event: str, level: str, **fields: object) -> None:
        """Write one structured log event."""
        ...


class SessionPort(Protocol):
    """Where one binding leads to: the client's socket, and the way to the Actor. No call may wait."""

    def switch_route(self, route: SessionRoute) -> None:
        """The Actor has another owner; what is submitted next goes there."""

    def submit(self, route: SessionRoute, messages: tuple[Any, ...]) -> None:
        """Send the client's messages to the Actor, in order."""

    def deliver(self, push: Any) -> None:
        """Give a push to the client."""

    def drop_push(self, push: Any) -> None:
        """End a push that the client does not get."""

    def drop(self, messages: tuple[Any, ...]) -> None:
        """End messages of the client that never left this member."""

    def close(self, code: CloseCode, resume_token: bytes) -> None:
        """Close the client's socket. The desk then ends the session's other bindings by itself."""


class _Desked:
    """One binding: its machine, its port, its timer."""

    def __init__(self, desk: SessionDesk, machine: SessionSeal, port: SessionPort) -> None:
        self.desk = desk
        self.machine = machine
        self.port = port
        self.over = False
        self._asked: tuple[SessionRelocationSeal, SealAnswer] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._steps: dict[type[Effect], Callable[[Any], None]] = {
            effects.SendSealed: self._sealed,
            effects.RefuseSeal: self._refused,
            effects.SwitchRoute: lambda effect: port.switch_route(effect.route),
            effects.SubmitMessages: lambda effect: port.submit(effect.route, effect.messages),
            effects.DeliverPush: lambda effect: port.deliver(effect.push),
            effects.DropPush: lambda effect: port.drop_push(effect.push),
            effects.DropMessages: lambda effect: port.drop(effect.messages),
            effects.CloseSocket: self._close,
            effects.ForgetBinding: self._forget,
            Log: self._log,
        }

    def handle(self, event: Event) -> None:
        """Give the machine one event and carry out what it says, in order."""
        for effect in self.machine.handle(event, self.desk.host.loop.time()):
            self._steps[type(effect)](effect)
        deadline = None if self.over else self.machine.deadline
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            self._timer = self.desk.host.loop.call_at(deadline, self.handle, DeadlineReached())

    def asked(self, command: SessionRelocationSeal, answer: SealAnswer) -> None:
        """Command 42 came; it is answered before this returns."""
        self._asked = command, answer
        self.handle(events.SealRequested(terms_of(command), 0))
        self._asked = None

    def _sealed(self, effect: effects.SendSealed) -> None:
        assert self._asked is not None
        command, answer = self._asked
        answer(sealed_answer(command))

    def _refused(self, effect: effects.RefuseSeal) -> None:
        assert self._asked is not None
        self._asked[1](_refusal(effect.terms, self.machine.plan.key, effect.kind, effect.reason))

    def _close(self, effect: effects.CloseSocket) -> None:
        self.port.close(effect.code, effect.resume_token)
        self.desk.socket_closed(self.machine.plan.binding.session_rid)  # one socket, closed once

    def _forget(self, effect: effects.ForgetBinding) -> None:
        self.over = True
        self.desk.forget(self)

    def _log(self, effect: Log) -> None:
        self.desk.host.log(effect.name, effect.level, **_loggable(effect.fields))


class SessionDesk:
    """Every binding whose session this member owns."""

    def __init__(self, host: SessionHost, options: SessionOptions) -> None:
        self.host = host
        self.options = options
        self._bindings: dict[tuple[bytes, ObjectKey], _Desked] = {}

    def __len__(self) -> int:
        return len(self._bindings)

    # what a gateway does ------------------------------------------------------------------------

    def bind(self, plan: SessionPlan, route: SessionRoute, port: SessionPort) -> None:
        """Hold a binding from now on; the newest of a session and an Actor wins (B11.1)."""
        place = plan.binding.session_rid, plan.key
        older = self._bindings.get(place)
        if older is not None:
            older.handle(events.Unbound())
        self._bindings[place] = _Desked(self, SessionSeal(plan, route, self.options), port)

    def unbind(self, session_rid: bytes, key: ObjectKey) -> None:
        """The binding ended."""
        self._tell(session_rid, key, events.Unbound())

    def message(self, session_rid: bytes, key: ObjectKey, message: Any) -> bool:
        """The client sent a message for an Actor; False when the session has no binding to it."""
        return self._tell(session_rid, key, events.ClientMessageArrived(message))

    def push(self, session_rid: bytes, key: ObjectKey, push: Any, owner_generation: int) -> bool:
        """An owner of the Actor sent something for the client; False when there is no such binding."""
        return self._tell(session_rid, key, events.PushArrived(push, owner_generation))

    def socket_closed(self, session_rid: bytes) -> None:
        """A client's socket is gone: every binding of its session ends."""
        for (session, _), desked in list(self._bindings.items()):
            if session == session_rid:
                desked.handle(events.SocketClosed())

    def lease_over(self) -> None:
        """This member's lease is over: nobody believes its bindings any more (B11.2)."""
        for desked in list(self._bindings.values()):
            if not desked.over:
                desked.handle(events.LeaseOver())

    def sealed(self) -> int:
        """How many bindings are sealed now."""
        return sum(1 for desked in self._bindings.values() if desked.machine.deadline is not None)

    def _tell(self, session_rid: bytes, key: ObjectKey, event: Event) -> bool:
        desked = self._bindings.get((session_rid, key))
        if desked is None:
            return False
        desked.handle(event)
        return True

    def forget(self, desked: _Desked) -> None:
        """A binding is over."""
        plan = desked.machine.plan
        place = plan.binding.session_rid, plan.key
        if self._bindings.get(place) is desked:
            del self._bindings[place]

    # what the movers say ------------------------------------------------------------------------

    def seal_requested(self, command: SessionRelocationSeal, answer: SealAnswer) -> None:
        """Command 42: sealed, or refused; answered in any case, and the link stays (B11.2)."""
        key, _ = actor_of(command)
        desked = self._bindings.get((command.session_rid, key))
        if desked is None:
            answer(
                _refusal(
                    terms_of(command), key, "NotFound", f"no session is bound to {describe_key(key)} here"
                )
            )
        else:
            desked.asked(command, answer)

    def route_updated(self, command: SessionRelocationRoute) -> None:
        """Command 44."""
        key, _ = actor_of(command)
        desked = self._bindings.get((command.session_rid, key))
        event = update_of(command)
        if desked is not None:
            desked.handle(event)
            return
        self.host.log(
            "late_session_route_update",
            "warning",
            object_id=describe_key(key),
            relocation_id=_name(event.identity.relocation_id),
            update="commit" if isinstance(event, events.RouteCommitted) else "abort",
        )

    def close(self) -> None:
        """The member leaves: no timer of a seal is left behind."""
        for desked in list(self._bindings.values()):
            desked.over = True
            desked.handle(events.SocketClosed())
        self._bindings.clear()


def _refusal(terms: SealTerms, key: ObjectKey, kind: str, reason: str) -> SealRefused:
    high, low = terms.identity.relocation_id
    binding = terms.binding
    error = ErrorBody(kind, {"message": reason})
    return SealRefused(high, low, binding.session_rid, binding.binding_generation, key, error)


def _name(relocation: tuple[int, int]) -> str:
    return f"{relocation[0]:016x}{relocation[1]:016x}"


def _loggable(fields: Any) -> dict[str, Any]:
    shown = dict(fields)
    relocation = shown.get("relocation_id")
    if isinstance(relocation, tuple):
        shown["relocation_id"] = _name(relocation)
    return shown
