"""Lanes: the way of records from the supervisor into one worker, under that worker's permits (B5.1).

Owns the order of records on their way to a worker, the credit the worker granted, and the list of
requests the worker has and has not answered. Control messages go through the same lane when their place
among records matters. Knows nothing about objects or routes.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, TypeAlias

from sojourn import frames
from sojourn.control import SavedRequest
from sojourn.errors import ProtocolError
from sojourn.frames import FLAG_COMPLETE, FLAG_FOLLOW, FLAG_REQUEST, RecordHeader, parse_record_header
from sojourn.ids import NodeRun, ObjectKey
from sojourn.workers.debt import Creditor, Debt, Retention
from sojourn.workers.records import record_at, record_origin

__all__ = ["STAGED", "WAITING_OCTETS_MAX", "RunningRequest", "RunningRequests", "WorkerLane", "request_error"]


STAGED = 0x100
"""In a record's header, beside the flags of its frame: it was relayed to this node by a move."""
_MOVED = FLAG_FOLLOW | STAGED


class RunningRequest(NamedTuple):
    """A request that a worker holds and has not answered."""

    key: bytes
    operation_high: int
    operation_low: int
    moved: bool = False
    """It came with a move, or was followed: its requester sent it to another node."""
    sequence: int = 0
    """Its order among the saved work (`wire.md`), 0 for one that came behind."""

    @classmethod
    def of(cls, header: RecordHeader) -> RunningRequest:
        """The request of a record."""
        moved = bool(header.flags & _MOVED)
        return cls(header.key, header.operation_high, header.operation_low, moved)


RunningRequests: TypeAlias = dict[tuple[bytes, int, int], RunningRequest]
"""Requests by the requester's run and reply route."""

WAITING_OCTETS_MAX = 4 * 1024 * 1024
"""Octets that may wait here before their senders are held back (B5.2, B5.3). Below it a record's credit goes
back as soon as it waits here, so that a path marker passes a busy object's queue within its limit (B9.4)."""

Refuse: TypeAlias = Callable[[bytes, RecordHeader, Debt | None], None]
_Waiting = tuple[bytes, RecordHeader | None, Debt | None]
"""A frame body, its header (None for a control message), and what a record owes."""

_REQUEST = struct.Struct(">QQQ")
_REQUEST_AT = 12
"""Reply route and operation id in a record frame body."""


