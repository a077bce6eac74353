"""The quick path and the general codec agree on every byte, both ways."""

from __future__ import annotations

from sojourn import wire


def test_a_record_made_in_three_pieces_is_the_canonical_one() -> None:
    source = wire.ActorSource(b"node-1", 5, "owner-1", 6, wire.ActorRef("actor-1", 7))
    head = wire.encode_record_head(wire.encode_source_prefix(source), 1_764_580_000_000, 1, 2, 10, 5)
    fence = wire.encode_actor_fence("player-17", 3, b"node-2", 4, 5, 6)
    record = head + fence + wire.encode_payload("Move", "application/x-sojourn+msgpack", b"forward")

    canonical = wire.decode_frozen_record(record)
    fast = wire.read_record(record)

    assert wire.encode_frozen_record(canonical) == record
    assert fast.fence_at == len(head)
    assert (fast.object_id, fast.object_generation, bytes(fast.payload)) == ("player-17", 3, b"forward")
    assert canonical.deadline_ms == fast.deadline_ms == 1_764_580_000_000


def test_the_smallest_legal_stream_has_78_bytes() -> None:
    envelope = wire.Envelope(
        wire.RelocationId(0, 1), wire.ActorIdentity("a", 1, 1), 1, (wire.ApplicationState(1, None),)
    )
    encoded = wire.encode_envelope(envelope)
    assert len(encoded) == 78
    assert wire.decode_envelope(encoded) == envelope
    wire.validate_envelope(envelope, participants=1)
