"""Requests of a simulated node: each ends in exactly one terminal, where it was made (B3.1)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tests.simulation.history import Record, Violation

if TYPE_CHECKING:
    from tests.simulation.node import Node
    from tests.simulation.objects import LocalObject

__all__ = ["REQUEST_S", "Requests"]

REQUEST_S = 9.0
"""How long a requester waits."""


class Requests:
    """What this node asked and waits for, and the replies it owes to others."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.pending: set[int] = set()
        self._deadlines: deque[tuple[float, Record]] = deque()

    def made(self, record: Record) -> None:
        """A request starts its wait."""
        self.pending.add(record.number)
        if not self._deadlines:
            self.node.world.clock.after(REQUEST_S, self.node.step, self._times_out)
        self._deadlines.append((self.node.world.clock.now + REQUEST_S, record))

    def _times_out(self) -> None:
        now = self.node.world.clock.now
        while self._deadlines and self._deadlines[0][0] <= now:
            _, record = self._deadlines.popleft()
            if record.number in self.pending:
                self.pending.discard(record.number)
                if self.node.world.steady:
                    raise Violation(f"{record} was not answered in time although nothing was disturbed")
                self.node.world.history.request_ended(record, "timeout")
        if self._deadlines:
            self.node.world.clock.at(self._deadlines[0][0], self.node.step, self._times_out)

    def reply(self, record: Record, item: LocalObject | None = None) -> None:
        """A request has its one end here: tell the requester. `item`: the object that had it in its queue."""
        self.node.world.history.replied(record)
        record.where = self.node.run
        if record.origin == self.node.run:
            self.arrived(record)
            return
        moved = item is not None and item.moved_here and (record.moved or record.hops)
        if not (moved and self.node.replies.ended(record)):
            self.node.send(record.origin, ("reply", record))

    def arrived(self, record: Record) -> None:
        """A reply is here; a late one is dropped."""
        record.reply_arrived = True
        self.ended(record, "reply" if record.fate == "handled" else "failed")

    def ended(self, record: Record, how: str) -> None:
        """One end of a request: the first counts."""
        if record.number in self.pending:
            self.pending.discard(record.number)
            self.node.world.history.request_ended(record, how)
        elif self.node.world.late_replies_count:
            self.node.world.history.request_ended(record, how)
