"""Capture: one object's state, unexecuted queue and timers as a relocation-envelope-v1 (R4.2.1 to R4.2.3).

Owns what goes where in the envelope, and the framework's own part of the application state blob:
`u32 length + MessagePack map`, then the state part (absent for `recreate`). The map: `state` (bool: a state
part follows), `timers` (name to payload content type, payload, ticks left or nil; B4.1). It must not know
how the pieces are sent.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from sojourn.control import OpenRequest, Restore, SavedRequest
from sojourn.errors import InvalidOperation, ProtocolError
from sojourn.frames import FLAG_COMPLETE, FLAG_REQUEST, RecordHeader
from sojourn.ids import ObjectKind, describe_key, key_id
from sojourn.spots.groups import in_unit_order
from sojourn.spots.jobs import LocalCall, RecordCall
from sojourn.spots.state import Buffer, capture_state, restore_state
from sojourn.spots.ticks import OVERRUN_POLICIES
from sojourn.spots.timers import ActiveTimer, TickCall
from sojourn.wire.blocks import (
    ActorIdentity,
    InstanceSpotIdentity,
    ObjectIdentity,
    RelocationId,
    UserSpotIdentity,
)
from sojourn.wire.envelope import (
    ApplicationState,
    Envelope,
    OverrunPolicy,
    PendingTimerTick,
    SavedWork,
    TimerRegistration,
    decode_envelope,
    encode_envelope_parts,
)
from sojourn.wire.envelope_rules import validate_envelope
from sojourn.wire.errors import WireError
from sojourn.wire.fast_record import read_record

if TYPE_CHECKING:
    from sojourn.control import Seal
    from sojourn.spots.cell import Cell
    from sojourn.spots.turns import Job

__all__ = ["CapturedObject", "capture", "restore", "saved_messages", "state_within"]

_LENGTH = struct.Struct(">I")
_LARGE_MIN = 1 << 16
"""From this length on a state stays in the pieces it was captured in."""
_NONE_APART: Final[Mapping[int, bytes | bytearray]] = MappingProxyType({})
_encoder = msgspec.msgpack.Encoder()


class _TimerPart(msgspec.Struct, array_like=True):
    content_type: str
    payload: bytes
    left: int | None


class _FrameworkPart(msgspec.Struct):
    state: bool
    timers: dict[str, _TimerPart]


_part_decoder = msgspec.msgpack.Decoder(_FrameworkPart)


class CapturedObject(NamedTuple):
    """An envelope in pieces, and its length, number of saved messages and ticks, its requests and the number of
    its sends."""

    pieces: list[Buffer]
    length: int
    records: int
    requests: list[OpenRequest]
    sends: int


class _Pieces:
    """Stands for a state blob while the envelope around it is encoded."""

    def __init__(self, pieces: list[Buffer]) -> None:
        self.pieces = pieces
        self._length = sum(len(piece) for piece in pieces)

    def __len__(self) -> int:
        return self._length


def capture(cell: Cell, seal: Seal, jobs: list[Job]) -> CapturedObject:
    """Encode an object whose dispatch is closed, with the members that share its turn. Changes nothing; the jobs
    are its mailbox, oldest first.

    One count gives every job its order, whichever participant it is for: all of a unit keep one order (B1.6).

    Raises:
        InvalidOperation, NotConfigured: its state cannot be captured; the text names the attribute.
    """
    unit = in_unit_order(cell)
    numbers = {each: number for number, each in enumerate(unit, 1)}
    saved: list[SavedWork] = []
    ticks: list[PendingTimerTick] = []
    for job in jobs:
        order = len(saved) + len(ticks) + 1
        if isinstance(job, TickCall):
            if not job.timer.over:
                ticks.append(_pending_tick(job, numbers[job.cell], order))
        elif isinstance(job, RecordCall):
            saved.append(SavedWork(numbers[job.cell], order, job.record))
        elif isinstance(job, LocalCall):
            saved.append(SavedWork(numbers[job.cell], order, _freeze(job.cell, job)))
    states: list[ApplicationState] = []
    registrations: list[TimerRegistration] = []
    large: dict[int, _Pieces] = {}
    for number, each in enumerate(unit, 1):
        timers = sorted((each.timers or {}).values(), key=lambda timer: timer.name.encode("utf-8"))
        state = _Pieces(_state_pieces(each, timers))
        blob: Any = b"".join(state.pieces) if len(state) < _LARGE_MIN else state
        if blob is state:
            large[id(state)] = state
        states.append(ApplicationState(number, blob))
        registrations += [_registration(timer, number) for timer in timers]
    if len(unit) > 1:  # each vector by participant first (R4.2.2)
        saved.sort(key=lambda work: (work.participant_id, work.order))
        ticks.sort(key=lambda tick: (tick.participant_id, tick.order))
    envelope = Envelope(
        RelocationId(seal.relocation_high, seal.relocation_low),
        _identity(cell, seal),
        cell.host.app.version,
        tuple(states),
        tuple(saved),
        tuple(registrations),
        tuple(ticks),
    )
    pieces: list[Buffer] = []
    for piece in encode_envelope_parts(envelope):
        whole = large.get(id(piece))
        if whole is None:
            pieces.append(piece)
        else:
            pieces += whole.pieces
    requests = open_requests(work.record for work in saved)
    records, sends = len(saved) + len(ticks), len(saved) - len(requests)
    return CapturedObject(pieces, sum(map(len, pieces)), records, requests, sends)


def open_requests(records: Iterable[bytes]) -> list[OpenRequest]:
    """The requests among frozen records."""
    found: list[OpenRequest] = []
    for record in records:
        fields = read_record(record)
        if fields.reply_route:
            found.append(
                OpenRequest(
                    fields.source_rid,
                    fields.source_node_generation,
                    fields.reply_route,
                    fields.operation_high,
                    fields.operation_low,
                )
            )
    return found


def _state_pieces(cell: Cell, timers: list[ActiveTimer]) -> list[Buffer]:
    kept = cell.type.policy == "preserve"
    codec = cell.host.outbox.codec
    parts: dict[str, _TimerPart] = {}
    for timer in timers:
        content_type, payload = codec.encode_value(timer.payload, f"the payload of timer {timer.name!r}")
        parts[timer.name] = _TimerPart(content_type, payload, timer.left)
    part = _encoder.encode(_FrameworkPart(kept, parts))
    pieces: list[Buffer] = [_LENGTH.pack(len(part)), part]
    if kept:
        assert cell.instance is not None
        pieces += capture_state(cell.type, cell.instance, cell.host.settings.allow_pickle)
    return pieces


def _identity(cell: Cell, seal: Seal) -> ObjectIdentity:
    object_id = key_id(cell.key)
    if cell.type.kind is ObjectKind.ACTOR:
        return ActorIdentity(object_id, seal.object_generation, seal.owner_generation)
    if cell.type.kind is ObjectKind.INSTANCE_SPOT:
        return InstanceSpotIdentity(cell.type.stable_type, object_id, seal.object_generation)
    return UserSpotIdentity(object_id, seal.object_generation, seal.owner_generation)


def _freeze(cell: Cell, job: LocalCall) -> bytes:
    """A message of the same worker as the frozen record it would have been from another node."""
    outbox, clock = cell.host.outbox, cell.host.clock
    reply = job.reply
    if reply is not None and not reply.route and not reply.done():
        outbox.pending.assign_route(reply)
    asks = reply is not None and reply.route != 0
    content_type, payload = outbox.codec.encode_arguments(job.handler, job.args, job.kwargs)
    deadline_ms = clock.unix_ms() + max(1, int((job.deadline - clock.monotonic()) * 1000)) if asks else None
    head, tail = outbox.record_of(
        cell.type.kind,
        job.handler,
        content_type,
        payload,
        None if job.sender is None else job.sender.message_source,
        deadline_ms,
        reply.operation_low if reply is not None and asks else outbox.pending.next_operation(),
        reply.route if reply is not None else 0,
    )
    return head + outbox.origin.route_fence(cell.key, cell.object_generation, cell.owner_generation) + tail


def _pending_tick(tick: TickCall, participant: int, order: int) -> PendingTimerTick:
    return PendingTimerTick(
        participant,
        order,
        tick.timer.name,
        tick.delivery_index,
        tick.scheduled_index,
        max(0, tick.scheduled_at_ms),
        tick.skipped,
    )


def _registration(timer: ActiveTimer, participant: int) -> TimerRegistration:
    return TimerRegistration(
        participant,
        timer.name,
        timer.handler.name,
        timer.period_ms,
        OverrunPolicy(OVERRUN_POLICIES.index(timer.overrun) + 1),
        timer.max_catch_up,
        timer.stop_on_error,
        timer.done_delivery,
        timer.done_scheduled,
        max(0, timer.next_at_ms),
    )


# restore


def restore(
    cell: Cell, message: Restore, data: memoryview, apart: Mapping[int, bytes | bytearray] = _NONE_APART
) -> None:
    """Fill a fresh cell, its members and their instances from an envelope: state, timers, queue (R4.3.4).
    `apart` has values of the first participant that are not in the envelope, by attribute number.

    Raises:
        ProtocolError: the envelope is malformed or of another object.
        InvalidOperation, NotConfigured: its state cannot be restored here.
    """
    unit = in_unit_order(cell)
    try:
        envelope = decode_envelope(data)
        validate_envelope(envelope, participants=len(unit))
    except WireError as error:
        raise ProtocolError(f"the envelope of {describe_key(cell.key)} is malformed: {error}") from error
    _check_identity(cell, envelope)
    timers: dict[int, dict[str, ActiveTimer]] = {}
    for number, each in enumerate(unit, 1):
        part, state = _split_state(envelope.application_states[number - 1].state)
        if part.state and each.type.policy == "preserve":
            restore_state(
                each.type,
                each.instance,
                state,
                envelope.application_version,
                each.host.app.version,
                each.host.sender,
                apart if number == 1 else _NONE_APART,
            )
        timers[number] = _restore_timers(each, number, envelope, part)
    _restore_queue(cell, unit, envelope, timers)


def _check_identity(cell: Cell, envelope: Envelope) -> None:
    identity = envelope.object
    object_id = identity.actor_id if isinstance(identity, ActorIdentity) else identity.spot_id
    if object_id != key_id(cell.key) or identity.object_generation != cell.object_generation:
        raise ProtocolError(f"the envelope is of {object_id!r}, not of {describe_key(cell.key)}")


def _split_state(blob: Buffer | None) -> tuple[_FrameworkPart, memoryview]:
    if blob is None:
        return _FrameworkPart(False, {}), memoryview(b"")
    view = memoryview(blob)
    part, at = _framework_part(view)
    return part, view[at:]


def _framework_part(view: memoryview) -> tuple[_FrameworkPart, int]:
    try:
        (length,) = _LENGTH.unpack_from(view)
        return _part_decoder.decode(view[4 : 4 + length]), 4 + length
    except (struct.error, msgspec.MsgspecError) as error:
        raise ProtocolError(f"the framework's part of a state blob is malformed: {error}") from None


def state_within(beginning: memoryview) -> tuple[int, memoryview]:
    """Where the state part of a blob begins, and as much of it as the beginning of the blob has.

    Raises:
        ProtocolError: the beginning does not tell, or there is no state part.
    """
    part, at = _framework_part(beginning)
    if not part.state:
        raise ProtocolError("a state blob without a state part")
    return at, beginning[at:]


def _restore_timers(
    cell: Cell, participant: int, envelope: Envelope, part: _FrameworkPart
) -> dict[str, ActiveTimer]:
    timers: dict[str, ActiveTimer] = {}
    for found in envelope.timer_registrations:
        if found.participant_id != participant:
            continue
        declared = cell.type.timers.get(found.handler_type)
        if declared is None:
            raise InvalidOperation(
                f"timer {found.name!r} of {describe_key(cell.key)} needs the callback {found.handler_type!r}, "
                f"which {cell.type.cls.__name__} does not have",
                phase="restore",
            )
        extra = part.timers.get(found.name)
        payload = left = None
        if extra is not None:
            left = extra.left
            where = f"the payload of timer {found.name!r}"
            payload = cell.host.outbox.codec.decode_value(extra.content_type, extra.payload, where)
        policy: Any = OVERRUN_POLICIES[found.overrun_policy - 1]
        timer = ActiveTimer(
            cell,
            found.name,
            declared,
            found.period_milliseconds,
            found.next_scheduled_at_unix_milliseconds,
            policy,
            found.max_catch_up_ticks,
            found.stop_on_unhandled_exception,
            left,
            payload,
        )
        timer.done_delivery = timer.made_delivery = found.last_completed_delivery_index
        timer.done_scheduled = timer.made_scheduled = found.last_completed_scheduled_index
        timers[found.name] = timer
    return timers


def _restore_queue(
    cell: Cell, unit: tuple[Cell, ...], envelope: Envelope, timers: dict[int, dict[str, ActiveTimer]]
) -> None:
    """Everything of the unit into its one mailbox. Orders of several participants are one count at the source;
    where a source counts each by itself, equal orders go by participant."""
    jobs: list[tuple[int, int, Job]] = [
        (work.order, work.participant_id, _saved_call(unit[work.participant_id - 1], work.record))
        for work in envelope.saved_work
    ]
    for pending in envelope.pending_timer_ticks:
        timer = timers[pending.participant_id][pending.timer_name]
        tick = TickCall(
            timer,
            pending.delivery_index,
            pending.scheduled_index,
            pending.scheduled_at_unix_milliseconds,
            pending.skipped_ticks,
        )
        tick.fixed = True
        timer.tick = tick
        timer.made_delivery = pending.delivery_index
        timer.made_scheduled = pending.scheduled_index
        jobs.append((pending.order, pending.participant_id, tick))
    jobs.sort(key=lambda entry: entry[:2])
    for number, each in enumerate(unit, 1):
        if timers[number]:
            each.timers = timers[number]
    waiting = cell.take_all()
    for _, _, job in jobs:
        cell.put(job)
    for job in waiting:
        cell.put(job)


def _saved_call(cell: Cell, record: bytes) -> RecordCall:
    try:
        fields = read_record(record)
    except WireError as error:
        raise ProtocolError(f"saved work of {describe_key(cell.key)} is malformed: {error}") from error
    flags = FLAG_COMPLETE | (FLAG_REQUEST if fields.reply_route else 0)
    header = RecordHeader(
        flags,
        0,
        cell.type.kind,
        fields.object_generation,
        fields.reply_route,
        fields.operation_high,
        fields.operation_low,
        fields.fence_at,
        cell.key,
        b"",
        0,
    )
    return RecordCall(cell, header, record, credited=False)


def saved_messages(cell: Cell) -> tuple[list[SavedRequest], int]:
    """The requests in the queue of a unit just restored, in order, and how many sends are in it."""
    found: list[SavedRequest] = []
    sends = 0
    for order, job in enumerate(cell.queue or (), 1):
        if not isinstance(job, RecordCall) or not job.saved:
            continue
        sends += not job.header.reply_route
        if job.header.reply_route:
            header, fields = job.header, read_record(job.body)
            found.append(
                SavedRequest(
                    header.key,
                    fields.source_rid,
                    fields.source_node_generation,
                    header.reply_route,
                    header.operation_high,
                    header.operation_low,
                    order,
                )
            )
    return found, sends
