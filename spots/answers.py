"""Replies to records: result or typed error, on its way to the run that asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.control import ErrorBody, encode_error
from sojourn.errors import ProtocolError, SojournError
from sojourn.frames import FLAG_ERROR, RecordHeader, parse_reply_header, reply_head
from sojourn.ids import describe_key
from sojourn.spots.pending import operation_text
from sojourn.wire.fast_record import reply_destination

if TYPE_CHECKING:
    from sojourn.spots.ports import OutboxPort

__all__ = ["answer", "answer_error"]


def answer(port: OutboxPort, header: RecordHeader, body: bytes, flags: int, result: bytes) -> None:
    """Send a reply to the sender of a record."""
    head = reply_head(flags, header.reply_route, header.operation_high, header.operation_low)
    port.submit(b"".join((head, reply_destination(body, header.record_at), result)))


def answer_error(port: OutboxPort, header: RecordHeader, body: bytes, error: SojournError) -> None:
    """End a request with a typed error; a record that nobody waits for, or cannot be read, is left alone."""
    if not header.reply_route:
        return
    try:
        parse_reply_header(reply_head(0, 0, 0, 0) + reply_destination(body, header.record_at))
    except (ProtocolError, IndexError):
        return  # a record without a readable source: nobody can be told
    described = ErrorBody.of(error)
    described.fields["object_id"] = described.fields["object_id"] or describe_key(header.key)
    described.fields["operation_id"] = operation_text(header.operation_high, header.operation_low)
    answer(port, header, body, FLAG_ERROR, encode_error(described))
