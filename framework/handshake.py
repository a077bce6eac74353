"""The handshake of a mesh link: who is at the other end, proved by the cluster secret both ways.

Owns the order of messages from the first octet of a connection up to its first frame. A pure machine: `handle(event, now)` gives effects; nonces and time come in from outside. It must not
know sockets, frames, or what other connections exist (the shell answers `AskAdmission`).

The dialler speaks first. Both preambles and the four messages, with D the dialler and A the acceptor:

    D -> A  preamble, Hello      who I am, whom I dialled, nonce
    A -> D  preamble, Challenge  who I am, nonce
    D -> A  Proof                HMAC over both of the above
    A -> D  Welcome              HMAC over the same, other label; frames follow

Either side may send Refused instead, with the name of the reason, and closes. `docs/reference/mesh.md` has
every octet.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from sojourn.errors import InternalFailure, InvalidOperation
from sojourn.handshake_octets import (
    CHALLENGE,
    HANDSHAKE_OCTETS_MAX,
    HELLO,
    MAC_OCTETS,
    MESSAGE_NAMES,
    MESSAGE_OCTETS_MAX,
    NONCE_OCTETS,
    PREAMBLE,
    PROOF,
    REFUSED,
    SIZE,
    WELCOME,
    FieldReader,
    HandshakeRefused,
    Identity,
    Peer,
    Refusal,
    RefusalReason,
    check_cluster,
    check_secret,
    identity_octets,
    message_octets,
    run_octets,
    text8,
)
from sojourn.ids import NodeRun

__all__ = [
    "MESSAGES",
    "TABLE",
    "Admitted",
    "AskAdmission",
    "BytesReceived",
    "Close",
    "Connected",
    "DeadlinePassed",
    "Effect",
    "EndOfStream",
    "Established",
    "Event",
    "Failed",
    "Handshake",
    "HandshakeState",
    "NotAdmitted",
    "SendBytes",
]

_MAGIC = PREAMBLE[:7]
_VERSION = PREAMBLE[7]
_DIALLER_LABEL = b"sojourn mesh 1 dialler\x00"
_ACCEPTOR_LABEL = b"sojourn mesh 1 acceptor\x00"


# events


@dataclass(frozen=True, slots=True)
class Connected:
    """The TCP (or TLS) connection stands."""


@dataclass(frozen=True, slots=True)
class BytesReceived:
    """Octets arrived, split anywhere."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class EndOfStream:
    """The peer closed, or the connection broke."""


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """`deadline` is over."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Answer to `AskAdmission`: this connection becomes the link."""


@dataclass(frozen=True, slots=True)
class NotAdmitted:
    """The shell does not want this connection: an answer to `AskAdmission`, or at any time (shutting down)."""

    reason: RefusalReason


Event: TypeAlias = Connected | BytesReceived | EndOfStream | DeadlinePassed | Admitted | NotAdmitted


# effects


