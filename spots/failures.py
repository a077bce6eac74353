"""Errors of user code on their way to a caller (B3.3): always typed, with the traceback as text."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from sojourn.control import short_text
from sojourn.errors import InternalFailure, SojournError

__all__ = ["Escaped", "contained", "failure_of"]


_NO_TEXT = "<its __str__ raised>"


class Escaped(Exception):
    """Stands for what is no `Exception` (a `CancelledError`, a `BaseException` of one's own) or has no text."""


@contextmanager
def contained() -> Iterator[None]:
    """Around user code that is no turn (`__init__`, `capture`, `restore`, pickling): nothing but an exit passes.

    What is no `Exception` would else go past every handler of the framework and end the worker, with every
    other object in it (B3.3).

    Raises:
        Escaped: in its place.
    """
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        text = _said(error)
        if isinstance(error, Exception) and text != _NO_TEXT:
            raise
        raise Escaped(f"{type(error).__name__}: {text}") from error


def failure_of(error: BaseException, name: str, object_id: str) -> SojournError:
    """What the caller of a handler gets for an exception that left it."""
    if isinstance(error, asyncio.CancelledError):
        text = f"{name} was cancelled from inside"
    else:
        text = f"{name} raised {type(error).__name__}: {_said(error)}"
    return InternalFailure(short_text(text), object_id=object_id, remote_traceback=_text(error))


def _said(error: BaseException) -> str:
    """The exception's text; its own `__str__` is user code, too, and may raise."""
    try:
        return str(error)
    except BaseException:
        return _NO_TEXT


def _text(error: BaseException) -> str:
    shown = _user_part(error.__traceback__)
    try:
        return "".join(traceback.format_exception(type(error), error, shown))
    except BaseException:  # likewise
        return "".join(traceback.format_tb(shown))


def _user_part(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame that is not the turn machinery."""
    step = trace
    while step is not None and step.tb_frame.f_globals.get("__name__", "").startswith("sojourn.spots."):
        step = step.tb_next
    return step if step is not None else trace
