"""What became of the messages of a node, so that its figures add up (B3.5).

A message is accepted when a worker takes it into a mailbox, or when it ends in the supervisor without having come to
one. It ends in exactly one of four ways, or leaves with its object: `accepted + arrived = handled + failed + dead +
in_doubt + left + waiting`. Owns that account over the lives of all workers; what a dead one had not told any more is
in doubt. Of moves: `arrived` here is `left` there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["ENDS", "Ended", "Ledger"]

ENDS = ("handled", "failed", "dead", "in_doubt")
"""The ways in which a message ends."""
_COUNTED = ("accepted", "handled", "failed", "dead", "duplicates", "ticks")
"""What a worker counts."""


class Ended(NamedTuple):
    """Messages that had left with an object and were ended here after all."""

    failed: int = 0
    dead: int = 0
    in_doubt: int = 0


class Ledger:
    """The account of one node."""

    def __init__(self) -> None:
        self._told: dict[int, Mapping[str, int]] = {}
        """Figures of the living workers, as each told them last."""
        self._moved: dict[int, int] = {}
        """Messages that came to a living worker with objects, less those that left it."""
        self._gone = dict.fromkeys((*_COUNTED, "in_doubt"), 0)
        """Of workers that ended."""
        self._arrived = 0
        self._left = 0
        self._returned = Ended()

    def told(self, worker: int, figures: Mapping[str, int]) -> None:
        """A worker told its figures."""
        if figures:
            self._told[worker] = figures

    def arrived(self, worker: int, messages: int) -> None:
        """An object was restored in a worker, with these messages in its queue."""
        self._arrived += messages
        self._moved[worker] = self._moved.get(worker, 0) + messages

    def left(self, worker: int, messages: int) -> None:
        """An object was captured and dropped in a worker, or an arrival given up: its messages are not there any more."""
        self._left += messages
        self._moved[worker] = self._moved.get(worker, 0) - messages

    def returned(self, ended: Ended) -> None:
        """Messages that had left were ended by this node, which has counted them: nobody else will."""
        self._arrived += sum(ended)
        self._returned = Ended(*map(sum, zip(self._returned, ended, strict=True)))

    def lost(self, worker: int, given: int, kept: int) -> None:
        """A worker ended. `given` records had been handed to it in all; `kept` messages go on in the payloads of moving
        objects. What else it had not told of is in doubt."""
        figures = self._told.pop(worker, {})
        unseen = max(0, given - figures.get("taken", 0))
        self.left(worker, kept)
        for name in _COUNTED:
            self._gone[name] += figures.get(name, 0)
        self._gone["accepted"] += unseen
        ended = sum(figures.get(name, 0) for name in ENDS)
        self._gone["in_doubt"] += figures.get("accepted", 0) + unseen + self._moved.pop(worker, 0) - ended

    def total(self, counters: Mapping[str, int]) -> dict[str, int]:
        """The account now; `counters` are the node's own (`failed_requests`, `dead_letters`)."""
        sums = dict(self._gone)
        for figures in self._told.values():
            for name in _COUNTED:
                sums[name] += figures.get(name, 0)
        back, failed, dead = (
            self._returned,
            counters.get("failed_requests", 0),
            counters.get("dead_letters", 0),
        )
        sums["accepted"] += failed + dead - back.failed - back.dead
        sums["failed"] += failed
        sums["dead"] += dead
        sums["in_doubt"] += back.in_doubt
        sums |= {"arrived": self._arrived, "left": self._left}
        sums["waiting"] = sums["accepted"] + self._arrived - self._left - sum(sums[name] for name in ENDS)
        return sums
