"""Control messages between a supervisor and its workers (kind 4 on IPC).

Owns their fields and their MessagePack form. Requests carry a `call` number (per connection, per
direction); the answer repeats it. Everything else is one-way. Nothing here leaves the node.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from sojourn.errors import InternalFailure, SojournError

__all__ = [
    "Admission",
    "AskFigures",
    "AwaitBoundary",
    "BoundaryReached",
    "CallNode",
    "CallNodeResult",
    "Captured",
    "Control",
    "CreateObject",
    "Created",
    "DropObject",
    "ErrorBody",
    "Figures",
    "FirstHandled",
    "ForgetRequest",
    "Grant",
    "LogLine",
    "ObjectGone",
    "OpenObject",
    "OpenRequest",
    "Opened",
    "Ping",
    "Pong",
    "RegistryEntry",
    "RequestsLost",
    "Restore",
    "Restored",
    "SavedRequest",
    "Seal",
    "SealRefused",
    "Stop",
    "Stopped",
    "UnitMember",
    "Unseal",
    "Welcome",
    "WorkerFailed",
    "WorkerReady",
    "decode_control",
    "decode_error",
    "encode_control",
    "encode_error",
    "short_text",
]


MESSAGE_CHARACTERS_MAX = 2_000
TRACEBACK_CHARACTERS_MAX = 12_000
"""Longest texts of an error that travel, in characters; of a traceback the end is kept, which says most."""


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error on its way to another process: `sojourn.errors.error_from_fields(kind, fields)`."""

    kind: str
    fields: dict[str, Any]

    @classmethod
    def of(cls, error: BaseException) -> ErrorBody:
        """An error with texts short enough for any frame, whatever user code put into them.

        An exception that is no `SojournError` becomes InternalFailure.
        """
        if not isinstance(error, SojournError):
            error = InternalFailure(f"{type(error).__name__}: {error}")
        fields = {name: _text_of(value) for name, value in error.fields().items()}
        trace = fields["remote_traceback"]
        for name, value in fields.items():
            if value is not None and name != "remote_traceback":
                fields[name] = _valid(short_text(value))
        if trace is not None and len(trace) > TRACEBACK_CHARACTERS_MAX:
            trace = f"...{trace[-TRACEBACK_CHARACTERS_MAX:]}"
        fields["remote_traceback"] = None if trace is None else _valid(trace)
        return cls(error.kind, fields)


def _text_of(value: object) -> str | None:
    """A field of an error as text: user code may have put anything there, a reference for an id say."""
    if value is None or isinstance(value, str):
        return value
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"


def _valid(text: str) -> str:
    """Text that has a UTF-8 form: the name of a file in an error's text may hold half of a surrogate pair."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def short_text(text: str) -> str:
    """A text of an error as it travels: cut at `MESSAGE_CHARACTERS_MAX`, with its true length."""
    if len(text) <= MESSAGE_CHARACTERS_MAX:
        return text
    return f"{text[:MESSAGE_CHARACTERS_MAX]}... ({len(text)} characters)"


class OpenRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request that waits in a captured queue: who has to be told if nobody will ever run it."""

    rid: bytes
    generation: int
    reply_route: int
    operation_high: int
    operation_low: int


class RegistryEntry(msgspec.Struct, frozen=True):
    """One registered type, as workers report it: supervisors import no user code."""

    stable_type: str
    kind: int
    policy: str
    application_version: int
    has_admission: bool = False
    shares_turn: bool = False
    """A `SpotWide` User Spot: its members move with it (R3.3)."""


class _Control(msgspec.Struct, tag=True, array_like=True):
    pass


# supervisor -> worker


class Welcome(_Control):
    """First message to a worker: who its node is, and its options (`sojourn.options`, as builtins)."""

    rid: bytes
    generation: int
    owner_id: str
    lease_generation: int
    worker: int
    permits: int
    admission_deadline_ns: int
    options: dict[str, Any]


class CreateObject(_Control):
    """Make an instance, dispatch closed when `opened` is False; records that follow wait in its mailbox."""

    call: int
    key: bytes
    kind: int
    stable_type: str
    object_generation: int
    owner_generation: int
    opened: bool
    content_type: str = ""
    arguments: bytes = b""


