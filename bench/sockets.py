"""Free ports, and waiting until somebody listens."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

__all__ = ["free_port", "wait_for_path", "wait_for_tcp"]

_START_S = 20.0
_STEP_S = 0.01


def free_port() -> int:
    """A TCP port on loopback that nobody uses right now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


async def wait_for_tcp(port: int) -> None:
    """Wait until something listens on a port.

    Raises:
        TimeoutError: nothing does after 20 s.
    """
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(_STEP_S)
            continue
        writer.close()
        return
    raise TimeoutError(f"nothing listens on port {port} after {_START_S:.0f} s")


async def wait_for_path(path: str) -> None:
    """Wait until a Unix socket stands at a path.

    Raises:
        TimeoutError: there is none after 20 s.
    """
    deadline = time.monotonic() + _START_S
    while not _stands(path):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no socket at {path} after {_START_S:.0f} s")
        await asyncio.sleep(_STEP_S)


def _stands(path: str) -> bool:
    return Path(path).is_socket()
