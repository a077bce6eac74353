"""Warnings about peers: at once, and never so many that they fill a log."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import pytest
from sojourn.workers import peer_warnings
from sojourn.workers.peer_warnings import LINES_MAX, WINDOW_S, PeerWarnings, peer_address


class Desk:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        self.now = 100.0
        self.warnings = PeerWarnings(logging.getLogger("sojourn.mesh"), lambda: self.now)

    def lines(self) -> list[str]:
        lines = [entry.getMessage() for entry in self._caplog.records]
        self._caplog.clear()
        return lines


@pytest.fixture
def desk(caplog: pytest.LogCaptureFixture) -> Desk:
    return Desk(caplog)


def test_a_flood_from_one_host_is_a_few_lines_and_a_count(desk: Desk) -> None:
    for port in range(100):
        desk.warnings.about_stranger(f"10.0.0.1:{port}", f"refused {port}")
    assert desk.lines() == [f"refused {port}" for port in range(LINES_MAX)]
    desk.warnings.about_stranger("10.0.0.2:1", "refused too")
    assert desk.lines() == ["refused too"]
    desk.now += WINDOW_S
    desk.warnings.about_stranger("10.0.0.1:7", "refused again")
    assert desk.lines() == [
        f"refused again ({100 - LINES_MAX} such lines about 10.0.0.1 were left out before)"
    ]
    desk.now += WINDOW_S
    desk.warnings.about_stranger("10.0.0.1:8", "refused at last")
    assert desk.lines() == ["refused at last"]


def test_only_so_many_are_remembered(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_warnings, "REMEMBERED_MAX", 2)
    for who in ("a", "b", "c"):
        for _ in range(LINES_MAX + 1):
            desk.warnings.about(who, who)
    assert len(desk.warnings._windows) == 2
    assert desk.lines() == ["a"] * LINES_MAX + ["b"] * LINES_MAX + ["c"] * LINES_MAX
    desk.warnings.about("a", "a")  # forgotten, and so told of again
    assert desk.lines() == ["a"]


class FakeTransport:
    def __init__(self, name: object) -> None:
        self._name = name

    def get_extra_info(self, what: str) -> object:
        return self._name if what == "peername" else None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (("127.0.0.1", 80), "127.0.0.1:80"),
        (("::1", 80, 0, 0), "[::1]:80"),
        (None, "an unknown address"),
        ("", "an unknown address"),
    ],
)
def test_the_address_of_a_connection(name: object, text: str) -> None:
    assert peer_address(cast(asyncio.BaseTransport, FakeTransport(name))) == text
