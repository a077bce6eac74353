"""A supervisor without processes, links or files: real router, lanes, directory and senders over fakes.

What the tests of a part need is public here: what went to a worker, what was answered, what failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import msgspec
from sojourn import frames
from sojourn.control import Control, ErrorBody, RegistryEntry, decode_control, encode_error
from sojourn.errors import NotFound, SojournError, Unavailable
from sojourn.frames import FLAG_INTENT, FLAG_REQUEST, RecordHeader, ReplyHeader, parse_record_header
from sojourn.ids import NodeRun, ObjectKey, ObjectKind
from sojourn.options import Options
from sojourn.rows import HostState, Owner
from sojourn.spots.origin import record_kind
from sojourn.store.memory import MemoryLocationStore, MemoryRelocationStore, MemoryRows
from sojourn.wire import fast_record
from sojourn.wire.fast_record import encode_payload
from sojourn.wire.record import NodeSource
from sojourn.workers.cold import ColdRecords
from sojourn.workers.creation import Creation
from sojourn.workers.debt import Debt
from sojourn.workers.directory import Directory
from sojourn.workers.lanes import RunningRequest, WorkerLane
from sojourn.workers.ledger import Ledger
from sojourn.workers.objects import LocalObject, Place
from sojourn.workers.pool import WorkerPool
from sojourn.workers.records import record_origin
from sojourn.workers.router import Router
from sojourn.workers.routes import Route
from sojourn.workers.senders import SenderPaths

HERE, THERE = NodeRun(b"here", 7), NodeRun(b"there", 9)
REGISTRY = (
    RegistryEntry("Device", ObjectKind.INSTANCE_SPOT, "preserve", 1),
    RegistryEntry("Player", ObjectKind.ACTOR, "recreate", 1),
)


class VirtualLoop:
    """The timers of an event loop in time that only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[tuple[float, VirtualTimer]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., object], *arguments: Any) -> VirtualTimer:
        timer = VirtualTimer(callback, arguments)
        self.timers.append((when, timer))
        return timer

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> VirtualTimer:
        return self.call_at(self.now + delay, callback, *arguments)

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> VirtualTimer:
        return self.call_at(self.now, callback, *arguments)

    @property
    def armed(self) -> int:
        return sum(not timer.over for _, timer in self.timers)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [entry for entry in self.timers if entry[0] <= self.now]
        self.timers = [entry for entry in self.timers if entry[0] > self.now]
        for _, timer in sorted(due, key=lambda entry: entry[0]):
            timer.fire()


