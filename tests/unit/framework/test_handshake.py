"""The handshake machine: every pair of state and event, every refusal, any splitting of the octets."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import pickle
import re
import struct
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sojourn import mesh
from sojourn.errors import InternalFailure, InvalidOperation, NotConfigured, Unavailable
from sojourn.handshake import (
    MESSAGES,
    TABLE,
    Admitted,
    AskAdmission,
    BytesReceived,
    Close,
    Connected,
    DeadlinePassed,
    Effect,
    EndOfStream,
    Established,
    Event,
    Failed,
    Handshake,
    HandshakeState,
    NotAdmitted,
    SendBytes,
)
from sojourn.handshake_octets import (
    CHUNK_LIMIT_DEFAULT,
    HANDSHAKE_OCTETS_MAX,
    PREAMBLE,
    HandshakeRefused,
    Identity,
    Peer,
    PeerRole,
    RefusalReason,
    check_cluster,
    check_secret,
)
from sojourn.ids import NodeRun

SECRET = b"an example secret of 32 octets.."
DIALLER = Identity(NodeRun(b"node-a", 11), PeerRole.CLIENT, 0, 65536)
ACCEPTOR = Identity(NodeRun(b"node-b", 22), PeerRole.NODE, 262144, 1114112)
DIALLER_NONCE = bytes(range(32))
ACCEPTOR_NONCE = bytes(range(32, 64))
EVENTS: tuple[Event, ...] = (
    Connected(),
    BytesReceived(b""),
    EndOfStream(),
    DeadlinePassed(),
    Admitted(),
    NotAdmitted(RefusalReason.SHUTTING_DOWN),
)
S = HandshakeState


def dialler(dialled: NodeRun = ACCEPTOR.run, **changes: Any) -> Handshake:
    arguments: dict[str, Any] = {
        "identity": DIALLER, "cluster": "blue", "secret": SECRET, "nonce": DIALLER_NONCE, "deadline": 5.0,
    }  # fmt: skip
    return Handshake(**{**arguments, **changes}, dialled=dialled)


def acceptor(**changes: Any) -> Handshake:
    arguments: dict[str, Any] = {
        "identity": ACCEPTOR, "cluster": "blue", "secret": SECRET, "nonce": ACCEPTOR_NONCE, "deadline": 5.0,
    }  # fmt: skip
    return Handshake(**{**arguments, **changes})


def sent(effects: list[Effect]) -> bytes:
    return b"".join(effect.octets for effect in effects if isinstance(effect, SendBytes))


def failure(effects: list[Effect]) -> HandshakeRefused:
    (failed,) = [effect for effect in effects if isinstance(effect, Failed)]
    assert effects[-1] == Close()
    return failed.error


def converse(left: Handshake, right: Handshake, admit: bool = True) -> tuple[list[Effect], list[Effect]]:
    """Run both sides against each other to the end; all effects of each."""
    done: tuple[list[Effect], list[Effect]] = (left.handle(Connected(), 0.0), right.handle(Connected(), 0.0))
    on_the_way = [(1, sent(done[0])), (0, sent(done[1]))]
    while on_the_way:
        to, octets = on_the_way.pop(0)
        side = (left, right)[to]
        if not octets or side.state in (S.CLOSED, S.OPEN):
            continue
        effects = side.handle(BytesReceived(octets), 1.0)
        if admit and any(isinstance(effect, AskAdmission) for effect in effects):
            effects += side.handle(Admitted(), 1.0)
        done[to].extend(effects)
        on_the_way.append((1 - to, sent(effects)))
    return done


def in_state(state: HandshakeState) -> Handshake:
    """A handshake brought to a state by real events."""
    if state is S.DIALLING:
        return dialler()
    if state is S.ACCEPTING:
        return acceptor()
    left, right = dialler(), acceptor()
    hello = sent(left.handle(Connected(), 0.0))
    right.handle(Connected(), 0.0)
    if state is S.CLOSED:
        left.handle(EndOfStream(), 0.0)
        return left
    if state is S.AWAIT_CHALLENGE:
        return left
    if state is S.AWAIT_HELLO:
        return right
    challenge = sent(right.handle(BytesReceived(hello), 0.0))
    if state is S.AWAIT_PROOF:
        return right
    proof = sent(left.handle(BytesReceived(challenge), 0.0))
    if state is S.AWAIT_WELCOME:
        return left
    right.handle(BytesReceived(proof), 0.0)
    if state is S.OPEN:
        right.handle(Admitted(), 0.0)
    return right


def test_both_sides_learn_who_the_other_is() -> None:
    of_dialler, of_acceptor = converse(dialler(), acceptor())
    assert of_dialler[-1] == Established(Peer(ACCEPTOR, dialled=True), b"")
    assert of_acceptor[-1] == Established(Peer(DIALLER, dialled=False), b"")
    assert AskAdmission(Peer(DIALLER, dialled=False)) in of_acceptor


def test_a_limit_that_is_not_announced_counts_as_32_kib() -> None:
    assert Peer(DIALLER, dialled=False).receive_chunk_limit == CHUNK_LIMIT_DEFAULT == 32768
    assert Peer(ACCEPTOR, dialled=True).receive_chunk_limit == 262144


def test_octets_are_those_of_the_reference() -> None:
    """The layout of docs/reference/mesh.md, built here by hand."""
    left, right = dialler(), acceptor()

    def message(kind: int, body: bytes) -> bytes:
        return struct.pack(">HB", len(body) + 1, kind) + body

    hello_body = DIALLER_NONCE + b"\x04blue"
    hello_body += (
        b"\x06node-a" + struct.pack(">QBII", 11, 2, 0, 65536) + b"\x06node-b" + struct.pack(">Q", 22)
    )
    hello = message(1, hello_body)
    assert sent(left.handle(Connected(), 0.0)) == b"SOJOURN\x01" + hello

    right.handle(Connected(), 0.0)
    challenge = message(2, ACCEPTOR_NONCE + b"\x06node-b" + struct.pack(">QBII", 22, 1, 262144, 1114112))
    assert sent(right.handle(BytesReceived(b"SOJOURN\x01" + hello), 0.0)) == b"SOJOURN\x01" + challenge

    signed = b"SOJOURN\x01" + b"\x04blue" + hello + challenge
    proof = message(3, hmac.digest(SECRET, b"sojourn mesh 1 dialler\x00" + signed, hashlib.sha256))
    assert sent(left.handle(BytesReceived(b"SOJOURN\x01" + challenge), 0.0)) == proof

    right.handle(BytesReceived(proof), 0.0)
    welcome = message(4, hmac.digest(SECRET, b"sojourn mesh 1 acceptor\x00" + signed, hashlib.sha256))
    assert sent(right.handle(Admitted(), 0.0)) == welcome
    assert sent(acceptor().handle(NotAdmitted(RefusalReason.TOO_MANY), 0.0)) == b"SOJOURN\x01" + message(
        5, b"\x14too-many-connections"
    )


@given(st.data())
def test_octets_may_be_split_anywhere(data: st.DataObject) -> None:
    left, right = dialler(), acceptor()
    frames = b"\x00\x00\x00\x01\x04 first frames"

    def deliver(side: Handshake, octets: bytes) -> list[Effect]:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(octets)), max_size=8)))
        effects: list[Effect] = []
        for start, stop in itertools.pairwise([0, *cuts, len(octets)]):
            if side.state is S.OPEN:  # what follows belongs to the frames
                effects.append(Established(ACCEPTOR_PEER, octets[start:]))
                break
            effects += side.handle(BytesReceived(octets[start:stop]), 1.0)
        return effects

    hello = sent(left.handle(Connected(), 0.0))
    right.handle(Connected(), 0.0)
    challenge = sent(deliver(right, hello))
    proof = sent(deliver(left, challenge))
    assert isinstance(deliver(right, proof)[-1], AskAdmission)
    welcome = sent(right.handle(Admitted(), 1.0))
    ends = [effect for effect in deliver(left, welcome + frames) if isinstance(effect, Established)]
    assert ends[0].peer == ACCEPTOR_PEER
    assert b"".join(end.leftover for end in ends) == frames


ACCEPTOR_PEER = Peer(ACCEPTOR, dialled=True)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("state", HandshakeState)
def test_every_pair_moves_is_ignored_or_is_a_bug(state: HandshakeState, event: Event) -> None:
    side = in_state(state)
    assert side.state is state
    if (state, type(event)) not in TABLE:
        with pytest.raises(InternalFailure, match=type(event).__name__):
            side.handle(event, 1.0)
        assert side.state is state
        return
    effects = side.handle(event, 1.0)
    for effect in effects[:-1]:
        assert not isinstance(effect, Close)
    if side.state is S.CLOSED and state is not S.CLOSED:
        failure(effects)
    if state in (S.OPEN, S.CLOSED):
        assert effects == []
        assert side.state is state


def test_a_bug_carries_the_story() -> None:
    side = acceptor()
    side.handle(Connected(), 0.25)
    with pytest.raises(
        InternalFailure, match=r"0.250000 accepting: Connected \| 0.500000 await hello: Admitted"
    ):
        side.handle(Admitted(), 0.5)


def test_each_side_has_one_message_due() -> None:
    waiting = {S.AWAIT_CHALLENGE, S.AWAIT_WELCOME, S.AWAIT_HELLO, S.AWAIT_PROOF}
    assert set(MESSAGES) == waiting


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4, 6, 255])
@pytest.mark.parametrize("state", [*MESSAGES, S.AWAIT_ADMISSION])
def test_another_message_than_the_one_due_is_malformed(state: HandshakeState, kind: int) -> None:
    if state in MESSAGES and MESSAGES[state][0] == kind:
        return
    side = in_state(state)
    head = PREAMBLE if state in (S.AWAIT_CHALLENGE, S.AWAIT_HELLO) else b""
    error = failure(side.handle(BytesReceived(head + struct.pack(">HB", 1, kind)), 1.0))
    assert error.reason == RefusalReason.MALFORMED


@pytest.mark.parametrize(
    ("left", "right", "reason", "by_dialler"),
    [
        (dialler(), acceptor(secret=b"another secret of some octets"), RefusalReason.WRONG_SECRET, False),
        (dialler(), acceptor(cluster="green"), RefusalReason.OTHER_CLUSTER, False),
        (dialler(NodeRun(b"node-b", 21)), acceptor(), RefusalReason.OTHER_GENERATION, False),
        (dialler(NodeRun(b"node-c", 22)), acceptor(), RefusalReason.OTHER_NODE, False),
        (dialler(DIALLER.run), acceptor(identity=DIALLER), RefusalReason.SELF, False),
    ],
    ids=lambda value: str(value) if isinstance(value, RefusalReason) else "",
)
def test_refusals_between_two_members(
    left: Handshake, right: Handshake, reason: RefusalReason, by_dialler: bool
) -> None:
    of_dialler, of_acceptor = converse(left, right)
    here, there = failure(of_acceptor), failure(of_dialler)
    assert (here.reason, here.by_peer) == (reason, False)
    assert (there.reason, there.by_peer) == (reason, True)
    assert isinstance(there, Unavailable)
    assert there.applied == "no"
    assert str(reason) in str(there)


def test_the_dialler_checks_the_secret_too() -> None:
    left = in_state(S.AWAIT_WELCOME)
    effects = left.handle(BytesReceived(struct.pack(">HB", 33, 4) + bytes(32)), 1.0)
    assert failure(effects).reason == RefusalReason.WRONG_SECRET
    assert b"wrong-secret" in sent(effects)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (NodeRun(b"node-b", 23), RefusalReason.OTHER_GENERATION),
        (NodeRun(b"node-c", 22), RefusalReason.OTHER_NODE),
        (DIALLER.run, RefusalReason.SELF),
    ],
)
def test_the_dialler_checks_who_answers(run: NodeRun, reason: RefusalReason) -> None:
    body = (
        ACCEPTOR_NONCE + bytes((len(run.rid),)) + run.rid + struct.pack(">QBII", run.generation, 1, 0, 65536)
    )
    challenge = PREAMBLE + struct.pack(">HB", len(body) + 1, 2) + body
    assert failure(in_state(S.AWAIT_CHALLENGE).handle(BytesReceived(challenge), 1.0)).reason == reason


def test_a_proof_of_another_conversation_does_not_count() -> None:
    """Replaying what a real dialler once sent fails: the acceptor's nonce is new."""
    left, right = dialler(), acceptor()
    hello = sent(left.handle(Connected(), 0.0))
    right.handle(Connected(), 0.0)
    proof = sent(left.handle(BytesReceived(sent(right.handle(BytesReceived(hello), 0.0))), 0.0))
    again = acceptor(nonce=bytes(32))
    again.handle(Connected(), 0.0)
    again.handle(BytesReceived(hello), 0.0)
    assert failure(again.handle(BytesReceived(proof), 0.0)).reason == RefusalReason.WRONG_SECRET


