"""The members of the cluster as one node knows them: their descriptors, and what placement sees.

Owns which descriptor of a run is current. Links tell what is connected, the store what is alive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sojourn.errors import NotConfigured, Unavailable
from sojourn.ids import NodeRun
from sojourn.rows import NodeDescriptor

__all__ = ["Roster"]

FORMER_MAX = 1024
"""RIDs of ended runs that are remembered, to tell a node that stopped from a name that nobody had."""


class Roster:
    """Descriptors by run; announcements over links are newer than rows that were scanned before."""

    def __init__(self) -> None:
        self._descriptors: dict[NodeRun, NodeDescriptor] = {}
        self._former: dict[bytes, None] = {}
        """RIDs of runs that ended, the newest last."""

    def heard(self, descriptor: NodeDescriptor) -> None:
        """A peer announced itself, or its row was read."""
        self._descriptors[descriptor.run] = descriptor

    def refresh(self, rows: Iterable[NodeDescriptor], connected: Collection[NodeRun]) -> None:
        """Take a whole scan: runs without a row are forgotten, unless they are connected (their row may be
        younger than the scan). So are former runs of a RID whose later run is connected: the row of a run
        outlives it (B6.1), and would bring back what has ended for certain."""
        newest: dict[bytes, int] = {}
        for run in connected:
            newest[run.rid] = max(run.generation, newest.get(run.rid, 0))
        seen = {
            row.run: row for row in rows if row.run in connected or row.generation >= newest.get(row.rid, 0)
        }
        for run in list(self._descriptors):
            if run not in seen and run not in connected:
                self.gone(run)
        for run, row in seen.items():
            if run not in connected or run not in self._descriptors:
                self._descriptors[run] = row

    def gone(self, run: NodeRun) -> None:
        """The run ended for certain."""
        former = self._descriptors.pop(run, None)
        if former is None or former.client:
            return
        self._former.pop(run.rid, None)
        self._former[run.rid] = None
        if len(self._former) > FORMER_MAX:
            del self._former[next(iter(self._former))]

    def get(self, run: NodeRun) -> NodeDescriptor | None:
        """The descriptor of a run."""
        return self._descriptors.get(run)

    def all(self) -> list[NodeDescriptor]:
        """Every known descriptor."""
        return list(self._descriptors.values())

    def nodes(self) -> list[NodeDescriptor]:
        """Every known node (members with workers)."""
        return [descriptor for descriptor in self._descriptors.values() if not descriptor.client]

    def by_rid(self, rid: bytes) -> NodeDescriptor:
        """The newest known run of a RID.

        Raises:
            NotConfigured: no node of this RID is or was known.
            Unavailable: it ended.
        """
        found = [node for node in self.nodes() if node.rid == rid]
        if not found:
            known = ", ".join(sorted(node.rid.decode("utf-8", "backslashreplace") for node in self.nodes()))
            name = repr(rid.decode("utf-8", "backslashreplace"))
            if rid in self._former:
                raise Unavailable(f"node {name} has ended; running: {known or 'none'}", applied="no")
            raise NotConfigured(f"no node has the RID {name}; known: {known or 'none'}")
        return max(found, key=lambda node: node.generation)

    def endpoint(self, run: NodeRun) -> str:
        """Where to dial a run.

        Raises:
            Unavailable: the run is not known (any more), or it is a client and is never dialled.
        """
        descriptor = self._descriptors.get(run)
        if descriptor is None or not descriptor.endpoints:
            raise Unavailable(f"node {run} is not known or ended", applied="no")
        return descriptor.endpoints[0]
