"""What a dead worker leaves behind: its requests end, its objects are said to be lost and marked so (B6.6, B6.8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sojourn import frames
from sojourn.control import ErrorBody, encode_error
from sojourn.errors import DataLost, SojournError, Unavailable
from sojourn.frames import RecordHeader
from sojourn.ids import NodeRun, ObjectKey, describe_key
from sojourn.rows import HostState
from sojourn.workers.cold import is_first
from sojourn.workers.debt import Debt
from sojourn.workers.lanes import RunningRequest, request_error
from sojourn.workers.objects import LocalObject, Place
from sojourn.workers.records import record_origin
from sojourn.workers.unit_rows import UnitRows
from sojourn.workers.worker_credit import WorkerCreditor

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["Losses"]

LOSE_ATTEMPTS = 3
"""How often a unit is marked lost again after another write to one of its rows; the sweep comes later anyway."""


class Losses:
    """Ends what died with a worker of this node."""

    def __init__(self, node: Supervisor) -> None:
        self._node = node

    def worker_lost(self, worker: int, reason: str) -> None:
        """A worker process ended: end its requests, say which objects are lost, serve on (B6.6)."""
        node = self._node
        lane = node.lanes.get(worker)
        if lane is None:
            return
        node.senders.forget_requests(worker)
        node.object_counts.pop(worker, None)
        node.creditors[worker].end()
        node.creditors[worker] = WorkerCreditor(node, worker)
        lost = [held for held in node.router.objects.values() if held.worker == worker]
        given = lane.given
        waiting, running = lane.close()
        gone = [held for held in lost if held.place is Place.ACTIVE]
        for held in gone:
            del node.router.objects[held.key]
            node.coordinator.running_object_lost(held)
        if node.state in (HostState.STOPPED, HostState.DRAINING):
            return
        node.log(
            "worker_lost",
            "error",
            worker=worker,
            reason=reason,
            objects=[describe_key(held.key) for held in gone[:100]],
            objects_lost=len(gone),
        )
        node.count("objects_lost", len(gone))
        moving = [held for held in lost if held.place in (Place.SOURCE, Place.TARGET)]
        kept = node.coordinator.messages_kept(moving)
        ended = [held for held in moving if node.coordinator.worker_lost(held)]
        node.ledger.lost(worker, given, sum(kept.values()) - sum(kept.get(held.key, 0) for held in ended))
        lost_objects = {held.key: held for held in lost}
        captured = {held.key for held in moving} - {held.key for held in ended}
        for run, route, request in running:
            if request.key in captured:
                continue  # it is in the payload, and is answered where that is restored (B6.6)
            error = Unavailable(
                f"the worker process that held {describe_key(request.key)} ended: {reason}",
                object_id=describe_key(request.key),
                applied="unknown",
            )
            self._end_request(lost_objects.get(request.key), run, route, request, error)
        self._end_waiting(waiting, lost_objects, reason)
        gone += ended
        if gone:
            node.start(self.mark_lost(gone))

    def _end_waiting(
        self,
        waiting: Iterable[tuple[bytes, RecordHeader | None, Debt | None]],
        lost: Mapping[ObjectKey, LocalObject],
        reason: str,
    ) -> None:
        """End what waited for a worker that ended and never reached it."""
        for body, header, debt in waiting:
            if header is None:
                continue
            if debt is not None:
                debt.settle()
            if is_first(header):
                continue  # it runs when the object is made again (B7.1)
            request, error = RunningRequest.of(header), _lost_before(header.key, reason)
            if header.reply_route and request.moved:
                self._node.count("failed_requests")
                origin = record_origin(body, header.record_at)
                self._end_request(lost.get(header.key), origin, header.reply_route, request, error)
            else:
                self._node.fail_record(body, header, error)

    def _end_request(
        self, held: LocalObject | None, run: NodeRun, route: int, request: RunningRequest, error: SojournError
    ) -> None:
        """End a request that a worker had taken; one that moved here ends as its reply would (B7.1)."""
        body = request_error(run, route, request, encode_error(ErrorBody.of(error)))
        if request.moved and run != self._node.run:
            self._node.replies.ended(held, request, frames.parse_reply_header(body), body)
        else:
            self._node.router.reply(body)

    async def mark_lost(self, gone: list[LocalObject]) -> None:
        """Write state `lost` into the rows of objects that ended with their worker, those of a Spot and of the
        members that shared its turn in one write (B6.6, B6.8)."""
        for held in gone:
            if held.lead is not None and held.lead in gone:
                continue
            try:
                for _ in range(LOSE_ATTEMPTS):
                    if await self._lose(held):
                        break
            except SojournError as error:
                self._node.log(
                    "lost_not_marked", "warning", object_id=describe_key(held.key), error=str(error)
                )

    async def _lose(self, held: LocalObject) -> bool:
        rows = UnitRows(self._node.directory, held.key, self._node.shares_turn)
        await rows.read()
        unit = [found for found in rows.present() if found.row.owner == self._node.owner]
        # A message may have made the object anew meanwhile: that incarnation is not lost.
        own = unit[0].row if unit else None
        if own is None or own.key != held.key or own.object_generation != held.object_generation:
            return True
        return await self._node.directory.lose(*unit)


def _lost_before(key: ObjectKey, reason: str) -> DataLost:
    return DataLost(
        f"{describe_key(key)} was lost before it could handle the message: its worker process ended ({reason})",
        object_id=describe_key(key),
        applied="no",
    )
