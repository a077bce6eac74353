"""The quick path and the general codec agree on every byte and on every refusal, both ways."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sojourn import wire
from sojourn.wire import fast_record
from sojourn.wire.fast_record import FastRecord, _read_generally
from sojourn.wire.record_bodies import NodeBody

from tests.unit.framework.test_wire_canonical import mutations
from tests.unit.framework.wire_values import record_values

QUICK_KINDS = (5, 6, 9, 10)
MANY = settings(max_examples=100, deadline=None)
SOURCE = wire.encode_source_prefix(wire.NodeSource(b"node-1", 5, "owner-1", 6))
FENCE = wire.encode_actor_fence("player-17", 3, b"node-2", 4, 5, 6)
PAYLOAD = wire.encode_payload("Move", "application/x-sojourn+msgpack", b"forward")


def request(deadline_ms: int | None = 1_764_580_000_000, kind: int = 10, reply_route: int = 5) -> bytes:
    return wire.encode_record_head(SOURCE, deadline_ms, 1, 2, kind, reply_route) + FENCE + PAYLOAD


def outcome(read: Callable[[bytes], FastRecord], data: bytes) -> FastRecord | tuple[str, int, str]:
    try:
        return read(data)
    except wire.WireError as error:
        return error.word, error.offset, error.path


def encode_in_pieces(record: wire.FrozenRecord) -> bytes:
    """A record by the quick path's three pieces."""
    source = wire.encode_source_prefix(record.source)
    identity = record.operation_id
    head = wire.encode_record_head(
        source,
        record.deadline_ms,
        identity.high,
        identity.low,
        record.record_kind,
        record.reply_route_id or 0,
    )
    body = record.body
    assert isinstance(body, wire.ActorBody | wire.SpotBody)
    if isinstance(body, wire.ActorBody):
        route: wire.RouteFence = body.actor_route_fence
        object_id, generation = (
            body.actor_route_fence.actor_ref.actor_id,
            body.actor_route_fence.actor_ref.object_generation,
        )
    else:
        route = body.spot_route_fence
        object_id, generation = route.spot_ref.spot_id, route.spot_ref.object_generation
    encode_fence = wire.encode_actor_fence if isinstance(body, wire.ActorBody) else wire.encode_spot_fence
    fence = encode_fence(
        object_id,
        generation,
        route.target_node_rid,
        route.target_node_generation,
        route.expected_authority_owner_generation,
        route.expected_owner_lease_generation,
    )
    content = body.payload
    return head + fence + wire.encode_payload(content.packet_name, content.content_type, content.payload)


@MANY
@given(record_values(QUICK_KINDS), st.one_of(st.none(), st.integers(1, 2**63 - 1)))
def test_a_record_made_in_three_pieces_is_the_canonical_one(
    record: wire.FrozenRecord, deadline_ms: int | None
) -> None:
    metadata = None
    if deadline_ms is not None:
        metadata = (wire.MetadataEntry("deadline-unix-ms", str(deadline_ms)),)
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    record = wire.FrozenRecord(**(fields | {"metadata": metadata}))
    assert encode_in_pieces(record) == wire.encode_frozen_record(record)


@MANY
@given(record_values(QUICK_KINDS))
def test_the_quick_reader_reads_what_the_general_decoder_reads(record: wire.FrozenRecord) -> None:
    encoded = wire.encode_frozen_record(record)
    fast = wire.read_record(encoded)
    assert fast == _read_generally(encoded) == wire.read_record(memoryview(encoded))
    assert type(fast) is FastRecord
    assert fast.kind == record.record_kind
    assert fast.deadline_ms == record.deadline_ms
    assert (fast.operation_high, fast.operation_low) == (record.operation_id.high, record.operation_id.low)
    assert fast.reply_route == (record.reply_route_id or 0)
    assert fast.source_rid == record.source.node_rid
    assert fast.source_node_generation == record.source.node_generation
    assert isinstance(record.body, wire.ActorBody | wire.SpotBody)
    assert fast.payload == record.body.payload.payload