def test_the_acceptors_proof_is_not_the_diallers() -> None:
    """An acceptor that only sends the dialler's own proof back is refused."""
    left = dialler()
    left.handle(Connected(), 0.0)
    right = acceptor()
    right.handle(Connected(), 0.0)
    challenge = sent(right.handle(BytesReceived(sent(dialler().handle(Connected(), 0.0))), 0.0))
    proof = sent(left.handle(BytesReceived(challenge), 0.0))
    reflected = proof[:2] + b"\x04" + proof[3:]
    assert failure(left.handle(BytesReceived(reflected), 0.0)).reason == RefusalReason.WRONG_SECRET


@pytest.mark.parametrize("octets", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"S0", b"sojourn\x01"])
def test_strangers_get_no_answer(octets: bytes) -> None:
    effects = in_state(S.AWAIT_HELLO).handle(BytesReceived(octets), 1.0)
    assert failure(effects).reason == RefusalReason.NOT_SOJOURN
    assert sent(effects) == b""


@pytest.mark.parametrize("state", [S.AWAIT_HELLO, S.AWAIT_CHALLENGE])
def test_another_version_is_told(state: HandshakeState) -> None:
    effects = in_state(state).handle(BytesReceived(b"SOJOURN\x02"), 1.0)
    assert failure(effects).reason == RefusalReason.UNSUPPORTED_VERSION
    assert b"unsupported-version" in sent(effects)


