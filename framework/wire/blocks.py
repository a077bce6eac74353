"""The shared blocks of the contract: ids, fences, references, route fences and object identities.

Owns the Python form of what most commands have in common. Knows neither commands nor records.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from sojourn.wire.errors import Word
from sojourn.wire.primitives import NZ64, RID, TEXT8, TEXT16, U64, Enumeration
from sojourn.wire.structure import Problem, Union

__all__ = [
    "OBJECT_IDENTITY",
    "ROLE",
    "ROUTE_FENCE",
    "SOURCE_ROLE",
    "TARGET_ROLE",
    "ActorIdentity",
    "ActorRef",
    "ActorRouteFence",
    "CoordinatorFence",
    "InstanceSpotIdentity",
    "ObjectIdentity",
    "OperationId",
    "OperationIdOrZero",
    "Phase",
    "RelocationId",
    "RelocationIdentity",
    "RequestSourceFence",
    "Role",
    "RouteFence",
    "SpotRef",
    "SpotRouteFence",
    "TargetFence",
    "UserSpotIdentity",
]


class Role(enum.IntEnum):
    """Who sends. No command accepts 3 in this version."""

    SOURCE = 1
    TARGET = 2
    COORDINATOR = 3


class Phase(enum.IntEnum):
    """Where a relocation stands, as the contract numbers it."""

    NONE = 0
    PREPARING = 1
    CAPTURED = 2
    PREPARED = 3
    COMMITTED = 4
    ACTIVATING = 5
    ACTIVATED = 6
    CLEANING = 7
    COMPLETED = 8
    ABORTED = 9


ROLE = Enumeration(Role)
SOURCE_ROLE = Enumeration(Role, allowed=frozenset({Role.SOURCE}), forbidden=Word.WRONG_ROLE)
TARGET_ROLE = Enumeration(Role, allowed=frozenset({Role.TARGET}), forbidden=Word.WRONG_ROLE)


class OperationIdOrZero(msgspec.Struct, frozen=True):
    """128-bit id of a message; both halves zero where a record needs none."""

    high: Annotated[int, U64]
    low: Annotated[int, U64]

    def __bool__(self) -> bool:
        return self.high != 0 or self.low != 0


def _both_zero(high: int, low: int) -> Problem | None:
    return None if high or low else Problem(Word.INVALID_FIELD, "high", "both halves are zero")


class OperationId(msgspec.Struct, frozen=True):
    """128-bit id of a message, not zero."""

    high: Annotated[int, U64]
    low: Annotated[int, U64]

    def wire_problem(self) -> Problem | None:
        return _both_zero(self.high, self.low)


class RelocationId(msgspec.Struct, frozen=True):
    """128-bit id of a relocation, not zero, from a secure random source (R3.4)."""

    high: Annotated[int, U64]
    low: Annotated[int, U64]

    def wire_problem(self) -> Problem | None:
        return _both_zero(self.high, self.low)


class CoordinatorFence(msgspec.Struct, frozen=True):
    """The owner value the initiator of a relocation expects (R3.4)."""

    owner_id: Annotated[str, TEXT8]
    lease_generation: Annotated[int, NZ64]
    node_rid: Annotated[bytes, RID]
    node_generation: Annotated[int, NZ64]
    expected_authority_store_version: Annotated[str, TEXT16]
    """Opaque, compared for equality only."""


class TargetFence(msgspec.Struct, frozen=True):
    """The node run and lease a relocation goes to."""

    node_rid: Annotated[bytes, RID]
    node_generation: Annotated[int, NZ64]
    owner_id: Annotated[str, TEXT8]
    owner_lease_generation: Annotated[int, NZ64]


class RequestSourceFence(msgspec.Struct, frozen=True):
    """The node run and lease a request came from."""

    owner_id: Annotated[str, TEXT8]
    owner_lease_generation: Annotated[int, NZ64]
    node_rid: Annotated[bytes, RID]
    node_generation: Annotated[int, NZ64]


class RelocationIdentity(msgspec.Struct, frozen=True):
    """What ties the messages of one attempt together (R3.4)."""

    relocation_id: RelocationId
    target_attempt_generation: Annotated[int, NZ64]
    coordinator_fence: CoordinatorFence


class ActorRef(msgspec.Struct, frozen=True):
    """One incarnation of an Actor."""

    actor_id: Annotated[str, TEXT8]
    object_generation: Annotated[int, NZ64]


class SpotRef(msgspec.Struct, frozen=True):
    """One incarnation of a Spot."""

    spot_id: Annotated[str, TEXT8]
    object_generation: Annotated[int, NZ64]


class ActorRouteFence(msgspec.Struct, frozen=True):
    """An Actor and the owner the sender believes it has."""

    actor_ref: ActorRef
    target_node_rid: Annotated[bytes, RID]
    target_node_generation: Annotated[int, NZ64]
    expected_authority_owner_generation: Annotated[int, NZ64]
    expected_owner_lease_generation: Annotated[int, NZ64]


class SpotRouteFence(msgspec.Struct, frozen=True):
    """A Spot and the owner the sender believes it has."""

    spot_ref: SpotRef
    target_node_rid: Annotated[bytes, RID]
    target_node_generation: Annotated[int, NZ64]
    expected_authority_owner_generation: Annotated[int, NZ64]
    expected_owner_lease_generation: Annotated[int, NZ64]


class ActorIdentity(msgspec.Struct, frozen=True):
    """An Actor that moves."""

    actor_id: Annotated[str, TEXT8]
    object_generation: Annotated[int, NZ64]
    expected_authority_owner_generation: Annotated[int, NZ64]


class UserSpotIdentity(msgspec.Struct, frozen=True):
    """A User Spot that moves."""

    spot_id: Annotated[str, TEXT8]
    object_generation: Annotated[int, NZ64]
    expected_authority_owner_generation: Annotated[int, NZ64]


class InstanceSpotIdentity(msgspec.Struct, frozen=True):
    """An Instance Spot that moves; it has no owner generation on the wire."""

    instance_type: Annotated[str, TEXT8]
    spot_id: Annotated[str, TEXT8]
    object_generation: Annotated[int, NZ64]


ObjectIdentity = ActorIdentity | UserSpotIdentity | InstanceSpotIdentity
"""There is no Entry Spot: it belongs to its node and never moves (R3.1)."""

OBJECT_IDENTITY: Union[ObjectIdentity] = Union(
    {
        (1, "actor"): ActorIdentity,
        (2, "userSpot"): UserSpotIdentity,
        (3, "instanceSpot"): InstanceSpotIdentity,
    }
)
RouteFence = ActorRouteFence | SpotRouteFence
ROUTE_FENCE: Union[RouteFence] = Union({(1, "actor"): ActorRouteFence, (2, "spot"): SpotRouteFence})
