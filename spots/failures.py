"""Errors of user code on their way to a caller (B3.3): always typed, with the traceback as text."""

from __future__ import annotations

import asyncio
import traceback
from types import TracebackType

from sojourn.control import short_text
from sojourn.errors import InternalFailure, SojournError

__all__ = ["failure_of"]


def failure_of(error: BaseException, name: str, object_id: str) -> SojournError:
    """What the caller of a handler gets for an exception that left it."""
    if isinstance(error, asyncio.CancelledError):
        text = f"{name} was cancelled from inside"
    else:
        text = f"{name} raised {type(error).__name__}: {error}"
    return InternalFailure(short_text(text), object_id=object_id, remote_traceback=_text(error))


def _text(error: BaseException) -> str:
    shown = _user_part(error.__traceback__)
    return "".join(traceback.format_exception(type(error), error, shown))


def _user_part(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame that is not the turn machinery."""
    step = trace
    while step is not None and step.tb_frame.f_globals.get("__name__", "").startswith("sojourn.spots."):
        step = step.tb_next
    return step if step is not None else trace