@dataclass(frozen=True, slots=True)
class SendBytes:
    """Write these octets."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class AskAdmission:
    """The dialler proved itself: may its connection become the link? Answer with Admitted or NotAdmitted."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class Established:
    """The handshake is over. `leftover` are the first octets of the peer's frames."""

    peer: Peer
    leftover: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """It is over without a link."""

    error: HandshakeRefused


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection after what was sent is written; `deadline` stays in force for that."""


Effect: TypeAlias = SendBytes | AskAdmission | Established | Failed | Close


class HandshakeState(enum.Enum):
    """Where a handshake is. The first three belong to the dialler, the next four to the acceptor."""

    DIALLING = "dialling"
    AWAIT_CHALLENGE = "await challenge"
    AWAIT_WELCOME = "await welcome"
    ACCEPTING = "accepting"
    AWAIT_HELLO = "await hello"
    AWAIT_PROOF = "await proof"
    AWAIT_ADMISSION = "await admission"
    OPEN = "open"
    CLOSED = "closed"


class Handshake:
    """One side of one connection's handshake.

    `deadline` is the instant (in the unit of `now`, seconds) by which it must have ended; the shell arms one
    timer for it and sends `DeadlinePassed`.
    """

    STORY_MAX: ClassVar[int] = 50

    def __init__(
        self,
        identity: Identity,
        cluster: str,
        secret: bytes,
        nonce: bytes,
        deadline: float,
        dialled: NodeRun | None = None,
        octets_max: int = HANDSHAKE_OCTETS_MAX,
    ) -> None:
        """`dialled` is the run this side means to reach; None for the accepting side. `nonce` are 32 octets
        of a secure random source, used for no other handshake. `octets_max` bounds what is read before the end."""
        if len(nonce) != NONCE_OCTETS:
            raise InvalidOperation(f"a nonce has {NONCE_OCTETS} octets, not {len(nonce)}")
        self.identity = identity
        self.deadline = deadline
        self.state = HandshakeState.ACCEPTING if dialled is None else HandshakeState.DIALLING
        self.story: deque[str] = deque(maxlen=self.STORY_MAX)
        self._cluster = check_cluster(cluster)
        self._secret = check_secret(secret)
        self._nonce = nonce
        self.dialled = dialled
        self._octets_max = octets_max
        self._received = bytearray()
        self._total = 0
        self._version_seen = False
        self._own_message = b""
        self._transcript = b""
        self._peer: Peer | None = None

    @property
    def peer(self) -> Peer | None:
        """Who the peer says it is; proved only once the state is AWAIT_ADMISSION or OPEN."""
        return self._peer

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event; the effects are to be carried out in order, at once.

        Raises:
            InternalFailure: an event that cannot happen in this state (our bug); carries the story.
        """
        self.story.append(f"{now:.6f} {self.state.value}: {type(event).__name__}")
        step = TABLE.get((self.state, type(event)))
        if step is None:
            raise InternalFailure(
                f"handshake: {type(event).__name__} in state {self.state.value}; " + " | ".join(self.story)
            )
        try:
            return step(self, event, now)
        except Refusal as refusal:
            return self._refuse(refusal)

    # steps of the table

    def _ignore(self, event: Event, now: float) -> list[Effect]:
        return []

    def _connected_dialler(self, event: Event, now: float) -> list[Effect]:
        assert self.dialled is not None
        self.state = HandshakeState.AWAIT_CHALLENGE
        body = self._nonce + text8(self._cluster) + identity_octets(self.identity) + run_octets(self.dialled)
        self._own_message = message_octets(HELLO, body)
        return [SendBytes(PREAMBLE + self._own_message)]

    def _connected_acceptor(self, event: Event, now: float) -> list[Effect]:
        self.state = HandshakeState.AWAIT_HELLO
        return []

    def _bytes(self, event: Event, now: float) -> list[Effect]:
        assert isinstance(event, BytesReceived)
        if now >= self.deadline:
            return self._too_slow(event, now)
        self._total += len(event.octets)
        self._received += event.octets
        effects: list[Effect] = []
        try:
            while self.state is not HandshakeState.OPEN and self.state is not HandshakeState.CLOSED:
                message = self._next_message()
                if message is None:
                    break
                effects += self._message(*message)
        except Refusal as refusal:
            return effects + self._refuse(refusal)
        return effects

    def _end(self, event: Event, now: float) -> list[Effect]:
        text = "the connection ended inside the handshake"
        return self._fail(HandshakeRefused.of(RefusalReason.CONNECTION_LOST, text))

    def _too_slow(self, event: Event, now: float) -> list[Effect]:
        raise Refusal(RefusalReason.SLOW, f"the handshake was not over in time ({self.state.value})")

    def _not_admitted(self, event: Event, now: float) -> list[Effect]:
        assert isinstance(event, NotAdmitted)
        raise Refusal(event.reason, f"not admitted ({self.state.value}){_CAUSES.get(event.reason, '')}")

    def _admitted(self, event: Event, now: float) -> list[Effect]:
        assert self._peer is not None
        self.state = HandshakeState.OPEN
        welcome = message_octets(WELCOME, self._mac(_ACCEPTOR_LABEL))
        return [SendBytes(welcome), Established(self._peer, b"")]

    # messages

    def _next_message(self) -> tuple[int, bytes, bytes] | None:
        """Type, body and whole octets of the next message, None when it is not there yet."""
        received = self._received
        if not self._version_seen:
            self._check_preamble()
            if len(received) < len(PREAMBLE):
                return None
            self._version_seen = True
            del received[: len(PREAMBLE)]
        if len(received) < SIZE.size:
            self._check_total()
            return None
        (size,) = SIZE.unpack_from(received)
        if size > MESSAGE_OCTETS_MAX:
            raise Refusal(
                RefusalReason.OVERSIZED, f"a message of {size} octets; {MESSAGE_OCTETS_MAX} are allowed"
            )
        if size < 1:
            raise Refusal(RefusalReason.MALFORMED, "a message without a type")
        end = SIZE.size + size
        if len(received) < end:
            self._check_total()
            return None
        whole = bytes(received[:end])
        del received[:end]
        return whole[SIZE.size], whole[SIZE.size + 1 :], whole

    def _check_total(self) -> None:
        # Frames may follow a Welcome in the same octets, so only what is still undecided counts.
        if self._total > self._octets_max:
            raise Refusal(RefusalReason.OVERSIZED, f"more than {self._octets_max} octets")

    def _check_preamble(self) -> None:
        head = bytes(self._received[: len(PREAMBLE)])
        if not _MAGIC.startswith(head[:7]):
            raise Refusal(
                RefusalReason.NOT_SOJOURN, f"the peer does not speak this protocol: {head!r}", tell=False
            )
        if len(head) == len(PREAMBLE) and head[7] != _VERSION:
            raise Refusal(
                RefusalReason.UNSUPPORTED_VERSION, f"the peer speaks version {head[7]}, this side {_VERSION}"
            )

    def _message(self, kind: int, body: bytes, whole: bytes) -> list[Effect]:
        if kind == REFUSED:
            return self._peer_refused(body)
        due = MESSAGES.get(self.state)
        if due is None or due[0] != kind:
            name = MESSAGE_NAMES.get(kind, f"type {kind}")
            raise Refusal(RefusalReason.MALFORMED, f"{name} in state {self.state.value}")
        return due[1](self, body, whole)

    def _peer_refused(self, body: bytes) -> list[Effect]:
        try:
            reason = FieldReader(body).only_text8().decode("ascii")
        except (UnicodeDecodeError, Refusal):
            reason = "unreadable"
        text = f"refused by the peer{f' {self.dialled}' if self.dialled else ''}{_HINTS.get(reason, '')}"
        return self._fail(HandshakeRefused.of(reason, text, by_peer=True))

    def _hello(self, body: bytes, whole: bytes) -> list[Effect]:
        reader = FieldReader(body)
        reader.take(NONCE_OCTETS)
        cluster = reader.text8()
        identity = reader.identity()
        meant = reader.run()
        reader.end()
        if cluster != self._cluster:
            raise Refusal(RefusalReason.OTHER_CLUSTER, f"the peer {identity.run} belongs to another cluster")
        self._check_not_self(identity.run)
        self._check_run(meant, self.identity.run, f"{identity.run} dialled")
        self._peer = Peer(identity, dialled=False)
        challenge = message_octets(CHALLENGE, self._nonce + identity_octets(self.identity))
        self._transcript = whole + challenge
        self.state = HandshakeState.AWAIT_PROOF
        return [SendBytes(PREAMBLE + challenge)]

    def _challenge(self, body: bytes, whole: bytes) -> list[Effect]:
        assert self.dialled is not None
        reader = FieldReader(body)
        nonce = reader.take(NONCE_OCTETS)
        identity = reader.identity()
        reader.end()
        self._check_not_self(identity.run)
        if nonce == self._nonce:
            raise Refusal(RefusalReason.MALFORMED, "the peer repeated this side's nonce")
        self._check_run(self.dialled, identity.run, "dialled")
        self._peer = Peer(identity, dialled=True)
        self._transcript = self._own_message + whole
        self.state = HandshakeState.AWAIT_WELCOME
        return [SendBytes(message_octets(PROOF, self._mac(_DIALLER_LABEL)))]

    def _proof(self, body: bytes, whole: bytes) -> list[Effect]:
        assert self._peer is not None
        self._check_mac(body, _DIALLER_LABEL)
        self.state = HandshakeState.AWAIT_ADMISSION
        return [AskAdmission(self._peer)]

    def _welcome(self, body: bytes, whole: bytes) -> list[Effect]:
        assert self._peer is not None
        self._check_mac(body, _ACCEPTOR_LABEL)
        self.state = HandshakeState.OPEN
        leftover = bytes(self._received)
        self._received.clear()
        return [Established(self._peer, leftover)]

    # checks and ends

    def _check_not_self(self, run: NodeRun) -> None:
        if run == self.identity.run:
            raise Refusal(RefusalReason.SELF, f"{run} reached itself")

    def _check_run(self, meant: NodeRun, reached: NodeRun, who: str) -> None:
        if meant.rid != reached.rid:
            raise Refusal(RefusalReason.OTHER_NODE, f"{who} {meant}, {reached} answers here")
        if meant != reached:
            raise Refusal(RefusalReason.OTHER_GENERATION, f"{who} {meant}, its run here is {reached}")

    def _mac(self, label: bytes) -> bytes:
        return hmac.digest(
            self._secret, label + PREAMBLE + text8(self._cluster) + self._transcript, hashlib.sha256
        )

    def _check_mac(self, body: bytes, label: bytes) -> None:
        if len(body) != MAC_OCTETS:
            raise Refusal(RefusalReason.MALFORMED, f"a proof of {len(body)} octets")
        if not hmac.compare_digest(body, self._mac(label)):
            raise Refusal(RefusalReason.WRONG_SECRET, "the peer has another cluster secret")

    def _refuse(self, refusal: Refusal) -> list[Effect]:
        told: list[Effect] = []
        if refusal.tell and self.state is not HandshakeState.DIALLING:
            # An acceptor that sent no Challenge yet has not shown its preamble either.
            head = PREAMBLE if self.state in (HandshakeState.ACCEPTING, HandshakeState.AWAIT_HELLO) else b""
            told = [SendBytes(head + message_octets(REFUSED, text8(refusal.reason.value.encode("ascii"))))]
        return told + self._fail(HandshakeRefused.of(refusal.reason, refusal.text))

    def _fail(self, error: HandshakeRefused) -> list[Effect]:
        self.state = HandshakeState.CLOSED
        self._received.clear()
        return [Failed(error), Close()]


