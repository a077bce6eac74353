"""Requests that wait for their reply: one future each, one loop timer for all timeouts (B3.1).

Owns reply routes, operation ids and the timeout heap. A reply is matched by its route AND its operation id,
so that a late reply of an earlier run finds nothing. It must not know how messages are encoded or sent.
"""

from __future__ import annotations

import asyncio
import heapq
import secrets
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from sojourn.errors import DeadlineExceeded
from sojourn.ids import ObjectKey, describe_key

if TYPE_CHECKING:
    from sojourn.spots.declarations import Declaration
    from sojourn.spots.ports import Cancellable, Clock
    from sojourn.spots.turns import Job

__all__ = ["PendingRequests", "Reply", "operation_text"]

_COUNTER_MASK = (1 << 48) - 1
_STALE_MAX = 512


def operation_text(high: int, low: int) -> str:
    """An operation id as people read it."""
    return f"{high:016x}{low:016x}"


class Reply(asyncio.Future[Any]):
    """One awaited request.

    Attributes:
        route: its reply route, 0 while it has not left this worker.
        operation_low: low half of its operation id, 0 likewise.
        handler: the declaration called; says how to decode the result.
        key: the object called.
        turn: the turn that waits, None outside a turn.
        timeout_s: for the error text.
        timed: True while its timeout stands in the heap.

    `PendingRequests.open` makes one.
    """

    __slots__ = ("handler", "key", "operation_low", "route", "timed", "timeout_s", "turn")

    handler: Declaration
    key: ObjectKey
    operation_low: int
    route: int
    timed: bool
    timeout_s: float
    turn: Job | None


class PendingRequests:
    """The open requests of one worker or client.

    Args:
        clock: times.
        slot: the worker's index in its node, 0 for a client; part of every reply route.
        forget: called with the route of a request that ended here before its reply came.
    """

    def __init__(self, clock: Clock, slot: int, forget: Callable[[int], None]) -> None:
        self._clock = clock
        self._forget = forget
        self._route_base = (slot + 1) << 48
        self._counter = secrets.randbits(47)
        self._operation = secrets.randbits(62)
        self.operation_high = secrets.randbits(63) | 1
        self._by_route: dict[int, Reply] = {}
        self._heap: list[tuple[float, int, Reply]] = []
        self._heap_order = 0
        self._stale = 0
        self._timer: Cancellable | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        """Number of requests that wait for a reply from outside this worker."""
        return len(self._by_route)

    def open(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: Declaration,
        key: ObjectKey,
        turn: Job | None,
        timeout_s: float,
    ) -> Reply:
        """A future for a reply, its timeout running; the caller waits for it and then calls `ended`."""
        reply = Reply(loop=loop)
        reply.handler, reply.key, reply.turn, reply.timeout_s = handler, key, turn, timeout_s
        reply.route = reply.operation_low = 0
        if turn is not None:
            turn.waiting += 1
        self._start_timeout(reply)
        return reply

    def next_operation(self) -> int:
        """Low half of a new operation id."""
        self._operation += 1
        return self._operation

    def assign_route(self, reply: Reply) -> None:
        """Give a reply the route and operation id under which its answer will come from outside."""
        self._counter = (self._counter + 1) & _COUNTER_MASK
        reply.route = self._route_base | self._counter
        reply.operation_low = self.next_operation()
        self._by_route[reply.route] = reply

    def _start_timeout(self, reply: Reply) -> None:
        """Put the request's timeout into the heap."""
        when = self._clock.monotonic() + reply.timeout_s
        self._heap_order += 1
        reply.timed = True
        heapq.heappush(self._heap, (when, self._heap_order, reply))
        if self._timer is None or when < self._timer_at:
            self._arm(when)

    def take(self, route: int, operation_low: int) -> Reply | None:
        """The request a reply belongs to, removed from the table; None for a late or foreign one."""
        reply = self._by_route.get(route)
        if reply is None or reply.operation_low != operation_low:
            return None
        del self._by_route[route]
        return None if reply.done() else reply

    def ended(self, reply: Reply) -> None:
        """The waiter is through with a request: drop its traces, tell the node when no reply came."""
        if reply.turn is not None:
            reply.turn.waiting -= 1
        if reply.timed:
            reply.timed = False
            self._stale += 1
            if self._stale > _STALE_MAX and self._stale * 2 > len(self._heap):
                self._compact()
        if reply.done() and not reply.cancelled():
            reply.exception()  # a waiter cancelled at the same moment did not look at it
        if reply.route and self._by_route.pop(reply.route, None) is not None and _unanswered(reply):
            self._forget(reply.route)

    def cancel_turn(self, turn: Job) -> None:
        """Cancel every request that a turn left open (B1.6)."""
        for reply in [reply for _, _, reply in self._heap if reply.turn is turn]:
            reply.cancel()

    def open_replies(self) -> Iterator[Reply]:
        """Every request that still waits."""
        return iter([reply for _, _, reply in self._heap if reply.timed and not reply.done()])

    def close(self) -> None:
        """Stop the timer and forget everything."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap.clear()
        self._by_route.clear()

    def _compact(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2].timed]
        heapq.heapify(self._heap)
        self._stale = 0

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._clock.call_at(when, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        heap = self._heap
        while heap and (heap[0][0] <= now or not heap[0][2].timed):
            reply = heapq.heappop(heap)[2]
            if not reply.timed:
                self._stale -= 1
                continue
            reply.timed = False
            if not reply.done():
                reply.set_exception(self._deadline_error(reply))
        if heap:
            self._arm(heap[0][0])

    def _deadline_error(self, reply: Reply) -> DeadlineExceeded:
        handler = reply.handler
        return DeadlineExceeded(
            f"no reply from {describe_key(reply.key)} to {handler.owner_name}.{handler.name} "
            f"within {reply.timeout_s:g} s; it may still be carried out",
            object_id=describe_key(reply.key),
            operation_id=operation_text(self.operation_high, reply.operation_low) if reply.route else None,
            applied="unknown",
        )


def _unanswered(reply: Reply) -> bool:
    return not reply.done() or reply.cancelled() or reply.exception() is not None
