"""The credit that a worker's own outbound records are owed (B5.1).

Owns the collecting of it, so that few messages give much back. Whose record has left is the senders' business.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sojourn.control import Grant

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["WorkerCreditor"]

KEPT_BACK_OCTETS: Final = 128 * 1024
"""Credit that is given back at once: an eighth of what a worker may have on the way out."""
KEPT_BACK_S: Final = 0.005
"""How long less than that may wait: a message of its own for every record would cost more than the record."""


class WorkerCreditor:
    """Gives a worker its outbound credit back, in few messages (B5.1)."""

    __slots__ = ("_ended", "_octets", "_records", "_supervisor", "_timer", "_worker")

    def __init__(self, supervisor: Supervisor, worker: int) -> None:
        self._supervisor = supervisor
        self._worker = worker
        self._records = 0
        self._octets = 0
        self._ended = False
        self._timer: asyncio.TimerHandle | None = None

    def end(self) -> None:
        """The worker ended: its credit is no other worker's."""
        self._ended = True

    def give_back(self, records: int, octets: int) -> None:
        """See `Creditor`."""
        if not self._records:
            self._timer = self._supervisor.loop.call_later(KEPT_BACK_S, self._flush)
        self._records += records
        self._octets += octets
        if self._octets >= KEPT_BACK_OCTETS:
            self._flush()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._ended:
            self._supervisor.pool.control(self._worker, Grant(self._records, self._octets))
        self._records = self._octets = 0
