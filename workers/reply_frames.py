"""Ends of requests in the forms they travel and wait in: ordinary reply, command 33, blob (B7.1).

Owns the conversions between them, and which typed error goes with which terminal result. Command 33 has no
room for an error's text: who has the whole error sends it as an ordinary reply in front.
"""

from __future__ import annotations

from sojourn import frames
from sojourn.control import ErrorBody, decode_error, encode_error
from sojourn.errors import ERROR_KINDS, ProtocolError, SojournError
from sojourn.frames import FLAG_ERROR, ReplyHeader
from sojourn.ids import NodeRun
from sojourn.rows import Owner
from sojourn.spots.codec import MSGPACK
from sojourn.wire import (
    CoordinatorFence,
    MaintenanceRelocationContext,
    OperationId,
    RelocationId,
    ReplyRelay,
    ReplyRelayAck,
    ReplyRelayStatus,
    RequestSourceFence,
    encode_command,
)
from sojourn.wire.fast_record import encode_payload
from sojourn.wire.results import FailureCode, TerminalResult
from sojourn.wire.store_envelope import StoredChunk, decode_stored_chunk, encode_stored_chunk
from sojourn.workers.stream import Piece

__all__ = [
    "ack_of",
    "blob_of_reply",
    "error_of",
    "relay_of",
    "reply_of_blob",
    "reply_of_relay",
    "reply_reference",
    "terminal_of",
]

_TERMINALS: dict[str, tuple[TerminalResult, FailureCode]] = {
    "NotFound": (TerminalResult.NOT_FOUND, FailureCode.REQUEST_TARGET_NOT_FOUND),
    "NotConfigured": (TerminalResult.NOT_FOUND, FailureCode.HANDLER_NOT_FOUND),
    "AlreadyExists": (TerminalResult.CONFLICT, FailureCode.ACTOR_ALREADY_EXISTS),
    "TypeMismatch": (TerminalResult.CONFLICT, FailureCode.ACTOR_TYPE_MISMATCH),
    "Rejected": (TerminalResult.REJECTED, FailureCode.REQUEST_REJECTED),
    "Unavailable": (TerminalResult.NOT_CONNECTED, FailureCode.NONE),
    "DeadlineExceeded": (TerminalResult.TIMED_OUT, FailureCode.NONE),
    "ShuttingDown": (TerminalResult.TERMINATED, FailureCode.NONE),
    "InvalidOperation": (TerminalResult.INVALID_STATE, FailureCode.NONE),
    "ProtocolError": (TerminalResult.PROTOCOL_ERROR, FailureCode.REQUEST_PROTOCOL_ERROR),
    "DataLost": (TerminalResult.INTERNAL_ERROR, FailureCode.RELOCATION_DATA_LOST),
}
_FAILED = (TerminalResult.INTERNAL_ERROR, FailureCode.REQUEST_FAILED)
_KIND_OF_CODE = {
    FailureCode.ACTOR_ALREADY_EXISTS: "AlreadyExists",
    FailureCode.ACTOR_TYPE_MISMATCH: "TypeMismatch",
    FailureCode.SPOT_TYPE_MISMATCH: "TypeMismatch",
    FailureCode.HANDLER_NOT_FOUND: "NotConfigured",
    FailureCode.ROUTE_HANDLER_NOT_FOUND: "NotConfigured",
    FailureCode.ACTOR_DISPATCH_HANDLER_NOT_FOUND: "NotConfigured",
    FailureCode.ROUTE_NOT_CONNECTED: "Unavailable",
    FailureCode.WORKER_TIMED_OUT: "DeadlineExceeded",
    FailureCode.SPOT_MOVING: "Unavailable",
    FailureCode.RELOCATION_DATA_LOST: "DataLost",
}
_KIND_OF_RESULT = {
    TerminalResult.TIMED_OUT: "DeadlineExceeded",
    TerminalResult.NOT_FOUND: "NotFound",
    TerminalResult.TERMINATED: "ShuttingDown",
    TerminalResult.PROTOCOL_ERROR: "ProtocolError",
    TerminalResult.INTERNAL_ERROR: "InternalFailure",
    TerminalResult.REJECTED: "Rejected",
    TerminalResult.CONFLICT: "InvalidOperation",
    TerminalResult.BUSY: "Unavailable",
    TerminalResult.NOT_CONNECTED: "Unavailable",
    TerminalResult.INVALID_ARGUMENT: "InvalidOperation",
    TerminalResult.INVALID_STATE: "InvalidOperation",
    TerminalResult.NOT_SUPPORTED: "NotConfigured",
    TerminalResult.BACKPRESSURED: "Unavailable",
}
_NO_RESULT = encode_payload("reply", MSGPACK, b"\xc0")
"""Result octets for an `ok` without a payload."""


