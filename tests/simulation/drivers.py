"""The drivers of the two handoff machines in the simulation: effects become calls on node, store and network."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff.machine import DeadlineReached, Effect, Event, Log, Machine
from sojourn.handoff.path import PathLost, Route
from sojourn.handoff.source_states import PastBoundary, SourceClosed, SourceRestored, SourceRunning
from sojourn.handoff.terms import DirectDisposal, HandoffIdentity, Manifest, RowFacts
from sojourn.ids import NodeRun

from tests.simulation.clock import Timer
from tests.simulation.history import Payload, Record, Violation
from tests.simulation.objects import LocalObject

if TYPE_CHECKING:
    from tests.simulation.node import Node

__all__ = ["CHUNK_BYTES", "Driver", "SourceDriver", "TargetDriver", "checksum", "frozen"]

CHUNK_BYTES = 4


def checksum(data: bytes, value: int) -> int:
    return zlib.crc32(data, value)


def frozen(record: Record) -> bytes:
    return record.number.to_bytes(8, "big")


class Driver:
    """Delivers events to a machine, carries its effects out, arms its one timer."""

    machine: Machine

    def __init__(self, node: Node, key: bytes) -> None:
        self.node = node
        self.world = node.world
        self.key = key
        self._timer: Timer | None = None
        self._armed: float | None = None
        self._busy = False
        self._waiting: list[Event] = []

    def deliver(self, event: Event) -> None:
        """One event at a time, each with its effects: an event caused by an effect waits its turn."""
        self._waiting.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._waiting:
                event = self._waiting.pop(0)
                now = self.world.clock.now
                self.world.trace(self.node, self.key, event)
                for effect in self.machine.handle(event, now):
                    self.world.trace(self.node, self.key, effect)
                    self.carry_out(effect)
        finally:
            self._busy = False
        self._arm()

    def deliver_later(self, event: Event, delay: float = 0.0) -> None:
        self.world.clock.after(delay, self.node.step, self.deliver, event)

    def _arm(self) -> None:
        deadline = self.machine.deadline
        if deadline == self._armed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed = deadline
        self._timer = None
        if deadline is not None:
            self._timer = self.world.clock.at(deadline, self.node.step, self._fire, deadline)

    def _fire(self, deadline: float) -> None:
        if deadline == self._armed:
            self._armed = None
            self.deliver(DeadlineReached())

    def carry_out(self, effect: Effect) -> None:
        method: Callable[[Any, Any], None] | None = self._carriers.get(type(effect))
        if method is None:
            raise Violation(f"no driver code for {effect}")
        method(self, effect)

    _carriers: dict[type[Effect], Any] = {}  # noqa: RUF012

    def log(self, effect: Log) -> None:
        self.world.logged(self.node, self.key, effect)

    # the store

    def read_row(self, effect: fx.ReadRow) -> None:
        self.world.store.read(self.key, partial(self.node.step, self._row_answer))

    def _row_answer(self, known: bool, row: RowFacts | None) -> None:
        self.deliver(ev.RowRead(row) if known else ev.RowReadFailed())

    def write(self, version: str, change: Callable[[RowFacts], RowFacts], answers: dict[str, Event]) -> None:
        self.world.store.write(
            self.key, version, change, partial(self.node.step, self._write_answer, answers)
        )

    def _write_answer(self, answers: dict[str, Event], outcome: str) -> None:
        self.deliver(answers[outcome])

    def deliver_records(self, effect: fx.DeliverRecords) -> None:
        for record in effect.records:
            self.node.take(record, None)

    def fail_held(self, effect: fx.FailHeld) -> None:
        for record in effect.records:
            self.node.fail(record, effect.kind)


class SourceDriver(Driver):
    """Drives one `SourceHandoff`."""

    def __init__(
        self, node: Node, target: Node, item: LocalObject, row: RowFacts, gives_up_at: float
    ) -> None:
        super().__init__(node, item.key)
        self.item = item
        self.target = target
        self.identity = HandoffIdentity(
            (0, self.world.next_number()), 1, f"owner-{node.run}", 1, node.run, row.version
        )
        plan = self.world.source_plan(self.identity, target.run, row, gives_up_at)
        self.machine = self.world.new_source(plan)
        self.payload: Payload | None = None
        self.relayed = 0
        self.follow_owner: NodeRun | None = None
        self.outcomes = 0
        self.ended_dispatch = 0

    @property
    def over(self) -> bool:
        return isinstance(self.machine.state, SourceClosed | SourceRestored)

    @property
    def begun(self) -> bool:
        return not isinstance(self.machine.state, SourceRunning)

    @property
    def before_boundary(self) -> bool:
        return self.begun and not self.over and not isinstance(self.machine.state, PastBoundary)

    def start(self, connection: int) -> None:
        self.deliver(ev.RelocationStarted(connection))

    # object

    def _seal(self, effect: fx.SealObject) -> None:
        self.node.sources[self.key] = self.node.latest[self.key] = self
        self.node.handoffs[self.identity] = self
        self.item.seal(self._sealed)

    def _sealed(self) -> None:
        self.world.clock.after(self.world.mix.capture_s, self.node.step, self._capture)

    def _capture(self) -> None:
        world, item = self.world, self.item
        if world.chance(world.mix.capture_fails):
            self.deliver(ev.CaptureRefused("refused"))
            return
        item.status = "closed"
        data = world.random_bytes()
        self.payload = Payload(self.node.run, data, item.generation, item.handled, list(item.mailbox))
        world.history.captured(self.payload)
        world.payloads[self.identity] = self.payload
        count = -(-len(data) // CHUNK_BYTES)
        self.deliver(ev.ObjectCaptured(Manifest(len(data), count, checksum(data, 0))))

    def _restore_dispatch(self, effect: fx.RestoreDispatch) -> None:
        if effect.captured:
            assert self.payload is not None
            self.payload.use()
        self.world.restored(self)
        self.item.open()
        for record in effect.records:
            self.node.take(record, None)
        self.deliver_later(ev.DispatchRestored())

    def _end_dispatch(self, effect: fx.EndDispatch) -> None:
        self.ended_dispatch += 1
        if self.ended_dispatch > 1:
            raise Violation("dispatch ended twice")

    def _release(self, effect: fx.ReleasePayload) -> None:
        if self.payload is None:
            raise Violation("a payload was released that never was")
        self.world.history.released(self.payload)

    def _drop(self, effect: fx.DropObject) -> None:
        self.node.drop_object(self.item)
        if effect.reason != "RelocationOut":
            self.world.history.excuse(self.item.mailbox, "lost with its object")

    # messages

    def _send_restore(self, effect: fx.SendRestore) -> None:
        frame = ("restore", self.identity, self.key, effect.manifest, effect.remaining_s)
        self.node.send_on(effect.connection, frame)

    def _send_withdrawn(self, effect: fx.SendWithdrawn) -> None:
        self.node.send_on(effect.connection, ("withdrawn", self.identity))

    def _send_chunks(self, effect: fx.SendChunks) -> None:
        self._send_chunk(effect.connection, 0)

    def _send_chunk(self, connection: int, ordinal: int) -> None:
        assert self.payload is not None
        if self.payload.released or not self.node.stands(connection):
            return
        data = self.payload.data[ordinal * CHUNK_BYTES : (ordinal + 1) * CHUNK_BYTES]
        if self.world.chance(self.world.network.corrupt):
            data = bytes((data[0] ^ 1,)) + data[1:]
        self.node.send_on(connection, ("chunk", self.identity, ordinal, data))
        if (ordinal + 1) * CHUNK_BYTES < len(self.payload.data):
            delay = self.world.mix.chunk_s
            self.world.clock.after(delay, self.node.step, self._send_chunk, connection, ordinal + 1)
        else:
            self.deliver_later(ev.ChunksSent(connection))

    def _send_relay(self, effect: fx.SendRelay) -> None:
        self.relayed = len(effect.records)
        for record in effect.records:
            self.node.send_on(effect.connection, ("relay", self.identity, record))

    def _send_cutover(self, effect: fx.SendCutover) -> None:
        self.world.crossed(self)
        frame = ("cutover", self.identity, effect.count, effect.checksum)
        self.node.send_on(effect.connection, frame)

    def _send_follow(self, effect: fx.SendFollow) -> None:
        for record in effect.records:
            self.node.follow(record, effect.run, self)

    def _install(self, effect: fx.InstallFollowRoute) -> None:
        route = Route(effect.run, self.item.generation, effect.owner_generation)
        self.node.install_follow(self, route, self.target.run)
        self.follow_owner = effect.run

    def _remove(self, effect: fx.RemoveFollowRoute) -> None:
        self.node.remove_follow(self)
        if self.node.sources.get(self.key) is self:
            del self.node.sources[self.key]

    def _report(self, effect: fx.ReportOutcome) -> None:
        self.outcomes += 1
        if self.outcomes > 1:
            raise Violation("a move has two outcomes")
        self.world.reported(self, effect.outcome)

    def _forget(self, effect: fx.ForgetHandoff) -> None:
        self.node.handoffs.pop(self.identity, None)
        if self.node.sources.get(self.key) is self:
            del self.node.sources[self.key]
        self.world.source_forgotten(self)

    # store

    def _write_fence(self, effect: fx.WriteFence) -> None:
        relocation_id = self.identity.relocation_id
        self.write(
            self.identity.expected_version,
            lambda row: row._replace(relocation_id=relocation_id, fenced=True),
            {
                "applied": ev.FenceApplied(),
                "conflict": ev.FenceConflicted(),
                "unknown": ev.FenceUnknown(),
                "failed": ev.FenceUnknown(),
            },
        )

    def _mark_lost(self, effect: fx.MarkLost) -> None:
        self.write(
            effect.version,
            lambda row: row._replace(lost=True),
            {
                "applied": ev.LostMarked(),
                "conflict": ev.LostConflicted(),
                "unknown": ev.LostUnknown(),
                "failed": ev.LostUnknown(),
            },
        )

    _carriers = {  # noqa: RUF012
        Log: Driver.log,
        fx.ReadRow: Driver.read_row,
        fx.DeliverRecords: Driver.deliver_records,
        fx.FailHeld: Driver.fail_held,
        fx.SealObject: _seal,
        fx.RestoreDispatch: _restore_dispatch,
        fx.EndDispatch: _end_dispatch,
        fx.ReleasePayload: _release,
        fx.DropObject: _drop,
        fx.SendRestore: _send_restore,
        fx.SendChunks: _send_chunks,
        fx.SendWithdrawn: _send_withdrawn,
        fx.SendRelay: _send_relay,
        fx.SendCutover: _send_cutover,
        fx.SendFollow: _send_follow,
        fx.InstallFollowRoute: _install,
        fx.RemoveFollowRoute: _remove,
        fx.ReportOutcome: _report,
        fx.ForgetHandoff: _forget,
        fx.WriteFence: _write_fence,
        fx.MarkLost: _mark_lost,
    }


class TargetDriver(Driver):
    """Drives one `TargetHandoff`."""

    def __init__(self, node: Node, identity: HandoffIdentity, key: bytes, ends_at: float) -> None:
        super().__init__(node, key)
        self.identity = identity
        self.machine = self.world.new_target(identity, key, node.run, ends_at)
        self.ends_at = ends_at
        self.buffer = bytearray()
        self.item: LocalObject | None = None
        self.generation = 0
        self.opened = False

    def _install(self, effect: fx.InstallTemporaryQueue) -> None:
        self.node.stage(self)

    def _store_chunk(self, effect: fx.StoreChunk) -> None:
        self.buffer[effect.offset : effect.offset + len(effect.data)] = effect.data

    def _compare_chunk(self, effect: fx.CompareChunk) -> None:
        if self.buffer[effect.offset : effect.offset + len(effect.data)] != effect.data:
            self.deliver(ev.ChunkDiffered())

    def _verify(self, effect: fx.VerifyAssembly) -> None:
        matches = checksum(bytes(self.buffer), 0) == effect.checksum
        self.deliver_later(ev.AssemblyVerified() if matches else ev.AssemblyMismatched())

    def _restore(self, effect: fx.RestoreObject) -> None:
        self.generation = effect.object_generation
        self.world.clock.after(self.world.mix.capture_s, self.node.step, self._restored)

    def _restored(self) -> None:
        if self.world.chance(self.world.mix.restore_fails):
            self.deliver(ev.RestoreFailed("no such type"))
            return
        payload = self.world.payloads[self.identity]
        if bytes(self.buffer) != payload.data:
            raise Violation("an object is restored from other bytes than were captured")
        self.item = LocalObject(self.node, self.key, payload.generation, payload.handled, payload.saved)
        self.deliver(ev.ObjectRestored())

    def _ready(self, effect: fx.SendRelayReady) -> None:
        self.node.send_on(effect.connection, ("ready", self.identity))

    def _failed(self, effect: fx.SendRelocationFailed) -> None:
        self.node.send_on(effect.connection, ("failed", self.identity, effect.failure_code))

    def _write_owner(self, effect: fx.WriteOwner) -> None:
        run, relocation_id = self.node.run, self.identity.relocation_id
        self.write(
            effect.expected_version,
            lambda row: row._replace(
                owner=run, owner_generation=effect.owner_generation, relocation_id=relocation_id, fenced=False
            ),
            {
                "applied": ev.OwnerWritten(),
                "conflict": ev.OwnerWriteConflicted(),
                "unknown": ev.OwnerWriteUnknown(),
                "failed": ev.OwnerWriteFailed(),
            },
        )

    def _open(self, effect: fx.OpenDispatch) -> None:
        item = self.item
        assert item is not None
        self.opened = True
        self.node.unstage(self)
        if self.world.divert_at_commit:
            self.node.lead_here(self)
        self.node.objects[self.key] = item
        for record in (*effect.relay, *effect.queue):
            if record.marker is None:
                item.mailbox.append(record)
        for record in item.mailbox:
            record.where = self.node.run
        self.world.opened(self)
        item.open()
        self.deliver_later(ev.DispatchOpened())

    def _drop(self, effect: fx.DropTarget) -> None:
        node = self.node
        node.unstage(self)
        self.world.dropped(self, effect.reason)
        if effect.end_work:
            for record in (*(self.item.mailbox if self.item is not None else ()), *effect.relay):
                if record.fate is None:
                    node.fail(record, "Unavailable")
        self.item = None
        source = self.identity.source
        if effect.disposal is DirectDisposal.HAND_OVER:
            node.inherited[self.key] = list(effect.direct)
            return
        for record in effect.direct:
            if effect.disposal is DirectDisposal.FOLLOW_TO_SOURCE:
                node.follow(record, source, None)
            else:
                node.fail(record, "Unavailable")
        if effect.disposal is not DirectDisposal.FOLLOW_TO_SOURCE:
            node.path(self.key).deliver(PathLost(node.run))

    def _send_follow(self, effect: fx.SendFollow) -> None:
        for record in effect.records:
            self.node.follow(record, effect.run, None)

    def _install_follow(self, effect: fx.InstallFollowRoute) -> None:
        self.node.install_follow(self, Route(effect.run, self.generation, 0), effect.run)

    def _remove_follow(self, effect: fx.RemoveFollowRoute) -> None:
        self.node.remove_follow(self)

    def _forget(self, effect: fx.ForgetHandoff) -> None:
        self.node.targets.pop(self.identity, None)

    def arrived(self, event: Event, record: Record) -> None:
        """A record for the staged object; a marker is answered as it is staged (B9.4)."""
        self.deliver(event)
        staged = self.node.staged.get(self.key) is self
        if record.marker is not None and staged and self.world.answer_staged:
            self.node.answer(record, Route(self.node.run, self.generation, 0))

    _carriers = {  # noqa: RUF012
        Log: Driver.log,
        fx.ReadRow: Driver.read_row,
        fx.DeliverRecords: Driver.deliver_records,
        fx.FailHeld: Driver.fail_held,
        fx.InstallTemporaryQueue: _install,
        fx.StoreChunk: _store_chunk,
        fx.CompareChunk: _compare_chunk,
        fx.VerifyAssembly: _verify,
        fx.RestoreObject: _restore,
        fx.SendRelayReady: _ready,
        fx.SendRelocationFailed: _failed,
        fx.WriteOwner: _write_owner,
        fx.OpenDispatch: _open,
        fx.DropTarget: _drop,
        fx.SendFollow: _send_follow,
        fx.InstallFollowRoute: _install_follow,
        fx.RemoveFollowRoute: _remove_follow,
        fx.ForgetHandoff: _forget,
    }