class VirtualTimer:
    def __init__(self, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self._callback = callback
        self._arguments = arguments
        self.over = False

    def cancel(self) -> None:
        self.over = True

    def fire(self) -> None:
        if not self.over:
            self.over = True
            self._callback(*self._arguments)


class FakePool:
    """Workers that answer when the test says so; `answers` holds what is asked and not yet answered."""

    encode = staticmethod(WorkerPool.encode)

    def __init__(self, node: FakeNode) -> None:
        self._node = node
        self._calls = 0
        self.asked: list[Control] = []
        self.controls: list[tuple[int, Control]] = []
        self.pending: dict[int, tuple[int, asyncio.Future[Any]]] = {}
        self.at_once: Callable[[Control], Control | None] = lambda message: None
        """Answers a call before anything else happens; None leaves it open."""

    def call(self, worker: int, make: Callable[[int], Control]) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self._node.loop.create_future()
        if worker not in self._node.object_counts:
            answer.set_exception(Unavailable(f"worker {worker} is not running", applied="no"))
            return answer
        self._calls += 1
        message = make(self._calls)
        self.asked.append(message)
        reply = self.at_once(message)
        if reply is not None:
            answer.set_result(reply)
        else:
            self.pending[self._calls] = worker, answer
        return answer

    def control(self, worker: int, message: Control) -> bool:
        self.controls.append((worker, message))
        return worker in self._node.object_counts

    def answer(self, reply: Any) -> None:
        """Answer the oldest call that waits."""
        number = min(self.pending)
        self.pending.pop(number)[1].set_result(reply)

    def lose(self, worker: int) -> None:
        for number, (of, answer) in list(self.pending.items()):
            if of == worker:
                del self.pending[number]
                answer.set_exception(Unavailable("the worker ended", applied="unknown"))


class FakeNode:
    """See the module text."""

    def __init__(
        self, rows: MemoryRows | None = None, run: NodeRun = HERE, timers: VirtualLoop | None = None
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.run = run
        self.lease_generation = run.generation
        self.owner_id = f"{run}@{run.generation}"
        self.owner = Owner(run.rid, run.generation, self.owner_id, run.generation)
        self.source_prefix = fast_record.encode_source_prefix(
            NodeSource(run.rid, run.generation, self.owner_id, run.generation)
        )
        self.options = Options()
        self.registry = {entry.stable_type: entry for entry in REGISTRY}
        self.state = HostState.SERVING
        self.takes_new_objects = True
        self.alive = {HERE, THERE}
        self.rows = MemoryRows() if rows is None else rows
        self.store = MemoryLocationStore(self.rows)
        self.directory = Directory(
            self.store, lambda: self.owner, lambda run: run in self.alive, lambda: True
        )
        self.object_counts: dict[int, int] = {}
        self.lanes: dict[int, WorkerLane] = {}
        self.to_worker: list[tuple[int, bytes]] = []
        self.pool = FakePool(self)
        loop = self.loop if timers is None else cast(asyncio.AbstractEventLoop, timers)
        self.senders = SenderPaths(self, loop, cache_age_s=15.0, marker_limit_s=2.0, follow_s=30.0)
        self.router = Router(self, self.senders)
        self.links: set[NodeRun] = {THERE}
        self.sent: list[tuple[NodeRun, bytes]] = []
        self.replies: list[tuple[NodeRun, bytes]] = []
        self.moved_replies: list[tuple[RunningRequest, bytes]] = []
        self.told: list[tuple[str, NodeRun]] = []
        self.failed: list[tuple[int, SojournError]] = []
        self.activated: list[bytes] = []
        self.logged: list[str] = []
        self.markers: list[tuple[NodeRun, int]] = []
        self.unbinds: list[bytes] = []
        self.asked: list[int] = []
        """Operation numbers whose look-ups reached the directory."""
        self.here: set[ObjectKey] = set()
        self.routes: dict[ObjectKey, Route] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.blobs = MemoryRelocationStore(self.rows)
        self.counters: dict[str, int] = {}
        self.ledger = Ledger()
        self.cold = ColdRecords(cast(Any, self))
        self.creation = Creation(cast(Any, self))
        self._own: dict[int, asyncio.Future[bytes]] = {}

    # workers

    def worker_ready(self, worker: int, credit: int = 100) -> None:
        self.lanes[worker] = WorkerLane(lambda body: self.to_worker.append((worker, body)), credit)
        self.object_counts[worker] = 0
        self.creation.worker_ready(worker)

    def count(self, name: str, amount: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + amount

    def worker_lost(self, worker: int) -> None:
        """As a supervisor does, as far as creation sees it."""
        del self.object_counts[worker]
        gone = [held for held in self.router.objects.values() if held.worker == worker]
        for held in gone:
            if held.place is Place.ACTIVE:
                del self.router.objects[held.key]
        self.lanes[worker].close()
        self.pool.lose(worker)

    def count_object(self, worker: int, change: int) -> None:
        if worker in self.object_counts:
            self.object_counts[worker] += change

    @property
    def records(self) -> list[int]:
        """Operation numbers of the records that went to a worker, in order."""
        return [
            parse_record_header(body).operation_low
            for _, body in self.to_worker
            if body[0] == frames.KIND_RECORD
        ]

    @property
    def ordered(self) -> list[Control]:
        """Control messages that went to a worker in their place among records."""
        return [decode_control(body[1:]) for _, body in self.to_worker if body[0] == frames.KIND_CONTROL]

    # what a router, senders and creation ask of their node

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def resolve(self, key: ObjectKey, header: RecordHeader) -> Route:
        self.asked.append(header.operation_low)
        if key not in self.routes:
            raise NotFound("there is no such object")
        return self.routes[key]

    async def connect(self, run: NodeRun) -> None:
        if run not in self.links:
            raise Unavailable(f"no connection to node {run}", applied="no")

    def send_to(self, run: NodeRun, body: bytes, debt: Debt | None) -> bool:
        if run not in self.links:
            return False
        self.sent.append((run, body))
        if debt is not None:
            debt.settle()
        return True

    def send_reply(self, run: NodeRun, body: bytes) -> bool:
        self.replies.append((run, body))
        return run in self.links

    def reply_moved(self, request: RunningRequest, header: ReplyHeader, body: bytes) -> None:
        self.moved_replies.append((request, body))

    def request_followed(self, held: LocalObject, body: bytes, header: RecordHeader) -> None:
        self.told.append(("taken", record_origin(body, header.record_at)))

    def deliver_reply(self, reply_route: int, body: bytes) -> None:
        own = self._own.pop(reply_route, None)
        if own is not None:
            own.set_result(body)
        else:
            self.replies.append((self.run, body))

    def own_request(self) -> tuple[int, asyncio.Future[bytes]]:
        route = len(self._own) + 1
        self._own[route] = self.loop.create_future()
        return route, self._own[route]

    def forget_own_request(self, route: int) -> None:
        self._own.pop(route, None)

    def activate(self, body: bytes, header: RecordHeader, debt: Debt | None) -> None:
        self.activated.append(body)

    def deliver_here(self, body: bytes, header: RecordHeader, debt: Debt | None) -> bool:
        held = self.router.objects.get(header.key)
        if held is None:
            return False
        self.router.to_object(held, body, header, debt, None)
        return True

    def accounts_for(self, key: ObjectKey) -> bool:
        return key in self.here

    def fail_record(self, body: bytes, header: RecordHeader, error: SojournError) -> None:
        self.failed.append((header.operation_low, error))

    def notice_route(self, to: NodeRun, held: LocalObject) -> None:
        self.told.append(("route", to))

    def unbind_arrived(self, held: LocalObject, body: bytes, header: RecordHeader) -> None:
        self.unbinds.append(body)

    def notice_follow(self, to: NodeRun, held: LocalObject, header: RecordHeader) -> None:
        self.told.append(("follow", to))

    def answer_marker(self, to: NodeRun, number: int, held: LocalObject) -> None:
        self.told.append((f"marker {number}", to))

    def send_marker(self, run: NodeRun, key: ObjectKey, kind: int, number: int) -> bool:
        if run in self.links:
            self.markers.append((run, number))
        return run in self.links

    def marker_ended(self) -> None:
        self.logged.append("marker_ended")

    def install_follow(self, held: LocalObject, run: NodeRun) -> None:
        held.place = Place.FOLLOW
        held.follow_run = run

    def log(self, event: str, level: str, **fields: object) -> None:
        self.logged.append(event)

    # the test's side

    def record(
        self,
        key: ObjectKey,
        number: int,
        *,
        flags: int = FLAG_INTENT | FLAG_REQUEST,
        kind: ObjectKind = ObjectKind.INSTANCE_SPOT,
        stable_type: bytes = b"Device",
        generation: int = 0,
        origin: NodeRun | None = None,
    ) -> bytes:
        """A record as a worker of `origin` makes it, without the route fence."""
        source = origin or self.run
        prefix = fast_record.encode_source_prefix(NodeSource(source.rid, source.generation, "owner", 1))
        route = number if flags & FLAG_REQUEST else 0
        head = fast_record.encode_record_head(prefix, None, 1, number, record_kind(kind, bool(route)), route)
        payload = fast_record.encode_payload("handler", "application/x-sojourn+msgpack", b"\x90")
        return frames.record_frame(
            flags, 0, kind, generation, route, 1, number, len(head), key, stable_type, head + payload
        )

    def first_record(self, key: ObjectKey, number: int, **options: Any) -> None:
        """A record for `key` arrives; the first one has the object made."""
        body = self.record(key, number, **options)
        header = parse_record_header(body)
        if not self.deliver_here(body, header, None):
            self.creation.first_record(body, header, None)

    async def settle(self) -> None:
        """Let everything run that can without an answer of a worker."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def close(self) -> None:
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.senders.close()


class Credits:
    """Counts what comes back to where records came from."""

    def __init__(self) -> None:
        self.records = self.octets = 0

    def give_back(self, records: int, octets: int) -> None:
        self.records += records
        self.octets += octets


def reply_to(body: bytes, answer: object) -> bytes:
    """A worker's reply to a record; an error as the typed error it is."""
    header = parse_record_header(body)
    origin = record_origin(body, header.record_at)
    if isinstance(answer, SojournError):
        flags, result = frames.FLAG_ERROR, encode_error(ErrorBody.of(answer))
    else:
        flags, result = 0, encode_payload("handler", "x", msgspec.msgpack.encode(answer))
    return frames.reply_frame(
        flags,
        header.reply_route,
        header.operation_high,
        header.operation_low,
        origin.rid,
        origin.generation,
        result,
    )
