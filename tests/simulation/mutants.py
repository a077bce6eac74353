"""Planted bugs: each takes one rule out of the machines or of what drives them.

A mutant is a function that changes a `World` before it plays. Nothing here is used outside the drills.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff import source_states as ss
from sojourn.handoff import target_states as ts
from sojourn.handoff.machine import Event, Rule
from sojourn.handoff.path import (
    AwaitingMarker,
    MarkerAnswered,
    OnPath,
    RouteLearned,
    SenderPath,
    StagingBegun,
)
from sojourn.handoff.relay import RelaySection
from sojourn.handoff.source import SourceHandoff
from sojourn.handoff.target import TargetHandoff
from sojourn.handoff.terms import RowFacts

from tests.simulation.drivers import SourceDriver, TargetDriver
from tests.simulation.world import World

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True)
class Mutant:
    """One planted bug. `mix` overrides fields of every seed's mix, so that the case comes up soon."""

    name: str
    rule: str
    plant: Callable[[World], None]
    seeds_max: int
    mix: dict[str, Any] = field(default_factory=dict)
    store: dict[str, float] = field(default_factory=dict)
    survives: str = ""
    """Why the simulation is expected to see no harm; empty = it must be caught."""


MUTANTS: list[Mutant] = []
CUTS = {"cuts": 2.0}
CANCELS = {"cancels": 0.3}
UNKNOWN = {"lost_before": 0.08, "lost_after": 0.15}
CONFIRMED = {"lost_before": 0.0, "lost_after": 0.0, "unavailable": 0.0, "slow": 0.0}


def mutant(
    name: str,
    rule: str,
    seeds_max: int,
    store: dict[str, float] | None = None,
    survives: str = "",
    **mix: Any,
) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    def register(plant: Callable[[World], None]) -> Callable[[World], None]:
        MUTANTS.append(Mutant(name, rule, plant, seeds_max, mix, store or {}, survives))
        return plant

    return register


_ANY: frozenset[type[Any]] = frozenset((*SourceHandoff.STATES, *TargetHandoff.STATES, *SenderPath.STATES))


def changed(
    base: type[Any], cells: dict[tuple[type[Any], type[Event]], Callable[..., None]], **members: Any
) -> Any:
    """A subclass of a machine with some cells of its table, or some methods, replaced."""
    kind = type("Mutant" + base.__name__, (base,), members)
    rules = {cell: Rule(rule.method, _ANY) if rule.targets else rule for cell, rule in base.rules.items()}
    for cell, method in cells.items():
        rules[cell] = Rule(method, _ANY)
    for cell, rule in list(rules.items()):  # replaced methods that transitions name
        replaced = members.get(getattr(rule.method, "__name__", ""))
        if replaced is not None:
            rules[cell] = Rule(replaced, _ANY)
    kind.rules = rules  # type: ignore[attr-defined]
    return kind


def source(world: World, cells: dict[Any, Any] | None = None, **members: Any) -> None:
    world.source_class = changed(SourceHandoff, cells or {}, **members)


def target(world: World, cells: dict[Any, Any] | None = None, **members: Any) -> None:
    world.target_class = changed(TargetHandoff, cells or {}, **members)


def path(world: World, cells: dict[Any, Any] | None = None, **members: Any) -> None:
    world.path_class = changed(SenderPath, cells or {}, **members)


def carrier(world: World, attribute: str, effect: type[Any], method: Callable[[Any, Any], None]) -> None:
    """Replace what a driver does for one effect."""
    base = getattr(world, attribute)
    carriers = {**base._carriers, effect: method}
    setattr(world, attribute, type("Mutant" + base.__name__, (base,), {"_carriers": carriers}))


# the boundary


@mutant("the source is restored when the link breaks behind the boundary", "R4.4.2", 20, **CUTS)
def _plant(world: World) -> None:
    def back(self: Any, state: Any, event: ev.LinkLost, now: float) -> None:
        self._restore([*state.batch.records, *event.follow_unsent], "the link broke", captured=True)

    source(world, {(ss.CutoverSubmitting, ev.LinkLost): back})


