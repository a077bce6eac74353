"""The demo on a real cluster, shorter than `make demo`: real processes, real flights, real moves."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.tidy.sources import ROOT

LIMIT_S = 90.0


def run_demo(*arguments: str) -> tuple[int, dict[str, object], str]:
    done = subprocess.run(
        [sys.executable, "-m", "examples.flights", "--json", "--rate", "0", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.mark.timeout(LIMIT_S + 10)
def test_moves_under_load_lose_repeat_and_reorder_nothing() -> None:
    code, found, log = run_demo("--flights", "2500", "--nodes", "3", "--workers", "1")
    assert code == 0, f"{found}\n{log}"
    assert (found["sent"], found["handled"], found["failed"]) == (2500, 2500, 0)
    assert (found["lost"], found["duplicated"], found["out_of_order"]) == (0, 0, 0)
    moves = found["moves"]
    assert isinstance(moves, dict)
    assert (moves["nodes_emptied"], moves["nodes_blocked"]) == (3, 0), moves
    assert moves["by_emptying"] > 100
    assert found["interruption"] is not None
    assert log.count("emptied under load: Relocated") == 3


@pytest.mark.timeout(LIMIT_S + 10)
def test_one_node_without_moves() -> None:
    code, found, log = run_demo("--flights", "500", "--nodes", "1", "--workers", "2", "--no-moves")
    assert code == 0, f"{found}\n{log}"
    assert found["handled"] == 500
    assert found["interruption"] is None
