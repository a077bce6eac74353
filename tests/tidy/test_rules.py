"""Every rule that is cited can be looked up, and every rule that is built is cited by a test."""

from __future__ import annotations

import ast
import re

from tests.tidy.sources import ROOT, all_files, python_files

RULES = ROOT / "docs" / "reference" / "rules.md"
CITED = re.compile(r"\b[RB]\d{1,2}\.\d{1,2}(?:\.\d{1,2})?\b")
STATED = re.compile(r"^- (?P<first>[RB][\d.]+)(?: to (?P<last>[RB][\d.]+))? ", re.MULTILINE)


def stated() -> set[str]:
    """Numbers of the rules on the page, ranges written out."""
    found: set[str] = set()
    for match in STATED.finditer(RULES.read_text(encoding="utf-8")):
        chapter, _, first = match["first"].rpartition(".")
        last = (match["last"] or match["first"]).rpartition(".")[2]
        found |= {f"{chapter}.{number}" for number in range(int(first), int(last) + 1)}
    return found


def test_every_cited_rule_is_stated() -> None:
    known = stated()
    unknown: dict[str, str] = {}
    for path in all_files():
        if path.suffix not in (".py", ".md", ".lua"):
            continue
        for rule in CITED.findall(path.read_text(encoding="utf-8")):
            if rule not in known:
                unknown.setdefault(rule, str(path.relative_to(ROOT)))
    assert not unknown, f"cited but not in {RULES.name}: {unknown}"


def test_no_rule_is_stated_twice() -> None:
    starts = [match["first"] for match in STATED.finditer(RULES.read_text(encoding="utf-8"))]
    assert sorted(starts) == sorted(set(starts))


NOT_BUILT = {"B9.3": "broadcasts come later"}
"""Rules of the contract that no test can cite yet, and why. A rule that is built leaves this list."""


def must_be_shown(rule: str) -> bool:
    """The contract's rules, and those of B that a move rests on: B3.5, B5, B6.4 to B6.8, B7, B8, B9."""
    kind, chapter, number = rule[0], *(int(part) for part in rule[1:].split(".")[:2])
    return (
        kind == "R"
        or (chapter, number) == (3, 5)
        or chapter in (5, 7, 8, 9)
        or (chapter == 6 and 4 <= number <= 8)
    )


def shown() -> set[str]:
    """Rules that a test cites in its own body, or a planted bug in the drills."""
    found: set[str] = set()
    for path in python_files("tests"):
        text = path.read_text(encoding="utf-8")
        if path.parent.name == "mutants":
            found |= set(CITED.findall(text))
        elif path.name.startswith("test_"):
            lines = text.splitlines()
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                    found |= set(CITED.findall("\n".join(lines[node.lineno - 1 : node.end_lineno])))
    return found


def test_every_rule_that_is_built_is_cited_by_a_test() -> None:
    """A rule with rules of its own below it is shown by those."""
    rules = {rule for rule in stated() if must_be_shown(rule)}
    headings = {rule for rule in rules if any(other.startswith(f"{rule}.") for other in rules)}
    uncited = rules - headings - shown() - set(NOT_BUILT)
    assert not uncited, f"no test cites {sorted(uncited)}"
    assert not set(NOT_BUILT) & shown(), "it is cited: take it out of the list"
    assert len(rules) > 80
