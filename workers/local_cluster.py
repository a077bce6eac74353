"""A whole cluster on this machine, started and stopped by the user's own program.

Owns the nodes' processes, the private store directory and the client. It must not know what travels between
them.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from sojourn.errors import InvalidOperation, NotConfigured
from sojourn.options import Options
from sojourn.spots.app import App
from sojourn.workers.local_node import NODE_COMMAND, LocalNode
from sojourn.workers.logs import LOG_LEVELS
from sojourn.workers.node_control import NodeConfig
from sojourn.workers.process import check_platform
from sojourn.workers.program import ProgramReference, reference_for, refuse_in_worker

if TYPE_CHECKING:
    from sojourn.workers.client import Client

__all__ = ["LocalCluster"]

T = TypeVar("T")

NODES_MAX = 64
WORKERS = 2
CLIENT_CLOSE_S = 2.0


class ClientFactory(Protocol):
    """Connects a client."""

    async def __call__(self, app: App, options: Options) -> Client: ...


async def connect_client(app: App, options: Options) -> Client:
    """A connected client of a real cluster."""
    from sojourn.workers.client import Client

    return await Client(app, options).connect_cluster()


async def _load_client() -> None:
    """Import what a client needs while the nodes, whose processes have been launched, do the same for themselves."""
    importlib.import_module("sojourn.workers.client")


class LocalCluster:
    """Nodes on this machine and a client to them; use it with `async with`.

    Each node is a supervisor process with its workers; they listen on loopback only and share a SQLite store in a
    private temporary directory, which is removed at the end. Objects live in memory: when the block ends, their
    state is gone (B13.3).

    Args:
        app: the application, bound to a module-level name that worker processes can import.
        nodes: how many nodes, 1 to 64. Default 3.
        workers: worker processes of each node. Default what `options` says, 2 where it says nothing; an `Options`
            always says it.
        store: address of an existing store (`redis://...`, `sqlite:///path`) instead of the private one.
        options: further settings, see the table of options.
        secret: cluster secret, 16 bytes of text or more; a random one by default.
        log_level: least severe level that nodes and workers log to standard error.
        stop_deadline: seconds the nodes have for running work when the block ends.

    Raises:
        NotConfigured: a setting is wrong, or worker processes cannot import the app; the text says what to write.
    """

    def __init__(
        self,
        app: App,
        nodes: int = 3,
        workers: int | None = None,
        *,
        store: str | None = None,
        options: Mapping[str, Any] | Options | None = None,
        secret: str | None = None,
        log_level: str = "WARNING",
        stop_deadline: float = 5.0,
        program: ProgramReference | None = None,
        connect: ClientFactory = connect_client,
        command: Sequence[str] = NODE_COMMAND,
    ) -> None:
        refuse_in_worker("LocalCluster(...)")
        check_platform()
        if isinstance(nodes, bool) or not isinstance(nodes, int) or not 1 <= nodes <= NODES_MAX:
            raise NotConfigured(f"a local cluster has 1 to {NODES_MAX} nodes, not {nodes!r}")
        if not isinstance(app, App):
            raise NotConfigured(f"a local cluster runs an App, LocalCluster(app, ...), not {app!r:.80}")
        if log_level not in LOG_LEVELS:
            raise NotConfigured(f"log_level = {log_level!r} must be one of {', '.join(LOG_LEVELS)}")
        if not isinstance(options, Options | Mapping | None):
            raise NotConfigured(f"options is an Options(...) or a dict of option names, not {options!r:.80}")
        given = options.to_mapping() if isinstance(options, Options) else dict(options or {})
        given["workers"] = given.get("workers", WORKERS) if workers is None else workers
        given["secret"] = secret or given.get("secret") or secrets.token_hex(32)
        given["store_url"] = store or given.get("store_url") or "sqlite:///chosen-at-the-start"
        Options.from_mapping(given)
        if str(given["store_url"]).startswith("memory:"):
            raise NotConfigured(
                "memory:// lives in one process, and a cluster is several: leave `store` out, or use "
                "sqlite:///absolute/path or redis://host:port/db"
            )
        self.nodes: list[LocalNode] = []
        self._app = app
        self._count = nodes
        self._given = given
        self._own_store = store is None and not (options and _store_of(options))
        self._log_level = log_level
        self._stop_deadline = stop_deadline
        self._program = program or reference_for(app)
        self._connect = connect
        self._command = command
        self._directory = ""
        self._client: Client | None = None
        self._options: Options | None = None

    @property
    def client(self) -> Client:
        """The client of this cluster; it survives any node leaving.

        Raises:
            InvalidOperation: the cluster is not running.
        """
        return _running(self._client)

    @property
    def options(self) -> Options:
        """The settings of the nodes and the client, the secret among them.

        Raises:
            InvalidOperation: the cluster is not running.
        """
        return _running(self._options)

    async def __aenter__(self) -> Self:
        if self._options is not None:
            raise InvalidOperation("this cluster runs already")
        try:
            self._prepare_store()
            self.nodes = [self._make_node(index) for index in range(self._count)]
            await _all([*(node.start() for node in self.nodes), _load_client()])
            self._client = await self._connect(self._app, self.options)
        except BaseException:
            await self._end(0)
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._end(self._stop_deadline)

    async def add_node(self, **settings: Any) -> LocalNode:
        """Start one more node; `settings` are fields of `NodeConfig`, for example `program`, `weight` or `wave`."""
        node = self._make_node(len(self.nodes), **settings)
        self.nodes.append(node)
        await node.start()
        return node

    def _prepare_store(self) -> None:
        if self._own_store:
            self._directory = tempfile.mkdtemp(prefix="sojourn-")
            self._given["store_url"] = f"sqlite:///{Path(self._directory, 'store.db')}"
        self._options = Options.from_mapping(self._given)

    def _make_node(self, index: int, **settings: Any) -> LocalNode:
        fields: dict[str, Any] = {
            "rid": f"node-{index}",
            "program": self._program,
            "options": self.options,
            "log_level": self._log_level,
        }
        config = NodeConfig(**(fields | settings))
        return LocalNode(config, directory=self._directory, command=self._command)

    async def _end(self, deadline_s: float) -> None:
        """Stop the client, then the nodes; whatever happens on the way, no process and no file is left."""
        client, self._client = self._client, None
        try:
            if client is not None:
                await client.close(CLIENT_CLOSE_S)
            await _all(node.stop(deadline_s) for node in self.nodes)
        finally:
            for node in self.nodes:
                node.kill_nowait()
            with contextlib.suppress(asyncio.CancelledError):
                await _all(node.kill() for node in self.nodes)
            if self._directory:
                shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = ""
            self._options = None


def _running(part: T | None) -> T:
    if part is None:
        raise InvalidOperation("the cluster is not running: use `async with LocalCluster(...) as cluster`")
    return part


def _store_of(options: Mapping[str, Any] | Options) -> str:
    return options.store_url if isinstance(options, Options) else str(options.get("store_url", ""))


async def _all(works: Any) -> None:
    """Do all at once; the first failure is raised when every other has ended."""
    tasks = [asyncio.ensure_future(work) for work in works]
    if not tasks:
        return
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        failures = [task.exception() for task in tasks if task.done() and task.exception() is not None]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if failures:
        named = [failure for failure in failures if isinstance(failure, NotConfigured)]
        raise (named or failures)[0]
