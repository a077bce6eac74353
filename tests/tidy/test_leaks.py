"""The leak checks of conftest.py catch what they are there for, and so does the limit for tests that wait."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEAKY_TESTS = """
import asyncio, os, pytest, socket, threading

tasks = []

def test_descriptor():
    os.open("/dev/null", os.O_RDONLY)

def test_process():
    os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "30")

def test_orphan():
    os.system("sleep 30 &")

def test_thread():
    threading.Thread(target=threading.Event().wait, daemon=True).start()

async def test_task():
    tasks.append(asyncio.create_task(asyncio.sleep(30)))

async def test_loop_error():
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

async def test_transport():
    left, right = socket.socketpair()
    await asyncio.get_running_loop().create_unix_connection(asyncio.Protocol, sock=left)
    tasks.append(right)

@pytest.mark.timeout(1)
async def test_waiting():
    await asyncio.Event().wait()

async def test_clean():
    assert (await asyncio.create_task(asyncio.sleep(0))) is None
"""
COMPLAINTS = {
    "descriptor": "open descriptor",
    "process": "running process .* sleep 30",
    "orphan": "running process .* sleep 30",
    "thread": "running thread",
    "task": "left tasks running",
    "transport": "asyncio error: unclosed resource",
    "loop_error": "asyncio error: .*ZeroDivisionError",
}


@pytest.mark.heavy
def test_left_behind(tmp_path: Path) -> None:
    (tmp_path / "test_leaky.py").write_text(LEAKY_TESTS)
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "-c"]
    command += [str(ROOT / "pyproject.toml"), f"--rootdir={ROOT}", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    for name, complaint in COMPLAINTS.items():
        section = re.search(rf"_ ERROR at teardown of test_{name} _.*?(?=\n_|\n=)", done.stdout, re.DOTALL)
        assert section is not None, f"{name} was not noticed:\n{done.stdout}"
        assert re.search(complaint, section.group(), re.DOTALL), section.group()
    assert re.search(r"not done after 0.8 s\n.*test_waiting.*Event\(\)\.wait\(\)", done.stdout, re.DOTALL)
    assert f"1 failed, 8 passed, {len(COMPLAINTS)} errors" in done.stdout
