"""The desk of a session owner: which binding gets what, and what is answered where there is none."""

from __future__ import annotations

import asyncio
from typing import Any

from sojourn.handoff.terms import HandoffIdentity
from sojourn.ids import NodeRun, actor_key
from sojourn.mesh import SealRefused
from sojourn.rows import Binding
from sojourn.session.terms import CloseCode, SessionOptions, SessionPlan, SessionRoute
from sojourn.wire import SessionRelocationSealed
from sojourn.workers.session_desk import SessionDesk
from sojourn.workers.session_wire import SessionWire

A, B = NodeRun(b"A", 1), NodeRun(b"B", 2)
P1, P2 = actor_key("p1"), actor_key("p2")
LATE = ("late_session_route_update", "warning")


def binding(generation: int = 1, session: bytes = b"s1") -> Binding:
    return Binding(b"O", 3, "owner-o", 4, session, generation)


def wire(key: bytes = P1, generation: int = 1, relocation: int = 1) -> SessionWire:
    identity = HandoffIdentity((0, relocation), 1, "owner-a", 2, A, "v9")
    return SessionWire(identity, key, 11, 4, binding(generation))


class Desk:
    """A desk with a host and ports that write everything down."""

    def __init__(self, seal_timeout_s: float = 30.0) -> None:
        self.loop = asyncio.get_running_loop()
        self.logged: list[tuple[str, str]] = []
        self.desk = SessionDesk(self, SessionOptions(seal_timeout_s=seal_timeout_s))
        self.answers: list[Any] = []

    def log(self, event: str, level: str, **fields: object) -> None:
        self.logged.append((event, level))

    def bind(self, key: bytes = P1, generation: int = 1) -> Port:
        port = Port()
        self.desk.bind(SessionPlan(binding(generation), key, 11, b"again"), SessionRoute(A, 4, 2), port)
        return port

    def seal(self, wire: SessionWire) -> Any:
        self.desk.seal_requested(wire.seal(), self.answers.append)
        return self.answers[-1]


class Port:
    def __init__(self) -> None:
        self.story: list[Any] = []
        self.closed = asyncio.Event()

    def switch_route(self, route: SessionRoute) -> None:
        self.story.append(route.run)

    def submit(self, route: SessionRoute, messages: tuple[Any, ...]) -> None:
        self.story.append((route.run, messages))

    def deliver(self, push: Any) -> None:
        self.story.append(("push", push))

    def drop_push(self, push: Any) -> None:
        self.story.append(("no push", push))

    def drop(self, messages: tuple[Any, ...]) -> None:
        self.story.append(("drop", messages))

    def close(self, code: CloseCode, resume_token: bytes) -> None:
        self.story.append((code, resume_token))
        self.closed.set()


async def test_a_seal_holds_one_binding_and_leaves_the_others_alone() -> None:
    it = Desk()
    first, second = it.bind(P1), it.bind(P2)
    assert isinstance(it.seal(wire(P1)), SessionRelocationSealed)
    for key in (P1, P2):
        assert it.desk.message(b"s1", key, "m")
    assert (first.story, second.story) == ([], [(A, ("m",))])
    assert (len(it.desk), it.desk.sealed()) == (2, 1)
    it.desk.route_updated(wire(P1).commit(B, 5))
    assert first.story == [B, (B, ("m",))]
    assert it.desk.sealed() == 0
    it.desk.close()


async def test_who_is_not_bound_is_refused_and_told_nothing() -> None:
    it = Desk()
    answer = it.seal(wire())
    assert isinstance(answer, SealRefused)
    assert (answer.error.kind, answer.session_rid, answer.binding_generation) == ("NotFound", b"s1", 1)
    assert not it.desk.message(b"s1", P1, "m")
    assert not it.desk.push(b"s1", P1, "p", 4)
    it.desk.route_updated(wire().abort())
    assert it.logged == [LATE]


async def test_another_relocation_is_refused_with_another_word() -> None:
    it = Desk()
    it.bind()
    it.seal(wire())
    answer = it.seal(wire(relocation=2))
    assert isinstance(answer, SealRefused)
    assert answer.error.kind == "InvalidOperation"
    assert (answer.relocation_high, answer.relocation_low) == (0, 2)
    it.desk.close()


async def test_the_newest_binding_takes_the_place_of_the_older() -> None:
    it = Desk()
    older = it.bind(generation=1)
    it.seal(wire(generation=1))
    it.desk.message(b"s1", P1, "held")
    newer = it.bind(generation=2)
    assert older.story == [("drop", ("held",))]
    assert it.seal(wire(generation=1)).error.kind == "NotFound"
    assert isinstance(it.seal(wire(generation=2)), SessionRelocationSealed)
    it.desk.unbind(b"s1", P1)
    assert newer.story == []
    assert len(it.desk) == 0


async def test_a_socket_that_closes_ends_every_binding_of_its_session() -> None:
    it = Desk()
    ports = [it.bind(P1), it.bind(P2)]
    it.seal(wire(P2))
    it.desk.message(b"s1", P2, "held")
    it.desk.socket_closed(b"other")
    assert len(it.desk) == 2
    it.desk.socket_closed(b"s1")
    assert [port.story for port in ports] == [[], [("drop", ("held",))]]
    assert len(it.desk) == 0


async def test_a_seal_that_runs_out_takes_the_whole_session_with_it() -> None:
    it = Desk(seal_timeout_s=0.001)
    sealed, other = it.bind(P1), it.bind(P2)
    it.seal(wire(P1))
    async with asyncio.timeout(5):
        await sealed.closed.wait()
    assert len(it.desk) == 0
    assert sealed.story == [(CloseCode.SEAL_TIMEOUT, b"again")]
    assert other.story == [], "its socket is the same one; only its binding ends"
    assert it.logged == [("session_seal_timeout", "warning")]
    # R7.4: who comes back finds no old binding, of either Actor, and is bound anew.
    assert not any(it.desk.message(b"s1", key, "m") for key in (P1, P2))
    again = it.bind(P1, generation=2)
    assert it.desk.message(b"s1", P1, "new")
    assert again.story == [(A, ("new",))]


async def test_a_lease_that_is_over_closes_every_socket_once() -> None:
    it = Desk()
    ports = [it.bind(P1), it.bind(P2)]
    it.seal(wire(P1))
    it.desk.message(b"s1", P1, "held")
    it.desk.push(b"s1", P1, "p", 4)
    it.desk.lease_over()
    it.desk.lease_over()
    assert ports[0].story == [("push", "p"), (CloseCode.LEASE_OVER, b"again"), ("drop", ("held",))]
    assert ports[1].story == [], "both are bound by way of one socket"
    assert len(it.desk) == 0
