"""The few settings the objects of one event loop look at, out of the node's options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["SpotSettings"]


class SpotSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults are those of `sojourn.options`, which documents each.

    Names and units are the same there; what is not listed here concerns other parts.
    """

    request_timeout_ms: int = 30_000
    admission_timeout_ms: int = 1_000
    hook_deadline_ms: int = 30_000
    handler_deadline_ms: int = 0
    max_frame_bytes: int = 1 << 20
    allow_pickle: bool = True

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> SpotSettings:
        """Settings out of a mapping of options; missing ones keep their default."""
        return msgspec.convert(dict(options), cls)
