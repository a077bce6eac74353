"""Moulds: what all messages from one source to one handler have in common, as octets made once.

Owns the making of a record frame out of a mould and the few fields that differ. The same frame can be made field
by field from `sojourn.frames` and `sojourn.wire.fast_record`; a test compares the two. It must not know where
messages go.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from sojourn.frames import FLAG_INTENT, FLAG_REQUEST, KIND_RECORD, record_frame
from sojourn.ids import ObjectKey, ObjectKind
from sojourn.spots.origin import record_kind
from sojourn.wire.fast_record import encode_payload, encode_record_head, payload_prefix

if TYPE_CHECKING:
    from sojourn.spots.app import ObjectType

__all__ = ["Mould"]

_FRAME: Final = struct.Struct(">BBBBQQQQHB")
_REQUEST: Final = struct.Struct(">QQIHQBI")
_SEND: Final = struct.Struct(">QQIHBI")
_LENGTH: Final = struct.Struct(">I")
_USUAL_DIGITS: Final = 13
"""Digits of a deadline from the year 2001 to the year 2286."""


class Mould:
    """Makes the open record frames (no route fence yet) from one source block to one handler of one type.

    Args:
        record: the type addressed.
        handler_name, content_type: names in the payload envelope.
        source: source block of the sender.
        operation_high: high half of its operation ids.

    Attributes:
        record_octets: octets of a record without its payload.

    Raises:
        WireError: a name is out of range.
    """

    __slots__ = (
        "_content_type",
        "_fence_at",
        "_flags",
        "_handler_name",
        "_high",
        "_kind",
        "_middle",
        "_names",
        "_names_octets",
        "_operation",
        "_record",
        "_send_fence_at",
        "_send_middle",
        "_source",
        "record_octets",
    )

    def __init__(
        self, record: ObjectType, handler_name: str, content_type: str, source: bytes, operation_high: int
    ) -> None:
        self._record = record
        self._handler_name, self._content_type = handler_name, content_type
        self._kind, self._high, self._source = record.kind, operation_high, source
        asking = encode_record_head(
            source, 10 ** (_USUAL_DIGITS - 1), operation_high, 1, record_kind(self._kind, True), 1
        )
        telling = encode_record_head(source, None, operation_high, 1, record_kind(self._kind, False), 0)
        self._names = payload_prefix(handler_name, content_type)
        self._names_octets = len(self._names) + _LENGTH.size
        self._flags = FLAG_INTENT if self._kind is ObjectKind.INSTANCE_SPOT else 0
        self._operation = 4 if self._kind is ObjectKind.ACTOR else 3
        stable_type = self._stable_type
        mark = bytes((len(stable_type),)) + stable_type
        tail = 30 + _USUAL_DIGITS
        self._middle = mark + asking[: len(asking) - tail]
        self._send_middle = mark + telling[: len(telling) - 22]
        self._fence_at, self._send_fence_at = len(asking), len(telling)
        self.record_octets = len(asking) + 5 + self._names_octets

    @property
    def _stable_type(self) -> bytes:
        return self._record.stable_type_bytes if self._kind is ObjectKind.INSTANCE_SPOT else b""

    def request(
        self, key: ObjectKey, route: int, operation_low: int, deadline_ms: int, payload: bytes
    ) -> bytes:
        """The frame of a request; `route` and `operation_low` are not 0."""
        digits = b"%d" % deadline_ms
        if len(digits) != _USUAL_DIGITS:
            return self._in_full(key, route, operation_low, deadline_ms, payload)
        kind, high, length = self._kind, self._high, len(payload)
        return b"".join(
            (
                _FRAME.pack(
                    KIND_RECORD,
                    self._flags | FLAG_REQUEST,
                    0,
                    kind,
                    0,
                    route,
                    high,
                    operation_low,
                    self._fence_at,
                    len(key),
                ),
                key,
                self._middle,
                digits,
                _REQUEST.pack(high, operation_low, self._operation, 8, route, 1, self._names_octets + length),
                self._names,
                _LENGTH.pack(length),
                payload,
            )
        )

    def send(self, key: ObjectKey, operation_low: int, payload: bytes) -> bytes:
        """The frame of a message without an answer."""
        kind, high, length = self._kind, self._high, len(payload)
        return b"".join(
            (
                _FRAME.pack(
                    KIND_RECORD,
                    self._flags,
                    0,
                    kind,
                    0,
                    0,
                    high,
                    operation_low,
                    self._send_fence_at,
                    len(key),
                ),
                key,
                self._send_middle,
                _SEND.pack(high, operation_low, 0, 0, 1, self._names_octets + length),
                self._names,
                _LENGTH.pack(length),
                payload,
            )
        )

    def _in_full(
        self, key: ObjectKey, route: int, operation_low: int, deadline_ms: int, payload: bytes
    ) -> bytes:
        head = encode_record_head(
            self._source, deadline_ms, self._high, operation_low, record_kind(self._kind, True), route
        )
        tail = encode_payload(self._handler_name, self._content_type, payload)
        return record_frame(
            self._flags | FLAG_REQUEST,
            0,
            self._kind,
            0,
            route,
            self._high,
            operation_low,
            len(head),
            key,
            self._stable_type,
            head + tail,
        )