class WorkerLane:
    """Records and ordered control messages towards one worker.

    A record takes one unit of credit, which the worker gives back right before the record's handler
    starts. Without credit it waits here; whatever comes later waits behind it. `run` is this node's own: who
    sends requests without a route fence.
    """

    __slots__ = (
        "_refuse",
        "_retention",
        "_run",
        "_send",
        "credit",
        "given",
        "running",
        "waiting",
        "waiting_octets",
    )

    def __init__(
        self,
        send: Callable[[bytes], object],
        credit: int,
        retention: Retention | None = None,
        run: NodeRun | None = None,
    ) -> None:
        self._send = send
        self._refuse: Refuse | None = None
        self._retention = Retention(WAITING_OCTETS_MAX) if retention is None else retention
        self._run = run
        self.credit = credit
        self.given = 0
        """Records that were handed to the worker in all."""
        self.waiting: deque[_Waiting] = deque()
        self.waiting_octets = 0
        self.running: RunningRequests = {}

    def deliver(self, body: bytes, header: RecordHeader, debt: Debt | None) -> None:
        """Send a record to the worker, or queue it behind what already waits."""
        if self._refuse is not None:
            self._refuse(body, header, debt)
            return
        if self.credit > 0 and not self.waiting:
            self._hand_over(body, header, debt)
            return
        self._wait(len(body))
        if debt is not None and self.waiting_octets <= WAITING_OCTETS_MAX and not self._retention.over:
            debt.settle()
            debt = None
        self.waiting.append((body, header, debt))

    def pass_on(self, body: bytes, key: ObjectKey, creditor: Creditor) -> None:
        """`deliver` for a new record without anything special about it. The route fence of one of this node's own
        workers may be left out, since the worker here knows it as well.

        Raises:
            ProtocolError, IndexError, struct.error: whoever awaits the answer cannot be read; nothing was taken.
        """
        flags = body[1]
        if flags & FLAG_REQUEST:
            route, high, low = _REQUEST.unpack_from(body, _REQUEST_AT)
            # Without a fence it can only be of this node's own worker.
            known = None if flags & FLAG_COMPLETE else self._run
            rid, generation = known or record_origin(body, record_at(body))
            if not route:
                raise ProtocolError("record frame: a request without a reply route")
        if self.credit <= 0 or self.waiting:
            self.deliver(body, parse_record_header(body), Debt(creditor, len(body)))
            return
        self.credit -= 1
        self.given += 1
        if flags & FLAG_REQUEST:
            self.running[rid, generation, route] = RunningRequest(key, high, low)
        self._send(body)
        creditor.give_back(1, len(body))

    def deliver_ordered(self, control_body: bytes) -> None:
        """Send a control frame behind every record delivered before; it takes no credit."""
        if self.waiting:
            self.waiting.append((control_body, None, None))
        else:
            self._send(control_body)

    def grant(self, records: int) -> None:
        """The worker started `records` handlers: as many waiting records may go."""
        if self._refuse is not None:
            return
        self.credit += records
        waiting = self.waiting
        while waiting and (self.credit > 0 or waiting[0][1] is None):
            body, header, debt = waiting.popleft()
            if header is None:
                self._send(body)
            else:
                self._wait(-len(body))
                self._hand_over(body, header, debt)

    def _wait(self, octets: int) -> None:
        self.waiting_octets += octets
        self._retention.keep(octets) if octets > 0 else self._retention.free(-octets)

    def _hand_over(self, body: bytes, header: RecordHeader, debt: Debt | None) -> None:
        self.credit -= 1
        self.given += 1
        if header.flags & FLAG_REQUEST:
            rid, generation = record_origin(body, header.record_at)
            self.running[rid, generation, header.reply_route] = RunningRequest.of(header)
        self._send(body)
        if debt is not None:
            debt.settle()

    def answered(self, rid: bytes, generation: int, reply_route: int) -> RunningRequest | None:
        """The worker's reply to a request passes by: the request, if it is known here."""
        return self.running.pop((rid, generation, reply_route), None)

    def adopt(
        self, requests: Iterable[SavedRequest], moved: bool, known: RunningRequests | None = None
    ) -> None:
        """The worker has these requests in the queue of a unit that was restored in it. `known` is what another
        worker of this node had of them: such a request stays what it was."""
        for saved in requests:
            route = saved.rid, saved.generation, saved.reply_route
            former = None if known is None else known.get(route)
            self.running[route] = former or RunningRequest(
                saved.key,
                saved.operation_high,
                saved.operation_low,
                moved,
                saved.order,
            )

    def requests_of(self, keys: Collection[bytes]) -> RunningRequests:
        """The requests of these objects that the worker has and has not answered."""
        return {route: request for route, request in self.running.items() if request.key in keys}

    def flush_objects(self, keys: Collection[bytes]) -> None:
        """Send the waiting records of a unit's objects now, without credit: they are about to be sealed, and what the worker
        has by then travels as saved work, which nothing hurries (R4.2.1). The credit comes back with them."""
        kept: deque[_Waiting] = deque()
        for body, header, debt in self.waiting:
            if header is not None and header.key in keys:
                self._wait(-len(body))
                self._hand_over(body, header, debt)
            else:
                kept.append((body, header, debt))
        self.waiting = kept

    def forget_object(self, key: bytes) -> None:
        """Requests of this object are answered elsewhere from now on (it moved)."""
        gone = [route for route, request in self.running.items() if request.key == key]
        for route in gone:
            del self.running[route]

    def shut(self, refuse: Refuse) -> None:
        """The worker is about to be asked to stop: it gets no more records. Those that wait or come are given to
        `refuse`, which has to end them and to settle what they owe."""
        self._refuse = refuse
        self.credit = 0  # so that `pass_on` comes here as well
        waiting, self.waiting = self.waiting, deque()
        for body, header, debt in waiting:
            if header is None:
                self._send(body)
            else:
                self._wait(-len(body))
                refuse(body, header, debt)

    def close(self) -> tuple[list[_Waiting], list[tuple[NodeRun, int, RunningRequest]]]:
        """The worker is gone: what never reached it, and the requests it did not answer."""
        waiting = list(self.waiting)
        self.waiting.clear()
        self._wait(-self.waiting_octets)
        running = [
            (NodeRun(rid, generation), route, request)
            for (rid, generation, route), request in self.running.items()
        ]
        self.running.clear()
        return waiting, running


def request_error(run: NodeRun, route: int, request: RunningRequest, encoded_error: bytes) -> bytes:
    """The error reply that ends a request on behalf of a worker that cannot."""
    return frames.reply_frame(
        frames.FLAG_ERROR,
        route,
        request.operation_high,
        request.operation_low,
        run.rid,
        run.generation,
        encoded_error,
    )
