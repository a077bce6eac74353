"""The clock of the stores that live on one machine.

Owns the time base of expiry: a clock that runs on through suspend and is the same in every process of
one boot, and the name of that boot. Wall time is never used: it jumps.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["StoreClock", "boot_clock_ms", "boot_identity"]

StoreClock = Callable[[], int]
"""Milliseconds on the store's own clock."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_clock_ms() -> int:
    """Milliseconds since boot, suspend included (CLOCK_BOOTTIME; the nearest there is elsewhere)."""
    if sys.platform == "linux":
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    return time.monotonic_ns() // 1_000_000


def boot_identity() -> str:
    """A text that changes with every boot: times of another boot cannot be compared with `boot_clock_ms`."""
    if sys.platform == "linux":
        return _BOOT_ID.read_text("ascii").strip()
    asked = subprocess.run(
        ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"],
        capture_output=True,
        text=True,
        check=True,
        timeout=5,
    )
    return asked.stdout.strip()
