"""What emptying a node returns (B10.2).

Owns the result's fields, in the form in which they cross process borders. It must not know how it came about.
"""

from __future__ import annotations

import msgspec

__all__ = ["HostRelocation", "StayedUnit"]


class StayedUnit(msgspec.Struct, frozen=True):
    """One object that is still on the node.

    Attributes:
        object: the object as people read it, `spot 'thermostat-7'`.
        outcome: `failed` (it serves on), `in doubt` (its owner could not be read) or `would stay` (dry run).
        reason: one of the reasons of a `Blocked` result.
        detail: what happened.
    """

    object: str
    outcome: str
    reason: str
    detail: str = ""


class HostRelocation(msgspec.Struct):
    """How emptying a node ended.

    Attributes:
        outcome: `Relocated` (every object left), or `Blocked`.
        reason: why it is `Blocked`: TargetUnavailable, StoreUnavailable, RelocationDisabled, StateIncompatible,
            DeadlineExceeded, RelocationFailed, RuntimeNotReady, ShutdownRequested or OperationInProgress.
        moved: objects that left.
        stayed: every object that did not, and why.
        interruptions_ns: seal to first turn on the target of each object that left, in nanoseconds, where known
            (B10.7).
    """

    outcome: str
    reason: str = ""
    moved: int = 0
    stayed: list[StayedUnit] = []
    interruptions_ns: list[int] = []