@MANY
@given(record_values(QUICK_KINDS), mutations())
def test_both_refuse_the_same_with_the_same_words(
    record: wire.FrozenRecord, mutate: Callable[[bytes], bytes]
) -> None:
    mutated = mutate(wire.encode_frozen_record(record))
    assert outcome(wire.read_record, mutated) == outcome(_read_generally, mutated)


@pytest.mark.parametrize("kind", [9, 10])
def test_every_single_byte_change_is_judged_alike(kind: int) -> None:
    whole = request(kind=kind, reply_route=5 if kind == 10 else 0)
    for at in range(len(whole)):
        for byte in (0, 1, 0x30, 0x7F, 0xFF, whole[at] ^ 1):
            changed = whole[:at] + bytes((byte,)) + whole[at + 1 :]
            assert outcome(wire.read_record, changed) == outcome(_read_generally, changed)
        cut = whole[:at]
        assert outcome(wire.read_record, cut) == outcome(_read_generally, cut)


def calls(data: bytes) -> list[object]:
    """What `read_call` finds of a record inside a frame, with and without its route fence."""
    found = wire.read_record(data)
    fence_at = found.fence_at
    bare = data[:fence_at] + data[fast_record.fence_end(data, fence_at) :]
    got: list[object] = []
    for body, fenced in ((b"head" + data, 1), (b"head" + bare, 0)):
        call = fast_record.read_call(body, 4, fenced)
        got.append(None if call is None else (*call[:3], body[call[3] :]))
    return got


@MANY
@given(record_values(QUICK_KINDS))
def test_a_call_is_what_the_general_decoder_reads_or_is_left_to_it(record: wire.FrozenRecord) -> None:
    data = wire.encode_frozen_record(record)
    general = _read_generally(data)
    usual = record.metadata is None or (len(record.metadata) == 1 and general.deadline_ms is not None)
    expected = (general.deadline_ms, general.packet_name, general.content_type, bytes(general.payload))
    for found in calls(data):
        assert found == expected or (found is None and not (usual and (general.deadline_ms or 0) < 10**18))


@pytest.mark.parametrize("kind", [9, 10])
def test_a_call_is_never_read_out_of_what_the_general_decoder_refuses(kind: int) -> None:
    whole = request(kind=kind, reply_route=5 if kind == 10 else 0)
    read = 0
    for at in range(len(whole)):
        for byte in (0, 1, 0x30, 0x7F, 0xFF, whole[at] ^ 1):
            changed = whole[:at] + bytes((byte,)) + whole[at + 1 :]
            if fast_record.read_call(changed, 0, 1) is not None:
                assert isinstance(outcome(_read_generally, changed), FastRecord)
                read += 1
        assert fast_record.read_call(whole[:at], 0, 1) is None
    assert read


def test_who_gets_the_reply() -> None:
    assert fast_record.reply_destination(b"head" + request(), 4) == b"\x06node-1" + (5).to_bytes(8)


def test_the_head_ends_where_the_fence_belongs() -> None:
    head = wire.encode_record_head(SOURCE, None, 1, 2, 9)
    record = wire.read_record(head + FENCE + PAYLOAD)
    assert record.fence_at == len(head)
    assert record.object_id == "player-17"
    assert (record.source_tag, record.source_id, record.deadline_ms, record.reply_route) == (1, None, None, 0)


def test_every_source_is_known_by_its_tag_and_sender() -> None:
    reference = wire.ActorRef("actor-1", 7)
    sources = (
        (wire.NodeSource(b"n", 1, "o", 1), 1, None),
        (wire.SpotSource(b"n", 1, "o", 1, "spot-1"), 2, "spot-1"),
        (wire.ActorSource(b"n", 1, "o", 1, reference), 3, "actor-1"),
        (wire.BoundSessionSource(b"n", 1, "o", 1, reference, b"s", 1, 1), 4, "actor-1"),
    )
    for source, tag, sender in sources:
        head = wire.encode_record_head(wire.encode_source_prefix(source), None, 0, 1, 5)
        record = wire.read_record(head + FENCE + PAYLOAD)
        assert (record.source_tag, record.source_id) == (tag, sender)


