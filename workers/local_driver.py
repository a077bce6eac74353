"""Drives one `LocalHandoff`: the move of a unit to another worker of this node (B8.7).

Owns the object that the other worker builds, until it opens or is dropped, and the records held meanwhile. Every rule
of order and recovery is the machine's (`sojourn.handoff.local`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sojourn.control import DropObject, Opened, OpenObject, Restored, SavedRequest, UnitMember, Unseal
from sojourn.errors import InternalFailure, SojournError, Unavailable, error_from_fields
from sojourn.frames import FLAG_MARKER, RecordHeader
from sojourn.handoff import effects, events
from sojourn.handoff.local import LocalHandoff, LocalPlan
from sojourn.handoff.machine import Event, Log
from sojourn.handoff.terms import HandoffOptions, Outcome, Phase
from sojourn.ids import NodeRun, ObjectKey, describe_key
from sojourn.wire.checksum import checksum
from sojourn.workers.bulk_out import BulkOut
from sojourn.workers.debt import Debt
from sojourn.workers.handoff_store import write_owner
from sojourn.workers.handoff_wire import HandoffWire
from sojourn.workers.host_move import MoveResult
from sojourn.workers.lanes import RunningRequests, WorkerLane
from sojourn.workers.objects import LocalObject
from sojourn.workers.records import marker_number, record_origin
from sojourn.workers.source_driver import INTERRUPTION_WARNING_S
from sojourn.workers.source_object import SourceObject
from sojourn.workers.unit_rows import UnitRows

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["LocalDriver"]

_HERE = 0
"""The number of the connection from a node to itself; real ones start at 1."""


class LocalDriver(SourceObject[LocalHandoff]):
    """One move within the node, to the worker in slot `wanted`."""

    __slots__ = (
        "_checksum",
        "_counted",
        "_dropped",
        "_goes_on",
        "_interruption_ns",
        "_lane",
        "_out",
        "_running",
        "_saved",
        "plan",
        "wanted",
    )

    def __init__(
        self,
        node: Supervisor,
        held: LocalObject,
        number: int,
        rows: UnitRows,
        plan: LocalPlan,
        wire: HandoffWire,
        options: HandoffOptions,
        wanted: int,
        members: Sequence[LocalObject] = (),
    ) -> None:
        """`rows` were read before the handoff began; `members` are the Actors that move with the Spot `held`."""
        generations = plan.object_generation, plan.owner_generation
        machine = LocalHandoff(plan, options)
        super().__init__(node, held, number, rows, plan.identity, generations, wire, machine, members)
        self.plan = plan
        self.wanted = wanted
        self._lane: WorkerLane | None = None
        """The lane of the worker that builds the object: another one in its place is another worker."""
        self._out: BulkOut | None = None
        self._counted = False
        self._dropped = False
        self._goes_on = False
        self._saved: list[SavedRequest] = []
        self._running: RunningRequests | None = None
        """What the old worker had taken and not answered: it may have come with an earlier move (B7.1)."""
        self._interruption_ns = 0
        self._checksum = 0
        self._steps = {
            effects.SealObject: self._seal,
            effects.RestoreObject: self._restore_object,
            effects.WriteOwner: self._write_owner,
            effects.ReadRow: self._read_row,
            effects.OpenDispatch: self._open_dispatch,
            effects.DropStaged: self._drop_staged,
            effects.RestoreDispatch: self._restore_dispatch,
            effects.DeliverRecords: self._deliver,
            effects.EndDispatch: self._end_dispatch,
            effects.DropObject: self._drop_object,
            effects.RemoveFollowRoute: self._remove_follow,
            effects.ReleasePayload: self._release_payload,
            effects.FailHeld: self._fail_held,
            effects.FailTaken: self._fail_taken,
            effects.ReportOutcome: self._report,
            effects.ForgetHandoff: self._forget,
            Log: self._log,
        }

    # machine ------------------------------------------------------------------------------------

    @property
    def _target(self) -> str:
        return self._node.run.rid.decode("utf-8", "backslashreplace")

    @property
    def _destination(self) -> str:
        return f"worker {self.wanted}"

    def begin(self) -> None:
        """Everything was checked: start the machine."""
        self._chunk_limit = self._node.options.relocation_chunk_bytes
        self.handle(events.RelocationStarted(_HERE))

    def shut_down(self) -> None:
        """The node stops and waits no longer: nothing of the object runs here any more."""
        if self.machine.phase is Phase.OWNER_COMMITTED:
            return
        self._fail_records(self.machine.held, "ShuttingDown", "its node stopped while it moved")
        if self.machine.phase in (Phase.TARGET_RESTORING, Phase.STORE_RETRY):
            name = describe_key(self.held.key)
            text = f"{name} was on its way to {self._destination} when its node stopped"
            self._taken.fail(Unavailable(text, object_id=name, phase=self.machine.phase, applied="no"))
        if not self.outcome.done():
            detail = "the node stopped while it moved"
            self.outcome.set_result(
                MoveResult("failed", "ShutdownRequested", detail, self._target, worker=self.wanted)
            )

    # records ------------------------------------------------------------------------------------

    def record_arrived(
        self, body: bytes, header: RecordHeader, from_run: NodeRun | None, debt: Debt | None
    ) -> None:
        """See `Staging`. Markers are answered as they are taken in: what the hold has goes on in its order, and on
        this node, whatever becomes of the move (B9.4)."""
        self.held.owe(debt, len(body), self._node.retention)
        if header.flags & FLAG_MARKER:
            origin = record_origin(body, header.record_at)
            self._node.answer_marker(origin, marker_number(body), self._find(header.key) or self.held)
        else:
            self.handle(events.RecordArrived(body))

    def _find(self, key: ObjectKey) -> LocalObject | None:
        return next((each for each in self._unit if each.key == key), None)

    def bulk_arrived(self, last: bool, chunk: memoryview) -> None:
        """See `SourceObject`; each piece is checked as it comes."""
        self._checksum = checksum(chunk, self._checksum)
        super().bulk_arrived(last, chunk)

    # the other worker ---------------------------------------------------------------------------

    def _restore_object(self, effect: effects.RestoreObject) -> None:
        node = self._node
        former = node.lanes.get(self._worker)
        if former is not None and not self._worker_gone:
            self._running = former.requests_of({each.key for each in self._unit})
        lane = node.lanes.get(self.wanted)
        refusal = self._refusal(lane)
        if refusal is not None:
            node.loop.call_soon(self.handle, events.RestoreFailed(refusal))
            return
        self._lane = lane
        answer = self._begin_restore(
            self.wanted,
            effect.object_generation,
            effect.owner_generation,
            self.payload_octets,
            self._members_after(),
        )
        self._out = BulkOut(node.pool, self.wanted, self.number, node.start)
        for chunk in self.payload.chunks:
            self._out.put(chunk)
        self._out.end()
        self._ask(self._restored(answer))

    def _refusal(self, lane: WorkerLane | None) -> SojournError | None:
        if lane is None or self.wanted not in self._node.object_counts:
            return Unavailable(f"{self._destination} ended", applied="no")
        if self.manifest is None or self._checksum != self.manifest.checksum:  # R4.3.2
            return InternalFailure("what was captured has another checksum than its worker said")
        return None

    def _members_after(self) -> tuple[UnitMember, ...]:
        return tuple(
            UnitMember(each.key, each.stable_type, each.object_generation, each.owner_generation + 1)
            for each in self._unit[1:]
        )

    async def _restored(self, answer: Awaitable[Any]) -> Event:
        try:
            result = await answer
            assert isinstance(result, Restored)
            if result.error is not None:
                raise error_from_fields(result.error.kind, result.error.fields)
            if not self._stands:
                raise Unavailable(f"{self._destination} ended", applied="no")
        except SojournError as error:
            return events.RestoreFailed(error)
        if not self._dropped:
            self._saved = result.requests
            self._node.count_object(self.wanted, len(self._unit))
            self._counted = True
        return events.ObjectRestored()

    @property
    def _stands(self) -> bool:
        """The worker that was asked to build the object is the one in that slot."""
        node, lane = self._node, self._lane
        return lane is not None and node.lanes.get(self.wanted) is lane and self.wanted in node.object_counts

    def _drop_staged(self, effect: effects.DropStaged) -> None:
        self._dropped = True
        if self._out is not None:
            self._out.stop()
        if self._stands:
            self._node.pool.control(self.wanted, DropObject(self.held.key, "", self.number))
            if self._counted:
                self._node.count_object(self.wanted, -len(self._unit))

    # the owner ----------------------------------------------------------------------------------

    def _write_owner(self, effect: effects.WriteOwner) -> None:
        node, relocation = self._node, self.plan.identity.relocation_id
        self._ask(write_owner(self._rows, effect.expected_version, effect.others, node.owner, relocation, {}))

    # open ---------------------------------------------------------------------------------------

    def _end_dispatch(self, effect: effects.EndDispatch) -> None:
        """The owner is written. Where the new worker has ended since and the old one has not, the object goes on there:
        nothing of it was ever stopped for good."""
        self._goes_on = not self._stands and not self._worker_gone
        if not self._goes_on:
            super()._end_dispatch(effect)

    def _drop_object(self, effect: effects.DropObject) -> None:
        if not self._goes_on:
            super()._drop_object(effect)

    def _open_dispatch(self, effect: effects.OpenDispatch) -> None:
        for each in self._unit:
            owner_generation = each.owner_generation + 1
            each.settle(each.object_generation, owner_generation, self._node.run, self._node.lease_generation)
        if self._stands:
            # Till now they were the old worker's: what a worker only stages is lost with it without harm (B3.5).
            self._node.ledger.arrived(self.wanted, self.messages)
            self._ask(self._opened(self._open(self.wanted, self._saved, effect.queue)))
        elif self._goes_on:
            self._node.pool.control(self._worker, Unseal(self.held.key, self.number, moved=True))
            self._reopen(effect.queue)
            self._node.loop.call_soon(self.handle, events.DispatchOpened())
        else:  # both have ended, and the payload is still here: another worker takes it (B6.6)
            self._wait_as_new()
            self._ask(self._open_elsewhere(effect.queue))

    def _open(self, worker: int, saved: list[SavedRequest], records: Sequence[bytes]) -> Awaitable[Any]:
        """Open in this worker: saved work is there already, then the hold, then what comes (R4.6.1)."""
        node, held = self._node, self.held
        self._worker = worker
        self._worker_gone = False
        for each in self._unit:
            each.worker = worker
        moved = self._running is None and held.moved is not None
        node.lanes[worker].adopt(saved, moved, self._running)
        answer = node.pool.call(
            worker, lambda call: OpenObject(call, held.key, held.owner_generation, self.number)
        )
        held.settle_debts(node.retention)
        waited = self._take_again()
        self._deliver(effects.DeliverRecords(tuple(records)))
        self._deliver_waited(waited)
        return answer

    async def _open_elsewhere(self, records: Sequence[bytes]) -> Event:
        node, held = self._node, self.held
        try:
            worker, result = await self._restore_elsewhere(
                self._object_generation,
                held.owner_generation,
                lambda: self.payload.chunks,
                lambda: not self.forgotten,
                self._members(),
            )
            if self._authority_gone:
                node.pool.control(worker, DropObject(held.key, "", self.number))
                node.ledger.left(worker, result.messages)
                raise self._authority_error()
        except SojournError as error:
            self._not_restored(tuple(records), error)
            node.count("objects_lost", len(self._unit))
            await node.losses.mark_lost(list(self._unit))
            return events.DispatchOpenFailed(error)
        node.count_object(worker, len(self._unit))
        return await self._opened(self._open(worker, result.requests, records))

    async def _opened(self, answer: Awaitable[Any]) -> Event:
        try:
            opened = await answer
            assert isinstance(opened, Opened)
            if opened.error is not None:
                raise error_from_fields(opened.error.kind, opened.error.fields)
        except SojournError as error:
            return events.DispatchOpenFailed(error)
        ended_ns = opened.first_turn_ns or time.monotonic_ns()
        self._interruption_ns = max(0, ended_ns - self._sealed_ns)
        if self._interruption_ns > INTERRUPTION_WARNING_S * 1e9:
            self._log(Log("interruption", "warning", {"seconds": round(self._interruption_ns / 1e9, 3)}))
        return events.DispatchOpened()

    def _result(self, effect: effects.ReportOutcome) -> MoveResult:
        result = replace(super()._result(effect), worker=self.wanted, interruption_ns=self._interruption_ns)
        if effect.outcome is not Outcome.MOVED or self._worker == self.wanted:
            return result
        detail = f"{self._destination} ended; the object goes on in worker {self._worker}"
        return replace(result, outcome="failed", reason="RelocationFailed", detail=detail)

    def _forget(self, effect: effects.ForgetHandoff) -> None:
        self.forgotten = True
        self._release_payload(effects.ReleasePayload())
        self._arm()
        self._node.coordinator.forgotten(self)
