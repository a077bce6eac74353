"""Every rule that is cited can be looked up."""

from __future__ import annotations

import re

from tests.tidy.sources import ROOT, all_files

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