def terminal_of(kind: str) -> tuple[TerminalResult, FailureCode]:
    """Terminal result and failure code of an error kind (B3.3)."""
    return _TERMINALS.get(kind, _FAILED)


def error_of(result: TerminalResult, code: FailureCode, operation: str) -> SojournError:
    """The typed error of a terminal that is not `ok`; `operation` is the operation id for people."""
    kind = _KIND_OF_CODE.get(code) or _KIND_OF_RESULT[result]
    reason = code.name if code is not FailureCode.NONE else result.name
    text = f"the request ended as {reason.lower()} on the node its object had moved to; its text was lost"
    applied = "unknown" if kind == "Unavailable" else None
    return ERROR_KINDS[kind](text, operation_id=operation, applied=applied)


def reply_reference(generation: int, high: int, low: int) -> str:
    """Where the Relocation Store keeps the reply to a request of a run of this generation."""
    return f"reply:{generation:016x}:{high:016x}{low:016x}"


def blob_of_reply(body: bytes) -> bytes:
    """What is stored of an ordinary reply: the whole frame body in a checked envelope (ZLTC, order 0)."""
    return encode_stored_chunk(StoredChunk(0, body))


def reply_of_blob(blob: bytes) -> bytes:
    """The reply frame body inside a blob.

    Raises:
        ProtocolError: damaged, or not a reply.
    """
    body = decode_stored_chunk(blob).data
    if not body or body[0] != frames.KIND_REPLY:
        raise ProtocolError("a stored reply is none")
    return body


def relay_of(body: bytes, header: ReplyHeader, context: MaintenanceRelocationContext) -> list[bytes]:
    """The parts of command 33 for a reply frame body. The result octets of a reply are an application payload
    already."""
    result, code = TerminalResult.OK, FailureCode.NONE
    if header.flags & FLAG_ERROR:
        result, code = terminal_of(decode_error(memoryview(body)[header.body_at :]).kind)
    parts = encode_command(
        ReplyRelay(
            operation_id=OperationId(header.operation_high, header.operation_low),
            reply_route_id=header.reply_route,
            context=context,
            terminal_result=result,
            failure_code=code,
        )
    )
    if result is TerminalResult.OK:
        parts.append(body[header.body_at :])
    return parts


def reply_of_relay(command: ReplyRelay, payload: Piece | None, run: NodeRun) -> bytes:
    """The reply frame body for this run's requester; `payload` is the second part of command 33."""
    operation = command.operation_id
    if command.terminal_result is TerminalResult.OK:
        flags, result = 0, _NO_RESULT if payload is None else bytes(payload)
    else:
        name = f"{operation.high:016x}{operation.low:016x}"
        error = error_of(command.terminal_result, command.failure_code, name)
        flags, result = FLAG_ERROR, encode_error(ErrorBody.of(error))
    return frames.reply_frame(
        flags, command.reply_route_id, operation.high, operation.low, run.rid, run.generation, result
    )


def ack_of(command: ReplyRelay, sender: NodeRun, owner: Owner, status: ReplyRelayStatus) -> list[bytes]:
    """Command 46 for a 33 from `sender`; `owner` is the requester's run and lease.

    A cold activation has no relocation identity: the operation id and the owner's fence stand for it.
    """
    context = command.context
    if isinstance(context, MaintenanceRelocationContext):
        relocation = context.relocation_identity.relocation_id
        fence = context.relocation_identity.coordinator_fence
    else:
        named = context.completion.generation_fence
        relocation = RelocationId(command.operation_id.high, command.operation_id.low)
        fence = CoordinatorFence(
            named.owner_id, named.lease_generation, sender.rid, sender.generation, named.store_version
        )
    return encode_command(
        ReplyRelayAck(
            relocation_id=relocation,
            coordinator_fence=fence,
            operation_id=command.operation_id,
            reply_route_id=command.reply_route_id,
            request_source_fence=RequestSourceFence(
                owner.owner_id, owner.lease_generation, owner.rid, owner.node_generation
            ),
            status=status,
        )
    )
