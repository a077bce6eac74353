"""The rules of an envelope that no single vector can check.

Owns the validation that follows decoding. Changes nothing and decodes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from sojourn.wire.envelope import (
    Envelope,
    PendingTimerTick,
    SavedWork,
    TimerRegistration,
    encode_envelope_parts,
)
from sojourn.wire.errors import WireError, Word

__all__ = ["validate_envelope"]


def validate_envelope(envelope: Envelope, *, participants: int) -> None:
    """Check an envelope of a unit with `participants` objects.

    There is exactly one application state for each participant 1..n; the other vectors name only these;
    saved work and pending ticks of one participant share no order; each tick names a registered timer of
    its participant.

    Raises:
        WireError: `duplicate-item` for an order used twice, `invalid-field` for the other rules.
    """
    found = tuple(state.participant_id for state in envelope.application_states)
    if participants < 1 or found != tuple(range(1, participants + 1)):
        detail = f"needs exactly one state for each of the participants 1..{participants}"
        _fail(envelope, Word.INVALID_FIELD, "applicationStates", detail)
    _check_participants(envelope, participants)
    orders = {(work.participant_id, work.order) for work in envelope.saved_work}
    timers = {(timer.participant_id, timer.name) for timer in envelope.timer_registrations}
    for index, tick in enumerate(envelope.pending_timer_ticks):
        path = f"pendingTimerTicks[{index}]"
        if (tick.participant_id, tick.order) in orders:
            detail = f"order {tick.order} of participant {tick.participant_id} is in savedWork too"
            _fail(envelope, Word.DUPLICATE_ITEM, f"{path}.order", detail)
        if (tick.participant_id, tick.timer_name) not in timers:
            detail = f"participant {tick.participant_id} has no timer {tick.timer_name!r}"
            _fail(envelope, Word.INVALID_FIELD, f"{path}.timerName", detail)


def _check_participants(envelope: Envelope, participants: int) -> None:
    vectors: dict[str, Sequence[SavedWork | TimerRegistration | PendingTimerTick]] = {
        "savedWork": envelope.saved_work,
        "timerRegistrations": envelope.timer_registrations,
        "pendingTimerTicks": envelope.pending_timer_ticks,
    }
    for name, items in vectors.items():
        for index, item in enumerate(items):
            if item.participant_id > participants:
                detail = f"{item.participant_id} is not in 1..{participants}"
                _fail(envelope, Word.INVALID_FIELD, f"{name}[{index}].participantId", detail)


def _fail(envelope: Envelope, word: Word, path: str, detail: str) -> NoReturn:
    # The offset is worked out only here: a valid envelope must not pay for it.
    offsets: dict[str, int] = {}
    encode_envelope_parts(envelope, offsets)
    raise WireError(word, offsets[path], path, detail)
