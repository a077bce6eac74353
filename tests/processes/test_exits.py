"""The end of a child is noticed by descriptor, and by a thread where there are none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from sojourn.workers.exits import ExitWatch
from sojourn.workers.process import end_process


def child(source: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-S", "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


STUBBORN = "import signal, sys; signal.signal(15, signal.SIG_IGN); print(flush=True); sys.stdin.read(); signal.pause()"


@pytest.fixture(params=["pidfd", "thread"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "thread":
        monkeypatch.delattr(os, "pidfd_open", raising=False)


@pytest.mark.usefixtures("_way")
async def test_an_exit_code_is_told() -> None:
    with child("import sys; sys.stdin.read(); sys.exit(5)") as process:
        watch = ExitWatch(process.pid, process.wait)
        told: list[int] = []
        watch.when_done(told.append)
        assert await watch.wait(0) is None
        assert process.stdin is not None
        process.stdin.close()
        assert await watch.wait() == 5
        assert (watch.exit_code, told) == (5, [5])
        watch.send_signal(signal.SIGKILL)


@pytest.mark.usefixtures("_way")
async def test_a_child_that_ignores_everything_is_killed() -> None:
    with child(STUBBORN) as process:
        assert process.stdout is not None
        process.stdout.readline()
        watch = ExitWatch(process.pid, process.wait)
        asked: list[str] = []
        code = await end_process(watch, ask=lambda: asked.append("please"), ask_s=0.01, terminate_s=0.01)
        assert (code, asked) == (-signal.SIGKILL, ["please"])


async def test_a_child_that_does_what_it_is_asked_gets_no_signal() -> None:
    with child("import sys; sys.stdin.read()") as process:
        assert process.stdin is not None
        watch = ExitWatch(process.pid, process.wait)
        assert await end_process(watch, ask=process.stdin.close, ask_s=20, terminate_s=1) == 0
