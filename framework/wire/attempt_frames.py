"""The quick path for the commands of one attempt: they begin with the same identity, target and object.

Owns making and recognising commands 30, 31, 34 and 52 of an attempt without going through its identity
again for every one. Whatever is not exactly such a frame is the general decoder's.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from sojourn.wire.blocks import OBJECT_IDENTITY, ObjectIdentity, RelocationIdentity, Role, TargetFence
from sojourn.wire.command_frame import command_head, decode_command
from sojourn.wire.commands import RelocationCutover, RelocationData, RelocationReady, RelocationState
from sojourn.wire.cursor import Buffer, Writer
from sojourn.wire.errors import WireError
from sojourn.wire.fast_record import read_record
from sojourn.wire.primitives import CHUNK_BLOB_BYTES_MAX, SIGNED_MAX, Codec
from sojourn.wire.quick import write_quickly
from sojourn.wire.structure import block

__all__ = ["AttemptFrames"]

_CHUNK: Final = struct.Struct(">II")
_CUTOVER: Final = struct.Struct(">QI")
_SOURCE: Final = bytes((Role.SOURCE,))
_TARGET: Final = bytes((Role.TARGET,))


def _octets(codec: Codec[Any], value: Any) -> bytes:
    pieces = write_quickly(codec, value)
    if pieces is not None:
        return b"".join(pieces)
    writer = Writer()
    codec.write(writer, value)
    return writer.joined()


class AttemptFrames:
    """The frames of one relocation identity, object and target.

    Attributes:
        relay_head: command 31 up to its frozen record.
        ready: command 30.
    """

    __slots__ = ("_cutover_head", "_state_head", "ready", "relay_head")

    def __init__(
        self, identity: RelocationIdentity, target: TargetFence, object_identity: ObjectIdentity
    ) -> None:
        """Encode once what the frames have in common.

        Raises:
            WireError: a value out of range.
        """
        named = _octets(block(RelocationIdentity), identity)
        moved = _octets(OBJECT_IDENTITY, object_identity)
        from_source = named + _SOURCE + moved
        self.relay_head = command_head(RelocationData) + from_source
        self._cutover_head = command_head(RelocationCutover) + from_source
        self._state_head = command_head(RelocationState) + from_source
        fence = _octets(block(TargetFence), target)
        self.ready = command_head(RelocationReady) + named + fence + moved + _TARGET

    def state_head(self, ordinal: int, length: int) -> bytes:
        """Everything of command 52 before a chunk of `length` bytes; both numbers are this node's own."""
        return self._state_head + _CHUNK.pack(ordinal, length)

    def cutover(self, count: int, checksum: int) -> bytes:
        """Command 34; both numbers are this node's own."""
        return self._cutover_head + _CUTOVER.pack(count, checksum)

    def chunk_of(self, frame: Buffer) -> tuple[int, memoryview] | None:
        """Ordinal and chunk of a command 52 of this attempt; None where the general decoder must judge."""
        at = len(self._state_head)
        start = at + _CHUNK.size
        if len(frame) < start or frame[:at] != self._state_head:
            return None
        ordinal, length = _CHUNK.unpack_from(frame, at)
        if length != len(frame) - start or length > CHUNK_BLOB_BYTES_MAX:
            return None
        return ordinal, memoryview(frame)[start:]

    def cutover_of(self, frame: Buffer) -> tuple[int, int] | None:
        """Count and checksum of a command 34 of this attempt; None where the general decoder must judge."""
        at = len(self._cutover_head)
        if len(frame) != at + _CUTOVER.size or frame[:at] != self._cutover_head:
            return None
        count, checksum = _CUTOVER.unpack_from(frame, at)
        return (count, checksum) if count <= SIGNED_MAX else None

    def record_of(self, frame: bytes) -> bytes | None:
        """The record of a command 31 of this attempt; None when the frame begins otherwise.

        Raises:
            WireError: the record is malformed.
        """
        if not frame.startswith(self.relay_head):
            return None
        record = frame[len(self.relay_head) :]
        try:
            read_record(record)
        except WireError:
            # Another kind of record, or a malformed one: the error names offset and path in the frame.
            decode_command(frame)
        return record
