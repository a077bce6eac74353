"""The envelope: sizes, order, rules across vectors, and no copies of large states."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sojourn import wire

from tests.unit.framework.wire_frames import ENVELOPE, RECORD, offsets_of, refused_envelope

STATE = wire.ApplicationState(1, None)
TIMER = ENVELOPE.timer_registrations[0]
TICK = ENVELOPE.pending_timer_ticks[0]


def smallest() -> wire.Envelope:
    return wire.Envelope(wire.RelocationId(0, 1), wire.ActorIdentity("a", 1, 1), 0, (STATE,))


def test_the_smallest_legal_stream_has_78_bytes() -> None:
    encoded = wire.encode_envelope(smallest())
    assert len(encoded) == 78
    assert wire.decode_envelope(encoded) == smallest()
    wire.validate_envelope(smallest(), participants=1)


def test_no_state_and_an_empty_state_are_different_things() -> None:
    without = wire.encode_envelope(smallest())
    empty = wire.encode_envelope(
        msgspec.structs.replace(smallest(), application_states=(wire.ApplicationState(1, b""),))
    )
    assert len(empty) == len(without) + 8
    assert wire.decode_envelope(empty).application_states[0].state == b""
    assert wire.decode_envelope(without).application_states[0].state is None


def test_large_states_are_encoded_by_reference_and_decoded_as_slices() -> None:
    large = bytes(100_000)
    envelope = msgspec.structs.replace(smallest(), application_states=(wire.ApplicationState(1, large),))
    parts = wire.encode_envelope_parts(envelope)
    assert any(part is large for part in parts)
    whole = b"".join(parts)
    assert whole == wire.encode_envelope(envelope)
    state = wire.decode_envelope(memoryview(whole)).application_states[0].state
    assert isinstance(state, memoryview)
    assert state.obj is whole
    assert state == large


def test_saved_records_are_kept_as_their_bytes() -> None:
    encoded = wire.encode_envelope(ENVELOPE)
    assert [work.record for work in wire.decode_envelope(bytearray(encoded)).saved_work] == [RECORD, RECORD]


@pytest.mark.parametrize(
    ("vector", "items", "word"),
    [
        ("application_states", (STATE, STATE), "duplicate-item"),
        ("application_states", (wire.ApplicationState(2, None), STATE), "unsorted-vector"),
        ("saved_work", (wire.SavedWork(1, 1, RECORD), wire.SavedWork(1, 1, RECORD)), "duplicate-item"),
        ("saved_work", (wire.SavedWork(2, 1, RECORD), wire.SavedWork(1, 2, RECORD)), "unsorted-vector"),
        ("timer_registrations", (TIMER, TIMER), "duplicate-item"),
        (
            "timer_registrations",
            (msgspec.structs.replace(TIMER, name="ab"), msgspec.structs.replace(TIMER, name="a")),
            "unsorted-vector",
        ),
        (
            "timer_registrations",
            (msgspec.structs.replace(TIMER, name="é"), msgspec.structs.replace(TIMER, name="z")),
            "unsorted-vector",
        ),
        ("pending_timer_ticks", (TICK, TICK), "duplicate-item"),
        ("pending_timer_ticks", (TICK, msgspec.structs.replace(TICK, order=1)), "unsorted-vector"),
    ],
)
def test_vectors_rise(vector: str, items: Any, word: str) -> None:
    with pytest.raises(wire.WireError) as caught:
        wire.encode_envelope(msgspec.structs.replace(ENVELOPE, **{vector: items}))
    assert caught.value.word == word
    assert caught.value.path.endswith("[1]")


def test_names_of_timers_compare_as_bytes() -> None:
    # U+FFFF comes before U+10000 in UTF-8; UTF-16 code units would turn them round.
    names = ("Z", "a", "ab", "é", "\uffff", "\U00010000")
    timers = tuple(msgspec.structs.replace(TIMER, name=name) for name in names)
    envelope = msgspec.structs.replace(ENVELOPE, timer_registrations=timers)
    assert wire.decode_envelope(wire.encode_envelope(envelope)) == envelope


@pytest.mark.parametrize("order", [0, 2**63])
def test_an_order_is_never_zero(order: int) -> None:
    encoded = wire.encode_envelope(ENVELOPE)
    path = "savedWork[0].order"
    at = offsets_of(ENVELOPE)[path]
    wrong = encoded[:at] + order.to_bytes(8, "big") + encoded[at + 8 :]
    assert refused_envelope(wrong) == ("invalid-field", at, path)


def test_a_valid_envelope_passes_and_may_have_gaps() -> None:
    wire.validate_envelope(ENVELOPE, participants=3)
    assert wire.decode_envelope(wire.encode_envelope(ENVELOPE)) == ENVELOPE


@pytest.mark.parametrize(
    ("changes", "participants", "word", "path"),
    [
        ({}, 2, "invalid-field", "applicationStates"),
        ({}, 4, "invalid-field", "applicationStates"),
        ({"application_states": ()}, 0, "invalid-field", "applicationStates"),
        (
            {"application_states": (STATE, wire.ApplicationState(3, None))},
            2,
            "invalid-field",
            "applicationStates",
        ),
        (
            {"saved_work": (wire.SavedWork(4, 1, RECORD),)},
            3,
            "invalid-field",
            "savedWork[0].participantId",
        ),
        (
            {"timer_registrations": (TIMER, msgspec.structs.replace(TIMER, participant_id=4))},
            3,
            "invalid-field",
            "timerRegistrations[1].participantId",
        ),
        (
            {"pending_timer_ticks": (msgspec.structs.replace(TICK, participant_id=9),)},
            3,
            "invalid-field",
            "pendingTimerTicks[0].participantId",
        ),
        (
            {"pending_timer_ticks": (msgspec.structs.replace(TICK, order=2),)},
            3,
            "duplicate-item",
            "pendingTimerTicks[0].order",
        ),
        (
            {"pending_timer_ticks": (msgspec.structs.replace(TICK, timer_name="tock"),)},
            3,
            "invalid-field",
            "pendingTimerTicks[0].timerName",
        ),
        (
            {"pending_timer_ticks": (msgspec.structs.replace(TICK, participant_id=2),)},
            3,
            "invalid-field",
            "pendingTimerTicks[0].timerName",
        ),
    ],
)
def test_rules_across_vectors(changes: dict[str, Any], participants: int, word: str, path: str) -> None:
    envelope = msgspec.structs.replace(ENVELOPE, **changes)
    with pytest.raises(wire.WireError) as caught:
        wire.validate_envelope(envelope, participants=participants)
    assert (caught.value.word, caught.value.path) == (word, path)
    assert caught.value.offset == offsets_of(envelope)[path]


def test_orders_of_different_participants_are_independent() -> None:
    envelope = msgspec.structs.replace(
        ENVELOPE,
        timer_registrations=(msgspec.structs.replace(TIMER, participant_id=2),),
        pending_timer_ticks=(msgspec.structs.replace(TICK, participant_id=2, order=2),),
    )
    wire.validate_envelope(envelope, participants=3)
    assert wire.decode_envelope(wire.encode_envelope(envelope)) == envelope
