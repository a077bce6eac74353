"""The duplicate filter: operation ids of messages that were accepted into a mailbox here (B3.2).

It acts on acceptance only, never on forwarding, and forgets what leaves a mailbox by a move: an object that
moves away and comes back brings its messages along, and they must not be taken for repeats.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from sojourn.spots.jobs import RecordCall

if TYPE_CHECKING:
    from sojourn.frames import RecordHeader
    from sojourn.spots.turns import Job

__all__ = ["Acceptance"]

_REMEMBERED_MAX: Final = 65_536


class Acceptance:
    """Operation ids of messages that may come a second time: followed and restored ones."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], None] = {}

    def first(self, header: RecordHeader) -> bool:
        """True, and remembered, unless this message was accepted before."""
        operation = (header.operation_high, header.operation_low)
        if operation in self._seen:
            return False
        self._add(operation)
        return True

    def remember(self, jobs: Iterable[Job]) -> None:
        """These were accepted with their object."""
        for job in jobs:
            if isinstance(job, RecordCall):
                self._add((job.header.operation_high, job.header.operation_low))

    def forget(self, jobs: Iterable[Job]) -> None:
        """These left with their object, unexecuted."""
        for job in jobs:
            if isinstance(job, RecordCall):
                self._seen.pop((job.header.operation_high, job.header.operation_low), None)

    def _add(self, operation: tuple[int, int]) -> None:
        seen = self._seen
        seen[operation] = None
        if len(seen) > _REMEMBERED_MAX:
            del seen[next(iter(seen))]
