"""The object of one `TargetHandoff` in a worker: assembled, restored, and restored again if that worker ends.

Owns the assembly buffer and which worker stages the unit. When the object may open, and what becomes of it when
it cannot be restored any more, is decided by `sojourn.workers.target_driver`.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from sojourn.control import DropObject, Restored, SavedRequest, UnitMember
from sojourn.errors import InternalFailure, SojournError, error_from_fields
from sojourn.handoff import effects, events
from sojourn.handoff.machine import Event, Log
from sojourn.handoff.target import TargetHandoff
from sojourn.handoff.target_states import Committing, RelayReady
from sojourn.handoff.terms import HandoffIdentity, TargetFailure
from sojourn.ids import ObjectKey
from sojourn.workers.assembly import Assembly
from sojourn.workers.bulk_out import BulkOut
from sojourn.workers.handoff_driver import HandoffDriver
from sojourn.workers.handoff_wire import HandoffWire
from sojourn.workers.objects import LocalObject
from sojourn.workers.unit_rows import UnitRows

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["TargetRestoring"]


class TargetRestoring(HandoffDriver[TargetHandoff]):
    """See the module text."""

    __slots__ = (
        "_answer",
        "_assembly",
        "_counted",
        "_dropped",
        "_length",
        "_lost",
        "_opening",
        "_out",
        "_requests",
        "_row_told",
        "_rows",
        "_sends",
    )

    def __init__(
        self,
        node: Supervisor,
        held: LocalObject,
        number: int,
        identity: HandoffIdentity,
        wire: HandoffWire,
        machine: TargetHandoff,
        joined: ObjectKey | None = None,
    ) -> None:
        super().__init__(node, held, number, identity, wire, machine)
        self._assembly = Assembly(node.retention, node.loop)
        self._length = 0
        self._rows = UnitRows(node.directory, held.key, node.shares_turn, joined=joined)
        self._out: BulkOut | None = None
        self._row_told = False
        """The machine knows the rows, and nobody else stages the unit here: it may come into a worker."""
        self._requests: list[SavedRequest] = []
        """What the restored queue holds, for the replies (B7.1)."""
        self._sends = 0
        """How many messages of the restored queue want no reply."""
        self._counted = False
        self._opening: effects.OpenDispatch | None = None
        """The owner is written; the object opens when it stands in a worker again."""
        self._lost: SojournError | None = None
        """Why the object cannot be restored again although this node said that it is ready."""
        self._dropped = False
        self._answer: asyncio.Future[Any] | None = None

    @abstractmethod
    def _open(self, effect: effects.OpenDispatch) -> None:
        """The owner is written and the object stands in a worker: open it."""

    @abstractmethod
    def _lost_with_worker(self, effect: effects.OpenDispatch) -> None:
        """The owner is written, and the object cannot be restored any more."""

    @property
    def messages(self) -> int:
        """Messages in the restored queue."""
        return len(self._requests) + self._sends

    def _store_chunk(self, effect: effects.StoreChunk) -> None:
        chunk = self._assembly.store(effect.offset, effect.data)
        if self._out is not None:
            self._out.put(chunk)
        elif self._row_told:
            self._start_restoring()

    def _start_restoring(self) -> None:
        """Hand the payload to a worker while chunks still arrive; it builds nothing before the last frame,
        which goes out only when the whole checksum matched (R4.3.2)."""
        assert self._rows.first is not None
        node, row = self._node, self._rows.first.row
        try:
            self._worker = node.creation.pick_worker()
        except SojournError:
            return
        answer = self._begin_restore(
            self._worker, row.object_generation, row.owner_generation + 1, self._length, self._members()
        )
        self._out = out = BulkOut(node.pool, self._worker, self.number, node.start)
        for chunk in self._assembly.chunks():
            out.put(chunk)
        self._answer = answer
        answer.add_done_callback(_seen)

    def _members(self) -> tuple[UnitMember, ...]:
        return tuple(
            UnitMember(
                found.row.key,
                found.row.stable_type,
                found.row.object_generation,
                found.row.owner_generation + 1,
            )
            for found in self._rows.present()
            if found is not self._rows.first
        )

    def _compare_chunk(self, effect: effects.CompareChunk) -> None:
        if not self._assembly.same(effect.offset, effect.data):
            self.handle(events.ChunkDiffered())

    def _verify(self, effect: effects.VerifyAssembly) -> None:
        if self._assembly.checksum == effect.checksum:
            self.handle(events.AssemblyVerified())
        else:
            self.handle(events.AssemblyMismatched())

    def _restore_object(self, effect: effects.RestoreObject) -> None:
        if self._out is None:
            self._start_restoring()
        if self._out is None:
            # The source holds the object meanwhile: another node may take it at once (R4.2.8).
            why = TargetFailure("TargetUnavailable", f"no worker of node {self._node.run} is ready")
            self.handle(events.RestoreFailed(why))
            return
        for each in self._unit:
            each.worker = self._worker
        self._out.end()
        assert self._answer is not None
        self._ask(self._restored(self._answer))

    async def _restored(self, answer: Awaitable[Any]) -> Event:
        try:
            result = await answer
            assert isinstance(result, Restored)
            if result.error is not None:
                raise error_from_fields(result.error.kind, result.error.fields)
            if self._worker_gone:
                raise InternalFailure("the worker that restored the object ended")
        except SojournError as error:
            return events.RestoreFailed(error)
        if self._dropped:  # its answer crossed the end of the attempt; the worker has let it go again
            return events.RestoreFailed(InternalFailure("the attempt ended meanwhile"))
        self._node.ledger.arrived(self._worker, result.messages)
        self._staged_in(self._worker, result)
        return events.ObjectRestored()

    async def _restore_whole(self) -> tuple[int, Restored]:
        """Build the object from the payload as it is kept here."""
        assert self._rows.first is not None
        row = self._rows.first.row
        return await self._restore_elsewhere(
            row.object_generation,
            row.owner_generation + 1,
            self._assembly.chunks,
            lambda: not self._dropped,
            self._members(),
        )

    def _staged_in(self, worker: int, result: Restored) -> None:
        self._worker = worker
        for each in self._unit:
            each.worker = worker
        self._worker_gone = False
        self._requests, self._sends = result.requests, result.sends
        self._node.count_object(worker, len(self._unit))
        self._counted = True

    def worker_lost(self) -> None:
        """The worker that holds the staged object ended. Before relay-ready that ends the attempt; after it the
        source cannot go back, so the object is restored into another worker (R4.4.2, B6.6)."""
        self._worker_gone = True
        if self._out is not None:
            self._out.stop()
        if not self._counted:
            return
        self._counted = False
        self.handle(events.RestoreFailed(InternalFailure("the worker that held the staged object ended")))
        if isinstance(self.machine.state, RelayReady | Committing):
            self._log(Log("restored_again", "warning", {}))
            self._node.start(self._restore_again())

    async def _restore_again(self) -> None:
        node = self._node
        try:
            worker, result = await self._restore_whole()
        except SojournError as error:
            self._lost = error
            if self._opening is not None:
                self._lost_with_worker(self._opening)
            return
        if self._dropped:
            node.pool.control(worker, DropObject(self.held.key, "", self.number))
            node.ledger.left(worker, result.messages)
            return
        self._staged_in(worker, result)
        opening, self._opening = self._opening, None
        if opening is not None:
            self._open(opening)


def _seen(answer: asyncio.Future[Any]) -> None:
    """The failure of an answer that nobody waits for any more is no news."""
    if not answer.cancelled():
        answer.exception()
