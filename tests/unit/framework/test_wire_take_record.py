"""Saved work is read by the quick path and judged like the general decoder judges it."""

from __future__ import annotations

import pytest
from sojourn.wire.blocks import ActorRef
from sojourn.wire.errors import WireError
from sojourn.wire.fast_record import (
    encode_actor_fence,
    encode_payload,
    encode_record_head,
    encode_source_prefix,
    take_record,
)
from sojourn.wire.record import ActorSource, NodeSource, decode_frozen_record

FENCE = encode_actor_fence("target", 5, b"node", 7, 6, 3)


def record(kind: int, deadline_ms: int | None) -> bytes:
    route = 9 if kind in (6, 10) else 0
    source = (
        NodeSource(b"n1", 7, "owner", 3)
        if deadline_ms
        else ActorSource(b"n1", 7, "owner", 3, ActorRef("p", 5))
    )
    head = encode_record_head(encode_source_prefix(source), deadline_ms, 1, 2, kind, route)
    return head + FENCE + encode_payload("hit", "application/octet-stream", b"payload")


RECORDS = [record(kind, deadline) for kind in (5, 6, 9, 10) for deadline in (None, 1_700_000_000_000)]


@pytest.mark.parametrize("one", RECORDS)
def test_taken_out_of_its_surroundings(one: bytes) -> None:
    data = memoryview(b"before" + one + b"behind")
    assert take_record(data, 6) == one


@pytest.mark.parametrize("one", RECORDS)
def test_every_changed_byte_is_judged_alike(one: bytes) -> None:
    for at in range(len(one)):
        for change in (0x01, 0x80):
            mutated = one[:at] + bytes((one[at] ^ change,)) + one[at + 1 :]
            taken = take_record(memoryview(mutated), 0)
            if taken is None:
                continue  # the general decoder judges
            try:
                decode_frozen_record(taken)
            except WireError as error:
                pytest.fail(f"byte {at} changed by {change:#x} was accepted: {error}")


@pytest.mark.parametrize("one", RECORDS)
def test_cut_short(one: bytes) -> None:
    for length in range(len(one)):
        assert take_record(memoryview(one[:length]), 0) is None
