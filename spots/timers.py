"""Timers (B4): named schedules of objects, all of them behind one loop timer of the host.

Owns schedules, ticks and their policies. A schedule counts wall-clock instants from its first one; an index
is made at most once. At most one tick of a timer waits or runs at a time, so that a name never runs beside
itself; what is due meanwhile is settled when the tick is over, by the timer's policy. It must not know how
timers travel.
"""

from __future__ import annotations

import heapq
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from sojourn.errors import InvalidOperation
from sojourn.ids import describe_key
from sojourn.spots.cell import Cell, Phase
from sojourn.spots.declarations import Timer
from sojourn.spots.ticks import OverrunPolicy, Tick, check_overrun, milliseconds
from sojourn.spots.turns import Job

if TYPE_CHECKING:
    from sojourn.spots.host import ObjectHost
    from sojourn.spots.ports import Cancellable

__all__ = ["ActiveTimer", "TickCall", "Timers"]

_WAIT_MAX_MS = 60_000
"""The loop timer is armed for at most this long, so that a step of the wall clock is noticed."""


class ActiveTimer:
    """One started timer.

    Attributes:
        name: its name within the object.
        handler: the declared callback.
        period_ms: distance of scheduled instants.
        left: ticks that may still be made, None = without end.
        next_at_ms: Unix ms of the scheduled instant after the last one made; always beyond a pending tick.
        made_scheduled: index of the last scheduled instant made or skipped.
        made_delivery: index of the last tick made.
        done_scheduled: scheduled index of the last tick that ended.
        done_delivery: delivery index of the last tick that ended.
        tick: the tick that waits or runs.
        over: cancelled or finished; nothing of it runs any more.
    """

    __slots__ = (
        "cell",
        "done_delivery",
        "done_scheduled",
        "handler",
        "left",
        "made_delivery",
        "made_scheduled",
        "max_catch_up",
        "name",
        "next_at_ms",
        "over",
        "overrun",
        "payload",
        "period_ms",
        "stop_on_error",
        "tick",
    )

    def __init__(
        self,
        cell: Cell,
        name: str,
        handler: Timer[Any],
        period_ms: int,
        next_at_ms: int,
        overrun: OverrunPolicy,
        max_catch_up: int,
        stop_on_error: bool,
        left: int | None,
        payload: Any,
    ) -> None:
        self.cell = cell
        self.name = name
        self.handler = handler
        self.period_ms = period_ms
        self.next_at_ms = next_at_ms
        self.overrun: OverrunPolicy = overrun
        self.max_catch_up = max_catch_up
        self.stop_on_error = stop_on_error
        self.left = left
        self.payload = payload
        self.made_scheduled = self.made_delivery = 0
        self.done_scheduled = self.done_delivery = 0
        self.tick: TickCall | None = None
        self.over = False

    def make_tick(self, now_ms: int) -> TickCall | None:
        """The next tick if one is due, by the timer's policy; scheduled instants it passes over are skipped."""
        if self.over or self.tick is not None or self.next_at_ms > now_ms or self.left == 0:
            return None
        skipped = 0
        if self.overrun != "delay_next":
            due = (now_ms - self.next_at_ms) // self.period_ms + 1
            skipped = max(0, due - (1 if self.overrun == "skip_late" else self.max_catch_up))
        scheduled_at_ms = self.next_at_ms + skipped * self.period_ms
        self.made_scheduled += skipped + 1
        self.made_delivery += 1
        self.next_at_ms = scheduled_at_ms + self.period_ms
        if self.left is not None:
            self.left -= 1
        self.tick = TickCall(self, self.made_delivery, self.made_scheduled, scheduled_at_ms, skipped)
        return self.tick

    def refresh(self, tick: TickCall, now_ms: int) -> None:
        """`skip_late`: move a tick that is about to start to the newest instant that is due."""
        if self.overrun != "skip_late" or self.next_at_ms > now_ms:
            return
        passed = (now_ms - self.next_at_ms) // self.period_ms + 1
        self.made_scheduled += passed
        tick.skipped += passed
        tick.scheduled_index = self.made_scheduled
        tick.scheduled_at_ms = self.next_at_ms + (passed - 1) * self.period_ms
        self.next_at_ms = tick.scheduled_at_ms + self.period_ms


