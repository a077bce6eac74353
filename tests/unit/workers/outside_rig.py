"""A real supervisor that was never started: real coordinator, router, senders, desk and drivers over fake links.

A driver is put into any state of its machine; then frames come in as they would from a link.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from sojourn import frames
from sojourn.control import RegistryEntry
from sojourn.errors import SojournError
from sojourn.frames import FLAG_REQUEST, parse_record_header
from sojourn.handoff.machine import Machine
from sojourn.handoff.source import SourceHandoff
from sojourn.handoff.target import TargetHandoff
from sojourn.ids import NodeRun, ObjectKind
from sojourn.options import Options
from sojourn.ownership import VersionedRow
from sojourn.rows import AuthorityRow, HostState, Owner
from sojourn.spots.origin import record_kind
from sojourn.store.memory import MemoryLocationStore, MemoryRelocationStore, MemoryRows
from sojourn.wire import TargetFence, fast_record
from sojourn.wire.checksum import checksum
from sojourn.wire.record import NodeSource
from sojourn.workers.directory import Directory
from sojourn.workers.handoff_wire import HandoffWire
from sojourn.workers.objects import LocalObject, Place, route_fence
from sojourn.workers.records import frozen_record
from sojourn.workers.relayed import RelayedEnds
from sojourn.workers.router import Router
from sojourn.workers.senders import SenderPaths
from sojourn.workers.source_driver import SourceDriver
from sojourn.workers.supervisor import Supervisor
from sojourn.workers.target_driver import TargetDriver
from sojourn.workers.unit_rows import UnitRows

from tests.machines.samples import IDENTITY, KEY, A, B, C
from tests.unit.workers.fake_node import FakePool, VirtualTimer

__all__ = ["FENCE", "KEPT", "Rig", "SentLink", "message"]

KEPT = AuthorityRow(
    kind=ObjectKind.ACTOR,
    object_id="p1",
    stable_type="Player",
    object_generation=1,
    owner_generation=4,
    owner=Owner(A.rid, A.generation, IDENTITY.owner_id, IDENTITY.lease_generation),
)
FENCE = TargetFence(B.rid, B.generation, "owner-b", 1)


def message(number: int, flags: int = FLAG_REQUEST, origin: NodeRun = C) -> bytes:
    """A record for the object as it is on a link: whole, with the route fence of its owner."""
    prefix = fast_record.encode_source_prefix(NodeSource(origin.rid, origin.generation, "owner", 1))
    route = number if flags & FLAG_REQUEST else 0
    head = fast_record.encode_record_head(
        prefix, None, 1, number, record_kind(ObjectKind.ACTOR, bool(route)), route
    )
    payload = fast_record.encode_payload("handler", "application/x-sojourn+msgpack", b"\x90")
    body = frames.record_frame(
        flags, 0, ObjectKind.ACTOR, 1, route, 1, number, len(head), KEY, b"Player", head + payload
    )
    fence = route_fence(KEY, ObjectKind.ACTOR, 1, A, 4, 1)
    return frames.complete_record(body, parse_record_header(body), fence, 1)


BODY = message(1)


def _with_bodies(machine: Machine) -> None:
    """Put a real record wherever the machine of a table test has one of its short names."""
    state: Any = machine.state
    for name in ("hold", "backlog", "queue"):
        if hasattr(state, name):
            setattr(state, name, [BODY] * len(getattr(state, name)))
    batch, relay = getattr(state, "batch", None), getattr(state, "relay", None)
    if batch is not None:
        batch.records = (BODY,) * len(batch.records)
    if relay is not None:
        relay.records = [BODY] * len(relay.records)
        relay._checksum, relay._frozen = checksum, frozen_record
    machine.__dict__.update(_checksum=checksum, _frozen=frozen_record)


class SentLink:
    """A link's sending half; whatever is sent is kept."""

    def __init__(self, peer: NodeRun, connection_id: int) -> None:
        self.peer = peer
        self.connection_id = connection_id
        self.closing = False
        self.peer_frame_octets_max = 2**20
        self.peer_receive_chunk_limit = 32 * 1024
        self.outbound_records = 0
        self.outbound_octets = 0
        self.given_back = 0
        self.unsent: list[bytes] = []
        self.sent: list[Any] = []

    def give_back(self, records: int, octets: int) -> None:
        self.given_back += records

    def send(self, body: bytes) -> None:
        self.sent.append(body)

    def send_control(self, message: Any) -> None:
        self.sent.append(message)

    def send_record(self, body: bytes, debt: Any = None) -> None:
        self.sent.append(body)
        if debt is not None:
            debt.settle()

    def send_contract(self, parts: Sequence[Any], deadline_ms: int = 0, done: Any = None) -> None:
        self.sent.append(parts)


class _Loop:
    """The running loop with a clock that stands still: machines of table tests live in their first minute."""

    def __init__(self, now: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._now = now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[..., object], *arguments: Any) -> VirtualTimer:
        return VirtualTimer(callback, arguments)

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> VirtualTimer:
        return VirtualTimer(callback, arguments)


