"""`make install`: nothing to do the second time, and right again after whatever happens to an environment."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.packaging.conftest import borrowing_environment
from tests.tidy.sources import ROOT

NO_OP_S_MAX = 0.3


def load_environment_script(checkout: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("environment", checkout / ".ci" / "environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain_environment() -> dict[str, str]:
    """Without what an outer make hands down, and without an index."""
    handed_down = ("MAKE", "MFLAGS", "PYTHON", "VENV", "BIN")
    return {name: text for name, text in os.environ.items() if not name.startswith(handed_down)} | {
        "PIP_NO_INDEX": "1"
    }


def install(checkout: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", "install"],
        cwd=checkout,
        env=plain_environment(),
        capture_output=True,
        text=True,
    )


def newest_change(venv: Path) -> float:
    return max(path.stat().st_mtime for path in venv.rglob("*") if "__pycache__" not in path.parts)


@pytest.fixture(scope="module")
def prepared(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A checkout of its own, installed without an index."""
    folder = tmp_path_factory.mktemp("prepared") / "checkout"
    shutil.copytree(checkout, folder)
    python = borrowing_environment(folder / ".venv")
    (folder / ".venv" / "bin" / "pip").write_text(f"#!{python}\n")
    done = install(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "installing into .venv" in done.stdout
    yield folder
    shutil.rmtree(folder)


def test_the_second_time_nothing_happens(prepared: Path) -> None:
    assert install(prepared).returncode == 0
    before = newest_change(prepared / ".venv")
    started = time.perf_counter()
    done = install(prepared)
    took_s = time.perf_counter() - started
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert newest_change(prepared / ".venv") == before
    assert took_s < NO_OP_S_MAX * 5, "far above the aim even for a machine that is busy"


def test_new_and_deleted_files_are_seen(prepared: Path) -> None:
    python = prepared / ".venv" / "bin" / "python"
    new = prepared / "spots" / "brand_new.py"
    new.write_text("HERE = True\n")
    assert install(prepared).stdout == ""
    command = [str(python), "-c", "from sojourn.spots import brand_new; print(brand_new.HERE)"]
    assert subprocess.run(command, cwd="/", capture_output=True, text=True).stdout == "True\n"
    new.unlink()
    assert install(prepared).stdout == ""
    assert subprocess.run(command, cwd="/", capture_output=True, text=True).returncode != 0


def test_only_settings_that_matter_install_again(prepared: Path) -> None:
    pyproject = prepared / "pyproject.toml"
    text = pyproject.read_text()
    pyproject.write_text(text.replace("line-length = 110", "line-length = 100"))
    assert install(prepared).stdout == ""
    pyproject.write_text(text.replace("Actors and Spots that", "Spots and Actors that"))
    assert "installing into .venv" in install(prepared).stdout
    pyproject.write_text(text)
    assert "installing into .venv" in install(prepared).stdout


def test_a_lost_link_folder_is_made_again(prepared: Path) -> None:
    shutil.rmtree(prepared / "build")
    assert "installing into .venv" in install(prepared).stdout
    assert list((prepared / "build").glob("__editable__*/sojourn/__init__.py"))


def test_two_at_a_time_take_turns(prepared: Path) -> None:
    shutil.rmtree(prepared / "build")
    command = ["make", "--no-print-directory", "install"]
    both = [
        subprocess.Popen(command, cwd=prepared, env=plain_environment(), stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum("installing into .venv" in text for text in said) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"place": "/elsewhere/.venv"}, "it was made at /elsewhere/.venv"),
        ({"complete": False}, "an earlier installation was cut short"),
        ({"python": "3.1"}, "it was made by Python 3.1"),
        ({}, None),
    ],
)
def test_what_makes_an_environment_unusable(
    prepared: Path, change: dict[str, object], reason: str | None
) -> None:
    environment = load_environment_script(prepared).Environment(prepared / ".venv")
    environment.load()
    environment.state |= change
    answer = environment.why_unusable("")
    assert answer == reason if reason is None else reason in (answer or "")


def test_an_environment_without_a_python_is_unusable(prepared: Path, tmp_path: Path) -> None:
    script = load_environment_script(prepared)
    assert script.Environment(tmp_path / "none").why_unusable("") == "missing"
    broken = tmp_path / "broken"
    (broken / "bin").mkdir(parents=True)
    (broken / "bin" / "python").symlink_to(tmp_path / "gone")
    assert script.Environment(broken).why_unusable("") == "its Python does not run"


def test_an_installation_that_is_killed_leaves_its_note(prepared: Path, tmp_path: Path) -> None:
    """The note says "not complete" from before the first change until after the last."""
    environment = load_environment_script(prepared).Environment(tmp_path)
    environment.save(complete=False)
    assert json.loads((tmp_path / "sojourn-environment.json").read_text())["complete"] is False


def find_python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(folder), "HOME": str(folder)}
    command = [shutil.which("sh") or "sh", str(ROOT / ".ci" / "find-python"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def put_program(folder: Path, name: str, lines: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)


def test_search_for_a_python_runs_each_one(tmp_path: Path) -> None:
    put_program(tmp_path, "python3", "echo 3.9.2; exit 2")
    put_program(tmp_path, "python3.13", "exit 127")
    put_program(tmp_path, "python3.12", "echo 3.12; exit 3")
    put_program(tmp_path, "python3.11", "echo /real/python3.11")
    done = find_python(tmp_path)
    assert (done.returncode, done.stdout) == (0, "/real/python3.11\n")
    (tmp_path / "python3.11").unlink()
    done = find_python(tmp_path)
    assert done.returncode == 1
    assert "python3 is Python 3.9.2" in done.stderr
    assert "python3.13 does not run" in done.stderr
    assert "apt-get install python3.12-venv" in done.stderr
    assert "make PYTHON=" in done.stderr


def test_search_for_a_python_finds_this_one() -> None:
    done = subprocess.run(
        ["sh", str(ROOT / ".ci" / "find-python"), sys.executable], capture_output=True, text=True
    )
    assert done.stdout.strip() == sys.executable
