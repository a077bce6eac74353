"""What every driver of a pure machine in the simulation does: one event at a time, one timer."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff.machine import DeadlineReached, Effect, Event, Log, Machine
from sojourn.handoff.terms import RowFacts

from tests.simulation.clock import Timer
from tests.simulation.history import Record, Violation

if TYPE_CHECKING:
    from tests.simulation.node import Node

__all__ = ["Driver", "checksum", "frozen"]


def checksum(data: bytes, value: int) -> int:
    return zlib.crc32(data, value)


def frozen(record: Record) -> bytes:
    return record.number.to_bytes(8, "big")


class Driver:
    """Delivers events to a machine, carries its effects out, arms its one timer."""

    machine: Machine

    def __init__(self, node: Node, key: bytes) -> None:
        self.node = node
        self.world = node.world
        self.key = key
        self.keys: tuple[bytes, ...] = (key,)
        """The participants whose records are this handoff's."""
        self._timer: Timer | None = None
        self._armed: float | None = None
        self._busy = False
        self._waiting: list[Event] = []

    def deliver(self, event: Event, not_before: float = 0.0) -> None:
        """One event at a time, each with its effects: an event caused by an effect waits its turn.

        `not_before` is what this run's clock shows at least: a deadline that has come, whatever the rounding.
        """
        self._waiting.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._waiting:
                event = self._waiting.pop(0)
                now = max(self.node.local.now(), not_before)
                self.world.trace(self.node, self.key, event)
                for effect in self.machine.handle(event, now):
                    self.world.trace(self.node, self.key, effect)
                    self.carry_out(effect)
        finally:
            self._busy = False
        self._arm()

    def deliver_later(self, event: Event, delay: float = 0.0) -> None:
        self.world.clock.after(delay, self.node.step, self.deliver, event)

    def _arm(self) -> None:
        deadline = self.machine.deadline
        if deadline == self._armed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed = deadline
        self._timer = None
        if deadline is not None:
            due = self.node.local.when(deadline)
            self._timer = self.world.clock.at(due, self.node.step, self._fire, deadline)

    def _fire(self, deadline: float) -> None:
        if deadline == self._armed:
            self._armed = None
            self.deliver(DeadlineReached(), deadline)

    def carry_out(self, effect: Effect) -> None:
        method: Callable[[Any, Any], None] | None = self._carriers.get(type(effect))
        if method is None:
            raise Violation(f"no driver code for {effect}")
        method(self, effect)

    _carriers: dict[type[Effect], Any] = {}  # noqa: RUF012

    def log(self, effect: Log) -> None:
        self.world.logged(self.node, self.key, effect)

    # the store

    def read_row(self, effect: fx.ReadRow) -> None:
        self.world.store.read(self.key, partial(self.node.step, self._row_answer))

    def _row_answer(self, known: bool, row: RowFacts | None) -> None:
        self.deliver(ev.RowRead(row) if known else ev.RowReadFailed())

    def write(
        self,
        version: str,
        change: Callable[[RowFacts], RowFacts],
        answers: dict[str, Event],
        others: fx.Conditions,
    ) -> None:
        reply = partial(self.node.step, self._write_answer, answers)
        if self.node.admits() or self.world.writes_unadmitted:
            self.world.store.write(self.key, version, change, reply, others)
        else:  # no store change past the admission deadline (B6.4)
            self.world.clock.after(0.02, reply, "failed")

    def _write_answer(self, answers: dict[str, Event], outcome: str) -> None:
        self.deliver(answers[outcome])

    def deliver_records(self, effect: fx.DeliverRecords) -> None:
        for record in effect.records:
            self.node.take(record, None)

    def fail_held(self, effect: fx.FailHeld) -> None:
        for record in effect.records:
            self.node.fail(record, effect.kind)
