"""The terms both halves of a handoff share: identity, manifest, what a row says, options.

Owns the small immutable values that events and effects carry. It must not know bytes: the driver converts
between these and `sojourn.wire` / `sojourn.rows`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from sojourn.ids import NodeRun, ObjectKey

__all__ = [
    "FAILURE_ACTOR_STALE",
    "FAILURE_DATA_LOST",
    "FAILURE_REQUEST",
    "FAILURE_SPOT_STALE",
    "Checksum",
    "DirectDisposal",
    "Frozen",
    "HandoffIdentity",
    "HandoffOptions",
    "Manifest",
    "Outcome",
    "ParticipantFacts",
    "Phase",
    "RowFacts",
    "TargetFailure",
    "same_unit",
    "stale_failure",
]

Checksum: TypeAlias = Callable[[bytes, int], int]
"""`checksum(data, value)` extends a CRC-32C, as `crc32c.crc32c` does; the empty value is 0."""
Frozen: TypeAlias = Callable[[Any], bytes]
"""Gives the frozen record inside a record, as command 31 carries it (`wire.md` 4.3)."""

FAILURE_REQUEST = 17
"""Command 53: any failure without a code of its own."""
FAILURE_ACTOR_STALE = 21
"""Command 53: an Actor's row has another version than the coordinator fence."""
FAILURE_SPOT_STALE = 33
"""Command 53: a Spot's row has another version than the coordinator fence."""
FAILURE_DATA_LOST = 35
"""Command 53: checksum, length or conflict."""


class Phase(enum.StrEnum):
    """The phases of one unit's move (R11.1). Each half of the handoff passes through its own."""

    SOURCE_RUNNING = "SourceRunning"
    SOURCE_PAUSED = "SourcePaused"
    TARGET_RESTORING = "TargetRestoring"
    RELAY_READY = "RelayReady"
    CUTOVER_RECEIVED = "CutoverReceived"
    CUTOVER_FALLBACK = "CutoverFallback"
    STORE_RETRY = "StoreRetry"
    OWNER_COMMITTED = "OwnerCommitted"
    TARGET_REMOVED = "TargetRemoved"
    TARGET_OPEN = "TargetOpen"
    FOLLOW_ONLY = "FollowOnly"


class Outcome(enum.StrEnum):
    """What `relocate` returns (B8.10)."""

    MOVED = "moved"
    FAILED = "failed"
    IN_DOUBT = "in doubt"
    POSTPONED = "postponed"
    """A turn began while the Actor's session was being sealed and outlasted its second (B8.12). The object was
    never stopped; whoever asked for the move starts another handoff, under a new identity, at that turn's end."""


class DirectDisposal(enum.StrEnum):
    """What a target that drops its temporary queue does with what came to it directly (B8.15, B8.16)."""

    FOLLOW_TO_SOURCE = "follow to source"
    """In order, and before the local route goes back: the source runs, or will."""
    FAIL = "fail"
    """Typed failures for requests, dead letters for sends."""
    HAND_OVER = "hand over"
    """First in the temporary queue of the identity that took the object's place here."""


class HandoffIdentity(NamedTuple):
    """The relocation identity: attribution uses this and nothing else (R3.4). Hashable."""

    relocation_id: tuple[int, int]
    """High and low 64 bits; not both zero."""
    attempt: int
    """`targetAttemptGeneration`."""
    owner_id: str
    lease_generation: int
    source: NodeRun
    expected_version: str
    """`expectedAuthorityStoreVersion`: the one condition on the unit's own row, never refreshed (R4.5.1)."""


class Manifest(NamedTuple):
    """What command 40 says about the payload (R4.2.4)."""

    total_length: int
    chunk_count: int
    checksum: int
    application_version: int = 0


