"""The bodies of frozen records, one structure per layout, and the unions inside them.

Owns fields 8 of a frozen record. Which body belongs to which kind of record stands in `record`.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from sojourn.wire.blocks import (
    OBJECT_IDENTITY,
    ROLE,
    ActorRef,
    ActorRouteFence,
    ObjectIdentity,
    Phase,
    RelocationId,
    Role,
    SpotRef,
    SpotRouteFence,
)
from sojourn.wire.payload import APPLICATION_PAYLOAD, ApplicationPayload
from sojourn.wire.primitives import BOOL8, NZ64, RID, TEXT8, TEXT16, U16, Enumeration
from sojourn.wire.results import FAILURE_CODE, TERMINAL_RESULT, FailureCode, TerminalResult, result_problem
from sojourn.wire.structure import Optional, Problem, Union, block

__all__ = [
    "ACTOR_CONTROL",
    "INSTANCE_ROUTE",
    "SEND_READY_DESTINATION",
    "ActorBody",
    "ActorControl",
    "ActorCreated",
    "ActorDestination",
    "ActorDestroyed",
    "ActorDisconnected",
    "ActorJoined",
    "ActorLeft",
    "BoundSessionDestination",
    "ChannelBody",
    "ChannelDestination",
    "ColdActivationRoute",
    "Completion",
    "InnerOperation",
    "InstanceActivation",
    "InstanceRoute",
    "Membership",
    "MulticastBody",
    "NodeBody",
    "NodeDestination",
    "ReadyRoute",
    "RelocationControl",
    "SendReady",
    "SendReadyDestination",
    "SpotBody",
    "SpotControl",
    "SpotDestination",
]

Payload = Annotated[ApplicationPayload, APPLICATION_PAYLOAD]


class NodeBody(msgspec.Struct, frozen=True):
    """Body of nodeSend and nodeRequest."""

    payload: Payload


class ChannelBody(msgspec.Struct, frozen=True):
    """Body of channelSend and channelRequest."""

    channel_name: Annotated[str, TEXT8]
    payload: Payload


class SpotBody(msgspec.Struct, frozen=True):
    """Body of spotSend and spotRequest."""

    spot_route_fence: SpotRouteFence
    payload: Payload


class MulticastBody(msgspec.Struct, frozen=True):
    """Body of spotMulticast."""

    channel_name: Annotated[str, TEXT8]
    topic: Annotated[str, TEXT8]
    payload: Payload


class ActorBody(msgspec.Struct, frozen=True):
    """Body of actorSend and actorRequest."""

    actor_route_fence: ActorRouteFence
    payload: Payload


class Membership(msgspec.Struct, frozen=True):
    """An Actor in a Spot."""

    actor_ref: ActorRef
    spot_ref: SpotRef


class ActorCreated(msgspec.Struct, frozen=True):
    """A new Actor is in the Spot."""

    current: Membership


class ActorJoined(msgspec.Struct, frozen=True):
    """An Actor came into the Spot, perhaps from another one."""

    previous: Annotated[Membership | None, Optional(block(Membership), length=U16)]
    current: Membership


class ActorLeft(msgspec.Struct, frozen=True):
    """An Actor went to another Spot."""

    previous: Membership
    current: Membership


class ActorDisconnected(msgspec.Struct, frozen=True):
    """An Actor's session went away."""

    current: Membership


class ActorDestroyed(msgspec.Struct, frozen=True):
    """An Actor ended."""

    previous: Membership


ActorControl = ActorCreated | ActorJoined | ActorLeft | ActorDisconnected | ActorDestroyed
ACTOR_CONTROL: Union[ActorControl] = Union(
    {
        (1, "created"): ActorCreated,
        (2, "joined"): ActorJoined,
        (3, "left"): ActorLeft,
        (4, "disconnected"): ActorDisconnected,
        (5, "destroyed"): ActorDestroyed,
    }
)


class SpotControl(msgspec.Struct, frozen=True):
    """Body of spotControl."""

    actor_control: Annotated[ActorControl, ACTOR_CONTROL]


