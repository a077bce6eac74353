"""One small example of every command that the tests of malformed input change, and the changing itself."""

from __future__ import annotations

import pytest
from sojourn import wire
from sojourn.wire.companion_commands import ReadyBarrier

__all__ = ["changed", "decode", "offsets_of", "refused", "refused_envelope"]

COORDINATOR = wire.CoordinatorFence("owner-1", 5, b"\x00node", 6, "v7")
IDENTITY = wire.RelocationIdentity(wire.RelocationId(1, 2), 3, COORDINATOR)
TARGET = wire.TargetFence(b"node-2", 8, "owner-2", 9)
ACTOR = wire.ActorIdentity("player-17", 10, 11)
FENCE = wire.ActorRouteFence(wire.ActorRef("player-17", 10), b"node-1", 6, 11, 5)
SPOT_FENCE = wire.SpotRouteFence(wire.SpotRef("player-17", 10), b"node-1", 6, 11, 5)
RECORD = (
    wire.encode_record_head(
        wire.encode_source_prefix(wire.NodeSource(b"node-3", 4, "owner-3", 5)), 1_764_580_000_000, 1, 2, 10, 5
    )
    + wire.encode_actor_fence("player-17", 10, b"node-1", 6, 11, 5)
    + wire.encode_payload("Move", "application/x-sojourn+msgpack", b"forward")
)
SESSION = {
    "session_owner_node_rid": b"gate",
    "session_owner_node_generation": 1,
    "session_owner_id": "owner-4",
    "session_owner_lease_generation": 2,
    "session_rid": b"session",
    "binding_generation": 3,
}

READY = wire.RelocationReady(identity=IDENTITY, target=TARGET, object=ACTOR)
FAILED = wire.RelocationFailed(
    identity=IDENTITY, target=TARGET, object=ACTOR, failure_code=wire.FailureCode.RELOCATION_DATA_LOST
)
DATA = wire.RelocationData(identity=IDENTITY, object=ACTOR, record=RECORD)
CUTOVER = wire.RelocationCutover(
    identity=IDENTITY, object=ACTOR, boundary_record_count=2, boundary_checksum_crc32c=7
)
PREPARE = wire.RelocationPrepare(
    identity=IDENTITY,
    target=TARGET,
    object=ACTOR,
    source_node_rid=b"node-1",
    source_node_generation=6,
    payload_total_length=78,
    payload_chunk_count=1,
    payload_checksum_crc32c=0xE3069283,
    application_version=1,
)
STATE = wire.RelocationState(identity=IDENTITY, object=ACTOR, chunk_ordinal=0, chunk_data=b"chunk")
ROUTE = wire.SessionRelocationRoute(
    relocation_id=IDENTITY.relocation_id,
    coordinator_fence=COORDINATOR,
    sender_role=wire.Role.TARGET,
    actor_ref=FENCE.actor_ref,
    route_update=wire.RouteCommit(1, 2, b"node-2", 8, 9),
    **SESSION,  # type: ignore[arg-type]
)
FOLLOW = wire.MessageFollow(
    envelope=wire.MessageFollowEnvelope(FENCE, FENCE, 1, 2, 3, wire.OperationId(0, 1), 0)
)
RELAY = wire.ReplyRelay(
    operation_id=wire.OperationId(0, 1),
    reply_route_id=1,
    context=wire.ColdActivationContext(ReadyBarrier(wire.GenerationFence(1, "o", 1, 1, "v"))),
    terminal_result=wire.TerminalResult.OK,
    failure_code=wire.FailureCode.NONE,
    payload=wire.ApplicationPayload("p", "c", b"x"),
)
JOIN_REPLY = wire.ActorJoinReply(
    correlation=1,
    terminal_result=wire.TerminalResult.OK,
    failure_code=wire.FailureCode.NONE,
    join_result=wire.JoinAccepted(wire.SpotRef("s", 1), 2, 262_144),
)
ENVELOPE = wire.Envelope(
    IDENTITY.relocation_id,
    ACTOR,
    1,
    (wire.ApplicationState(1, b"state"), wire.ApplicationState(2, b""), wire.ApplicationState(3, None)),
    (wire.SavedWork(1, 2, RECORD), wire.SavedWork(1, 4, RECORD)),
    (wire.TimerRegistration(1, "tick", "Tick", 100, wire.OverrunPolicy.SKIP_LATE_TICKS, 1, False, 0, 0, 5),),
    (wire.PendingTimerTick(1, 3, "tick", 1, 1, 5, 0),),
)


def decode(frame: bytes, *parts: bytes) -> wire.Command:
    """The command of a frame."""
    return wire.decode_command(frame, parts)


def offsets_of(value: wire.Command | wire.Envelope) -> dict[str, int]:
    """Field path to offset."""
    offsets: dict[str, int] = {}
    if isinstance(value, wire.Envelope):
        wire.decode_envelope(wire.encode_envelope(value), offsets)
    else:
        frame, *parts = wire.encode_command(value)
        wire.decode_command(frame, parts, offsets)
    return offsets


def changed(command: wire.Command, path: str, value: bytes) -> bytes:
    """The command's frame with other bytes at a field."""
    frame = wire.encode_command(command)[0]
    at = offsets_of(command)[path]
    return frame[:at] + value + frame[at + len(value) :]


def refused(frame: bytes, *parts: bytes) -> tuple[str, int, str]:
    """Word, offset and path with which a frame is refused."""
    with pytest.raises(wire.WireError) as caught:
        wire.decode_command(frame, parts)
    return caught.value.word, caught.value.offset, caught.value.path


def refused_envelope(data: bytes) -> tuple[str, int, str]:
    """Word, offset and path with which a stream is refused."""
    with pytest.raises(wire.WireError) as caught:
        wire.decode_envelope(data)
    return caught.value.word, caught.value.offset, caught.value.path
