"""Every promise names tests that show it, and every test that is named exists."""

from __future__ import annotations

import ast
import re

from tests.tidy.sources import ROOT, python_files

PAGE = ROOT / "docs" / "guarantees.md"
PROMISED = "## Promised"
SHOWN_BY = "shown by"
NAME = re.compile(r"`(test_\w+)`|\bCT-(\d\d)\b")


SECTION_12 = {
    PROMISED: (
        "One owner",
        "A target waits",
        "What waited runs first",
        "Each sender's order survives a move",
        "A client's session survives the move of its Actor",
    ),
    "## Not promised": (
        "Order across senders",
        "Exactly once across a crash",
        "Order across a cut connection",
        "A word that a move has ended",
    ),
}
"""The rows that say what section 12 of the contract promises and does not promise, line by line."""


def names_of_tests() -> set[str]:
    """Names of all test functions."""
    return {
        node.name
        for path in python_files("tests")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def rows() -> list[tuple[str, str, str]]:
    """Section, promise and the tests named, of every row that has a place for them."""
    found = []
    section, width = "", 0
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]] if line.startswith("|") else []
        if line.startswith("## "):
            section, width = line, 0
        elif cells and cells[-1] == SHOWN_BY:
            width = len(cells)
        elif cells and width and not cells[0].startswith("---"):
            assert len(cells) == width, f"{PAGE.name}: {line:.80}"
            found.append((section, cells[0], cells[-1]))
    return found


def test_every_promise_is_shown_by_tests_that_exist() -> None:
    known = names_of_tests()
    numbers = {match[1] for name in known if (match := re.match(r"test_ct_(\d\d)_", name))}
    wrong = []
    for section, promise, shown in rows():
        named = NAME.findall(shown)
        if section == PROMISED and not named:
            wrong.append(f"{promise}: no test shows it")
        wrong += [f"{promise}: no test {name}" for name, _ in named if name and name not in known]
        wrong += [
            f"{promise}: no test of CT-{number}" for _, number in named if number and number not in numbers
        ]
    assert not wrong, "\n".join(wrong)
    assert {section for section, _, _ in rows()} == {PROMISED, "## Not promised"}


def test_every_line_of_section_12_has_its_row_and_a_test() -> None:
    named = {(section, title): NAME.findall(shown) for section, title, shown in rows()}
    for section, titles in SECTION_12.items():
        for title in titles:
            assert named.get((section, title)), f"{section}: {title}"


def test_no_test_that_is_named_can_be_skipped() -> None:
    """A promise that is shown only where something is installed is not shown."""
    wanted = {name for _, _, shown in rows() for name, _ in NAME.findall(shown) if name}
    for path in python_files("tests"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in wanted:
                marks = [ast.unparse(mark) for mark in node.decorator_list]
                assert not [mark for mark in marks if "skip" in mark or "xfail" in mark], (path.name, marks)
