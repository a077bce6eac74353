"""The primitive encodings: fixed-width numbers, booleans, enumerations, texts, byte strings.

Owns one codec object per primitive, each of which reads, writes and converts to and from JSON.
Everything is big-endian and fixed width. Knows no structure made of several fields.
"""

from __future__ import annotations

import enum
import re
import struct
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from sojourn.wire.cursor import Buffer, Reader, Writer, path_text
from sojourn.wire.errors import WireError, Word

__all__ = [
    "BOOL8",
    "CHUNK_BLOB_BYTES_MAX",
    "I64",
    "LOGICAL_BYTES_MAX",
    "LOGICAL_LENGTH",
    "NZ64",
    "ORDINAL",
    "PAYLOAD_BYTES_MAX",
    "RID",
    "TEXT8",
    "TEXT16",
    "U8",
    "U16",
    "U32",
    "U64",
    "Blob",
    "Boolean",
    "Codec",
    "Enumeration",
    "FixedBlob",
    "Number",
    "Rid",
    "Text",
    "fail_json",
]

T = TypeVar("T")
E = TypeVar("E", bound=enum.IntEnum)

SIGNED_MAX = 2**63 - 1
LOGICAL_BYTES_MAX = 256 * 2**30
"""Longest logical stream: 256 GiB."""
CHUNK_BLOB_BYTES_MAX = 64 * 2**20
"""Longest chunk of command 52: 64 MiB."""
PAYLOAD_BYTES_MAX = 4_294_966_774
"""Longest application payload: it leaves room for both names in a u32 envelope length."""

_DECIMAL = re.compile(r"0|-?[1-9][0-9]*")
_PACKERS = {1: struct.Struct(">B"), 2: struct.Struct(">H"), 4: struct.Struct(">I"), 8: struct.Struct(">Q")}


def fail_json(path: list[str], detail: str) -> WireError:
    """The error for a JSON value that cannot stand for a field."""
    return WireError(Word.INVALID_FIELD, 0, path_text(path), detail)


class Codec(ABC, Generic[T]):
    """How one kind of field is read, written and shown."""

    minimum: int
    """Bytes of the shortest value; bounds the items a vector can hold."""

    @abstractmethod
    def read(self, reader: Reader) -> T:
        """Take one value, or fail."""

    @abstractmethod
    def write(self, writer: Writer, value: T) -> None:
        """Append one value, or fail when the contract has no encoding for it."""

    @abstractmethod
    def to_json(self, value: T) -> Any:
        """The value in JSON."""

    @abstractmethod
    def from_json(self, value: Any, path: list[str]) -> T:
        """The value that JSON stands for; ranges are left to `write`."""


class Number(Codec[int]):
    """A big-endian integer of fixed width within a range. 64-bit numbers are decimal strings in JSON."""

    def __init__(self, width: int, low: int = 0, high: int | None = None) -> None:
        self.minimum = width
        self.low = low
        self.high = 2 ** (8 * width) - 1 if high is None else high
        self.packer = _PACKERS[width]

    def read(self, reader: Reader) -> int:
        start = reader.advance(self.minimum)
        value: int = self.packer.unpack_from(reader.data, start)[0]
        if not self.low <= value <= self.high:
            reader.fail(Word.INVALID_FIELD, self._range(value), offset=start)
        return value

    def write(self, writer: Writer, value: int) -> None:
        if not self.low <= value <= self.high:
            writer.fail(Word.INVALID_FIELD, self._range(value))
        writer.put(self.packer.pack(value))

    def to_json(self, value: int) -> int | str:
        return str(value) if self.minimum == 8 else value

    def from_json(self, value: Any, path: list[str]) -> int:
        if self.minimum < 8:
            if type(value) is int:
                return value
            raise fail_json(path, "a number is needed")
        if isinstance(value, str) and len(value) <= 20 and _DECIMAL.fullmatch(value):
            return int(value)
        raise fail_json(path, "a 64-bit number is a decimal string")

    def _range(self, value: int) -> str:
        return f"{value} is not in {self.low}..{self.high}"


class Boolean(Codec[bool]):
    """One byte, 0 or 1 only."""

    minimum = 1

    def read(self, reader: Reader) -> bool:
        start = reader.advance(1)
        value = reader.data[start]
        if value > 1:
            reader.fail(Word.INVALID_FIELD, f"{value} is neither 0 nor 1", offset=start)
        return value == 1

    def write(self, writer: Writer, value: bool) -> None:
        writer.put(b"\x01" if value else b"\x00")

    def to_json(self, value: bool) -> bool:
        return value

    def from_json(self, value: Any, path: list[str]) -> bool:
        if isinstance(value, bool):
            return value
        raise fail_json(path, "true or false is needed")


class Enumeration(Codec[E]):
    """A number that must be a member of an enumeration; `unknown` is the word for one that is not."""

    def __init__(
        self,
        members: type[E],
        width: int = 1,
        *,
        unknown: Word = Word.INVALID_FIELD,
        allowed: frozenset[E] | None = None,
        forbidden: Word = Word.INVALID_FIELD,
    ) -> None:
        self.minimum = width
        self.number = Number(width)
        self.members = {int(member): member for member in members}
        self.name = members.__name__
        self.unknown = unknown
        self.allowed = allowed
        """The members this field takes; None = all."""
        self.forbidden = forbidden
        """The word for a member this field does not take."""

    def read(self, reader: Reader) -> E:
        start = reader.offset
        return self._member(reader, self.number.read(reader), start)

    def write(self, writer: Writer, value: E) -> None:
        self.number.write(writer, self._member(writer, value, writer.offset))

    def _member(self, cursor: Reader | Writer, value: int, start: int) -> E:
        member = self.members.get(value)
        if member is None:
            cursor.fail(self.unknown, f"{value} is no {self.name}", offset=start)
        if self.allowed is not None and member not in self.allowed:
            cursor.fail(self.forbidden, f"{self.name} {value} is not accepted here", offset=start)
        return member

    def to_json(self, value: E) -> int:
        return int(value)

    def from_json(self, value: Any, path: list[str]) -> E:
        number = self.number.from_json(value, path)
        member = self.members.get(number)
        if member is None:
            raise WireError(self.unknown, 0, path_text(path), f"{number} is no {self.name}")
        return member


