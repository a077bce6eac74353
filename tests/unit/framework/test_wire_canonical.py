"""One value has one encoding: whatever a mutated frame decodes to encodes to the very same bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sojourn import wire
from sojourn.wire.command_frame import COMMANDS

from tests.unit.framework.wire_values import command_values, envelope_values, record_values

MANY = settings(max_examples=100, deadline=None)


@st.composite
def mutations(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """One small change: a byte replaced, taken out or put in, a number made larger, an end cut off."""
    how = draw(st.sampled_from(["replace", "add", "remove", "insert", "cut", "append", "swap"]))
    place, byte = draw(st.floats(0, 1, exclude_max=True)), draw(st.integers(0, 255))

    def mutate(data: bytes) -> bytes:
        at = int(place * len(data))
        match how:
            case "replace":
                return data[:at] + bytes((byte,)) + data[at + 1 :]
            case "add":
                return data[:at] + bytes(((data[at] + 1 + byte % 3) % 256,)) + data[at + 1 :]
            case "remove":
                return data[:at] + data[at + 1 :]
            case "insert":
                return data[:at] + bytes((byte,)) + data[at:]
            case "cut":
                return data[:at]
            case "append":
                return data + bytes((byte,))
            case _:
                return data[at:] + data[:at]

    return mutate


def check(decode: Callable[[bytes], Any], encode: Callable[[Any], bytes], data: bytes) -> None:
    """Decoding fails with one of the contract's words or is undone by encoding."""
    refusal: wire.WireError | None = None
    try:
        value = decode(data)
    except wire.WireError as error:
        refusal = error
    if refusal is None:
        assert encode(value) == data
    else:
        assert refusal.word in wire.Word
        assert 0 <= refusal.offset <= len(data)


@pytest.mark.parametrize("number", sorted(COMMANDS))
@settings(MANY, max_examples=30)
@given(data=st.data(), mutate=mutations())
def test_commands(number: int, data: st.DataObject, mutate: Callable[[bytes], bytes]) -> None:
    frame, *parts = wire.encode_command(data.draw(command_values(COMMANDS[number])))
    check(
        lambda mutated: wire.decode_command(mutated, parts),
        lambda command: wire.encode_command(command)[0],
        mutate(frame),
    )


@MANY
@given(envelope_values(), mutations())
def test_envelopes(envelope: wire.Envelope, mutate: Callable[[bytes], bytes]) -> None:
    check(wire.decode_envelope, wire.encode_envelope, mutate(wire.encode_envelope(envelope)))


@pytest.mark.parametrize("kind", list(wire.RecordKind))
@settings(MANY, max_examples=30)
@given(data=st.data(), mutate=mutations())
def test_records(kind: wire.RecordKind, data: st.DataObject, mutate: Callable[[bytes], bytes]) -> None:
    record = wire.encode_frozen_record(data.draw(record_values((kind,))))
    check(wire.decode_frozen_record, wire.encode_frozen_record, mutate(record))


@MANY
@given(st.binary(max_size=200))
def test_noise(data: bytes) -> None:
    check(wire.decode_envelope, wire.encode_envelope, data)
    check(wire.decode_frozen_record, wire.encode_frozen_record, data)
    check(wire.decode_metadata, wire.encode_metadata, data)
    check(wire.decode_payload, wire.encode_payload_envelope, data)
    head = bytes((0x5A, 0x4D, 1, 50, 0))
    check(wire.decode_command, lambda command: wire.encode_command(command)[0], head + data)
