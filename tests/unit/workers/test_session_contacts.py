"""A mover's talk with a session owner: which Actor an answer is for, and what a 42 may overtake (B11.2, B11.3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from sojourn import mesh
from sojourn.control import ErrorBody
from sojourn.handoff.machine import Effect
from sojourn.handoff.terms import HandoffIdentity
from sojourn.ids import NodeRun, ObjectKey, actor_key
from sojourn.options import Options
from sojourn.rows import Binding
from sojourn.session.effects import ReportNoBinding, ReportSealed
from sojourn.workers.session_wire import SessionWire, sealed_answer
from sojourn.workers.sessions import Contact, Sessions

HERE, OWNER = NodeRun(b"here", 1), NodeRun(b"owner", 3)
P1, P2 = actor_key("p1"), actor_key("p2")
IDENTITY = HandoffIdentity((0, 1), 1, "owner-h", 2, HERE, "v9")


class FakeLink:
    """The link to the session owner: what went out at once, and what in line with the records."""

    def __init__(self) -> None:
        self.peer = OWNER
        self.connection_id = 7
        self.closing = False
        self.at_once: list[Any] = []
        self.in_line: list[Any] = []

    def send_contract(self, parts: Any) -> None:
        self.at_once.append(parts)

    def send_behind_records(self, parts: Any) -> None:
        self.in_line.append(parts)


class Mover:
    """A node with one link, that moves two Actors bound to one session."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.run = HERE
        self.options = Options()
        self.link = FakeLink()
        self.links = {OWNER: self.link}
        self.sessions = Sessions(cast(Any, self))
        self.reports: dict[ObjectKey, list[type[Effect]]] = {P1: [], P2: []}
        self.contacts = {key: self._contact(key) for key in (P1, P2)}

    def log(self, event: str, level: str, **fields: object) -> None:
        raise AssertionError((event, fields))

    def _contact(self, key: ObjectKey) -> Contact:
        contact = self.sessions.contact(wire(key), lambda report: self.reports[key].append(type(report)))
        contact.want_seal()
        return contact


def wire(key: ObjectKey) -> SessionWire:
    """Nothing but the key tells the two apart."""
    return SessionWire(IDENTITY, key, 11, 4, Binding(OWNER.rid, OWNER.generation, "o", 4, b"session", 1))


@pytest.fixture
async def mover() -> AsyncIterator[Mover]:
    it = Mover()
    yield it
    it.sessions.close()


async def test_a_43_is_for_the_actor_that_it_names(mover: Mover) -> None:
    mover.sessions.command_arrived(cast(Any, mover.link), sealed_answer(wire(P2).seal()))
    await asyncio.sleep(0)
    assert mover.reports == {P1: [], P2: [ReportSealed]}


async def test_a_refusal_is_for_the_actor_that_it_names(mover: Mover) -> None:
    refusal = mesh.SealRefused(0, 1, b"session", 1, P2, ErrorBody("NotFound", {"message": "not here"}))
    mover.sessions.refused(OWNER, mover.link.connection_id, refusal)
    await asyncio.sleep(0)
    assert mover.reports == {P1: [], P2: [ReportNoBinding]}


async def test_only_the_42_that_confirms_a_seal_stands_in_line_with_the_records(mover: Mover) -> None:
    assert (len(mover.link.at_once), mover.link.in_line) == (2, [])
    mover.sessions.command_arrived(cast(Any, mover.link), sealed_answer(wire(P1).seal()))
    mover.contacts[P1].want_seal()
    assert len(mover.link.at_once) == 2
    assert mover.link.in_line == mover.link.at_once[:1], "the identical command (B11.3)"
    mover.contacts[P1].abort()
    assert len(mover.link.at_once) == 3, "an update of the route overtakes what waits"
