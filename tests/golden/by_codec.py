"""Values whose bytes the codec itself gave when the fixtures were made: every kind of record, further commands."""

from __future__ import annotations

from typing import Any

from sojourn import wire
from sojourn.wire.command_frame import command_to_json
from sojourn.wire.companion_commands import ActivationFailure
from sojourn.wire.record import FROZEN_RECORD
from sojourn.wire.record_bodies import (
    ActorJoined,
    ChannelBody,
    ColdActivationRoute,
    Completion,
    InnerOperation,
    InstanceActivation,
    Membership,
    MulticastBody,
    NodeBody,
    ReadyRoute,
    RelocationControl,
    SendReady,
    SpotControl,
    SpotDestination,
)

__all__ = ["further_commands", "records"]

PAYLOAD = wire.ApplicationPayload("Move", "application/x-sojourn+msgpack", b"\x81\xa1x\x01")
ACTOR = wire.ActorRef("player-17", 10)
SPOT = wire.SpotRef("lobby-7", 12)
ACTOR_FENCE = wire.ActorRouteFence(ACTOR, b"n1", 6, 11, 5)
SPOT_FENCE = wire.SpotRouteFence(SPOT, b"n1", 6, 13, 5)
RELOCATION = wire.RelocationId(1, 2)
COORDINATOR = wire.CoordinatorFence("owner-1", 5, b"n1", 6, "v7")
DEADLINE = (wire.MetadataEntry("deadline-unix-ms", "1764580000000"), wire.MetadataEntry("trace", ""))

NODE = wire.NodeSource(b"n3", 4, "o3", 5)
SPOT_SOURCE = wire.SpotSource(b"n3", 4, "o3", 5, "lobby-7")
ACTOR_SOURCE = wire.ActorSource(b"n3", 4, "o3", 5, ACTOR)
SESSION_SOURCE = wire.BoundSessionSource(b"n3", 4, "o3", 5, ACTOR, b"\x00s", 2, 3)

READY = ReadyRoute(b"n1", 6, "lobby-7", 12, "owner-1", 13, 5, "v7", True, 1_764_580_000_000)
COLD = ColdActivationRoute(b"n1", 6, "lobby-7", "mesh", "Lobby", "3", 1_764_580_000_000)


def _record(
    kind: int, source: wire.RecordSource, operation: int, body: Any, **more: Any
) -> wire.FrozenRecord:
    has_id = more.get("has_id", operation != 0)
    return wire.FrozenRecord(
        wire.RecordKind(kind),
        source,
        more.get("metadata"),
        wire.OperationIdOrZero(0x0A, 0x0B) if has_id else wire.OperationIdOrZero(0, 0),
        wire.OperationKind(operation),
        7 if operation in (1, 2, 3, 4, 12) else None,
        body,
    )


def _records() -> list[wire.FrozenRecord]:
    ok = Completion(wire.TerminalResult.OK, wire.FailureCode.NONE, PAYLOAD)
    conflict = Completion(wire.TerminalResult.CONFLICT, wire.FailureCode.SPOT_MOVING, None)
    control = RelocationControl(
        wire.Phase.PREPARED,
        wire.Role.TARGET,
        RELOCATION,
        wire.InstanceSpotIdentity("Lobby", "lobby-7", 12),
        wire.TerminalResult.TIMED_OUT,
        wire.FailureCode.NONE,
    )
    joined = SpotControl(ActorJoined(None, Membership(ACTOR, SPOT)))
    moved = SpotControl(ActorJoined(Membership(ACTOR, SPOT), Membership(ACTOR, wire.SpotRef("arena", 14))))
    return [
        _record(1, NODE, 0, NodeBody(PAYLOAD)),
        _record(2, SPOT_SOURCE, 1, NodeBody(PAYLOAD), metadata=DEADLINE),
        _record(3, ACTOR_SOURCE, 0, ChannelBody("news", PAYLOAD)),
        _record(4, SESSION_SOURCE, 2, ChannelBody("news", PAYLOAD), metadata=()),
        _record(5, NODE, 0, wire.SpotBody(SPOT_FENCE, PAYLOAD), has_id=True),
        _record(6, ACTOR_SOURCE, 3, wire.SpotBody(SPOT_FENCE, PAYLOAD), metadata=DEADLINE),
        _record(7, NODE, 0, MulticastBody("news", "sport", PAYLOAD)),
        _record(8, NODE, 7, joined),
        _record(8, NODE, 0, moved),
        _record(9, SESSION_SOURCE, 0, wire.ActorBody(ACTOR_FENCE, PAYLOAD), has_id=True),
        _record(10, SPOT_SOURCE, 4, wire.ActorBody(ACTOR_FENCE, PAYLOAD), metadata=DEADLINE),
        _record(11, NODE, 4, ok),
        _record(11, NODE, 15, conflict),
        _record(12, NODE, 0, SendReady(SpotDestination(SPOT_FENCE))),
        _record(13, NODE, 0, control),
        _record(14, NODE, 0, InstanceActivation(COLD, 4, InnerOperation.SEND, PAYLOAD)),
        _record(14, NODE, 12, InstanceActivation(READY, 4, InnerOperation.REQUEST, PAYLOAD)),
    ]