@mutant("the source is restored when the target's time is over", "R4.4.2", 60, kills=0.5, cuts=2.0)
def _plant(world: World) -> None:
    def back(self: Any, state: Any, event: ev.RowRead, now: float) -> None:
        if self._committed(event.row):
            SourceHandoff._reconciled(self, state, event, now)
        else:
            self._restore(list(state.backlog), "the target did not commit", captured=True)

    source(world, {(ss.Reconciling, ev.RowRead): back})


@mutant("relay goes out before relay-ready", "R4.4.1", 3)
def _plant(world: World) -> None:
    def relay(self: Any, state: Any, event: ev.RecordArrived, now: float) -> None:
        state.hold.append(event.record)
        self._do(fx.SendRelay(state.connection, (event.record,)))

    source(world, {(ss.TargetRestoring, ev.RecordArrived): relay})


@mutant("the captured queue is relayed again", "R4.2.6", 3)
def _plant(world: World) -> None:
    accept = SourceHandoff._accept

    def again(self: Any, state: Any, event: Any, now: float) -> None:
        for payload in world.payloads.values():
            if payload is world.payloads.get(self.plan.identity):
                state.hold[:0] = payload.saved
        accept(self, state, event, now)

    source(world, _accept=again)


@mutant("late messages go as relay instead of follow", "R4.4.7", 60, cuts=3.0, send_every_s=0.008)
def _plant(world: World) -> None:
    def send(self: Any, effect: fx.SendFollow) -> None:
        connection = self.node.links.get(effect.run)
        if connection is None or effect.run != self.target.run:
            SourceDriver._send_follow(self, effect)
            return
        for record in effect.records:
            self.node.send_on(connection.number, ("relay", self.identity, record))

    carrier(world, "source_driver", fx.SendFollow, send)


@mutant(
    "batch records that no connection took are dropped with the batch",
    "R4.4.3",
    60,
    cuts=3.0,
    hand_delay_s=0.01,
    send_every_s=0.008,
)
def _plant(world: World) -> None:
    def end(self: Any, state: Any, now: float) -> None:
        batch = state.batch
        if batch and not batch.submitting and batch.window_until and now >= batch.window_until:
            state.batch = None
            self._do(fx.ReleasePayload())

    source(world, _end_window=end)


@mutant(
    "follow records that no connection took are dropped with the connection",
    "R4.4.3",
    30,
    cuts=3.0,
    hand_delay_s=0.01,
    send_every_s=0.008,
)
def _plant(world: World) -> None:
    take_back = SourceHandoff._take_back

    def drop(self: Any, state: Any, event: ev.LinkLost) -> None:
        take_back(self, state, ev.LinkLost(event.connection, event.boundary_handed))

    source(world, _take_back=drop)


@mutant("the payload is released at the cutover and again after the resend window", "R4.4.3", 3)
def _plant(world: World) -> None:
    ended = SourceHandoff._submit_ended

    def twice(self: Any, state: Any, now: float, *, failed: bool) -> None:
        ended(self, state, now, failed=failed)
        self._do(fx.ReleasePayload())

    source(world, _submit_ended=twice)


# the fence


@mutant("a deadline or cancellation restores the source without a fence", "B6.7", 60, **CANCELS)
def _plant(world: World) -> None:
    def bare(self: Any, state: Any, reason: Any) -> None:
        self._restore(state.hold, reason, captured=True)

    source(world, _fence=bare)


@mutant("a fence that leaves no mark in the row", "B6.7", 60, **CANCELS)
def _plant(world: World) -> None:
    def nothing(self: Any, effect: fx.WriteFence) -> None:
        self.deliver_later(ev.FenceApplied(), 0.001)

    carrier(world, "source_driver", fx.WriteFence, nothing)
    target(world, _withdrawn=_nothing)


