"""The sessions of one handoff at its source: a contact for each, made when the first seal is asked for.

Owns which contact stands for which session of the unit, and turns their reports into the machine's events.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sojourn.handoff import events
from sojourn.handoff.machine import Effect, Event
from sojourn.session.effects import ReportNoBinding, ReportRefused
from sojourn.workers.session_wire import SessionWire
from sojourn.workers.sessions import Contact

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["SourceSessions"]


class SourceSessions:
    """See the module text. `handle` is the driver's: it hears what session owners answer."""

    def __init__(
        self, node: Supervisor, wires: Sequence[SessionWire], handle: Callable[[Event], None]
    ) -> None:
        self._node = node
        self._wires = wires
        self._handle = handle
        self._contacts: list[Contact] = []

    def ask(self, session: int) -> None:
        """Command 42 for one session, the first or the one behind the last push."""
        if not self._contacts:
            self._contacts = [
                self._node.sessions.contact(wire, functools.partial(self._answered, number))
                for number, wire in enumerate(self._wires)
            ]
        self._contacts[session].want_seal()

    def _answered(self, session: int, report: Effect) -> None:
        if isinstance(report, ReportRefused):
            self._handle(events.SessionRefused(session, report.reason))
        elif isinstance(report, ReportNoBinding):
            self._handle(events.SessionUnbound(session))
        else:
            self._handle(events.SessionSealed(session))

    def abort(self) -> None:
        """Command 44 abort for every 42 sent."""
        for contact in self._contacts:
            contact.abort()

    def release(self) -> None:
        """The handoff has nothing more to ask; what still has to be told is told."""
        for contact in self._contacts:
            contact.release()
