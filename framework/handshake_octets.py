"""What a handshake carries: identities, refusals, and the octets of its messages.

Owns the layout of the preamble and of Hello, Challenge, Proof, Welcome and Refused, their limits, and the names
of every refusal. It must not know in which order they come (`sojourn.handshake` does).
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final

from sojourn.errors import InvalidOperation, NotConfigured, Unavailable
from sojourn.ids import GENERATION_MAX, NodeRun

__all__ = [
    "CHALLENGE",
    "CHUNK_LIMIT_DEFAULT",
    "CHUNK_LIMIT_MAX",
    "FRAME_MIN",
    "HANDSHAKE_OCTETS_MAX",
    "HELLO",
    "MAC_OCTETS",
    "MESSAGE_NAMES",
    "MESSAGE_OCTETS_MAX",
    "NONCE_OCTETS",
    "PREAMBLE",
    "PROOF",
    "REFUSED",
    "SECRET_OCTETS_MIN",
    "SIZE",
    "WELCOME",
    "FieldReader",
    "HandshakeRefused",
    "Identity",
    "Peer",
    "PeerRole",
    "Refusal",
    "RefusalReason",
    "check_cluster",
    "check_secret",
    "identity_octets",
    "message_octets",
    "run_octets",
    "text8",
]

PREAMBLE: Final = b"SOJOURN\x01"
"""First octets of either side: seven of magic, one of version."""

NONCE_OCTETS: Final = 32
MAC_OCTETS: Final = 32
SECRET_OCTETS_MIN: Final = 16
HANDSHAKE_OCTETS_MAX: Final = 8192
"""Most octets one side may send before the handshake ends, preamble included (default)."""
MESSAGE_OCTETS_MAX: Final = 1280
CHUNK_LIMIT_MAX: Final = 64 * 1024 * 1024
CHUNK_LIMIT_DEFAULT: Final = 32 * 1024
"""What counts for a peer that announced no receive chunk limit (R4.2.5)."""
FRAME_MIN: Final = 64 * 1024
"""Smallest frame limit a member may announce."""

SIZE = struct.Struct(">H")
_RUN = struct.Struct(">Q")
_LIMITS = struct.Struct(">BII")

HELLO, CHALLENGE, PROOF, WELCOME, REFUSED = 1, 2, 3, 4, 5
MESSAGE_NAMES = {
    HELLO: "Hello",
    CHALLENGE: "Challenge",
    PROOF: "Proof",
    WELCOME: "Welcome",
    REFUSED: "Refused",
}


class PeerRole(enum.IntEnum):
    """What kind of member speaks."""

    NODE = 1
    CLIENT = 2


class RefusalReason(enum.StrEnum):
    """Why a connection did not become a link. The values travel in Refused and stand in errors and logs."""

    NOT_SOJOURN = "not-sojourn"
    """The first octets are not the preamble. Nothing is sent back."""
    UNSUPPORTED_VERSION = "unsupported-version"
    MALFORMED = "malformed-handshake"
    """A message that cannot be read, or another than the one due."""
    OVERSIZED = "handshake-oversized"
    SLOW = "handshake-slow"
    TOO_MANY = "too-many-connections"
    """The acceptor has as many unauthenticated connections as it allows."""
    OTHER_CLUSTER = "other-cluster"
    SELF = "self-connection"
    OTHER_NODE = "other-node"
    """Another RID answered than was dialled."""
    OTHER_GENERATION = "other-generation"
    """The dialled RID, but another run of it."""
    WRONG_SECRET = "wrong-secret"
    DUPLICATE_DIAL = "duplicate-dial"
    """The acceptor's own dial to the same run stays (B8.13): wait for it."""
    ALREADY_CONNECTED = "already-connected"
    """A live link between the two runs exists and answers."""
    SHUTTING_DOWN = "shutting-down"
    CONNECTION_LOST = "connection-lost"
    """Closed or reset before the end of the handshake; never sent."""
    UNREACHABLE = "unreachable"
    """No connection came about; never sent."""


class HandshakeRefused(Unavailable):
    """A connection that did not become a link; nothing was carried over it (`applied` is "no").

    Attributes:
        reason: a `RefusalReason` value, or whatever name the peer gave.
        by_peer: True when the peer refused.
    """

    reason: str = ""
    by_peer: bool = False

    @classmethod
    def of(cls, reason: str, message: str, *, by_peer: bool = False) -> HandshakeRefused:
        """Build one; the reason stands at the front of the message."""
        error = cls(f"{reason}: {message}", phase="handshake", applied="no")
        error.reason = str(reason)
        error.by_peer = by_peer
        return error

    @classmethod
    def copy_of(cls, error: HandshakeRefused) -> HandshakeRefused:
        """Another one of the same content, to be raised at another place."""
        other = cls(error.message, phase=error.phase, applied=error.applied)
        other.reason, other.by_peer = error.reason, error.by_peer
        return other


