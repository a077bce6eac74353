"""What the objects of one event loop need from the process around them: a port and a clock.

Owns the two protocols. `sojourn.workers` implements the port over IPC; tests implement both.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from sojourn.control import Control

__all__ = ["Cancellable", "Clock", "LoopClock", "OutboxPort", "Port", "within"]


class OutboxPort(Protocol):
    """The way out for messages: of a worker to its supervisor, of a client into the mesh."""

    @property
    def congested(self) -> bool:
        """True while what was submitted piles up: new messages should wait."""
        ...

    def submit(self, frame_body: bytes) -> None:
        """Hand on one frame body (record, reply or bulk); never blocks, keeps order."""
        ...

    async def wait_uncongested(self) -> None:
        """Wait until `congested` is False."""
        ...

    def submit_control(self, message: Control) -> None:
        """Hand on one control message, in order with `submit`."""
        ...

    async def call_node(self, operation: str, arguments: dict[str, Any]) -> Any:
        """Ask the node for something and wait for the answer; raises the typed error it answers with."""
        ...


class Port(OutboxPort, Protocol):
    """The way out of a worker's event loop, to the node's supervisor."""

    def submit_bulk(self, handoff: int, last: bool, chunk: bytes | memoryview) -> None:
        """Hand on a part of a captured state, in order with `submit`. A large chunk is not copied."""
        ...

    @property
    def bulk_room(self) -> bool:
        """A further chunk may be submitted: few octets of them are in front of what others submit next."""
        ...

    async def wait_bulk_room(self) -> None:
        """Wait for another turn of the loop in which there is `bulk_room`."""
        ...

    async def wait_written(self) -> None:
        """Wait until everything submitted has left this process: chunks may change again."""
        ...

    def grant(self, records: int, octets: int) -> None:
        """Give back the credit of records that came from the supervisor (B5.1)."""
        ...

    def hold(self) -> None:
        """A round of turns begins: what they submit goes out together at `release`, or earlier."""
        ...

    def release(self) -> None:
        """The round is over: hand on at once what was submitted."""
        ...

    def fatal(self, error: BaseException) -> None:
        """A handler asked the process to end (`SystemExit`, `KeyboardInterrupt`)."""
        ...


class Cancellable(Protocol):
    """A timer handle."""

    def cancel(self) -> None:
        """Do not call back."""
        ...


class Clock(Protocol):
    """Every time the objects look at; virtual in tests."""

    def unix_ms(self) -> int:
        """Wall clock, for deadlines of messages and for timers."""
        ...

    def monotonic(self) -> float:
        """Seconds of the event loop, for timeouts."""
        ...

    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC in ns, for measured instants that other processes compare."""
        ...

    def boottime_ns(self) -> int:
        """CLOCK_BOOTTIME in ns, for the admission deadline (B6.4)."""
        ...

    def call_at(self, when: float, callback: Callable[[], object]) -> Cancellable:
        """Call back at a `monotonic` instant."""
        ...


_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class LoopClock:
    """The real clock of a running event loop. CLOCK_MONOTONIC stands in where there is no CLOCK_BOOTTIME."""

    __slots__ = ("boottime_ns", "call_at", "monotonic", "monotonic_ns")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Functions of the C library themselves: two of them are called once per message.
        self.boottime_ns: Callable[[], int] = functools.partial(time.clock_gettime_ns, _BOOTTIME)
        self.monotonic = time.monotonic
        self.monotonic_ns = time.monotonic_ns
        self.call_at: Callable[[float, Callable[[], object]], Cancellable] = loop.call_at

    def unix_ms(self) -> int:
        """Wall clock in ms."""
        return time.time_ns() // 1_000_000


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, None]) -> bool:
    """Do `work`; False if it was not done in time and was cancelled."""
    task = asyncio.get_running_loop().create_task(work)
    alarm = clock.call_at(clock.monotonic() + seconds, task.cancel)
    try:
        await asyncio.wait((task,))
    finally:
        alarm.cancel()
        task.cancel()
    if task.cancelled():
        return False
    task.result()
    return True
