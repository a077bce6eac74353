"""The target's side of a node: Restore requests and their rivals, chunks, relay, the temporary queue."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sojourn.handoff import events as ev
from sojourn.handoff.path import (
    PathTaken,
    Route,
    StagingBegun,
)
from sojourn.handoff.rivals import RivalVerdict, judge_rivals
from sojourn.handoff.terms import FAILURE_SPOT_STALE, HandoffIdentity, RowFacts
from sojourn.ids import NodeRun

from tests.simulation.history import LOST_ON_THE_WAY, Record
from tests.simulation.network import Connection
from tests.simulation.target_driver import TargetDriver

if TYPE_CHECKING:
    from tests.simulation.node import Node

__all__ = ["Stagings"]


class Stagings:
    """Brings frames of handoffs to their targets, and judges two identities for one object (B8.16)."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.judging: dict[HandoffIdentity, list[tuple[Connection, tuple[Any, ...]]]] = {}
        self.inherited: dict[bytes, list[Record]] = {}

    def frame_arrived(self, connection: Connection, frame: tuple[Any, ...]) -> None:
        identity: HandoffIdentity = frame[1]
        if identity in self.judging:
            self.judging[identity].append((connection, frame))
            return
        target = self.node.targets.get(identity)
        number = connection.number
        kind = frame[0]
        if target is None:
            if kind == "restore":
                self._new_restore(connection, frame)
            elif kind == "relay":
                self.node.fail(frame[2], "Unavailable")
        elif kind == "restore":
            target.lane.arrive(ev.RestoreRequested(frame[3], number))
        elif kind == "withdrawn":
            target.lane.arrive(ev.WithdrawnReceived())
        elif kind == "chunk":
            target.lane.arrive(ev.ChunkArrived(frame[2], frame[3], number))
        elif kind == "relay":
            record = frame[2]
            if record.excuse == LOST_ON_THE_WAY:
                record.excuse = None
            if self.node.staged.get(record.key) is target:  # else it may be a late copy
                record.where = self.node.run
            target.lane.arrive(ev.RelayArrived(frame[2], number), frame[2])
        else:
            target.lane.arrive(ev.CutoverArrived(frame[2], frame[3], number))

    def _new_restore(self, connection: Connection, frame: tuple[Any, ...]) -> None:
        _, identity, key, manifest, remaining_s = frame
        target = self.node.world.target_driver(self.node, identity, key, self.node.local.now() + remaining_s)
        item = self.node.objects.get(key)
        source = self.node.sources.get(key)
        if (item is not None and item.status == "open") or (source is not None and source.before_boundary):
            self.node.targets[identity] = target
            target.deliver(ev.RestoreRefused(FAILURE_SPOT_STALE, connection.number))
        elif key in self.node.staged or any(f[0][1][2] == key for f in self.judging.values() if f):
            self.judging[identity] = [(connection, frame)]
            self.node.world.store.read(key, partial(self.node.step, self._judge, target, connection, frame))
        else:
            self.node.targets[identity] = target
            target.deliver(ev.RestoreRequested(manifest, connection.number))

    def _judge(
        self,
        target: TargetDriver,
        connection: Connection,
        frame: tuple[Any, ...],
        known: bool,
        row: RowFacts | None,
    ) -> None:
        """Two identities for one object (B8.16)."""
        if not known:
            read = partial(self.node.step, self._judge, target, connection, frame)
            self.node.world.clock.after(0.05, self.node.step, self.node.world.store.read, target.key, read)
            return
        waiting = self.judging.pop(target.identity)
        self.node.targets[target.identity] = target
        older = self.node.staged.get(target.key)
        number = connection.number
        lives = row is not None and row.version == target.identity.expected_version
        if older is not None:
            verdict = judge_rivals(row, older.machine, target.identity)  # type: ignore[arg-type]
            if self.node.world.newest_identity_wins:
                verdict = RivalVerdict(older_lives=False, newcomer_lives=True)
            lives = verdict.newcomer_lives
            if not verdict.older_lives:
                older.deliver(ev.RivalPreferred())
        item = self.node.objects.get(target.key)
        if item is not None and item.status == "open":
            lives = False
        if not lives:
            target.deliver(ev.RestoreRefused(FAILURE_SPOT_STALE, number))
        else:
            target.deliver(ev.RestoreRequested(frame[3], number))
        for record in self.inherited.pop(target.key, []):
            if lives:
                target.held.owe(record, None)
                target.deliver(ev.DirectArrived(record))
            else:
                self.node.take(record, None)
        for each in waiting[1:]:
            self.node.frame_arrived(*each)

    def stage(self, target: TargetDriver, keys: tuple[bytes, ...]) -> None:
        """Register the temporary queue; this node's own path leads here from now on (B8.14, B9.4)."""
        for key in keys:
            self.node.staged[key] = self.node.latest[key] = target
        if not self.node.world.divert_at_commit:
            self.lead_here(target, keys)

    def lead_here(self, target: TargetDriver, keys: tuple[bytes, ...]) -> None:
        queued = self._queued(target.identity.source)
        for key in keys:
            path = self.node.path(key)
            source = self.node.sources.get(key)
            last = path.machine.last_run
            if last in (None, self.node.run) and source is not None and source.follow_owner is None:
                path.deliver(PathTaken(Route(source.target.run, 0, 0)))  # what this node followed went there
            path.deliver(StagingBegun(self.node.run, target.identity.source, queued))

    def _queued(self, run: NodeRun) -> bool:
        """Whether records wait here for credit on their way to that run: a relay-ready would overtake them."""
        connection = self.node.links.get(run)
        if connection is None or self.node.world.forgets_queued:
            return False
        return bool(connection.pipes[self.node.run].blocked)

    def unstage(self, target: TargetDriver) -> None:
        for key in target.keys:
            if self.node.staged.get(key) is target:
                del self.node.staged[key]
