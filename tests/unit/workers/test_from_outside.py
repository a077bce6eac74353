"""Whatever a peer sends, late, twice or forged, in any state of a move: no driver raises, no node ends.

The one error that may come out is ProtocolError: it ends the link that the frame came on, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast, get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sojourn import mesh
from sojourn.control import ErrorBody
from sojourn.errors import ProtocolError
from sojourn.frames import FLAG_FOLLOW, FLAG_REQUEST
from sojourn.handoff.events import RelayReadyReceived, RestoreRefused, RestoreRequested
from sojourn.handoff.machine import State
from sojourn.handoff.source import SourceHandoff
from sojourn.handoff.source_states import CommitAwaited
from sojourn.handoff.target import TargetHandoff
from sojourn.handoff.target_states import Announced, OwnerWriting, RelayReady, TargetRemoved
from sojourn.handoff.terms import HandoffIdentity
from sojourn.ids import NodeRun, ObjectKind
from sojourn.rows import Binding
from sojourn.session.contact import SessionContact
from sojourn.wire import COMMANDS, encode_command
from sojourn.workers.handoff_wire import HandoffWire
from sojourn.workers.records import frozen_record
from sojourn.workers.session_wire import SessionWire, sealed_answer

from tests.machines.samples import (
    IDENTITY,
    KEY,
    MANIFEST,
    OTHER_MANIFEST,
    A,
    B,
    C,
    new_target,
    source_in,
    target_in,
)
from tests.machines.session_samples import contact_in
from tests.unit.framework.wire_values import command_values
from tests.unit.workers.outside_rig import FENCE, Rig, message

IDENTITIES = {
    "its own": IDENTITY,
    "another attempt": IDENTITY._replace(attempt=2),
    "another relocation": IDENTITY._replace(relocation_id=(7, 9)),
    "another version": IDENTITY._replace(expected_version="v9"),
    "another run": IDENTITY._replace(source=NodeRun(b"A", 2)),
}
BINDING = Binding(b"O", 3, "owner-o", 4, b"s1", 1)
OWNER = NodeRun(b"O", 3)
ERROR = ErrorBody("NotFound", {"message": "no"})
NUMBERS = [1, 0, 9, -1, 2**31, 2**63, 2**64 - 1, -(2**63)]
ERRORS = [ERROR, ErrorBody("", {"message": 3, "applied": 7}), ErrorBody("Unavailable", {"x": [1]})]
EDGES: dict[str, list[Any]] = {
    "<class 'int'>": NUMBERS,
    "<class 'str'>": ["", "create", "\0" * 999],
    "<class 'bytes'>": [
        KEY,
        b"",
        b"a",
        b"s\0",
        b"\xff\xfe",
        b"a\xff",
        b"zp1",
        b"a" * 70_000,
        b"\x90",
        b"\xc0",
    ],
    "list[tuple[int, int]]": [[(1, 1)], [], [(-1, 2**64 - 1)]],
    "list[tuple[int, int, int]]": [[(1, 1, 1)], [], [(-1, 2**64 - 1, -5)]],
    "<class 'sojourn.control.ErrorBody'>": ERRORS,
    "sojourn.control.ErrorBody | None": [*ERRORS, None],
}
LINKS_OWN = (mesh.Credit, mesh.Ping, mesh.Pong, mesh.Goodbye)
"""Control messages that a link keeps to itself; `test_link` has them."""


def wire_of(identity: HandoffIdentity) -> HandoffWire:
    return HandoffWire.of_source(identity, FENCE, KEY, ObjectKind.ACTOR, "Player", 1, 4)


def commands(identity: HandoffIdentity) -> list[tuple[bytes, ...]]:
    """Every contract frame of one handoff, as the parts of one record."""
    wire, session = wire_of(identity), SessionWire(identity, KEY, 1, 4, BINDING)
    frames = wire.frames
    made: list[Any] = [
        wire.prepare(A, MANIFEST),
        wire.prepare(A, OTHER_MANIFEST),
        wire.prepare(A, MANIFEST._replace(chunk_count=0)),
        (frames.ready,),
        wire.failed(17),
        wire.failed(35),
        (frames.relay_head + frozen_record(message(5)),),
        (frames.cutover(0, 0),),
        (frames.cutover(1, 7),),
        *(
            (frames.state_head(ordinal, len(data)) + data,)
            for ordinal in (0, 1, 9)
            for data in (b"01234", b"x")
        ),
        encode_command(session.seal()),
        encode_command(sealed_answer(session.seal())),
        encode_command(session.abort()),
        encode_command(session.commit(B, 1)),
    ]
    return [tuple(bytes(part) for part in parts) for parts in made]


def controls(identity: HandoffIdentity) -> list[mesh.MeshControl]:
    high, low = identity.relocation_id
    return [
        mesh.Withdrawn(high, low, identity.attempt),
        mesh.FailureTold(high, low, identity.attempt, "TargetUnavailable", "it is Relocating"),
        mesh.HandoffTimes(high, low, 1, 2),
        mesh.SealRefused(high, low, b"s1", 1, b"ap", ERROR),
        mesh.MarkerTaken(1, KEY, int(ObjectKind.ACTOR), 1, 4, 1),
        mesh.MarkerRefused(1),
        mesh.RouteNotice(KEY, int(ObjectKind.ACTOR), 1, 9, 1),
        mesh.RequestsLost([(1, 1)], ERROR),
        mesh.RequestsTaken(KEY, [(1, 1, 1)]),
        mesh.CallResult(1, b"\xc0"),
    ]


def forged(kind: Any) -> Iterator[bytes]:
    """Control frames of one kind with every value at its edge, and beyond, one field at a time and some at once."""
    hints = get_type_hints(kind)
    edges = [EDGES[str(hints[name])] for name in kind.__struct_fields__]
    plain = [values[0] for values in edges]
    for at, values in enumerate(edges):
        for value in values:
            yield mesh.encode_mesh(kind(*plain[:at], value, *plain[at + 1 :]))
    for turn in range(max(map(len, edges))):
        yield mesh.encode_mesh(kind(*(values[turn % len(values)] for values in edges)))


@asynccontextmanager
async def rig_of(here: NodeRun) -> AsyncIterator[Rig]:
    rig = Rig(here)
    try:
        yield rig
    finally:
        await rig.close()


Play = Callable[[Rig, Any], None]


def everything() -> list[tuple[str, Play]]:
    """What a peer may do in one step."""
    plays: list[tuple[str, Play]] = []
    for name, identity in IDENTITIES.items():
        for number, parts in enumerate(commands(identity)):
            plays.append(
                (
                    f"command {number} of {name}",
                    lambda rig, link, p=parts: rig.node.on_contract(link, p, 5000),
                )
            )
        plays += [
            (f"{control} of {name}", lambda rig, link, c=control: rig.node.on_control(link, c))
            for control in controls(identity)
        ]
    for flags in (FLAG_REQUEST, 0, FLAG_REQUEST | FLAG_FOLLOW, FLAG_FOLLOW):
        body = message(6, flags)
        plays.append((f"a record {flags}", lambda rig, link, b=body: rig.node.on_record(link, b)))
    plays.append(("the link breaks", lambda rig, link: rig.node.on_down(link, "cut")))
    return plays


PEERS = {"the other node of the move": None, "a stranger": C}


async def feed(here: NodeRun, other: NodeRun, put: Callable[[Rig], Any], play: Play, peer: NodeRun) -> None:
    async with rig_of(here) as rig:
        rig.link(other)
        put(rig)
        link = rig.links.up.get(peer) or rig.link(peer, 2)
        for _ in range(2):  # and once more: what it left behind must not trip over it either
            with suppress(ProtocolError):
                play(rig, link)
        await rig.settle()
        assert rig.bugs == []
        assert rig.failures == []


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("state", SourceHandoff.STATES, ids=lambda state: state.__name__)
async def test_a_source_takes_whatever_comes(state: type[State], name: str) -> None:
    for what, play in everything():
        try:
            await feed(A, B, lambda rig: rig.source(source_in(state).machine), play, PEERS[name] or B)
        except BaseException as escaped:
            raise AssertionError(f"{what} in {state.__name__}: {escaped!r}") from escaped


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize(
    "state", [s for s in TargetHandoff.STATES if s is not Announced], ids=lambda state: state.__name__
)
async def test_a_target_takes_whatever_comes(state: type[State], name: str) -> None:
    for what, play in everything():
        try:
            await feed(B, A, lambda rig: rig.target(target_in(state).machine), play, PEERS[name] or A)
        except BaseException as escaped:
            raise AssertionError(f"{what} in {state.__name__}: {escaped!r}") from escaped


FIRST = {
    "taken": RestoreRequested(MANIFEST, 1),
    "refused": RestoreRefused(17, 1),
}


@pytest.mark.parametrize("how", FIRST)
async def test_what_comes_before_an_attempt_is_decided_waits_for_that(how: str) -> None:
    for what, play in everything():
        try:
            async with rig_of(B) as rig:
                link = rig.link(A)
                driver = rig.target(new_target(), begun=False)
                with suppress(ProtocolError):
                    play(rig, link)
                assert isinstance(driver.machine.state, Announced)
                driver.begin(link, FIRST[how], 10)
                assert not isinstance(driver.machine.state, Announced)
                await rig.settle()
                assert rig.bugs == []
                assert rig.failures == []
        except BaseException as escaped:
            raise AssertionError(f"{what} before it is {how}: {escaped!r}") from escaped


@pytest.mark.parametrize("state", SessionContact.STATES, ids=lambda state: state.__name__)
async def test_the_talk_with_a_session_owner_takes_whatever_comes(state: type[State]) -> None:
    """From the owner of the session, and from somebody else, each kind twice."""

    def put(rig: Rig) -> None:
        rig.link(OWNER, 1)
        contact = rig.node.sessions.contact(SessionWire(IDENTITY, KEY, 1, 4, BINDING), lambda _: None)
        contact.machine = cast(SessionContact, contact_in(state).machine)

    for what, play in everything():
        for peer in (OWNER, C):
            try:
                await feed(A, B, put, play, peer)
            except BaseException as escaped:
                raise AssertionError(f"{what} in {state.__name__}: {escaped!r}") from escaped


@pytest.mark.parametrize(
    "kind",
    [kind for kind in get_args(mesh.MeshControl) if kind not in LINKS_OWN],
    ids=lambda kind: kind.__name__,
)
async def test_a_forged_control_message_ends_a_link_at_most(kind: Any) -> None:
    async with rig_of(B) as rig:
        link = rig.link(A)
        rig.target(target_in(RelayReady).machine)
        for encoded in forged(kind):
            with suppress(ProtocolError):
                rig.node.on_control(link, mesh.decode_mesh(encoded))
        await rig.settle()
        assert rig.bugs == []
        assert rig.failures == []


async def test_only_the_source_of_an_attempt_withdraws_it() -> None:
    """Once a CAS is out, nobody can take a stranger's word for what stands in the row (R3.4, B6.7)."""
    async with rig_of(B) as rig:
        source, stranger = rig.link(A), rig.link(C, 2)
        driver = rig.target(target_in(OwnerWriting).machine)
        withdrawn = mesh.Withdrawn(*IDENTITY.relocation_id, IDENTITY.attempt)
        rig.node.on_control(stranger, withdrawn)
        assert isinstance(driver.machine.state, OwnerWriting)
        rig.node.on_control(source, withdrawn)
        assert isinstance(driver.machine.state, TargetRemoved)