class _Links:
    endpoint = "127.0.0.1:1"

    def __init__(self) -> None:
        self.up: dict[NodeRun, SentLink] = {}

    def get(self, run: NodeRun) -> SentLink | None:
        return self.up.get(run)

    def all(self) -> list[SentLink]:
        return list(self.up.values())

    def unwant(self, run: NodeRun) -> None:
        self.up.pop(run, None)

    async def ensure(self, run: NodeRun, endpoint: str) -> None:
        raise SojournError("nobody is there")


class Rig:
    """One node, the run `here`. `bugs` are the stories of transitions that a table refused, `failures` what escaped from a task."""

    def __init__(self, here: NodeRun, now: float = 0.0) -> None:
        config: Any = SimpleNamespace(
            rid=here.rid.decode(),
            options=Options(secret="0123456789abcdef"),
            host="127.0.0.1",
            port=0,
            advertise="",
            program=None,
            workers=1,
            weight=1,
            wave="",
        )
        self.node = node = Supervisor(config)
        node.run = here
        node.loop = cast(asyncio.AbstractEventLoop, _Loop(now))
        rows = MemoryRows()
        node.store = MemoryLocationStore(rows)
        node.blobs = MemoryRelocationStore(rows)
        self.links = _Links()
        node.links = cast(Any, self.links)
        node.state = HostState.SERVING
        node.registry = {"Player": RegistryEntry("Player", ObjectKind.ACTOR, "recreate", 1)}
        node.senders = SenderPaths(node, node.loop, cache_age_s=15.0, marker_limit_s=2.0, follow_s=30.0)
        node.router = Router(node, node.senders)
        node.relayed = RelayedEnds(node)
        node.directory = Directory(node.store, lambda: node.owner, lambda run: True, lambda: True)
        node.keeper = cast(Any, SimpleNamespace(clock=SimpleNamespace(admission_deadline_ms=2**62)))
        node.pool = cast(Any, FakePool(cast(Any, node)))
        node.logger = logging.Logger("rig")
        node.logger.addHandler(_Ear(self))
        self.bugs: list[str] = []
        self.failures: list[str] = []
        self._drivers: list[Any] = []

    def link(self, peer: NodeRun, connection_id: int = 1) -> Any:
        """The link that stands to a peer."""
        link = self.links.up[peer] = SentLink(peer, connection_id)
        return link

    def source(self, machine: Machine) -> SourceDriver:
        """This node's half of a move away, in the state of that machine."""
        assert isinstance(machine, SourceHandoff)
        node = self.node
        held = LocalObject(KEY, ObjectKind.ACTOR, "Player", Place.SOURCE)
        rows = UnitRows(node.directory, KEY, node.shares_turn)
        rows.first = VersionedRow(KEPT, IDENTITY.expected_version)
        driver = SourceDriver(node, held, 1, rows, machine.plan, self.wire(), node.coordinator.options)
        _with_bodies(machine)
        driver.machine = machine
        driver._link = cast(Any, self.links.up.get(B))
        held.staging = driver
        node.router.objects[KEY] = held
        node.coordinator._add_source(driver)
        self._drivers.append(driver)
        return driver

    def target(self, machine: Machine, *, begun: bool = True) -> TargetDriver:
        """This node's half of a move to it, in the state of that machine. Not `begun`: it is still being decided
        whether the attempt may start (B8.16)."""
        assert isinstance(machine, TargetHandoff)
        node = self.node
        held = LocalObject(KEY, ObjectKind.ACTOR, "Player", Place.TARGET)
        driver = TargetDriver(node, held, 1, machine.plan, self.wire(), node.coordinator.options)
        _with_bodies(machine)
        driver.machine = machine
        if begun:
            driver._early = None
        driver._length = 10
        driver._rows.first = VersionedRow(KEPT, IDENTITY.expected_version)
        driver._link = cast(Any, self.links.up.get(A))
        held.staging = driver
        node.router.objects[KEY] = held
        node.coordinator.targets[IDENTITY] = driver
        relocation = b"".join(part.to_bytes(8, "big") for part in IDENTITY.relocation_id)
        node.coordinator._relays[relocation] = driver
        self._drivers.append(driver)
        return driver

    @staticmethod
    def wire() -> HandoffWire:
        """Makes the commands of the attempt."""
        return HandoffWire.of_source(IDENTITY, FENCE, KEY, ObjectKind.ACTOR, "Player", 1, 4)

    async def settle(self) -> None:
        """Let everything that can go on without time go on."""
        for _ in range(10):
            await asyncio.sleep(0)

    async def close(self) -> None:
        await self.settle()
        for driver in self._drivers:
            driver.close()
        self.node.sessions.close()
        self.node.senders.close()
        self.node.replies.close()
        for task in list(self.node._tasks):
            task.cancel()
        await asyncio.gather(*self.node._tasks, return_exceptions=True)


class _Ear(logging.Handler):
    def __init__(self, rig: Rig) -> None:
        super().__init__()
        self.rig = rig

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.rig.failures.append(f"{record.getMessage()}: {record.exc_info[1]!r}")
        elif record.getMessage() == "illegal_transition":
            self.rig.bugs.append(str(getattr(record, "sojourn", {}).get("story")))
