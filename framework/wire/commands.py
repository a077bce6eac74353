"""The commands of relocation, one structure each: 30, 31, 34, 40, 42, 43, 44, 52 and 53.

Owns their fields and the roles they take. Every one is a single frame without flags. Framing is
`command_frame`'s; the commands that are not part of a move proper stand in `companion_commands`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from sojourn.wire.blocks import (
    OBJECT_IDENTITY,
    SOURCE_ROLE,
    TARGET_ROLE,
    ActorRef,
    ActorRouteFence,
    CoordinatorFence,
    ObjectIdentity,
    RelocationId,
    RelocationIdentity,
    Role,
    TargetFence,
)
from sojourn.wire.cursor import Buffer
from sojourn.wire.errors import Word
from sojourn.wire.primitives import (
    CHUNK_BLOB_BYTES_MAX,
    I64,
    LOGICAL_LENGTH,
    NZ64,
    ORDINAL,
    RID,
    TEXT8,
    U32,
    Blob,
    Enumeration,
)
from sojourn.wire.record import RawRecord
from sojourn.wire.results import FAILURE_CODE_NOT_NONE, FailureCode
from sojourn.wire.structure import Problem, Union, WireName

__all__ = [
    "RelocationCutover",
    "RelocationData",
    "RelocationFailed",
    "RelocationPrepare",
    "RelocationReady",
    "RelocationState",
    "RouteAbort",
    "RouteCommit",
    "RouteUpdate",
    "SessionRelocationRoute",
    "SessionRelocationSeal",
    "SessionRelocationSealed",
]

Identity = Annotated[RelocationIdentity, WireName("relocationIdentity")]
Object = Annotated[ObjectIdentity, OBJECT_IDENTITY]
SenderIsSource = Annotated[Role, SOURCE_ROLE]
SenderIsTarget = Annotated[Role, TARGET_ROLE]


class RelocationReady(msgspec.Struct, frozen=True, kw_only=True):
    """30, target to source, reply to 40: the relay may begin."""

    COMMAND: ClassVar[int] = 30
    identity: Identity
    target: TargetFence
    object: Object
    sender_role: SenderIsTarget = Role.TARGET


class RelocationData(msgspec.Struct, frozen=True, kw_only=True):
    """31, source to target, one way: one message accepted after capture."""

    COMMAND: ClassVar[int] = 31
    identity: Identity
    sender_role: SenderIsSource = Role.SOURCE
    object: Object
    record: Annotated[bytes, RawRecord(), WireName("frozenRecord")]
    """The frozen record's bytes, checked when decoded, to the end of the frame."""


class RelocationCutover(msgspec.Struct, frozen=True, kw_only=True):
    """34, source to target, one way: everything before the boundary was relayed."""

    COMMAND: ClassVar[int] = 34
    identity: Identity
    sender_role: SenderIsSource = Role.SOURCE
    object: Object
    boundary_record_count: Annotated[int, ORDINAL]
    boundary_checksum_crc32c: Annotated[int, U32]
    """CRC-32C of the relayed frozen records in send order, joined; 0 for none."""


class RelocationPrepare(msgspec.Struct, frozen=True, kw_only=True):
    """40, source to target, request: an envelope of this length and checksum follows."""

    COMMAND: ClassVar[int] = 40
    identity: Identity
    target: TargetFence
    initiator_role: SenderIsSource = Role.SOURCE
    object: Object
    source_node_rid: Annotated[bytes, RID]
    source_node_generation: Annotated[int, NZ64]
    payload_total_length: Annotated[int, LOGICAL_LENGTH]
    payload_chunk_count: Annotated[int, U32]
    payload_checksum_crc32c: Annotated[int, U32]
    application_version: Annotated[int, I64]


