"""The quick twins give what the general codecs give, and are really used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sojourn import wire
from sojourn.wire import quick
from sojourn.wire.command_frame import COMMANDS, HEAD_BYTES
from sojourn.wire.cursor import BY_REFERENCE_BYTES_MIN
from sojourn.wire.envelope import ENVELOPE
from sojourn.wire.primitives import NZ64, TEXT8
from sojourn.wire.structure import Optional, block

from tests.unit.framework.test_wire_canonical import mutations
from tests.unit.framework.wire_frames import READY
from tests.unit.framework.wire_values import command_values, envelope_values

WITH_PARTS = {20, 28, 33}
"""Commands with a second part have no twin."""


def outcome(decode: Callable[[], Any]) -> Any:
    """The value, or what is wrong and where."""
    try:
        return decode()
    except wire.WireError as error:
        return error.word, error.offset, error.path, error.detail


@pytest.mark.parametrize("number", sorted(COMMANDS))
@settings(max_examples=30, deadline=None)
@given(data=st.data(), mutate=mutations())
def test_commands_are_judged_alike(
    number: int, data: st.DataObject, mutate: Callable[[bytes], bytes]
) -> None:
    frame, *parts = wire.encode_command(data.draw(command_values(COMMANDS[number])))
    for raw in (frame, mutate(frame), memoryview(mutate(frame))):
        general = outcome(lambda raw=raw: wire.decode_command(raw, parts, {}))  # type: ignore[misc]
        assert outcome(lambda raw=raw: wire.decode_command(raw, parts)) == general  # type: ignore[misc]


@settings(max_examples=60, deadline=None)
@given(envelope_values(), mutations())
def test_envelopes_are_judged_alike(envelope: wire.Envelope, mutate: Callable[[bytes], bytes]) -> None:
    encoded = wire.encode_envelope(envelope)
    for raw in (encoded, mutate(encoded)):
        general = outcome(lambda raw=raw: wire.decode_envelope(raw, {}))  # type: ignore[misc]
        assert outcome(lambda raw=raw: wire.decode_envelope(raw)) == general  # type: ignore[misc]


@settings(max_examples=60, deadline=None)
@given(envelope_values())
def test_envelopes_are_written_alike(envelope: wire.Envelope) -> None:
    assert wire.encode_envelope(envelope) == b"".join(wire.encode_envelope_parts(envelope, {}))


@pytest.mark.parametrize("number", sorted(set(COMMANDS) - WITH_PARTS))
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_a_sound_command_needs_no_general_codec(number: int, data: st.DataObject) -> None:
    command = data.draw(command_values(COMMANDS[number]))
    (frame,) = wire.encode_command(command)
    codec: Any = block(type(command))
    assert quick.read_quickly(codec, frame, HEAD_BYTES) == command
    assert b"".join(quick.write_quickly(codec, command, frame[:HEAD_BYTES]) or ()) == frame


def test_commands_with_parts_have_no_twin() -> None:
    for number in WITH_PARTS:
        assert quick.read_quickly(block(COMMANDS[number]), b"", 0) is None


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (NZ64, 0),
        (NZ64, 2**63),
        (TEXT8, ""),
        (TEXT8, "a\0"),
        (TEXT8, "\ud800"),
        (TEXT8, "x" * 256),
        (block(wire.RelocationId), wire.RelocationId(0, 0)),
        (block(wire.RelocationId), wire.OperationId(1, 1)),
        (Optional(NZ64), 0),
    ],
)
def test_what_has_no_encoding_is_left_to_the_general_codec(codec: Any, value: Any) -> None:
    assert quick.write_quickly(codec, value) is None


def test_large_blobs_are_passed_on_by_reference() -> None:
    blob = bytes(BY_REFERENCE_BYTES_MIN)
    envelope = wire.Envelope(READY.identity.relocation_id, READY.object, 1, (wire.ApplicationState(1, blob),))
    pieces: Sequence[Any] = quick.write_quickly(ENVELOPE, envelope) or ()
    assert any(piece is blob for piece in pieces)
    assert len(pieces) == 3
    found = quick.read_quickly(ENVELOPE, memoryview(b"".join(pieces)), 0)
    assert found is not None
    assert isinstance(found.application_states[0].state, memoryview)
