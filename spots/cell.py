"""The cell: everything the framework keeps about one object in this process.

Owns the object's phase and its mailbox. A cell without work holds no queue and no task, since most objects
are idle most of the time. It must not know how jobs run.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sojourn.control import DropObject, Seal
    from sojourn.ids import ObjectKey
    from sojourn.spots.app import ObjectType
    from sojourn.spots.groups import Group
    from sojourn.spots.host import ObjectHost
    from sojourn.spots.objects import Resident
    from sojourn.spots.timers import ActiveTimer
    from sojourn.spots.turns import Job

__all__ = ["Cell", "Phase"]


class Phase(enum.IntEnum):
    """Where an object is in its life here."""

    MAKING = 0
    """The instance is being made or restored; messages wait."""
    CLOSED = 1
    """Made, dispatch not open yet; messages wait."""
    OPEN = 2
    """Serving."""
    SEALING = 3
    """Asked to move: the running turn ends, no new one starts."""
    CAPTURED = 4
    """Its state and queue were captured; it waits for `Unseal` or `DropObject`."""
    ENDING = 5
    """Its closing callback runs."""
    GONE = 6
    """Not in this process any more."""


_EMPTY_QUEUES_MAX = 256
_empty_queues: list[deque[Job]] = []


class Cell:
    """One object. See the module text.

    Attributes:
        instance: the user's object, None while it is being made.
        queue: jobs that wait, None when there are none.
        running: the job whose turn it is.
        listed: True while the cell stands in the scheduler's list of ready cells.
        timers: named timers, None when there are none.
        seal: the seal that waits for the turn's end or was carried out.
        source: cached source block of its messages.
        move_to: where the object asked to move after this turn, see `destination`.
        closing: the end that waits for the running turn.
        arrived: True for an object that came by a move: what was relayed goes before new messages.
        boundary: numbers of calls that wait for the end of the running turn, None for none.
        group: the Spot and Actors that share this cell's turn, None for an object with a turn of its own.
        loop: number of this worker's loop record that is out for the object, 0 for none.
        captured: the mailbox as it was captured, until the handoff is over.
    """

    __slots__ = (
        "arrived",
        "boundary",
        "captured",
        "closing",
        "group",
        "host",
        "instance",
        "key",
        "listed",
        "loop",
        "move_to",
        "object_generation",
        "owner_generation",
        "phase",
        "queue",
        "running",
        "seal",
        "source",
        "timers",
        "type",
    )

    def __init__(
        self,
        host: ObjectHost,
        record: ObjectType,
        key: ObjectKey,
        object_generation: int,
        owner_generation: int,
    ) -> None:
        self.host = host
        self.type = record
        self.key = key
        self.object_generation = object_generation
        self.owner_generation = owner_generation
        self.phase = Phase.MAKING
        self.instance: Resident | None = None
        self.group: Group | None = None
        self.queue: deque[Job] | None = None
        self.running: Job | None = None
        self.listed = False
        self.arrived = False
        self.loop = 0
        self.timers: dict[str, ActiveTimer] | None = None
        self.seal: Seal | None = None
        self.source: bytes | None = None
        self.move_to: dict[str, Any] | None = None
        self.closing: DropObject | None = None
        self.captured: list[Job] | None = None
        self.boundary: list[int] | None = None

    def put(self, job: Job) -> None:
        """Append a job to the mailbox."""
        if self.queue is None:
            self.queue = _empty_queues.pop() if _empty_queues else deque()
        self.queue.append(job)

    def take(self) -> Job:
        """The oldest job, removed."""
        queue = self.queue
        assert queue is not None
        job = queue.popleft()
        if not queue:
            self.queue = None
            if len(_empty_queues) < _EMPTY_QUEUES_MAX:
                _empty_queues.append(queue)
        return job

    def take_all(self) -> list[Job]:
        """Every job, oldest first, removed."""
        jobs = list(self.queue or ())
        self.queue = None
        return jobs

    @property
    def message_source(self) -> bytes:
        """Source block of messages sent in this object's turns."""
        if self.source is None:
            self.source = self.host.outbox.origin.object_source(self.key, self.object_generation)
        return self.source
