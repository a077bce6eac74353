"""How much of everything a run does."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FULL", "PAYLOAD", "QUICK", "Sizes"]

PAYLOAD = b"x" * 64
"""What a request carries and its answer brings back."""

MIB = 1024 * 1024


@dataclass(frozen=True)
class Sizes:
    """Counts of one run."""

    latency: int
    """Round trips, one at a time, for each path."""
    requests: int
    """Requests for each throughput figure."""
    one_way: int
    """Messages without an answer."""
    batch: int
    """Messages that a one-way sender hands over before it lets the loop turn."""
    objects: int
    """Idle objects made."""
    moves: dict[int, int]
    """State size in bytes to number of moves."""
    starts: int
    """Cluster starts."""
    interleaved: int
    """Bytes of the state that moves while other objects are asked."""
    interleaved_moves: int
    """Times it goes there and back."""
    paced_s: float
    """How long the same objects are asked while nothing moves."""


FULL = Sizes(
    latency=5_000,
    requests=60_000,
    one_way=100_000,
    batch=64,
    objects=10_000,
    moves={1024: 200, MIB: 50, 64 * MIB: 8},
    starts=3,
    interleaved=256 * MIB,
    interleaved_moves=3,
    paced_s=5.0,
)

QUICK = Sizes(
    latency=500,
    requests=5_000,
    one_way=10_000,
    batch=64,
    objects=2_000,
    moves={1024: 30, MIB: 10, 64 * MIB: 3},
    starts=1,
    interleaved=256 * MIB,
    interleaved_moves=1,
    paced_s=2.0,
)