_HINTS = {
    RefusalReason.WRONG_SECRET.value: ": this side has another cluster secret",
    RefusalReason.OTHER_CLUSTER.value: ": it belongs to another cluster",
    RefusalReason.OTHER_GENERATION.value: ": that run of the node is gone",
    RefusalReason.TOO_MANY.value: ": too many newer connections came before this one had proved itself; try again",
}
_CAUSES = {
    RefusalReason.TOO_MANY: ": it gave way to a newer one, handshake_max_connections had not proved themselves",
}

_Step: TypeAlias = Callable[[Handshake, Any, float], list[Effect]]
_MessageStep: TypeAlias = Callable[[Handshake, bytes, bytes], list[Effect]]


def _build_table() -> dict[tuple[HandshakeState, type[Any]], _Step]:
    state = HandshakeState
    table: dict[tuple[HandshakeState, type[Any]], _Step] = {
        (state.DIALLING, Connected): Handshake._connected_dialler,
        (state.ACCEPTING, Connected): Handshake._connected_acceptor,
        (state.AWAIT_ADMISSION, Admitted): Handshake._admitted,
    }
    for waiting in (
        state.AWAIT_CHALLENGE,
        state.AWAIT_WELCOME,
        state.AWAIT_HELLO,
        state.AWAIT_PROOF,
        state.AWAIT_ADMISSION,
    ):
        table[waiting, BytesReceived] = Handshake._bytes
    for alive in set(state) - {state.OPEN, state.CLOSED}:
        table[alive, EndOfStream] = Handshake._end
        table[alive, DeadlinePassed] = Handshake._too_slow
        table[alive, NotAdmitted] = Handshake._not_admitted
    for event in (DeadlinePassed, Admitted, NotAdmitted, EndOfStream, BytesReceived):
        table[state.CLOSED, event] = Handshake._ignore
    table[state.OPEN, DeadlinePassed] = Handshake._ignore
    return table


TABLE: Final = _build_table()
"""Every (state, event) that may happen. A pair that is missing is a bug of the shell."""

MESSAGES: Final[dict[HandshakeState, tuple[int, _MessageStep]]] = {
    HandshakeState.AWAIT_CHALLENGE: (CHALLENGE, Handshake._challenge),
    HandshakeState.AWAIT_WELCOME: (WELCOME, Handshake._welcome),
    HandshakeState.AWAIT_HELLO: (HELLO, Handshake._hello),
    HandshakeState.AWAIT_PROOF: (PROOF, Handshake._proof),
}
"""The one message due in a state (Refused is taken in all of them)."""
