"""A fixed set of seeds, and those that once showed a bug; `make sim SEEDS=FROM:TO` plays more."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.simulation.mix import PLAIN, Mix, draw_mix
from tests.simulation.mutants.order import LATE_NEWS
from tests.simulation.mutants.planting import CALM, QUIET_STORE
from tests.simulation.store import StoreFaults
from tests.simulation.world import World

SESSIONS = (137, 55)
"""Held messages overtook one another behind a marker; a move began while another still sealed the session."""
WHOLE = (3, 23, 26, 28, 50, 69, 82, 139, 233, 1074, 1319, 1392, 1586, 1667, 10484, 453266718, 931117339)
"""With their own mix: a relay-ready that overtook what waited for credit, follow frames forgotten with a later
owner's connection, turns that ended after they were cancelled, runs that nobody had seen before they died,
markers behind two seconds of records that waited for credit, an object that was made anew elsewhere while its session
was being sealed here."""
LIMITED = (4, 7, 28)
"""With their own limits and drift: credit of records that were followed; a conflict read behind a fallback."""
KEPT = (13, 25, 27, 36, 162, 214, 270, 317, 561)


def mix_of_seed(seed: int) -> Mix:
    """Of a node without limits, whose clock runs as all do: the seeds below showed what they did with it."""
    return replace(draw_mix(Random(seed ^ 0x5EED)), **PLAIN)


@pytest.mark.parametrize("seed", [*range(10), *KEPT])
def test_seed(seed: int) -> None:
    plain = replace(mix_of_seed(seed), members=0, touches=0.0, sessions=0, long_turns=0.0)
    World(seed, plain).play()


@pytest.mark.parametrize("seed", WHOLE)
def test_seed_with_everything_in_it(seed: int) -> None:
    World(seed, mix_of_seed(seed)).play()


@pytest.mark.parametrize("seed", LIMITED)
def test_seed_with_limits_and_drift(seed: int) -> None:
    World(seed).play()


def test_replies_are_repeated_until_their_requesters_have_them() -> None:
    """Nodes die and connections break all the time: what was stored is brought by whoever finds it (B7.1)."""
    counts: Counter[str] = Counter()
    for seed in range(100, 104):
        mix = replace(mix_of_seed(seed), kept_replies=1000, replies_in_memory=5, kills=0.5, cuts=3.0)
        counts.update(World(seed, mix).play().counts)
    assert counts["replies from the store"]
    assert counts["replies parked"]
    assert counts["replies relayed"] > counts["replies kept"] / 2


def test_a_full_node_only_slows_things_down() -> None:
    """Little memory, one staging permit and a hand-over that takes time: nothing fails for it (B5.1, B5.3, R5.3)."""
    calm: dict[str, Any] = {**CALM, "store": StoreFaults(), "max_jobs": 2, "long_turns": 0.0}
    limits: dict[str, Any] = {"max_retained": 60, "staging_permits": 1, "handover_s": 0.0002, "drift": 0.02}
    world = World(4, replace(mix_of_seed(4), **calm, **limits, send_every_s=0.03))
    world.play()
    assert world.calm
    assert world.history.counts["moves without room"]
    assert world.history.counts["request: timeout"] == 0


def test_leases_end_and_objects_are_taken_over() -> None:
    """Runs that cannot renew for some seconds: turns are cancelled, objects made anew and dropped (B6.4, B6.6)."""
    counts: Counter[str] = Counter()
    for seed in range(4):
        mix = replace(mix_of_seed(seed), members=0, touches=0.0, sessions=0, pauses=0.5, lease_cuts=0.6)
        counts.update(World(seed, mix).play().counts)
    assert counts["dropped at recheck"]
    assert counts["reborn"]
    assert counts["request: reply"] > 10 * counts["request: timeout"]


def test_a_small_job_queue_and_little_credit_only_slow_things_down() -> None:
    """Two permits, two records on their way: nothing fails, nothing is left waiting (B5.1, B5.2, R4.6.3)."""
    calm: dict[str, Any] = {**CALM, "store": StoreFaults(), "max_jobs": 2, "credit": 2, "long_turns": 0.0}
    world = World(4, replace(mix_of_seed(4), **calm, send_every_s=0.03))
    world.play()
    assert world.calm
    assert world.history.counts["request: timeout"] == 0


@pytest.mark.parametrize("seed", [2, 32])
def test_what_a_node_knows_by_its_own_handoffs_is_new(seed: int) -> None:
    """A node owned the object for longer than a cache entry counts. The path it took when it let go was dropped
    as too old with the next message, and what it then sent overtook what it had followed (B9.1, B9.4)."""
    mix = mix_of_seed(seed)
    plain: dict[str, Any] = {"members": 0, "touches": 0.0, "sessions": 0, "long_turns": 0.0, **CALM}
    store = mix.store._replace(**QUIET_STORE)
    world = World(seed, replace(mix, store=store, **plain, **LATE_NEWS))
    world.play()
    assert world.calm


@pytest.mark.parametrize("seed", range(12))
def test_seed_with_units_of_several_participants(seed: int) -> None:
    """Spots with one to three members, whose rows somebody else rewrites meanwhile (R3.3, B6.5)."""
    world = World(seed, replace(mix_of_seed(seed), members=1 + seed % 3, touches=30.0))
    world.play()
    assert world.handoffs


@pytest.mark.parametrize("seed", [*range(10), *SESSIONS])
def test_seed_with_sessions(seed: int) -> None:
    """Clients that are bound to the objects, and turns that outlast a session seal (B8.12)."""
    mix = replace(
        mix_of_seed(seed), members=0, touches=0.0, sessions=5, client_every_s=0.01, long_turns=0.002
    )
    world = World(seed, mix)
    world.play()
    assert world.history.counts["sessions switched"]
