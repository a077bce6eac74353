"""The driver of `SourceHandoff`: effects become calls on node, store and network."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff.machine import Effect, Log
from sojourn.handoff.path import Route
from sojourn.handoff.source_states import (
    Abandoning,
    PastBoundary,
    Sealing,
    SourceClosed,
    SourceRestored,
    SourceRunning,
)
from sojourn.handoff.terms import HandoffIdentity, Manifest, Outcome, RowFacts
from sojourn.ids import NodeRun
from sojourn.session.effects import ReportNoBinding, ReportSealed
from sojourn.session.events import ContactReleased, RouteDecided, SealWanted

from tests.simulation.driver import Driver, checksum
from tests.simulation.history import LOST_WITH_OBJECT, Payload, Record, Violation
from tests.simulation.jobs import Permit
from tests.simulation.objects import LocalObject
from tests.simulation.retained import HeldRecords
from tests.simulation.sessions import ContactDriver, abort_of, terms_of

if TYPE_CHECKING:
    from tests.simulation.node import Node

__all__ = ["CHUNK_BYTES", "SourceDriver"]

CHUNK_BYTES = 4
RELAY_AT = 1_000_000
"""Where the batch stands in a unit's order: behind all saved work."""


class SourceDriver(Driver):
    """Drives one `SourceHandoff`."""

    def __init__(
        self, node: Node, target: Node, item: LocalObject, row: RowFacts, gives_up_at: float
    ) -> None:
        super().__init__(node, item.key)
        self.item = item
        self.keys = item.keys
        self.target = target
        self.identity = HandoffIdentity(
            (0, self.world.next_number()), 1, f"owner-{node.run}", 1, node.run, row.version
        )
        plan = self.world.source_plan(self.identity, target.run, row, gives_up_at)
        self.machine = self.world.new_source(plan)
        self.payload: Payload | None = None
        self.held = HeldRecords(node)
        self.relayed = 0
        self.batch: tuple[Record, ...] = ()
        self.follow_owner: NodeRun | None = None
        self.outcomes = 0
        self.permits: dict[Record, Permit] = {}
        """Of the captured records, until the cutover submit is terminal (B5.1)."""
        self.authority_gone = False
        """A look at the row after the lease had been over showed another incarnation (B6.4)."""
        self.ended_dispatch = 0
        self.owner_generation = row.owner_generation
        self.bound = row.bound and self.key in self.world.sessions
        self.contact: ContactDriver | None = None
        self.postponed = False

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
        if self.node.retained.over:
            raise Violation(f"a move starts while {self.node.run} keeps more than its limit")
        self.deliver(ev.RelocationStarted(connection))

    # sessions

    def _await_boundary(self, effect: fx.AwaitTurnBoundary) -> None:
        self.node.handoffs[self.identity] = self
        self.node.sealing[self.key] = self
        if self.item.running is None:
            self.deliver_later(ev.TurnBoundaryReached())
        else:
            self.item.boundaries.append(lambda: self.deliver_later(ev.TurnBoundaryReached()))

    def _ask_session(self, effect: fx.AskSessionSeal) -> None:
        if self.contact is None:
            session = self.world.sessions[self.key]
            terms = terms_of(session, self.identity, self.owner_generation)
            self.contact = ContactDriver(self.node, session, terms)
            self.contact.report = self._session_answered
        self.contact.deliver(SealWanted())

    def _session_answered(self, report: Effect) -> None:
        if isinstance(report, ReportSealed):
            self.deliver(ev.SessionSealed(0))
        elif isinstance(report, ReportNoBinding):
            self.bound = False
            self.deliver(ev.SessionUnbound(0))
        else:
            self.deliver(ev.SessionRefused(0))

    def _abort_sessions(self, effect: fx.AbortSessions) -> None:
        if self.item.status != "open" or self.node.objects.get(self.key) is not self.item:
            raise Violation(f"a session seal is given back while {self.key.decode()} is {self.item.status}")
        self.world.aborted[self.identity.relocation_id] = self.world.clock.now
        if self.contact is not None:
            self.contact.deliver(RouteDecided(abort_of(self.contact), commit=False))

    def _no_longer_sealing(self) -> None:
        if self.node.sealing.get(self.key) is self:
            del self.node.sealing[self.key]

    def _release_session(self) -> None:
        if self.contact is not None:
            self.contact.deliver(ContactReleased())

    def _turn_limit(self) -> None:
        if isinstance(self.machine.state, Sealing | Abandoning) and self.item.give_up_seal():
            self.deliver(ev.TurnOutlasted())

    # object

    def _seal(self, effect: fx.SealObject) -> None:
        self._no_longer_sealing()
        if self.node.objects.get(self.key) is not self.item:  # dropped while its session was being sealed
            self.deliver_later(ev.WorkerLost())
            return
        for key in self.keys:
            self.node.sources[key] = self.node.latest[key] = self
        self.node.handoffs[self.identity] = self
        self.item.seal(self._sealed)
        if self.bound:
            self.world.clock.at(self.node.local.when(effect.until), self.node.step, self._turn_limit)

    def _sealed(self) -> None:
        self.world.clock.after(self.world.mix.capture_s, self.node.step, self._capture)

    def _capture(self) -> None:
        world, item = self.world, self.item
        if world.chance(world.mix.capture_fails):
            self.deliver(ev.CaptureRefused("refused"))
            return
        if self.bound:
            world.sessions[self.key].check_sealed(self.identity.relocation_id)
        item.status = "closed"
        data = world.random_bytes()
        self.payload = Payload(self.node.run, data, item.generation, dict(item.handled), list(item.mailbox))
        for place, record in enumerate(item.mailbox):
            record.stamp = (self.identity, place)
            if record.permit is not None:
                self.permits[record] = record.permit
                record.permit = None
        self.payload.permits = tuple(self.permits.values())
        world.history.captured(self.payload)
        self.node.retained.keep(len(data))
        world.payloads[self.identity] = self.payload
        count = -(-len(data) // CHUNK_BYTES)
        self.deliver(ev.ObjectCaptured(Manifest(len(data), count, checksum(data, 0))))

    def _restore_dispatch(self, effect: fx.RestoreDispatch) -> None:
        self.held.settle()
        if effect.captured:
            assert self.payload is not None
            self.payload.use()
        if self.authority_gone:
            self._authority_lost(effect)
            return
        for record in self.item.mailbox:
            record.permit = record.permit or self.permits.pop(record, None)
        self.world.restored(self)
        self.item.open()
        for record in effect.records:
            self.node.take(record, None)
        self.deliver_later(ev.DispatchRestored())

    def _end_dispatch(self, effect: fx.EndDispatch) -> None:
        self.ended_dispatch += 1
        if self.ended_dispatch > 1:
            raise Violation("dispatch ended twice")
        self.return_permits()

    def return_permits(self) -> None:
        permits, self.permits = self.permits, {}
        for permit in permits.values():
            permit.give_back()

    def _authority_lost(self, effect: fx.RestoreDispatch) -> None:
        """The object may run elsewhere: it is not opened here again, and what it held fails."""
        self.world.history.counts["authority lost"] += 1
        self.return_permits()
        self.node.drop_object(self.item)
        self.item.status = "closed"
        for record in (*self.item.mailbox, *effect.records):
            if record.fate is None:
                self.node.fail(record, "DataLost")
        for key in self.keys:
            if self.node.sources.get(key) is self:
                del self.node.sources[key]
        self.deliver_later(ev.DispatchRestoreFailed("authority lost"))

    def _release(self, effect: fx.ReleasePayload) -> None:
        if self.payload is None:
            raise Violation("a payload was released that never was")
        self.world.history.released(self.payload)
        self.node.retained.free(len(self.payload.data))

    def _fail_taken(self, effect: fx.FailTaken) -> None:
        """End the requests that left with the payload or the batch; an end that the target stored is theirs. Of the
        sends that left with the payload, those that the machine does not leave to the target."""
        saved = self.payload.saved if self.payload is not None else []
        for record in (*saved, *self.batch):
            if record.request and self.world.mix.kept_replies:
                record.ended_elsewhere = True
                if effect.applied == "unknown":
                    self.world.blobs.read(record, partial(self.node.step, self._end_in_doubt, record))
                else:
                    self._end_taken(record, "failed")
        for record in saved:
            if record.request and record.fate is None:
                self.world.history.excuse((record,), LOST_WITH_OBJECT)
            elif effect.applied == "unknown":
                self.world.history.excuse((record,), "left with its object, and nobody knows")
            elif effect.sends and record.fate is None:
                self.node.fail(record, effect.kind)

    def _end_in_doubt(self, record: Record, known: bool, found: bool) -> None:
        if found:
            self.node.replies.bring(record)
        else:
            self._end_taken(record, "in doubt")

    def _end_taken(self, record: Record, how: str) -> None:
        if record.origin == self.node.run:
            self.node.replies.ended_elsewhere(record, how)
        else:
            self.node.send(record.origin, ("ended elsewhere", record, how))

    def _drop(self, effect: fx.DropObject) -> None:
        self.return_permits()
        self.node.drop_object(self.item)
        if self.payload is None:
            self.world.history.excuse(self.item.mailbox, LOST_WITH_OBJECT)

    # messages

    def _send_restore(self, effect: fx.SendRestore) -> None:
        frame = ("restore", self.identity, self.key, effect.manifest, effect.remaining_s)
        self.node.send_on(effect.connection, frame)
        if self.world.chance(self.world.mix.conflicts):
            other = effect.manifest._replace(checksum=effect.manifest.checksum ^ 1)
            self.node.send_on(effect.connection, (*frame[:3], other, effect.remaining_s))

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
        self.batch = effect.records
        for place, record in enumerate(effect.records):
            record.stamp = (self.identity, RELAY_AT + place)
            self.node.send_on(effect.connection, ("relay", self.identity, record))

    def _send_cutover(self, effect: fx.SendCutover) -> None:
        self.world.crossed(self)
        self._release_session()
        self.held.settle()
        frame = ("cutover", self.identity, effect.count, effect.checksum)
        self.node.send_on(effect.connection, frame)

    def _send_follow(self, effect: fx.SendFollow) -> None:
        for record in effect.records:
            self.node.follow(record, effect.run, self)

    def _install(self, effect: fx.InstallFollowRoute) -> None:
        self.held.settle()
        route = Route(effect.run, self.item.generation, effect.owner_generation)
        self.node.install_follow(self, route, self.target.run)
        self.follow_owner = effect.run

    def _remove(self, effect: fx.RemoveFollowRoute) -> None:
        self.held.settle()
        self.node.remove_follow(self)
        self.node.forget_source(self)

    def _report(self, effect: fx.ReportOutcome) -> None:
        self.outcomes += 1
        self.postponed = effect.outcome is Outcome.POSTPONED
        if self.outcomes > 1:
            raise Violation("a move has two outcomes")
        self.world.reported(self, effect.outcome)

    def _forget(self, effect: fx.ForgetHandoff) -> None:
        self.node.handoffs.pop(self.identity, None)
        self._no_longer_sealing()
        self._release_session()
        if len(self.held):
            raise Violation("a source's handoff ended with octets in its hands")
        self.node.forget_source(self)
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
            effect.others,
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
            effect.others,
        )

    _carriers = {  # noqa: RUF012
        Log: Driver.log,
        fx.ReadRow: Driver.read_row,
        fx.DeliverRecords: Driver.deliver_records,
        fx.FailHeld: Driver.fail_held,
        fx.AwaitTurnBoundary: _await_boundary,
        fx.AskSessionSeal: _ask_session,
        fx.AbortSessions: _abort_sessions,
        fx.FailTaken: _fail_taken,
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
