"""Typed references: mypy and pyright find exactly the mistakes planted in a program, and nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("program.txt")
EXPECTED = re.compile(r"# expect (.*)$")
FOUND_BY_MYPY = re.compile(r"^program\.py:(\d+): error: .*\[([\w-]+)\]$", re.MULTILINE)
pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]

Findings = Counter[tuple[int, str]]


def planted(checker: str) -> Findings:
    """What a checker must say, by line and name of the rule."""
    found: Findings = Counter()
    for number, line in enumerate(PROGRAM.read_text(encoding="utf-8").splitlines(), 1):
        match = EXPECTED.search(line)
        for part in match.group(1).split(";") if match else ():
            name, rules = part.split()
            if name == checker:
                found.update((number, rule) for rule in rules.split(","))
    return found


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.read_text(encoding="utf-8"), encoding="utf-8")
    return path


def run(program: Path, *command: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", *command, program.name], cwd=program.parent, capture_output=True, text=True
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    return ended.stdout


def test_mypy(program: Path) -> None:
    output = run(program, "mypy", "--strict", "--hide-error-context", "--no-pretty")
    found = Counter((int(line), code) for line, code in FOUND_BY_MYPY.findall(output))
    assert found == planted("mypy"), output


def test_pyright(program: Path) -> None:
    output = run(program, "pyright", "--outputjson", "--pythonpath", sys.executable)
    said = json.loads(output)["generalDiagnostics"]
    found = Counter(
        (entry["range"]["start"]["line"] + 1, entry.get("rule", entry["message"])) for entry in said
    )
    assert found == planted("pyright"), said
