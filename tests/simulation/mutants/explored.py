"""Planted bugs for the walk over every interleaving: each is a world of its own that the walk must not survive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff import source_states as ss
from sojourn.handoff import target_states as ts
from sojourn.handoff.machine import Event
from sojourn.handoff.source import SourceHandoff
from sojourn.handoff.target import TargetHandoff
from sojourn.handoff.terms import DirectDisposal, RowFacts

from tests.simulation.explored_model import LINE, SINGLE, UNIT, Model, Unit
from tests.simulation.explored_store import Call
from tests.simulation.mutants.planting import changed, nothing

__all__ = ["EXPLORED", "Planted"]


class Planted(NamedTuple):
    """A bug, the rule it breaks, the world that shows it, and what is seen."""

    name: str
    rule: str
    unit: Unit
    model: type[Model]
    seen: str
    faults: int = 1


EXPLORED: list[Planted] = []


def planted(
    name: str, rule: str, unit: Unit, seen: str, faults: int = 1, only: tuple[str, ...] = ()
) -> Callable[[Callable[[], dict[str, Any]]], Callable[[], dict[str, Any]]]:
    """`only`: the faults that are needed to see it, by how they begin; all where it is left out."""

    def register(members: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
        model = type("Planted", (Model,), {**members(), "only": only})
        EXPLORED.append(Planted(name, rule, unit, model, seen, faults))
        return members

    return register


def source(cells: dict[Any, Any] | None = None, **members: Any) -> dict[str, Any]:
    return {"source_class": changed(SourceHandoff, cells or {}, **members)}


def target(cells: dict[Any, Any] | None = None, **members: Any) -> dict[str, Any]:
    return {"target_class": changed(TargetHandoff, cells or {}, **members)}


# one participant


@planted("a cancellation restores the source without a fence", "B6.7", SINGLE, "opens while|while S runs")
def _bare() -> dict[str, Any]:
    def bare(self: Any, state: Any, reason: Any) -> None:
        self._restore(state.hold, reason, captured=True)

    return source(_fence=bare)


@planted("a conflict is not read again", "B6.5", SINGLE, "drops what it owns", 2, ("T does", "the caller"))
def _stale() -> dict[str, Any]:
    def stale(self: Any, state: Any, event: Any, now: float) -> None:
        self._remove(state, "conflict", None, DirectDisposal.FAIL)

    return target({(ts.OwnerWriting, ev.OwnerWriteConflicted): stale})


@planted("an unknown outcome is taken for a failure", "R4.5.2", SINGLE, "drops what it owns|may cost")
def _give_up() -> dict[str, Any]:
    def give_up(self: Any, state: Any, event: Any, now: float) -> None:
        self._remove(state, "unknown", None, DirectDisposal.FAIL)

    return target({(ts.OwnerWriting, ev.OwnerWriteUnknown): give_up})


@planted("an unknown outcome is taken for success", "R4.5.2", SINGLE, "opens without owning")
def _hope() -> dict[str, Any]:
    def hope(self: Any, state: Any, event: Any, now: float) -> None:
        self._open(state)

    return target({(ts.OwnerWriting, ev.OwnerWriteUnknown): hope})


@planted(
    "an unknown fence outcome is taken for success",
    "B6.7",
    SINGLE,
    "while S runs",
    2,
    ("S does", "the caller"),
)
def _guess() -> dict[str, Any]:
    def guess(self: Any, state: Any, event: Event, now: float) -> None:
        self._restore_fenced(state)

    return {
        **source({(ss.FenceWriting, ev.FenceUnknown): guess}),
        **target(_withdrawn=nothing),
    }


@planted(
    "the CAS is tried again on the version that the target read itself", "R4.5.1", SINGLE, "while S runs"
)
def _own_version() -> dict[str, Any]:
    checked = TargetHandoff._checked

    def again(self: Any, state: Any, event: ev.RowRead, now: float) -> None:
        row = event.row
        fence = self.plan.identity.expected_version
        if row is not None and row.version != fence and row.owner != self.plan.target:
            self._do(fx.WriteOwner(row.version, state.owner_generation))
            self.state = state.into(ts.OwnerWriting)
        else:
            checked(self, state, event, now)

    return target(_checked=again, _withdrawn=nothing)


@planted("the source is restored when the link breaks behind the boundary", "R4.4.2", SINGLE, "boundary")
def _reopen() -> dict[str, Any]:
    def reopen(self: Any, state: Any, event: ev.LinkLost, now: float) -> None:
        self._do(fx.RestoreDispatch((), True))

    return source({(ss.CommitAwaited, ev.LinkLost): reopen})


@planted("a batch resent after the boundary was settled is appended", "B8.4", SINGLE, "after it was")
def _append() -> dict[str, Any]:
    def append(self: Any, state: Any, event: ev.RelayArrived, now: float) -> None:
        self._do(fx.DeliverRecords((event.record,)))

    return target({(ts.TargetOpen, ev.RelayArrived): append})


@planted("follow records that no connection took are dropped with it", "R4.4.3", SINGLE, "vanished")
def _forget() -> dict[str, Any]:
    take_back = SourceHandoff._take_back

    def forget(self: Any, state: Any, event: ev.LinkLost) -> None:
        take_back(self, state, ev.LinkLost(event.connection, event.boundary_handed))

    return source(_take_back=forget)


@planted(
    "relay-ready of an older connection is taken for the boundary",
    "B8.6",
    SINGLE,
    "is stuck",
    2,
    ("cut", "ready"),
)
def _any_connection() -> dict[str, Any]:
    accept = SourceHandoff._accept

    def anywhere(self: Any, state: Any, event: ev.RelayReadyReceived, now: float) -> None:
        state.connection = event.connection
        accept(self, state, event, now)

    return source(_accept=anywhere)


@planted("a lost object is not marked", "B6.8", SINGLE, "is stuck|nobody says so")
def _unmarked() -> dict[str, Any]:
    def unmarked(self: Any, state: Any, event: ev.RowRead, now: float) -> None:
        if self._still_ours(event.row) and not event.row.lost:  # type: ignore[union-attr]
            self._now_lost(state)
        else:
            reconciled(self, state, event, now)

    reconciled = SourceHandoff._reconciled
    return source(_reconciled=unmarked)


# a unit of two


@planted("the CAS writes the rows one by one", "B6.5", UNIT, "rows of the unit disagree", 0)
def _one_by_one() -> dict[str, Any]:
    def write(self: Any, call: Call) -> bool:
        if call.kind != "write owner":
            return Model.write(self, call)
        done = [Model.write(self, call._replace(versions=(each,))) for each in call.versions]
        return all(done)

    return {"write": write}


@planted("a participant's row is left out of the CAS", "R3.3", UNIT, "rows of the unit disagree", 0)
def _short() -> dict[str, Any]:
    def write(self: Any, state: Any) -> None:
        self._do(fx.WriteOwner(self.plan.identity.expected_version, state.owner_generation))
        self.state = state.into(ts.OwnerWriting)

    return target(_write=write)


@planted("a fence over the own row only", "B6.7", UNIT, "rows of the unit disagree")
def _fence_alone() -> dict[str, Any]:
    def alone(self: Any, state: Any) -> None:
        self._do(fx.WriteFence())
        self.state = state

    return source(_write_fence=alone)


@planted("a lost mark over the own row only", "B6.8", UNIT, "rows of the unit disagree")
def _lost_alone() -> dict[str, Any]:
    def alone(self: Any, kind: str, indices: list[int]) -> None:
        Model.apply(self, kind, indices[:1] if kind == "mark lost" else indices)

    return {"apply": alone}


@planted("the own row is read before the others", "B6.5", UNIT, "drops what it owns")
def _own_first() -> dict[str, Any]:
    def read_last(self: Any, seen: RowFacts) -> RowFacts:
        return seen._replace(others=self.others_now())

    return {"read_first": lambda self: self.rows[0], "read_last": read_last}


@planted("another row that changed ends the attempt", "B6.5", UNIT, "nothing was wrong")
def _ends() -> dict[str, Any]:
    def end(self: Any, state: Any, others: Any, now: float) -> None:
        if others != state.others:
            self._remove(state, "another row changed", None, DirectDisposal.FAIL)
        else:
            self._pause_store(state, now, read_first=False)

    return target(_write_again=end)


@planted(
    "a rebuilt write takes the own row's version from the same reading",
    "R4.5.1",
    UNIT,
    "while S runs",
    2,
    ("the caller", "row"),
)
def _rebuilt() -> dict[str, Any]:
    checked = TargetHandoff._checked

    def again(self: Any, state: Any, event: ev.RowRead, now: float) -> None:
        row = event.row
        if row is not None and row.owner == self.plan.identity.source and not row.lost:
            others = tuple(each.condition for each in row.others)
            self._do(fx.WriteOwner(row.version, state.owner_generation, others))
            self.state = state.into(ts.OwnerWriting)
        else:
            checked(self, state, event, now)

    return target(_checked=again, _withdrawn=nothing)


@planted(
    "a lost mark leaves out what was read before the write",
    "B6.8",
    UNIT,
    "rows of the unit disagree",
    2,
    ("time",),
)
def _torn() -> dict[str, Any]:
    return target(_read_before_the_write=lambda self, row: False)


@planted("a write that the store refuses ends the attempt", "R4.5.2", SINGLE, "may cost the object")
def _no_retry() -> dict[str, Any]:
    def give_up(self: Any, state: Any, event: Event, now: float) -> None:
        self._remove(state, "the store is away", None, DirectDisposal.FAIL)

    return target({(ts.OwnerWriting, ev.OwnerWriteFailed): give_up})


@planted("a cut link behind relay-ready ends the attempt", "R4.4.5", SINGLE, "may cost the object")
def _no_fallback() -> dict[str, Any]:
    def give_up(self: Any, state: Any, event: ev.LinkLost, now: float) -> None:
        self._remove(state, "the link broke", None, DirectDisposal.FAIL)

    return target({(ts.RelayReady, ev.LinkLost): give_up})


# the order of one sender


@planted("the temporary queue is opened before the relay", "R4.6.1", LINE, "is handled before", 0)
def _queue_first() -> dict[str, Any]:
    opened = TargetHandoff._open

    def turned(self: Any, state: Any) -> None:
        state.queue, state.relay.records = state.relay.records, state.queue
        opened(self, state)

    return target(_open=turned)


@planted("what was held goes back in front of the captured queue", "R4.2.8", LINE, "is handled before")
def _hold_first() -> dict[str, Any]:
    def open_source(self: Any, records: tuple[str, ...]) -> Event | None:
        held = records[len(self.saved) :]
        return Model.open_source(self, (*held, *self.saved))

    return {"open_source": open_source}


@planted("late messages overtake the backlog", "R4.4.7", LINE, "is handled before")
def _overtake() -> dict[str, Any]:
    def past(self: Any, state: Any, event: ev.RecordArrived, now: float) -> None:
        state.backlog.insert(0, event.record)
        if len(state.backlog) > 1:
            self._drain(state)

    return source(
        {(ss.CommitAwaited, ev.RecordArrived): past, (ss.CutoverSubmitting, ev.RecordArrived): past}
    )
