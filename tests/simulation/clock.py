"""Virtual time: one heap of calls, one random source, nothing else runs."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any

__all__ = ["Clock", "LocalClock", "Timer"]


class Timer:
    """One scheduled call; `cancel` makes it do nothing."""

    __slots__ = ("arguments", "call")

    def __init__(self, call: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.call: Callable[..., object] | None = call
        self.arguments = arguments

    def cancel(self) -> None:
        self.call = None


class Clock:
    """`now` in seconds; calls happen in order of time, then of scheduling."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = Random(seed)
        self.steps = 0
        self._number = 0
        self._heap: list[tuple[float, int, Timer]] = []

    def at(self, when: float, call: Callable[..., object], *arguments: Any) -> Timer:
        timer = Timer(call, arguments)
        self._number += 1
        heapq.heappush(self._heap, (when if when > self.now else self.now, self._number, timer))
        return timer

    def after(self, delay: float, call: Callable[..., object], *arguments: Any) -> Timer:
        return self.at(self.now + delay, call, *arguments)

    def run_until(self, end: float) -> None:
        heap = self._heap
        while heap and heap[0][0] <= end:
            self.now, _, timer = heapq.heappop(heap)
            if timer.call is not None:
                self.steps += 1
                timer.call(*timer.arguments)
        self.now = max(self.now, end)


class LocalClock:
    """The clock of one run: it lies `offset_s` beside virtual time, the store's, and runs at a rate of its own.

    An instant of one run means nothing to another, and a duration not quite the same.
    """

    __slots__ = ("_clock", "_offset_s", "rate")

    def __init__(self, clock: Clock, offset_s: float = 0.0, rate: float = 1.0) -> None:
        self._clock = clock
        self._offset_s = offset_s
        self.rate = rate

    def now(self) -> float:
        return self._clock.now * self.rate + self._offset_s

    def when(self, instant: float) -> float:
        """The virtual time at which this clock shows `instant`."""
        return (instant - self._offset_s) / self.rate
