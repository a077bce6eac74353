"""relocation-envelope-v1: everything that moves with a unit.

Owns the stream's layout and the order inside each of its vectors. Rules across vectors stand in
`envelope_rules`. A stream has no magic, version, length or checksum inside.
"""

from __future__ import annotations

import enum
import struct
from typing import Annotated, NamedTuple

import msgspec
from sojourn.wire.blocks import OBJECT_IDENTITY, ObjectIdentity, RelocationId
from sojourn.wire.cursor import Buffer, Reader, Writer
from sojourn.wire.errors import WireError
from sojourn.wire.primitives import BOOL8, I64, NZ64, ORDINAL, TEXT8, U32, U64, Blob, Enumeration
from sojourn.wire.quick import read_quickly, write_quickly
from sojourn.wire.record import RawRecord
from sojourn.wire.structure import Optional, Vector, WireName, block

__all__ = [
    "APPLICATION_STATE",
    "ENVELOPE",
    "PENDING_TIMER_TICK",
    "SAVED_WORK",
    "TIMER_REGISTRATION",
    "ApplicationState",
    "Envelope",
    "OverrunPolicy",
    "PendingTimerTick",
    "SavedWork",
    "StatePlace",
    "TimerRegistration",
    "decode_envelope",
    "encode_envelope",
    "encode_envelope_parts",
    "find_first_state",
    "shorten_first_state",
]


class ApplicationState(msgspec.Struct, frozen=True):
    """One participant's state: None = none, which is not the same as an empty one."""

    participant_id: Annotated[int, NZ64]
    state: Annotated[
        Buffer | None,
        Optional(Blob(8, 2**64 - 1, by_reference=True), flag="hasState", length=U64),
        WireName("payload"),
    ]


class SavedWork(msgspec.Struct, frozen=True):
    """One message that was accepted and not run."""

    participant_id: Annotated[int, NZ64]
    order: Annotated[int, NZ64]
    """Shared with the pending timer ticks of the participant: both merged give the order of running."""
    record: Annotated[bytes, RawRecord(), WireName("frozenRecord")]
    """The frozen record's bytes, checked when decoded; `decode_frozen_record` gives their meaning."""


class OverrunPolicy(enum.IntEnum):
    """What happens to ticks that are late."""

    SKIP_LATE_TICKS = 1
    CATCH_UP_BOUNDED = 2
    DELAY_NEXT_TICK = 3


class TimerRegistration(msgspec.Struct, frozen=True):
    """A named timer of one participant."""

    participant_id: Annotated[int, NZ64]
    name: Annotated[str, TEXT8]
    handler_type: Annotated[str, TEXT8]
    period_milliseconds: Annotated[int, NZ64]
    overrun_policy: Annotated[OverrunPolicy, Enumeration(OverrunPolicy)]
    max_catch_up_ticks: Annotated[int, NZ64]
    stop_on_unhandled_exception: Annotated[bool, BOOL8]
    last_completed_delivery_index: Annotated[int, ORDINAL]
    last_completed_scheduled_index: Annotated[int, ORDINAL]
    next_scheduled_at_unix_milliseconds: Annotated[int, U64]


class PendingTimerTick(msgspec.Struct, frozen=True):
    """A tick that was due and not run."""

    participant_id: Annotated[int, NZ64]
    order: Annotated[int, NZ64]
    timer_name: Annotated[str, TEXT8]
    delivery_index: Annotated[int, NZ64]
    scheduled_index: Annotated[int, NZ64]
    scheduled_at_unix_milliseconds: Annotated[int, U64]
    skipped_ticks: Annotated[int, ORDINAL]


APPLICATION_STATE = block(ApplicationState)
SAVED_WORK = block(SavedWork)
TIMER_REGISTRATION = block(TimerRegistration)
PENDING_TIMER_TICK = block(PendingTimerTick)


def _timer_key(timer: TimerRegistration) -> tuple[int, bytes]:
    return timer.participant_id, timer.name.encode("utf-8", "surrogatepass")


class Envelope(msgspec.Struct, frozen=True):
    """The whole stream. Participants are numbers: `participant_numbers` gives them."""

    relocation: RelocationId
    object: Annotated[ObjectIdentity, OBJECT_IDENTITY]
    application_version: Annotated[int, I64]
    application_states: Annotated[
        tuple[ApplicationState, ...], Vector(APPLICATION_STATE, key=lambda state: state.participant_id)
    ]
    saved_work: Annotated[
        tuple[SavedWork, ...], Vector(SAVED_WORK, key=lambda work: (work.participant_id, work.order))
    ] = ()
    timer_registrations: Annotated[
        tuple[TimerRegistration, ...], Vector(TIMER_REGISTRATION, key=_timer_key)
    ] = ()
    pending_timer_ticks: Annotated[
        tuple[PendingTimerTick, ...],
        Vector(PENDING_TIMER_TICK, key=lambda tick: (tick.participant_id, tick.order)),
    ] = ()


ENVELOPE = block(Envelope)


def decode_envelope(data: bytes | bytearray | memoryview, trace: dict[str, int] | None = None) -> Envelope:
    """Decode a whole stream; state blobs are slices of `data`, not copies.

    Only the rules inside each vector are checked; `validate_envelope` checks the others. With `trace`,
    the offset of every field is noted there under its path.

    Raises:
        WireError: malformed.
    """
    if trace is None:
        quick = read_quickly(ENVELOPE, memoryview(data), 0)
        if quick is not None:
            return quick
    reader = Reader(data, trace)
    envelope = ENVELOPE.read(reader)
    reader.finish()
    return envelope


class StatePlace(NamedTuple):
    """Where the state blob of the first participant lies in a stream."""

    lengths_at: int
    """The two lengths in front of it: of the field, and of the blob."""
    start: int
    octets: int


_STATE_LENGTHS = struct.Struct(">QQ")


def find_first_state(beginning: memoryview) -> StatePlace | None:
    """Where the first state lies, from the beginning of a stream; None when that does not tell, or none is there."""
    reader = Reader(beginning)
    try:
        block(RelocationId).read(reader)
        OBJECT_IDENTITY.read(reader)
        I64.read(reader)
        states = U32.read(reader)
        NZ64.read(reader)
        present = BOOL8.read(reader)
        at = reader.advance(_STATE_LENGTHS.size)
    except WireError:
        return None
    field, octets = _STATE_LENGTHS.unpack_from(beginning, at)
    if not states or not present or field != octets + U64.minimum:
        return None
    return StatePlace(at, reader.offset, octets)


def shorten_first_state(stream: memoryview, place: StatePlace, by: int) -> None:
    """Make `stream`, in which `by` octets of the first state were left out, one that can be decoded."""
    octets = place.octets - by
    _STATE_LENGTHS.pack_into(stream, place.lengths_at, octets + U64.minimum, octets)


def encode_envelope_parts(envelope: Envelope, trace: dict[str, int] | None = None) -> list[Buffer]:
    """Encode a stream as pieces to be sent one behind the other; large blobs are the given objects themselves.

    Raises:
        WireError: a value out of range, or a vector that does not rise.
    """
    quick = write_quickly(ENVELOPE, envelope) if trace is None else None
    if quick is not None:
        return quick
    writer = Writer(trace=trace)
    ENVELOPE.write(writer, envelope)
    return writer.pieces()


def encode_envelope(envelope: Envelope) -> bytes:
    """Encode a stream into one `bytes`.

    Raises:
        WireError: a value out of range, or a vector that does not rise.
    """
    return b"".join(encode_envelope_parts(envelope))
