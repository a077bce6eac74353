"""Control messages on mesh links (frame kind 4): one MessagePack array each.

Owns their fields and their MessagePack form, and how an endpoint is spelled. The first five are the link's own
and never reach the router; the rest belong to the supervisors. A `call` number is unique per connection and
direction, the answer repeats it. Nothing of `wire.md` is here: those records travel as contract frames.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from sojourn.control import ErrorBody
from sojourn.errors import NotConfigured, ProtocolError
from sojourn.ids import is_key

__all__ = [
    "Announce",
    "Call",
    "CallResult",
    "Credit",
    "FailureTold",
    "Goodbye",
    "HandoffTimes",
    "MarkerRefused",
    "MarkerTaken",
    "MeshControl",
    "Ping",
    "Pong",
    "RequestsLost",
    "RequestsTaken",
    "RouteNotice",
    "SealRefused",
    "Withdrawn",
    "decode_mesh",
    "encode_mesh",
    "format_endpoint",
    "parse_endpoint",
]


Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
"""A number on the wire is never negative; MessagePack bounds it to 64 bits."""


class _MeshControl(msgspec.Struct, tag=True, array_like=True, forbid_unknown_fields=True):
    pass


# the link's own


class Credit(_MeshControl):
    """The receiver of this message may send `records` more application records and `octets` more octets of
    their frame bodies (B5.2)."""

    records: Number
    octets: Number


class Ping(_MeshControl):
    """Answer with `Pong` of the same number, at once."""

    number: Number


class Pong(_MeshControl):
    """Answer to `Ping`."""

    number: Number


class Goodbye(_MeshControl):
    """Last frame of its sender. The other side sends what it has handed over already, its own Goodbye, and
    closes. `reason` is for logs."""

    reason: str


# the supervisors'


class Call(_MeshControl):
    """One node asks another for something; `arguments` is MessagePack, `timeout_ms` the time left (0 = none)."""

    call: Number
    operation: str
    arguments: bytes
    timeout_ms: Number = 0


class CallResult(_MeshControl):
    """Answer to `Call`: `value` is MessagePack, or `error`."""

    call: Number
    value: bytes = b""
    error: ErrorBody | None = None


class RequestsLost(_MeshControl):
    """Requests this node took whose reply cannot come any more: `(reply_route, operation_low)` pairs of the
    receiver, and the typed error."""

    requests: list[tuple[Number, Number]]
    error: ErrorBody


class RequestsTaken(_MeshControl):
    """The sender of this message opened an object that moved to it together with requests of the receiver, or that
    they were followed to: `(reply_route, operation_high, operation_low)` of each. Their ends come from there, and are
    kept until the receiver has them (B7.1)."""

    key: bytes
    requests: list[tuple[Number, Number, Number]]


class MarkerTaken(_MeshControl):
    """Answer to a path marker (B9.4), sent to its origin by the node that took it: here new messages go.

    The owner generation is one that is committed for sure: a node that only stages the object answers with
    the source's.
    """

    number: Number
    key: bytes
    kind: Number
    object_generation: Number
    owner_generation: Number
    lease_generation: Number


class MarkerRefused(_MeshControl):
    """Nobody at the sender of this message holds the object of this path marker: order is not promised."""

    number: Number


class Withdrawn(_MeshControl):
    """The source fenced this attempt (B6.7): its target's CAS can only conflict. It only spares the target its
    wait; who cannot send or read it loses nothing but time."""

    relocation_high: Number
    relocation_low: Number
    attempt: Number


class FailureTold(_MeshControl):
    """Why the target of a relocation ends this attempt with the command 53 that follows: the reason of B10.2 that the
    move counts as, and a text. For whoever asked for the move: the 53 alone decides, and may come without this."""

    relocation_high: Number
    relocation_low: Number
    attempt: Number
    reason: str
    detail: str


class RouteNotice(_MeshControl):
    """The sender of this message owns the object: answer to a record that was sent to it on placement alone,
    before the object existed."""

    key: bytes
    kind: Number
    object_generation: Number
    owner_generation: Number
    lease_generation: Number


class Announce(_MeshControl):
    """The sender's node descriptor, as `docs/reference/rows.md` stores it: first message on a link, and again
    whenever it changes."""

    descriptor: bytes


class HandoffTimes(_MeshControl):
    """When the target of a relocation opened dispatch and ran the first turn (CLOCK_MONOTONIC ns of its
    machine, B10.7). For figures only: a source never waits for it to decide anything (R4.6.4)."""

    relocation_high: Number
    relocation_low: Number
    opened_ns: Number
    first_turn_ns: Number


class SealRefused(_MeshControl):
    """A command 42 that was refused (B11.2): answers it instead of a 43 and never closes the link."""

    relocation_high: Number
    relocation_low: Number
    session_rid: bytes
    binding_generation: Number
    key: bytes
    """Of the Actor: a session may be bound to several that move together."""
    error: ErrorBody


MeshControl: TypeAlias = (
    Credit
    | Ping
    | Pong
    | Goodbye
    | Call
    | CallResult
    | RequestsLost
    | RequestsTaken
    | MarkerTaken
    | MarkerRefused
    | Withdrawn
    | FailureTold
    | RouteNotice
    | Announce
    | HandoffTimes
    | SealRefused
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[MeshControl] = msgspec.msgpack.Decoder(MeshControl)


def encode_mesh(message: MeshControl) -> bytes:
    """MessagePack form of a message (without the kind byte)."""
    return _encoder.encode(message)


def decode_mesh(encoded: bytes | memoryview) -> MeshControl:
    """Read a message.

    Raises:
        ProtocolError: not MessagePack, an unknown name, fields of another shape, a negative number, or a key that
            is no object's.
    """
    try:
        message = _decoder.decode(encoded)
    except (msgspec.DecodeError, RecursionError) as error:  # the fields of an error may be nested
        raise ProtocolError(f"control frame: {error}") from None
    if isinstance(message, RequestsTaken | MarkerTaken | RouteNotice) and not is_key(message.key):
        raise ProtocolError(f"control frame: {message.key!r:.80} is no object's key")
    return message


def parse_endpoint(endpoint: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 host stands in brackets.

    Raises:
        NotConfigured: another form, or a port outside 0 to 65535.
    """
    host, colon, port = endpoint.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if (
        not (colon and host and port.isascii() and port.isdigit())
        or int(port) > 65535
        or (":" in host) != bracketed
    ):
        raise NotConfigured(f"endpoint {endpoint!r:.100}: write host:port or [ipv6]:port, port 0 to 65535")
    return (host[1:-1] if bracketed else host), int(port)


def format_endpoint(host: str, port: int) -> str:
    """The spelling `parse_endpoint` reads."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