class Text(Codec[str]):
    """Strict UTF-8 behind its length in bytes, without NUL; `low` 0 makes the empty text legal."""

    def __init__(self, prefix: int, high: int, low: int = 1) -> None:
        self.length = Number(prefix)
        self.minimum = prefix + low
        self.low = low
        self.high = high

    def read(self, reader: Reader) -> str:
        start = reader.offset
        length = self.length.read(reader)
        if not self.low <= length <= self.high:
            reader.fail(Word.INVALID_FIELD, self._range(length), offset=start)
        at = reader.advance(length)
        try:
            value = str(reader.data[at : at + length], "utf-8")
        except UnicodeDecodeError:
            reader.fail(Word.INVALID_FIELD, "not UTF-8", offset=at)
        if "\0" in value:
            reader.fail(Word.INVALID_FIELD, "a NUL character", offset=at)
        return value

    def write(self, writer: Writer, value: str) -> None:
        try:
            raw = value.encode("utf-8")
        except UnicodeEncodeError:
            writer.fail(Word.INVALID_FIELD, "a lone surrogate has no UTF-8 form")
        if not self.low <= len(raw) <= self.high:
            writer.fail(Word.INVALID_FIELD, self._range(len(raw)))
        if b"\0" in raw:
            writer.fail(Word.INVALID_FIELD, "a NUL character")
        self.length.write(writer, len(raw))
        writer.put(raw)

    def to_json(self, value: str) -> str:
        return value

    def from_json(self, value: Any, path: list[str]) -> str:
        if isinstance(value, str):
            return value
        raise fail_json(path, "a text is needed")

    def _range(self, length: int) -> str:
        return f"{length} bytes of text; {self.low}..{self.high} are allowed"


class _Bytes(Codec[Buffer]):
    """What every byte string has in common: hex in JSON."""

    def to_json(self, value: Buffer) -> str:
        return value.hex()

    def from_json(self, value: Any, path: list[str]) -> bytes:
        if isinstance(value, str) and re.fullmatch(r"(?:[0-9A-Fa-f]{2})*", value):
            return bytes.fromhex(value)
        raise fail_json(path, "a byte string is written in hex")


class Blob(_Bytes):
    """Bytes behind their length. With `by_reference` a reader hands out a slice of its input, not a copy."""

    def __init__(self, prefix: int, high: int, low: int = 0, *, by_reference: bool = False) -> None:
        self.length = Number(prefix)
        self.minimum = prefix + low
        self.low = low
        self.high = high
        self.by_reference = by_reference

    def read(self, reader: Reader) -> Buffer:
        start = reader.offset
        length = self.length.read(reader)
        if not self.low <= length <= self.high:
            reader.fail(Word.INVALID_FIELD, self._range(length), offset=start)
        at = reader.advance(length)
        part = reader.data[at : at + length]
        return part if self.by_reference else bytes(part)

    def write(self, writer: Writer, value: Buffer) -> None:
        if not self.low <= len(value) <= self.high:
            writer.fail(Word.INVALID_FIELD, self._range(len(value)))
        self.length.write(writer, len(value))
        writer.put_blob(value)

    def _range(self, length: int) -> str:
        return f"{length} bytes; {self.low}..{self.high} are allowed"


class FixedBlob(_Bytes):
    """Bytes of a fixed length behind a u8 that must say so (sha256)."""

    def __init__(self, length: int) -> None:
        self.length = Number(1, length, length)
        self.minimum = 1 + length

    def read(self, reader: Reader) -> Buffer:
        length = self.length.read(reader)
        at = reader.advance(length)
        return bytes(reader.data[at : at + length])

    def write(self, writer: Writer, value: Buffer) -> None:
        self.length.write(writer, len(value))
        writer.put(value)


class Rid(Codec[bytes]):
    """A routing id: 1 to 255 raw bytes, not text."""

    def __init__(self) -> None:
        self.blob = Blob(1, 255, 1)
        self.minimum = self.blob.minimum

    def read(self, reader: Reader) -> bytes:
        return bytes(self.blob.read(reader))

    def write(self, writer: Writer, value: bytes) -> None:
        self.blob.write(writer, value)

    def to_json(self, value: bytes) -> str:
        return value.hex()

    def from_json(self, value: Any, path: list[str]) -> bytes:
        return self.blob.from_json(value, path)


U8 = Number(1)
U16 = Number(2)
U32 = Number(4)
U64 = Number(8)
NZ64 = Number(8, 1, SIGNED_MAX)
"""1 .. 2^63-1: generations, orders, reply routes."""
ORDINAL = Number(8, 0, SIGNED_MAX)
"""0 .. 2^63-1."""
I64 = Number(8, 0, SIGNED_MAX)
"""The application version: signed, but a negative one is refused, which leaves the range of an ordinal."""
LOGICAL_LENGTH = Number(8, 0, LOGICAL_BYTES_MAX)
BOOL8 = Boolean()
TEXT8 = Text(1, 255)
TEXT16 = Text(2, 4096)
"""Store versions and references."""
RID = Rid()
