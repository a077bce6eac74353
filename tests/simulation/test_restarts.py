"""A node that dies and is started again: the same RID, a new run, while the lease of the former one still stands."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from tests.simulation.drills import mix_of
from tests.simulation.faults import Faults
from tests.simulation.mix import PLAIN, draw_mix
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.planting import CALM
from tests.simulation.node import Node
from tests.simulation.store import StoreFaults
from tests.simulation.world import World

KEY = b"s0"
KILLED_S = 1.0
RESTARTED_S = 3.2
STORE_BACK_S = 3.3
LEASE_STANDS_S = 3.75
"""The lease was renewed for 3 s at about 0.8."""


class Restart:
    """Kills the owner of the object, and starts it again while the store is away: the first scan of leases fails.

    The next scan comes when the lease of the former run is over, so that the new run never sees it; what it sends
    between the two finds the former run in the row, and its lease standing.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.faults = Faults(world)
        self.waited = 0
        clock = world.clock
        clock.at(KILLED_S, self._kill)
        clock.at(RESTARTED_S, self._restart)
        clock.at(STORE_BACK_S, self._store_back)
        clock.at(LEASE_STANDS_S, self._look)

    def _kill(self) -> None:
        self.former = self.world.store.rows[KEY].owner
        self.faults.kill(next(node for node in self.world.nodes if node.run == self.former))

    def _restart(self) -> None:
        self.world.store.down = True
        self.faults.restart(self.former)

    def _store_back(self) -> None:
        self.world.store.down = False

    def _look(self) -> None:
        assert self.world.store.leased(self.former)
        assert self.former not in self.node.seen
        self.waited = len(self.node.outbox[self.former])

    @property
    def node(self) -> Node:
        return next(node for node in self.world.nodes if node.run.rid == self.former.rid)


def test_what_waits_for_the_former_run_of_the_own_node_ends() -> None:
    """No record waits for ever for a run that nobody saw with a lease, least of all one's own former one (B3.4)."""
    plain: dict[str, Any] = {
        **CALM,
        "kills": 1e-9,
        "members": 0,
        "touches": 0.0,
        "sessions": 0,
        "long_turns": 0.0,
    }
    mix = replace(
        replace(draw_mix(Random(29)), **PLAIN),
        **plain,
        store=StoreFaults(),
        nodes=3,
        keys=1,
        send_every_s=0.02,
        move_every_s=1e9,
    )
    world = World(29, mix)
    restart = Restart(world)
    world.play()
    assert restart.waited
    assert not restart.node.outbox
    assert world.history.counts["failed: Unavailable"] >= restart.waited
    assert world.history.counts["reborn"] == 1


def test_the_seed_that_showed_it() -> None:
    """Of the drill of B6.8, without its planted bug: cuts, deaths, and a store that is often away."""
    (drilled,) = [mutant for mutant in MUTANTS if mutant.name == "lost objects are never marked"]
    World(29, mix_of(drilled, 29)).play()
