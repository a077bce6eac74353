"""Where contract tests stand: a cluster of real node processes whose log, store and traces can be read."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sojourn.blobs import RelocationStore
from sojourn.ids import NodeRun, ObjectKey
from sojourn.location import Found, LocationStore
from sojourn.ownership import VersionedRow
from sojourn.rows import (
    AUTHORITY_PREFIX,
    NodeDescriptor,
    authority_row_key,
    decode_authority,
    decode_descriptor,
    descriptor_row_key,
)
from sojourn.store import open_location_store, open_relocation_store
from sojourn.workers.client import Client
from sojourn.workers.local_cluster import LocalCluster
from sojourn.workers.local_node import LocalNode

from tests.contract.app import TRACE_VARIABLE, app

__all__ = ["NODE_WITH_LOG", "Event", "NodeLog", "Stand", "fresh", "standing"]

LIMIT_S = 20.0
"""No fact that a test waits for takes this long."""
NODE_WITH_LOG = (
    "import os, sys; log = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_APPEND | os.O_CREAT); "
    "os.dup2(log, 2); os.close(log); from sojourn.workers.node import main; sys.exit(main())"
)
"""The node process with its standard error in a file."""
_LINE = re.compile(
    r"^\d\d:\d\d:\d\d\.\d{3} (?P<level>\w+) +(?P<place>\S+) [\w.]+: (?P<name>\w+)(?P<rest>.*)$"
)
_FIELD = re.compile(r"(\w+)=(.*?)(?= \w+=|\]$)")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Event:
    """One log event of a node (B12.1)."""

    name: str
    level: str
    place: str
    fields: dict[str, str]


@dataclass
class NodeLog:
    """The log of every node of a cluster, as a file."""

    path: Path

    def events(self, *names: str, about: str = "") -> list[Event]:
        """Events of these names (all without any), about one object where it is named, oldest first."""
        if not self.path.exists():
            return []
        found = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            match = _LINE.match(line)
            if match is None or (names and match["name"] not in names):
                continue
            fields = dict(_FIELD.findall(match["rest"]))
            if not about or about in fields.get("object_id", ""):
                found.append(Event(match["name"], match["level"], match["place"], fields))
        return found


@dataclass
class Stand:
    """A running cluster with everything that is visible from outside."""

    cluster: LocalCluster
    log: NodeLog
    traces: Path
    store: LocationStore
    blobs: RelocationStore

    @property
    def a(self) -> LocalNode:
        """The first node."""
        return self.cluster.nodes[0]

    @property
    def b(self) -> LocalNode:
        """The second node."""
        return self.cluster.nodes[1]

    @property
    def client(self) -> Client:
        """The client of the cluster."""
        return self.cluster.client

    @staticmethod
    def run_of(node: LocalNode) -> NodeRun:
        """The present run of a node."""
        return NodeRun(node.rid.encode(), node.generation)

    async def descriptor(self, node: LocalNode) -> NodeDescriptor:
        """What a node says of itself in the store."""
        found = await self.store.read(descriptor_row_key(self.run_of(node)))
        assert isinstance(found, Found)
        return decode_descriptor(found.value)

    async def row(self, key: ObjectKey) -> VersionedRow | None:
        """The authority row of an object, with its version."""
        found = await self.store.read(authority_row_key(key))
        return (
            VersionedRow(decode_authority(found.value), found.version) if isinstance(found, Found) else None
        )

    async def authority_rows(self) -> dict[str, str]:
        """Version by key of every authority row there is."""
        page = await self.store.scan(AUTHORITY_PREFIX, None, 1000)
        assert page.cursor is None
        return {row.key: row.version for row in page.rows}

    async def row_when(self, key: ObjectKey, holds: Callable[[VersionedRow], bool]) -> VersionedRow:
        """The authority row, once it is as it should be."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                found = await self.row(key)
                if found is not None and holds(found):
                    return found

    async def owned_by(self, key: ObjectKey, run: NodeRun) -> VersionedRow:
        """The authority row, once it names this run as the owner."""
        return await self.row_when(key, lambda found: found.row.owner.run == run)

    async def fact(self, ask: Callable[[], _T], node: LocalNode | None = None) -> _T:
        """What `ask` answers once it is true. Between two looks the node is asked for its status."""
        async with asyncio.timeout(LIMIT_S):
            while not (answer := ask()):
                await (node or self.a).status()
        return answer

    async def started(self, node: LocalNode) -> int:
        """How many moves this node has begun as a source: their objects are being sealed, or further."""
        return int((await node.status())["counters"].get("relocations_started", 0))

    async def sealing(self, node: LocalNode, before: int) -> None:
        """Return once the node has begun one more move than `before`."""
        async with asyncio.timeout(LIMIT_S):
            while await self.started(node) == before:
                continue

    async def whole(self) -> None:
        """Return when every node has a worker: an earlier test may have ended one."""
        async with asyncio.timeout(LIMIT_S):
            for node in self.cluster.nodes:
                while not (await node.status())["objects_by_worker"]:
                    continue

    async def event(self, name: str, about: str) -> Event:
        """The first event of this name about an object."""
        return (await self.fact(lambda: self.log.events(name, about=about)))[0]

    def ran(self, name: str) -> list[str]:
        """What handlers of an object wrote down, on whatever node, in the order of running."""
        return [line[4:] for line in self._trace(name) if line.startswith("ran ")]

    def made(self, name: str) -> int:
        """How often an instance of this object was made."""
        return self._trace(name).count("made")

    def _trace(self, name: str) -> list[str]:
        path = self.traces / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def fresh(name: str) -> str:
    """An object id that no other test uses."""
    return f"{name}-{uuid.uuid4().hex[:10]}"


@asynccontextmanager
async def standing(
    folder: Path,
    nodes: int = 2,
    workers: int = 1,
    store: str | None = None,
    make: Callable[..., LocalCluster] = LocalCluster,
    program: str = NODE_WITH_LOG,
    **options: Any,
) -> AsyncIterator[Stand]:
    """Start a cluster whose traces and log are kept in `folder`; `make` stands for `LocalCluster`, `program` is what
    a node's interpreter runs."""
    traces = folder / "traces"
    traces.mkdir()
    log = NodeLog(folder / "nodes.log")
    before = os.environ.get(TRACE_VARIABLE)
    os.environ[TRACE_VARIABLE] = str(traces)
    try:
        cluster = make(
            app,
            nodes=nodes,
            workers=workers,
            store=store,
            options=options,
            log_level="INFO",
            command=("-P", "-c", program, str(log.path)),
        )
        async with cluster:
            location = open_location_store(cluster.options.store_url, cluster.options.cluster)
            blobs = open_relocation_store(cluster.options.store_url, cluster.options.cluster)
            try:
                await location.scan(AUTHORITY_PREFIX)  # its thread and files are there before the first test
                await blobs.read("none")
                yield Stand(cluster, log, traces, location, blobs)
            finally:
                await location.close()
                await blobs.close()
    except BaseException:
        if log.path.exists():
            sys.stderr.write(log.path.read_text(encoding="utf-8", errors="replace")[-20_000:])
        raise
    finally:
        if before is None:
            del os.environ[TRACE_VARIABLE]
        else:
            os.environ[TRACE_VARIABLE] = before