class SessionRelocationSeal(msgspec.Struct, frozen=True, kw_only=True):
    """42, source to session owner, request: hold the session's messages."""

    COMMAND: ClassVar[int] = 42
    relocation_id: RelocationId
    coordinator_fence: CoordinatorFence
    sender_role: SenderIsSource = Role.SOURCE
    actor_route_fence: ActorRouteFence
    """The Actor at the source."""
    session_owner_node_rid: Annotated[bytes, RID]
    session_owner_node_generation: Annotated[int, NZ64]
    session_owner_id: Annotated[str, TEXT8]
    session_owner_lease_generation: Annotated[int, NZ64]
    session_rid: Annotated[bytes, RID]
    binding_generation: Annotated[int, NZ64]


class SessionRelocationSealed(msgspec.Struct, frozen=True, kw_only=True):
    """43, session owner to source, reply to 42: they are held."""

    COMMAND: ClassVar[int] = 43
    relocation_id: RelocationId
    coordinator_fence: CoordinatorFence
    actor_route_fence: ActorRouteFence
    session_owner_node_rid: Annotated[bytes, RID]
    session_owner_node_generation: Annotated[int, NZ64]
    session_owner_id: Annotated[str, TEXT8]
    session_owner_lease_generation: Annotated[int, NZ64]
    session_rid: Annotated[bytes, RID]
    binding_generation: Annotated[int, NZ64]


class RouteCommit(msgspec.Struct, frozen=True):
    """The Actor has a new owner; sent by the target."""

    previous_authority_owner_generation: Annotated[int, NZ64]
    target_authority_owner_generation: Annotated[int, NZ64]
    target_node_rid: Annotated[bytes, RID]
    target_node_generation: Annotated[int, NZ64]
    target_owner_lease_generation: Annotated[int, NZ64]


class RouteAbort(msgspec.Struct, frozen=True):
    """The Actor kept its owner; sent by the source."""

    current_authority_owner_generation: Annotated[int, NZ64]


RouteUpdate = RouteCommit | RouteAbort
ROUTE_UPDATE: Union[RouteUpdate] = Union({(1, "commit"): RouteCommit, (2, "abort"): RouteAbort})
_SOURCE_OR_TARGET = Enumeration(
    Role, allowed=frozenset({Role.SOURCE, Role.TARGET}), forbidden=Word.WRONG_ROLE
)


class SessionRelocationRoute(msgspec.Struct, frozen=True, kw_only=True):
    """44, one way: switch the session's route and let its messages go on."""

    COMMAND: ClassVar[int] = 44
    relocation_id: RelocationId
    coordinator_fence: CoordinatorFence
    sender_role: Annotated[Role, _SOURCE_OR_TARGET]
    actor_ref: ActorRef
    session_owner_node_rid: Annotated[bytes, RID]
    session_owner_node_generation: Annotated[int, NZ64]
    session_owner_id: Annotated[str, TEXT8]
    session_owner_lease_generation: Annotated[int, NZ64]
    session_rid: Annotated[bytes, RID]
    binding_generation: Annotated[int, NZ64]
    route_update: Annotated[RouteUpdate, ROUTE_UPDATE]

    def wire_problem(self) -> Problem | None:
        commit = isinstance(self.route_update, RouteCommit)
        if commit == (self.sender_role == Role.TARGET):
            return None
        detail = "commit comes from the target" if commit else "abort comes from the source"
        return Problem(Word.WRONG_ROLE, "sender_role", detail)


class RelocationState(msgspec.Struct, frozen=True, kw_only=True):
    """52, source to target, one way: one chunk of the envelope."""

    COMMAND: ClassVar[int] = 52
    identity: Identity
    sender_role: SenderIsSource = Role.SOURCE
    object: Object
    chunk_ordinal: Annotated[int, U32]
    chunk_data: Annotated[Buffer, Blob(4, CHUNK_BLOB_BYTES_MAX, by_reference=True)]
    """At most 64 MiB; decoded it is a slice of the frame."""


class RelocationFailed(msgspec.Struct, frozen=True, kw_only=True):
    """53, target to source, reply to 40: this attempt is over."""

    COMMAND: ClassVar[int] = 53
    identity: Identity
    target: TargetFence
    object: Object
    sender_role: SenderIsTarget = Role.TARGET
    failure_code: Annotated[FailureCode, FAILURE_CODE_NOT_NONE]
