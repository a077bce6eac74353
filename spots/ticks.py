"""What a timer tells its callback, and the checks of a timer's settings (B4.1, B4.2).

Owns the public `Tick` and the names of the overrun policies. It must not know clocks or queues.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from sojourn.errors import NotConfigured

__all__ = [
    "DEFAULT_CATCH_UP_MAX",
    "OVERRUN_POLICIES",
    "OverrunPolicy",
    "Tick",
    "check_overrun",
    "milliseconds",
]

OverrunPolicy: TypeAlias = Literal["skip_late", "catch_up", "delay_next"]

OVERRUN_POLICIES: Final[tuple[str, ...]] = get_args(OverrunPolicy)
"""Their position + 1 is the number on the wire (`wire.md` 4.4)."""

DEFAULT_CATCH_UP_MAX: Final = 16


class Tick(msgspec.Struct, frozen=True):
    """One tick of a timer.

    Attributes:
        name: the timer's name.
        delivery_index: counts delivered ticks from 1 without gaps.
        scheduled_index: counts scheduled instants from 1; larger steps mean skipped ticks.
        skipped: scheduled instants that passed undelivered since the tick before.
        scheduled_at_ms: when it was due, Unix ms.
        started_at_ms: when the callback started, Unix ms.
        payload: what `start_timer(payload=...)` was given, else None.
    """

    name: str
    delivery_index: int
    scheduled_index: int
    skipped: int
    scheduled_at_ms: int
    started_at_ms: int
    payload: Any = None


def milliseconds(seconds: float, where: str, what: str, least: int = 1) -> int:
    """Seconds as whole milliseconds.

    Raises:
        NotConfigured: not a finite number, or below `least` ms.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
        raise NotConfigured(f"{where}: {what} is a number of seconds, not {seconds!r}")
    whole = round(seconds * 1000)
    if whole < least:
        raise NotConfigured(f"{where}: {what} is at least {least / 1000} s, not {seconds!r}")
    return whole


def check_overrun(overrun: str, max_catch_up: int, repeat: int | None, where: str) -> OverrunPolicy:
    """Check the settings of a timer and return the policy.

    Raises:
        NotConfigured: an unknown policy, or a count below 1.
    """
    if max_catch_up < 1:
        raise NotConfigured(f"{where}: max_catch_up is 1 or more, not {max_catch_up!r}")
    if repeat is not None and repeat < 1:
        raise NotConfigured(f"{where}: repeat is 1 or more, or None for no end, not {repeat!r}")
    for known in get_args(OverrunPolicy):
        if overrun == known:
            return known  # type: ignore[no-any-return]
    raise NotConfigured(f"{where}: overrun is one of {', '.join(OVERRUN_POLICIES)}, not {overrun!r}")
