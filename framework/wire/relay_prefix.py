"""The quick path for command 31: one attempt's relay records differ only in the frozen record at their end.

Owns making and recognising these frames without decoding the identity again for every message. Whatever
does not begin like this attempt's frames is the general decoder's.
"""

from __future__ import annotations

from sojourn.wire.blocks import ObjectIdentity, RelocationIdentity
from sojourn.wire.command_frame import decode_command, encode_command
from sojourn.wire.commands import RelocationData
from sojourn.wire.errors import WireError
from sojourn.wire.fast_record import read_record

__all__ = ["RelayPrefix"]


class RelayPrefix:
    """Everything of command 31 before the record, for one relocation identity and object."""

    __slots__ = ("prefix",)

    def __init__(self, identity: RelocationIdentity, object_identity: ObjectIdentity) -> None:
        """Encode the prefix once.

        Raises:
            WireError: a value out of range.
        """
        # The encoder takes a record as it is, so an empty one leaves just what stands before it.
        (self.prefix,) = encode_command(RelocationData(identity=identity, object=object_identity, record=b""))

    def frame(self, record: bytes) -> bytes:
        """Command 31 with this record, which is taken as it is."""
        return self.prefix + record

    def record_of(self, frame: bytes) -> bytes | None:
        """The record of a frame of this identity and object; None when the frame begins otherwise.

        Raises:
            WireError: the record is malformed.
        """
        if not frame.startswith(self.prefix):
            return None
        record = frame[len(self.prefix) :]
        try:
            read_record(record)
        except WireError:
            # Another kind of record, or a malformed one: the error names offset and path in the frame.
            decode_command(frame)
        return record
