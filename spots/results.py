"""The result bytes of a reply: one application payload envelope, read without going field by field."""

from __future__ import annotations

import struct

from sojourn.errors import ProtocolError
from sojourn.wire.fast_record import encode_payload

__all__ = ["encode_result", "read_result"]

_LENGTH = struct.Struct(">I")
_CONTENT_TYPES_MAX = 256
_content_types: dict[bytes, str] = {}


def encode_result(handler_name: str, content_type: str, payload: bytes) -> bytes:
    """Result bytes of a reply; the packet name is the handler's name."""
    return encode_payload(handler_name, content_type, payload)


def read_result(result: memoryview) -> tuple[str, memoryview]:
    """Content type and payload of result bytes.

    Raises:
        ProtocolError: malformed.
    """
    try:
        at = 6 + result[5]
        end = at + 1 + result[at]
        raw = bytes(result[at + 1 : end])
        (length,) = _LENGTH.unpack_from(result, end)
        content_type = _content_types.get(raw)
        if content_type is None:
            content_type = raw.decode("utf-8")
            if len(_content_types) < _CONTENT_TYPES_MAX:
                _content_types[raw] = content_type
    except (IndexError, struct.error, UnicodeDecodeError):
        raise ProtocolError("the result of a reply is malformed") from None
    payload = result[end + 4 :]
    if result[0] != 1 or len(payload) != length:
        raise ProtocolError("the result of a reply is malformed")
    return content_type, payload