def check_secret(secret: bytes) -> bytes:
    """Return a usable cluster secret unchanged.

    Raises:
        NotConfigured: shorter than 16 octets.
    """
    if len(secret) < SECRET_OCTETS_MIN:
        raise NotConfigured(
            f"the cluster secret has {len(secret)} octets; at least {SECRET_OCTETS_MIN} are needed. "
            "Make one with: python -c 'import secrets; print(secrets.token_hex(32))'"
        )
    return secret


def check_cluster(cluster: str) -> bytes:
    """The octets of a cluster name.

    Raises:
        NotConfigured: not 1 to 255 octets of UTF-8.
    """
    try:
        raw = cluster.encode("utf-8")
    except UnicodeEncodeError:
        raw = b""
    if not 1 <= len(raw) <= 255:
        raise NotConfigured(f"a cluster name has 1 to 255 octets of UTF-8: {cluster!r:.80}")
    return raw


@dataclass(frozen=True, slots=True)
class Identity:
    """What one member says of itself.

    `receive_chunk_limit` is the largest chunkData it takes in a command 52 (R4.2.5, B8.11), in octets, 0 =
    not announced, at most 64 MiB; `frame_octets_max` the largest frame body it reads.
    """

    run: NodeRun
    role: PeerRole
    receive_chunk_limit: int
    frame_octets_max: int

    def __post_init__(self) -> None:
        if not 1 <= len(self.run.rid) <= 255 or not 1 <= self.run.generation <= GENERATION_MAX:
            raise InvalidOperation(f"not a node run: {self.run}")
        if not 0 <= self.receive_chunk_limit <= CHUNK_LIMIT_MAX:
            raise NotConfigured(
                f"receive chunk limit {self.receive_chunk_limit}: 0 to {CHUNK_LIMIT_MAX} octets"
            )
        if not FRAME_MIN <= self.frame_octets_max < 2**32:
            raise NotConfigured(f"frame limit {self.frame_octets_max}: at least {FRAME_MIN} octets")


@dataclass(frozen=True, slots=True)
class Peer:
    """An authenticated peer: its announcements, and whether this side dialled."""

    identity: Identity
    dialled: bool

    @property
    def run(self) -> NodeRun:
        """The peer's node run."""
        return self.identity.run

    @property
    def receive_chunk_limit(self) -> int:
        """Octets of chunkData the peer takes; 32 KiB where it announced none."""
        return self.identity.receive_chunk_limit or CHUNK_LIMIT_DEFAULT


class Refusal(Exception):
    """Ends the handling of an event inside the machine; never leaves it."""

    def __init__(self, reason: RefusalReason, text: str, tell: bool = True) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.tell = tell


def message_octets(kind: int, body: bytes) -> bytes:
    return SIZE.pack(1 + len(body)) + bytes((kind,)) + body


def text8(text: bytes) -> bytes:
    return bytes((len(text),)) + text


def run_octets(run: NodeRun) -> bytes:
    return text8(run.rid) + _RUN.pack(run.generation)


def identity_octets(identity: Identity) -> bytes:
    limits = _LIMITS.pack(identity.role, identity.receive_chunk_limit, identity.frame_octets_max)
    return run_octets(identity.run) + limits


class FieldReader:
    """Reads the fields of one message body; whatever does not fit is a malformed handshake."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._body):
            raise Refusal(RefusalReason.MALFORMED, "a message is cut short")
        octets, self._at = self._body[self._at : end], end
        return octets

    def text8(self) -> bytes:
        octets = self.take(self.take(1)[0])
        if not octets:
            raise Refusal(RefusalReason.MALFORMED, "an empty name")
        return octets

    def only_text8(self) -> bytes:
        octets = self.text8()
        self.end()
        return octets

    def run(self) -> NodeRun:
        rid = self.text8()
        (generation,) = _RUN.unpack(self.take(_RUN.size))
        if not 1 <= generation <= GENERATION_MAX:
            raise Refusal(RefusalReason.MALFORMED, f"node generation {generation}")
        return NodeRun(rid, generation)

    def identity(self) -> Identity:
        run = self.run()
        role, chunk_limit, frame_max = _LIMITS.unpack(self.take(_LIMITS.size))
        try:
            return Identity(run, PeerRole(role), chunk_limit, frame_max)
        except (ValueError, NotConfigured) as error:
            raise Refusal(RefusalReason.MALFORMED, str(error)) from None

    def end(self) -> None:
        if self._at != len(self._body):
            raise Refusal(RefusalReason.MALFORMED, "octets behind the end of a message")
