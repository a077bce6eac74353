"""How malformed bytes are reported: one word, the byte offset and the field path.

Owns the words of the wire contract and the error that carries them. Knows no layout.
"""

from __future__ import annotations

import enum

from sojourn.errors import ProtocolError

__all__ = ["WireError", "Word"]


class Word(enum.StrEnum):
    """What is wrong with an input; the values are part of the contract."""

    INVALID_MAGIC = "invalid-magic"
    UNSUPPORTED_MAJOR = "unsupported-major"
    UNKNOWN_COMMAND = "unknown-command"
    FORBIDDEN_FLAG = "forbidden-flag"
    TRUNCATED_FIELD = "truncated-field"
    INVALID_FIELD = "invalid-field"
    TRAILING_BYTE = "trailing-byte"
    INVALID_BODY_LENGTH = "invalid-body-length"
    UNSORTED_VECTOR = "unsorted-vector"
    DUPLICATE_ITEM = "duplicate-item"
    UNKNOWN_ERROR_CODE = "unknown-error-code"
    WRONG_ROLE = "wrong-role"


class WireError(ProtocolError):
    """Bytes, or a value to be encoded, break the wire contract. Raised before any application code runs.

    Attributes:
        word: what is wrong.
        offset: byte offset, from the start of the part or stream, at which it was noticed.
        path: the field, for example ``savedWork[3].record.source.ownerId``; empty for the whole input.
        detail: the same for people.
    """

    def __init__(self, word: Word, offset: int, path: str, detail: str) -> None:
        super().__init__(f"{word} at offset {offset}, field {path or '(whole input)'}: {detail}")
        self.word = word
        self.offset = offset
        self.path = path
        self.detail = detail
