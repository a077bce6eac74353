"""Wheel, source archive and editable installation: the same smoke test, and no clash with a user's files."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.packaging.conftest import run
from tests.tidy.sources import ROOT, all_files, modules

KINDS = ["editable", "wheel", "sdist"]
TAKEN_NAMES = ["framework", "spots", "store", "workers", "wire", "handoff"]
USER_PROGRAM = """
import framework, spots, store, workers
import sojourn, sojourn.spots, sojourn.store, sojourn.workers, sojourn.wire, sojourn.handoff, sojourn.session
assert framework.MINE and spots.MINE and store.MINE and workers.MINE
print(sojourn.store.__name__, sojourn.workers.__name__)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_smoke(kind: str, installed: Callable[[str], Path], tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "packaging" / "smoke.py", tmp_path)
    home, names, scripts = run([installed(kind), "smoke.py"], tmp_path).splitlines()
    assert (ROOT in Path(home).parents) == (kind == "editable")
    assert {"sojourn", *names.split()} == {module.name for module in modules()}
    assert scripts.split() == sorted(path.name for path in all_files() if path.suffix == ".lua")


@pytest.mark.parametrize("kind", ["editable", "wheel"])
@pytest.mark.parametrize("form", ["files", "folders"])
def test_a_users_names_do_not_clash(
    kind: str, form: str, installed: Callable[[str], Path], tmp_path: Path
) -> None:
    """A program beside a store.py, or a folder workers/, of its own gets both them and Sojourn's."""
    for name in TAKEN_NAMES:
        path = tmp_path / (f"{name}.py" if form == "files" else f"{name}/__init__.py")
        path.parent.mkdir(exist_ok=True)
        path.write_text("MINE = True\n")
    (tmp_path / "program.py").write_text(USER_PROGRAM)
    assert run([installed(kind), "program.py"], tmp_path) == "sojourn.store sojourn.workers\n"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", KINDS)
def test_the_example_runs_beside_files_of_those_names(
    kind: str, installed: Callable[[str], Path], tmp_path: Path
) -> None:
    """Supervisors and workers are processes of their own, and start in the user's folder."""
    for name in TAKEN_NAMES:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file of the user was imported')\n")
    shutil.copy(ROOT / "examples" / "example.py", tmp_path)
    assert run([installed(kind), "example.py"], tmp_path).splitlines()[0] == "3"


def test_wheel_puts_one_name_at_the_top(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert tops == {"sojourn", next(name for name in tops if name.endswith(".dist-info"))}


def test_source_archive_holds_licence_and_typing_marker(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "framework/py.typed"} <= names
