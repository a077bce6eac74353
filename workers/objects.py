"""The objects one node holds, as its supervisor sees them.

Owns what an object is doing here (being made, active, moving out, moving in, followed) and what waits
for it. Turns, state and mailboxes live in the workers.
"""

from __future__ import annotations

import enum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sojourn.frames import RecordHeader
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, key_id
from sojourn.wire import fast_record
from sojourn.workers.debt import STAGED_OCTETS_MAX, Debt, Retention

if TYPE_CHECKING:
    from sojourn.workers.replies import MovedHere

__all__ = ["Arrival", "LocalObject", "Place", "Staging", "route_fence"]

Arrival = tuple[bytes, RecordHeader, Debt | None]
"""A record with its parsed header and the credit it owes."""


class Place(enum.Enum):
    """What an object is doing on this node."""

    CREATING = "creating"
    ACTIVE = "active"
    SOURCE = "source"
    TARGET = "target"
    FOLLOW = "follow"


class Staging(Protocol):
    """A handoff that takes the object's records while it moves."""

    def record_arrived(
        self, body: bytes, header: RecordHeader, from_run: NodeRun | None, debt: Debt | None
    ) -> None:
        """A record for the object came from this node (None) or over a link; the handoff settles its debt."""
        ...


class _Owner(NamedTuple):
    """This node as an owner; one value for all of its objects."""

    run: NodeRun
    lease_generation: int


_owner = lru_cache(maxsize=64)(_Owner)


class LocalObject:
    """One object on this node. `worker` is the slot that hosts it; -1 while it is not decided."""

    __slots__ = (
        "_debts",
        "_fence",
        "_owner",
        "_staged_octets",
        "cold",
        "follow_run",
        "guarded",
        "key",
        "kind",
        "lead",
        "moved",
        "noticed",
        "object_generation",
        "owner_generation",
        "place",
        "policy",
        "stable_type",
        "staging",
        "waiting",
        "worker",
    )

    def __init__(self, key: ObjectKey, kind: int, stable_type: str, place: Place) -> None:
        self.key = key
        self.kind = kind
        self.stable_type = stable_type
        self.place = place
        self.policy = "preserve"
        self.worker = -1
        self.object_generation = 0
        self.owner_generation = 0
        self._fence = b""
        self._owner: _Owner | None = None
        self.waiting: list[Arrival] | None = None
        self.staging: Staging | None = None
        self.follow_run: NodeRun | None = None
        self.lead: LocalObject | None = None
        """The Spot whose turn the object shares: it moves with that Spot only (R3.3). None = a unit of its own."""
        self.guarded = False
        """This node's own marker may be out: ask the sending side before taking a record (B9.4)."""
        self._debts: list[Debt] | None = None
        self._staged_octets = 0
        self.cold: set[tuple[int, int]] | None = None
        """Operation ids of first messages whose handler has not ended: their record is stored (B7.1)."""
        self.moved: MovedHere | None = None
        """The move that brought it here; None for an object made here."""
        self.noticed: tuple[NodeRun, ...] | None = None
        """Senders that were already told the object's route."""

    def settle(
        self, object_generation: int, owner_generation: int, run: NodeRun, lease_generation: int
    ) -> None:
        """Take the generations this node now owns the object under."""
        self.object_generation = object_generation
        self.owner_generation = owner_generation
        self._fence = b""
        self._owner = _owner(run, lease_generation)

    @property
    def has_fence(self) -> bool:
        """Whether `fence` has one, for a fraction of its cost."""
        return self._owner is not None or bool(self._fence)

    @property
    def fence(self) -> bytes:
        """The route fence of its owner, empty while there is none. Made when asked for: it would be the
        largest part of an idle object."""
        owner = self._owner
        if owner is None or self._fence:
            return self._fence
        return route_fence(
            self.key,
            self.kind,
            self.object_generation,
            owner.run,
            self.owner_generation,
            owner.lease_generation,
        )

    @fence.setter
    def fence(self, fence: bytes) -> None:
        self._fence = fence

    def owe(self, debt: Debt | None, octets: int, retention: Retention) -> None:
        """A handoff took a record in: its credit goes back now, or with `settle_debts` when much is held."""
        self._staged_octets += octets
        retention.keep(octets)
        if debt is None:
            return
        if self._staged_octets <= STAGED_OCTETS_MAX and not retention.over:
            debt.settle()
        elif self._debts is None:
            self._debts = [debt]
        else:
            self._debts.append(debt)

    def settle_debts(self, retention: Retention) -> None:
        """The handoff let go of what it held: everybody may send again."""
        debts, self._debts = self._debts, None
        retention.free(self._staged_octets)
        self._staged_octets = 0
        for debt in debts or ():
            debt.settle()

    def notice_once(self, run: NodeRun) -> bool:
        """True the first time `run` is to be told about the object's route."""
        if self.noticed is not None and run in self.noticed:
            return False
        self.noticed = (run,) if self.noticed is None else (*self.noticed, run)
        return True


def route_fence(
    key: ObjectKey,
    kind: int,
    object_generation: int,
    run: NodeRun,
    owner_generation: int,
    lease_generation: int,
) -> bytes:
    """The encoded actor or spot route fence of an owner (`wire.md` section 3)."""
    encode = fast_record.encode_actor_fence if kind == ObjectKind.ACTOR else fast_record.encode_spot_fence
    return encode(key_id(key), object_generation, run.rid, run.generation, owner_generation, lease_generation)
