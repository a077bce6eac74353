"""The error tree: every class survives pickling and the way to another process (B3.3)."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest
from sojourn import control
from sojourn.control import ErrorBody, decode_error, encode_error, short_text
from sojourn.errors import (
    ERROR_KINDS,
    InternalFailure,
    SojournError,
    Unavailable,
    error_from_fields,
)
from sojourn.handoff.machine import IllegalTransition
from sojourn.location import StoreUnavailable

FIELDS = {
    "object_id": "actor 'p'",
    "operation_id": "0" * 32,
    "phase": "capture",
    "applied": "no",
    "remote_traceback": "Traceback\n  line\n",
}


@pytest.mark.parametrize("cls", [*ERROR_KINDS.values(), SojournError, StoreUnavailable, IllegalTransition])
def test_every_class_survives_pickling(cls: type[SojournError]) -> None:
    error = cls("what happened", **FIELDS)
    error.__dict__["hint"] = "what to do"
    error.add_note("a note")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert copy.fields() == error.fields() == {"message": "what happened", **FIELDS}
    assert copy.__dict__["hint"] == "what to do"
    assert copy.args == ("what happened",)


@pytest.mark.parametrize("cls", ERROR_KINDS.values())
def test_every_kind_arrives_as_it_left(cls: type[SojournError]) -> None:
    told = decode_error(encode_error(ErrorBody.of(cls("what happened", **FIELDS))))
    error = error_from_fields(told.kind, told.fields)
    assert type(error) is cls
    assert error.fields() == {"message": "what happened", **FIELDS}


def test_a_kind_that_is_not_known_here_is_named() -> None:
    error = error_from_fields("FromTheFuture", {"message": "what happened", "colour": "red"})
    assert type(error) is InternalFailure
    assert error.message == "FromTheFuture: what happened"


def test_a_subclass_arrives_as_the_kind_it_is() -> None:
    told = ErrorBody.of(StoreUnavailable("away", applied="no"))
    assert type(error_from_fields(told.kind, told.fields)) is Unavailable


def test_a_foreign_exception_travels_as_an_internal_failure() -> None:
    told = ErrorBody.of(KeyError("k"))
    assert (told.kind, told.fields["message"]) == ("InternalFailure", "KeyError: 'k'")


class _Silent:
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("value", "text"), [(5, "5"), (b"x", "b'x'"), (object, "<class 'object'>"), (_Silent(), "<_Silent>")]
)
@pytest.mark.parametrize("name", ["message", *FIELDS])
def test_whatever_user_code_put_into_an_error_travels_as_text(name: str, value: Any, text: str) -> None:
    error = InternalFailure("what happened", **FIELDS)
    setattr(error, name, value)
    told = decode_error(encode_error(ErrorBody.of(error)))
    assert told.fields == {"message": "what happened", **FIELDS, name: text}


def test_an_error_nested_without_end_is_malformed() -> None:
    encoded = encode_error(ErrorBody("NotFound", {"message": "*"}))
    with pytest.raises(msgspec.DecodeError):
        decode_error(encoded.replace(b"\xa1*", b"\x91" * 10_000 + b"\xc0"))


def test_texts_of_any_length_are_cut_where_they_travel() -> None:
    long = "x" * 1_000_000
    told = ErrorBody.of(InternalFailure(long, object_id=long, remote_traceback=f"{long}the end"))
    assert told.fields["message"] == short_text(long)
    assert told.fields["message"].endswith("... (1000000 characters)")
    assert told.fields["remote_traceback"].startswith("...")
    assert told.fields["remote_traceback"].endswith("the end")
    assert len(encode_error(told)) < 3 * control.TRACEBACK_CHARACTERS_MAX
    assert short_text("short") == "short"


def test_the_text_names_what_the_message_does_not() -> None:
    error = Unavailable("actor 'p' is away", object_id="actor 'p'", applied="no", phase="capture")
    assert str(error) == "actor 'p' is away [phase: capture] [applied: no]"
    failed = InternalFailure("it raised", remote_traceback="Traceback\n  line\n")
    assert str(failed) == "it raised \n--- remote traceback ---\nTraceback\n  line"
