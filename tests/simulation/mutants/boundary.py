"""The boundary, the batch, the payload, and resent batches."""

from __future__ import annotations

from typing import Any

from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff import source_states as ss
from sojourn.handoff.relay import RelaySection
from sojourn.handoff.source import SourceHandoff

from tests.simulation.mutants.planting import (
    CUTS,
    carrier,
    mutant,
    source,
)
from tests.simulation.source_driver import SourceDriver
from tests.simulation.world import World

__all__: list[str] = []


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
