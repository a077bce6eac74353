"""The connection between a supervisor and one worker: frames over a Unix socketpair, sorted by kind.

Owns both ends' dispatch and sending of the frames of `sojourn.frames`. It must not know what a control message
or a record is about.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from sojourn.control import Control, decode_control, encode_control
from sojourn.errors import ProtocolError
from sojourn.frames import (
    KIND_BULK,
    KIND_CONTROL,
    KIND_RECORD,
    KIND_REPLY,
    bulk_parts,
    control_frame,
    parse_bulk,
)
from sojourn.workers.framing import ClosedCallback, FrameChannel

__all__ = ["Connection"]

BodyCallback: TypeAlias = Callable[[bytes], object]
ControlCallback: TypeAlias = Callable[[Control], object]
BulkCallback: TypeAlias = Callable[[int, bool, memoryview], object]


class Connection(FrameChannel):
    """One end of a worker's IPC.

    Records and replies go to `on_record` and `on_reply` as frame bodies, control messages to `on_control`, state
    to `on_bulk(handoff, last, chunk)`, whose chunk is a view that is valid only during the call. All in the order
    sent. `on_closed` and the sending side are those of `FrameChannel`.
    """

    def __init__(
        self,
        *,
        on_record: BodyCallback,
        on_reply: BodyCallback,
        on_control: ControlCallback,
        on_bulk: BulkCallback,
        on_closed: ClosedCallback,
    ) -> None:
        super().__init__(self._frame, on_closed, on_view=self._frame_in_view)
        self.on_record = on_record
        self.on_reply = on_reply
        self.on_control = on_control
        self.on_bulk = on_bulk

    def send_control(self, message: Control) -> None:
        """Send one control message."""
        self.send(control_frame(encode_control(message)))

    def send_bulk(self, handoff: int, last: bool, chunk: bytes | memoryview) -> None:
        """Send a piece of state; a large one is not copied and must not change until `wait_written` returns."""
        self.send_parts(bulk_parts(handoff, last, chunk))

    def _frame(self, body: bytes) -> None:
        kind = body[0]
        if kind == KIND_RECORD:
            self.on_record(body)
        elif kind == KIND_REPLY:
            self.on_reply(body)
        elif kind == KIND_CONTROL:
            self.on_control(decode_control(memoryview(body)[1:]))
        elif kind == KIND_BULK:
            self.on_bulk(*parse_bulk(memoryview(body)))
        else:
            raise ProtocolError(f"a frame of kind {kind} does not belong on worker IPC")

    def _frame_in_view(self, view: memoryview) -> None:
        if view[0] == KIND_BULK:
            self.on_bulk(*parse_bulk(view))
        else:
            self._frame(bytes(view))
