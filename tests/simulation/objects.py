"""A worker reduced to what a handoff needs of it: one object with mailbox, turns and state."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tests.simulation.history import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.simulation.clock import Timer
    from tests.simulation.node import Node

__all__ = ["LocalObject"]


class LocalObject:
    """One instance, or a Spot with its members under one turn: `keys` names all of them, the Spot first.

    `handled` is their state: the number of turns each has seen in this incarnation.
    """

    __slots__ = (
        "backlog",
        "boundaries",
        "generation",
        "handled",
        "in_line",
        "key",
        "keys",
        "mailbox",
        "moved_here",
        "node",
        "on_turn_end",
        "running",
        "status",
        "turn",
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
        self.backlog = len(self.mailbox)
        """How many of the mailbox's records hold no permit; a record that comes behind one gets none either."""
        self.moved_here = False
        """A move brought it to this node."""
        self.status = "staged"
        """staged, open, sealing (no new turn) or closed."""
        self.running: Record | None = None
        self.turn: Timer | None = None
        self.in_line = False
        """Its next turn waits for a permit."""
        self.on_turn_end: Callable[[], None] | None = None
        self.boundaries: list[Callable[[], None]] = []
        """Who waits for a turn boundary (B8.12)."""

    def put(self, record: Record) -> None:
        if record.permit is None:
            self.backlog += 1
        self.mailbox.append(record)
        if self.running is None and self.status == "open":
            self.start_next()

    def join_backlog(self, record: Record) -> None:
        """Behind the mailbox, without a permit and without a turn yet."""
        self.backlog += 1
        self.mailbox.append(record)

    def open(self) -> None:
        self.status = "open"
        self.start_next()

    def seal(self, then: Callable[[], None]) -> None:
        """End the running turn, start no other, then go on."""
        self.status = "sealing"
        self.node.pool.flush(self)
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

    def start_next(self) -> None:
        """Start the next turn if there is one and it may start."""
        node = self.node
        if self.running is not None or self.status != "open" or not self.mailbox or not node.admits():
            return
        world = node.world
        record = self.mailbox[0]
        permit = record.permit
        if permit is None:
            if not node.pool.may_start(self, world.permits_for_backlog(self)):
                return
            self.backlog -= 1
        self.mailbox.popleft()
        self.running = record
        world.turn_started(self, record)
        turn_s = 3.0 if world.mix.long_turns and world.chance(world.mix.long_turns) else world.mix.turn_s
        self.turn = world.clock.after(turn_s * world.clock.random.random(), node.step, self._end, record)
        if permit is not None:
            record.permit = None
            permit.give_back()

    def cancel_turn(self) -> None:
        """The run's admission is over: the running turn ends without an effect (B6.4)."""
        record = self.running
        if record is None:
            return
        assert self.turn is not None
        self.turn.cancel()
        self.running = None
        self.node.world.history.turn_cancelled(record)
        self.node.fail(record, "Unavailable", self)
        self._ended()

    def _end(self, record: Record) -> None:
        if self.running is not record:
            return  # cancelled while its node was paused
        world = self.node.world
        self.running = None
        handled = self.handled.get(record.key, 0)
        world.history.turn_ended(record, self.generation, handled, world.clock.now)
        self.handled[record.key] = handled + 1
        if record.request:
            self.node.requests.reply(record, self)
        if world.sessions and record.key == self.key:
            self.node.turn_ended(self, handled)
        self._ended()

    def _ended(self) -> None:
        boundaries, self.boundaries = self.boundaries, []
        for reached in boundaries:
            reached()
        if self.on_turn_end is not None:
            then, self.on_turn_end = self.on_turn_end, None
            then()
        else:
            self.start_next()