def test_a_message_with_a_large_length_is_refused_before_it_arrives() -> None:
    effects = in_state(S.AWAIT_HELLO).handle(BytesReceived(PREAMBLE + b"\xff\xff"), 1.0)
    assert failure(effects).reason == RefusalReason.OVERSIZED


def test_a_frame_limit_below_the_least_is_malformed() -> None:
    bad = ACCEPTOR_NONCE + b"\x01b" + struct.pack(">QBII", 1, 1, 0, 1)
    challenge = PREAMBLE + struct.pack(">HB", len(bad) + 1, 2) + bad
    assert (
        failure(in_state(S.AWAIT_CHALLENGE).handle(BytesReceived(challenge), 1.0)).reason
        == RefusalReason.MALFORMED
    )


def identity(rid: bytes, generation: int = 22, role: int = 1) -> bytes:
    return bytes((len(rid),)) + rid + struct.pack(">QBII", generation, role, 0, 1114112)


WELL_FORMED = ACCEPTOR_NONCE + identity(b"node-b")


@pytest.mark.parametrize(
    ("state", "kind", "body", "says"),
    [
        (S.AWAIT_CHALLENGE, 2, ACCEPTOR_NONCE + identity(b""), "an empty name"),
        (S.AWAIT_CHALLENGE, 2, ACCEPTOR_NONCE + identity(b"node-b", 0), "node generation 0"),
        (S.AWAIT_CHALLENGE, 2, ACCEPTOR_NONCE + identity(b"node-b", role=9), "9 is not a valid PeerRole"),
        (S.AWAIT_CHALLENGE, 2, WELL_FORMED + b"x", "octets behind the end of a message"),
        (S.AWAIT_CHALLENGE, 2, WELL_FORMED[:-1], "a message is cut short"),
        (S.AWAIT_CHALLENGE, 2, DIALLER_NONCE + identity(b"node-b"), "repeated this side's nonce"),
        (S.AWAIT_CHALLENGE, 2, ACCEPTOR_NONCE + identity(b"node-a", 11), "itself"),
        (S.AWAIT_PROOF, 3, b"short", "a proof of 5 octets"),
        (S.AWAIT_WELCOME, 4, b"", "a proof of 0 octets"),
    ],
)
def test_each_malformed_message_is_refused_with_what_is_wrong(
    state: HandshakeState, kind: int, body: bytes, says: str
) -> None:
    message = struct.pack(">HB", len(body) + 1, kind) + body
    received = PREAMBLE + message if state is S.AWAIT_CHALLENGE else message
    side = in_state(state)
    effects = side.handle(BytesReceived(received), 1.0)
    assert says in failure(effects).message
    assert side.state is S.CLOSED


