"""The CAS of the target, and how the source learns of it."""

from __future__ import annotations

from typing import Any

from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff import target_states as ts
from sojourn.handoff.target import TargetHandoff
from sojourn.handoff.terms import RowFacts

from tests.simulation.mutants.planting import (
    CANCELS,
    LATE_READS,
    UNKNOWN,
    carrier,
    mutant,
    nothing,
    source,
    target,
)
from tests.simulation.target_driver import TargetDriver
from tests.simulation.world import World

__all__: list[str] = []


# the CAS


@mutant("the CAS is tried again on the version that the target read itself", "R4.5.1", 60, **CANCELS)
def _plant(world: World) -> None:
    checked = TargetHandoff._checked

    def again(self: Any, state: Any, event: ev.RowRead, now: float) -> None:
        row = event.row
        if (
            row is not None
            and row.version != self.plan.identity.expected_version
            and row.owner != self.plan.target
        ):
            self._do(fx.WriteOwner(row.version, state.owner_generation))
            self.state = state.into(ts.OwnerWriting)
        else:
            checked(self, state, event, now)

    target(world, _checked=again, _withdrawn=nothing)


@mutant("the CAS compares the owner's name instead of the row version", "B6.5", 60, **CANCELS)
def _plant(world: World) -> None:
    def by_name(self: Any, effect: fx.WriteOwner) -> None:
        row = world.store.rows[self.key]
        version = row.version if row.owner == self.identity.source else effect.expected_version
        TargetDriver._write_owner(self, fx.WriteOwner(version, effect.owner_generation))

    carrier(world, "target_driver", fx.WriteOwner, by_name)
    target(world, _withdrawn=nothing)


@mutant("a conflict is not read again", "B6.5", 60, UNKNOWN)
def _plant(world: World) -> None:
    def stale(self: Any, state: Any, event: Any, now: float) -> None:
        self._remove(state, "conflict", None, fx.DirectDisposal.FAIL)

    target(world, {(ts.OwnerWriting, ev.OwnerWriteConflicted): stale})


@mutant("an unknown outcome is taken for a failure", "R4.5.2", 20, UNKNOWN)
def _plant(world: World) -> None:
    def give_up(self: Any, state: Any, event: Any, now: float) -> None:
        self._remove(state, "unknown", None, fx.DirectDisposal.FAIL)

    target(world, {(ts.OwnerWriting, ev.OwnerWriteUnknown): give_up})


@mutant("an unknown outcome is taken for success", "R4.5.2", 20, UNKNOWN)
def _plant(world: World) -> None:
    def hope(self: Any, state: Any, event: Any, now: float) -> None:
        self._open(state)

    target(world, {(ts.OwnerWriting, ev.OwnerWriteUnknown): hope})


@mutant("dispatch opens before the CAS", "R4.5.1", 3)
def _plant(world: World) -> None:
    write = TargetHandoff._write

    def early(self: Any, state: Any) -> None:
        if world.store.rows[self.plan.key].version == self.plan.identity.expected_version:
            self._open(state)
            self._do(fx.WriteOwner(self.plan.identity.expected_version, state.owner_generation))
        else:
            write(self, state)

    target(
        world,
        {
            (s, e): nothing
            for s in (ts.Opening, ts.TargetOpen)
            for e in (ev.OwnerWritten, ev.OwnerWriteConflicted, ev.OwnerWriteUnknown, ev.OwnerWriteFailed)
        },
        _write=early,
    )


@mutant("the owner generation is written without adding one", "B1.3", 3)
def _plant(world: World) -> None:
    def same(self: Any, effect: fx.WriteOwner) -> None:
        TargetDriver._write_owner(self, fx.WriteOwner(effect.expected_version, effect.owner_generation - 1))

    carrier(world, "target_driver", fx.WriteOwner, same)


@mutant(
    "a commit is recognised at the source only under its RelocationId",
    "B8.10",
    40,
    options=LATE_READS,
    cancels=0.9,
    chain=1.0,
    move_every_s=0.03,
)
def _plant(world: World) -> None:
    def by_id(self: Any, row: RowFacts | None) -> bool:
        if row is None or row.object_generation != self.plan.object_generation:
            return False
        ahead = row.owner_generation - self.plan.owner_generation
        return ahead > 1 or (ahead == 1 and row.relocation_id == self.plan.identity.relocation_id)

    source(world, _committed=by_id)
