"""The test server itself: it ends with the process that started it, however that ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.redis_server import find_redis_server

ROOT = Path(__file__).parents[2]
PROGRAM = """
from tests.redis_server import running_redis_server
with running_redis_server() as (server, port):
    print(server.pid, flush=True)
    input()
"""
END_S = 10.0


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
@pytest.mark.skipif(find_redis_server() is None, reason="no redis-server")
@pytest.mark.parametrize("end", [signal.SIGKILL, None])
def test_the_server_ends_with_its_process(end: signal.Signals | None) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    descriptor = os.pidfd_open(int(program.stdout.readline()))
    try:
        if end is not None:
            program.send_signal(end)
        program.communicate("\n" if end is None else None)
        ended, _, _ = select.select([descriptor], [], [], END_S)
        assert ended, "the server runs on without its process"
    finally:
        os.close(descriptor)
