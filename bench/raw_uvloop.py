"""Reference 1: request/reply between two processes over TCP, with nothing in between.

The fastest this machine answers a framed request with a future on each call. Ratios to it say what
everything else costs.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from bench.framing import Requester, echo
from bench.processes import child
from bench.sizes import PAYLOAD, Sizes
from bench.sockets import free_port, wait_for_tcp
from bench.timing import PathFigures, measure_latency, measure_one_way, measure_rate

__all__ = ["drive", "measure_raw", "serve_tcp"]


async def measure_raw(sizes: Sizes) -> PathFigures:
    """Measure the raw path."""
    port = free_port()
    with ExitStack() as stack:
        stack.enter_context(child(serve_tcp, port))
        await wait_for_tcp(port)
        requester = Requester()
        await asyncio.get_running_loop().create_connection(lambda: requester.peer, "127.0.0.1", port)
        figures = await drive(requester, sizes)
        requester.peer.close()
    return figures


async def serve_tcp(port: int) -> None:
    """The other end: answers every request."""
    server = await asyncio.get_running_loop().create_server(echo, "127.0.0.1", port)
    await server.serve_forever()


async def drive(requester: Requester, sizes: Sizes) -> PathFigures:
    """Run every loop over one requester."""

    async def send() -> None:
        requester.send(PAYLOAD)

    async def send_batch() -> None:
        for _ in range(sizes.batch):
            requester.send(PAYLOAD)
        await asyncio.sleep(0)

    def call() -> asyncio.Future[bytes]:
        return requester.request(PAYLOAD)

    batches = max(1, sizes.one_way // sizes.batch)
    return PathFigures(
        latency=await measure_latency(call, sizes.latency),
        requests_64=await measure_rate(call, 64, sizes.requests),
        requests_256=await measure_rate(call, 256, sizes.requests),
        one_way=sizes.batch * await measure_one_way(send_batch, call, batches),
    )
