"""The one request a supervisor itself sends: may this Actor be made here (B2.2)?

Owns its record and the reading of its answer. The Entry Spot it goes to is user code in a worker.
"""

from __future__ import annotations

import secrets

import msgspec
from sojourn import frames
from sojourn.control import decode_error
from sojourn.errors import error_from_fields
from sojourn.frames import ADMISSION_PACKET
from sojourn.spots.results import read_result
from sojourn.wire import fast_record
from sojourn.workers.objects import LocalObject

__all__ = ["admission_frame", "read_admission"]


def admission_frame(
    source_prefix: bytes, entry: LocalObject, route: int, actor_id: str, actor_type: str
) -> bytes:
    """`on_create_actor(actor_id, actor_type)` as a request to the Entry Spot."""
    operation = (secrets.randbits(64) | 1, route)
    head = fast_record.encode_record_head(source_prefix, None, *operation, 6, route)
    arguments = msgspec.msgpack.encode([actor_id, actor_type])
    payload = fast_record.encode_payload(ADMISSION_PACKET, "application/x-sojourn+msgpack", arguments)
    return frames.record_frame(
        frames.FLAG_REQUEST | frames.FLAG_COMPLETE,
        0,
        entry.kind,
        entry.object_generation,
        route,
        *operation,
        len(head),
        entry.key,
        b"",
        head + entry.fence + payload,
    )


def read_admission(body: bytes) -> bool | None:
    """The answer of the Entry Spot, None where its callback returned nothing; raises the error it ended in."""
    header = frames.parse_reply_header(body)
    if header.flags & frames.FLAG_ERROR:
        error = decode_error(memoryview(body)[header.body_at :])
        raise error_from_fields(error.kind, error.fields)
    _, at = read_result(body, header.body_at)
    answer = msgspec.msgpack.decode(memoryview(body)[at:])
    return None if answer is None else bool(answer)
