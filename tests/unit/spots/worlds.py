"""A host without a process around it: virtual time, a port that keeps what is submitted, a small mesh."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Any, TypeVar

from sojourn import frames
from sojourn.control import (
    Captured,
    Control,
    Created,
    CreateObject,
    DropObject,
    ForgetRequest,
    OpenObject,
    Restore,
    Restored,
    Seal,
    SealRefused,
    UnitMember,
    Unseal,
    Welcome,
)
from sojourn.ids import ObjectKey
from sojourn.spots.app import App, ObjectType
from sojourn.spots.host import ObjectHost
from sojourn.wire.checksum import checksum

C = TypeVar("C")
START_UNIX_MS = 1_700_000_000_000
LEASE_NS = 3600 * 10**9


class VirtualHandle:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualClock:
    """Time that only tests move. Wall clock, loop clock and CLOCK_BOOTTIME go together unless stepped."""

    def __init__(self) -> None:
        self.now = 0.0
        self.wall_step_ms = 0
        self.suspended_ns = 0
        self._heap: list[tuple[float, int, VirtualHandle]] = []
        self._order = 0

    def unix_ms(self) -> int:
        return START_UNIX_MS + self.wall_step_ms + int(self.now * 1000 + 1e-6)

    def monotonic(self) -> float:
        return self.now

    def monotonic_ns(self) -> int:
        return 1 + int(self.now * 1e9)

    def boottime_ns(self) -> int:
        return int(self.now * 1e9) + self.suspended_ns

    def call_at(self, when: float, callback: Callable[[], object]) -> VirtualHandle:
        handle = VirtualHandle(callback)
        self._order += 1
        heapq.heappush(self._heap, (when, self._order, handle))
        return handle

    async def advance(self, seconds: float) -> None:
        """Let time pass; everything that becomes due runs at its instant."""
        end = self.now + seconds
        await settle()
        while self._heap and self._heap[0][0] <= end + 1e-9:
            when, _, handle = heapq.heappop(self._heap)
            self.now = max(self.now, when)
            if handle.callback is not None:
                handle.callback()
                await settle()
        self.now = end
        await settle()

    @property
    def armed(self) -> int:
        """Timers that are armed."""
        return sum(handle.callback is not None for _, _, handle in self._heap)


async def settle() -> None:
    """Let everything run that can run without time passing."""
    for _ in range(12):
        await asyncio.sleep(0)


class FakePort:
    """Keeps what a host submits, in order; frames go on by hand or through a `Mesh`."""

    def __init__(self) -> None:
        self.sent: list[bytes | Control] = []
        self.granted: list[tuple[int, int]] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Any] = {}
        self.ended_by: list[BaseException] = []
        self.congested = False
        self.room = asyncio.Event()
        self.carry: Callable[[bytes], None] | None = None

    def submit(self, frame_body: bytes) -> None:
        self.sent.append(frame_body)
        if self.carry is not None:
            self.carry(frame_body)

    def submit_bulk(self, handoff: int, last: bool, chunk: bytes | memoryview) -> None:
        self.sent.append(frames.bulk_frame(handoff, last, chunk))

    async def wait_written(self) -> None:
        await asyncio.sleep(0)

    def submit_control(self, message: Control) -> None:
        self.sent.append(message)

    async def wait_uncongested(self) -> None:
        await self.room.wait()

    @property
    def bulk_room(self) -> bool:
        return not self.congested

    async def wait_bulk_room(self) -> None:
        if self.congested:
            await self.room.wait()

    async def call_node(self, operation: str, arguments: dict[str, Any]) -> Any:
        self.calls.append((operation, arguments))
        answer = self.answers.get(operation)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def grant(self, records: int, octets: int) -> None:
        self.granted.append((records, octets))

    def hold(self) -> None:
        pass

    def release(self) -> None:
        pass

    def fatal(self, error: BaseException) -> None:
        self.ended_by.append(error)

    def controls(self, kind: type[C]) -> list[C]:
        return [message for message in self.sent if isinstance(message, kind)]

    def frames(self, kind: int) -> list[bytes]:
        return [body for body in self.sent if isinstance(body, bytes) and body[0] == kind]

    @property
    def forgotten(self) -> list[int]:
        return [message.reply_route for message in self.controls(ForgetRequest)]


class World:
    """One or more hosts that share a clock; records and replies find their way between them."""

    def __init__(self, app: App, *, fenced: bool = True, **options: Any) -> None:
        self.app = app
        self.options = options
        self.clock = VirtualClock()
        self.hosts: dict[bytes, ObjectHost] = {}
        self.ports: dict[bytes, FakePort] = {}
        self.owner: dict[ObjectKey, bytes] = {}
        self.fenced = fenced
        """False: records come without route fence, as from a worker of the same node."""
        self.held: list[bytes] | None = None
        """While a list: records are kept here instead of being delivered."""
        self._generation = 0

    def host(self, name: str = "a", app: App | None = None) -> ObjectHost:
        """A host that belongs to a node of its own."""
        rid = name.encode()
        port = FakePort()
        welcome = Welcome(
            rid, 7, f"owner-{name}", 3, len(self.hosts), 64, self.clock.boottime_ns() + LEASE_NS, self.options
        )
        host = ObjectHost(self.app if app is None else app, port, welcome, self.clock)
        port.carry = self.carry
        self.hosts[rid], self.ports[rid] = host, port
        return host

    def port(self, name: str = "a") -> FakePort:
        return self.ports[name.encode()]

    def carry(self, body: bytes) -> None:
        if body[0] == frames.KIND_REPLY:
            header = frames.parse_reply_header(body)
            self.hosts[header.rid].receive_reply(body)
        elif body[0] == frames.KIND_RECORD:
            header_of = frames.parse_record_header(body)
            if self.held is not None:
                self.held.append(body)
            elif header_of.key in self.owner:
                self.deliver(self.owner[header_of.key], body)

    def deliver(self, rid: bytes, body: bytes, flags: int = 0) -> None:
        """Complete a record as a supervisor does, or not, and give it to the host of a node."""
        header = frames.parse_record_header(body)
        host = self.hosts[rid]
        cell = host.cells.get(header.key)
        generation = 5 if cell is None else cell.object_generation or 5
        if self.fenced and not header.flags & frames.FLAG_COMPLETE:
            fence = host.outbox.origin.route_fence(header.key, generation, 6)
            body = frames.complete_record(body, header, fence, generation)
        if flags:
            body = frames.set_hops(body, 1, set_flags=flags)
        host.receive_record(body)

    def release(self, rid: bytes = b"a") -> None:
        """Deliver the records that were held."""
        held, self.held = self.held or [], None
        for body in held:
            self.deliver(rid, body)

    def make(
        self, host: ObjectHost, cls: type, object_id: str, *args: Any, opened: bool = True, **kwargs: Any
    ) -> Created:
        """Create an object as the supervisor would and return the answer."""
        record = self.app.type_of(cls)
        key = key_of(record, object_id)
        content_type, payload = host.outbox.codec.encode_creation(record.stable_type, args, kwargs)
        self._generation += 1
        rid = host.outbox.origin.rid
        port = self.ports[rid]
        before = len(port.controls(Created))
        self.owner[key] = rid
        host.receive_control(
            CreateObject(
                self._generation, key, record.kind, record.stable_type, 5, 6, opened, content_type, payload
            )
        )
        answers = port.controls(Created)
        return answers[-1] if len(answers) > before else Created(0)

    # moves

    def seal(
        self,
        host: ObjectHost,
        cls: type,
        object_id: str,
        handoff: int = 1,
        chunk_limit: int = 1000,
        wait_ms: int = 0,
        members: tuple[UnitMember, ...] = (),
    ) -> None:
        key = key_of(self.app.type_of(cls), object_id)
        host.receive_control(Seal(11, key, handoff, 77, 88, 5, 6, chunk_limit, wait_ms, members))

    def captured(self, host: ObjectHost, handoff: int = 1) -> bytes:
        """The envelope a host captured; checks announcement, chunk sizes and checksum."""
        port = self.ports[host.outbox.origin.rid]
        refused = port.controls(SealRefused)
        assert not refused, refused
        (answer,) = [message for message in port.controls(Captured) if message.handoff == handoff]
        parts = [frames.parse_bulk(memoryview(body)) for body in port.frames(frames.KIND_BULK)]
        chunks = [(last, bytes(chunk)) for number, last, chunk in parts if number == handoff]
        envelope = b"".join(chunk for _, chunk in chunks)
        assert [last for last, _ in chunks] == [False] * (len(chunks) - 1) + [True]
        assert answer.length == len(envelope)
        assert answer.checksum == checksum(envelope)
        return envelope

    def restore(
        self,
        host: ObjectHost,
        cls: type,
        object_id: str,
        envelope: bytes,
        handoff: int = 2,
        chunk: int = 777,
        members: tuple[UnitMember, ...] = (),
    ) -> Restored:
        record = host.app.type_of(cls)
        key = key_of(record, object_id)
        host.receive_control(
            Restore(21, key, handoff, record.kind, record.stable_type, 5, 7, len(envelope), members)
        )
        for at in range(0, len(envelope), chunk):
            part = memoryview(envelope)[at : at + chunk]
            host.receive_bulk(handoff, at + chunk >= len(envelope), part)
        answers = self.ports[host.outbox.origin.rid].controls(Restored)
        return answers[-1]

    def open(self, host: ObjectHost, cls: type, object_id: str, handoff: int = 2) -> None:
        key = key_of(self.app.type_of(cls), object_id)
        self.owner[key] = host.outbox.origin.rid
        host.receive_control(OpenObject(31, key, 7, handoff))

    def unseal(
        self, host: ObjectHost, cls: type, object_id: str, handoff: int = 1, *, moved: bool = False
    ) -> None:
        host.receive_control(Unseal(key_of(self.app.type_of(cls), object_id), handoff, moved))

    def drop(
        self,
        host: ObjectHost,
        cls: type,
        object_id: str,
        reason: str = "RelocationOut",
        *,
        end_work: bool = False,
    ) -> None:
        key = key_of(self.app.type_of(cls), object_id)
        host.receive_control(DropObject(key, reason, end_work=end_work))

    def move(
        self, source: ObjectHost, target: ObjectHost, cls: type, object_id: str, handoff: int = 1
    ) -> None:
        """Seal, carry over, open there, drop here."""
        self.seal(source, cls, object_id, handoff)
        restored = self.restore(target, cls, object_id, self.captured(source, handoff), handoff)
        assert restored.error is None, restored.error
        self.open(target, cls, object_id, handoff)
        self.drop(source, cls, object_id)

    async def close(self) -> None:
        for host in self.hosts.values():
            await host.close()


def key_of(record: ObjectType, object_id: str) -> ObjectKey:
    return (b"a" if record.kind == 1 else b"s") + object_id.encode()
