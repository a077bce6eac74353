"""Frames between processes: what runs on worker IPC and, with the same bytes, on mesh links.

Owns the byte layout of a frame's first bytes: length prefix, kind byte, routing header of application
records, reply header. Supervisors route by these headers and pass the rest on untouched. Everything is
big-endian. It must not know what a payload means.

A frame on a stream is `u32 length` (of what follows) + `u8 kind` + body. Kinds:

| kind | name | body | where |
|---|---|---|---|
| 1 | contract | `u32 relative deadline ms (0 = none)`, `u8 parts`, parts (all but the last `u32 length` first) | links |
| 2 | record | routing header + frozen record | IPC and links |
| 3 | reply | reply header + result bytes | IPC and links |
| 4 | control | one tagged MessagePack array (`sojourn.control` on IPC, `sojourn.mesh` on links) | both |
| 5 | bulk | `u64 handoff`, `u8 last`, bytes: state between a worker and its supervisor | IPC |
"""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeVar

from sojourn.errors import ProtocolError

__all__ = [
    "ADMISSION_PACKET",
    "FLAG_ACTIVATE",
    "FLAG_COMPLETE",
    "FLAG_ERROR",
    "FLAG_FIRST",
    "FLAG_FOLLOW",
    "FLAG_INTENT",
    "FLAG_LOOP",
    "FLAG_MARKER",
    "FLAG_REQUEST",
    "HOPS_MAX",
    "KEY_AT",
    "KIND_BULK",
    "KIND_CONTRACT",
    "KIND_CONTROL",
    "KIND_RECORD",
    "KIND_REPLY",
    "LENGTH",
    "LOOP_PACKET",
    "MARKER_PACKET",
    "REPLY_TO_AT",
    "UNBIND_PACKET",
    "RecordHeader",
    "ReplyHeader",
    "bulk_frame",
    "bulk_parts",
    "complete_open",
    "complete_record",
    "contract_frame",
    "contract_head",
    "control_frame",
    "parse_bulk",
    "parse_contract",
    "parse_record_header",
    "parse_reply_header",
    "record_frame",
    "reply_frame",
    "reply_head",
    "set_hops",
]

KIND_CONTRACT = 1
KIND_RECORD = 2
KIND_REPLY = 3
KIND_CONTROL = 4
KIND_BULK = 5

LENGTH = struct.Struct(">I")

FLAG_REQUEST = 0x01
"""A reply is awaited under `reply_route`."""
FLAG_INTENT = 0x02
"""Instance intent: a missing Instance Spot of `stable_type` is created by this record (B1.4)."""
FLAG_COMPLETE = 0x04
"""The route fence stands in the record; clear between a worker and its own supervisor, and in records that are to
make their object. Whoever takes such a record out of its node or into an envelope puts the fence in."""
FLAG_MARKER = 0x08
"""A path marker (B9.4): answered by whoever takes it into mailbox or staging, never given to a handler."""
FLAG_ACTIVATE = 0x10
"""The sender's node chose the receiving node to create the object (placement)."""
FLAG_FOLLOW = 0x20
"""Sent on by a former owner (Message Follow, R10): not answered with another look-up at the sender."""

FLAG_LOOP = 0x40
"""The framework's own record, taken along like any other and never handled; its packet name says which: a worker's
loop record, which comes back to that worker behind everything the worker sent to the object by way of its supervisor,
and tells it that it may use the short way from mailbox to mailbox; or an unbind (B11.1)."""

FLAG_FIRST = 0x80
"""From a supervisor to its worker only: the Relocation Store keeps this message until its handler has ended, and the
worker tells when (B7.1)."""

FLAG_ERROR = 0x01
"""In a reply: the result bytes are an error (`sojourn.control.ErrorBody`)."""

HOPS_MAX = 8
"""Most follow hops of one record (B9.1, fixed)."""

MARKER_PACKET = "sojourn.marker"
"""Reserved packet name of a path marker."""

ADMISSION_PACKET = "sojourn.on_create_actor"
"""Packet name of an Entry Spot's `on_create_actor(actor_id, actor_type)` as a request (B2.2)."""

LOOP_PACKET = "sojourn.loop"
"""Reserved packet name of a loop record."""

UNBIND_PACKET = "sojourn.unbind"
"""Reserved packet name of an unbind on its way to an Actor's owner, whose supervisor carries it out (B11.1)."""

