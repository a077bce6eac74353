"""The commands around a move: 20 and 28 (Actor Join), 33 and 46 (reply relay), 50 (Message Follow).

Owns their fields. 20, 28 and 33 may have an application payload as a second part. Framing is
`command_frame`'s.
"""

from __future__ import annotations

import enum
from typing import Annotated, ClassVar

import msgspec
from sojourn.wire.blocks import (
    ROUTE_FENCE,
    ActorRouteFence,
    CoordinatorFence,
    OperationId,
    RelocationId,
    RelocationIdentity,
    RequestSourceFence,
    RouteFence,
    SpotRef,
    SpotRouteFence,
)
from sojourn.wire.errors import Word
from sojourn.wire.payload import APPLICATION_PAYLOAD, ApplicationPayload
from sojourn.wire.primitives import (
    BOOL8,
    CHUNK_BLOB_BYTES_MAX,
    NZ64,
    TEXT8,
    TEXT16,
    U16,
    U32,
    U64,
    Enumeration,
    Number,
)
from sojourn.wire.results import FAILURE_CODE, TERMINAL_RESULT, FailureCode, TerminalResult, result_problem
from sojourn.wire.structure import ExtraPart, Optional, Problem, Union, VersionedEnvelope, WireName, block

__all__ = [
    "ActorJoinReply",
    "ActorJoinRequest",
    "ColdActivationContext",
    "GenerationFence",
    "JoinAccepted",
    "JoinRejected",
    "MaintenanceRelocationContext",
    "MessageFollow",
    "MessageFollowEnvelope",
    "ReplyRelay",
    "ReplyRelayAck",
    "ReplyRelayStatus",
]

FOLLOW_BYTES_MAX = 16 * 2**20
"""Longest body of command 50."""

PayloadPart = Annotated[ApplicationPayload | None, ExtraPart(APPLICATION_PAYLOAD)]
Terminal = Annotated[TerminalResult, TERMINAL_RESULT]
Failure = Annotated[FailureCode, FAILURE_CODE]


class JoinAccepted(msgspec.Struct, frozen=True):
    """The Actor is in the Spot."""

    spot_ref: SpotRef
    membership_epoch: Annotated[int, NZ64]
    receive_chunk_limit_bytes: Annotated[int, Number(4, 0, CHUNK_BLOB_BYTES_MAX)]
    """Longest chunk the target takes; 0 = not announced."""


class JoinRejected(msgspec.Struct, frozen=True):
    """The Spot refused; perhaps it names another one."""

    spot_ref: Annotated[SpotRef | None, Optional(block(SpotRef), length=U16)]


JoinResult = JoinAccepted | JoinRejected
JOIN_RESULT: Union[JoinResult] = Union(
    {(0, "accepted"): JoinAccepted, (1, "rejected"): JoinRejected}, tag=U32
)


class ActorJoinReply(msgspec.Struct, frozen=True, kw_only=True):
    """20, the reply to 28. Another operation's tail never comes: the caller's table tells which to expect."""

    COMMAND: ClassVar[int] = 20
    correlation: Annotated[int, NZ64]
    terminal_result: Terminal
    failure_code: Failure
    join_result: Annotated[JoinResult, JOIN_RESULT]
    payload: PayloadPart = None

    def wire_problem(self) -> Problem | None:
        return result_problem(self.terminal_result, self.failure_code, has_payload=self.payload is not None)


class ActorJoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """28, request: the Actor wants into the Spot."""

    COMMAND: ClassVar[int] = 28
    correlation: Annotated[int, NZ64]
    actor_route_fence: ActorRouteFence
    entry: Annotated[bool, BOOL8]
    spot_route_fence: SpotRouteFence
    payload: PayloadPart = None


class GenerationFence(msgspec.Struct, frozen=True):
    """The owner of a cold-activated Instance Spot."""

    object_generation: Annotated[int, NZ64]
    owner_id: Annotated[str, TEXT8]
    authority_owner_generation: Annotated[int, NZ64]
    lease_generation: Annotated[int, NZ64]
    store_version: Annotated[str, TEXT16]