def test_a_message_without_a_type_is_malformed() -> None:
    effects = in_state(S.AWAIT_CHALLENGE).handle(BytesReceived(PREAMBLE + b"\x00\x00"), 1.0)
    assert "a message without a type" in failure(effects).message


@given(st.binary(max_size=1200))
def test_any_message_body_is_refused_or_read(body: bytes) -> None:
    side = in_state(S.AWAIT_HELLO)
    effects = side.handle(BytesReceived(PREAMBLE + struct.pack(">HB", len(body) + 1, 1) + body), 1.0)
    assert side.state in (S.AWAIT_PROOF, S.CLOSED)
    assert effects


@given(st.binary(min_size=1, max_size=3 * HANDSHAKE_OCTETS_MAX), st.sampled_from(list(MESSAGES)))
def test_any_octets_end_within_the_limit(octets: bytes, state: HandshakeState) -> None:
    side = in_state(state)
    side.handle(BytesReceived(octets), 1.0)
    if len(octets) > HANDSHAKE_OCTETS_MAX:
        assert side.state is S.CLOSED


@pytest.mark.parametrize("state", [state for state in HandshakeState if state not in (S.OPEN, S.CLOSED)])
def test_too_slow(state: HandshakeState) -> None:
    side = in_state(state)
    effects = side.handle(DeadlinePassed(), side.deadline)
    assert failure(effects).reason == RefusalReason.SLOW
    assert (b"handshake-slow" in sent(effects)) == (state is not S.DIALLING)


