"""What a node had of an object before it staged it, and has again when the staging ends (B8.15)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from sojourn.frames import parse_record_header
from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff.machine import Event
from sojourn.ids import ObjectKey, ObjectKind
from sojourn.workers.objects import LocalObject, Place
from sojourn.workers.target_driver import TargetDriver

from tests.machines.samples import IDENTITY, KEY, A
from tests.unit.workers.fake_node import FakeNode


class Target(TargetDriver):
    """The routing of a target; what its machine is told is kept."""

    def __init__(self, node: FakeNode, key: ObjectKey = KEY) -> None:
        self._node = cast(Any, node)
        self.plan = cast(Any, SimpleNamespace(identity=IDENTITY, key=key))
        self.held = LocalObject(key, ObjectKind.ACTOR, "Player", Place.TARGET)
        self._unit = [self.held]
        self._previous = {}
        self._early_markers = []
        self.heir = None
        self.told: list[Event] = []
        self._link = None

    def handle(self, event: Event) -> None:
        self.told.append(event)

    def _queued_towards(self, source: Any) -> bool:
        return False

    def record_arrived(self, body: Any, header: Any, from_run: Any, debt: Any) -> None:
        self.handle(ev.DirectArrived(body))


@pytest.fixture
async def node() -> FakeNode:
    it = FakeNode()
    it.worker_ready(0)
    return it


def here(node: FakeNode, place: Place) -> LocalObject:
    held = LocalObject(KEY, ObjectKind.ACTOR, "Player", place)
    held.worker = 0
    node.router.objects[KEY] = held
    return held


def stage(node: FakeNode) -> Target:
    target = Target(node)
    target._install_queue(fx.InstallTemporaryQueue())
    assert node.router.objects[KEY] is target.held
    return target


async def test_a_follow_route_comes_back(node: FakeNode) -> None:
    former = here(node, Place.FOLLOW)
    former.follow_run = A
    target = stage(node)
    target._unstage(target._unit)
    assert node.router.objects[KEY] is former
    assert former.place is Place.FOLLOW


async def test_it_comes_back_also_behind_an_attempt_that_gave_its_place_away(node: FakeNode) -> None:
    """The older one is removed without its route, which the newer one has to know (B8.16)."""
    former = here(node, Place.FOLLOW)
    former.follow_run = A
    stage(node)
    newer = stage(node)
    newer._unstage(newer._unit)
    assert node.router.objects[KEY] is former


async def test_what_was_being_made_hands_its_records_over_and_does_not_come_back(node: FakeNode) -> None:
    made = here(node, Place.CREATING)
    body = node.record(KEY, 1, kind=ObjectKind.ACTOR)
    made.waiting = [(body, parse_record_header(body), None)]
    target = stage(node)
    assert made.waiting is None, "its records wait with those of the staging"
    assert not node.creation._present(made)
    target._unstage(target._unit)
    assert KEY not in node.router.objects


async def test_what_ran_under_a_lease_that_was_over_is_dropped(node: FakeNode) -> None:
    """The row names the source: this node has not looked at its own objects yet (B6.4)."""
    zombie = here(node, Place.ACTIVE)
    dropped: list[tuple[LocalObject, str]] = []
    node.drop = lambda held, reason: dropped.append((held, reason))  # type: ignore[attr-defined]
    target = stage(node)
    assert dropped == [(zombie, "")]
    target._unstage(target._unit)
    assert KEY not in node.router.objects
