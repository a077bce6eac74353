"""What a target keeps of the records that are relayed to it, as its node counts it (R4.3.5, B5.3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from sojourn.frames import complete_record, parse_record_header
from sojourn.handoff import effects, events
from sojourn.handoff.machine import Event
from sojourn.handoff.target import TargetPlan
from sojourn.handoff.terms import DirectDisposal, HandoffIdentity, HandoffOptions
from sojourn.ids import ObjectKind, spot_key
from sojourn.wire import TargetFence
from sojourn.workers.debt import Retention
from sojourn.workers.handoff_wire import HandoffWire
from sojourn.workers.objects import LocalObject, Place, route_fence
from sojourn.workers.records import frozen_record
from sojourn.workers.target_driver import TargetDriver

from tests.unit.workers.fake_node import HERE, THERE, FakeNode

KEY = spot_key("d")
IDENTITY = HandoffIdentity((1, 2), 1, "there@9", 9, THERE, "v1")


class Link:
    peer = THERE
    connection_id = 3


class Deaf(TargetDriver):
    """Keeps what its machine would be told."""

    heard: list[Event]

    def handle(self, event: Event) -> None:
        self.heard.append(event)


class Target:
    """A staging whose machine hears nothing: what counts is what the node keeps."""

    def __init__(self, node: FakeNode) -> None:
        self.node = cast(Any, node)
        self.node.retention = Retention(2**20)
        self.node.shares_turn = lambda *_: False
        self.node.links = {}
        held = LocalObject(KEY, ObjectKind.INSTANCE_SPOT, "Device", Place.TARGET)
        fence = TargetFence(HERE.rid, HERE.generation, "here@7", 7)
        wire = HandoffWire.of_source(IDENTITY, fence, KEY, ObjectKind.INSTANCE_SPOT, "Device", 5, 3)
        plan = TargetPlan(IDENTITY, KEY, HERE, 1e9)
        self.driver = Deaf(self.node, held, 1, plan, wire, HandoffOptions())
        self.heard = self.driver.heard = []
        body = node.record(KEY, 1)
        route = route_fence(KEY, ObjectKind.INSTANCE_SPOT, 5, THERE, 3, 9)
        self.body = complete_record(body, parse_record_header(body), route, 5)

    def relay(self) -> None:
        self.driver.relay_arrived(frozen_record(self.body), cast(Any, Link()))

    @property
    def octets(self) -> int:
        return int(self.node.retention.octets)


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    node = FakeNode()
    yield Target(node)
    node.links = set()
    await node.close()


async def test_relayed_records_count_as_kept_until_the_staging_is_dropped(target: Target) -> None:
    target.driver._stage(target.driver.held)
    target.relay()
    first = target.octets
    assert first >= len(frozen_record(target.body))
    target.relay()
    assert target.octets == 2 * first
    target.driver._drop(effects.DropTarget("late", (), DirectDisposal.FAIL))
    assert target.octets == 0
    target.relay()  # what still comes is passed on
    assert target.octets == 0
    assert [type(event) for event in target.heard] == [events.RelayArrived] * 3


async def test_what_an_attempt_without_a_staging_gets_is_not_kept(target: Target) -> None:
    """It was refused; nothing of it would ever be let go of."""
    target.relay()
    assert target.octets == 0