_RECORD = struct.Struct(">BBBBQQQQHB")
_REPLY = struct.Struct(">BBQQQB")
_FIRST = struct.Struct(">BBBBQ")
_REPLY_HEAD = struct.Struct(">BBQQQ")
_GENERATION = struct.Struct(">Q")
_CONTRACT = struct.Struct(">BIB")
_BULK = struct.Struct(">BQB")

KEY_AT = _RECORD.size
"""Offset of the key in a record frame body; the octet before it is its length."""
REPLY_TO_AT = _REPLY_HEAD.size
"""Offset of the destination run in a reply frame body: u8 length, RID, u64 generation."""

_new_tuple = tuple.__new__
"""Makes a header without the Python-level constructor of a named tuple."""


class RecordHeader(NamedTuple):
    """Routing header of an application record (kind 2).

    Layout: `u8 kind=2, u8 flags, u8 hops, u8 object kind, u64 objectGeneration (0 = not known yet),
    u64 replyRoute (0 for send), u64 operation high, u64 operation low, u16 fenceAt, u8 n, n bytes of
    key (family byte + id), u8 m, m bytes of stable type (0 without instance intent), frozen record`.
    """

    flags: int
    hops: int
    object_kind: int
    object_generation: int
    reply_route: int
    operation_high: int
    operation_low: int
    fence_at: int
    """Offset of the route fence inside the frozen record, whether or not it stands there yet."""
    key: bytes
    stable_type: bytes
    record_at: int
    """Offset of the frozen record inside the frame body (kind byte included)."""


class ReplyHeader(NamedTuple):
    """Header of a reply (kind 3).

    Layout: `u8 kind=3, u8 flags, u64 replyRoute, u64 operation high, u64 operation low, u8 n, n bytes RID,
    u64 node generation (destination run), result bytes`.
    """

    flags: int
    reply_route: int
    operation_high: int
    operation_low: int
    rid: bytes
    generation: int
    body_at: int


def record_frame(
    flags: int,
    hops: int,
    object_kind: int,
    object_generation: int,
    reply_route: int,
    operation_high: int,
    operation_low: int,
    fence_at: int,
    key: bytes,
    stable_type: bytes,
    record: bytes,
) -> bytes:
    """Build a record frame body (without the length prefix)."""
    return b"".join(
        (
            _RECORD.pack(
                KIND_RECORD,
                flags,
                hops,
                object_kind,
                object_generation,
                reply_route,
                operation_high,
                operation_low,
                fence_at,
                len(key),
            ),
            key,
            bytes((len(stable_type),)),
            stable_type,
            record,
        )
    )


def parse_record_header(body: bytes | memoryview) -> RecordHeader:
    """Read the routing header of a record frame body.

    Raises:
        ProtocolError: the header is cut short or its hop count is above 8.
    """
    try:
        _, flags, hops, kind, generation, route, high, low, fence_at, length = _RECORD.unpack_from(body)
        at = KEY_AT + length
        end = at + 1 + body[at]
        key = body[KEY_AT:at]
        stable_type = body[at + 1 : end]
    except (struct.error, IndexError):
        raise ProtocolError("record frame: truncated routing header") from None
    if end > len(body) or length < 2 or hops > HOPS_MAX:
        raise ProtocolError("record frame: invalid routing header")
    if type(key) is not bytes:
        key, stable_type = bytes(key), bytes(stable_type)
    fields = (flags, hops, kind, generation, route, high, low, fence_at, key, stable_type, end)
    return _new_tuple(RecordHeader, fields)


def complete_record(body: bytes, header: RecordHeader, fence: bytes, object_generation: int) -> bytes:
    """Splice the route fence into a record its sender's worker left open, and mark it complete.

    Only the sender's supervisor knows routes; the sender's worker encodes everything else once.
    """
    at = header.record_at + header.fence_at
    return b"".join(
        (
            _FIRST.pack(KIND_RECORD, body[1] | FLAG_COMPLETE, body[2], body[3], object_generation),
            body[_FIRST.size : at],
            fence,
            body[at:],
        )
    )


def complete_open(body: bytes, fence: bytes, object_generation: int) -> tuple[bytes, int, int, int]:
    """`complete_record` for a new record, without a parsed header; also its reply route and operation id."""
    _, flags, hops, kind, _, route, high, low, fence_at, length = _RECORD.unpack_from(body)
    at = KEY_AT + length
    at += 1 + body[at] + fence_at
    first = _FIRST.pack(KIND_RECORD, flags | FLAG_COMPLETE, hops, kind, object_generation)
    return b"".join((first, body[_FIRST.size : at], fence, body[at:])), route, high, low


