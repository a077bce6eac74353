"""How much memory and processor time the processes of a cluster use (Linux)."""

from __future__ import annotations

from pathlib import Path

__all__ = ["cpu_seconds", "proportional_bytes"]


def proportional_bytes(pids: list[int]) -> int:
    """Their proportional set size in bytes: shared pages are divided among those who share them."""
    total = 0
    for pid in pids:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue  # it ended meanwhile
        for line in rollup.splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def cpu_seconds(pids: list[int]) -> float:
    """Processor time that they have used, all threads, to the nanosecond; unlike a clock it does not count
    the time in which other programs ran."""
    total = 0
    for pid in pids:
        for schedule in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                total += int(schedule.read_text().split()[0])
            except OSError:
                continue  # the thread ended meanwhile
    return total / 1e9
