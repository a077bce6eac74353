"""The API page names everything public."""

from __future__ import annotations

import re

import sojourn as sj

from tests.tidy.sources import ROOT

PAGE = ROOT / "docs" / "reference" / "api.md"


def test_every_public_name_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    missing = [
        name for name in sj.__all__ if not name.startswith("_") and not re.search(rf"\b{name}\b", text)
    ]
    assert not missing
