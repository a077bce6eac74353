"""CRC-32C, and the store envelopes that carry one."""

from __future__ import annotations

import pytest
from sojourn.wire import Checksum, WireError, checksum
from sojourn.wire.store_envelope import (
    ChunkReference,
    StoredChunk,
    StoredManifest,
    decode_stored_chunk,
    decode_stored_manifest,
    encode_stored_chunk,
    encode_stored_manifest,
)


def by_the_book(data: bytes) -> int:
    """CRC-32C bit by bit: polynomial 0x1EDC6F41, here reflected."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def test_check_values() -> None:
    assert checksum(b"123456789") == 0xE3069283
    assert checksum(b"") == 0
    assert checksum(bytes(range(256))) == by_the_book(bytes(range(256)))
    assert checksum(memoryview(b"123456789")[3:]) == by_the_book(b"456789")


def test_pieces_give_the_checksum_of_the_whole() -> None:
    running = Checksum()
    assert running.value == 0
    for piece in (b"1234", b"", memoryview(b"56789")):
        running.update(piece)
    assert running.value == checksum(b"123456789") == checksum(b"56789", checksum(b"1234"))


CHUNK = StoredChunk(3, b"data")
MANIFEST = StoredManifest(
    1, 9, 0xE3069283, bytes(range(32)), (ChunkReference(0, "blob-0", 4, 1), ChunkReference(1, "blob-1", 5, 2))
)


def test_a_stored_chunk_in_bytes() -> None:
    content = b"ZLTC" + bytes.fromhex("01 0000 0000000c 00000003 00000004") + b"data"
    assert encode_stored_chunk(CHUNK) == content + by_the_book(content).to_bytes(4, "big")
    assert decode_stored_chunk(encode_stored_chunk(CHUNK)) == CHUNK


def test_a_stored_manifest_in_bytes() -> None:
    first = bytes.fromhex("00000000 0006") + b"blob-0" + bytes.fromhex("0000000000000004 00000001")
    second = bytes.fromhex("00000001 0006") + b"blob-1" + bytes.fromhex("0000000000000005 00000002")
    body = (
        bytes.fromhex("01 0000000000000009 e3069283 20") + bytes(range(32)) + b"\0\0\0\x02" + first + second
    )
    content = b"ZLTM" + b"\x01\0\0" + len(body).to_bytes(4, "big") + body
    assert encode_stored_manifest(MANIFEST) == content + by_the_book(content).to_bytes(4, "big")
    assert decode_stored_manifest(encode_stored_manifest(MANIFEST)) == MANIFEST


@pytest.mark.parametrize(
    ("at", "byte", "word", "path"),
    [
        (0, 0x59, "invalid-magic", "magic"),
        (4, 2, "invalid-field", "version"),
        (6, 1, "invalid-field", "flags"),
        (10, 11, "invalid-body-length", "data"),
        (10, 13, "invalid-body-length", ""),
        (10, 255, "truncated-field", ""),
        (20, 0, "invalid-field", "crc"),
    ],
)
def test_a_broken_stored_chunk(at: int, byte: int, word: str, path: str) -> None:
    encoded = bytearray(encode_stored_chunk(CHUNK))
    encoded[at] = byte
    with pytest.raises(WireError) as caught:
        decode_stored_chunk(bytes(encoded))
    assert (caught.value.word, caught.value.path) == (word, path)


def test_a_hash_has_32_bytes() -> None:
    encoded = bytearray(encode_stored_manifest(MANIFEST))
    encoded[24] = 31
    with pytest.raises(WireError, match="sha256"):
        decode_stored_manifest(bytes(encoded))


def test_cut_and_trailing_bytes() -> None:
    encoded = encode_stored_chunk(CHUNK)
    for length in range(len(encoded)):
        with pytest.raises(WireError, match="truncated-field"):
            decode_stored_chunk(encoded[:length])
    with pytest.raises(WireError, match="trailing-byte"):
        decode_stored_chunk(encoded + b"\0")
