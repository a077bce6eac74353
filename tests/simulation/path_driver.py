"""The driver of `SenderPath`: one for each object a node sends to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.handoff.machine import Event, Log
from sojourn.handoff.path import (
    FailSubmitted,
    LookUpRoute,
    PathTaken,
    SenderPath,
    SendMarker,
    SendOn,
    StagingBegun,
)

from tests.simulation.driver import Driver
from tests.simulation.history import Record

if TYPE_CHECKING:
    from tests.simulation.node import Node

__all__ = ["PathDriver"]


class PathDriver(Driver):
    """Drives one `SenderPath`."""

    machine: SenderPath

    def __init__(self, node: Node, key: bytes) -> None:
        super().__init__(node, key)
        self.machine = self.world.new_path()
        self.learned_at = node.local.now()

    def deliver(self, event: Event, not_before: float = 0.0) -> None:
        """What this node's own handoffs say of the route is new as well: its age starts anew (B9.1)."""
        if isinstance(event, PathTaken | StagingBegun):
            self.learned_at = self.node.local.now()
        super().deliver(event, not_before)

    def _send_on(self, effect: SendOn) -> None:
        for record in effect.records:
            self.node.send_record(record, effect.run)

    def _send_marker(self, effect: SendMarker) -> None:
        marker = Record(self.world.next_number(), self.node.run, self.key, -1, 0, self.world.clock.now)
        marker.unit = self.world.unit_of(self.key)
        marker.marker = effect.marker_id
        self.node.send_record(marker, effect.run)

    def _look_up(self, effect: LookUpRoute) -> None:
        self.node.lookups.look_up(self.key)

    def _fail(self, effect: FailSubmitted) -> None:
        for record in effect.records:
            self.node.fail(record, effect.reason)

    _carriers = {  # noqa: RUF012
        Log: Driver.log,
        SendOn: _send_on,
        SendMarker: _send_marker,
        LookUpRoute: _look_up,
        FailSubmitted: _fail,
    }
