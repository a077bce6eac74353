"""What one seed makes of a run: sizes, rates and its own mix of faults."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from sojourn.handoff.terms import HandoffOptions

from tests.simulation.store import StoreFaults

__all__ = ["PLAIN", "Mix", "draw_mix"]


@dataclass(slots=True)
class Mix:
    """All durations in seconds, all rates per virtual second, chances per case."""

    nodes: int
    keys: int
    chaos_s: float
    send_every_s: float
    move_every_s: float
    turn_s: float
    capture_s: float
    chunk_s: float
    link_delay_s: float
    hand_delay_s: float
    store: StoreFaults
    options: HandoffOptions
    route_age_s: float = 6.0
    max_jobs: int = 1000
    """Permits of a node's job queue."""
    credit: int = 1000
    """Records that may be on their way to one peer."""
    requests: float = 0.5
    """Share of the records that want a reply."""
    gives_up_s: tuple[float, float] = (2.2, 8.0)
    chain: float = 0.3
    """Chance that a finished move is followed at once by another."""
    burst: float = 0.5
    """Chance that every node sends to the object around the start of a move."""
    cuts: float = 0.0
    stalls: float = 0.0
    pauses: float = 0.0
    kills: float = 0.0
    store_outages: float = 0.0
    lease_cuts: float = 0.0
    """One run cannot renew its lease for some seconds; all else works."""
    cancels: float = 0.0
    capture_fails: float = 0.0
    restore_fails: float = 0.0
    corrupt: float = 0.0
    conflicts: float = 0.0
    """Chance that a Restore request is followed by one of the same identity with another checksum."""
    members: int = 0
    """Member Actors of every object: each object is then a unit of 1 + `members` participants."""
    touches: float = 0.0
    """Rewrites of a member's row by somebody else, per virtual second."""
    sessions: int = 0
    """How many of the objects are bound to a client's session."""
    client_every_s: float = 0.02
    long_turns: float = 0.0
    """Chance that a turn takes up to three seconds: longer than a session seal waits for it (B8.12)."""
    drift: float = 0.0
    """The clock of each run is faster or slower than the store's by up to this share."""
    kept_replies: int = 0
    """Replies of moved requests that a node keeps for their requesters (B7.1); one more goes once."""
    replies_in_memory: int = 1000
    """How many of them may stay in memory: above it those that are stored are let go of."""
    reply_retention_s: float = 1000.0
    max_retained: int = 0
    """Octets of a node above which it gives no credit and starts no move (B5.3); 0 = no limit."""
    staging_permits: int = 8
    handover_s: float = 0.0
    """How long it takes to hand a relayed record to its staging, which needs a permit; 0 = no time (B5.1)."""


def draw_mix(random: Random) -> Mix:
    """The mix of one seed. A quarter of the seeds is calm: there every promise holds without excuse."""
    calm = random.random() < 0.25

    def sometimes(chance: float, low: float, high: float) -> float:
        return random.uniform(low, high) if not calm and random.random() < chance else 0.0

    delay = random.choice((0.0002, 0.001, 0.005))
    mix = Mix(
        nodes=random.randint(3, 5),
        keys=random.randint(2, 5),
        chaos_s=random.uniform(6.0, 14.0),
        send_every_s=random.choice((0.008, 0.03, 0.1)),
        move_every_s=random.choice((0.03, 0.06, 0.2)),
        turn_s=random.choice((0.0002, 0.002)),
        capture_s=random.choice((0.0005, 0.005, 0.03)),
        chunk_s=random.choice((0.0002, 0.002)),
        link_delay_s=delay,
        hand_delay_s=random.choice((0.0001, 0.001, 0.01)),
        store=StoreFaults(
            delay_s=random.choice((0.0002, 0.002, 0.01)),
            slow=0.0 if calm else random.choice((0.0, 0.0, 0.02)),
            unavailable=sometimes(0.5, 0.01, 0.1),
            lost_before=sometimes(0.5, 0.01, 0.1),
            lost_after=sometimes(0.5, 0.01, 0.15),
        ),
        options=HandoffOptions(
            cutover_wait_s=1.0,
            commit_reserve_s=4.0,
            follow_duration_s=12.0,
            sweep_s=2.0,
            ended_memory_s=10.0,
            retry_max_s=0.2,
        ),
        cuts=sometimes(0.7, 0.1, 3.0),
        stalls=sometimes(0.4, 0.1, 2.0),
        pauses=sometimes(0.4, 0.05, 0.6),
        kills=sometimes(0.3, 0.05, 0.3),
        store_outages=sometimes(0.3, 0.05, 0.2),
        lease_cuts=sometimes(0.4, 0.05, 0.4),
        cancels=sometimes(0.5, 0.02, 0.3),
        capture_fails=sometimes(0.4, 0.01, 0.1),
        restore_fails=sometimes(0.4, 0.01, 0.1),
        corrupt=sometimes(0.3, 0.005, 0.05),
        conflicts=sometimes(0.2, 0.005, 0.05),
        max_jobs=random.choice((2, 5, 20, 1000)),
        credit=random.choice((6, 20, 1000)),
        **_units(random),
    )
    if random.random() < 0.4:
        mix.sessions = random.randint(1, mix.keys)
        mix.client_every_s = random.choice((0.005, 0.02, 0.1))
        mix.long_turns = sometimes(0.3, 0.0005, 0.005)
    _node_limits(random, mix)
    return mix


def _units(random: Random) -> dict[str, Any]:
    """A third of the seeds moves units of several participants."""
    if random.random() < 0.67:
        return {}
    return {"members": random.randint(1, 3), "touches": random.choice((0.0, 3.0, 30.0))}


PLAIN: dict[str, Any] = {"drift": 0.0, "kept_replies": 0, "max_retained": 0, "handover_s": 0.0}
"""Clocks of one rate, replies that go once, memory and staging without limits."""


def _node_limits(random: Random, mix: Mix) -> None:
    """What a node may keep, and how its clock runs."""
    mix.drift = random.choice((0.0, 0.005, 0.02))
    mix.kept_replies = random.choice((0, 0, 3, 1000))
    mix.replies_in_memory = random.choice((1, 5, 1000))
    mix.reply_retention_s = random.choice((2.0, 20.0, 1000.0))
    mix.max_retained = random.choice((0, 0, 60, 400))
    mix.staging_permits = random.choice((1, 2, 8))
    mix.handover_s = random.choice((0.0, 0.0, 0.0002, 0.001))
