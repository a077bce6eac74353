"""How processes end: asked, interrupted, killed at any moment; nothing of them is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sojourn.errors import Unavailable
from sojourn.options import Options
from sojourn.spots.app import App
from sojourn.spots.declarations import request
from sojourn.spots.objects import Actor, InstanceSpot
from sojourn.workers.local_cluster import LocalCluster
from sojourn.workers.local_node import NODE_COMMAND
from sojourn.workers.node_control import Configure, NodeConfig, encode_node_message
from sojourn.workers.process import ORPHANED
from sojourn.workers.program import parse_reference

from tests.processes.programs import (
    APP,
    GUARDED,
    SCRIPT,
    descendants,
    run_program,
    sojourn_command,
    started,
    wait_all_gone,
    watched,
)

WAITS = SCRIPT.format(then="await asyncio.get_running_loop().create_future()")

app = App("endings")


@app.spot
class Stuck(InstanceSpot):
    @request
    async def ping(self) -> str:
        return "pong"

    @request
    async def spin(self, gate: str) -> None:
        _tell(gate)
        while True:
            pass

    @request
    async def compute(self, gate: str) -> None:
        _tell(gate)
        sum(range(10**15))

    @request
    async def hang(self, gate: str) -> None:
        _tell(gate)
        await asyncio.get_running_loop().create_future()


@app.actor
class Resident(Actor):
    @request
    async def ping(self) -> str:
        return "pong"


def _tell(gate: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"here", gate)


class Gate:
    """A place where a handler in another process says that it runs."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "gate")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.setblocking(False)

    async def passed(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._socket, ready.set)
        async with asyncio.timeout(20):
            await ready.wait()
        loop.remove_reader(self._socket)
        self._socket.close()


@pytest.mark.parametrize("work", ["spin", "compute", "hang"])
async def test_a_killed_supervisor_leaves_no_worker(tmp_path: Path, work: str) -> None:
    gate = Gate(tmp_path)
    async with LocalCluster(app, nodes=1, workers=2) as cluster:
        node = cluster.nodes[0]
        spot = cluster.client.spot(Stuck, "s1")
        pending = asyncio.ensure_future(spot.request(getattr(Stuck, work), gate.path))
        await gate.passed()
        workers = await node.worker_pids()
        with watched(workers) as descriptors:
            await node.kill()
            assert wait_all_gone(descriptors, 2) == []
        assert node.exit_code == -signal.SIGKILL
        with pytest.raises(Unavailable):
            await pending
        first_run = node.generation
        await node.restart()
        assert node.generation != first_run
        assert len(await node.worker_pids()) == 2


async def test_a_killed_worker_fails_its_requests_and_the_node_serves_on(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    async with LocalCluster(app, nodes=1, workers=1) as cluster:
        pending = asyncio.ensure_future(cluster.client.spot(Stuck, "s1").request(Stuck.hang, gate.path))
        await gate.passed()
        (worker,) = await cluster.nodes[0].worker_pids()
        began = time.monotonic()
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(Exception, match="worker"):
            await pending
        assert time.monotonic() - began < 1


async def test_a_node_takes_an_actor_as_soon_as_it_has_started_again() -> None:
    async with LocalCluster(app, nodes=2, workers=1) as cluster:
        node = cluster.nodes[1]
        await node.kill()
        await node.restart()
        resident = await cluster.client.create(Resident, "r", at=node)
        assert await resident.request(Resident.ping) == "pong"


def test_a_killed_launcher_takes_everything_with_it(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(WAITS + GUARDED)
    with started([sys.executable, "example.py"], tmp_path) as family:
        store = Path(family.read_until("directory").split()[1])
        family_pids = sorted(descendants(family.process.pid))
        assert len(family_pids) == 4
        assert store.exists()
        with watched(family_pids) as descriptors:
            os.kill(family.process.pid, signal.SIGKILL)
            assert wait_all_gone(descriptors, 4) == []
        assert not store.parent.exists()


def test_a_node_whose_launcher_died_before_it_had_started_removes_their_directory(tmp_path: Path) -> None:
    store = tmp_path / "private"
    store.mkdir()
    (store / "store.db").touch()
    options = Options(store_url=f"sqlite:///{store}/store.db", secret="0" * 16)
    config = NodeConfig(rid="n", program=parse_reference("arena:app"), options=options)
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, *NODE_COMMAND, str(theirs.fileno())], pass_fds=(theirs.fileno(),)
            )
        body = encode_node_message(Configure(config, os.getppid(), str(store)))  # not its parent
        ours.sendall(len(body).to_bytes(4, "big") + body)
        assert process.wait(timeout=20) == ORPHANED
    assert not store.exists()


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_prints_no_heap_of_tracebacks(tmp_path: Path, times: int) -> None:
    (tmp_path / "example.py").write_text(WAITS + GUARDED)
    with started([sys.executable, "example.py"], tmp_path) as family:
        family.read_until("directory")
        pids = sorted(descendants(family.process.pid))
        with watched(pids) as descriptors:
            for _ in range(times):
                os.killpg(family.process.pid, signal.SIGINT)
            errors = family.end(timeout_s=10)
            assert wait_all_gone(descriptors, 2) == []
        assert errors.count("KeyboardInterrupt") <= 2
        assert "Process node" not in errors
        assert family.process.returncode == -signal.SIGINT or family.process.returncode == 130


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_sojourn_run_quietly(tmp_path: Path, times: int) -> None:
    (tmp_path / "arena.py").write_text(
        APP + "async def main(cluster):\n"
        "    print('serving', flush=True)\n    await asyncio.get_running_loop().create_future()\n"
    )
    with started(sojourn_command("run", "arena:app", "--nodes", "1"), tmp_path) as family:
        family.read_until("serving")
        with watched(sorted(descendants(family.process.pid))) as descriptors:
            for _ in range(times):
                os.killpg(family.process.pid, signal.SIGINT)
            errors = family.end(timeout_s=10)
            assert wait_all_gone(descriptors, 2) == []
        assert errors == ""
        assert family.process.returncode == 130


@pytest.mark.parametrize("after_ms", [0, 50, 100, 200, 500, None])
def test_sigterm_at_any_moment_ends_a_node(tmp_path: Path, after_ms: int | None) -> None:
    (tmp_path / "arena.py").write_text(APP)
    store = f"sqlite:///{tmp_path / 'store.db'}"
    with started(sojourn_command("node", "arena:app", "--rid", "n1", "--store", store), tmp_path) as family:
        if after_ms is None:
            told = json.loads(family.read_until("{"))
            assert told["ready"] == "n1"
            assert told["pid"] == family.process.pid
        else:
            deadline = time.monotonic() + after_ms / 1000
            while time.monotonic() < deadline:
                pass
        pids = sorted(descendants(family.process.pid))
        with watched(pids) as descriptors:
            began = time.monotonic()
            family.process.send_signal(signal.SIGTERM)
            errors = family.end()
            assert time.monotonic() - began < 8
            assert wait_all_gone(descriptors, 2) == []
        assert family.process.returncode == 0 or (
            after_ms is not None and family.process.returncode == -signal.SIGTERM
        )
        assert "Traceback" not in errors


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    (tmp_path / "arena.py").write_text(APP)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        store = f"sqlite:///{tmp_path / 'store.db'}"
        done = run_program(
            sojourn_command("node", "arena:app", "--store", store, "--listen", f"127.0.0.1:{port}"), tmp_path
        )
    assert done.returncode == 2
    assert done.stderr.startswith("sojourn: cannot listen on ")
    assert str(port) in done.stderr