@pytest.mark.parametrize("deadline", ["", "0", "01", "+1", "1 ", "x", "１", str(2**63), "9" * 30])
def test_a_deadline_that_is_no_instant_is_refused(deadline: str) -> None:
    record = wire.decode_frozen_record(request())
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    fields["metadata"] = (wire.MetadataEntry("deadline-unix-ms", deadline),)
    encoded = wire.encode_frozen_record(wire.FrozenRecord(**fields))
    with pytest.raises(wire.WireError) as caught:
        wire.read_record(encoded)
    assert (caught.value.word, caught.value.path) == ("invalid-field", "metadata.deadline-unix-ms")


def test_another_kind_is_refused() -> None:
    record = wire.FrozenRecord(
        wire.RecordKind.NODE_SEND,
        wire.NodeSource(b"n", 1, "o", 1),
        None,
        wire.OperationIdOrZero(0, 0),
        wire.OperationKind.NONE,
        None,
        NodeBody(wire.ApplicationPayload("p", "c", b"")),
    )
    with pytest.raises(wire.WireError, match="recordKind"):
        wire.read_record(wire.encode_frozen_record(record))


def test_a_large_payload_is_a_slice_of_the_record() -> None:
    head = wire.encode_record_head(SOURCE, None, 1, 2, 9)
    record = head + FENCE + wire.encode_payload("Load", "c", bytes(100_000))
    assert wire.read_record(record).payload.obj is record
    assert len(wire.read_record(memoryview(record)).payload) == 100_000


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ((SOURCE, 0, 1, 2, 10, 5), "metadata"),
        ((SOURCE, -1, 1, 2, 10, 5), "metadata"),
        ((SOURCE, 2**63, 1, 2, 10, 5), "metadata"),
        ((SOURCE, None, 0, 0, 10, 5), "operationId"),
        ((SOURCE, None, 2**64, 0, 10, 5), "operationId"),
        ((SOURCE, None, -1, 0, 9, 0), "operationId"),
        ((SOURCE, None, 1, 2, 1, 0), "recordKind"),
        ((SOURCE, None, 1, 2, 10, 0), "replyRoute.replyRouteId"),
        ((SOURCE, None, 1, 2, 10, 2**63), "replyRoute.replyRouteId"),
        ((SOURCE, None, 1, 2, 9, 1), "replyRoute"),
    ],
)
def test_heads_out_of_range_are_refused(arguments: tuple[bytes, int, int, int, int, int], path: str) -> None:
    with pytest.raises(wire.WireError) as caught:
        wire.encode_record_head(*arguments)
    assert (caught.value.word, caught.value.path) == ("invalid-field", path)


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("", 1, b"n", 1, 1, 1), "routeFence"),
        (("x" * 256, 1, b"n", 1, 1, 1), "routeFence"),
        (("a\0", 1, b"n", 1, 1, 1), "routeFence"),
        (("\ud800", 1, b"n", 1, 1, 1), "routeFence"),
        (("a", 0, b"n", 1, 1, 1), "routeFence"),
        (("a", 1, b"n", 1, 1, 2**63), "routeFence"),
        (("a", 1, b"", 1, 1, 1), "routeFence.targetNodeRid"),
        (("a", 1, b"n" * 256, 1, 1, 1), "routeFence.targetNodeRid"),
    ],
)
def test_fences_out_of_range_are_refused(arguments: tuple[str, int, bytes, int, int, int], path: str) -> None:
    with pytest.raises(wire.WireError) as caught:
        wire.encode_actor_fence(*arguments)
    assert (caught.value.word, caught.value.path) == ("invalid-field", path)


def test_names_and_payloads_out_of_range_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(wire.WireError, match="packetName"):
        wire.encode_payload("", "c", b"")
    with pytest.raises(wire.WireError, match="contentType"):
        wire.encode_payload("p", "", b"")
    monkeypatch.setattr(fast_record, "PAYLOAD_BYTES_MAX", 3)
    with pytest.raises(wire.WireError, match="payload"):
        wire.encode_payload("p", "c", b"four")


def test_the_caches_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_record, "_CACHE_ENTRIES_MAX", 3)
    cache: dict[int, int] = {}
    for number in range(8):
        assert fast_record._remember(cache, number, number) == number
        assert len(cache) <= 3
