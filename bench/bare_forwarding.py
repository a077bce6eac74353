"""Reference 2: the processes of a cluster that only pass frames on.

The same way a message takes between two workers, without anything that makes it worth taking: no
mailbox, no codec, no credit, no leases. What Sojourn takes beyond this is Sojourn's own cost.

- other worker: driver - unix - supervisor - unix - worker
- other node: driver - unix - supervisor - TCP - supervisor - unix - worker
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.framing import FramePeer, Requester, echo, forward
from bench.processes import child
from bench.raw_uvloop import drive
from bench.sizes import Sizes
from bench.sockets import free_port, wait_for_path, wait_for_tcp
from bench.timing import PathFigures

__all__ = ["measure_other_node", "measure_other_worker"]


async def measure_other_worker(sizes: Sizes) -> PathFigures:
    """Measure the way through one supervisor."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        worker, entry = str(folder / "worker"), str(folder / "entry")
        stack.enter_context(child(serve_worker, worker))
        await wait_for_path(worker)
        stack.enter_context(child(forward_to_path, entry, worker))
        await wait_for_path(entry)
        return await _drive_path(entry, sizes)


async def measure_other_node(sizes: Sizes) -> PathFigures:
    """Measure the way through two supervisors."""
    port = free_port()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        worker, entry = str(folder / "worker"), str(folder / "entry")
        stack.enter_context(child(serve_worker, worker))
        await wait_for_path(worker)
        stack.enter_context(child(forward_from_port, port, worker))
        await wait_for_tcp(port)
        stack.enter_context(child(forward_to_port, entry, port))
        await wait_for_path(entry)
        return await _drive_path(entry, sizes)


async def _drive_path(entry: str, sizes: Sizes) -> PathFigures:
    requester = Requester()
    await asyncio.get_running_loop().create_unix_connection(lambda: requester.peer, entry)
    figures = await drive(requester, sizes)
    requester.peer.close()
    return figures


async def serve_worker(path: str) -> None:
    """A worker that answers every request."""
    server = await asyncio.get_running_loop().create_unix_server(echo, path)
    await server.serve_forever()


async def forward_to_path(entry: str, worker: str) -> None:
    """A supervisor between two workers."""
    loop = asyncio.get_running_loop()
    inward, outward = _pair()
    await loop.create_unix_connection(lambda: outward, worker)
    server = await loop.create_unix_server(lambda: inward, entry)
    await server.serve_forever()


async def forward_to_port(entry: str, port: int) -> None:
    """The supervisor of the driver's node."""
    loop = asyncio.get_running_loop()
    inward, outward = _pair()
    await loop.create_connection(lambda: outward, "127.0.0.1", port)
    server = await loop.create_unix_server(lambda: inward, entry)
    await server.serve_forever()


async def forward_from_port(port: int, worker: str) -> None:
    """The supervisor of the other node. Each connection gets its own way to the worker."""
    loop = asyncio.get_running_loop()

    def accept() -> FramePeer:
        inward, outward = _pair()
        outward_made = loop.create_task(loop.create_unix_connection(lambda: outward, worker))
        inward.closed.add_done_callback(lambda _: outward_made.cancel())
        return inward

    server = await loop.create_server(accept, "127.0.0.1", port)
    await server.serve_forever()


def _pair() -> tuple[FramePeer, FramePeer]:
    def unknown(frame: bytes) -> None:
        raise AssertionError(f"{len(frame)} bytes before the peers were joined")

    one, other = FramePeer(unknown), FramePeer(unknown)
    forward(one, other)
    return one, other
