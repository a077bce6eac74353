"""Drives one `SourceHandoff`: the source's half of one move, over IPC, the link and the store.

Owns the payload, the connection the machine speaks of and the object's place at this node. Every rule of
order and recovery is the machine's (`sojourn.handoff`); this file only carries effects out.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

from sojourn import mesh
from sojourn.control import (
    AwaitBoundary,
    Captured,
    DropObject,
    OpenObject,
    OpenRequest,
    Seal,
    SealRefused,
    UnitMember,
    Unseal,
)
from sojourn.errors import (
    ERROR_KINDS,
    DataLost,
    DeadlineExceeded,
    InvalidOperation,
    SojournError,
    Unavailable,
    error_from_fields,
)
from sojourn.frames import FLAG_LOOP, FLAG_MARKER, FLAG_REQUEST, RecordHeader, parse_record_header
from sojourn.handoff import effects, events
from sojourn.handoff.machine import Event, IllegalTransition, Log
from sojourn.handoff.source import SourceHandoff, SourcePlan
from sojourn.handoff.source_states import Abandoning
from sojourn.handoff.terms import HandoffOptions, Manifest, Outcome, Phase
from sojourn.ids import NodeRun, ObjectKey, describe_key
from sojourn.wire.checksum import checksum
from sojourn.workers.captured_payload import CapturedPayload
from sojourn.workers.debt import Debt
from sojourn.workers.handoff_driver import HandoffDriver
from sojourn.workers.handoff_store import lose_unit, read_facts, write_fence
from sojourn.workers.handoff_wire import HandoffWire
from sojourn.workers.host_move import MoveResult, failure_reason
from sojourn.workers.link import Link
from sojourn.workers.objects import LocalObject, Place
from sojourn.workers.records import frozen_record, record_origin
from sojourn.workers.session_wire import SessionWire
from sojourn.workers.source_sessions import SourceSessions
from sojourn.workers.stream import HandedMark
from sojourn.workers.unit_rows import UnitRows

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["SourceDriver"]

INTERRUPTION_WARNING_S = 1.0
"""From seal to cutover submitted: longer than this is worth a warning (B10.7)."""


class SourceDriver(HandoffDriver[SourceHandoff]):
    """One handoff at its source. `outcome` ends when the machine reports."""

    def __init__(
        self,
        node: Supervisor,
        held: LocalObject,
        number: int,
        rows: UnitRows,
        plan: SourcePlan,
        wire: HandoffWire,
        options: HandoffOptions,
        sessions: Sequence[SessionWire] = (),
        members: Sequence[LocalObject] = (),
    ) -> None:
        """`rows` were read before the handoff began; `members` are the Actors that move with the Spot `held`."""
        machine = SourceHandoff(plan, checksum, frozen_record, options)
        super().__init__(node, held, number, plan.identity, wire, machine)
        self.plan = plan
        self.payload = CapturedPayload(wire.frames, node.coordinator.budget, node.retention, node.loop)
        self._rows = rows
        self._unit = [held, *members]
        self.outcome: asyncio.Future[MoveResult] = node.loop.create_future()
        self._authority_gone = False
        self._chunk_limit = 0
        self._relay_marks: list[HandedMark] = []
        """One per relay record of the last `SendRelay`: what may have arrived must not be followed as well."""
        self._taken: list[OpenRequest] = []
        """Requests that left with the payload or the batch, for the case that nobody else can end them."""
        self._taken_sends = 0
        self._sealed_ns = 0
        self._past_boundary = False
        self._relayed = False
        self._debt: Debt | None = None
        self._sessions = SourceSessions(node, sessions, self.handle)
        self._steps = {
            effects.AwaitTurnBoundary: self._await_boundary,
            effects.AskSessionSeal: lambda effect: self._sessions.ask(effect.session),
            effects.AbortSessions: lambda _: self._sessions.abort(),
            effects.SealObject: self._seal,
            effects.SendRestore: self._send_restore,
            effects.SendChunks: self._send_chunks,
            effects.WriteFence: self._write_fence,
            effects.SendWithdrawn: self._send_withdrawn,
            effects.SendRelay: self._send_relay,
            effects.SendCutover: self._send_cutover,
            effects.SendFollow: self._send_follow,
            effects.RestoreDispatch: self._restore_dispatch,
            effects.DeliverRecords: self._deliver,
            effects.EndDispatch: self._end_dispatch,
            effects.ReleasePayload: self._release_payload,
            effects.DropObject: self._drop_object,
            effects.InstallFollowRoute: self._install_follow,
            effects.RemoveFollowRoute: self._remove_follow,
            effects.MarkLost: self._mark_lost,
            effects.FailHeld: self._fail_held,
            effects.FailTaken: self._fail_taken,
            effects.ReportOutcome: self._report,
            effects.ReadRow: self._read_row,
            effects.ForgetHandoff: self._forget,
            Log: self._log,
        }

    # machine ------------------------------------------------------------------------------------

    @property
    def key(self) -> ObjectKey:
        """The object that moves."""
        return self.held.key

    @property
    def sealed_ns(self) -> int:
        """CLOCK_MONOTONIC ns when the object's dispatch stopped (S0 of B10.7), 0 before."""
        return self._sealed_ns

    @property
    def payload_octets(self) -> int:
        """Octets of the payload that is kept in memory, 0 once it is released (R4.4.3)."""
        return self.payload.octets

    def begin(self, link: Link) -> None:
        """Everything was checked: start the machine on this connection."""
        self._link = link
        self._chunk_limit = min(
            self._node.options.relocation_chunk_bytes, link.peer_receive_chunk_limit or 32 * 1024
        )
        options = self._node.options
        for budget in (options.relocation_in_flight_bytes, options.relocation_node_in_flight_bytes):
            if budget:
                self._chunk_limit = min(self._chunk_limit, budget)
        self.handle(events.RelocationStarted(link.connection_id))

    def _broken(self, bug: IllegalTransition) -> None:
        if not self.outcome.done():
            self.outcome.set_result(MoveResult("in_doubt", "RelocationFailed", bug.message.splitlines()[0]))

    @property
    def _target(self) -> str:
        return self.plan.target.rid.decode("utf-8", "backslashreplace")

    def shut_down(self) -> None:
        """The node stops and waits no longer. What the target was asked for it may still carry out."""
        self._fail_records(self.machine.unsent, "ShuttingDown", "its node stopped while it moved")
        if not self.outcome.done():
            name = describe_key(self.held.key)
            error = Unavailable(
                f"{name} was on its way to node {self.plan.target} when its node stopped",
                object_id=name,
                phase=self.machine.phase,
                applied="unknown",
            )
            self._end_requests(self._taken, error)
            word = "failed" if self.machine.phase is Phase.SOURCE_RUNNING else "in_doubt"
            detail = "the node stopped while it moved"
            self.outcome.set_result(MoveResult(word, "ShutdownRequested", detail, self._target))

    def _stepped(self) -> None:
        state = self.machine.state
        if isinstance(state, Abandoning) and not self.outcome.done():
            # It can only fail now, and the turn that is awaited may take any time: nobody waits for that.
            self._report(effects.ReportOutcome(Outcome.FAILED, state.reason))

    # records ------------------------------------------------------------------------------------

    def record_arrived(
        self, body: bytes, header: RecordHeader, from_run: NodeRun | None, debt: Debt | None
    ) -> None:
        """See `Staging`. Before the boundary the hold owes the debt, after it the link to the target does."""
        if self._past_boundary:
            self._debt = debt
        else:
            self.held.owe(debt, len(body), self._node.retention)
        self.handle(events.RecordArrived(body))
        debt, self._debt = self._debt, None
        if debt is not None:
            debt.settle()

    # links --------------------------------------------------------------------------------------

    def follows_over(self, link: Link) -> bool:
        """Whether what comes for the object is followed on this connection: past the boundary, to the target."""
        return (
            self._past_boundary and self._link is not None and self._link.connection_id == link.connection_id
        )

    def link_down(self, link: Link, follow_unsent: tuple[bytes, ...]) -> None:
        """The connection to the target broke."""
        if self._link is not None and self._link.connection_id == link.connection_id:
            self._link = None
            handed = sum(mark.handed for mark in self._relay_marks)
            self.handle(events.LinkLost(link.connection_id, handed, follow_unsent))

    def link_up(self, link: Link) -> None:
        """A new connection to the target's run stands."""
        if self._link is None:
            self._link = link
            self.handle(events.LinkRestored(link.connection_id))

    # seal and capture ---------------------------------------------------------------------------

    def drives(self, held: LocalObject) -> bool:
        """Whether this handoff of that very object is not over."""
        return held in self._unit and not self.forgotten

    def takes(self, key: ObjectKey) -> bool:
        """Whether the object of this key is in the unit."""
        return any(each.key == key for each in self._unit)

    def lost_while_running(self) -> None:
        """The object ended with its worker before it was sealed."""
        self._worker_gone = True
        self.handle(events.WorkerLost())

    def _await_boundary(self, effect: effects.AwaitTurnBoundary) -> None:
        answer = self._node.pool.call(self._worker, lambda call: AwaitBoundary(call, self.held.key))
        self._ask(self._boundary(answer))

    async def _boundary(self, answer: Awaitable[Any]) -> Event:
        try:
            await answer
        except SojournError:
            return events.WorkerLost()
        return events.TurnBoundaryReached()

    def _seal(self, effect: effects.SealObject) -> None:
        node, held = self._node, self.held
        objects = node.router.objects
        if objects.get(held.key) is not held:  # lost or closed while its session was being sealed
            self._worker_gone = True
            node.loop.call_soon(self.handle, events.WorkerLost())
            return
        gone = [each.key for each in self._unit if objects.get(each.key) is not each]
        if gone:  # the Spot and its other members live on
            text = f"{describe_key(gone[0])} left {describe_key(held.key)} before that could be sealed"
            node.loop.call_soon(self.handle, events.CaptureRefused(InvalidOperation(text)))
            return
        for each in self._unit:
            each.place = Place.SOURCE
            each.staging = self
        node.lanes[held.worker].flush_objects({each.key for each in self._unit})
        high, low = self.plan.identity.relocation_id
        wait_ms = max(1, int((effect.until - node.loop.time()) * 1000))
        answer = node.pool.call(
            held.worker,
            lambda call: Seal(
                call,
                held.key,
                self.number,
                high,
                low,
                self.plan.object_generation,
                self.plan.owner_generation,
                self._chunk_limit,
                wait_ms,
                self._members(),
            ),
        )
        self._ask(self._await_capture(answer))

    def _members(self) -> tuple[UnitMember, ...]:
        return tuple(
            UnitMember(each.key, each.stable_type, each.object_generation, each.owner_generation)
            for each in self._unit[1:]
        )

    async def _await_capture(self, answer: Awaitable[Any]) -> Event:
        try:
            result = await answer
            if isinstance(result, SealRefused):
                if self.plan.sessions and result.error.kind == DeadlineExceeded.kind:
                    return events.TurnOutlasted()
                return events.CaptureRefused(error_from_fields(result.error.kind, result.error.fields))
            assert isinstance(result, Captured)
            if result.length:
                await self.payload.whole()
        except SojournError:
            return events.WorkerLost()
        self._sealed_ns = result.sealed_ns
        self._taken = list(result.requests)
        self._taken_sends = result.sends
        return events.ObjectCaptured(
            Manifest(result.length, len(self.payload.chunks), result.checksum, self._node.application_version)
        )

    def bulk_arrived(self, last: bool, chunk: memoryview) -> None:
        """A piece of the payload came from the worker; it is kept whole in memory (R4.2.1)."""
        self.payload.take(last, chunk)

    def worker_lost(self) -> bool:
        """The worker that holds the object ended. True when the object is lost with it: the payload is not
        whole here yet (B6.6); then the end of the pool's answer tells the machine."""
        self._worker_gone = True
        return self.payload.worker_lost()

    def authority_lost(self) -> None:
        """Another incarnation may run elsewhere: what is captured here is never opened again (B6.4)."""
        self._authority_gone = True

    # towards the target -------------------------------------------------------------------------

    def _send_restore(self, effect: effects.SendRestore) -> None:
        link = self._link_of(effect.connection)
        if link is not None:
            link.send_contract(
                self._wire.prepare(self._node.run, effect.manifest), int(effect.remaining_s * 1000)
            )

    def _send_chunks(self, effect: effects.SendChunks) -> None:
        link = self._link_of(effect.connection)
        if link is None:
            return
        if self.payload.send_at_once(link):
            self.handle(events.ChunksSent(effect.connection))
        else:
            sent = self.payload.send(link, lambda: self._link_of(effect.connection) is not None)
            self._node.start(self._chunks_sent(effect.connection, sent))

    async def _chunks_sent(self, connection: int, sent: Awaitable[bool]) -> None:
        if await sent:
            self.handle(events.ChunksSent(connection))

    def _send_relay(self, effect: effects.SendRelay) -> None:
        self._relay_marks = []
        link = self._link_of(effect.connection)
        if link is None:
            return
        first = not self._relayed
        self._relayed = True
        for body in effect.records:
            if first:
                self._note_taken(body)
            mark = HandedMark()
            self._relay_marks.append(mark)
            link.send_contract([[self.frames.relay_head, frozen_record(body)]], 0, mark)

    def _send_cutover(self, effect: effects.SendCutover) -> None:
        self._past_boundary = True
        self._sessions.release()
        self.held.settle_debts(self._node.retention)
        link = self._link_of(effect.connection)
        if link is not None:
            link.send_contract(
                (self.frames.cutover(effect.count, effect.checksum),),
                0,
                functools.partial(self._cutover_written, effect.connection),
            )

    def _cutover_written(self, connection: int, handed: bool) -> None:
        if not handed:
            return
        paused_s = (time.monotonic_ns() - self._sealed_ns) / 1e9
        if paused_s > INTERRUPTION_WARNING_S:
            self._log(Log("interruption", "warning", {"seconds": round(paused_s, 3)}))
        self.handle(events.CutoverSubmitted(connection))

    def _send_follow(self, effect: effects.SendFollow) -> None:
        for body in effect.records:
            debt, self._debt = self._debt, None
            self._node.coordinator.following.send_followed(self.held, body, effect.run, debt)

    # store --------------------------------------------------------------------------------------

    def _write_fence(self, effect: effects.WriteFence) -> None:
        self._ask(write_fence(self._rows, effect.others, self.plan.identity.relocation_id))

    def _read_row(self, effect: effects.ReadRow) -> None:
        self._ask(read_facts(self._rows))

    def _mark_lost(self, effect: effects.MarkLost) -> None:
        self._ask(lose_unit(self._rows, effect.version, effect.others))

    # back, or gone ------------------------------------------------------------------------------

    def _restore_dispatch(self, effect: effects.RestoreDispatch) -> None:
        node, held = self._node, self.held
        if self._authority_gone:
            lost = self._authority_error()
            self._log(Log("authority_lost", "error", {}))
            self._drop_object(effects.DropObject(""))
            self._not_restored(effect.records, lost)
            node.loop.call_soon(self.handle, events.DispatchRestoreFailed(lost))
        elif not self._worker_gone:
            if effect.captured:
                node.pool.control(held.worker, Unseal(held.key, self.number))
            self._reopen(effect.records)
            node.loop.call_soon(self.handle, events.DispatchRestored())
        elif effect.captured:
            self._wait_as_new()
            self._ask(self._restore_here(effect.records))
        else:
            name = describe_key(held.key)
            error = DataLost(f"{name} was lost with its worker process", object_id=name, applied="no")
            self._not_restored(effect.records, error)
            node.loop.call_soon(self.handle, events.DispatchRestoreFailed(error))

    def _authority_error(self) -> DataLost:
        name = describe_key(self.held.key)
        return DataLost(
            f"{name} is not this node's any more: its lease was over while the object moved",
            object_id=name,
            applied="no",
        )

    def _reopen(self, records: tuple[bytes, ...]) -> None:
        for each in self._unit:
            each.place = Place.ACTIVE
            each.staging = None
        self.held.settle_debts(self._node.retention)
        self._deliver(effects.DeliverRecords(records))

    async def _restore_here(self, records: tuple[bytes, ...]) -> Event:
        """The worker died with the captured object: it goes on in another one (B6.6)."""
        node, held, plan = self._node, self.held, self.plan
        try:
            worker, result = await self._restore_elsewhere(
                plan.object_generation,
                plan.owner_generation,
                lambda: self.payload.chunks,
                lambda: not self.forgotten,
                self._members(),
            )
            if self._authority_gone:
                node.pool.control(worker, DropObject(held.key, "", self.number))
                raise self._authority_error()
        except SojournError as error:
            self._not_restored(records, error)
            await node.losses.mark_lost(list(self._unit))
            return events.DispatchRestoreFailed(error)
        node.count_object(worker, len(self._unit))
        self._worker = worker
        for each in self._unit:
            each.worker = worker
        self._worker_gone = False
        node.lanes[worker].adopt(result.requests, moved=held.moved is not None)
        node.cold.forget(held)  # the new worker does not know which message it was
        node.lanes[worker].deliver_ordered(
            node.pool.encode(OpenObject(0, held.key, plan.owner_generation, self.number))
        )
        held.settle_debts(node.retention)
        waited = self._take_again()
        self._deliver(effects.DeliverRecords(records))
        self._deliver_waited(waited)
        return events.DispatchRestored()

    def _not_restored(self, records: tuple[bytes, ...], error: SojournError) -> None:
        """Nothing of it runs again: what it had queued ends like what was held."""
        self._end_requests(self._taken, error)
        for body in records:
            self._node.fail_record(body, parse_record_header(body), error)
        self._fail_waiting(error)
        self._remove_follow(effects.RemoveFollowRoute())

    def _deliver(self, effect: effects.DeliverRecords) -> None:
        for body in effect.records:
            header = parse_record_header(body)
            held = self._node.router.objects.get(header.key)
            if held is None:
                self._node.senders.submit(body, header, None)
            else:
                self._node.router.to_object(held, body, header, None, None)

    def _end_dispatch(self, effect: effects.EndDispatch) -> None:
        """The captured work's permits go back with the instance (see `DropObject`)."""
        lane = self._node.lanes.get(self._worker)
        if lane is not None:
            for each in self._unit:
                lane.forget_object(each.key)
        self._node.cold.forget(self.held)

    def _release_payload(self, effect: effects.ReleasePayload) -> None:
        self._relay_marks = []
        self.payload.release()

    def _drop_object(self, effect: effects.DropObject) -> None:
        node, held = self._node, self.held
        if not self._worker_gone:
            node.pool.control(self._worker, DropObject(held.key, effect.reason, self.number))
            node.count_object(self._worker, -len(self._unit))
        for each in self._unit:
            each.worker = -1

    def _install_follow(self, effect: effects.InstallFollowRoute) -> None:
        self.held.settle_debts(self._node.retention)
        moves = effect.owner_generation - self.plan.owner_generation  # of the whole unit, this one included
        for each in self._unit:
            generation = each.owner_generation + moves
            self._node.coordinator.following.install(each, effect.run, generation, self.plan.target)

    def _send_withdrawn(self, effect: effects.SendWithdrawn) -> None:
        link = self._link_of(effect.connection)
        if link is not None:
            high, low = self.plan.identity.relocation_id
            link.send_control(mesh.Withdrawn(high, low, self.plan.identity.attempt))

    def _remove_follow(self, effect: effects.RemoveFollowRoute) -> None:
        self.held.settle_debts(self._node.retention)
        objects = self._node.router.objects
        for each in self._unit:
            if objects.get(each.key) is each:
                del objects[each.key]

    def _note_taken(self, body: bytes) -> None:
        header = parse_record_header(body)
        if header.flags & FLAG_REQUEST:
            origin = record_origin(body, header.record_at)
            self._taken.append(
                OpenRequest(
                    origin.rid,
                    origin.generation,
                    header.reply_route,
                    header.operation_high,
                    header.operation_low,
                )
            )
        elif not header.flags & (FLAG_MARKER | FLAG_LOOP):
            self._taken_sends += 1

    def _fail_taken(self, effect: effects.FailTaken) -> None:
        name = describe_key(self.held.key)
        self._node.count("failed_requests" if effect.applied == "no" else "in_doubt", len(self._taken))
        error = ERROR_KINDS[effect.kind](
            f"{name} took the message along in its relocation to node {self.plan.target}, which did not end well",
            object_id=name,
            phase=self.machine.phase,
            applied=effect.applied,
        )
        if effect.applied == "unknown":
            self._node.start(self._end_in_doubt(self._taken, error))
        else:
            self._end_requests(self._taken, error)
        if effect.sends and self._taken_sends:
            self._node.count("dead_letters", self._taken_sends)
            self._log(Log("dead_letter", "warning", {"reason": str(error), "messages": self._taken_sends}))
        self._taken, self._taken_sends = [], 0

    def _fail_held(self, effect: effects.FailHeld) -> None:
        self._fail_records(effect.records, effect.kind, f"its relocation ended ({self.machine.phase})")

    def _report(self, effect: effects.ReportOutcome) -> None:
        if self.outcome.done():
            return
        target = self._target
        if effect.outcome is Outcome.MOVED:
            result = MoveResult("moved", target=target)
        else:
            word = "in_doubt" if effect.outcome is Outcome.IN_DOUBT else str(effect.outcome)
            result = MoveResult(word, failure_reason(effect.reason), str(effect.reason), target)
        self.outcome.set_result(result)

    def _forget(self, effect: effects.ForgetHandoff) -> None:
        self.forgotten = True
        self._release_payload(effects.ReleasePayload())  # what a worker that ended had captured in part
        self._arm()
        self._sessions.release()
        self._node.coordinator.source_forgotten(self)