def _commands() -> list[wire.Command]:
    session: dict[str, Any] = {
        "relocation_id": RELOCATION,
        "coordinator_fence": COORDINATOR,
        "session_owner_node_rid": b"gate",
        "session_owner_node_generation": 1,
        "session_owner_id": "owner-4",
        "session_owner_lease_generation": 2,
        "session_rid": b"\x00session",
        "binding_generation": 3,
    }
    identity = wire.RelocationIdentity(RELOCATION, 3, COORDINATOR)
    generation = wire.GenerationFence(12, "owner-1", 13, 5, "v7")
    ok: Any = {"terminal_result": wire.TerminalResult.OK, "failure_code": wire.FailureCode.NONE}
    target, source = wire.Role.TARGET, wire.Role.SOURCE
    commit = wire.RouteCommit(11, 12, b"n2", 8, 9)
    rejected: Any = {"terminal_result": wire.TerminalResult.REJECTED, "failure_code": wire.FailureCode(22)}
    failed: Any = {"terminal_result": wire.TerminalResult.INTERNAL_ERROR, "failure_code": wire.FailureCode(5)}
    lost: Any = {"operation_id": wire.OperationId(0, 9), "reply_route_id": 7}
    return [
        wire.ActorJoinReply(
            correlation=1, join_result=wire.JoinAccepted(SPOT, 2, 262_144), payload=PAYLOAD, **ok
        ),
        wire.ActorJoinReply(correlation=1, join_result=wire.JoinRejected(None), **rejected),
        wire.ActorJoinReply(correlation=1, join_result=wire.JoinRejected(SPOT), **rejected),
        wire.ActorJoinRequest(
            correlation=1, actor_route_fence=ACTOR_FENCE, entry=False, spot_route_fence=SPOT_FENCE
        ),
        wire.ReplyRelay(
            context=wire.MaintenanceRelocationContext(identity, 1, 4), payload=PAYLOAD, **lost, **ok
        ),
        wire.ReplyRelay(context=wire.ColdActivationContext(ActivationFailure(generation)), **lost, **failed),
        wire.SessionRelocationSeal(actor_route_fence=ACTOR_FENCE, **session),
        wire.SessionRelocationSealed(actor_route_fence=ACTOR_FENCE, **session),
        wire.SessionRelocationRoute(sender_role=target, actor_ref=ACTOR, route_update=commit, **session),
        wire.SessionRelocationRoute(
            sender_role=source, actor_ref=ACTOR, route_update=wire.RouteAbort(11), **session
        ),
        wire.ReplyRelayAck(
            relocation_id=RELOCATION,
            coordinator_fence=COORDINATOR,
            request_source_fence=wire.RequestSourceFence("o3", 5, b"n3", 4),
            status=wire.ReplyRelayStatus.ALREADY_TERMINAL,
            **lost,
        ),
        wire.MessageFollow(
            envelope=wire.MessageFollowEnvelope(
                SPOT_FENCE,
                wire.SpotRouteFence(SPOT, b"n2", 8, 14, 9),
                8,
                2**32 - 1,
                0,
                wire.OperationId(0, 9),
                0,
            )
        ),
    ]


def records() -> list[dict[str, Any]]:
    """Every kind of frozen record."""
    return [
        {
            "name": f"{record.record_kind} {record.record_kind.name}",
            "bytes": wire.encode_frozen_record(record).hex(),
            "value": FROZEN_RECORD.to_json(record),
        }
        for record in _records()
    ]


def further_commands() -> list[dict[str, Any]]:
    """The commands that are not written by hand."""
    return [
        {
            "name": f"{command.COMMAND} {wire.command_name(type(command))}",
            "parts": [part.hex() for part in wire.encode_command(command)],
            "value": command_to_json(command),
        }
        for command in _commands()
    ]
