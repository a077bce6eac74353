"""What a node keeps and how its clock runs: replies that moved, staging permits, retained octets, drift."""

from __future__ import annotations

from typing import Any

from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff import replies as rp
from sojourn.lease import LeaseSettings

from tests.simulation.leases import SETTINGS
from tests.simulation.mutants.planting import CALM, QUIET_STORE, UNKNOWN, carrier, changed, mutant
from tests.simulation.retained import StagingLane
from tests.simulation.source_driver import SourceDriver
from tests.simulation.target_driver import TargetDriver
from tests.simulation.world import World

__all__: list[str] = []

KEPT: dict[str, Any] = {
    "kept_replies": 1000,
    "replies_in_memory": 1000,
    "reply_retention_s": 1000.0,
    "send_every_s": 0.03,
}
QUEUES_LOST: dict[str, Any] = {
    "kills": 0.2,
    "nodes": 5,
    "keys": 5,
    "chaos_s": 10.0,
    "gives_up_s": (2.2, 2.4),
    "move_every_s": 0.03,
    "link_delay_s": 0.1,
    "turn_s": 0.02,
}
"""Targets that die between their relay-ready and the cutover, with long queues."""
HANDED: dict[str, Any] = {"handover_s": 0.001, "staging_permits": 1, "send_every_s": 0.008}


# replies of requests that moved


@mutant("a kept reply is not repeated on a new connection", "B7.1", 10, cuts=3.0, **KEPT)
def _plant(world: World) -> None:
    def stays(self: Any, state: rp.ReplyTelling, event: rp.RequesterLinkRestored, now: float) -> None:
        state.connection = event.connection

    world.reply_class = changed(rp.ReplyRelay, {(rp.ReplyTelling, rp.RequesterLinkRestored): stays})


@mutant("a stored reply is deleted before it is acknowledged", "B7.1", 3, **KEPT)
def _plant(world: World) -> None:
    def deleted(self: Any, state: rp.ReplyStoring, event: rp.BlobStored, now: float) -> None:
        self._end()

    world.reply_class = changed(rp.ReplyRelay, {(rp.ReplyStoring, rp.BlobStored): deleted})


@mutant("a 33 whose request has ended is not acknowledged", "B7.1", 10, **KEPT)
def _plant(world: World) -> None:
    world.acknowledges_unknown = False


@mutant("a 46 is taken for that of another reply to the same run", "B7.1", 10, cuts=3.0, **KEPT)
def _plant(world: World) -> None:
    world.acknowledges_any = True


@mutant(
    "a reply that is not stored is let go of when memory is short",
    "B7.1",
    30,
    store=UNKNOWN,
    **{**KEPT, "replies_in_memory": 1, "cuts": 3.0},
)
def _plant(world: World) -> None:
    def park(self: Any, state: rp.ReplyTelling, event: rp.MemoryShort, now: float) -> None:
        self._do(rp.ReleaseReply())
        self.state = state.into(rp.ReplyParked)

    world.reply_class = changed(rp.ReplyRelay, {(rp.ReplyTelling, rp.MemoryShort): park})


@mutant("a 33 ends a request that its ordinary reply has ended", "B3.1", 3, **KEPT)
def _plant(world: World) -> None:
    world.late_replies_count = True


@mutant(
    "a reply that was read back stays in memory",
    "B5.3",
    60,
    **{**KEPT, "replies_in_memory": 1, "cuts": 3.0, "send_every_s": 0.008},
)
def _plant(world: World) -> None:
    def fetched(self: Any, state: rp.ReplyFetching, event: rp.ReplyFetched, now: float) -> None:
        if state.connection is not None:
            self._do(rp.SendReplyRelay(state.connection))
        self.state = state.into(rp.ReplyParked)

    world.reply_class = changed(rp.ReplyRelay, {(rp.ReplyFetching, rp.ReplyFetched): fetched})


@mutant(
    "nobody looks into the store for the replies of a node that has ended",
    "B7.1",
    60,
    kills=0.5,
    cuts=3.0,
    **KEPT,
)
def _plant(world: World) -> None:
    world.never_looks = True