class Completion(msgspec.Struct, frozen=True):
    """Body of completion: how an operation ended."""

    terminal_result: Annotated[TerminalResult, TERMINAL_RESULT]
    failure_code: Annotated[FailureCode, FAILURE_CODE]
    payload: Annotated[ApplicationPayload | None, Optional(APPLICATION_PAYLOAD, flag="hasPayload")]

    def wire_problem(self) -> Problem | None:
        return result_problem(self.terminal_result, self.failure_code, has_payload=self.payload is not None)


class NodeDestination(msgspec.Struct, frozen=True):
    """A node that can be sent to again."""

    node_rid: Annotated[bytes, RID]


class ChannelDestination(msgspec.Struct, frozen=True):
    """A channel that can be sent to again."""

    channel_name: Annotated[str, TEXT8]


class SpotDestination(msgspec.Struct, frozen=True):
    """A Spot that can be sent to again."""

    spot_route_fence: SpotRouteFence


class ActorDestination(msgspec.Struct, frozen=True):
    """An Actor that can be sent to again."""

    actor_route_fence: ActorRouteFence


class BoundSessionDestination(msgspec.Struct, frozen=True):
    """An Actor's session that can be sent to again."""

    actor_route_fence: ActorRouteFence
    binding_generation: Annotated[int, NZ64]


SendReadyDestination = (
    NodeDestination | ChannelDestination | SpotDestination | ActorDestination | BoundSessionDestination
)
SEND_READY_DESTINATION: Union[SendReadyDestination] = Union(
    {
        (1, "node"): NodeDestination,
        (2, "channel"): ChannelDestination,
        (3, "spot"): SpotDestination,
        (4, "actor"): ActorDestination,
        (5, "boundSession"): BoundSessionDestination,
    }
)


class SendReady(msgspec.Struct, frozen=True):
    """Body of sendReady."""

    destination: Annotated[SendReadyDestination, SEND_READY_DESTINATION]


class RelocationControl(msgspec.Struct, frozen=True):
    """Body of relocationControl."""

    phase: Annotated[Phase, Enumeration(Phase)]
    role: Annotated[Role, ROLE]
    relocation_id: RelocationId
    object: Annotated[ObjectIdentity, OBJECT_IDENTITY]
    terminal_result: Annotated[TerminalResult, TERMINAL_RESULT]
    failure_code: Annotated[FailureCode, FAILURE_CODE]

    def wire_problem(self) -> Problem | None:
        return result_problem(self.terminal_result, self.failure_code, has_payload=False)


class ReadyRoute(msgspec.Struct, frozen=True):
    """An Instance Spot that exists."""

    target_node_rid: Annotated[bytes, RID]
    target_node_generation: Annotated[int, NZ64]
    target_spot_id: Annotated[str, TEXT8]
    object_generation: Annotated[int, NZ64]
    owner_id: Annotated[str, TEXT8]
    authority_owner_generation: Annotated[int, NZ64]
    lease_generation: Annotated[int, NZ64]
    store_version: Annotated[str, TEXT16]
    instance_intent: Annotated[bool, BOOL8]
    deadline_unix_ms: Annotated[int, NZ64]


class ColdActivationRoute(msgspec.Struct, frozen=True):
    """An Instance Spot to be created at a node."""

    target_node_rid: Annotated[bytes, RID]
    target_node_generation: Annotated[int, NZ64]
    target_spot_id: Annotated[str, TEXT8]
    target_mesh_name: Annotated[str, TEXT8]
    stable_type: Annotated[str, TEXT8]
    target_descriptor_version: Annotated[str, TEXT8]
    deadline_unix_ms: Annotated[int, NZ64]


InstanceRoute = ReadyRoute | ColdActivationRoute
INSTANCE_ROUTE: Union[InstanceRoute] = Union(
    {(1, "ready"): ReadyRoute, (2, "coldActivation"): ColdActivationRoute}
)


class InnerOperation(enum.IntEnum):
    """What an Instance Spot activation carries."""

    SEND = 1
    REQUEST = 2


class InstanceActivation(msgspec.Struct, frozen=True):
    """Body of instanceSpotActivation."""

    instance_route: Annotated[InstanceRoute, INSTANCE_ROUTE]
    source_node_generation: Annotated[int, NZ64]
    inner_operation: Annotated[InnerOperation, Enumeration(InnerOperation)]
    payload: Payload
