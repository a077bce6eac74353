"""The quick path for the records applications send: spot and actor, send and request (kinds 5, 6, 9, 10).

Owns encoding and reading of these four kinds without going field by field. It gives the same bytes as
`record` and accepts the same bytes (a property test compares them); whenever something is not as it
should be, the general decoder is asked, and its error is raised.

A record is made in three pieces, since the sender's worker does not know the route:
head (kind to reply route) + route fence + payload envelope. The length of the head is the offset at
which the route fence belongs.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable
from typing import Final, NamedTuple, NoReturn, TypeAlias, TypeVar

from sojourn.wire.blocks import SpotRouteFence
from sojourn.wire.cursor import Buffer, Reader, Writer
from sojourn.wire.errors import WireError, Word
from sojourn.wire.payload import DEADLINE_KEY
from sojourn.wire.primitives import PAYLOAD_BYTES_MAX, TEXT8
from sojourn.wire.record import FROZEN_RECORD, SOURCE, NodeSource, RecordSource, SpotSource
from sojourn.wire.record_bodies import ActorBody, SpotBody
from sojourn.wire.structure import block

__all__ = [
    "Call",
    "FastRecord",
    "encode_actor_fence",
    "encode_payload",
    "encode_record_head",
    "encode_source_prefix",
    "encode_spot_fence",
    "fence_end",
    "payload_prefix",
    "read_call",
    "read_record",
    "reply_destination",
    "take_record",
]

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")

_SIGNED_MAX: Final = 2**63 - 1
_CACHE_ENTRIES_MAX: Final = 2048
"""Each cache below is emptied when it holds this many: senders and targets repeat, but not for ever."""


class FastRecord(NamedTuple):
    """The fields of a record of kind 5, 6, 9 or 10 that routing and running need."""

    kind: int
    source_tag: int
    """1 node, 2 spot, 3 actor, 4 bound session."""
    source_rid: bytes
    source_node_generation: int
    source_id: str | None
    """Id of the Actor (tags 3 and 4) or Spot (tag 2) that sent it; None for a node."""
    deadline_ms: int | None
    """Milliseconds since the Unix epoch; None = none."""
    operation_high: int
    operation_low: int
    reply_route: int
    """0 for a send."""
    fence_at: int
    """Offset of the route fence in the record."""
    object_id: str
    object_generation: int
    packet_name: str
    content_type: str
    payload: memoryview
    """A slice of the record, not a copy."""


_HEAD_REQUEST: Final = struct.Struct(">QQIHQ")
_HEAD_SEND: Final = struct.Struct(">QQIH")
_HEAD_BYTES_MAX: Final = 4096
"""More than everything before the payload can have."""
_ZERO_DIGIT: Final = ord("0")
_PAYLOAD_HEAD: Final = struct.Struct(">BI")
_LENGTH: Final = struct.Struct(">I")
_GENERATION: Final = struct.Struct(">Q")
_ROUTE: Final = struct.Struct(">QQQ")
_U16: Final = struct.Struct(">H")

_OPERATION_OF_KIND: Final = {5: 0, 6: 3, 9: 0, 10: 4}
_BYTE: Final = tuple(bytes((value,)) for value in range(256))

_DEADLINE_KEY_RAW: Final = DEADLINE_KEY.encode()
_METADATA_HEAD: Final = b"\x01\x01\x01" + bytes((len(_DEADLINE_KEY_RAW),)) + _DEADLINE_KEY_RAW
"""hasMetadata, version, one entry, its key."""
_METADATA_HEAD_BYTES: Final = len(_METADATA_HEAD)
_METADATA_HEADS: Final = {digits: _METADATA_HEAD + _U16.pack(digits) for digits in range(1, 20)}

_Source = tuple[int, bytes, int, str | None]
_new_tuple: Final = tuple.__new__
"""Makes a FastRecord without the Python-level constructor of a named tuple."""

_sources: dict[bytes, _Source] = {}
_targets: dict[bytes, tuple[str, int]] = {}
_names: dict[bytes, tuple[str, str]] = {}
_prefixes: dict[tuple[str, str], bytes] = {}


def encode_source_prefix(source: RecordSource) -> bytes:
    """The encoded source of a sender, to be made once and kept.

    Raises:
        WireError: a value out of range.
    """
    writer = Writer()
    SOURCE.write(writer, source)
    return writer.joined()


def encode_record_head(
    source_prefix: bytes,
    deadline_ms: int | None,
    operation_high: int,
    operation_low: int,
    record_kind: int,
    reply_route: int = 0,
) -> bytes:
    """Everything of a record before its route fence; its length is the fence's offset.

    Args:
        source_prefix: what `encode_source_prefix` gave.
        deadline_ms: milliseconds since the Unix epoch, 1..2^63-1, or None.
        operation_high, operation_low: the operation id, not both zero (sends have one too).
        record_kind: 5, 6, 9 or 10.
        reply_route: 1..2^63-1 for the requests (6 and 10), 0 for the sends.

    Raises:
        WireError: `invalid-field`: a value out of range.
    """
    if deadline_ms is None:
        metadata = b"\x00"
    else:
        digits = b"%d" % deadline_ms
        if not 0 < deadline_ms <= _SIGNED_MAX:
            _refuse("metadata", f"deadline {deadline_ms} is not in 1..2^63-1")
        metadata = _METADATA_HEADS[len(digits)] + digits
    try:
        operation = _OPERATION_OF_KIND[record_kind]
        if operation:
            if not 0 < reply_route <= _SIGNED_MAX:
                _refuse("replyRoute.replyRouteId", f"{reply_route} is not in 1..2^63-1")
            tail = _HEAD_REQUEST.pack(operation_high, operation_low, operation, 8, reply_route)
        else:
            if reply_route:
                _refuse("replyRoute", f"kind {record_kind} has no reply route")
            tail = _HEAD_SEND.pack(operation_high, operation_low, 0, 0)
    except KeyError:
        _refuse("recordKind", f"{record_kind} is not 5, 6, 9 or 10")
    except struct.error:
        _refuse("operationId", "a half is not in 0..2^64-1")
    if not (operation_high or operation_low):
        _refuse("operationId", "both halves are zero")
    return b"".join((_BYTE[record_kind], source_prefix, metadata, tail))


def payload_prefix(packet_name: str, content_type: str) -> bytes:
    """The two names of a payload envelope, to be made once and kept.

    Raises:
        WireError: `invalid-field`: a name is out of range.
    """
    names = _prefixes.get((packet_name, content_type))
    if names is None:
        names = _remember(
            _prefixes,
            (packet_name, content_type),
            _encode_text("packetName", packet_name) + _encode_text("contentType", content_type),
        )
    return names


def encode_payload(packet_name: str, content_type: str, payload: Buffer) -> bytes:
    """The application payload envelope.

    Raises:
        WireError: `invalid-field`: a name or the payload is out of range.
    """
    names = payload_prefix(packet_name, content_type)
    length = len(payload)
    if length > PAYLOAD_BYTES_MAX:
        _refuse("payload", f"{length} bytes; 0..{PAYLOAD_BYTES_MAX} are allowed")
    return b"".join((_PAYLOAD_HEAD.pack(1, len(names) + 4 + length), names, _LENGTH.pack(length), payload))


def encode_actor_fence(
    actor_id: str,
    object_generation: int,
    target_rid: bytes,
    target_node_generation: int,
    owner_generation: int,
    lease_generation: int,
) -> bytes:
    """An actor route fence. All generations are 1..2^63-1.

    Raises:
        WireError: `invalid-field`: a value out of range.
    """
    generations = (object_generation, target_node_generation, owner_generation, lease_generation)
    if min(generations) < 1 or max(generations) > _SIGNED_MAX:
        _refuse("routeFence", f"a generation of {generations} is not in 1..2^63-1")
    if not 1 <= len(target_rid) <= 255:
        _refuse("routeFence.targetNodeRid", f"{len(target_rid)} bytes; 1..255 are allowed")
    raw_id = actor_id.encode("utf-8", "surrogatepass")
    if not 1 <= len(raw_id) <= 255 or "\0" in actor_id or not actor_id.isascii():
        _encode_text("routeFence", actor_id)
    return b"".join(
        (
            _BYTE[len(raw_id)],
            raw_id,
            _GENERATION.pack(object_generation),
            _BYTE[len(target_rid)],
            target_rid,
            _ROUTE.pack(target_node_generation, owner_generation, lease_generation),
        )
    )


encode_spot_fence = encode_actor_fence
"""A spot route fence: the same layout with a spot id."""


def read_record(record: bytes | memoryview) -> FastRecord:
    """Read a whole record of kind 5, 6, 9 or 10.

    Raises:
        WireError: malformed, another kind, or a deadline that is no number.
    """
    try:
        fields = _read(record)
    except (struct.error, IndexError, KeyError, WireError):
        fields = None
    return _read_generally(record) if fields is None else fields


Call: TypeAlias = tuple[int | None, str, str, int]
"""What running the handler of a record needs: deadline in ms or None, packet name, content type, and the offset of
the payload, which ends the octets that were read."""


def read_call(body: bytes, at: int, fenced: int) -> Call | None:
    """Read a record of kind 5, 6, 9 or 10 that begins at `at` and ends with `body`; `fenced` is 0 where its route
    fence was left out. None for one that the general decoder must judge: `read_record` of the complete record."""
    try:
        operation = _OPERATION_OF_KIND[body[at]]
        here = at + 4 + (body[at + 2] << 8 | body[at + 3])
        raw = body[at + 1 : here]
        if raw not in _sources:
            _remember(_sources, raw, _read_source(raw))
        deadline: int | None = None
        if body[here] == 0:
            here += 1
        elif body.startswith(_METADATA_HEAD, here):
            here += _METADATA_HEAD_BYTES + 2
            length = body[here - 1]
            raw = body[here : here + length]
            if (
                length > 18
                or body[here - 2]
                or not raw.isdigit()
                or raw[0] == _ZERO_DIGIT
                or len(raw) != length
            ):
                return None
            deadline = int(raw)
            here += length
        else:
            return None
        if operation:
            high, low, found, length, route = _HEAD_REQUEST.unpack_from(body, here)
            here += 30
            if found != operation or length != 8 or not 0 < route <= _SIGNED_MAX:
                return None
        else:
            high, low, found, length = _HEAD_SEND.unpack_from(body, here)
            here += 22
            if found or length:
                return None
        if fenced:
            end = fence_end(body, here)
            raw = body[here:end]
            if raw not in _targets:
                _remember(_targets, raw, _read_target(raw))
            here = end
        version, length = _PAYLOAD_HEAD.unpack_from(body, here)
        here += 5
        end = here + 1 + body[here]
        end += 1 + body[end]
        raw = body[here:end]
        names = _names.get(raw) or _remember(_names, raw, _read_names(raw))
        (size,) = _LENGTH.unpack_from(body, end)
        end += 4
        whole = len(body)
        if version != 1 or here + length != whole or end + size != whole or not (high or low):
            return None
        return deadline, names[0], names[1], end
    except (struct.error, IndexError, KeyError, WireError):
        return None


def reply_destination(body: bytes, at: int) -> bytes:
    """The run that sent the record beginning at `at`, as replies name it: u8 length, RID, u64 generation."""
    return body[at + 4 : at + 13 + body[at + 4]]


def take_record(data: memoryview, start: int) -> bytes | None:
    """The record of kind 5, 6, 9 or 10 that begins at `start`, checked; None where the general decoder must judge.

    An envelope may hold a hundred thousand of them, without a length in front.
    """
    try:
        record = bytes(data[start : _record_end(data, start)])
        return None if _read(record) is None else record
    except (struct.error, IndexError, KeyError, WireError):
        return None


def fence_end(data: bytes | memoryview, start: int) -> int:
    """Where the actor or spot route fence ends that begins at `start`."""
    at = start + 9 + data[start]
    return at + 1 + data[at] + _ROUTE.size


def _record_end(data: memoryview, start: int) -> int:
    operation = _OPERATION_OF_KIND[data[start]]
    at = start + 4 + (data[start + 2] << 8 | data[start + 3])
    if data[at]:
        entries = data[at + 2]
        at += 3
        for _ in range(entries):
            at += 1 + data[at]
            at += 2 + (data[at] << 8 | data[at + 1])
    else:
        at += 1
    at += _HEAD_REQUEST.size if operation else _HEAD_SEND.size
    at = fence_end(data, at)
    _, length = _PAYLOAD_HEAD.unpack_from(data, at)
    return at + _PAYLOAD_HEAD.size + int(length)


def _read(record: bytes | memoryview) -> FastRecord | None:
    """The fields, or None (or an exception of the standard library) when anything is not as it should be."""
    head = record if type(record) is bytes else bytes(record[:_HEAD_BYTES_MAX])
    kind = head[0]
    at = 4 + (head[2] << 8 | head[3])
    raw = head[1:at]
    source = _sources.get(raw) or _remember(_sources, raw, _read_source(raw))
    deadline: int | None = None
    if head[at] == 0:
        at += 1
    elif head.startswith(_METADATA_HEAD, at):
        at += _METADATA_HEAD_BYTES + 2
        length = head[at - 1]
        raw = head[at : at + length]
        # 19 digits may be too many for a generation of 63 bits: the general decoder looks.
        if length > 18 or head[at - 2] or not raw.isdigit() or raw[0] == _ZERO_DIGIT or len(raw) != length:
            return None
        deadline = int(raw)
        at += length
    else:
        return None
    operation = _OPERATION_OF_KIND[kind]
    if operation:
        high, low, found, length, route = _HEAD_REQUEST.unpack_from(head, at)
        at += 30
        if found != operation or length != 8 or not 0 < route <= _SIGNED_MAX:
            return None
    else:
        high, low, found, length = _HEAD_SEND.unpack_from(head, at)
        at += 22
        route = 0
        if found or length:
            return None
    fence_at = at
    at += 9 + head[at]
    at += 25 + head[at]
    raw = head[fence_at:at]
    target = _targets.get(raw) or _remember(_targets, raw, _read_target(raw))
    version, length = _PAYLOAD_HEAD.unpack_from(head, at)
    at += 5
    end = at + 1 + head[at]
    end += 1 + head[end]
    raw = head[at:end]
    names = _names.get(raw) or _remember(_names, raw, _read_names(raw))
    (size,) = _LENGTH.unpack_from(head, end)
    end += 4
    whole = len(record)
    if version != 1 or at + length != whole or end + size != whole or not (high or low):
        return None
    fields = (kind, *source, deadline, high, low, route, fence_at, *target, *names, memoryview(record)[end:])
    return _new_tuple(FastRecord, fields)


def _read_source(raw: bytes) -> _Source:
    reader = Reader(raw)
    source = SOURCE.read(reader)
    reader.finish()
    return _source_fields(source)


def _source_fields(source: RecordSource) -> _Source:
    if isinstance(source, NodeSource):
        sender = None
    elif isinstance(source, SpotSource):
        sender = source.spot_id
    else:
        sender = source.actor_ref.actor_id
    return SOURCE.classes[type(source)].tag, source.node_rid, source.node_generation, sender


def _read_target(raw: bytes) -> tuple[str, int]:
    # Both route fences have one layout: the spot's stands for both.
    reader = Reader(raw)
    fence = block(SpotRouteFence).read(reader)
    reader.finish()
    return fence.spot_ref.spot_id, fence.spot_ref.object_generation


def _read_names(raw: bytes) -> tuple[str, str]:
    reader = Reader(raw)
    names = TEXT8.read(reader), TEXT8.read(reader)
    reader.finish()
    return names


def _encode_text(path: str, text: str) -> bytes:
    writer = Writer(path=[path])
    TEXT8.write(writer, text)
    return writer.joined()


def _read_generally(record: Buffer) -> FastRecord:
    """The same by the general decoder, which also knows what is wrong."""
    trace: dict[str, int] = {}
    reader = Reader(record, trace)
    found = FROZEN_RECORD.read(reader)
    reader.finish()
    body = found.body
    if isinstance(body, ActorBody):
        object_id, generation = (
            body.actor_route_fence.actor_ref.actor_id,
            body.actor_route_fence.actor_ref.object_generation,
        )
    elif isinstance(body, SpotBody):
        object_id, generation = (
            body.spot_route_fence.spot_ref.spot_id,
            body.spot_route_fence.spot_ref.object_generation,
        )
    else:
        raise WireError(Word.INVALID_FIELD, 0, "recordKind", f"{found.record_kind} is not 5, 6, 9 or 10")
    return FastRecord(
        int(found.record_kind),
        *_source_fields(found.source),
        found.deadline_ms,
        found.operation_id.high,
        found.operation_id.low,
        found.reply_route_id or 0,
        trace["body"],
        object_id,
        generation,
        body.payload.packet_name,
        body.payload.content_type,
        memoryview(record)[len(record) - len(body.payload.payload) :],
    )


def _remember(cache: dict[_K, _V], key: _K, value: _V) -> _V:
    if len(cache) >= _CACHE_ENTRIES_MAX:
        cache.clear()
    cache[key] = value
    return value


def _refuse(path: str, detail: str) -> NoReturn:
    raise WireError(Word.INVALID_FIELD, 0, path, detail)
