"""A worker reduced to what a handoff needs of it: one object with mailbox, turns and state."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tests.simulation.history import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.simulation.node import Node

__all__ = ["LocalObject"]


class LocalObject:
    """One instance, or a Spot with its members under one turn: `keys` names all of them, the Spot first.

    `handled` is their state: the number of turns each has seen in this incarnation.
    """

    __slots__ = (
        "boundaries",
        "came_from",
        "generation",
        "handled",
        "key",
        "keys",
        "mailbox",
        "node",
        "on_turn_end",
        "running",
        "status",
    )

    def __init__(
        self,
        node: Node,
        key: bytes,
        generation: int,
        handled: dict[bytes, int],
        saved: Iterable[Record],
    ) -> None:
        self.node = node
        self.key = key
        self.keys = (key, *node.world.store.members.get(key, ()))
        self.generation = generation
        self.handled = handled
        self.mailbox: deque[Record] = deque(saved)
        self.status = "staged"
        """staged, open, sealing (no new turn) or closed."""
        self.running: Record | None = None
        self.on_turn_end: Callable[[], None] | None = None
        self.boundaries: list[Callable[[], None]] = []
        """Who waits for a turn boundary (B8.12)."""

    def put(self, record: Record) -> None:
        self.mailbox.append(record)
        if self.running is None and self.status == "open":
            self._start()

    def open(self) -> None:
        self.status = "open"
        if self.running is None and self.mailbox:
            self._start()

    def seal(self, then: Callable[[], None]) -> None:
        """End the running turn, start no other, then go on."""
        self.status = "sealing"
        if self.running is None:
            then()
        else:
            self.on_turn_end = then

    def give_up_seal(self) -> bool:
        """The running turn outlasted the wait: go on, if it still runs."""
        waits = self.status == "sealing" and self.on_turn_end is not None
        if waits:
            self.status, self.on_turn_end = "open", None
        return waits

    def _start(self) -> None:
        record = self.mailbox.popleft()
        self.running = record
        world = self.node.world
        row = world.store.rows.get(record.key)
        world.history.turn_started(record, self.node.run, None if row is None else row.owner)
        turn_s = 3.0 if world.mix.long_turns and world.chance(world.mix.long_turns) else world.mix.turn_s
        world.clock.after(turn_s * world.clock.random.random(), self.node.step, self._end, record)

    def _end(self, record: Record) -> None:
        world = self.node.world
        self.running = None
        handled = self.handled.get(record.key, 0)
        world.history.turn_ended(record, self.generation, handled, world.clock.now)
        self.handled[record.key] = handled + 1
        if world.sessions and record.key == self.key:
            self.node.turn_ended(self, handled)
        boundaries, self.boundaries = self.boundaries, []
        for reached in boundaries:
            reached()
        if self.on_turn_end is not None:
            then, self.on_turn_end = self.on_turn_end, None
            then()
        elif self.status == "open" and self.mailbox:
            self._start()
