"""Warnings about peers and strangers: where from and why, and not so many that they fill a log.

Owns addresses as texts and the pace of warnings for each address. What is worth a warning is its caller's business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from sojourn.mesh import format_endpoint

__all__ = ["PeerWarnings", "peer_address"]

WINDOW_S = 10.0
LINES_MAX = 3
"""Lines about one stranger or peer in `WINDOW_S`; further ones are counted."""
REMEMBERED_MAX = 1024
"""Strangers and peers that are remembered; the one warned about longest ago is forgotten for one more."""


def peer_address(transport: asyncio.BaseTransport) -> str:
    """`host:port` of the other end of a connection, "an unknown address" where the transport does not say."""
    name = transport.get_extra_info("peername")
    if not isinstance(name, tuple) or len(name) < 2:
        return "an unknown address"
    return format_endpoint(str(name[0]), int(name[1]))


class PeerWarnings:
    """Logs at WARNING, about each stranger or peer `LINES_MAX` lines in `WINDOW_S`; the next says what was left out.

    Args:
        logger: where to.
        now: seconds of a clock that never goes back.
    """

    def __init__(self, logger: logging.Logger, now: Callable[[], float]) -> None:
        self._logger = logger
        self._now = now
        self._windows: dict[str, _Window] = {}

    def about_stranger(self, address: str, text: str) -> None:
        """All ports of a host are one stranger: each of its connections has another."""
        self.about(address.rpartition(":")[0] or address, text)

    def about(self, who: str, text: str) -> None:
        """Log `text`, or count it."""
        now = self._now()
        window = self._windows.get(who)
        if window is not None and now - window.since < WINDOW_S:
            window.lines += 1
            if window.lines <= LINES_MAX:
                self._logger.warning("%s", text)
            return
        left_out = 0 if window is None else max(0, window.lines - LINES_MAX)
        self._windows.pop(who, None)
        self._windows[who] = _Window(now)
        if len(self._windows) > REMEMBERED_MAX:
            del self._windows[next(iter(self._windows))]
        more = f" ({left_out} such lines about {who} were left out before)" if left_out else ""
        self._logger.warning("%s%s", text, more)


@dataclass(slots=True)
class _Window:
    since: float
    lines: int = 1
