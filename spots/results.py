"""The result bytes of a reply: one application payload envelope, read without going field by field."""

from __future__ import annotations

import struct

from sojourn.errors import ProtocolError

__all__ = ["read_result"]

_LENGTH = struct.Struct(">I")
_HEAD = struct.Struct(">BI")
_CONTENT_TYPES_MAX = 256
_content_types: dict[bytes, str] = {}


def read_result(body: bytes, start: int) -> tuple[str, int]:
    """Content type of the result bytes from `start` to the end of a reply, and where their payload begins.

    Raises:
        ProtocolError: malformed.
    """
    try:
        version, octets = _HEAD.unpack_from(body, start)
        at = start + 6 + body[start + 5]
        end = at + 1 + body[at]
        raw = body[at + 1 : end]
        (length,) = _LENGTH.unpack_from(body, end)
        content_type = _content_types.get(raw)
        if content_type is None:
            content_type = raw.decode("utf-8")
            if len(_content_types) < _CONTENT_TYPES_MAX:
                _content_types[raw] = content_type
    except (IndexError, struct.error, UnicodeDecodeError):
        raise ProtocolError("the result of a reply is malformed") from None
    if version != 1 or end + 4 + length != len(body) or start + 5 + octets != len(body):
        raise ProtocolError("the result of a reply is malformed")
    return content_type, end + 4
