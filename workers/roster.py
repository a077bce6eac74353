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
        younger than the scan). So are unconnected runs of a RID of which another run is connected and was
        accepted: the row of a run outlives it (B6.1), and would bring back what has ended for certain."""
        found = {row.run: row for row in rows}
        told = ((run, self._descriptors.get(run) or found.get(run)) for run in connected)
        standing = {run.rid for run, descriptor in told if descriptor is not None and descriptor.accepted}
        seen = {run: row for run, row in found.items() if run in connected or run.rid not in standing}
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

    def replaced_by(self, descriptor: NodeDescriptor, connected: Collection[NodeRun]) -> list[NodeRun]:
        """The runs that ended for certain now that this one has announced itself: the unconnected ones of its RID.
        A run that is not accepted yet ends none, since it may be refused as a twin of one that is alive."""
        if not descriptor.accepted:
            return []
        others = [node.run for node in self.nodes() if node.rid == descriptor.rid]
        return [run for run in others if run != descriptor.run and run not in connected]

    def by_rid(self, rid: bytes, connected: Collection[NodeRun] = ()) -> NodeDescriptor:
        """The run of a RID that is meant: an accepted one, a connected one, the one heard of last, in this order.

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
        ranked = [(node.accepted, node.run in connected, number) for number, node in enumerate(found)]
        return found[max(ranked)[2]]

    def endpoint(self, run: NodeRun) -> str:
        """Where to dial a run.

        Raises:
            Unavailable: the run is not known (any more), or it is a client and is never dialled.
        """
        descriptor = self._descriptors.get(run)
        if descriptor is None or not descriptor.endpoints:
            raise Unavailable(f"node {run} is not known or ended", applied="no")
        return descriptor.endpoints[0]
