"""docs/design/handoff.md is what the tables say."""

from __future__ import annotations

from tests.machines.page import PAGE, render


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python -m tests.machines.page"