def set_hops(body: bytes, hops: int, set_flags: int = 0, clear_flags: int = 0) -> bytes:
    """A copy of a record frame body with another hop count and changed flags."""
    head = bytearray(body)
    head[1] = (head[1] | set_flags) & ~clear_flags & 0xFF
    head[2] = hops
    return bytes(head)


def reply_frame(
    flags: int,
    reply_route: int,
    operation_high: int,
    operation_low: int,
    rid: bytes,
    generation: int,
    result: bytes,
) -> bytes:
    """Build a reply frame body (without the length prefix)."""
    return b"".join(
        (
            _REPLY.pack(KIND_REPLY, flags, reply_route, operation_high, operation_low, len(rid)),
            rid,
            _GENERATION.pack(generation),
            result,
        )
    )


def reply_head(flags: int, reply_route: int, operation_high: int, operation_low: int) -> bytes:
    """First octets of a reply frame body; the destination run (u8 length, RID, u64 generation) and the result follow."""
    return _REPLY_HEAD.pack(KIND_REPLY, flags, reply_route, operation_high, operation_low)


def parse_reply_header(body: bytes | memoryview) -> ReplyHeader:
    """Read the header of a reply frame body.

    Raises:
        ProtocolError: the header is cut short.
    """
    try:
        _, flags, route, high, low, length = _REPLY.unpack_from(body)
        at = _REPLY.size + length
        (generation,) = _GENERATION.unpack_from(body, at)
    except struct.error:
        raise ProtocolError("reply frame: truncated header") from None
    fields = (flags, route, high, low, bytes(body[_REPLY.size : at]), generation, at + 8)
    return _new_tuple(ReplyHeader, fields)


def contract_head(parts: int, deadline_ms: int) -> bytes:
    """First octets of a contract frame body with this many parts; a length and octets of each part follow, the
    last one without length."""
    return _CONTRACT.pack(KIND_CONTRACT, deadline_ms, parts)


def contract_frame(parts: list[bytes], deadline_ms: int = 0) -> bytes:
    """Build a contract frame body: one `wire.md` record of one or more parts, with the relative deadline of B8.2."""
    pieces = [_CONTRACT.pack(KIND_CONTRACT, deadline_ms, len(parts))]
    for part in parts[:-1]:
        pieces.append(LENGTH.pack(len(part)))
        pieces.append(part)
    pieces.append(parts[-1])
    return b"".join(pieces)


_Octets = TypeVar("_Octets", bytes, memoryview)


def parse_contract(body: _Octets) -> tuple[int, list[_Octets]]:
    """Relative deadline in ms (0 = none) and the parts of a contract frame body, each of the body's own type.

    Raises:
        ProtocolError: no part, or a part is cut short.
    """
    try:
        _, deadline_ms, count = _CONTRACT.unpack_from(body)
        at = _CONTRACT.size
        parts: list[_Octets] = []
        for _ in range(count - 1):
            (length,) = LENGTH.unpack_from(body, at)
            at += 4 + length
            if at > len(body):
                raise ProtocolError("contract frame: truncated part")
            parts.append(body[at - length : at])
    except struct.error:
        raise ProtocolError("contract frame: truncated") from None
    if count < 1:
        raise ProtocolError("contract frame: no part")
    parts.append(body[at:])
    return deadline_ms, parts


def control_frame(encoded: bytes) -> bytes:
    """Build a control frame body from an encoded MessagePack array."""
    return b"\x04" + encoded


def bulk_frame(handoff: int, last: bool, chunk: bytes | memoryview) -> bytes:
    """Build a bulk frame body."""
    return b"".join((_BULK.pack(KIND_BULK, handoff, last), chunk))


def bulk_parts(handoff: int, last: bool, chunk: bytes | memoryview) -> tuple[bytes, bytes | memoryview]:
    """A bulk frame body in two parts, the chunk uncopied."""
    return _BULK.pack(KIND_BULK, handoff, last), chunk


def parse_bulk(body: memoryview) -> tuple[int, bool, memoryview]:
    """Handoff number, last flag and bytes of a bulk frame body.

    Raises:
        ProtocolError: the header is cut short.
    """
    try:
        _, handoff, last = _BULK.unpack_from(body)
    except struct.error:
        raise ProtocolError("bulk frame: truncated header") from None
    return handoff, bool(last), body[_BULK.size :]
