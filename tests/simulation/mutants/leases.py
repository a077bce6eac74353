"""Leases, permits, credit and replies: what a run may do when, and what it owes."""

from __future__ import annotations

from typing import Any

from sojourn.handoff import effects as fx
from sojourn.handoff import target_states as ts
from sojourn.handoff.terms import FAILURE_DATA_LOST

from tests.simulation.mutants.planting import CALM, QUIET_STORE, carrier, mutant, nothing, target
from tests.simulation.source_driver import SourceDriver
from tests.simulation.world import World

__all__: list[str] = []


@mutant("a turn starts past the admission deadline", "B6.4", 30, lease_cuts=0.6, send_every_s=0.03)
def _plant(world: World) -> None:
    world.ignores_admission = True


@mutant("a lease is put without the condition that it is missing", "B6.4", 60, pauses=0.6, send_every_s=0.03)
def _plant(world: World) -> None:
    world.blind_leases = True


@mutant("objects are not read again after the lease was over", "B6.4", 60, pauses=0.6, send_every_s=0.03)
def _plant(world: World) -> None:
    world.rechecks = False


@mutant(
    "the admission deadline counts from the answer to the renewal",
    "B6.4",
    120,
    {"slow": 0.2, "delay_s": 0.004},
    lease_cuts=0.5,
)
def _plant(world: World) -> None:
    world.deadline_from_answer = True


@mutant(
    "the store is changed past the admission deadline",
    "B6.4",
    40,
    lease_cuts=0.6,
    survives="every write names the version it read, so a takeover makes it conflict; kept as the second lock",
)
def _plant(world: World) -> None:
    world.writes_unadmitted = True


def _suspect(world: World) -> None:
    world.suspects_unreachable = True


@mutant(
    "an id is taken over without the condition that its owner's lease is missing, by a node that takes whom it cannot reach for dead",
    "B6.6",
    60,
    QUIET_STORE,
    beside=_suspect,
    **{**CALM, "cuts": 2.0},
    send_every_s=0.03,
)
def _plant(world: World) -> None:
    world.takes_over_blindly = True


@mutant(
    "an id is taken over without the condition that its owner's lease is missing",
    "B6.6",
    40,
    {"slow": 0.12, "delay_s": 0.01, "unavailable": 0.0, "lost_before": 0.0, "lost_after": 0.0},
    lease_cuts=2.0,
    nodes=3,
    keys=5,
    move_every_s=0.2,
    send_every_s=0.008,
    survives="alone: the lease is read right before the write, and would have to be put again while the write is on its way",
)
def _plant(world: World) -> None:
    world.takes_over_blindly = True


# permits and credit


@mutant("the permit of a captured record is returned twice", "B5.1", 3, send_every_s=0.008)
def _plant(world: World) -> None:
    def twice(self: Any) -> None:
        for permit in self.permits.values():
            permit.give_back()

    kind = type("MutantSourceDriver", (SourceDriver,), {"return_permits": twice})
    world.source_driver = kind


@mutant("the permits of captured records go back at the capture", "B5.1", 3, send_every_s=0.008)
def _plant(world: World) -> None:
    def early(self: Any, effect: fx.SendRestore) -> None:
        self.return_permits()
        SourceDriver._send_restore(self, effect)

    carrier(world, "source_driver", fx.SendRestore, early)


@mutant("a backlog takes the permits of all its turns at once", "R4.6.3", 10, max_jobs=2, send_every_s=0.008)
def _plant(world: World) -> None:
    world.whole_backlog = True


@mutant("records that are held or sent on keep their credit", "B5.2", 10, credit=6, send_every_s=0.03)
def _plant(world: World) -> None:
    world.keeps_credit = True


@mutant(
    "a relay-ready overtakes the target's own records that wait for credit",
    "B9.4",
    60,
    credit=2,
    send_every_s=0.03,
    burst=1.0,
    link_delay_s=0.005,
)
def _plant(world: World) -> None:
    world.forgets_queued = True


@mutant(
    "records sent straight to a later owner are forgotten when that connection breaks",
    "R10.1",
    120,
    cuts=3.0,
    chain=1.0,
    pauses=0.6,
    credit=6,
    send_every_s=0.008,
)
def _plant(world: World) -> None:
    world.forgets_later_owner = True


@mutant(
    "follow frames that no connection took go back to every handoff of the object",
    "R10.1",
    60,
    cuts=3.0,
    chain=1.0,
    nodes=3,
    credit=6,
    send_every_s=0.008,
)
def _plant(world: World) -> None:
    world.shares_follow_frames = True


# replies


@mutant(
    "requests of the captured queue are failed when the source's dispatch ends", "R5.2", 3, send_every_s=0.008
)
def _plant(world: World) -> None:
    def fail(self: Any, effect: fx.EndDispatch) -> None:
        SourceDriver._end_dispatch(self, effect)
        for record in self.payload.saved:
            if record.request:
                self.node.fail(record, "ShuttingDown")

    carrier(world, "source_driver", fx.EndDispatch, fail)


@mutant("a late reply ends a request a second time", "B3.1", 60, kills=0.3, cuts=2.0, pauses=0.5)
def _plant(world: World) -> None:
    world.late_replies_count = True


@mutant(
    "a reply that no connection took is dropped with the connection", "B3.1", 30, cuts=3.0, send_every_s=0.008
)
def _plant(world: World) -> None:
    world.forgets_replies = True


# the same identity with another payload


@mutant("an assembly lives on after a conflict failure", "R4.3.3", 20, conflicts=0.3, capture_s=0.005)
def _plant(world: World) -> None:
    def on(self: Any, state: ts.Staged) -> None:
        if state.connection is not None:
            self._do(fx.SendRelocationFailed(state.connection, FAILURE_DATA_LOST))

    target(world, _conflict=on, _withdrawn=nothing)
