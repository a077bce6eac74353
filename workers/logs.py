"""Log records of a node: a worker sends its own to the supervisor, which writes them all.

Owns both halves: what a worker's logging does with a record, and how a supervisor's log looks. User code that
prints still prints: only logging passes here. It must not know where log files go.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from sojourn.control import LogLine

__all__ = ["LOG_LEVELS", "LogForwarder", "set_up_node_log", "write_log_line"]

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
"""What a node's log can be set to, finest first."""

BACKLOG_MAX = 1_000
"""Log lines kept while the supervisor is slow; later ones are counted and dropped."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class LogForwarder(logging.Handler):
    """Turns every log record of a worker process into a `LogLine`, from any thread.

    Until `attach`, lines wait: a program may log while it is imported, before there is a connection.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[LogLine] = deque()
        self._dropped = 0
        self._wake: Callable[[], object] | None = None
        self._guard = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one record; never blocks and never raises into user code."""
        try:
            line = _line_of(record)
        except (
            Exception
        ):  # a record that cannot be formatted is the user's bug: logging reports it its own way
            self.handleError(record)
            return
        with self._guard:
            if len(self._waiting) >= BACKLOG_MAX:
                self._dropped += 1
                return
            self._waiting.append(line)
            wake = self._wake if len(self._waiting) == 1 else None
        if wake is not None:
            wake()

    def attach(self, wake: Callable[[], object]) -> None:
        """`wake` is called from any thread when lines wait for `take`; at once if some do."""
        self._wake = wake
        if self._waiting:
            wake()

    def take(self) -> list[LogLine]:
        """Every waiting line, oldest first; what was dropped is told in a line of its own."""
        with self._guard:
            lines = list(self._waiting)
            self._waiting.clear()
            dropped, self._dropped = self._dropped, 0
        if dropped and lines:
            text = f"{dropped} log lines dropped: more than {BACKLOG_MAX} were waiting"
            lines.append(LogLine(logging.WARNING, __name__, text, lines[-1].created, {"dropped": dropped}))
        return lines


def _line_of(record: logging.LogRecord) -> LogLine:
    message = record.getMessage()
    if record.exc_info:
        message += "\n" + logging.Formatter().formatException(record.exc_info)
    return LogLine(record.levelno, record.name, message, record.created, _fields_of(record))


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Structured fields of a record (`extra=`, ours under the key `sojourn`), reduced to what every encoder takes."""
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    own = fields.pop("sojourn", None)
    if isinstance(own, dict):
        fields.update(own)
    return {
        name: value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
        for name, value in fields.items()
    }


def write_log_line(line: LogLine, worker: int) -> None:
    """Write a worker's log line into this process's log, under its own logger name."""
    logger = logging.getLogger(line.logger)
    if logger.isEnabledFor(line.level):
        values = {name: value for name, value in line.fields.items() if name not in _STANDARD}
        record = logging.makeLogRecord(
            {
                **values,
                "name": line.logger,
                "levelno": line.level,
                "levelname": logging.getLevelName(line.level),
                "msg": line.message,
                "args": None,
                "created": line.created,
                "msecs": line.created % 1 * 1000,
                "worker": worker,
            }
        )
        logger.handle(record)


class _NodeFormatter(logging.Formatter):
    """One line a record: time, level, node (and worker), logger, text, fields as `name=value`."""

    def __init__(self, node: str) -> None:
        super().__init__(
            "%(asctime)s.%(msecs)03d %(levelname)-7s %(place)s %(name)s: %(message)s", "%H:%M:%S"
        )
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields_of(record)
        worker = fields.pop("worker", None)
        fields.pop("place", None)
        record.place = self._node if worker is None else f"{self._node}/{worker}"
        text = super().format(record)
        shown = " ".join(f"{name}={value}" for name, value in fields.items())
        return f"{text} [{shown}]" if shown else text


def set_up_node_log(node: str, level: str) -> None:
    """Send this supervisor process's log, its workers' lines included, to standard error."""
    output = logging.StreamHandler(sys.stderr)
    output.setFormatter(_NodeFormatter(node))
    root = logging.getLogger()
    root.handlers[:] = [output]
    root.setLevel(level)
