"""Terminal results and failure codes, and which of them go together.

Owns the numbers and the pairing rule. Knows not who sends them.
"""

from __future__ import annotations

import enum

from sojourn.wire.errors import Word
from sojourn.wire.primitives import Enumeration
from sojourn.wire.structure import Problem

__all__ = [
    "FAILURE_CODE",
    "FAILURE_CODE_NOT_NONE",
    "RESULT_OF_FAILURE",
    "TERMINAL_RESULT",
    "FailureCode",
    "TerminalResult",
    "result_problem",
]


class TerminalResult(enum.IntEnum):
    """How an operation ended."""

    OK = 0
    TIMED_OUT = 101
    NOT_FOUND = 102
    TERMINATED = 103
    PROTOCOL_ERROR = 104
    INTERNAL_ERROR = 105
    REJECTED = 106
    CONFLICT = 107
    BUSY = 108
    NOT_CONNECTED = 109
    INVALID_ARGUMENT = 110
    INVALID_STATE = 111
    NOT_SUPPORTED = 112
    BACKPRESSURED = 113


class FailureCode(enum.IntEnum):
    """Why it failed, where the result alone does not say."""

    NONE = 0
    ACTOR_ROUTE_NOT_FOUND = 1
    ACTOR_CREATE_FAILED = 2
    ACTOR_ALREADY_EXISTS = 3
    ACTOR_TYPE_MISMATCH = 4
    SPOT_CREATE_FAILED = 5
    SPOT_ROUTE_NOT_FOUND = 6
    SPOT_TYPE_MISMATCH = 7
    ACTOR_SESSION_NOT_BOUND = 8
    HANDLER_NOT_FOUND = 9
    ROUTE_HANDLER_NOT_FOUND = 10
    ACTOR_DISPATCH_HANDLER_NOT_FOUND = 11
    PAYLOAD_DECODE_FAILED = 12
    ROUTE_NOT_CONNECTED = 13
    REQUEST_TARGET_NOT_FOUND = 14
    REQUEST_REJECTED = 15
    REQUEST_PROTOCOL_ERROR = 16
    REQUEST_FAILED = 17
    WORKER_QUEUE_FULL = 18
    WORKER_TIMED_OUT = 19
    WORKER_FAILED = 20
    ACTOR_LOCATION_STALE = 21
    ACTOR_CREATE_REJECTED = 22
    SPOT_GENERATION_STALE = 33
    SPOT_MOVING = 34
    RELOCATION_DATA_LOST = 35


_FAILURES_OF_RESULT = {
    TerminalResult.NOT_FOUND: (1, 6, 8, 9, 10, 11, 14),
    TerminalResult.PROTOCOL_ERROR: (12, 16),
    TerminalResult.INTERNAL_ERROR: (2, 5, 13, 17, 19, 20, 35),
    TerminalResult.REJECTED: (15, 18, 22),
    TerminalResult.CONFLICT: (3, 4, 7, 21, 33, 34),
}

RESULT_OF_FAILURE: dict[FailureCode, TerminalResult] = {
    FailureCode(code): result for result, codes in _FAILURES_OF_RESULT.items() for code in codes
}
"""The one result a failure code belongs to."""

TERMINAL_RESULT = Enumeration(TerminalResult, 4)
FAILURE_CODE = Enumeration(FailureCode, 4, unknown=Word.UNKNOWN_ERROR_CODE)
FAILURE_CODE_NOT_NONE = Enumeration(
    FailureCode,
    4,
    unknown=Word.UNKNOWN_ERROR_CODE,
    allowed=frozenset(FailureCode) - {FailureCode.NONE},
)


def result_problem(result: TerminalResult, code: FailureCode, *, has_payload: bool) -> Problem | None:
    """What is wrong with a result, its failure code and the presence of a payload, or None.

    `ok` has no failure code and may have a payload; 102 and 104 to 107 need a failure code that belongs
    to them; every other result has none. Only `ok` has a payload.
    """
    if result in _FAILURES_OF_RESULT:
        if RESULT_OF_FAILURE.get(code) != result:
            return Problem(Word.INVALID_FIELD, "failure_code", f"{code} does not belong to result {result}")
    elif code != FailureCode.NONE:
        return Problem(Word.INVALID_FIELD, "failure_code", f"result {result} has no failure code, not {code}")
    if has_payload and result != TerminalResult.OK:
        return Problem(Word.INVALID_FIELD, "payload", f"result {result} has no payload")
    return None
