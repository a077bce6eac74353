"""A copy of the checkout, what is built from it, and environments to install it into, all without an index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT, all_files

BUILD_SDIST = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"


def run(command: list[str | Path], folder: Path) -> str:
    """Run a command that must succeed, without an index and away from the checkout."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))
    }
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment | {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def borrowing_environment(folder: Path) -> Path:
    """Make an environment that finds everything this one has installed, except the checkout itself.

    The path of an editable installation stands in a .pth file, and such files count only in the
    environment they lie in.
    """
    venv.create(folder, symlinks=True, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files under version control."""
    folder = tmp_path_factory.mktemp("checkout")
    for path in all_files():
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    return folder


@pytest.fixture(scope="session")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "-q", "-w", str(folder)]
    run([sys.executable, "-m", "pip", "wheel", *options, "."], checkout)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="session")
def sdist(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    run([sys.executable, "-c", BUILD_SDIST, folder], checkout)
    return next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="session")
def installed(wheel: Path, sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The Python of an environment with Sojourn in it: "wheel", "sdist", or this "editable" one."""
    made: dict[str, Path] = {"editable": Path(sys.executable)}

    def python_of(kind: str) -> Path:
        if kind not in made:
            made[kind] = borrowing_environment(tmp_path_factory.mktemp(f"from-{kind}") / "venv")
            archive = {"wheel": wheel, "sdist": sdist}[kind]
            options = ["-q", "--no-deps", "--no-build-isolation", "--ignore-installed"]
            run([made[kind], "-m", "pip", "install", *options, archive], archive.parent)
        return made[kind]

    return python_of
