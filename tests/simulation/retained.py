"""What a node keeps for objects that cannot take it now (B5.3), and the permits of staging (B5.1).

The octets are counted by the product's `Retention`. The product hands a relayed record to its staging in the step that
reads it, so that no staging permit is ever held; here the hand-over may take time, and then nothing but the relay waits.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sojourn.handoff import events as ev
from sojourn.handoff.machine import Event
from sojourn.workers.debt import Retention

from tests.simulation.history import Record, Violation
from tests.simulation.jobs import RECORD_OCTETS, Permit

if TYPE_CHECKING:
    from tests.simulation.network import Connection
    from tests.simulation.node import Node
    from tests.simulation.target_driver import TargetDriver

__all__ = ["HeldRecords", "Retained", "StagingLane", "StagingPool"]

_NO_LIMIT = 1 << 40


class Retained(Retention):
    """The octets that one run keeps."""

    def __init__(self, node: Node, limit: int) -> None:
        super().__init__(limit or _NO_LIMIT)
        self._run = node.run

    def free(self, octets: int) -> None:
        super().free(octets)
        if self.octets < 0:
            raise Violation(f"{self._run} let go of {-self.octets} octets that it did not keep")


class HeldRecords:
    """The records that one handoff took in, and the credit it owes for them."""

    __slots__ = ("_debts", "_node", "_records")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._records: list[Record] = []
        self._debts: list[Connection] = []

    def __len__(self) -> int:
        return len(self._records)

    def owe(self, record: Record, connection: Connection | None) -> bool:
        """A record is held from now on. True when its credit stays here until the handoff lets go (B5.3)."""
        retained = self._node.retained
        record.held = connection is not None
        self._records.append(record)
        retained.keep(RECORD_OCTETS)
        if connection is None or record.marker is not None or not retained.over:
            return False
        if self._node.world.credit_when_full:
            return False
        self._debts.append(connection)
        return True

    def settle(self) -> None:
        """The handoff let go of what it held."""
        records, self._records = self._records, []
        debts, self._debts = self._debts, []
        for record in records:
            record.held = False
        self._node.retained.free(RECORD_OCTETS * len(records))
        for connection in debts:
            self._node.world.network.give_credit(connection, self._node)


class StagingPool:
    """The staging permits of one node: no other record may have them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_use = 0
        self.waiting: deque[StagingLane] = deque()

    def take(self, lane: StagingLane) -> Permit | None:
        if self.in_use >= self.limit:
            self.waiting.append(lane)
            return None
        self.in_use += 1
        return Permit(self)

    def returned(self) -> None:
        self.in_use -= 1
        if self.waiting:
            self.waiting.popleft().go_on()


class StagingLane:
    """What comes for one staging from its source, in order; a relayed record needs a permit for its hand-over."""

    __slots__ = ("_busy", "_driver", "_queue")

    def __init__(self, driver: TargetDriver) -> None:
        self._driver = driver
        self._queue: deque[tuple[Event, Record | None]] = deque()
        self._busy = False

    def arrive(self, event: Event, record: Record | None = None) -> None:
        handing = self._driver.world.mix.handover_s and isinstance(event, ev.RelayArrived)
        if not (handing or self._queue):
            self._hand(event, record)
            return
        self._queue.append((event, record))
        if not self._busy:
            self.go_on()

    def go_on(self) -> None:
        """Hand over what needs no permit, and the next that has got one."""
        driver, self._busy = self._driver, False
        while self._queue and not self._busy:
            event, record = self._queue[0]
            if isinstance(event, ev.RelayArrived):
                self._busy = True
                permit = driver.node.staging.take(self)
                if permit is not None:
                    delay = driver.world.mix.handover_s
                    driver.world.clock.after(delay, driver.node.step, self._handed, permit)
            else:
                self._queue.popleft()
                self._hand(event, record)

    def _handed(self, permit: Permit) -> None:
        event, record = self._queue.popleft()
        self._driver.world.staging_done(permit)
        self._hand(event, record)
        self.go_on()

    def _hand(self, event: Event, record: Record | None) -> None:
        driver = self._driver
        if record is None:
            driver.deliver(event)
        elif isinstance(event, ev.RelayArrived):
            if driver.node.targets.get(driver.identity) is driver:
                if driver.node.staged.get(record.key) is driver:  # else it is late, and nobody keeps it here
                    driver.held.owe(record, None)
                driver.arrived(event, record)
            else:
                driver.node.fail(record, "Unavailable")
        elif driver.node.staged.get(record.key) is driver:
            driver.arrived(event, record)
        else:  # opened or given up while this waited
            driver.node.take(record, None)
