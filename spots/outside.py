"""The way back to the short way: when a worker's messages may go from mailbox to mailbox again.

Owns which objects this worker has lately sent to by way of its supervisor. Such messages may still be under
way when the object comes to this very worker; a direct one would overtake them (B9.4). So a loop record is
sent behind them first, and the short way is open once it is back. It must not know records' contents.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from sojourn import frames
from sojourn.frames import RecordHeader
from sojourn.ids import ObjectKey
from sojourn.spots.cell import Cell, Phase
from sojourn.spots.origin import record_kind
from sojourn.wire.fast_record import encode_payload, encode_record_head

if TYPE_CHECKING:
    from sojourn.spots.host import ObjectHost

__all__ = ["KEPT_S", "Outside"]

KEPT_S = 30.0
"""How long a message may be under way: the follow duration (B9.1)."""

_NUMBER = struct.Struct(">Q")
_LOOK_EVERY = 256


class Outside:
    """See the module text. Two sets that take turns hold what was sent within `KEPT_S` to twice that."""

    __slots__ = ("_host", "_next_number", "_older", "_recent", "_sends", "_turned_at")

    def __init__(self, host: ObjectHost) -> None:
        self._host = host
        self._recent: set[ObjectKey] = set()
        self._older: set[ObjectKey] = set()
        self._sends = 0
        self._turned_at = host.clock.monotonic()
        self._next_number = 0

    def sent(self, key: ObjectKey) -> None:
        """A message to the object goes out by way of the supervisor."""
        self._recent.add(key)
        self._sends += 1
        if self._sends % _LOOK_EVERY == 0:
            now = self._host.clock.monotonic()
            if now - self._turned_at >= KEPT_S:
                self._older, self._recent = self._recent, {key}
                self._turned_at = now

    def reaches(self, cell: Cell) -> bool:
        """Whether a message may go straight into this object's mailbox."""
        if cell.phase is not Phase.OPEN and (cell.phase > Phase.OPEN or cell.arrived):
            return False
        if cell.key not in self._recent and cell.key not in self._older:
            return True
        if cell.loop == 0 and cell.phase is Phase.OPEN:
            self._send_loop(cell)
        return False

    def _send_loop(self, cell: Cell) -> None:
        self._next_number += 1
        cell.loop = self._next_number
        outbox = self._host.outbox
        operation = (outbox.pending.operation_high, outbox.pending.next_operation())
        kind = cell.type.kind
        head = encode_record_head(outbox.node_source, None, *operation, record_kind(kind, False), 0)
        payload = encode_payload(frames.LOOP_PACKET, "application/octet-stream", _NUMBER.pack(cell.loop))
        self._host.port.submit(
            frames.record_frame(
                frames.FLAG_LOOP, 0, kind, 0, 0, *operation, len(head), cell.key, b"", head + payload
            )
        )

    def came_back(self, cell: Cell | None, header: RecordHeader, body: bytes) -> None:
        """A loop record arrived. One of another worker, or of an earlier stay of the object, means nothing."""
        if cell is None or header.operation_high != self._host.outbox.pending.operation_high:
            return
        (number,) = _NUMBER.unpack_from(body, len(body) - _NUMBER.size)
        if number == cell.loop:
            cell.loop = 0
            self._recent.discard(cell.key)
            self._older.discard(cell.key)