class TickCall(Job):
    """A tick in the mailbox or running.

    Attributes:
        fixed: it came with the object from another process and keeps its index.
    """

    __slots__ = ("delivery_index", "fixed", "scheduled_at_ms", "scheduled_index", "skipped", "timer")

    def __init__(
        self,
        timer: ActiveTimer,
        delivery_index: int,
        scheduled_index: int,
        scheduled_at_ms: int,
        skipped: int,
    ) -> None:
        super().__init__(timer.cell)
        self.timer = timer
        self.delivery_index = delivery_index
        self.scheduled_index = scheduled_index
        self.scheduled_at_ms = scheduled_at_ms
        self.skipped = skipped
        self.fixed = False

    @property
    def name(self) -> str:
        """Type and timer."""
        return f"{self.cell.type.stable_type}.{self.timer.name}"

    def begin(self) -> Coroutine[Any, Any, Any] | None:
        """The callback's coroutine, None when the timer was cancelled meanwhile."""
        timer = self.timer
        if timer.over:
            return None
        now_ms = self.cell.host.clock.unix_ms()
        if not self.fixed:
            timer.refresh(self, now_ms)
        self.cell.host.counters.ticks += 1
        return timer.handler.function(
            self.cell.instance,
            Tick(
                timer.name,
                self.delivery_index,
                self.scheduled_index,
                self.skipped,
                self.scheduled_at_ms,
                now_ms,
                timer.payload,
            ),
        )

    def succeed(self, value: Any) -> None:
        """The callback returned."""
        self.cell.host.timers.tick_over(self)

    def fail(self, error: BaseException) -> None:
        """The callback raised: logged, and with `stop_on_error` the timer ends."""
        self.cell.host.handler_failed(self.cell, self.name, error, logged=True)
        if self.timer.stop_on_error:
            self.cell.host.timers.end(self.timer)
        self.cell.host.timers.tick_over(self)


