"""A cluster in the test's own process: several supervisors with real worker processes, and a client."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
from sojourn.errors import SojournError
from sojourn.options import Options
from sojourn.spots.references import Reference
from sojourn.workers.client import Client
from sojourn.workers.objects import LocalObject
from sojourn.workers.program import ProgramReference, reference_for
from sojourn.workers.supervisor import Supervisor

from tests.runtime.fleet import app

__all__ = [
    "QUICK_LEASE",
    "Cluster",
    "Gate",
    "HeldStep",
    "Journal",
    "cluster",
    "gate",
    "hold_answer",
    "hold_step",
    "outcome",
]

QUICK_LEASE: dict[str, Any] = {
    "lease_ttl_ms": 3_000,
    "lease_renew_ms": 500,
    "lease_renew_timeout_ms": 500,
    "lease_margin_ms": 500,
}
"""Leases for tests in which a node dies and others must not wait for 15 s."""


@dataclass(frozen=True)
class Config:
    rid: str
    options: Options
    program: ProgramReference
    workers: int = 2
    host: str = "127.0.0.1"
    port: int = 0
    advertise: str = ""
    weight: int = 100
    wave: str = ""


class Journal(logging.Handler):
    """Structured events of every node of the process, and a way to wait for one."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._waiting: list[tuple[str, asyncio.Future[dict[str, Any]]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        fields = dict(getattr(record, "sojourn", {}))
        if record.exc_info is not None:
            fields["error"] = repr(record.exc_info[1])
        name = record.getMessage()
        self.events.append((name, fields))
        for wanted, waiter in self._waiting:
            if wanted in name and not waiter.done():
                waiter.set_result(fields)

    def named(self, name: str) -> list[dict[str, Any]]:
        return [fields for event, fields in self.events if name in event]

    async def wait(self, name: str, timeout_s: float = 20.0) -> dict[str, Any]:
        """The fields of the first event of this name, whether it came already or comes yet."""
        found = self.named(name)
        if found:
            return found[0]
        waiter: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((name, waiter))
        async with asyncio.timeout(timeout_s):
            return await waiter


@dataclass
class Cluster:
    options: Options
    nodes: dict[str, Supervisor]
    client: Client
    journal: Journal
    crashed: set[str] = field(default_factory=set)

    def node_of(self, name: str) -> Supervisor:
        return self.nodes[name]

    async def where(self, reference: Reference[Any]) -> str:
        return (await self.client.locate(reference)).node

    async def others(self, reference: Reference[Any]) -> list[str]:
        """Nodes that do not hold an object, in order."""
        here = await self.where(reference)
        return [name for name in self.nodes if name != here and name not in self.crashed]

    def held(self, name: str, reference: Reference[Any]) -> LocalObject | None:
        return self.nodes[name].router.objects.get(reference.key)

    async def on_node(self, name: str, make: Callable[[str], Reference[Any]], ready: Any) -> Reference[Any]:
        """An Instance Spot that placement put on this node."""
        for number in range(200):
            reference = make(f"{name}-{number}")
            await reference.request(ready)
            if await self.where(reference) == name:
                return reference
        raise AssertionError(f"placement never chose {name}")

    async def kill_worker(self, name: str, reference: Reference[Any]) -> None:
        """SIGKILL the worker process that holds the object on this node."""
        held = self.held(name, reference)
        assert held is not None
        self.kill_slot(name, held.worker)

    def kill_slot(self, name: str, slot: int) -> None:
        run = self.nodes[name].pool._slots[slot].run
        assert run is not None
        os.kill(run.pid, signal.SIGKILL)

    async def crash(self, name: str) -> None:
        """End a node as a SIGKILL would: no goodbye, no release of its lease, workers dead."""
        self.crashed.add(name)
        node = self.nodes[name]
        node.keeper.clock.released()  # nothing of this run is written any more
        await node.coordinator.close()
        for link in list(node.links._links.values()):
            link.abort("crashed")
        await node.pool.stop(0)
        await node.leave(0.1)


