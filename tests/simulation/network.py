"""Links of the simulation: one live connection per pair of runs, in order, cut at any frame.

A frame passes from the sender's outbound queue into the transport ("handed"), and from there to the
receiver. A cut gives back what was never handed, delivers some prefix of what was, and loses the rest; each
end notices in its own time, after it read to the end. A new connection comes after both noticed (B8.13).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from tests.simulation.clock import Clock

if TYPE_CHECKING:
    from tests.simulation.node import Node

__all__ = ["Connection", "Network"]


class Pipe:
    """One direction of a connection."""

    __slots__ = (
        "blocked",
        "credit",
        "flushing",
        "last_at",
        "outbound",
        "owed",
        "pumping",
        "receiver",
        "sender",
        "wire",
    )

    def __init__(self, sender: Node, receiver: Node, credit: int) -> None:
        self.credit = credit
        """How many more records may go; `owed` is what the receiver has not yet given back of it (B5.2)."""
        self.owed = 0
        self.blocked: deque[tuple[Any, ...]] = deque()
        """Records, in order, that wait for credit. What needs none overtakes them."""
        self.sender = sender
        self.receiver = receiver
        self.outbound: deque[tuple[Any, ...]] = deque()
        self.wire: deque[tuple[float, tuple[Any, ...]]] = deque()
        self.flushing = False
        self.pumping = False
        self.last_at = 0.0

    def take_back(self) -> list[tuple[Any, ...]]:
        """What was never handed to the transport, in order."""
        unsent = [*self.outbound, *self.blocked]
        self.outbound.clear()
        self.blocked.clear()
        return unsent


class Connection:
    """A connection between two runs. `open` at either end turns False when that end notices a cut."""

    __slots__ = ("cut", "number", "pipes", "since")

    def __init__(self, number: int, first: Node, second: Node, credit: int) -> None:
        self.number = number
        self.since = first.world.clock.now
        self.cut = False
        self.pipes = {first.run: Pipe(first, second, credit), second.run: Pipe(second, first, credit)}

    def other(self, node: Node) -> Node:
        return self.pipes[node.run].receiver


class Network:
    """All connections, and the delays of this run."""

    def __init__(self, clock: Clock, delay_s: float, hand_delay_s: float, credit: int) -> None:
        self._clock = clock
        self._delay_s = delay_s
        self._hand_delay_s = hand_delay_s
        self._credit = credit
        self.connections: dict[int, Connection] = {}
        self.corrupt = 0.0
        """Chance that a chunk arrives with a changed byte."""
        self.waited_max_s = 0.0
        """The longest that a record waited for credit: more is sent than a connection takes."""
        self._number = 0

    def connect(self, first: Node, second: Node) -> None:
        self._number += 1
        connection = Connection(self._number, first, second, self._credit)
        self.connections[connection.number] = connection
        first.link_up(connection, second)
        second.link_up(connection, first)

    def send(self, connection: Connection, sender: Node, frame: tuple[Any, ...]) -> None:
        pipe = connection.pipes[sender.run]
        if frame[0] == "record":
            needs = frame[1].marker is None
            if pipe.blocked or (needs and not pipe.credit):
                pipe.blocked.append(frame)
                frame[1].queued_at = self._clock.now
                return
            if needs:
                pipe.credit -= 1
        self._send(connection, pipe, frame)

    def give_credit(self, connection: Connection, receiver: Node) -> None:
        """A record that came here is somebody's now: its credit goes back, in batches."""
        pipe = connection.pipes[connection.other(receiver).run]
        pipe.owed += 1
        if pipe.owed * 2 >= self._credit and not connection.cut:
            self.send(connection, receiver, ("credit", pipe.owed))
            pipe.owed = 0

    def credit_arrived(self, connection: Connection, sender: Node, count: int) -> None:
        pipe = connection.pipes[sender.run]
        pipe.credit += count
        blocked = pipe.blocked
        while blocked:
            needs = blocked[0][1].marker is None
            if needs and not pipe.credit:
                return
            if needs:
                pipe.credit -= 1
            self.waited_max_s = max(self.waited_max_s, self._clock.now - blocked[0][1].queued_at)
            self._send(connection, pipe, blocked.popleft())

    def _send(self, connection: Connection, pipe: Pipe, frame: tuple[Any, ...]) -> None:
        pipe.outbound.append(frame)
        if not pipe.flushing and not connection.cut:
            pipe.flushing = True
            self._clock.after(self._hand_delay_s * self._clock.random.random(), self._flush, connection, pipe)

    def _flush(self, connection: Connection, pipe: Pipe) -> None:
        pipe.flushing = False
        if connection.cut:
            return
        random = self._clock.random
        outbound, wire = pipe.outbound, pipe.wire
        count = len(outbound) if random.random() < 0.7 else random.randint(1, max(1, len(outbound)))
        at = max(pipe.last_at, self._clock.now + self._delay_s * (0.3 + random.random()))
        for _ in range(min(count, len(outbound))):
            frame = outbound.popleft()
            wire.append((at, frame))
            if frame[0] == "cutover":
                pipe.sender.step(pipe.sender.cutover_handed, frame[1], connection.number)
        pipe.last_at = at
        if outbound:
            pipe.flushing = True
            self._clock.after(self._hand_delay_s, self._flush, connection, pipe)
        if not pipe.pumping and wire:
            pipe.pumping = True
            self._clock.at(wire[0][0], self._pump, connection, pipe)

    def _pump(self, connection: Connection, pipe: Pipe) -> None:
        pipe.pumping = False
        wire, now = pipe.wire, self._clock.now
        while wire and wire[0][0] <= now:
            _, frame = wire.popleft()
            if not pipe.receiver.alive:
                pipe.sender.world.frames_lost([frame])
            pipe.receiver.step(pipe.receiver.frame_arrived, connection, frame)
        if wire and not pipe.pumping:
            pipe.pumping = True
            self._clock.at(wire[0][0], self._pump, connection, pipe)

    def stall(self, connection: Connection, length_s: float) -> None:
        """One direction delivers nothing new for a while; order stays."""
        pipe = self._clock.random.choice(list(connection.pipes.values()))
        pipe.last_at = max(pipe.last_at, self._clock.now + length_s)

    def cut(self, connection: Connection, reconnect_after_s: float | None) -> None:
        """Break it now. `reconnect_after_s` None: somebody else reconnects (heal, restart)."""
        if connection.cut:
            return
        connection.cut = True
        self.connections.pop(connection.number, None)
        random = self._clock.random
        noticed = self._clock.now
        for pipe in connection.pipes.values():
            frames = [frame for _, frame in pipe.wire]
            pipe.wire.clear()
            keep = random.randint(0, len(frames)) if pipe.receiver.alive else 0
            lost = frames[keep:]
            at = self._clock.now + self._delay_s * random.random()
            for frame in frames[:keep]:
                self._clock.at(at, pipe.receiver.step, pipe.receiver.frame_arrived, connection, frame)
            pipe.sender.world.frames_lost(lost)
            slow = 0.2 if random.random() < 0.2 else 0.002
            at += slow * random.random()
            noticed = max(noticed, at)
            self._clock.at(at, pipe.receiver.step, pipe.receiver.link_down, connection)
        first, second = (pipe.sender for pipe in connection.pipes.values())
        if reconnect_after_s is not None:
            self._clock.at(noticed + reconnect_after_s, first.world.reconnect, first, second)