class ReadyBarrier(msgspec.Struct, frozen=True):
    """The activation is done."""

    generation_fence: GenerationFence


class ActivationFailure(msgspec.Struct, frozen=True):
    """The activation failed."""

    generation_fence: GenerationFence


ActivationCompletion = ReadyBarrier | ActivationFailure
ACTIVATION_COMPLETION: Union[ActivationCompletion] = Union(
    {(1, "readyBarrier"): ReadyBarrier, (2, "activationFailure"): ActivationFailure}
)


class ColdActivationContext(msgspec.Struct, frozen=True):
    """The reply belongs to a cold activation."""

    completion: Annotated[ActivationCompletion, ACTIVATION_COMPLETION]


class MaintenanceRelocationContext(msgspec.Struct, frozen=True):
    """The reply belongs to a request that moved."""

    relocation_identity: RelocationIdentity
    participant_id: Annotated[int, NZ64]
    sequence: Annotated[int, NZ64]
    """The order of the request among the saved work."""


ReplyContext = ColdActivationContext | MaintenanceRelocationContext
REPLY_CONTEXT: Union[ReplyContext] = Union(
    {(1, "coldActivation"): ColdActivationContext, (2, "maintenanceRelocation"): MaintenanceRelocationContext}
)


class ReplyRelay(msgspec.Struct, frozen=True, kw_only=True):
    """33: the result of a request that finished elsewhere."""

    COMMAND: ClassVar[int] = 33
    operation_id: OperationId
    reply_route_id: Annotated[int, NZ64]
    context: Annotated[ReplyContext, REPLY_CONTEXT]
    terminal_result: Terminal
    failure_code: Failure
    payload: PayloadPart = None

    def wire_problem(self) -> Problem | None:
        return result_problem(self.terminal_result, self.failure_code, has_payload=self.payload is not None)


class ReplyRelayStatus(enum.IntEnum):
    """What the receiver of 33 did with it."""

    TERMINAL_RECEIVED = 1
    ALREADY_TERMINAL = 2


class ReplyRelayAck(msgspec.Struct, frozen=True, kw_only=True):
    """46: the answer to 33."""

    COMMAND: ClassVar[int] = 46
    relocation_id: RelocationId
    coordinator_fence: CoordinatorFence
    operation_id: OperationId
    reply_route_id: Annotated[int, NZ64]
    request_source_fence: RequestSourceFence
    status: Annotated[ReplyRelayStatus, Enumeration(ReplyRelayStatus)]


class MessageFollowEnvelope(msgspec.Struct, frozen=True):
    """Where a message was sent, where it has to go, and how far it came."""

    source_route: Annotated[RouteFence, ROUTE_FENCE]
    target_route: Annotated[RouteFence, ROUTE_FENCE]
    hop_count: Annotated[int, Number(1, 1, 8)]
    queued_messages: Annotated[int, U32]
    """Saturating hint."""
    queued_bytes: Annotated[int, U32]
    """Saturating hint."""
    original_operation: Annotated[OperationId, WireName("originalOperationId")]
    original_reply_route_id: Annotated[int, U64]
    """0 = one way."""

    def wire_problem(self) -> Problem | None:
        source, target = self.source_route, self.target_route
        if type(source) is not type(target):
            return Problem(Word.INVALID_FIELD, "target_route", "another kind of object than the source route")
        if _ref(source) != _ref(target):
            return Problem(Word.INVALID_FIELD, "target_route", "another object than the source route")
        return None


def _ref(route: RouteFence) -> object:
    return route.actor_ref if isinstance(route, ActorRouteFence) else route.spot_ref


class MessageFollow(msgspec.Struct, frozen=True, kw_only=True):
    """50: an owner that gave an object away names the way on."""

    COMMAND: ClassVar[int] = 50
    envelope: Annotated[
        MessageFollowEnvelope,
        VersionedEnvelope(block(MessageFollowEnvelope), length=Number(4, 0, FOLLOW_BYTES_MAX)),
    ]