class OpenObject(_Control):
    """Open dispatch of a created or restored object. Answered by `Opened` when `call` is not 0.

    `object_generation` is set (not 0) when the object was created before its row was written.
    """

    call: int
    key: bytes
    owner_generation: int
    handoff: int = 0
    object_generation: int = 0


class AwaitBoundary(_Control):
    """Tell when no turn of the object runs; it goes on serving (B8.12). Answered by `BoundaryReached`, at once
    when it is idle or not here."""

    call: int
    key: bytes


class UnitMember(msgspec.Struct, frozen=True, array_like=True):
    """A further participant of a unit (R3.3), as the rows that the move began with name it."""

    key: bytes
    stable_type: str
    object_generation: int
    owner_generation: int


class Seal(_Control):
    """End the running turn, stop dispatch and capture (R4.2.1). Answered by `Captured` or `SealRefused`.

    The envelope follows `Captured` in bulk frames of exactly `chunk_limit` bytes (the last may be shorter),
    so that each travels on as one chunk (R4.2.5) without being cut again. A running turn that has not ended
    after `wait_ms` (0 = no limit) ends the attempt: refused with `DeadlineExceeded`, the object serves on.
    `members` are the Actors that move with a `SpotWide` Spot; refused when they are not those it has.
    """

    call: int
    key: bytes
    handoff: int
    relocation_high: int
    relocation_low: int
    object_generation: int
    owner_generation: int
    chunk_limit: int = 262_144
    wait_ms: int = 0
    members: tuple[UnitMember, ...] = ()


class Unseal(_Control):
    """The handoff ended before its boundary: dispatch goes on from the captured queue (R4.2.8). `moved`: the owner was
    written under the next owner generation, and the other worker has ended since (B8.7)."""

    key: bytes
    handoff: int
    moved: bool = False


class DropObject(_Control):
    """Forget an object. `reason` is a B2.6 closing reason, or empty for an instance that never ran.

    `end_work`: of an object that arrived by a move and never opened, end the saved work with errors. Only
    with proof that the source is past its boundary: else the source restores and runs it (B8.15).
    """

    key: bytes
    reason: str
    handoff: int = 0
    end_work: bool = False


class Restore(_Control):
    """Build an object from an envelope; `length` bytes follow in bulk frames. Answered by `Restored`.

    The bulk frames arrive while chunks do; only the frame marked last says that the whole checksum matched,
    and nothing is decoded or built before it (R4.3.2). `DropObject` ends an assembly that did not.
    """

    call: int
    key: bytes
    handoff: int
    kind: int
    stable_type: str
    object_generation: int
    owner_generation: int
    length: int
    members: tuple[UnitMember, ...] = ()


class Admission(_Control):
    """Push the local admission deadline forward: ns of CLOCK_BOOTTIME past which no turn starts (B6.4)."""

    deadline_ns: int


class Grant(_Control):
    """Give back credit to the other side: `records` may be sent again, `octets` were taken over."""

    records: int
    octets: int


class RequestsLost(_Control):
    """Requests whose reply cannot come any more: `(reply_route, operation_low)` pairs and the typed error."""

    requests: list[tuple[int, int]]
    error: ErrorBody


class Ping(_Control):
    """Liveness check (B2.9)."""

    number: int


class AskFigures(_Control):
    """Ask for the worker's counters (B12.2). Answered by `Figures`."""

    call: int


class Stop(_Control):
    """Stop taking turns, run closing callbacks, exit; `timeout_ms` until the supervisor kills."""

    timeout_ms: int
    reason: str


class CallNodeResult(_Control):
    """Answer to `CallNode`: `value` is MessagePack, or `error`."""

    call: int
    value: bytes = b""
    error: ErrorBody | None = None


# worker -> supervisor


class WorkerReady(_Control):
    """The application is imported; what it can host."""

    worker: int
    pid: int
    application: str
    application_version: int
    registry: list[RegistryEntry]


class WorkerFailed(_Control):
    """The worker cannot start (application not importable, main guard missing, ...)."""

    worker: int
    error: ErrorBody


class Created(_Control):
    """Outcome of `CreateObject`."""

    call: int
    error: ErrorBody | None = None


