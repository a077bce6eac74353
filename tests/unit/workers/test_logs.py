"""Log records on their way from a worker to the supervisor's log."""

from __future__ import annotations

import logging
import sys

import pytest
from sojourn.control import LogLine
from sojourn.workers import logs
from sojourn.workers.logs import LogForwarder, write_log_line


def record(text: str, *arguments: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("arena", logging.WARNING, __file__, 1, text, arguments, None)
    vars(made).update(extra)
    return made


def test_lines_wait_until_somebody_takes_them() -> None:
    forwarder = LogForwarder()
    forwarder.handle(record("one %d", 1))
    woken: list[str] = []
    forwarder.attach(lambda: woken.append("woken"))
    assert woken == ["woken"]
    forwarder.handle(record("two"))
    assert [line.message for line in forwarder.take()] == ["one 1", "two"]
    assert forwarder.take() == []
    forwarder.handle(record("three"))
    assert len(woken) == 2


def test_fields_are_reduced_to_what_every_encoder_takes() -> None:
    forwarder = LogForwarder()
    forwarder.handle(record("moved", sojourn={"phase": "Sealed", "count": 3}, other={1}))
    (line,) = forwarder.take()
    assert line.fields == {"phase": "Sealed", "count": 3, "other": "{1}"}
    assert (line.level, line.logger) == (logging.WARNING, "arena")


def test_too_many_lines_are_counted_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "BACKLOG_MAX", 2)
    forwarder = LogForwarder()
    for number in range(5):
        forwarder.handle(record(str(number)))
    lines = forwarder.take()
    assert [line.message for line in lines[:2]] == ["0", "1"]
    assert lines[2].message.startswith("3 log lines dropped")


def test_a_traceback_travels_as_text() -> None:
    forwarder = LogForwarder()
    try:
        raise ValueError("inner")
    except ValueError:
        made = record("failed")
        made.exc_info = sys.exc_info()
    forwarder.handle(made)
    (line,) = forwarder.take()
    assert line.message.startswith("failed\nTraceback")
    assert line.message.endswith("ValueError: inner")


def test_a_line_is_written_under_its_own_name(caplog: pytest.LogCaptureFixture) -> None:
    write_log_line(
        LogLine(logging.WARNING, "arena.game", "100 % done", 5.25, {"phase": "x", "name": "no"}), 3
    )
    write_log_line(LogLine(logging.DEBUG, "arena.game", "too little", 5.25, {}), 3)
    (written,) = caplog.records
    assert (written.name, written.getMessage(), written.created) == ("arena.game", "100 % done", 5.25)
    assert (vars(written)["worker"], vars(written)["phase"]) == (3, "x")


def test_a_record_on_the_nodes_log() -> None:
    shown = logs._NodeFormatter("n1").format(record("moved", worker=2, sojourn={"phase": "Sealed"}))
    assert shown.endswith("WARNING n1/2 arena: moved [phase=Sealed]")
