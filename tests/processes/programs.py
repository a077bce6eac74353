"""Programs that run as processes of their own, and knowing when every process they started is gone."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sojourn.workers.cli import main as command

__all__ = [
    "APP",
    "SCRIPT",
    "Family",
    "descendants",
    "run_program",
    "sojourn_command",
    "started",
    "wait_all_gone",
]

APP = """
import asyncio
import sojourn as sj
app = sj.App("arena", version=1)

@app.spot
class Device(sj.InstanceSpot):
    count: int = 0

    @sj.request
    async def add(self, amount: int) -> int:
        self.count += amount
        return self.count

    @sj.request
    async def spin(self, gate: str) -> None:
        open(gate, "w").close()
        while True:
            pass

    @sj.request
    async def compute(self, gate: str) -> None:
        open(gate, "w").close()
        sum(range(10**15))

    @sj.request
    async def leave(self, code: int) -> None:
        raise SystemExit(code)
"""

SCRIPT = (
    APP
    + """
from sojourn.workers.local_cluster import LocalCluster

async def main():
    async with LocalCluster(app, nodes=2, workers=1) as cluster:
        device = cluster.client.spot(Device, "d1")
        print("answer", await device.request(Device.add, 5), flush=True)
        for node in cluster.nodes:
            print("pids", node.pid, *await node.worker_pids(), flush=True)
        print("directory", cluster.options.store_url.removeprefix("sqlite:///"), flush=True)
        {then}
"""
)

SECRET = "a secret of the tests of processes"

GUARDED = """
if __name__ == "__main__":
    asyncio.run(main())
"""


def sojourn_command(*words: str) -> list[str]:
    """The `sojourn` command, run by this interpreter."""
    return [sys.executable, "-m", command.__module__, *words]


class Family:
    """A running program, and its output line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._unread = b""

    def read_until(self, word: str, timeout_s: float = 40) -> str:
        """The first line of its output that starts with `word`."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while True:
            line, newline, rest = self._unread.partition(b"\n")
            if newline:
                self._unread = rest
                if line.startswith(word.encode()):
                    return line.decode()
                continue
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            read = os.read(self.process.stdout.fileno(), 65_536) if ready else b""
            if not read:
                raise AssertionError(f"no line {word!r}; standard error: {self.end(kill=True)}")
            self._unread += read

    def end(self, *, kill: bool = False, timeout_s: float = 20) -> str:
        """Wait for its end; what it wrote to standard error."""
        if kill:
            self.process.kill()
        return self.process.communicate(timeout=timeout_s)[1].decode()


@contextmanager
def started(command: Sequence[str], folder: Path) -> Iterator[Family]:
    """A running program in a process group of its own."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"SOJOURN_SECRET": SECRET},
        start_new_session=True,
    )
    try:
        yield Family(process)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        if process.stdout is not None and not process.stdout.closed:
            process.communicate(timeout=20)


def run_program(
    command: Sequence[str], folder: Path, *, source: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=50,
        input=source or "",
        env=os.environ | {"SOJOURN_SECRET": SECRET},
    )


def descendants(pid: int) -> set[int]:
    """Every living process under `pid`."""
    found: set[int] = set()
    pending = [pid]
    while pending:
        try:
            tasks = list(Path(f"/proc/{pending.pop()}/task").iterdir())
            children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
        except OSError:
            continue
        pending += children
        found |= set(children)
    return found


@contextmanager
def watched(pids: Sequence[int]) -> Iterator[dict[int, int]]:
    """Descriptors that wake when the processes end, whoever reaps them."""
    descriptors: dict[int, int] = {}
    try:
        for pid in pids:
            descriptors[pid] = os.pidfd_open(pid)
        yield descriptors
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)


def wait_all_gone(descriptors: dict[int, int], limit_s: float) -> list[int]:
    """Wait for the end of all; the processes that still run after `limit_s`."""
    deadline = time.monotonic() + limit_s
    left = dict(descriptors)
    while left:
        ready, _, _ = select.select(list(left.values()), [], [], max(0, deadline - time.monotonic()))
        if not ready:
            break
        left = {pid: number for pid, number in left.items() if number not in ready}
    return sorted(left)
