"""The example of the README is the file that runs."""

from __future__ import annotations

from tests.docs.blocks import blocks_of
from tests.tidy.sources import ROOT


def test_readme_shows_the_example_as_it_is() -> None:
    shown = [block.text for block in blocks_of(ROOT / "README.md") if block.language == "python"]
    assert shown == [(ROOT / "examples" / "example.py").read_text(encoding="utf-8")]


def test_it_is_short() -> None:
    lines = (ROOT / "examples" / "example.py").read_text(encoding="utf-8").splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 36