async def test_only_the_target_of_a_move_says_that_it_opened() -> None:
    async with rig_of(A) as rig:
        target, stranger = rig.link(B), rig.link(C, 2)
        driver = rig.source(source_in(CommitAwaited).machine)
        state: Any = driver.machine.state
        opened = mesh.HandoffTimes(*IDENTITY.relocation_id, 1, 2)
        rig.node.on_control(stranger, opened)
        assert state.read_at is not None
        rig.node.on_control(target, opened)
        assert state.read_at is None, "the row is being read"


async def test_a_table_that_refuses_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests can fail."""
    machine = source_in(CommitAwaited).machine
    rules = {cell: rule for cell, rule in SourceHandoff.rules.items() if cell[1] is not RelayReadyReceived}
    monkeypatch.setattr(SourceHandoff, "rules", rules)
    async with rig_of(A) as rig:
        link = rig.link(B)
        rig.source(machine)
        rig.node.on_contract(link, (wire_of(IDENTITY).frames.ready,), 5000)
        assert len(rig.bugs) == 1


@pytest.mark.parametrize("kind", COMMANDS.values(), ids=lambda kind: kind.__name__)
@settings(max_examples=40)
@given(st.data())
def test_any_command_of_any_values_ends_a_link_at_most(kind: Any, data: st.DataObject) -> None:
    parts = [tuple(map(bytes, encode_command(data.draw(command_values(kind))))) for _ in range(3)]

    async def play() -> None:
        async with rig_of(B) as rig:
            rig.target(target_in(RelayReady).machine)
            for peer in (A, C):
                link = rig.link(peer)
                for each in parts:
                    with suppress(ProtocolError):
                        rig.node.on_contract(link, each, 5000)
            await rig.settle()
            assert rig.bugs == []
            assert rig.failures == []

    asyncio.run(play())
