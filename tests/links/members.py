"""Members for link tests: a mesh member whose receiver writes down what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sojourn.frames import record_frame
from sojourn.ids import NodeRun
from sojourn.mesh import MeshControl
from sojourn.workers.link import Link, LinkOptions
from sojourn.workers.links import Links
from sojourn.workers.stream import Piece

__all__ = ["CLUSTER", "SECRET", "Notebook", "member", "record", "run_of", "turn_until", "wait_until"]

LONG_S = 10.0
"""No step of a test takes this long."""
SECRET = b"0123456789abcdef0123456789abcdef"
CLUSTER = "test"


def run_of(name: str, generation: int = 1) -> NodeRun:
    """A node run with a readable RID."""
    return NodeRun(name.encode(), generation)


def record(payload: bytes) -> bytes:
    """A record frame body with this frozen record."""
    return record_frame(0, 0, 1, 1, 0, 0, 1, 0, b"akey", b"", payload)


class Notebook:
    """A `MeshReceiver` that keeps everything; `changed` is set after each entry."""

    def __init__(self, give_back: bool = True) -> None:
        self.give_back = give_back
        self.ups: list[Link] = []
        self.downs: list[tuple[Link, str]] = []
        self.records: list[bytes] = []
        self.replies: list[bytes] = []
        self.contracts: list[tuple[int, list[bytes]]] = []
        self.controls: list[MeshControl] = []
        self.frames: list[tuple[str, bytes]] = []
        self.changed = asyncio.Event()

    def on_up(self, link: Link) -> None:
        self.ups.append(link)
        self.changed.set()

    def on_down(self, link: Link, reason: str) -> None:
        self.downs.append((link, reason))
        self.changed.set()

    def on_record(self, link: Link, body: bytes) -> None:
        self.records.append(body)
        self.frames.append(("record", body))
        if self.give_back:
            link.give_back(1, len(body))
        self.changed.set()

    def on_reply(self, link: Link, body: bytes) -> None:
        self.replies.append(body)
        self.frames.append(("reply", body))
        self.changed.set()

    def on_contract(self, link: Link, parts: Sequence[Piece], deadline_ms: int) -> None:
        copied = [bytes(part) for part in parts]
        self.contracts.append((deadline_ms, copied))
        self.frames.append(("contract", copied[-1]))
        self.changed.set()

    def on_control(self, link: Link, message: MeshControl) -> None:
        self.controls.append(message)
        self.changed.set()


async def wait_until(notebook: Notebook, holds: Callable[[], bool]) -> None:
    """Return when `holds()`; it is asked again after every entry in the notebook."""
    async with asyncio.timeout(LONG_S):
        while not holds():
            notebook.changed.clear()
            await notebook.changed.wait()


async def turn_until(holds: Callable[[], object]) -> None:
    """Let the loop turn until `holds()`, for what no callback tells."""
    async with asyncio.timeout(LONG_S):
        while not holds():
            await _next_turn()


async def _next_turn() -> None:
    await asyncio.sleep(0)


@asynccontextmanager
async def member(
    name: str,
    generation: int = 1,
    *,
    receiver: Notebook | None = None,
    secret: bytes = SECRET,
    cluster: str = CLUSTER,
    options: LinkOptions | None = None,
    **further: Any,
) -> AsyncIterator[tuple[Links, Notebook]]:
    """A started member on a free loopback port."""
    notebook = receiver or Notebook()
    links = Links(run_of(name, generation), cluster, secret, notebook, options=options, **further)
    await links.start()
    try:
        yield links, notebook
    finally:
        await links.stop(1.0)