@mutant("relay-ready is accepted while a fence is out", "B6.7", 60, cancels=0.6, capture_s=0.005)
def _plant(world: World) -> None:
    def accept(self: Any, state: Any, event: Any, now: float) -> None:
        if state.connection is not None:
            self._accept(state, event, now)

    source(
        world,
        {
            (ss.FenceWriting, ev.RelayReadyReceived): accept,
            (ss.CutoverSubmitting, ev.FenceApplied): _fenced_late,
            (ss.CommitAwaited, ev.FenceApplied): _fenced_late,
            (ss.CutoverSubmitting, ev.FenceConflicted): _nothing,
            (ss.CommitAwaited, ev.FenceConflicted): _nothing,
            (ss.CutoverSubmitting, ev.FenceUnknown): _nothing,
            (ss.CommitAwaited, ev.FenceUnknown): _nothing,
        },
    )


def _nothing(self: Any, state: Any, event: Event, now: float) -> None:
    pass


def _fenced_late(self: Any, state: Any, event: Event, now: float) -> None:
    self._restore([], "fenced", captured=True)


@mutant("an unknown fence outcome is taken for success", "B6.7", 60, UNKNOWN, **CANCELS)
def _plant(world: World) -> None:
    def guess(self: Any, state: Any, event: Any, now: float) -> None:
        self._restore_fenced(state)

    source(world, {(ss.FenceWriting, ev.FenceUnknown): guess})
    target(world, _withdrawn=_nothing)


@mutant(
    "the hold is not followed when the fence meets a commit",
    "B6.7",
    120,
    cuts=3.0,
    gives_up_s=(2.1, 2.3),
    send_every_s=0.008,
)
def _plant(world: World) -> None:
    adopt = SourceHandoff._adopt_fenced

    def forget(self: Any, state: Any, row: RowFacts, now: float) -> None:
        state.hold = []
        adopt(self, state, row, now)

    source(world, _adopt_fenced=forget)


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

    target(world, _checked=again, _withdrawn=_nothing)


@mutant("the CAS compares the owner's name instead of the row version", "B6.5", 60, **CANCELS)
def _plant(world: World) -> None:
    def by_name(self: Any, effect: fx.WriteOwner) -> None:
        row = world.store.rows[self.key]
        version = row.version if row.owner == self.identity.source else effect.expected_version
        TargetDriver._write_owner(self, fx.WriteOwner(version, effect.owner_generation))

    carrier(world, "target_driver", fx.WriteOwner, by_name)
    target(world, _withdrawn=_nothing)


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
            (s, e): _nothing
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


# repeats, ended identities, rivals


@mutant(
    "an ended identity is started again by a repeat",
    "B8.6",
    40,
    cuts=3.0,
    restore_fails=0.3,
    capture_s=0.005,
    survives="the row check and the fence after a repeat make the second attempt harmless; kept for peers that forget their fence",
)
def _plant(world: World) -> None:
    def again(self: Any, state: Any, event: ev.RestoreRequested, now: float) -> None:
        self.state = ts.Announced()
        self._requested(self.state, event, now)
        self._requests = 1

    target(world, {(ts.TargetRemoved, ev.RestoreRequested): again})


@mutant("a target that replied with a failure restores and goes on", "R4.3.3", 60, restore_fails=0.3)
def _plant(world: World) -> None:
    def on(self: Any, state: Any, event: Any, now: float) -> None:
        if state.connection is not None:
            self._do(fx.SendRelocationFailed(state.connection, 17))
        self._do(fx.RestoreObject(0, state.owner_generation))

    target(world, {(ts.RestoringObject, ev.RestoreFailed): on})


