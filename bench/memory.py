"""How much memory the processes of a cluster use (Linux)."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["descendants", "proportional_bytes"]


def descendants(root: int | None = None) -> list[int]:
    """Process ids of all children and their children, of this process when `root` is None."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue  # it ended meanwhile
            parent = int(stat.rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = [os.getpid() if root is None else root]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found.extend(children)
        waiting.extend(children)
    return found


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
