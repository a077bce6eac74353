"""How much memory the processes of a cluster use (Linux)."""

from __future__ import annotations

from pathlib import Path

__all__ = ["proportional_bytes"]


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
