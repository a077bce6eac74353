"""Placement: eligibility with a reason for every refusal, and a choice that deciders agree on."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from sojourn.errors import Unavailable
from sojourn.ids import NodeRun, ObjectKind, actor_key
from sojourn.placement import PlacementQuery, choose_node, why_refused
from sojourn.rows import HostState, NodeDescriptor, TypeSupport

KEY = actor_key("p1")


def node(name: str, **changes: Any) -> NodeDescriptor:
    fields: dict[str, Any] = {
        "rid": name.encode(),
        "generation": 1,
        "owner_id": name,
        "lease_generation": 1,
        "application": "arena",
        "application_version": 3,
        "types": (
            TypeSupport(ObjectKind.USER_SPOT, "room", "preserve"),
            TypeSupport(ObjectKind.ACTOR, "player", "preserve"),
        ),
        "state": HostState.SERVING,
        **changes,
    }
    return NodeDescriptor(**fields)


def query(**changes: Any) -> PlacementQuery:
    fields: dict[str, Any] = {"key": KEY, "kind": ObjectKind.ACTOR, "stable_type": "player", **changes}
    return PlacementQuery(**fields)


@pytest.mark.parametrize(
    ("changes", "asked", "reason"),
    [
        ({"state": HostState.RELOCATING}, {}, "it is Relocating, not Serving"),
        ({"cordoned": True}, {}, "it is cordoned"),
        ({}, {"excluded": [NodeRun(b"a", 1)]}, "it is excluded"),
        ({}, {"connected": [NodeRun(b"a", 2)]}, "no authenticated connection to this run"),
        ({"capacity": 5, "object_count": 5}, {}, "it is full (5 of 5 objects)"),
        ({}, {"stable_type": "robot"}, "it has no actor type 'robot'"),
        ({}, {"kind": ObjectKind.INSTANCE_SPOT, "stable_type": "player"}, "no instance_spot type 'player'"),
        ({}, {"policy": "recreate"}, "its relocation policy for 'player' is preserve, not recreate"),
        ({}, {"application_version": 4}, "it runs application version 3, not 4"),
        ({"weight": 0}, {}, "its weight is 0"),
        ({"wave": "blue"}, {"wave": "blue"}, "it is in maintenance wave 'blue' too"),
    ],
)
def test_every_refusal_has_a_reason(changes: dict[str, Any], asked: dict[str, Any], reason: str) -> None:
    """B8.1"""
    placement = choose_node(query(**asked), [node("a", **changes)])
    assert placement.node is None
    (refusal,) = placement.refusals
    assert refusal.run == NodeRun(b"a", 1)
    assert reason in refusal.reason
    with pytest.raises(Unavailable, match="no node can take actor 'p1'") as caught:
        placement.require(query(**asked))
    assert reason in str(caught.value)
    assert caught.value.applied == "no"


def test_a_node_that_fits_is_taken() -> None:
    asked = query(
        policy="preserve",
        application_version=3,
        wave="blue",
        connected=[NodeRun(b"a", 1)],
        excluded=[NodeRun(b"b", 1)],
    )
    fitting = node("a", capacity=6, object_count=5, wave="green")
    assert why_refused(asked, fitting) is None
    assert choose_node(asked, [fitting, node("b")]).require(asked) == fitting
    assert why_refused(query(wave="blue"), node("a")) is None, "an unset wave is no restriction"


def test_clients_are_passed_over() -> None:
    placement = choose_node(query(), [node("a", client=True)])
    assert placement.refusals == ()
    with pytest.raises(Unavailable, match="no node is known: none runs with this store and cluster name"):
        placement.require(query())


def test_an_explicit_node_ignores_weight_and_wave_and_nothing_else() -> None:
    """B8.1"""
    nodes = [node("a"), node("b", weight=0, wave="blue")]
    assert choose_node(query(wave="blue"), nodes, to=b"b").node == nodes[1]
    full = choose_node(query(), [node("a"), node("b", cordoned=True)], to=b"b")
    assert full.node is None
    assert [refusal.reason for refusal in full.refusals] == ["it is cordoned"]
    unknown = choose_node(query(), nodes, to=b"c")
    assert [refusal.reason for refusal in unknown.refusals] == ["no node with this RID has a live lease"]


def test_deciders_agree_whatever_order_they_see() -> None:
    nodes = [node(name) for name in "abcdef"]
    for number in range(50):
        asked = query(key=actor_key(f"p{number}"))
        chosen = choose_node(asked, nodes).node
        assert chosen == choose_node(asked, reversed(nodes)).node


def test_a_node_gets_the_share_of_its_weight() -> None:
    nodes = [node("a", weight=100), node("b", weight=300), node("c", weight=100)]
    counts = Counter(
        choose_node(query(key=actor_key(f"player-{number}")), nodes).require(query()).rid
        for number in range(4_000)
    )
    assert 0.55 < counts[b"b"] / 4_000 < 0.65
    assert 0.17 < counts[b"a"] / 4_000 < 0.23


def test_a_node_that_leaves_moves_only_its_own_objects() -> None:
    nodes = [node(name) for name in "abcd"]
    for number in range(300):
        asked = query(key=actor_key(f"p{number}"))
        before = choose_node(asked, nodes).require(asked)
        after = choose_node(asked, nodes[:3]).require(asked)
        assert before == after or before.rid == b"d"


def test_of_two_runs_of_one_rid_the_choice_is_still_one() -> None:
    first, second = node("a"), msgspec.structs.replace(node("a"), generation=2)
    assert choose_node(query(), [first, second]).node == choose_node(query(), [second, first]).node == second
