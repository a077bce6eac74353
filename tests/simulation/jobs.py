"""The job queue of a simulated node: one pool of permits, and credit for records between nodes (B5.1, B5.2)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tests.simulation.history import Record, Violation

if TYPE_CHECKING:
    from typing import Protocol

    from tests.simulation.network import Connection
    from tests.simulation.node import Node
    from tests.simulation.objects import LocalObject

    class Pool(Protocol):
        def returned(self) -> None: ...


__all__ = ["RECORD_OCTETS", "JobPool", "Permit"]

RECORD_OCTETS = 8
"""What each record counts while it is kept for somebody who cannot take it (B5.3)."""


class Permit:
    """The right of one record to stand in a mailbox; it goes back exactly once."""

    __slots__ = ("pool", "returned")

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.returned = False

    def give_back(self) -> None:
        if self.returned:
            raise Violation("a permit was returned twice")
        self.returned = True
        self.pool.returned()


class JobPool:
    """Permits of one node. Whoever finds none waits in line: records on their way in, and turns of backlogs.

    A record that joins a backlog (saved work, relay, what waited for the opening) holds no permit; its turn
    takes one in order and gives it back at once, as the handler starts (R4.6.3).
    """

    def __init__(self, node: Node, limit: int) -> None:
        self.node = node
        self.limit = limit
        self.in_use = 0
        self.waiting: deque[tuple[LocalObject, Record | None, Connection | None]] = deque()
        self._pumping = False

    def admit(self, item: LocalObject, record: Record, connection: Connection | None) -> None:
        """A record for an open object came in."""
        if item.backlog:
            item.put(record)
        elif self.waiting or self.in_use >= self.limit:
            self.waiting.append((item, record, connection))
            self.node.retained.keep(RECORD_OCTETS)
            return
        else:
            record.permit = self.take()
            item.put(record)
        if connection is not None:
            self.node.world.network.give_credit(connection, self.node)

    def take(self) -> Permit:
        self.in_use += 1
        if self.in_use > self.limit:
            raise Violation(f"{self.node.run} gave out {self.in_use} of {self.limit} permits")
        return Permit(self)

    def may_start(self, item: LocalObject, needed: int = 1) -> bool:
        """Whether a turn of the backlog may start now; else it waits in line."""
        if self.in_use + needed <= self.limit and (self._pumping or not self.waiting):
            return True
        if not item.in_line:
            item.in_line = True
            self.waiting.append((item, None, None))
        return False

    def returned(self) -> None:
        self.in_use -= 1
        self.pump()

    def pump(self) -> None:
        """Serve the line while there are permits."""
        if self._pumping:
            return
        self._pumping = True
        waiting = self.waiting
        tries = len(waiting)
        while waiting and tries > 0 and self.in_use < self.limit:
            tries -= 1
            item, record, connection = waiting.popleft()
            if record is None:
                item.in_line = False
                item.start_next()
                continue
            self.node.retained.free(RECORD_OCTETS)
            if connection is not None:
                self.node.world.network.give_credit(connection, self.node)
            if item.status != "open" or self.node.objects.get(item.key) is not item:
                self.node.take(record, None)
            elif item.backlog:
                item.put(record)
            else:
                record.permit = self.take()
                item.put(record)
        self._pumping = False

    def flush(self, item: LocalObject) -> None:
        """The object is about to be sealed: what waits here for it is saved work, without a permit (R4.2.1)."""
        kept: list[tuple[LocalObject, Record | None, Connection | None]] = []
        for entry in self.waiting:
            waits_for, record, connection = entry
            if waits_for is not item:
                kept.append(entry)
            elif record is None:
                item.in_line = False
            else:
                if not self.node.world.flush_keeps:
                    self.node.retained.free(RECORD_OCTETS)
                item.join_backlog(record)
                if connection is not None:
                    self.node.world.network.give_credit(connection, self.node)
        self.waiting = deque(kept)
