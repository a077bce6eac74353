"""What goes wrong: cuts, stalls, pauses, deaths and restarts, a store that is away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.ids import NodeRun

from tests.simulation.node import Node

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["Faults"]


class Faults:
    """Draws the faults of one world at the rates of its mix."""

    def __init__(self, world: World) -> None:
        self.world = world

    def start(self) -> None:
        mix = self.world.mix
        for rate, fault in (
            (mix.cuts, self._cut),
            (mix.stalls, self._stall),
            (mix.pauses, self._pause),
            (mix.kills, self._kill),
            (mix.store_outages, self._store_outage),
            (mix.touches, self._touch),
            (mix.lease_cuts, self._lease_cut),
        ):
            if rate:
                self._fault_later(rate, fault)

    def _fault_later(self, rate: float, fault: Any) -> None:
        self.world.clock.after(self.world.clock.random.expovariate(rate), self._fault, rate, fault)

    def _fault(self, rate: float, fault: Any) -> None:
        if self.world.chaos:
            fault()
            self._fault_later(rate, fault)

    def _cut(self) -> None:
        connections = list(self.world.network.connections.values())
        if connections:
            self.world.history.disturb(self.world.clock.now)
            random = self.world.clock.random
            away = random.choice((0.001, 0.05, 0.5, 2.0))
            self.world.network.cut(random.choice(connections), away * random.random())

    def _stall(self) -> None:
        connections = list(self.world.network.connections.values())
        if connections:
            random = self.world.clock.random
            self.world.network.stall(
                random.choice(connections), random.choice((0.02, 0.2, 1.5)) * random.random()
            )

    def _pause(self) -> None:
        node = self.world.clock.random.choice(self.world.nodes)
        if node.alive and not node.paused:
            self.world.history.disturb(self.world.clock.now)
            node.paused = True
            length = self.world.clock.random.choice((0.05, 0.5, 2.0, 2.0, 4.5))
            self.world.clock.after(length, self._resume, node)

    def _resume(self, node: Node) -> None:
        if node.alive and node.paused:
            self.world.history.disturb(self.world.clock.now)
            node.resume()

    def _kill(self) -> None:
        alive = [node for node in self.world.nodes if node.alive]
        if len(alive) < 3:
            return
        node = self.world.clock.random.choice(alive)
        self.kill(node)
        self.world.clock.after(self.world.clock.random.uniform(0.5, 5.0), self.restart, node.run)

    def kill(self, node: Node) -> None:
        """The process of this run dies; its lease runs on until its end."""
        self.world.history.disturb(self.world.clock.now)
        node.alive = False
        self.world.dead.add(node.run)
        node.bury()
        for connection in list(self.world.network.connections.values()):
            if node.run in connection.pipes:
                self.world.network.cut(connection, None)

    def restart(self, run: NodeRun) -> None:
        """The node of this dead run starts again: the same RID, the next generation."""
        for index, node in enumerate(self.world.nodes):
            if node.run == run:
                new = Node(self.world, NodeRun(run.rid, run.generation + 1))
                self.world.nodes[index] = new
                new.lease.step()
                new.watch()
                self._join(new)

    def _join(self, node: Node) -> None:
        """A run shows itself to others once its lease stands."""
        if node.alive and not node.admits():
            self.world.clock.after(0.05, self._join, node)
            return
        for other in self.world.nodes:
            if other is not node and other.alive and other.run not in node.links:
                self.world.network.connect(node, other)

    def _lease_cut(self) -> None:
        """Long enough that the admission deadline passes, sometimes so long that the lease ends."""
        node = self.world.clock.random.choice(self.world.nodes)
        if node.alive:
            self.world.history.disturb(self.world.clock.now)
            node.lease.cut_until = self.world.clock.now + self.world.clock.random.uniform(0.5, 4.5)

    def _store_outage(self) -> None:
        self.world.store.down = True
        self.world.clock.after(
            self.world.clock.random.choice((0.1, 1.0, 6.0)) * self.world.clock.random.random(),
            self._store_back,
        )

    def _touch(self) -> None:
        """Somebody rewrites a member's row: a write over the unit has to be rebuilt (B6.5)."""
        members = [member for unit in self.world.store.members.values() for member in unit]
        if members:
            self.world.store.touch(self.world.clock.random.choice(members))

    def _store_back(self) -> None:
        self.world.store.down = False