@mutant(
    "who finds a stored reply deletes it before its requester has it", "B7.1", 60, kills=0.5, cuts=3.0, **KEPT
)
def _plant(world: World) -> None:
    world.drops_stored = True


@mutant(
    "nobody ends the requests that were lost with their object",
    "R5.2",
    40,
    **{**KEPT, **QUEUES_LOST},
)
def _plant(world: World) -> None:
    carrier(world, "source_driver", fx.FailTaken, lambda self, effect: None)


# staging permits


@mutant("a staging permit is returned twice", "B5.1", 3, **HANDED)
def _plant(world: World) -> None:
    def twice(permit: Any) -> None:
        permit.give_back()
        permit.give_back()

    world.staging_done = twice  # type: ignore[method-assign]


@mutant("a staging permit is never returned", "B5.1", 3, **HANDED)
def _plant(world: World) -> None:
    world.staging_done = lambda permit: None  # type: ignore[method-assign]


@mutant("a cutover overtakes the relay that waits for a staging permit", "R4.4.4", 10, **HANDED)
def _plant(world: World) -> None:
    class Overtaken(StagingLane):
        def arrive(self, event: Any, record: Any = None) -> None:
            if isinstance(event, ev.CutoverArrived):
                self._hand(event, record)
            else:
                super().arrive(event, record)

    world.lane_class = Overtaken


# retained octets


@mutant("the octets of a payload are freed twice", "R4.4.3", 3)
def _plant(world: World) -> None:
    def twice(self: Any, effect: fx.ReleasePayload) -> None:
        SourceDriver._release(self, effect)
        self.node.retained.free(len(self.payload.data))

    carrier(world, "source_driver", fx.ReleasePayload, twice)


@mutant("the octets of a payload are never freed", "R4.4.3", 3)
def _plant(world: World) -> None:
    def kept(self: Any, effect: fx.ReleasePayload) -> None:
        self.world.history.released(self.payload)

    carrier(world, "source_driver", fx.ReleasePayload, kept)


@mutant("what a dropped staging held stays counted", "B5.3", 30, cancels=0.3, restore_fails=0.1)
def _plant(world: World) -> None:
    def drop(self: Any, effect: fx.DropTarget) -> None:
        self.held._records = []
        TargetDriver._drop(self, effect)

    carrier(world, "target_driver", fx.DropTarget, drop)


@mutant(
    "what waits for a permit stays counted when its object is sealed",
    "B5.3",
    20,
    max_jobs=2,
    send_every_s=0.008,
)
def _plant(world: World) -> None:
    world.flush_keeps = True


@mutant("held records give credit above the limit", "B5.3", 20, max_retained=60, credit=6, send_every_s=0.008)
def _plant(world: World) -> None:
    world.credit_when_full = True


@mutant("a move starts above the limit", "B5.3", 20, max_retained=60, send_every_s=0.008)
def _plant(world: World) -> None:
    world.moves_when_full = True


# clocks that drift


@mutant(
    "a lease keeps no margin for the drift of its clock",
    "B6.4",
    60,
    drift=0.02,
    lease_cuts=0.6,
    send_every_s=0.008,
)
def _plant(world: World) -> None:
    world.lease_settings = LeaseSettings(SETTINGS.ttl_ms, SETTINGS.renew_ms, SETTINGS.renew_timeout_ms, 0)


@mutant(
    "the Restore request carries an instant of the source's clock",
    "B8.2",
    3,
    QUIET_STORE,
    **{**CALM, "drift": 0.02},
)
def _plant(world: World) -> None:
    def send(self: Any, effect: fx.SendRestore) -> None:
        ends_at = self.node.local.now() + effect.remaining_s
        remaining_s = ends_at - self.target.local.now()  # as the target will read it
        SourceDriver._send_restore(self, fx.SendRestore(effect.connection, effect.manifest, remaining_s))

    carrier(world, "source_driver", fx.SendRestore, send)
