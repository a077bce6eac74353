"""The route cache of one node: which run owns an object, as last learned (B9.1).

Owns ages and generations of routes. An older route never overwrites a newer one.
"""

from __future__ import annotations

from dataclasses import dataclass

from sojourn.ids import NodeRun

__all__ = ["Route"]


@dataclass(frozen=True, slots=True)
class Route:
    """Where an object is, or (generation 0) where a missing Instance Spot is to be made."""

    run: NodeRun
    kind: int
    object_generation: int
    owner_generation: int
    fence: bytes
    learned_at: float

    def older_than(self, other: Route) -> bool:
        """Whether `other` is strictly newer: a later incarnation, or a later owner of the same one."""
        return (self.object_generation, self.owner_generation) < (
            other.object_generation,
            other.owner_generation,
        )
