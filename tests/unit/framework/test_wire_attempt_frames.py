"""Frames by the quick path of an attempt are the contract's commands, and are judged like them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sojourn import wire

from tests.unit.framework.test_wire_canonical import mutations
from tests.unit.framework.wire_frames import ACTOR, CUTOVER, DATA, IDENTITY, READY, RECORD, STATE, TARGET
from tests.unit.framework.wire_values import record_values

FRAMES = wire.AttemptFrames(IDENTITY, TARGET, ACTOR)
(CHUNK_FRAME,) = wire.encode_command(STATE)
(CUTOVER_FRAME,) = wire.encode_command(CUTOVER)


def test_the_frames_are_the_commands() -> None:
    assert [FRAMES.relay_head + RECORD] == wire.encode_command(DATA)
    assert [FRAMES.ready] == wire.encode_command(READY)
    assert FRAMES.state_head(0, 5) + b"chunk" == CHUNK_FRAME
    assert FRAMES.cutover(2, 7) == CUTOVER_FRAME


def test_they_are_recognised() -> None:
    assert FRAMES.record_of(FRAMES.relay_head + RECORD) == RECORD
    assert FRAMES.chunk_of(CHUNK_FRAME) == (0, b"chunk")
    assert FRAMES.chunk_of(memoryview(CHUNK_FRAME)) == (0, b"chunk")
    assert FRAMES.cutover_of(CUTOVER_FRAME) == (2, 7)


@settings(max_examples=60, deadline=None)
@given(record_values(), mutations())
def test_records_are_judged_as_by_the_general_decoder(
    record: wire.FrozenRecord, mutate: Callable[[bytes], bytes]
) -> None:
    for raw in (wire.encode_frozen_record(record), mutate(wire.encode_frozen_record(record))):
        outcomes = []
        for read in (FRAMES.record_of, lambda frame: wire.decode_command(frame).record):  # type: ignore[union-attr]
            try:
                outcomes.append(read(FRAMES.relay_head + raw))
            except wire.WireError as error:
                outcomes.append((error.word, error.offset, error.path))
        assert outcomes[0] == outcomes[1]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([CHUNK_FRAME, CUTOVER_FRAME]), mutations())
def test_what_is_recognised_is_what_the_general_decoder_reads(
    frame: bytes, mutate: Callable[[bytes], bytes]
) -> None:
    mutated = mutate(frame)
    chunk, cutover = FRAMES.chunk_of(mutated), FRAMES.cutover_of(mutated)
    if chunk is not None or cutover is not None:
        command: Any = wire.decode_command(mutated)
        assert command.identity == IDENTITY
        assert command.object == ACTOR
        if chunk is not None:
            assert chunk == (command.chunk_ordinal, command.chunk_data)
        else:
            assert cutover == (command.boundary_record_count, command.boundary_checksum_crc32c)


def test_a_count_out_of_range_is_left_to_the_general_decoder() -> None:
    at = len(CUTOVER_FRAME) - 12
    beyond = CUTOVER_FRAME[:at] + b"\x80" + CUTOVER_FRAME[at + 1 :]
    assert FRAMES.cutover_of(beyond) is None
    with pytest.raises(wire.WireError):
        wire.decode_command(beyond)


@pytest.mark.parametrize("cut", [1, 5])
def test_a_chunk_of_another_length_is_left_to_the_general_decoder(cut: int) -> None:
    assert FRAMES.chunk_of(CHUNK_FRAME[:-cut]) is None
    assert FRAMES.chunk_of(CHUNK_FRAME + b"x") is None


def test_another_attempt_is_left_to_the_general_decoder() -> None:
    identity = wire.RelocationIdentity(IDENTITY.relocation_id, 4, IDENTITY.coordinator_fence)
    other = wire.AttemptFrames(identity, TARGET, ACTOR)
    assert other.record_of(FRAMES.relay_head + RECORD) is None
    assert other.chunk_of(CHUNK_FRAME) is None
    assert other.cutover_of(CUTOVER_FRAME) is None
    assert other.ready != FRAMES.ready


def test_an_identity_out_of_range_is_refused() -> None:
    identity = wire.RelocationIdentity(IDENTITY.relocation_id, 0, IDENTITY.coordinator_fence)
    with pytest.raises(wire.WireError):
        wire.AttemptFrames(identity, TARGET, ACTOR)