@mutant(
    "a failure after a repeated request restores the source without a fence",
    "B8.6",
    40,
    cuts=3.0,
    restore_fails=0.3,
    corrupt=0.05,
    survives="harmless as long as the target remembers ended identities, as ours does; kept for peers that forget them",
)
def _plant(world: World) -> None:
    def bare(self: Any, state: Any, event: Any, now: float) -> None:
        self._restore(state.hold, "failed", captured=True)

    source(world, {(ss.TargetRestoring, ev.RelocationFailedReceived): bare})


@mutant(
    "the target makes terminals for saved work without proof of the boundary",
    "B8.15",
    30,
    cancels=0.3,
    restore_fails=0.1,
    send_every_s=0.008,
)
def _plant(world: World) -> None:
    def end(self: Any, effect: fx.DropTarget) -> None:
        TargetDriver._drop(
            self, fx.DropTarget(effect.reason, effect.direct, effect.disposal, effect.relay, True)
        )

    carrier(world, "target_driver", fx.DropTarget, end)


@mutant(
    "a target that drops forgets what came to it directly",
    "B8.15",
    60,
    cancels=0.3,
    restore_fails=0.1,
    send_every_s=0.008,
)
def _plant(world: World) -> None:
    def forget(self: Any, effect: fx.DropTarget) -> None:
        TargetDriver._drop(
            self, fx.DropTarget(effect.reason, (), effect.disposal, effect.relay, effect.end_work)
        )

    carrier(world, "target_driver", fx.DropTarget, forget)


@mutant(
    "the newest identity always wins at the target",
    "B8.16",
    40,
    cuts=2.0,
    cancels=0.3,
    survives="not reached: an older request would have to come in later than a newer one; tests/machines covers the judgement",
)
def _plant(world: World) -> None:
    world.newest_identity_wins = True


# resent batches


@mutant("a batch resent after the boundary was settled is appended", "B8.4", 60, cuts=3.0, send_every_s=0.008)
def _plant(world: World) -> None:
    world.relay_class = type(
        "AppendingRelay", (RelaySection,), {"__slots__": (), "take": lambda self, connection: True}
    )


@mutant(
    "a batch resent after the boundary was settled is dropped",
    "B8.4",
    200,
    cuts=3.0,
    send_every_s=0.008,
    hand_delay_s=0.01,
)
def _plant(world: World) -> None:
    world.relay_class = type(
        "DroppingRelay", (RelaySection,), {"__slots__": (), "take": lambda self, connection: False}
    )


@mutant(
    "a batch resent before the boundary is settled is merged",
    "R4.4.5",
    120,
    cuts=3.0,
    send_every_s=0.008,
    hand_delay_s=0.01,
)
def _plant(world: World) -> None:
    class Merging(RelaySection):
        __slots__ = ()

        def add(self, record: Any, connection: int) -> bool:
            return super().add(record, 0)

        def verify(self, count: int, checksum: int, connection: int) -> bool:
            self.seen = True
            self.fall_back()
            return True

    world.relay_class = Merging


# order


@mutant("the target's own senders are diverted only at the commit", "B8.14", 30, send_every_s=0.008)
def _plant(world: World) -> None:
    world.divert_at_commit = True


@mutant("a new path is taken without a marker", "B9.4", 20, send_every_s=0.008, burst=1.0)
def _plant(world: World) -> None:
    def at_once(self: Any, state: OnPath, event: RouteLearned, now: float) -> None:
        self._switch(event.route, [])

    path(world, {(OnPath, RouteLearned): at_once})


@mutant(
    "a sender goes to the route it learned, not to the node that answered",
    "B9.4",
    60,
    send_every_s=0.008,
    burst=1.0,
)
def _plant(world: World) -> None:
    def learned(self: Any, state: AwaitingMarker, event: MarkerAnswered, now: float) -> None:
        if event.marker_id == state.marker_id:
            self._switch(state.learned or event.route, state.held)

    path(world, {(AwaitingMarker, MarkerAnswered): learned})


