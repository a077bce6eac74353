"""The object of a handoff at its source: stopped and captured in its worker, given back there or let go.

Owns the payload, what left with it, and the object's place at this node. Whereto it moves is the business of who
inherits this: `SourceDriver` for another node, `LocalDriver` for another worker of this one.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sojourn.control import (
    Captured,
    DropObject,
    OpenObject,
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
    error_from_fields,
)
from sojourn.frames import RecordHeader, parse_record_header
from sojourn.handoff import effects, events
from sojourn.handoff.machine import Event, IllegalTransition, Log, Machine
from sojourn.handoff.terms import HandoffIdentity, Manifest, Outcome, TargetFailure
from sojourn.ids import NodeRun, ObjectKey, describe_key
from sojourn.workers.captured_payload import CapturedPayload
from sojourn.workers.debt import Debt
from sojourn.workers.handoff_driver import HandoffDriver
from sojourn.workers.handoff_store import read_facts
from sojourn.workers.handoff_wire import HandoffWire
from sojourn.workers.host_move import MoveResult, failure_reason
from sojourn.workers.named_work import NamedWork
from sojourn.workers.objects import LocalObject, Place
from sojourn.workers.unit_rows import UnitRows

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["SourceObject"]

MachineT = TypeVar("MachineT", bound=Machine)


class SourceObject(HandoffDriver[MachineT]):
    """One handoff at its source. `outcome` ends when the machine reports."""

    __slots__ = (
        "_authority_gone",
        "_chunk_limit",
        "_object_generation",
        "_owner_generation",
        "_rows",
        "_sealed_ns",
        "_taken",
        "manifest",
        "messages",
        "outcome",
        "payload",
        "told",
    )

    _target_version: int | None = None
    """The application version the target must run, None = this node's (B8.1). The payload says what wrote it (B1.9)."""

    _bound = False
    """The unit is bound to a session: a turn that outlasts its seal postpones the move (B8.12)."""

    def __init__(
        self,
        node: Supervisor,
        held: LocalObject,
        number: int,
        rows: UnitRows,
        identity: HandoffIdentity,
        generations: tuple[int, int],
        wire: HandoffWire,
        machine: MachineT,
        members: Sequence[LocalObject] = (),
    ) -> None:
        """`rows` were read before the handoff began, with the object's and the owner's generation; `members` are the
        Actors that move with the Spot `held`."""
        super().__init__(node, held, number, identity, wire, machine)
        self.payload = CapturedPayload(wire.frames, node.coordinator.budget, node.retention, node.loop)
        self._rows = rows
        self._object_generation, self._owner_generation = generations
        self._unit = [held, *members]
        self.outcome: asyncio.Future[MoveResult] = node.loop.create_future()
        self._authority_gone = False
        self._chunk_limit = 0
        self._taken = NamedWork(node, wire.identity, self._log)
        """What left with the payload or the batch, for the case that nobody else can end it."""
        self.messages = 0
        """Messages that were captured."""
        self._sealed_ns = 0
        self.told: TargetFailure | None = None
        """What the target said beside its 53."""
        self.manifest: Manifest | None = None
        """What was captured."""

    # machine ------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def _target(self) -> str:
        """RID of the node it moves to, as results name it."""

    @property
    @abstractmethod
    def _destination(self) -> str:
        """Where it moves to, as errors name it."""

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

    def _broken(self, bug: IllegalTransition) -> None:
        if not self.outcome.done():
            self.outcome.set_result(MoveResult("in_doubt", "RelocationFailed", bug.message.splitlines()[0]))

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

    @abstractmethod
    def record_arrived(
        self, body: bytes, header: RecordHeader, from_run: NodeRun | None, debt: Debt | None
    ) -> None:
        """See `Staging`."""

    # seal and capture ---------------------------------------------------------------------------

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
        node.bindings.look_again()
        node.lanes[held.worker].flush_objects({each.key for each in self._unit})
        high, low = self._identity.relocation_id
        wait_ms = max(1, int((effect.until - node.loop.time()) * 1000))
        answer = node.pool.call(
            held.worker,
            lambda call: Seal(
                call,
                held.key,
                self.number,
                high,
                low,
                self._object_generation,
                self._owner_generation,
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
                if self._bound and result.error.kind == DeadlineExceeded.kind:
                    return events.TurnOutlasted()
                return events.CaptureRefused(error_from_fields(result.error.kind, result.error.fields))
            assert isinstance(result, Captured)
            self.messages = len(result.requests) + result.sends
            if result.length:
                await self.payload.whole()
        except SojournError:
            return events.WorkerLost()
        self._sealed_ns = result.sealed_ns
        version = self._target_version
        if version is None:
            version = self._node.application_version
        self.manifest = Manifest(result.length, len(self.payload.chunks), result.checksum, version)
        self._taken.take(result.requests, result.sends)
        return events.ObjectCaptured(self.manifest)

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
        node, held = self._node, self.held
        try:
            worker, result = await self._restore_elsewhere(
                self._object_generation,
                self._owner_generation,
                lambda: self.payload.chunks,
                lambda: not self.forgotten,
                self._members(),
            )
            if self._authority_gone:
                node.pool.control(worker, DropObject(held.key, "", self.number))
                node.ledger.left(worker, result.messages)
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
            node.pool.encode(OpenObject(0, held.key, self._owner_generation, self.number))
        )
        held.settle_debts(node.retention)
        waited = self._take_again()
        self._deliver(effects.DeliverRecords(records))
        self._deliver_waited(waited)
        return events.DispatchRestored()

    def _not_restored(self, records: tuple[bytes, ...], error: SojournError) -> None:
        """Nothing of it runs again: what it had queued ends like what was held."""
        self._taken.fail(error)
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
        self.payload.release()

    def _drop_object(self, effect: effects.DropObject) -> None:
        node, held = self._node, self.held
        if not self._worker_gone:
            node.pool.control(self._worker, DropObject(held.key, effect.reason, self.number))
            node.count_object(self._worker, -len(self._unit))
            node.ledger.left(self._worker, self.messages)
        for each in self._unit:
            each.worker = -1

    def _remove_follow(self, effect: effects.RemoveFollowRoute) -> None:
        self.held.settle_debts(self._node.retention)
        objects = self._node.router.objects
        for each in self._unit:
            if objects.get(each.key) is each:
                del objects[each.key]

    def _fail_taken(self, effect: effects.FailTaken) -> None:
        name = describe_key(self.held.key)
        error = ERROR_KINDS[effect.kind](
            f"{name} took the message along in its relocation to {self._destination}, which did not end well",
            object_id=name,
            phase=self.machine.phase,
            applied=effect.applied,
        )
        if effect.applied == "unknown":
            self._taken.doubt(error)
        else:
            self._taken.fail(error, sends=effect.sends)

    def _fail_held(self, effect: effects.FailHeld) -> None:
        self._fail_records(effect.records, effect.kind, f"its relocation ended ({self.machine.phase})")

    def _read_row(self, effect: effects.ReadRow) -> None:
        self._ask(read_facts(self._rows))

    def _report(self, effect: effects.ReportOutcome) -> None:
        if not self.outcome.done():
            self.outcome.set_result(self._result(effect))

    def _result(self, effect: effects.ReportOutcome) -> MoveResult:
        if effect.outcome is Outcome.MOVED:
            return MoveResult("moved", target=self._target)
        word = "in_doubt" if effect.outcome is Outcome.IN_DOUBT else str(effect.outcome)
        return MoveResult(word, failure_reason(effect.reason), str(effect.reason), self._target)
