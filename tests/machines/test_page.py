"""The pages of the machines are what the tables say."""

from __future__ import annotations

from tests.machines.page import PAGE, REPLIES_PAGE, SESSIONS_PAGE, render, render_replies, render_sessions


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python -m tests.machines.page"


def test_the_replies_page_is_up_to_date() -> None:
    assert REPLIES_PAGE.read_text(encoding="utf-8") == render_replies(), "run: python -m tests.machines.page"


def test_the_sessions_page_is_up_to_date() -> None:
    assert SESSIONS_PAGE.read_text(encoding="utf-8") == render_sessions(), (
        "run: python -m tests.machines.page"
    )
