"""A record frame that was cut, or has a wrong bit: it ends the link that it came on, and nothing else (B5.2, B8.13).

Nothing of it stays behind: not in the queue before a worker, not in a creation or a move, and no worker gets a frame
that it could not read, because that would end the worker with everything in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sojourn import frames
from sojourn.errors import ProtocolError
from sojourn.frames import FLAG_FOLLOW, FLAG_INTENT, FLAG_REQUEST, parse_record_header
from sojourn.handoff.source_states import CommitAwaited
from sojourn.handoff.target_states import RelayReady
from sojourn.ids import ObjectKind
from sojourn.wire import fast_record
from sojourn.wire.record import NodeSource
from sojourn.workers.lanes import WorkerLane
from sojourn.workers.objects import LocalObject, Place, route_fence
from sojourn.workers.records import marker_frame, unbind_frame

from tests.machines.samples import KEY, A, B, C, source_in, target_in
from tests.unit.workers.outside_rig import Rig, message

PREFIX = fast_record.encode_source_prefix(NodeSource(C.rid, C.generation, "owner", 1))


def complete(body: bytes) -> bytes:
    fence = route_fence(KEY, ObjectKind.ACTOR, 1, B, 4, 1)
    return frames.complete_record(body, parse_record_header(body), fence, 1)


def opening() -> bytes:
    """A record that is to make its object: without a fence."""
    head = fast_record.encode_record_head(PREFIX, None, 1, 5, 10, 5)
    payload = fast_record.encode_payload("handler", "application/x-sojourn+msgpack", b"\x90")
    flags = FLAG_REQUEST | FLAG_INTENT | frames.FLAG_ACTIVATE
    return frames.record_frame(
        flags, 0, ObjectKind.ACTOR, 0, 5, 1, 5, len(head), KEY, b"Player", head + payload
    )


FRAMES = {
    "a request": message(1),
    "a send": message(2, 0),
    "a followed request": message(3, FLAG_REQUEST | FLAG_FOLLOW),
    "a followed send": message(4, FLAG_FOLLOW),
    "a first message": opening(),
    "a marker": complete(marker_frame(PREFIX, 7, KEY, ObjectKind.ACTOR, (1, 7))),
    "an unbind": complete(unbind_frame(PREFIX, KEY, b"\x90", (1, 8))),
}


def garbled(body: bytes) -> Iterator[bytes]:
    """Every truncation, every flip of one bit, and octets too many."""
    for octets in range(1, len(body)):
        yield body[:octets]
    for at in range(8, len(body) * 8):
        changed = bytearray(body)
        changed[at // 8] ^= 1 << at % 8
        yield bytes(changed)
    yield body + b"\x00"


def active(rig: Rig, credit: int = 10**6) -> None:
    held = LocalObject(KEY, ObjectKind.ACTOR, "Player", Place.ACTIVE)
    held.worker = 0
    held.settle(1, 4, B, 1)
    rig.node.object_counts[0] = 1
    rig.node.router.objects[KEY] = held
    rig.worker = []  # type: ignore[attr-defined]
    rig.node.lanes[0] = WorkerLane(rig.worker.append, credit, rig.node.retention, B)  # type: ignore[attr-defined]


def moved_on(rig: Rig) -> None:
    active(rig)
    held = rig.node.router.objects[KEY]
    held.place, held.follow_run = Place.FOLLOW, A
    rig.link(A)


def creating(rig: Rig) -> None:
    active(rig)
    held = rig.node.router.objects[KEY]
    held.place, held.waiting = Place.CREATING, []


PLACES: dict[str, Callable[[Rig], Any]] = {
    "is here": active,
    "is here and its worker has enough to do": lambda rig: active(rig, 0),
    "moved on": moved_on,
    "is being made": creating,
    "is not here": lambda rig: None,
    "leaves": lambda rig: rig.source(source_in(CommitAwaited).machine),
    "comes": lambda rig: rig.target(target_in(RelayReady).machine),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", FRAMES)
async def test_a_garbled_record_ends_its_link_at_most(name: str, place: str) -> None:
    refused = taken = 0
    here = A if place == "leaves" else B
    rig = Rig(here)
    try:
        link = rig.link(C)
        PLACES[place](rig)
        for body in garbled(FRAMES[name]):
            try:
                rig.node.on_record(link, body)
                taken += 1
            except ProtocolError:
                refused += 1
            except BaseException as escaped:
                raise AssertionError(f"{body.hex()}: {escaped!r}") from escaped
            await rig.settle()
            assert rig.bugs == []
            assert rig.failures == [], body.hex()
        for lane in rig.node.lanes.values():
            lane.grant(10**6)
            assert not lane.waiting
        for body in getattr(rig, "worker", []):
            parse_record_header(body)  # an error would end the worker
        if place.startswith("is here"):
            assert rig.node.retention.octets == 0
    finally:
        await rig.close()
    plain = name in ("a request", "a send") and place.startswith("is here")
    # What is in the payload of a message for an object that runs here is for its worker to read.
    assert refused > (frames.KEY_AT if plain else len(FRAMES[name])), "all that were cut, at least"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", FRAMES)
async def test_the_whole_record_is_taken(name: str, place: str) -> None:
    rig = Rig(A if place == "leaves" else B)
    try:
        PLACES[place](rig)
        rig.node.on_record(rig.link(C), FRAMES[name])
        await rig.settle()
        assert rig.failures == []
    finally:
        await rig.close()
