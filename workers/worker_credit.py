"""The credit that a worker's own outbound records are owed (B5.1).

Owns the collecting of it over one turn of the event loop. Whose record has left is the senders' business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.control import Grant

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["WorkerCreditor"]


class WorkerCreditor:
    """Gives a worker its outbound credit back, one message per loop turn (B5.1)."""

    __slots__ = ("_ended", "_octets", "_records", "_supervisor", "_worker")

    def __init__(self, supervisor: Supervisor, worker: int) -> None:
        self._supervisor = supervisor
        self._worker = worker
        self._records = 0
        self._octets = 0
        self._ended = False

    def end(self) -> None:
        """The worker ended: its credit is no other worker's."""
        self._ended = True

    def give_back(self, records: int, octets: int) -> None:
        """See `Creditor`."""
        if not self._records:
            self._supervisor.loop.call_soon(self._flush)
        self._records += records
        self._octets += octets

    def _flush(self) -> None:
        if not self._ended:
            self._supervisor.pool.control(self._worker, Grant(self._records, self._octets))
        self._records = self._octets = 0