class Timers:
    """Every timer of one host."""

    def __init__(self, host: ObjectHost) -> None:
        self._host = host
        self._clock = host.clock
        self._heap: list[tuple[int, int, ActiveTimer]] = []
        self._order = 0
        self._handle: Cancellable | None = None
        self._armed_ms = 0

    def start(
        self,
        cell: Cell,
        handler: Timer[Any],
        *,
        name: str | None = None,
        every: float | None = None,
        after: float | None = None,
        payload: Any = None,
        repeat: int | None = None,
        overrun: OverrunPolicy | None = None,
        max_catch_up: int | None = None,
        stop_on_error: bool | None = None,
    ) -> None:
        """Start a timer; see `Resident.start_timer` for the arguments and errors."""
        declared = self._check_handler(cell, handler)
        name = declared.name if name is None else name
        if not isinstance(name, str) or not 1 <= len(name.encode("utf-8", "replace")) <= 255 or "\0" in name:
            raise InvalidOperation(f"a timer name has 1 to 255 bytes without NUL, not {name!r:.80}")
        where = f"timer {name!r} of {describe_key(cell.key)}"
        period_ms = declared.every_ms if every is None else milliseconds(every, where, "every")
        after_ms = declared.after_ms if after is None else milliseconds(after, where, "after", least=0)
        repeat = declared.repeat if repeat is None else repeat
        if period_ms is None:
            if after_ms is None:
                raise InvalidOperation(f"{where} needs every= (a period) or after= (a single tick)")
            period_ms, repeat = max(1, after_ms), 1
        most = declared.max_catch_up if max_catch_up is None else max_catch_up
        policy = check_overrun(declared.overrun if overrun is None else overrun, most, repeat, where)
        first_ms = self._clock.unix_ms() + (period_ms if after_ms is None else after_ms)
        copied = self._host.outbox.codec.isolate_value(payload, f"the payload of {where}")
        stop = declared.stop_on_error if stop_on_error is None else stop_on_error
        self.cancel(cell, name)
        self.add(ActiveTimer(cell, name, declared, period_ms, first_ms, policy, most, stop, repeat, copied))

    @staticmethod
    def _check_handler(cell: Cell, handler: Any) -> Timer[Any]:
        declared = cell.type.timers.get(handler.name) if isinstance(handler, Timer) else None
        if declared is None:
            known = ", ".join(f"{cell.type.cls.__name__}.{name}" for name in sorted(cell.type.timers))
            raise InvalidOperation(
                f"start_timer takes a timer callback declared in {cell.type.cls.__name__} with @sj.timer, "
                f"not {handler!r:.80}: a function or closure could not follow the object to another process"
                + (f"; declared are {known}" if known else "")
            )
        return declared

    def start_declared(self, cell: Cell) -> None:
        """Start the timers whose declaration has a period: a new object's."""
        for declared in cell.type.timers.values():
            if declared.every_ms is not None and declared.name not in (cell.timers or {}):
                self.start(cell, declared)

    def add(self, timer: ActiveTimer) -> None:
        """Take a timer over into the schedule."""
        cell = timer.cell
        if cell.timers is None:
            cell.timers = {}
        cell.timers[timer.name] = timer
        self._schedule(timer)

    def cancel(self, cell: Cell, name: str) -> bool:
        """End a timer; False if there is none of this name."""
        timer = (cell.timers or {}).get(name)
        if timer is None:
            return False
        self.end(timer)
        return True

    def end(self, timer: ActiveTimer) -> None:
        """Forget a timer. A tick of it that waits will not run."""
        timer.over = True
        timers = timer.cell.timers
        if timers is not None and timers.get(timer.name) is timer:
            del timers[timer.name]
            if not timers:
                timer.cell.timers = None

    def tick_over(self, tick: TickCall) -> None:
        """A tick ended: settle what came due meanwhile."""
        timer = tick.timer
        timer.tick = None
        timer.done_delivery = tick.delivery_index
        timer.done_scheduled = tick.scheduled_index
        if timer.over:
            return
        if timer.left == 0:
            self.end(timer)
            return
        if timer.overrun == "delay_next":
            timer.next_at_ms = self._clock.unix_ms() + timer.period_ms
        self._schedule(timer)

    def resume(self, cell: Cell) -> None:
        """Dispatch of a cell opened: put its timers back into the schedule."""
        for timer in list((cell.timers or {}).values()):
            self._schedule(timer)

    def fire(self) -> None:
        """Make the ticks that are due."""
        self._handle = None
        if not self._host.scheduler.admitted:
            return  # `wake` comes with the next admission
        now_ms = self._clock.unix_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, timer = heapq.heappop(self._heap)
            if timer.over or timer.tick is not None or timer.cell.phase is not Phase.OPEN:
                continue
            if timer.next_at_ms != at_ms:
                continue  # an older entry: the timer was scheduled anew
            tick = timer.make_tick(now_ms)
            if tick is not None:
                timer.cell.put(tick)
                self._host.scheduler.ready(timer.cell)
        self._arm()

    def wake(self) -> None:
        """Admission was extended: look at what is due."""
        if self._heap:
            self._arm()

    def close(self) -> None:
        """Make no more ticks."""
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _schedule(self, timer: ActiveTimer) -> None:
        if timer.over or timer.tick is not None or timer.cell.phase is not Phase.OPEN:
            return  # `tick_over` and `resume` come back here
        self._order += 1
        heapq.heappush(self._heap, (timer.next_at_ms, self._order, timer))
        if self._handle is None or timer.next_at_ms < self._armed_ms:
            self._arm()

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        while self._heap and self._heap[0][2].over:
            heapq.heappop(self._heap)
        if not self._heap:
            return
        self._armed_ms = self._heap[0][0]
        wait_ms = min(max(0, self._armed_ms - self._clock.unix_ms()), _WAIT_MAX_MS)
        self._handle = self._clock.call_at(self._clock.monotonic() + wait_ms / 1000, self.fire)
