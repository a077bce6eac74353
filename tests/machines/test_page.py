"""The pages of the machines are what the tables say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sojourn.handoff import effects, events, local, replies, source, source_states, target, target_states
from sojourn.session import effects as session_effects
from sojourn.session import events as session_events
from sojourn.session import seal

from tests.machines.page import PAGE, REPLIES_PAGE, SESSIONS_PAGE, render, render_replies, render_sessions

MODULES = (
    effects,
    events,
    local,
    replies,
    source,
    source_states,
    target,
    target_states,
    session_effects,
    session_events,
    seal,
)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python -m tests.machines.page"


def test_the_replies_page_is_up_to_date() -> None:
    assert REPLIES_PAGE.read_text(encoding="utf-8") == render_replies(), "run: python -m tests.machines.page"


def test_the_sessions_page_is_up_to_date() -> None:
    assert SESSIONS_PAGE.read_text(encoding="utf-8") == render_sessions(), (
        "run: python -m tests.machines.page"
    )


@pytest.mark.parametrize("page", [PAGE, SESSIONS_PAGE, REPLIES_PAGE], ids=lambda page: page.stem)
def test_the_diagrams_by_hand_name_only_what_there_is(page: Path) -> None:
    """State diagrams are rendered from the tables; those of who talks with whom are written by hand."""
    known = {name for module in MODULES for name in vars(module)}
    diagrams = re.findall(
        r"```mermaid\nsequenceDiagram\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL
    )
    named = {word for diagram in diagrams for word in re.findall(r"\b(?:[A-Z][a-z]+){2,}\b", diagram)}
    assert diagrams
    assert named
    assert named <= known
