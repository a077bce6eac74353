"""The checkout's files as the tidy tests see them: listed once, parsed once."""

from __future__ import annotations

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["FOLDERS", "ROOT", "Module", "all_files", "code_lines", "imports", "modules", "python_files"]

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("framework", "spots", "store", "workers")


@dataclass(frozen=True)
class Module:
    """One source file of the package."""

    name: str
    path: Path
    folder: str
    tree: ast.Module
    text: str

    @property
    def where(self) -> str:
        return str(self.path.relative_to(ROOT))


@cache
def all_files() -> tuple[Path, ...]:
    """Files that are or would be under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        hidden = {".git", ".venv", "build", "__pycache__"}
        paths = [path for path in ROOT.rglob("*") if not hidden & set(path.relative_to(ROOT).parts)]
    return tuple(sorted(path for path in paths if path.is_file()))


def python_files(*folders: str) -> list[Path]:
    return [
        path for path in all_files() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders
    ]


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the package, by the mapping in pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = []
    for package in settings["packages"]:
        folder = ROOT / settings["package-dir"][package]
        for path in sorted(folder.glob("*.py")):
            name = package if path.stem == "__init__" else f"{package}.{path.stem}"
            text = path.read_text(encoding="utf-8")
            top = path.relative_to(ROOT).parts[0]
            found.append(Module(name, path, top, ast.parse(text), text))
    return tuple(found)


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """Line and absolute name of everything a module imports, wherever in it."""
    package = module.name if module.path.stem == "__init__" else module.name.rpartition(".")[0]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                parts = parts[: len(parts) - node.level + 1]
                base = ".".join([*parts, base] if base else parts)
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def code_lines(path: Path) -> int:
    """Lines that hold code: not blank, not comment, not docstring."""
    text = path.read_text(encoding="utf-8")
    counted = {
        number
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.strip().startswith("#")
    }
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
            and node.end_lineno is not None
        ):
            counted -= set(range(node.lineno, node.end_lineno + 1))
    return len(counted)
