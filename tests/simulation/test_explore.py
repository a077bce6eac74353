"""Every interleaving of one handoff with one fault; `make explore` walks those with two."""

from __future__ import annotations

import pytest
from sojourn.handoff import events as ev
from sojourn.handoff.machine import DeadlineReached, Event, Machine

from tests.machines.outside import outside_events
from tests.simulation.explore import explore
from tests.simulation.explored_effects import MANIFEST
from tests.simulation.explored_model import LINE, SINGLE, UNIT, Model, Unit
from tests.simulation.explored_states import clone_machine, picture
from tests.simulation.history import Violation
from tests.simulation.mutants.explored import EXPLORED, Planted

CONNECTIONS = (1, 2, 9)
OUTSIDE_SAMPLES: dict[type[Event], list[Event]] = {
    ev.RelayReadyReceived: [ev.RelayReadyReceived(number) for number in CONNECTIONS],
    ev.RelocationFailedReceived: [ev.RelocationFailedReceived(17, number) for number in CONNECTIONS],
    ev.CommitTold: [ev.CommitTold()],
    ev.RecordArrived: [ev.RecordArrived("new0")],
    ev.LinkLost: [ev.LinkLost(number) for number in CONNECTIONS],
    ev.LinkRestored: [ev.LinkRestored(9)],
    ev.TargetRunGone: [ev.TargetRunGone()],
    ev.CancelRequested: [ev.CancelRequested()],
    ev.WorkerLost: [ev.WorkerLost()],
    ev.RestoreRequested: [
        ev.RestoreRequested(manifest, number)
        for manifest in (MANIFEST, MANIFEST._replace(checksum=7), MANIFEST._replace(chunk_count=0))
        for number in CONNECTIONS
    ],
    ev.ChunkArrived: [
        ev.ChunkArrived(ordinal, data, 1) for ordinal in (0, 1, 99) for data in (b"data", b"", b"long data")
    ],
    ev.RelayArrived: [ev.RelayArrived("new0", number) for number in CONNECTIONS],
    ev.CutoverArrived: [ev.CutoverArrived(count, 0, number) for count in (0, 1) for number in CONNECTIONS],
    ev.WithdrawnReceived: [ev.WithdrawnReceived()],
    ev.FollowArrived: [ev.FollowArrived("new0", 1)],
    ev.DirectArrived: [ev.DirectArrived("new0")],
    ev.RestoreFailed: [ev.RestoreFailed("worker gone")],
    DeadlineReached: [DeadlineReached()],
}


@pytest.mark.parametrize("unit", [SINGLE, UNIT, LINE], ids=["single", "unit", "line"])
def test_no_interleaving_with_one_fault_breaks_a_promise(unit: Unit) -> None:
    met: dict[object, tuple[Machine, float]] = {}

    def meet(here: Model) -> None:
        for who, machine in here.machines.items():
            if who not in here.dead:
                met.setdefault((who, picture(machine, here.now)), (machine, here.now))

    walk = explore(1, unit, visit=meet)
    print(f"{walk.states:,} states, {walk.ends:,} ends")
    assert walk.whole
    assert walk.states > 15_000
    assert walk.ends > 100
    assert len(met) > 500
    for machine, now in met.values():
        for event in outside_events(machine, OUTSIDE_SAMPLES):
            clone_machine(machine).handle(event, now)  # nothing from outside is ever refused


@pytest.mark.parametrize(
    ("faults", "only"),
    [(2, ("cut",)), (2, ("time",)), (2, ("row", "the caller"))],
    ids=["cuts", "timers", "foreign writers and a cancellation"],
)
def test_nor_does_one_with_more_faults_of_a_kind(faults: int, only: tuple[str, ...]) -> None:
    walk = explore(faults, UNIT, model=type("Narrowed", (Model,), {"only": only}))
    assert walk.whole
    assert walk.states > 10_000


@pytest.mark.parametrize("planted", EXPLORED, ids=lambda planted: planted.name)
def test_a_planted_bug_is_found(planted: Planted) -> None:
    """A checker that cannot fail proves nothing."""
    with pytest.raises(Violation, match=planted.seen):
        explore(planted.faults, planted.unit, 50.0, planted.model)


def test_a_story_tells_every_step_from_the_beginning() -> None:
    planted = next(each for each in EXPLORED if each.name == "an unknown outcome is taken for success")
    with pytest.raises(Violation) as caught:
        explore(planted.faults, planted.unit, 50.0, planted.model)
    steps = str(caught.value).splitlines()[1:]
    assert steps[0] == "begin"
    assert any(step.startswith("T does not hear of its write owner") for step in steps)
