"""Whether a record frame of a peer can be read to its end, before anything is kept of it.

Owns the comparison of a routing header with the frozen record behind it. A record that only fails later fails where
its link is not known any more: in a queue before a worker, in a creation, or in the move that carries it.
"""

from __future__ import annotations

from typing import Final

from sojourn import frames
from sojourn.errors import ProtocolError
from sojourn.frames import FLAG_COMPLETE, FLAG_REQUEST, RecordHeader
from sojourn.ids import NodeRun, ObjectKind, actor_key, is_key, spot_key
from sojourn.wire import fast_record
from sojourn.workers.objects import route_fence

__all__ = ["check_record"]

_KINDS: Final = frozenset(ObjectKind)
_ACTOR_RECORDS: Final = (9, 10)
_SOMEBODY: Final = NodeRun(b"?", 1)
"""In the fence of a record that has none yet: it is to make its object."""


def check_record(body: bytes, header: RecordHeader) -> None:
    """Refuse a record frame whose header names no object, or not what the record behind it says.

    Raises:
        ProtocolError: why it cannot be taken in; `WireError` where the record itself is malformed.
    """
    if header.object_kind not in _KINDS or not is_key(header.key):
        raise ProtocolError("record frame: it names no object")
    try:
        header.stable_type.decode()
    except UnicodeDecodeError:
        raise ProtocolError("record frame: its stable type is no text") from None
    if bool(header.flags & FLAG_REQUEST) != bool(header.reply_route):
        raise ProtocolError("record frame: a request has a reply route, and nothing else has one")
    _check_frozen(body, header)


def _check_frozen(body: bytes, header: RecordHeader) -> None:
    at = header.record_at
    if not header.flags & FLAG_COMPLETE:
        if header.fence_at > len(body) - at or at == len(body):
            raise ProtocolError("record frame: no record")
        kind = ObjectKind.ACTOR if body[at] in _ACTOR_RECORDS else ObjectKind.INSTANCE_SPOT
        fence = route_fence(header.key, kind, 1, _SOMEBODY, 1, 1)
        body = frames.complete_record(body, header, fence, 1)
    fields = fast_record.read_record(memoryview(body)[at:])
    told = header.reply_route, header.operation_high, header.operation_low, header.fence_at
    if told != (fields.reply_route, fields.operation_high, fields.operation_low, fields.fence_at):
        raise ProtocolError("record frame: the routing header is not that of its record")
    # Relayed with a unit, it would end the link between the two nodes of the move, not that of its sender.
    key = actor_key(fields.object_id) if fields.kind in _ACTOR_RECORDS else spot_key(fields.object_id)
    if key != header.key:
        raise ProtocolError("record frame: it is for another object than its header says")
