"""Store envelopes: checksummed containers for blobs that wait in the Relocation Store.

Owns the common header and the bodies of ZLTC (one chunk) and ZLTM (the list of chunks). The direct path
between nodes does not use them.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from sojourn.wire.checksum import checksum
from sojourn.wire.cursor import Buffer, Reader, Writer
from sojourn.wire.errors import Word
from sojourn.wire.primitives import LOGICAL_LENGTH, NZ64, TEXT16, U32, Blob, FixedBlob, Number
from sojourn.wire.structure import Vector, block

__all__ = [
    "ChunkReference",
    "StoredChunk",
    "StoredManifest",
    "decode_stored_chunk",
    "decode_stored_manifest",
    "encode_stored_chunk",
    "encode_stored_manifest",
]

T = TypeVar("T")
_VERSION = Number(1, 1, 1)
_FLAGS = Number(2, 0, 0)


class StoredChunk(msgspec.Struct, frozen=True):
    """ZLTC: one piece of a blob."""

    order: Annotated[int, U32]
    data: Annotated[bytes, Blob(4, 2**32 - 1)]


class ChunkReference(msgspec.Struct, frozen=True):
    """Where one piece is kept, how long it is, and its CRC-32C."""

    order: Annotated[int, U32]
    reference: Annotated[str, TEXT16]
    length: Annotated[int, NZ64]
    crc: Annotated[int, U32]


class StoredManifest(msgspec.Struct, frozen=True):
    """ZLTM: what the pieces make up."""

    version: Annotated[int, _VERSION]
    total_length: Annotated[int, LOGICAL_LENGTH]
    crc: Annotated[int, U32]
    sha256: Annotated[bytes, FixedBlob(32)]
    chunks: Annotated[
        tuple[ChunkReference, ...], Vector(block(ChunkReference), key=lambda chunk: chunk.order)
    ]


def decode_stored_chunk(data: bytes | memoryview) -> StoredChunk:
    """Decode a whole ZLTC envelope.

    Raises:
        WireError: malformed, or the checksum is another one.
    """
    return _decode(b"ZLTC", StoredChunk, data)


def encode_stored_chunk(chunk: StoredChunk) -> bytes:
    """Encode a ZLTC envelope."""
    return _encode(b"ZLTC", chunk)


def decode_stored_manifest(data: bytes | memoryview) -> StoredManifest:
    """Decode a whole ZLTM envelope.

    Raises:
        WireError: malformed, or the checksum is another one.
    """
    return _decode(b"ZLTM", StoredManifest, data)


def encode_stored_manifest(manifest: StoredManifest) -> bytes:
    """Encode a ZLTM envelope."""
    return _encode(b"ZLTM", manifest)


def _decode(magic: bytes, cls: type[T], data: Buffer) -> T:
    reader = Reader(data)
    reader.enter("magic")
    start = reader.advance(4)
    if reader.data[start : start + 4] != magic:
        reader.fail(Word.INVALID_MAGIC, f"must be {magic.decode()}", offset=start)
    reader.leave()
    length = 0
    for name, number in (("version", _VERSION), ("flags", _FLAGS), ("length", U32)):
        reader.enter(name)
        length = number.read(reader)
        reader.leave()
    outer = reader.open_region(length)
    value = block(cls).read(reader)
    reader.close_region(outer)
    expected = checksum(reader.data[: reader.offset])
    reader.enter("crc")
    start = reader.offset
    if U32.read(reader) != expected:
        reader.fail(Word.INVALID_FIELD, f"the checksum is {expected:08x}", offset=start)
    reader.leave()
    reader.finish()
    return value


def _encode(magic: bytes, value: Any) -> bytes:
    writer = Writer()
    writer.put(magic)
    _VERSION.write(writer, 1)
    _FLAGS.write(writer, 0)
    body = writer.nested(4)
    block(type(value)).write(body, value)
    U32.write(writer, body.offset - writer.offset - 4)
    writer.splice(body)
    content = writer.joined()
    return content + checksum(content).to_bytes(4, "big")
