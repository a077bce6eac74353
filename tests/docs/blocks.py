"""The code blocks of a Markdown file and how they are run.

What stands behind the three backticks decides; nothing that looks like code goes unchecked:

- ```` ```python ```` is a program: it is written to a file and run, and must end with exit code 0
- ```` ```python file=shop.py ```` the same, under that name, for the blocks below it to use
- ```` ```python file=shop.py part ```` is added to that file and not run by itself
- ```` ```console ```` lines after `$ ` are commands and must end with exit code 0 (`exit=N`: with N). Lines
  below a command are what it prints; `...` stands for any text. `make TARGET` is only looked up.
- ```` ```console until=TEXT ```` a program that serves: interrupted once it has printed TEXT; ends with 0
- ```` ```console stay=TEXT ```` the same, but it runs on until the end of the page
- ```` ```toml file=node.toml ```` is written to that file, too
- `json` and `toml` must parse; `text`, `mermaid`, `diff`, `lua` and `markdown` are not code to run

All blocks of one Markdown file share one folder and run from top to bottom.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from tests.tidy.sources import ROOT

__all__ = ["Block", "Runner", "blocks_of", "matches"]

NOT_RUN = {"text", "mermaid", "diff", "lua", "markdown"}
OPENING = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
STOP_S = 20.0


@dataclass
class Block:
    """One fenced block: where it is, what kind, its options and its text."""

    path: Path
    line: int
    language: str
    options: dict[str, str] = field(default_factory=dict)
    text: str = ""

    @property
    def where(self) -> str:
        return f"{self.path.relative_to(ROOT) if ROOT in self.path.parents else self.path}:{self.line}"


def blocks_of(path: Path) -> list[Block]:
    found: list[Block] = []
    lines = iter(enumerate(path.read_text(encoding="utf-8").splitlines(), 1))
    for number, line in lines:
        opening = OPENING.match(line)
        if opening is None:
            continue
        language, *words = shlex.split(opening["info"]) or ["text"]
        block = Block(path, number, language, dict(_option(word) for word in words))
        taken = []
        for _, inner in lines:
            if inner.strip() == opening["fence"]:
                break
            taken.append(inner.removeprefix(opening["indent"]))
        block.text = "\n".join(taken) + "\n"
        found.append(block)
    return found


def _option(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value


def matches(printed: str, shown: list[str]) -> bool:
    """Whether what a command printed is what the block shows; `...` stands for any text."""
    pattern = r"\s+".join(
        ".*?".join(re.escape(part) for part in " ".join(line.split()).split("...")) for line in shown
    )
    text = " ".join(printed.split())
    return re.search(pattern.replace(r"\ ", r"\s+"), text, re.DOTALL) is not None


class Runner:
    """Runs the blocks of one Markdown file in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._staying: list[tuple[Block, subprocess.Popen[str]]] = []
        self.environment = dict(os.environ)
        self.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"

    def run(self, block: Block) -> None:
        """Raises AssertionError with the place of the block."""
        if block.language == "python":
            self._python(block)
        elif block.language == "console":
            self._console(block)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)
            if "file" in block.options:
                (self.folder / block.options["file"]).write_text(block.text)
        else:
            assert block.language in NOT_RUN, (
                f"{block.where}: say how a block of kind {block.language!r} runs"
            )

    def _python(self, block: Block) -> None:
        name = block.options.get("file", f"example_{block.line}.py")
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if "part" in block.options:
            path.write_text((path.read_text() if path.exists() else "") + block.text)
            compile(path.read_text(), name, "exec")
            return
        path.write_text(block.text)
        self._expect(block, f"{shlex.quote(sys.executable)} {shlex.quote(name)}", [])

    def _console(self, block: Block) -> None:
        commands: list[tuple[str, list[str]]] = []
        for line in block.text.splitlines():
            if line.startswith("$ "):
                commands.append((line[2:], []))
            elif line.strip():
                assert commands, f"{block.where}: a console block begins with a command ($ ...)"
                commands[-1][1].append(line)
        for command, shown in commands:
            if command.split()[0] == "make":
                self._make_knows(block, command)
            elif "stay" in block.options:
                self._stay(block, command, block.options["stay"])
            elif "until" in block.options:
                self._serve(block, command, block.options["until"])
            else:
                self._expect(block, command, shown)

    def _make_knows(self, block: Block, command: str) -> None:
        done = subprocess.run(
            f"{command} --dry-run",
            shell=True,
            cwd=ROOT,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, f"{block.where}: {command}: {done.stderr}"

    def _expect(self, block: Block, command: str, shown: list[str]) -> None:
        done = subprocess.run(
            command,
            shell=True,
            executable="/bin/bash",
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        wanted = int(block.options.get("exit", "0"))
        assert done.returncode == wanted, (
            f"{block.where}: {command} ended with {done.returncode}\n{done.stdout}"
        )
        assert not shown or matches(done.stdout, shown), (
            f"{block.where}: {command} printed\n{done.stdout}\nand the text shows\n" + "\n".join(shown)
        )

    def _stay(self, block: Block, command: str, until: str) -> None:
        process = self._start(command)
        self._staying.append((block, process))
        guard = threading.Timer(STOP_S, process.kill)
        guard.start()
        assert process.stdout is not None
        printed = ""
        while until not in printed and (line := process.stdout.readline()):
            printed += line
        guard.cancel()
        guard.join()
        assert until in printed, f"{block.where}: {command} never printed {until!r}:\n{printed}"

    def close(self) -> None:
        """Interrupt what runs until the end of the page; each must end with 0."""
        failed = []
        for block, process in reversed(self._staying):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            try:
                printed, _ = process.communicate(timeout=STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                printed, _ = process.communicate()
            if process.returncode != 0:
                failed.append(
                    f"{block.where}: ended with {process.returncode} after an interrupt:\n{printed}"
                )
        assert not failed, "\n".join(failed)

    def _start(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["/bin/bash", "-c", f"exec {command}"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def _serve(self, block: Block, command: str, until: str) -> None:
        with self._start(command) as process:
            guard = threading.Timer(STOP_S, process.kill)
            guard.start()
            assert process.stdout is not None
            printed = []
            for line in process.stdout:
                printed.append(line)
                if until in line:
                    os.killpg(process.pid, signal.SIGINT)
                    break
            printed += process.stdout.readlines()
            code = process.wait()
            guard.cancel()
            guard.join()
        text = "".join(printed)
        assert until in text, f"{block.where}: {command} never printed {until!r}:\n{text}"
        assert code == 0, f"{block.where}: {command} ended with {code} after an interrupt:\n{text}"
