"""The driver of `TargetHandoff`: effects become calls on node, store and network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff.machine import Event, Log
from sojourn.handoff.path import PathLost, Route
from sojourn.handoff.terms import DirectDisposal, HandoffIdentity
from sojourn.session.events import RouteDecided

from tests.simulation.driver import Driver, checksum
from tests.simulation.history import Record, Violation
from tests.simulation.objects import LocalObject
from tests.simulation.retained import HeldRecords
from tests.simulation.sessions import ContactDriver, commit_of, terms_of

if TYPE_CHECKING:
    from tests.simulation.node import Node

__all__ = ["TargetDriver"]


class TargetDriver(Driver):
    """Drives one `TargetHandoff`."""

    def __init__(self, node: Node, identity: HandoffIdentity, key: bytes, ends_at: float) -> None:
        super().__init__(node, key)
        self.identity = identity
        self.machine = self.world.new_target(identity, key, node.run, ends_at)
        self.ends_at = ends_at
        self.buffer = bytearray()
        self.item: LocalObject | None = None
        self.generation = self.owner_generation = 0
        self.opened = False
        self.held = HeldRecords(node)
        self.kept_octets = 0
        """Of the payload, from its first chunk until the object opens or is dropped."""
        self.lane = self.world.lane_class(self)
        self.work: list[Record] = []
        """Saved work of the dropped object whose ends are in doubt (B8.15)."""

    def _install(self, effect: fx.InstallTemporaryQueue) -> None:
        self.node.stagings.stage(self, self.keys)

    def _stage_participants(self, effect: fx.StageParticipants) -> None:
        self.keys = (self.key, *effect.keys)
        self.node.stagings.stage(self, effect.keys)

    def _store_chunk(self, effect: fx.StoreChunk) -> None:
        self.buffer[effect.offset : effect.offset + len(effect.data)] = effect.data
        self.node.retained.keep(len(effect.data))
        self.kept_octets += len(effect.data)

    def _compare_chunk(self, effect: fx.CompareChunk) -> None:
        if self.buffer[effect.offset : effect.offset + len(effect.data)] != effect.data:
            self.deliver(ev.ChunkDiffered())

    def _verify(self, effect: fx.VerifyAssembly) -> None:
        matches = checksum(bytes(self.buffer), 0) == effect.checksum
        self.deliver_later(ev.AssemblyVerified() if matches else ev.AssemblyMismatched())

    def _restore(self, effect: fx.RestoreObject) -> None:
        self.generation, self.owner_generation = effect.object_generation, effect.owner_generation
        self.world.clock.after(self.world.mix.capture_s, self.node.step, self._restored)

    def _restored(self) -> None:
        if self.world.chance(self.world.mix.restore_fails):
            self.deliver(ev.RestoreFailed("no such type"))
            return
        payload = self.world.payloads[self.identity]
        if bytes(self.buffer) != payload.data:
            raise Violation("an object is restored from other bytes than were captured")
        handled = dict(payload.handled)
        self.item = LocalObject(self.node, self.key, payload.generation, handled, payload.saved)
        self.item.moved_here = True
        if self.item.keys != self.keys:
            raise Violation(f"{self.key.decode()} is restored with participants {self.keys}")
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
            effect.others,
        )

    def _open(self, effect: fx.OpenDispatch) -> None:
        item = self.item
        assert item is not None
        self.opened = True
        self._let_go()
        self.node.stagings.unstage(self)
        if self.world.divert_at_commit:
            self.node.stagings.lead_here(self, self.keys)
        for key in self.keys:
            self.node.objects[key] = item
        for record in (*effect.relay, *effect.queue):
            if record.marker is None:
                item.join_backlog(record)
        for record in item.mailbox:
            record.where = self.node.run
            record.moved = record.moved or record.stamp is not None
        if self.world.mix.kept_replies:
            self.node.replies.tell_taken([each for each in item.mailbox if each.moved or each.hops])
        self.world.opened(self)
        item.open()
        self.deliver_later(ev.DispatchOpened())

    def _let_go(self) -> None:
        """What was kept here belongs to the object now, or to nobody (R4.3.5)."""
        octets, self.kept_octets = self.kept_octets, 0
        self.node.retained.free(octets)
        self.held.settle()

    def _commit_sessions(self, effect: fx.CommitSessions) -> None:
        session = self.world.sessions[self.key]
        contact = ContactDriver(
            self.node, session, terms_of(session, self.identity, self.owner_generation - 1)
        )
        contact.deliver(RouteDecided(commit_of(contact, self.node.run), commit=True))

    def _drop(self, effect: fx.DropTarget) -> None:
        node = self.node
        node.stagings.unstage(self)
        self._let_go()
        self.world.dropped(self, effect.reason)
        work = self.item.mailbox if self.item is not None else ()
        if effect.end_work:
            self._fail([*work, *effect.relay], "Unavailable")
        elif effect.keep_work:
            self.work = list(work)
            self.world.history.counts["work in doubt"] += len(work)
        self.item = None
        source = self.identity.source
        if effect.disposal is DirectDisposal.HAND_OVER:
            node.stagings.inherited[self.key] = list(effect.direct)
            return
        for record in effect.direct:
            if effect.disposal is DirectDisposal.FOLLOW_TO_SOURCE:
                node.follow(record, source, None)
            else:
                node.fail(record, "Unavailable")
        if effect.disposal is not DirectDisposal.FOLLOW_TO_SOURCE:
            for key in self.keys:
                node.path(key).deliver(PathLost(node.run))

    def _fail(self, work: list[Record], kind: str) -> None:
        for record in work:
            if record.fate is None:
                self.node.fail(record, kind)

    def _end_work(self, effect: fx.EndWork) -> None:
        work, self.work = self.work, []
        self.world.history.counts[f"work in doubt: {effect.kind}, {effect.applied}"] += len(work)
        if effect.applied == "no":  # the requests may be the source's to end
            self._fail([each for each in work if effect.requests or not each.request], effect.kind)
            return
        kept = self.ends_at + self.world.mix.options.ended_memory_s
        if (
            self.world.store.rows[self.key].object_generation == self.generation
            and self.node.local.now() < kept
        ):
            raise Violation(f"saved work of {self.key.decode()} is given up as in doubt, and the row tells")
        self.world.history.excuse(work, "in doubt, and its object was made anew")

    def _forget_work(self, effect: fx.ForgetWork) -> None:
        self.work = []

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
            effect.others,
        )

    def _send_follow(self, effect: fx.SendFollow) -> None:
        for record in effect.records:
            self.node.follow(record, effect.run, None)

    def _install_follow(self, effect: fx.InstallFollowRoute) -> None:
        self.node.install_follow(self, Route(effect.run, self.generation, 0), effect.run)

    def _remove_follow(self, effect: fx.RemoveFollowRoute) -> None:
        self.node.remove_follow(self)

    def _forget(self, effect: fx.ForgetHandoff) -> None:
        if self.kept_octets or len(self.held):
            raise Violation("a target's handoff ended with octets in its hands")
        self.node.targets.pop(self.identity, None)

    def arrived(self, event: Event, record: Record) -> None:
        """A record for the staged object; a marker is answered as it is staged (B9.4)."""
        self.deliver(event)
        staged = self.node.staged.get(record.key) is self
        if record.marker is not None and staged and self.world.answer_staged:
            self.node.answer(record, Route(self.node.run, self.generation, 0))

    _carriers = {  # noqa: RUF012
        Log: Driver.log,
        fx.ReadRow: Driver.read_row,
        fx.DeliverRecords: Driver.deliver_records,
        fx.FailHeld: Driver.fail_held,
        fx.InstallTemporaryQueue: _install,
        fx.StageParticipants: _stage_participants,
        fx.StoreChunk: _store_chunk,
        fx.CompareChunk: _compare_chunk,
        fx.VerifyAssembly: _verify,
        fx.RestoreObject: _restore,
        fx.SendRelayReady: _ready,
        fx.SendRelocationFailed: _failed,
        fx.WriteOwner: _write_owner,
        fx.OpenDispatch: _open,
        fx.CommitSessions: _commit_sessions,
        fx.DropTarget: _drop,
        fx.EndWork: _end_work,
        fx.ForgetWork: _forget_work,
        fx.MarkLost: _mark_lost,
        fx.SendFollow: _send_follow,
        fx.InstallFollowRoute: _install_follow,
        fx.RemoveFollowRoute: _remove_follow,
        fx.ForgetHandoff: _forget,
    }
