"""CRC-32C (Castagnoli), the only checksum of the contract.

Owns nothing but the name: the arithmetic is the `crc32c` package's. On the wire it is a u32.
"""

from __future__ import annotations

from crc32c import crc32c
from sojourn.wire.cursor import Buffer

__all__ = ["Checksum", "checksum"]


def checksum(data: Buffer | bytearray, before: int = 0) -> int:
    """CRC-32C of `data`; with `before`, of the bytes that gave `before` followed by `data`.

    The empty input has 0, ``b"123456789"`` has 0xE3069283.
    """
    return int(crc32c(data, before))


class Checksum:
    """CRC-32C of bytes that come in pieces: the relayed records before a cutover, the chunks of a stream."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def update(self, data: Buffer | bytearray) -> None:
        """Append bytes."""
        self.value = checksum(data, self.value)