class Opened(_Control):
    """Dispatch is open; `first_turn_ns` is CLOCK_MONOTONIC ns of the first turn after a handoff, 0 when none was
    waiting. With `error` it is not: the object is not here, or not in a state to be opened."""

    call: int
    handoff: int
    first_turn_ns: int
    error: ErrorBody | None = None


class BoundaryReached(_Control):
    """Answer to `AwaitBoundary`; the next turn may begin at once."""

    call: int


class Captured(_Control):
    """State, queue and timers are captured; `length` bytes of envelope follow in bulk frames.

    `sealed_ns` is CLOCK_MONOTONIC ns when dispatch stopped; `records` counts captured work, timer ticks
    included, `sends` the one-way messages in it, `requests` are the requests in it.
    """

    call: int
    handoff: int
    length: int
    checksum: int
    sealed_ns: int
    records: int
    requests: list[OpenRequest] = []
    sends: int = 0


class SealRefused(_Control):
    """The object was not captured and serves on (state that cannot be captured, unknown object, ...)."""

    call: int
    handoff: int
    error: ErrorBody


class SavedRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request in the queue of a restored unit: which of its objects it is for, who asked, and its order."""

    key: bytes
    rid: bytes
    generation: int
    reply_route: int
    operation_high: int
    operation_low: int
    order: int


class Restored(_Control):
    """Outcome of `Restore`, with the requests that came in the queue and the number of sends in it."""

    call: int
    handoff: int
    error: ErrorBody | None = None
    requests: list[SavedRequest] = []
    sends: int = 0

    @property
    def messages(self) -> int:
        """How many messages there are in all."""
        return len(self.requests) + self.sends


class Figures(_Control):
    """A worker's counters by name, since it started (B3.5)."""

    call: int
    values: dict[str, int]


class ObjectGone(_Control):
    """The worker no longer holds this object, by its own decision."""

    key: bytes
    reason: str


class FirstHandled(_Control):
    """The handler of a message with `FLAG_FIRST` has ended, well or not: its stored record can go (B7.1)."""

    key: bytes
    operation_high: int
    operation_low: int


class ForgetRequest(_Control):
    """A pending request ended at the sender (timeout, cancellation): its late reply is dropped."""

    reply_route: int


class CallNode(_Control):
    """User code in a worker asks its node for something (`relocate`, `create_actor`, ...); `arguments` is MessagePack."""

    call: int
    operation: str
    arguments: bytes


class LogLine(_Control):
    """One log record on its way to the supervisor's log."""

    level: int
    logger: str
    message: str
    created: float
    fields: dict[str, Any]


class Pong(_Control):
    """Answer to `Ping`, with the worker's counters by name: of one that dies these are the last (B3.5)."""

    number: int
    figures: dict[str, int] = {}


class Stopped(_Control):
    """Last message of a worker that stops as asked."""

    worker: int


Control: TypeAlias = (
    Welcome
    | CreateObject
    | OpenObject
    | AwaitBoundary
    | Seal
    | Unseal
    | DropObject
    | Restore
    | Admission
    | Grant
    | RequestsLost
    | Ping
    | AskFigures
    | Stop
    | CallNodeResult
    | WorkerReady
    | WorkerFailed
    | Created
    | Opened
    | BoundaryReached
    | Captured
    | SealRefused
    | Restored
    | Figures
    | ObjectGone
    | FirstHandled
    | ForgetRequest
    | CallNode
    | LogLine
    | Pong
    | Stopped
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Control] = msgspec.msgpack.Decoder(Control)
_error_decoder = msgspec.msgpack.Decoder(ErrorBody)


def encode_control(message: Control) -> bytes:
    """MessagePack form of a control message (without the kind byte)."""
    return _encoder.encode(message)


def decode_control(encoded: bytes | memoryview) -> Control:
    """Read a control message; raises msgspec.DecodeError on anything malformed."""
    return _decoder.decode(encoded)


def encode_error(error: ErrorBody) -> bytes:
    """MessagePack form of an error body, as replies with FLAG_ERROR carry it."""
    return _encoder.encode(error)


def decode_error(encoded: bytes | memoryview) -> ErrorBody:
    """Read an error body; raises msgspec.DecodeError on anything malformed."""
    try:
        return _error_decoder.decode(encoded)
    except RecursionError as error:
        raise msgspec.DecodeError(str(error)) from None
