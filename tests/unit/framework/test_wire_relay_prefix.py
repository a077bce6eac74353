"""Relay frames by the quick path are command 31, and are judged like it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from sojourn import wire

from tests.unit.framework.test_wire_canonical import mutations
from tests.unit.framework.wire_frames import ACTOR, DATA, IDENTITY, RECORD
from tests.unit.framework.wire_values import record_values

PREFIX = wire.RelayPrefix(IDENTITY, ACTOR)


def test_a_frame_is_command_31() -> None:
    frame = PREFIX.frame(RECORD)
    assert [frame] == wire.encode_command(DATA)
    assert PREFIX.record_of(frame) == RECORD


@settings(max_examples=60, deadline=None)
@given(record_values(), mutations())
def test_records_are_judged_as_by_the_general_decoder(
    record: wire.FrozenRecord, mutate: Callable[[bytes], bytes]
) -> None:
    for raw in (wire.encode_frozen_record(record), mutate(wire.encode_frozen_record(record))):
        outcomes = []
        for read in (PREFIX.record_of, lambda frame: wire.decode_command(frame).record):  # type: ignore[union-attr]
            try:
                outcomes.append(read(PREFIX.frame(raw)))
            except wire.WireError as error:
                outcomes.append((error.word, error.offset, error.path))
        assert outcomes[0] == outcomes[1]


def test_another_attempt_is_left_to_the_general_decoder() -> None:
    other = wire.RelocationIdentity(IDENTITY.relocation_id, 4, IDENTITY.coordinator_fence)
    assert wire.RelayPrefix(other, ACTOR).record_of(PREFIX.frame(RECORD)) is None


def test_an_identity_out_of_range_is_refused() -> None:
    with pytest.raises(wire.WireError):
        wire.RelayPrefix(
            wire.RelocationIdentity(IDENTITY.relocation_id, 0, IDENTITY.coordinator_fence), ACTOR
        )