class ParticipantFacts(NamedTuple):
    """What another row that the CAS writes says: of a member Actor of a `SpotWide` User Spot (R3.3), or of a Spot
    that gains or loses the Actor of a cross-node join."""

    key: ObjectKey
    version: str
    """Empty: there is no such row."""
    owner: NodeRun
    object_generation: int
    owner_generation: int
    membership: Hashable = None
    """The Spot the Actor is in; compared for equality only."""
    lost: bool = False
    bound: bool = False
    moves: bool = True
    """False: a Spot whose list of members the write changes and whose owner it does not."""

    @property
    def ours(self) -> tuple[object, ...]:
        """What must not change while the unit moves (R4.5.1). The version and the binding may: another row that
        changed only there is no conflict, the write is rebuilt (B6.5)."""
        return (
            self.key,
            self.owner,
            self.object_generation,
            self.owner_generation,
            self.membership,
            self.lost,
        )

    @property
    def condition(self) -> tuple[ObjectKey, str]:
        """The condition that a write over the whole unit puts on this row."""
        return self.key, self.version


def same_unit(first: tuple[ParticipantFacts, ...], now: tuple[ParticipantFacts, ...]) -> bool:
    """Whether the unit's other rows still say what was first read, whatever their versions (R4.5.1, B6.5)."""
    return len(first) == len(now) and all(
        old.ours == new.ours and new.version for old, new in zip(first, now, strict=True)
    )


class RowFacts(NamedTuple):
    """What the unit's own authority row says, as far as a handoff is concerned. A missing row is None."""

    version: str
    owner: NodeRun
    object_generation: int
    owner_generation: int
    relocation_id: tuple[int, int] | None = None
    """The last RelocationId in the relocation block."""
    fenced: bool = False
    """That id was fenced (B6.7), not moved."""
    lost: bool = False
    """The row's state is `lost` (B6.8)."""
    bound: bool = False
    """The row of a participant names a session (B6.3)."""
    others: tuple[ParticipantFacts, ...] = ()
    """The rows of the other participants that this row lists, in the order of their authority keys (R4.2.2), and
    those of the Spots that a join changes."""

    def movable(self, expected_version: str) -> bool:
        """Whether a move that began with this version of the row may go on (B6.5)."""
        return self.version == expected_version and not self.lost and self.whole

    @property
    def whole(self) -> bool:
        """Whether every other participant can move with it: there, not lost, and of the same owner (R4.5.1)."""
        return all(
            each.version and not each.lost and (each.owner == self.owner or not each.moves)
            for each in self.others
        )


@dataclass(frozen=True, slots=True)
class HandoffOptions:
    """Durations in seconds; the defaults are the contract's."""

    cutover_wait_s: float = 1.0
    """`RelocationCutoverWaitTimeout`, and the source's resend window (R4.4.3, R4.4.5)."""
    commit_reserve_s: float = 10.0
    """Added to the time left to D for the Restore operation's absolute deadline (B8.2)."""
    seal_time_min_s: float = 2.0
    """No unit is sealed with less than this left to D (B8.2)."""
    follow_duration_s: float = 30.0
    """How long the source follows after the latest possible commit (B8.10, B9.1)."""
    fence_wait_s: float = 1.0
    """How long past D whoever asked for the move waits for the outcome of a fence (B6.7)."""
    sweep_s: float = 5.0
    """Time between reconciliation attempts once the Restore deadline has passed."""
    session_answer_s: float = 1.5
    """How long the first 43 is waited for: half of the seal timeout, which counts from that 42 (B11.5)."""
    sealed_turn_s: float = 1.0
    """How long a turn that began while the session was sealed may go on after the 43 (B8.12)."""
    ended_memory_s: float = 60.0
    """How long past the Restore deadline an ended identity is remembered at least (B8.6)."""
    retry_first_s: float = 0.002
    """First pause before a store operation is tried again or a row read again."""
    retry_max_s: float = 0.5
    """Longest such pause; each is twice the one before."""


@dataclass(frozen=True, slots=True)
class TargetFailure:
    """Why a target refused or gave up an attempt, as it says itself: for whoever asked for the move. Command 53 has
    only a code; no machine decides anything by this."""

    reason: str
    """The B10.2 reason the failed move counts as."""
    detail: str

    def __str__(self) -> str:
        return self.detail


def stale_failure(key: ObjectKey) -> int:
    """The failure code for another row version: 21 for an Actor, 33 for a Spot."""
    return FAILURE_ACTOR_STALE if key[:1] == b"a" else FAILURE_SPOT_STALE
