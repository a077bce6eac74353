"""A unit that is not whole any more when it is to be sealed: what is left of it serves on (B6.6, R4.2.8)."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

from sojourn.handoff import events
from sojourn.handoff.source import SourcePlan
from sojourn.handoff.terms import HandoffOptions
from sojourn.ids import ObjectKind, actor_key, spot_key
from sojourn.wire import TargetFence
from sojourn.workers.debt import Retention
from sojourn.workers.handoff_wire import HandoffWire
from sojourn.workers.objects import LocalObject, Place
from sojourn.workers.source_driver import SourceDriver

from tests.machines.samples import IDENTITY, B
from tests.unit.workers.fake_node import VirtualLoop


class Outcome:
    """The future that whoever asked for the move waits for."""

    def __init__(self) -> None:
        self.result: Any = None

    def done(self) -> bool:
        return self.result is not None

    def set_result(self, result: Any) -> None:
        self.result = result


class Loop(VirtualLoop):
    def create_future(self) -> Outcome:
        return Outcome()


def unit() -> tuple[Any, SourceDriver, LocalObject, list[LocalObject]]:
    """A node, and a handoff of a Spot with two members that has begun and is about to seal."""
    spot = LocalObject(spot_key("hall"), ObjectKind.USER_SPOT, "Hall", Place.ACTIVE)
    members = [
        LocalObject(actor_key(name), ObjectKind.ACTOR, "Guest", Place.ACTIVE) for name in ("ann", "bob")
    ]
    forgotten: list[SourceDriver] = []
    node = SimpleNamespace(
        loop=Loop(),
        retention=Retention(1024),
        coordinator=SimpleNamespace(budget=None, forgotten=forgotten.append),
        router=SimpleNamespace(objects={each.key: each for each in (spot, *members)}),
        logger=logging.getLogger("test"),
        log=lambda *_, **__: None,
        forgotten=forgotten,
    )
    fence = TargetFence(B.rid, B.generation, "owner-b", 1)
    wire = HandoffWire.of_source(IDENTITY, fence, spot.key, ObjectKind.USER_SPOT, "Hall", 1, 4)
    plan = SourcePlan(IDENTITY, B, 1, 4, node.loop.time() + 30.0)
    rows = cast(Any, None)
    driver = SourceDriver(cast(Any, node), spot, 1, rows, plan, wire, HandoffOptions(), (), members)
    return node, driver, spot, members


def begin(node: Any, driver: SourceDriver) -> None:
    driver.handle(events.RelocationStarted(1))
    for _ in range(3):  # what the steps put off to the next turn of the loop
        node.loop.advance(0.0)


async def test_a_member_that_left_before_the_seal_takes_nobody_along() -> None:
    node, driver, spot, (ann, bob) = unit()
    del node.router.objects[bob.key]
    begin(node, driver)
    assert node.router.objects == {spot.key: spot, ann.key: ann}
    assert {spot.place, ann.place} == {Place.ACTIVE}
    outcome: Any = driver.outcome
    assert (outcome.result.outcome, outcome.result.reason) == ("failed", "RelocationFailed")
    assert "actor 'bob' left" in outcome.result.detail
    assert node.forgotten == [driver]


async def test_a_spot_that_ended_before_the_seal_ends_the_handoff() -> None:
    node, driver, spot, _ = unit()
    del node.router.objects[spot.key]
    begin(node, driver)
    outcome: Any = driver.outcome
    assert outcome.result.outcome == "failed"
    assert spot.key not in node.router.objects
    assert node.forgotten == [driver]
