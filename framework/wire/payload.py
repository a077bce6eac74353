"""The metadata frame and the application payload envelope.

Owns what stands around an application payload. Payload bytes are opaque: the content type says what
they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from sojourn.wire.cursor import Reader, Writer
from sojourn.wire.errors import WireError, Word
from sojourn.wire.primitives import PAYLOAD_BYTES_MAX, TEXT8, U8, Blob, Codec, Number, Text
from sojourn.wire.structure import Vector, VersionedEnvelope, block

__all__ = [
    "APPLICATION_PAYLOAD",
    "DEADLINE_KEY",
    "METADATA",
    "METADATA_BYTES_MAX",
    "ApplicationPayload",
    "Metadata",
    "MetadataEntry",
    "deadline_from_text",
    "deadline_of",
    "decode_metadata",
    "decode_payload",
    "encode_metadata",
    "encode_payload_envelope",
]

METADATA_BYTES_MAX = 1024
"""Longest whole metadata frame."""

DEADLINE_KEY = "deadline-unix-ms"
"""Metadata key under which a request carries its deadline (B8.2)."""

_DEADLINE = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


class MetadataEntry(msgspec.Struct, frozen=True):
    """One key and its value; a value may be empty, a key may not."""

    key: Annotated[str, TEXT8]
    value: Annotated[str, Text(2, 1024, 0)]


Metadata = tuple[MetadataEntry, ...]
"""Entries in the order they were sent; keys are unique."""


def _distinct(earlier: list[Any], key: Any) -> Word | None:
    return Word.DUPLICATE_ITEM if key in earlier else None


class _MetadataFrame(Codec[Metadata]):
    """u8 version 1, u8 count, entries; at most 1024 bytes altogether, with no length of its own."""

    minimum = 2

    def __init__(self) -> None:
        self.version = Number(1, 1, 1)
        self.entries = Vector(block(MetadataEntry), count=U8, key=lambda entry: entry.key, order=_distinct)

    def read(self, reader: Reader) -> Metadata:
        start = reader.offset
        reader.enter("version")
        self.version.read(reader)
        reader.leave()
        entries = self.entries.read(reader)
        self._check_size(reader, reader.offset - start, start)
        return entries

    def write(self, writer: Writer, value: Metadata) -> None:
        start = writer.offset
        if len(value) > 255:
            writer.fail(Word.INVALID_FIELD, f"{len(value)} entries; 0..255 are allowed")
        self.version.write(writer, 1)
        self.entries.write(writer, value)
        self._check_size(writer, writer.offset - start, start)

    def _check_size(self, cursor: Reader | Writer, size: int, start: int) -> None:
        if size > METADATA_BYTES_MAX:
            detail = f"{size} bytes of metadata; {METADATA_BYTES_MAX} are allowed"
            cursor.fail(Word.INVALID_FIELD, detail, offset=start)

    def to_json(self, value: Metadata) -> Any:
        return self.entries.to_json(value)

    def from_json(self, value: Any, path: list[str]) -> Metadata:
        return self.entries.from_json(value, path)


METADATA = _MetadataFrame()


class ApplicationPayload(msgspec.Struct, frozen=True):
    """A handler's name, the content type of its argument, and the argument's bytes."""

    packet_name: Annotated[str, TEXT8]
    content_type: Annotated[str, TEXT8]
    payload: Annotated[bytes, Blob(4, PAYLOAD_BYTES_MAX)]


APPLICATION_PAYLOAD = VersionedEnvelope(block(ApplicationPayload))


def deadline_from_text(text: str) -> int | None:
    """The instant a deadline value names, or None when it is no plain decimal number in 1..2^63-1."""
    instant = int(text) if _DEADLINE.fullmatch(text) else 0
    return instant if 0 < instant < 2**63 else None


def deadline_of(metadata: Iterable[MetadataEntry]) -> int | None:
    """The deadline in milliseconds since the Unix epoch, or None when there is none.

    Raises:
        WireError: `invalid-field` when the value is no decimal number in 1..2^63-1.
    """
    for entry in metadata:
        if entry.key == DEADLINE_KEY:
            instant = deadline_from_text(entry.value)
            if instant is None:
                raise WireError(
                    Word.INVALID_FIELD, 0, f"metadata.{DEADLINE_KEY}", f"{entry.value!r} is no instant"
                )
            return instant
    return None


def decode_metadata(data: bytes | memoryview) -> Metadata:
    """Decode one whole metadata frame.

    Raises:
        WireError: malformed.
    """
    reader = Reader(data)
    metadata = METADATA.read(reader)
    reader.finish()
    return metadata


def encode_metadata(metadata: Metadata) -> bytes:
    """Encode one metadata frame.

    Raises:
        WireError: a key twice, a text out of range, or more than 1024 bytes.
    """
    writer = Writer()
    METADATA.write(writer, metadata)
    return writer.joined()


def decode_payload(data: bytes | memoryview) -> ApplicationPayload:
    """Decode one whole application payload envelope.

    Raises:
        WireError: malformed.
    """
    reader = Reader(data)
    payload = APPLICATION_PAYLOAD.read(reader)
    reader.finish()
    return payload


def encode_payload_envelope(payload: ApplicationPayload) -> bytes:
    """Encode one application payload envelope.

    Raises:
        WireError: a name or the payload is out of range.
    """
    writer = Writer()
    APPLICATION_PAYLOAD.write(writer, payload)
    return writer.joined()