def test_octets_after_the_deadline_do_not_count() -> None:
    side = in_state(S.AWAIT_HELLO)
    effects = side.handle(BytesReceived(PREAMBLE), side.deadline)
    assert failure(effects).reason == RefusalReason.SLOW


def test_an_unreadable_refusal_is_still_one() -> None:
    effects = in_state(S.AWAIT_WELCOME).handle(BytesReceived(b"\x00\x03\x05\x01\xff"), 1.0)
    error = failure(effects)
    assert (error.reason, error.by_peer) == ("unreadable", True)


def test_refusals_survive_pickling() -> None:
    error = HandshakeRefused.of(RefusalReason.OTHER_CLUSTER, "text", by_peer=True)
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, HandshakeRefused)
    assert (again.reason, again.by_peer, str(again)) == ("other-cluster", True, str(error))


@pytest.mark.parametrize(
    "make",
    [
        lambda: check_secret(b"fifteen octets."),
        lambda: check_cluster(""),
        lambda: check_cluster("x" * 256),
        lambda: check_cluster("\ud800"),
        lambda: Identity(NodeRun(b"a", 1), PeerRole.NODE, 64 * 1024 * 1024 + 1, 65536),
        lambda: Identity(NodeRun(b"a", 1), PeerRole.NODE, 0, 65535),
    ],
)
def test_wrong_settings_are_named(make: Any) -> None:
    with pytest.raises(NotConfigured):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Identity(NodeRun(b"", 1), PeerRole.NODE, 0, 65536),
        lambda: Identity(NodeRun(b"a", 0), PeerRole.NODE, 0, 65536),
        lambda: acceptor(nonce=b"short"),
    ],
)
def test_wrong_identities_are_our_own_mistake(make: Any) -> None:
    with pytest.raises(InvalidOperation):
        make()


def test_the_example_of_the_reference_is_what_is_sent() -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "mesh.md").read_text(encoding="utf-8")
    documented = re.findall(r"^(?:dialler|acceptor): +([0-9a-f]+)$", text, re.MULTILINE)
    left, right = dialler(), acceptor()
    hello = sent(left.handle(Connected(), 0.0))
    right.handle(Connected(), 0.0)
    challenge = sent(right.handle(BytesReceived(hello), 0.0))
    proof = sent(left.handle(BytesReceived(challenge), 0.0))
    right.handle(BytesReceived(proof), 0.0)
    welcome = sent(right.handle(Admitted(), 0.0))
    assert documented == [octets.hex() for octets in (hello, challenge, proof, welcome)]


def test_every_refusal_and_control_message_is_in_the_reference() -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "mesh.md").read_text(encoding="utf-8")
    names = [reason.value for reason in RefusalReason] + [
        message.__name__ for message in get_args(mesh.MeshControl)
    ]
    assert [name for name in names if f"`{name}`" not in text] == []