@mutant("a target sends no marker down its last path", "B9.4", 60, send_every_s=0.008, burst=1.0)
def _plant(world: World) -> None:
    staged = SenderPath._staged_here

    def at_once(self: Any, state: Any, event: StagingBegun, now: float) -> None:
        last = getattr(state, "route", None) or getattr(state, "last", None)
        staged(self, state, event if last is None else StagingBegun(event.run, last.run), now)

    path(world, _staged_here=at_once)


@mutant(
    "an object is sealed while the node's own marker for it is out",
    "B9.4",
    60,
    send_every_s=0.008,
    burst=1.0,
    chain=1.0,
)
def _plant(world: World) -> None:
    world.seal_with_marker_out = True


@mutant("a staged marker is not answered", "B9.4", 20, send_every_s=0.008)
def _plant(world: World) -> None:
    world.answer_staged = False


@mutant(
    "an older route replaces a newer one",
    "B9.1",
    40,
    send_every_s=0.008,
    burst=1.0,
    survives="costs markers and hops only: a marker checks every change of path",
)
def _plant(world: World) -> None:
    def older(self: Any, state: OnPath, event: RouteLearned, now: float) -> None:
        if event.route.run == state.route.run:
            state.route = event.route
        else:
            self._mark(state.route, event.route, [], now + self._marker_timeout_s)

    path(world, {(OnPath, RouteLearned): older})


@mutant(
    "the source follows straight to the later owner that the row names",
    "B6.8",
    30,
    send_every_s=0.008,
    chain=1.0,
)
def _plant(world: World) -> None:
    world.straight_follow = True


@mutant(
    "an older handoff of the object installs its follow route late",
    "B9.2",
    40,
    chain=1.0,
    send_every_s=0.03,
    survives="costs a detour, at worst a marker timeout; seen in longer runs",
)
def _plant(world: World) -> None:
    world.old_handoffs_install = True


@mutant("the target's own marker need not come home", "B9.4", 60, send_every_s=0.008, burst=1.0, cancels=0.3)
def _plant(world: World) -> None:
    def first(self: Any, state: AwaitingMarker, event: MarkerAnswered, now: float) -> None:
        if event.marker_id == state.marker_id:
            self._switch(event.route, state.held)

    path(world, {(AwaitingMarker, MarkerAnswered): first})


@mutant(
    "what comes from nodes whose marker was taken here waits too",
    "B9.4",
    40,
    send_every_s=0.008,
    burst=1.0,
    survives="costs a marker timeout (2 s) now and then; seen in longer runs",
)
def _plant(world: World) -> None:
    world.takes_note_of_markers = False


@mutant(
    "a commit is recognised at the source only under its RelocationId",
    "B8.10",
    40,
    nodes=3,
    keys=2,
    pauses=2.0,
    cancels=0.9,
    chain=1.0,
    move_every_s=0.03,
    survives="rare: the new owner must fence an attempt of its own before the source reads; a story covers it",
)
def _plant(world: World) -> None:
    def by_id(self: Any, row: RowFacts | None) -> bool:
        if row is None or row.object_generation != self.plan.object_generation:
            return False
        ahead = row.owner_generation - self.plan.owner_generation
        return ahead > 1 or (ahead == 1 and row.relocation_id == self.plan.identity.relocation_id)

    source(world, _committed=by_id)


@mutant(
    "a target is not told that it was fenced",
    "B6.7",
    40,
    cancels=0.3,
    send_every_s=0.008,
    survives="costs time only: the target finds the fence by itself when its CAS conflicts",
)
def _plant(world: World) -> None:
    target(world, _withdrawn=_nothing)


# lost objects


@mutant("lost objects are never marked", "B6.8", 60, cuts=2.0, store_outages=0.3)
def _plant(world: World) -> None:
    def never(self: Any, effect: fx.MarkLost) -> None:
        self.deliver_later(ev.LostUnknown(), 0.5)

    carrier(world, "source_driver", fx.MarkLost, never)
    world.sweeps = False