@asynccontextmanager
async def cluster(nodes: int = 3, workers: int = 2, **settings: Any) -> AsyncIterator[Cluster]:
    """Start a cluster, and end it whatever happens. `apps` are what its nodes run, if they differ."""
    apps = settings.pop("apps", (app,) * nodes)
    options = Options(
        cluster=f"test-{secrets.token_hex(4)}",
        store_url=settings.pop("store_url", "memory://runtime"),
        secret="0123456789abcdef" * 2,
        **settings,
    )
    journal = Journal()
    logger = logging.getLogger("sojourn")
    level = logger.level
    logger.addHandler(journal)
    logger.setLevel(logging.INFO)
    programs = [reference_for(each) for each in apps]
    started = {f"n{i}": Supervisor(Config(f"n{i}", options, programs[i], workers)) for i in range(nodes)}
    client = Client(apps[0], options, "client")
    it = Cluster(options, started, client, journal)
    try:
        await asyncio.gather(*(node.start_node() for node in started.values()))
        async with client:
            yield it
    finally:
        running = [node for name, node in started.items() if name not in it.crashed]
        await asyncio.gather(*(node.stop(5.0) for node in running))
        logger.removeHandler(journal)
        logger.setLevel(level)
    failed = journal.named("internal task failed")
    assert not failed, failed


class Gate:
    """Where handlers of worker processes wait for the test. See `tests.runtime.fleet.pass_gate`."""

    def __init__(self) -> None:
        self.port = 0
        self._waiting: list[asyncio.StreamWriter] = []
        self._arrivals: asyncio.Queue[None] = asyncio.Queue()
        self._opened = asyncio.Event()
        self._server: asyncio.Server

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._came, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._arrivals.put_nowait(None)
        try:
            waits = asyncio.ensure_future(self._opened.wait())
            gone = asyncio.ensure_future(reader.read(1))
            await asyncio.wait((waits, gone), return_when=asyncio.FIRST_COMPLETED)
            for task in (waits, gone):
                task.cancel()
            await asyncio.gather(waits, gone, return_exceptions=True)
        finally:
            writer.close()

    async def arrived(self) -> None:
        """Return when a handler waits at the gate."""
        async with asyncio.timeout(20):
            await self._arrivals.get()

    def open(self) -> None:
        """Let everybody through."""
        self._opened.set()

    async def close(self) -> None:
        self.open()
        self._server.close()
        await self._server.wait_closed()


@asynccontextmanager
async def gate() -> AsyncIterator[Gate]:
    it = Gate()
    await it.start()
    try:
        yield it
    finally:
        await it.close()


async def outcome(work: Any) -> Any:
    """The result, or the typed error."""
    try:
        return await work
    except SojournError as error:
        return error


class HeldStep:
    """A step of a handoff that waits for the test; see `hold_step` and `hold_answer`."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.released = asyncio.Event()
        self._calls: list[Callable[[], None]] = []

    async def wait(self) -> None:
        async with asyncio.timeout(20):
            await self.reached.wait()

    def release(self) -> None:
        """Carry out what waits, and hold nothing any more."""
        self.released.set()
        calls, self._calls = self._calls, []
        for call in calls:
            call()


def hold_step(patch: pytest.MonkeyPatch, driver: type, name: str) -> HeldStep:
    """Hold back the only effect of a transition, for example a frame to the other node."""
    step = HeldStep()
    original = getattr(driver, name)

    def held(self: Any, *arguments: Any) -> None:
        if step.released.is_set():
            original(self, *arguments)
            return
        step._calls.append(lambda: original(self, *arguments))
        step.reached.set()

    patch.setattr(driver, name, held)
    return step


def hold_answer(patch: pytest.MonkeyPatch, driver: type | ModuleType, name: str) -> HeldStep:
    """Hold back the answer of a worker or of the store that has come, before the machine hears of it.

    `name` is a coroutine of the driver, or a coroutine function that the driver's module uses.
    """
    step = HeldStep()
    original = getattr(driver, name)

    async def held(*arguments: Any) -> Any:
        answer = await original(*arguments)
        step.reached.set()
        await step.released.wait()
        return answer

    patch.setattr(driver, name, held)
    return step
