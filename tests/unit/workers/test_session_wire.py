"""Commands 42, 43 and 44 against the terms of the session machines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from sojourn.errors import InvalidOperation
from sojourn.handoff.terms import HandoffIdentity
from sojourn.ids import NodeRun, ObjectKind, actor_key
from sojourn.ownership import moved_row
from sojourn.rows import AuthorityRow, Binding, Owner
from sojourn.session.events import RouteAborted, RouteCommitted
from sojourn.session.terms import SessionRoute
from sojourn.wire import SessionRelocationRoute, SessionRelocationSeal, decode_command, encode_command
from sojourn.workers.bindings import binding_fields, binding_from
from sojourn.workers.session_wire import (
    SessionCommand,
    SessionWire,
    actor_of,
    binding_of,
    sealed_answer,
    terms_of,
    update_of,
    wires_of,
)
from sojourn.workers.sessions import route_command

if TYPE_CHECKING:
    from sojourn.workers.session_desk import SealAnswer

A, B = NodeRun(b"A", 1), NodeRun(b"B", 2)
BINDING = Binding(b"O", 3, "owner-o", 4, b"s1", 7)
IDENTITY = HandoffIdentity((5, 6), 1, "owner-a", 2, A, "v9")
KEY = actor_key("p1")
WIRE = SessionWire(IDENTITY, KEY, 11, 4, BINDING)
ROW = AuthorityRow(
    kind=ObjectKind.ACTOR,
    object_id="p1",
    stable_type="player",
    object_generation=11,
    owner_generation=4,
    owner=Owner(b"A", 1, "owner-a", 2),
    binding=BINDING,
)


def over_the_link(command: SessionCommand) -> SessionCommand:
    parts = encode_command(command)
    decoded = decode_command(parts[0], parts[1:])
    assert decoded == command
    return command


def test_a_seal_and_its_answer_say_the_same() -> None:
    seal = WIRE.seal()
    over_the_link(seal)
    answer = over_the_link(sealed_answer(seal))
    assert not isinstance(answer, SessionRelocationRoute)
    assert terms_of(seal) == terms_of(answer) == WIRE.terms
    assert binding_of(seal) == binding_of(answer) == BINDING
    assert actor_of(seal) == actor_of(answer) == (KEY, 11)


def test_the_route_updates_are_events_of_the_same_relocation() -> None:
    commit, abort = over_the_link(WIRE.commit(B, 8)), over_the_link(WIRE.abort())
    assert isinstance(commit, SessionRelocationRoute)
    assert isinstance(abort, SessionRelocationRoute)
    assert update_of(commit) == RouteCommitted(WIRE.terms.identity, BINDING, 11, SessionRoute(B, 5, 8))
    assert update_of(abort) == RouteAborted(WIRE.terms.identity, BINDING, 11)
    assert actor_of(commit) == (KEY, 11)


def test_only_bound_participants_have_a_session() -> None:
    unbound = msgspec.structs.replace(ROW, object_id="p2", binding=None)
    assert wires_of(IDENTITY, [unbound, ROW]) == [WIRE]


def test_a_row_read_again_after_the_commit_names_the_same_generations() -> None:
    moved = moved_row(ROW, Owner(b"B", 2, "owner-b", 8), IDENTITY.relocation_id)
    assert wires_of(IDENTITY, [moved]) == [WIRE]
    (later,) = wires_of(IDENTITY._replace(relocation_id=(5, 7)), [moved])
    assert later.owner_generation == 5


def test_a_session_owner_is_named_by_its_run() -> None:
    assert WIRE.session_owner == NodeRun(b"O", 3)
    assert isinstance(WIRE.seal(), SessionRelocationSeal)


def test_bindings_as_arguments() -> None:
    fields = binding_fields(BINDING)
    assert binding_from(msgspec.msgpack.decode(msgspec.msgpack.encode(fields))) == BINDING
    for broken in (fields[:5], [*fields, 1], [*fields[:5], "7"]):
        with pytest.raises(InvalidOperation, match="is no binding"):
            binding_from(broken)


def test_a_member_that_leaves_answers_no_seal() -> None:
    """Its link refuses what is sent behind the goodbye; an error there would cut what was accepted before."""
    seal = WIRE.seal()
    asked: list[object] = []

    class Desk:
        def seal_requested(self, command: object, answer: SealAnswer) -> None:
            asked.append(command)
            answer(sealed_answer(seal))

    route_command(cast(Any, Desk()), cast(Any, SimpleNamespace(closing=True)), seal)
    assert asked == [seal]
