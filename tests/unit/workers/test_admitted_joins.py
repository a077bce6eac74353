"""How long the joins that a node has admitted are remembered (B2.4)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sojourn.control import RegistryEntry
from sojourn.ids import NodeRun, ObjectKind, spot_key
from sojourn.wire import (
    ActorIdentity,
    ActorJoinRequest,
    ActorRef,
    ActorRouteFence,
    SpotRef,
    SpotRouteFence,
)
from sojourn.workers.objects import LocalObject, Place

from tests.machines.samples import A, B
from tests.unit.workers.outside_rig import Rig

SPOT = spot_key("arena")


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig(B)
    rig.node.registry["Arena"] = RegistryEntry("Arena", ObjectKind.USER_SPOT, "recreate", 1)
    spot = LocalObject(SPOT, ObjectKind.USER_SPOT, "Arena", Place.ACTIVE)
    spot.settle(1, 1, B, rig.node.lease_generation)
    rig.node.router.objects[SPOT] = spot
    try:
        yield rig
    finally:
        await rig.close()


def ask(rig: Rig, actor: str, owner: NodeRun = A) -> None:
    node = rig.node
    fence = SpotRouteFence(SpotRef("arena", 1), B.rid, B.generation, 1, node.lease_generation)
    request = ActorJoinRequest(
        correlation=1,
        actor_route_fence=ActorRouteFence(ActorRef(actor, 1), owner.rid, owner.generation, 1, 1),
        entry=False,
        spot_route_fence=fence,
    )
    link: Any = rig.links.up.get(A) or rig.link(A)
    node.coordinator.joins.asked(link, request)


def admitted(rig: Rig, actor: str) -> bool:
    named = ActorIdentity(actor_id=actor, object_generation=1, expected_authority_owner_generation=1)
    return rig.node.coordinator.joins.spot_of(named, A) == SPOT


def later(rig: Rig, share: float) -> None:
    """A share of the time that an admission lasts goes by."""
    loop: Any = rig.node.loop
    options = rig.node.options
    loop._now += share * (options.join_timeout_ms + options.relocation_commit_reserve_ms) / 1000


async def test_each_ends_in_its_time(rig: Rig) -> None:
    ask(rig, "ann")
    later(rig, 0.6)
    ask(rig, "bob")
    assert admitted(rig, "ann")
    later(rig, 0.6)
    assert not admitted(rig, "ann")
    assert admitted(rig, "bob")
    later(rig, 0.6)
    assert not admitted(rig, "bob")


async def test_one_that_asks_again_has_the_whole_time_and_holds_up_nobody(rig: Rig) -> None:
    ask(rig, "ann")
    ask(rig, "bob")
    later(rig, 0.6)
    ask(rig, "ann")
    later(rig, 0.6)
    assert admitted(rig, "ann")
    assert not admitted(rig, "bob")


async def test_nothing_is_kept_of_those_that_are_over(rig: Rig) -> None:
    for number in range(1000):
        ask(rig, f"actor{number}")
        later(rig, 0.1)
    assert sum(admitted(rig, f"actor{number}") for number in range(1000)) < 11
    assert len(rig.node.coordinator.joins._admitted) < 11
