"""Texts of the project: links that lead somewhere, nothing about one machine, settings that agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT, all_files

MARKDOWN = [path for path in all_files() if path.suffix == ".md"]
LINK = re.compile(r"(?<!\!)\[[^\]^\[]+\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+\s+(.*?)\s*#*\s*$", re.MULTILINE)
OF_ONE_MACHINE = re.compile(
    "|".join(["/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/[a-z]", "pypi\\.o" + "rg", "python" + "hosted"])
    + "|regis"
    + "try\\.npmjs|/opt/"
    + "pypi|shared/(sp"
    + "ec|des"
    + "ign)"
)


def anchors(path: Path) -> set[str]:
    """Names by which headings of a Markdown file are linked to."""
    names: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", path.read_text(encoding="utf-8"))):
        plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        number = 0
        while (name if number == 0 else f"{name}-{number}") in names:
            number += 1
        names.add(name if number == 0 else f"{name}-{number}")
    return names


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    wrong = []
    for match in LINK.finditer(FENCE.sub("", path.read_text(encoding="utf-8"))):
        link = match.group(1) or match.group(2)
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists():
            wrong.append(f"{link}: no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            wrong.append(f"{link}: no such heading")
    assert not wrong, f"{path.relative_to(ROOT)}: " + "; ".join(wrong)


def test_nothing_about_one_machine() -> None:
    """No folders of the machine it was written on, no hosts of package registries."""
    wrong = []
    for path in all_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # binary
        wrong += [
            f"{path.relative_to(ROOT)}:{number} {line.strip()[:100]}"
            for number, line in enumerate(text.splitlines(), 1)
            if OF_ONE_MACHINE.search(line)
        ]
    assert not wrong, "\n".join(wrong)


def test_python_versions_agree() -> None:
    """pyproject.toml, the search for a Python and `make test-all` name the same versions."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest, beyond = map(int, re.fullmatch(r">=3\.(\d+),<3\.(\d+)", wanted).groups())  # type: ignore[union-attr]
    search = (ROOT / ".ci" / "find-python").read_text()
    assert f"\noldest={oldest}\nnewest={beyond - 1}\n" in search
    versions = " ".join(f"3.{minor}" for minor in range(oldest, beyond))
    assert f"for version in {versions};" in (ROOT / "Makefile").read_text()


def test_version_is_said_once_more_only() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f'__version__ = "{version}"' in (ROOT / "framework" / "__init__.py").read_text()
