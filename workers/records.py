"""Application records as a supervisor sees them: where one came from, and the few it makes itself.

Owns the reading of a record's source (for replies and notices) and the making of frames from frozen
records that arrive as relay. Knows nothing about routes.
"""

from __future__ import annotations

import struct

from sojourn import frames
from sojourn.errors import InvalidOperation
from sojourn.frames import RecordHeader
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, actor_key, spot_key
from sojourn.wire import fast_record

__all__ = [
    "error_reply",
    "frame_of_record",
    "frozen_record",
    "is_follow",
    "key_of_record",
    "marker_frame",
    "marker_number",
    "record_at",
    "record_origin",
    "renewed_frame",
    "too_large",
    "unbind_frame",
    "unbind_payload",
]

_new_tuple = tuple.__new__
_GENERATION = struct.Struct(">Q")
_MARKER_BODY = struct.Struct(">Q")
_MARKER_CONTENT = "application/octet-stream"
_UNBIND_CONTENT = "application/x-sojourn+msgpack"
_ENVELOPE_HEAD_OCTETS = 5


def record_origin(body: bytes, start: int) -> NodeRun:
    """The node run whose object or client sent the record (`wire.md` 4.3: every source starts with it)."""
    at = start + 5
    end = at + body[at - 1]
    return _new_tuple(NodeRun, (body[at:end], _GENERATION.unpack_from(body, end)[0]))


def error_reply(to: NodeRun, route: int, high: int, low: int, encoded_error: bytes) -> bytes:
    """The reply that ends a request of `to` with a typed error."""
    return frames.reply_frame(frames.FLAG_ERROR, route, high, low, to.rid, to.generation, encoded_error)


def too_large(what: str, octets: int, reader: NodeRun, limit: int) -> InvalidOperation:
    """The error of a frame that another member would not read."""
    return InvalidOperation(
        f"{what} has {octets} bytes, more than {reader} reads ({limit}): give all members the same "
        "max_frame_bytes"
    )


def record_at(body: bytes) -> int:
    """Offset of the frozen record inside a record frame body."""
    at = frames.KEY_AT + body[frames.KEY_AT - 1]
    return at + 1 + body[at]


def frozen_record(body: bytes) -> bytes:
    """The frozen record inside a record frame body."""
    return body[record_at(body) :]


def frame_of_record(record: bytes, kind: int, key: bytes, flags: int = 0, hops: int = 0) -> bytes:
    """Put the routing header back before a frozen record that came without one (command 31, saved work)."""
    fields = fast_record.read_record(record)
    flags |= frames.FLAG_COMPLETE
    if fields.reply_route:
        flags |= frames.FLAG_REQUEST
    if fields.packet_name == frames.MARKER_PACKET:
        flags |= frames.FLAG_MARKER
    elif fields.packet_name in (frames.LOOP_PACKET, frames.UNBIND_PACKET):
        flags |= frames.FLAG_LOOP
    return frames.record_frame(
        flags,
        hops,
        kind,
        fields.object_generation,
        fields.reply_route,
        fields.operation_high,
        fields.operation_low,
        fields.fence_at,
        key,
        b"",
        record,
    )


def key_of_record(record: bytes) -> tuple[int, ObjectKey]:
    """Kind and key of the object that a frozen record is for, as its route fence names it."""
    fields = fast_record.read_record(record)
    if fields.kind in (9, 10):
        return ObjectKind.ACTOR, actor_key(fields.object_id)
    return ObjectKind.USER_SPOT, spot_key(fields.object_id)


def renewed_frame(body: bytes, header: RecordHeader, fence: bytes, object_generation: int) -> bytes:
    """A complete record for the present incarnation of its object instead of an earlier one."""
    at = header.record_at + header.fence_at
    rest = body[fast_record.fence_end(body, at) :]
    return frames.complete_record(body[:at] + rest, header, fence, object_generation)


def marker_frame(
    source_prefix: bytes, number: int, key: bytes, kind: int, operation: tuple[int, int]
) -> bytes:
    """A path marker (B9.4) for an object: an ordinary one-way record with the reserved packet name."""
    record_kind = 9 if kind == ObjectKind.ACTOR else 5
    head = fast_record.encode_record_head(source_prefix, None, operation[0], operation[1], record_kind, 0)
    payload = fast_record.encode_payload(frames.MARKER_PACKET, _MARKER_CONTENT, _MARKER_BODY.pack(number))
    return frames.record_frame(
        frames.FLAG_MARKER, 0, kind, 0, 0, operation[0], operation[1], len(head), key, b"", head + payload
    )


def unbind_frame(source_prefix: bytes, key: ObjectKey, fields: bytes, operation: tuple[int, int]) -> bytes:
    """An unbind on its way to an Actor's owner (B11.1): an ordinary one-way record with the reserved packet name.
    `fields`: the binding as a MessagePack array of its six session fields."""
    head = fast_record.encode_record_head(source_prefix, None, *operation, 9, 0)
    payload = fast_record.encode_payload(frames.UNBIND_PACKET, _UNBIND_CONTENT, fields)
    flags, kind = frames.FLAG_LOOP, ObjectKind.ACTOR
    return frames.record_frame(flags, 0, kind, 0, 0, *operation, len(head), key, b"", head + payload)


def unbind_payload(body: bytes, header: RecordHeader) -> bytes | None:
    """The encoded binding of an unbind, whether its route fence stands in it already or not; None: it is another
    record of the framework's own."""
    at = header.record_at + header.fence_at
    if body[1] & frames.FLAG_COMPLETE:
        at = fast_record.fence_end(body, at)
    names = fast_record.payload_prefix(frames.UNBIND_PACKET, _UNBIND_CONTENT)
    at += _ENVELOPE_HEAD_OCTETS
    return body[at + len(names) + 4 :] if body.startswith(names, at) else None


def marker_number(body: bytes) -> int:
    """The number inside a marker frame; it is the last eight bytes of the record."""
    return int(_MARKER_BODY.unpack_from(body, len(body) - _MARKER_BODY.size)[0])


def is_follow(body: bytes) -> bool:
    """Whether a record frame is a Message Follow frame."""
    return bool(body[1] & frames.FLAG_FOLLOW)
