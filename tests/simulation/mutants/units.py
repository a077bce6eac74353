"""Planted bugs of units of several participants."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff import target_states as ts
from sojourn.handoff.terms import DirectDisposal, HandoffOptions, RowFacts

from tests.simulation.mutants.planting import CANCELS, UNKNOWN, carrier, mutant, source, target
from tests.simulation.source_driver import SourceDriver
from tests.simulation.store import participant
from tests.simulation.target_driver import TargetDriver
from tests.simulation.world import World

ROOM = {"members": 2, "touches": 30.0}


@mutant("a participant's row is left out of the CAS", "R3.3", 3, **ROOM)
def _plant(world: World) -> None:
    def write(self: Any, effect: fx.WriteOwner) -> None:
        short = fx.WriteOwner(effect.expected_version, effect.owner_generation, effect.others[:-1])
        TargetDriver._write_owner(self, short)

    carrier(world, "target_driver", fx.WriteOwner, write)


@mutant("a fence leaves the members' rows out", "B6.7", 20, **CANCELS, **ROOM)
def _plant(world: World) -> None:
    carrier(world, "source_driver", fx.WriteFence, lambda self, _: _fence_alone(self))


def _fence_alone(driver: Any) -> None:
    SourceDriver._write_fence(driver, fx.WriteFence())


@mutant("a lost mark leaves the members' rows out", "B6.8", 60, cuts=2.0, kills=0.5, **ROOM)
def _plant(world: World) -> None:
    def mark(self: Any, effect: fx.MarkLost) -> None:
        SourceDriver._mark_lost(self, fx.MarkLost(effect.version))

    carrier(world, "source_driver", fx.MarkLost, mark)


@mutant("a fence is tried again under the members' versions as first read", "B6.7", 20, **CANCELS, **ROOM)
def _plant(world: World) -> None:
    def write(self: Any, state: Any) -> None:
        self._do(fx.WriteFence(self._our_rows(self.plan.others)))
        self.state = state

    source(world, _write_fence=write)


@mutant("another row that changed ends the attempt", "B6.5", 20, **ROOM)
def _plant(world: World) -> None:
    def end(self: Any, state: Any, others: Any, now: float) -> None:
        if others != state.others:
            self._remove(state, "another row changed", None, DirectDisposal.FAIL)
        else:
            self._pause_store(state, now, read_first=False)

    target(world, _write_again=end)


FENCED_UNHEARD = {
    "cancels": 0.5,
    "stalls": 3.0,
    "cuts": 1.0,
    "options": HandoffOptions(
        cutover_wait_s=0.2,
        commit_reserve_s=4.0,
        follow_duration_s=12.0,
        sweep_s=2.0,
        ended_memory_s=10.0,
        retry_max_s=0.2,
    ),
}
"""A target that is fenced, is not told in time, and writes since its wait for the cutover is over."""


@mutant(
    "a rebuilt write takes the own row's version from the same reading",
    "R4.5.1",
    30,
    **ROOM,
    **FENCED_UNHEARD,
)
def _plant(world: World) -> None:
    def write(self: Any, effect: fx.WriteOwner) -> None:
        version = getattr(self, "seen", effect.expected_version)
        TargetDriver._write_owner(self, fx.WriteOwner(version, effect.owner_generation, effect.others))

    def checked(self: Any, state: Any, event: ev.RowRead, now: float) -> None:
        row = event.row
        if row is not None and row.owner == self.plan.identity.source and not row.lost:
            driver = next(
                driver
                for node in world.nodes
                for driver in node.targets.values()
                if driver.identity == self.plan.identity
            )
            driver.seen = row.version  # type: ignore[attr-defined]
            state.others = row.others
            self._write(state)
        else:
            base(self, state, event, now)

    base = world.target_class._checked
    target(world, {(ts.OwnerChecking, ev.RowRead): checked})
    carrier(world, "target_driver", fx.WriteOwner, write)


@mutant("the own row is read before the others", "B6.5", 60, store=UNKNOWN, members=3, touches=0.0)
def _plant(world: World) -> None:
    store = world.store

    def read_others(key: bytes, row: RowFacts, reply: Callable[..., None]) -> None:
        others = tuple(participant(each, store.rows[each]) for each in store.members[key])
        world.clock.after(store._way(), reply, True, row._replace(others=others))

    def read_now(key: bytes, reply: Callable[..., None]) -> None:
        if key in store.members:
            world.clock.after(store._way(), partial(read_others, key, store.rows[key], reply))
        else:
            world.clock.after(store._way(), reply, True, store.rows.get(key))

    store._read_now = read_now  # type: ignore[method-assign]


@mutant("members are not staged with their Spot", "B8.14", 20, **ROOM)
def _plant(world: World) -> None:
    def late(self: Any, effect: fx.StageParticipants) -> None:
        self.keys = (self.key, *effect.keys)

    carrier(world, "target_driver", fx.StageParticipants, late)


@mutant("each participant gets its backlog by itself", "R4.6.1", 20, members=2, send_every_s=0.008)
def _plant(world: World) -> None:
    def opened(self: Any, effect: fx.OpenDispatch) -> None:
        def by_key(records: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(sorted(records, key=lambda record: record.key))

        TargetDriver._open(self, fx.OpenDispatch(by_key(effect.relay), by_key(effect.queue)))

    carrier(world, "target_driver", fx.OpenDispatch, opened)
