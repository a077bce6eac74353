"""Streams the flights to a fleet and moves aircraft meanwhile.

Owns the senders, the pace, the bound on messages in flight and the schedule of the moves. Each aircraft
belongs to one sender, and a sender starts its messages in the order of the file without waiting for the
answer before: so many messages to one aircraft can be under way, and only the cluster keeps their order.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable

from sojourn.errors import DeadlineExceeded, NotFound, SojournError

from examples.flights.data import FlightData
from examples.flights.display import Counts, ProgressDisplay
from examples.flights.fleet import Emptied, Fleet, Move
from examples.flights.logbook import Flight, Logbook
from examples.flights.outcome import Outcome, build_outcome
from examples.flights.pace import Pace
from examples.flights.settings import Settings
from examples.flights.verifier import compare_all

__all__ = ["Replay", "partition"]

_SHOW_EVERY_S = 0.1


def partition(tailnum: str, senders: int) -> int:
    """The sender that an aircraft belongs to."""
    return zlib.crc32(tailnum.encode()) % senders


class Replay:
    """One run: `outcome = await Replay(...).run()`."""

    def __init__(
        self,
        fleet: Fleet,
        data: FlightData,
        settings: Settings,
        display: ProgressDisplay,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._fleet = fleet
        self._data = data
        self._settings = settings
        self._display = display
        self._now = now
        self._sleep = sleep
        self._random = random.Random(settings.seed)
        self._sent = 0
        self._answered = 0
        self._failed: dict[str, set[int]] = {}
        self._failures: Counter[str] = Counter()
        self._flying: list[str] = []
        """Aircraft that had their first message, for the random choice."""
        self._singles: list[Move] = []
        self._emptied: list[Emptied] = []
        self._moves: Counter[str] = Counter()
        """Ends of moves so far, by outcome."""
        self._emptying: int | None = None
        self._stream_over = asyncio.Event()
        total = len(data.flights)
        self._marks = {math.ceil(part * total): asyncio.Event() for part in settings.empty_at}

    async def run(self) -> Outcome:
        """Stream everything, wait for every answer, then compare.

        Raises:
            SojournError: the run cannot go on (an aircraft cannot be read at the end, for example).
        """
        started = self._now()
        async with asyncio.TaskGroup() as group:
            stream = group.create_task(self._stream())
            beside = [group.create_task(self._show_progress())]
            if self._settings.moves:
                beside.append(group.create_task(self._move_singles()))
                beside.append(group.create_task(self._empty_nodes()))
            await stream
            seconds = self._now() - started
            self._stream_over.set()
        self._display.show(self._counts())
        logbooks = await self._read_logbooks()
        comparison = compare_all(self._data.by_aircraft(), self._failed, logbooks)
        return build_outcome(
            comparison,
            sent=self._sent,
            failures=self._failures,
            singles=self._singles,
            emptied=self._emptied,
            seconds=seconds,
            skipped=self._data.without_tailnum,
            cancelled=self._data.cancelled,
        )

    async def _stream(self) -> None:
        senders = self._settings.senders
        queues: list[asyncio.Queue[Flight | None]] = [
            asyncio.Queue(self._settings.window) for _ in range(senders)
        ]
        pace = Pace(self._settings.rate, self._now, self._sleep)
        async with asyncio.TaskGroup() as group:
            for queue in queues:
                group.create_task(self._send(queue))
            for flight in self._data.flights:
                await pace.wait_turn()
                await queues[partition(flight.tailnum, senders)].put(flight)
                self._sent += 1
                if flight.number == 1:
                    self._flying.append(flight.tailnum)
                if (mark := self._marks.get(self._sent)) is not None:
                    mark.set()
            for queue in queues:
                await queue.put(None)

    async def _send(self, queue: asyncio.Queue[Flight | None]) -> None:
        window = asyncio.Semaphore(self._settings.window)
        async with asyncio.TaskGroup() as group:
            while (flight := await queue.get()) is not None:
                await window.acquire()
                group.create_task(self._deliver(flight, window))

    async def _deliver(self, flight: Flight, window: asyncio.Semaphore) -> None:
        try:
            await self._fleet.fly(flight)
        except SojournError as error:
            self._failures[error.kind] += 1
            self._failed.setdefault(flight.tailnum, set()).add(flight.number)
        finally:
            self._answered += 1
            window.release()

    async def _move_singles(self) -> None:
        if self._settings.moves_per_second <= 0:
            return
        interval_s = 1.0 / self._settings.moves_per_second
        while not await self._over_within(interval_s):
            targets = [node for node in range(self._fleet.nodes) if node != self._emptying]
            if self._flying and targets:
                await self._move(self._random.choice(self._flying), self._random.choice(targets))

    async def _move(self, tailnum: str, node: int) -> None:
        try:
            move = await self._fleet.move(tailnum, node)
        except NotFound:
            return  # its first message has not been handled yet
        except SojournError as error:
            move = Move("failed", error.kind)
        self._singles.append(move)
        self._moves[move.outcome] += 1

    async def _empty_nodes(self) -> None:
        order = list(range(self._fleet.nodes))
        self._random.shuffle(order)
        for turn, mark in enumerate(self._marks.values()):
            if await self._reached(mark):
                await self._empty(order[turn % len(order)])

    async def _empty(self, node: int) -> None:
        self._emptying = node
        started = self._now()
        try:
            emptied = await self._fleet.empty(node)
        except SojournError as error:
            emptied = Emptied(str(node), "Blocked", error.kind, took_s=self._now() - started)
        finally:
            self._emptying = None
        self._emptied.append(emptied)
        self._moves["moved"] += emptied.moved
        self._moves.update(move.outcome for move in emptied.stayed)
        self._display.say(
            f"node {emptied.node} emptied under load: {emptied.outcome}"
            f"{' (' + emptied.reason + ')' if emptied.reason else ''}, {emptied.moved:,} aircraft moved "
            f"in {emptied.took_s:.2f} s"
        )

    async def _reached(self, mark: asyncio.Event) -> bool:
        """Wait for a mark of the stream; False when the stream ended before it."""
        waits = [asyncio.ensure_future(event.wait()) for event in (mark, self._stream_over)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return mark.is_set()

    async def _over_within(self, seconds: float) -> bool:
        """Wait so long; True when the stream is over."""
        await self._sleep(seconds)
        return self._stream_over.is_set()

    async def _show_progress(self) -> None:
        while not await self._over_within(_SHOW_EVERY_S):
            self._display.show(self._counts())

    def _counts(self) -> Counts:
        note = "" if self._emptying is None else f"emptying node {self._emptying}"
        return Counts(
            self._answered, sum(self._failures.values()), self._moves["moved"], self._moves["failed"], note
        )

    async def _read_logbooks(self) -> dict[str, Logbook]:
        logbooks: dict[str, Logbook] = {}
        names = iter(self._data.by_aircraft())

        async def read_some() -> None:
            for tailnum in names:
                try:
                    logbooks[tailnum] = await self._fleet.read_logbook(tailnum)
                except NotFound:
                    logbooks[tailnum] = Logbook()
                except SojournError as error:
                    raise DeadlineExceeded(
                        f"the logbook of aircraft {tailnum} cannot be read at the end: {error}"
                    ) from error

        async with asyncio.TaskGroup() as group:
            for _ in range(self._settings.senders * 4):
                group.create_task(read_some())
        return logbooks
