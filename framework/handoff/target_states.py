"""The states of `TargetHandoff` and the data each of them owns.

Until the owner is written everything that matters is what must not run yet: the temporary queue and the
relay section.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sojourn.handoff.machine import State
from sojourn.handoff.relay import RelaySection
from sojourn.handoff.terms import Manifest, ParticipantFacts, Phase, RowFacts

__all__ = [
    "Announced",
    "Assembling",
    "ObjectStaged",
    "Opening",
    "OwnerChecking",
    "OwnerPausing",
    "OwnerWriting",
    "RelayReady",
    "RestoringObject",
    "Staged",
    "TargetDoubting",
    "TargetForgotten",
    "TargetOpen",
    "TargetRemoved",
]


@dataclass(slots=True)
class Announced(State):
    """The identity is known, nothing was done for it."""

    phase = Phase.SOURCE_PAUSED


@dataclass(slots=True)
class Staged(State):
    """The temporary queue is registered (R4.3.1). `connection` leads to the source, None while it is cut;
    `ends_at` is the Restore operation's one absolute deadline (B8.2)."""

    phase = Phase.TARGET_RESTORING
    manifest: Manifest
    connection: int | None
    ends_at: float
    queue: list[Any]

    @property
    def deadline(self) -> float | None:
        return self.ends_at


@dataclass(slots=True)
class Assembling(Staged):
    """Chunks arrive and the row is read. `offsets[i]` is where chunk i starts; the last is what has arrived."""

    offsets: list[int] = field(default_factory=lambda: [0])
    verified: bool = False
    row: RowFacts | None = None
    reads: int = 0
    read_at: float | None = None
    """When the row is read again; None = a read is out or done."""

    @property
    def deadline(self) -> float | None:
        return self.ends_at if self.read_at is None else min(self.ends_at, self.read_at)


@dataclass(slots=True)
class RestoringObject(Staged):
    """A worker builds the object. `bound` in this and the later states: a session is to be told (R4.6.4).
    `others`: the rows of the other participants as last read; their versions are refreshed, nothing else is
    (B6.5)."""

    owner_generation: int = 0
    bound: bool = False
    others: tuple[ParticipantFacts, ...] = ()


@dataclass(slots=True)
class ObjectStaged(Staged):
    """The object stands, but there is no connection to say so: a repeat is awaited (B8.6)."""

    owner_generation: int = 0
    bound: bool = False
    others: tuple[ParticipantFacts, ...] = ()


@dataclass(slots=True)
class RelayReady(Staged):
    """30 was sent; relay and cutover are awaited until `wait_until` (R4.4.5)."""

    phase = Phase.RELAY_READY
    owner_generation: int = 0
    bound: bool = False
    others: tuple[ParticipantFacts, ...] = ()
    relay: RelaySection = field(kw_only=True)
    wait_until: float = 0.0

    @property
    def deadline(self) -> float | None:
        return min(self.ends_at, self.wait_until)


@dataclass(slots=True)
class Committing(Staged):
    """The boundary is settled and the CAS was issued: no failure is ever sent from here on (R4.3.3)."""

    owner_generation: int = 0
    bound: bool = False
    others: tuple[ParticipantFacts, ...] = ()
    relay: RelaySection = field(kw_only=True)
    by_fallback: bool = False
    tries: int = 0


@dataclass(slots=True)
class OwnerWriting(Committing):
    """`WriteOwner` is out."""

    @property
    def phase(self) -> str:  # type: ignore[override]
        return Phase.CUTOVER_FALLBACK if self.by_fallback else Phase.CUTOVER_RECEIVED


@dataclass(slots=True)
class OwnerChecking(Committing):
    """Its outcome is not known, or it met another version: the row is being read (B6.5)."""

    phase = Phase.STORE_RETRY


@dataclass(slots=True)
class OwnerPausing(Committing):
    """The store did not help; at `retry_at` the write (or, after an unknown outcome, the read) is repeated."""

    phase = Phase.STORE_RETRY
    retry_at: float = 0.0
    read_first: bool = False

    @property
    def deadline(self) -> float | None:
        return min(self.ends_at, self.retry_at)


@dataclass(slots=True)
class Open(State):
    """The owner is this node; k is remembered for resent batches until `forget_at` (B8.4)."""

    manifest: Manifest
    relay: RelaySection
    forget_at: float

    @property
    def deadline(self) -> float | None:
        return self.forget_at


@dataclass(slots=True)
class Opening(Open):
    """Dispatch is being opened."""

    phase = Phase.OWNER_COMMITTED
    bound: bool = False

    @property
    def deadline(self) -> float | None:
        return None


@dataclass(slots=True)
class TargetOpen(Open):
    """The object runs here, or has moved on, or is lost with its worker."""

    phase = Phase.TARGET_OPEN


@dataclass(slots=True)
class TargetRemoved(State):
    """The attempt ended; the identity never starts again and is remembered with its failure (B8.6).
    `failure_code` None: a CAS was issued, so repeats get no answer. `relay` counts relay records that still
    come, so that each gets one terminal (B8.15). `follows`: what still comes here directly goes on to the
    source, which runs. `why`: what the driver says beside a 53."""

    phase = Phase.TARGET_REMOVED
    failure_code: int | None
    relay: RelaySection
    forget_at: float
    follows: bool = False
    why: Any = None

    @property
    def deadline(self) -> float | None:
        return self.forget_at


@dataclass(slots=True)
class TargetDoubting(TargetRemoved):
    """The attempt ended behind its relay-ready without proof of the boundary: the row is read until it tells who ends
    the saved work (B8.15). `read_at` None: a read, or the lost mark, is out. `ended`: its terminals are made."""

    object_generation: int = field(kw_only=True)
    owner_generation: int = field(kw_only=True)
    reads: int = 0
    read_at: float | None = None
    ended: bool = False

    @property
    def deadline(self) -> float | None:
        if not self.follows:
            return self.read_at
        return self.forget_at if self.read_at is None else min(self.forget_at, self.read_at)


@dataclass(slots=True)
class TargetForgotten(State):
    """Nothing is left to remember."""

    phase = Phase.TARGET_REMOVED
