"""Rows: their stored form is canonical, their keys have one spelling, each write has its exact conditions."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sojourn.errors import DataLost, InvalidOperation, ProtocolError
from sojourn.ids import GENERATION_MAX, NodeRun, ObjectKind, actor_key, spot_key
from sojourn.location import Delete, IfMissing, IfVersion, Put, StoreWrite
from sojourn.ownership import (
    BLOCK_AGE_MS,
    BLOCK_SIZE,
    GenerationSource,
    VersionedRow,
    create_object,
    delete_object,
    fence_unit,
    mark_lost,
    move_unit,
    put_lease,
    release_lease,
    renew_lease,
    reserve_generations,
    rewrite_object,
)
from sojourn.row_codec import RowCodec
from sojourn.rows import (
    COUNTER_KEY,
    AuthorityRow,
    Binding,
    CounterRow,
    HostState,
    MarkOutcome,
    Membership,
    NodeDescriptor,
    Owner,
    OwnerLease,
    RelocationMark,
    RowState,
    TypeSupport,
    authority_row_key,
    decode_authority,
    decode_counter,
    decode_descriptor,
    decode_lease,
    encode_authority,
    encode_counter,
    encode_descriptor,
    encode_lease,
    lease_row_key,
    object_key_of_row,
    with_member,
    without_member,
)

SOURCE = Owner(b"node-a", 7, "owner-a", 3)
TARGET = Owner(b"node-b", 9, "owner-b", 4)
MOVE = (11, 22)

ACTOR = AuthorityRow(
    kind=ObjectKind.ACTOR,
    object_id="player 1",
    stable_type="player",
    object_generation=2**63 - 2,
    owner_generation=5,
    owner=SOURCE,
    membership=Membership(ObjectKind.USER_SPOT, "lobby", 77),
    binding=Binding(b"\x00\xff", 1, "owner-s", 2, b"session", 3),
    relocation=RelocationMark(0, 2**64 - 1, MarkOutcome.FENCED),
)
ROOM = AuthorityRow(
    kind=ObjectKind.USER_SPOT,
    object_id="lobby",
    stable_type="room",
    object_generation=77,
    owner_generation=1,
    owner=SOURCE,
    members=("player 1",),
)
NODE = NodeDescriptor(
    rid=b"node-a",
    generation=7,
    owner_id="owner-a",
    lease_generation=3,
    application="arena",
    application_version=2,
    endpoints=("127.0.0.1:4000",),
    types=(TypeSupport(ObjectKind.ACTOR, "player", "preserve"),),
    state=HostState.SERVING,
)
LEASE = OwnerLease(b"node-a", 7, "owner-a", 3)


def written(write: StoreWrite, at: int = 0) -> AuthorityRow:
    """The authority row a write puts."""
    mutation = write.mutations[at]
    assert isinstance(mutation, Put)
    assert mutation.ttl_ms is None, "authority rows have no TTL (B6.3)"
    row = decode_authority(mutation.value)
    assert row.row_key == mutation.key
    return row


# stored form


@pytest.mark.parametrize(
    ("row", "encode", "decode"),
    [
        (ACTOR, encode_authority, decode_authority),
        (ROOM, encode_authority, decode_authority),
        (NODE, encode_descriptor, decode_descriptor),
        (LEASE, encode_lease, decode_lease),
        (CounterRow(5), encode_counter, decode_counter),
    ],
)
def test_every_row_reads_back_equal(
    row: Any, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]
) -> None:
    stored = encode(row)
    assert decode(stored) == row
    assert json.loads(stored)["v"] == "1"


@pytest.mark.parametrize("row", [ACTOR, ROOM, NODE, LEASE, CounterRow(5)])
def test_the_quick_way_is_taken_and_gives_the_same(row: msgspec.Struct) -> None:
    codec = RowCodec(type(row))
    store, _ = codec._general
    stored = msgspec.json.encode({"v": "1", **store(row)})
    assert codec._quick.encode(row) == stored
    assert codec._quick.decode(stored) == row == codec._decode(stored)


def test_the_stored_form_is_readable_by_any_language() -> None:
    stored = json.loads(encode_authority(ACTOR))
    assert list(stored) == [
        "v", "kind", "object_id", "stable_type", "object_generation", "owner_generation", "owner", "state",
        "membership", "members", "binding", "relocation",
    ]  # fmt: skip
    assert stored["kind"] == "actor"
    assert stored["object_generation"] == "9223372036854775806"
    assert stored["owner"]["rid"] == b"node-a".hex()
    assert stored["membership"] == {"kind": "userSpot", "spot_id": "lobby", "object_generation": "77"}
    assert stored["binding"]["session_owner_rid"] == "00ff"
    assert stored["relocation"] == {"high": "0", "low": "18446744073709551615", "outcome": "fenced"}


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row.update(extra=1),
        lambda row: row.pop("binding"),
        lambda row: row.update(v="2"),
        lambda row: row.update(v=1),
        lambda row: row.update(kind="robot"),
        lambda row: row.update(kind=["actor"]),
        lambda row: row.update(state="gone"),
        lambda row: row.update(object_generation=5),
        lambda row: row.update(object_generation="05"),
        lambda row: row.update(object_generation="-5"),
        lambda row: row.update(object_generation="\u0665"),
        lambda row: row.update(object_generation="18446744073709551616"),
        lambda row: row.update(object_generation="9" * 21),
        lambda row: row.update(object_id=None),
        lambda row: row.update(members="player"),
        lambda row: row.update(owner=[]),
        lambda row: row["owner"].update(rid="6E"),
        lambda row: row["owner"].update(rid="6"),
        lambda row: row["owner"].update(rid=6),
    ],
)
def test_what_is_not_the_canonical_form_is_refused(change: Callable[[dict[str, Any]], Any]) -> None:
    row = json.loads(encode_authority(ACTOR))
    change(row)
    with pytest.raises(ProtocolError, match="a stored AuthorityRow"):
        decode_authority(msgspec.json.encode(row))


def test_bytes_around_the_canonical_form_are_refused() -> None:
    stored = encode_authority(ACTOR)
    for changed in (stored + b" ", b" " + stored, stored[:-1], b"[]", b"null", b"\xff", b""):
        with pytest.raises(ProtocolError):
            decode_authority(changed)
    reordered = dict(reversed(json.loads(stored).items()))
    with pytest.raises(ProtocolError, match="canonical"):
        decode_authority(msgspec.json.encode(reordered))


def test_flags_are_flags() -> None:
    node = json.loads(encode_descriptor(NODE))
    node["cordoned"] = "false"
    with pytest.raises(ProtocolError, match="true or false"):
        decode_descriptor(msgspec.json.encode(node))


def test_a_number_that_does_not_fit_is_refused_when_it_is_written() -> None:
    with pytest.raises(ValueError, match="64 bits"):
        encode_counter(CounterRow(2**64))


# keys


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (actor_key("p1"), "zla1:a:2:p1"),
        (spot_key("p1"), "zla1:s:2:p1"),
        (actor_key("a b:%"), "zla1:a:5:a%20b%3A%25"),
        (actor_key("é"), "zla1:a:2:%C3%A9"),
        (actor_key("A-._~z9"), "zla1:a:7:A-._~z9"),
        (actor_key("ä" * 127), "zla1:a:254:" + "%C3%A4" * 127),
    ],
)
def test_authority_keys(key: bytes, text: str) -> None:
    assert authority_row_key(key) == text
    assert object_key_of_row(text) == key


@given(st.text(min_size=1, max_size=80))
def test_every_id_has_one_key(object_id: str) -> None:
    try:
        key = actor_key(object_id)
    except InvalidOperation:
        return
    text = authority_row_key(key)
    assert object_key_of_row(text) == key
    assert len(text) <= 776


@pytest.mark.parametrize(
    "text",
    [
        "", "zla1:", "zla1:a:2:p", "zla1:a:02:p1", "zla1:x:2:p1", "zla2:a:2:p1", "zla1:a:1:%c3", "zla1:a:2:%c3%a9",
        "zla1:a:1:%41", "zla1:a:1::", "zla1:a:1:%", "zla1:a:1:%zz", "zla1:a:1:%FF", "zla1:a:1:%00", "zla1:a:1:é",
        "zla1:a:0:", "node:1", "zla1::2:p1", "zla1:a:p1",
    ],
)  # fmt: skip
def test_a_second_spelling_of_a_key_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="canonical"):
        object_key_of_row(text)


@pytest.mark.parametrize("key", [b"", b"a", b"x1", b"a" + b"x" * 256])
def test_what_is_no_object_key_has_no_row(key: bytes) -> None:
    with pytest.raises(InvalidOperation):
        authority_row_key(key)


def test_a_row_knows_its_key_and_its_run() -> None:
    assert ACTOR.row_key == "zla1:a:8:player%201"
    assert ROOM.row_key == "zla1:s:5:lobby"
    assert ACTOR.owner.run == NodeRun(b"node-a", 7) == NODE.run
    assert LEASE.owner == SOURCE


# members


def test_members_are_kept_in_the_order_of_their_authority_keys() -> None:
    room = msgspec.structs.replace(ROOM, members=())
    for member in ("zz", "aaaaaaaaaa", "b", "zz"):
        room = with_member(room, member)
    assert room.members == ("aaaaaaaaaa", "b", "zz"), "the decimal count stands before the id (wire.md 4.1)"
    assert without_member(room, "b").members == ("aaaaaaaaaa", "zz")
    assert without_member(room, "nobody") == room


# creating and changing


def new(**changes: Any) -> AuthorityRow:
    fields = {"object_generation": 100, "owner_generation": 1, "relocation": None, **changes}
    return msgspec.structs.replace(ROOM, **fields)


def test_a_free_id_is_taken_only_while_it_is_free() -> None:
    write = create_object(new())
    assert write.conditions == [IfMissing(ROOM.row_key)]
    assert written(write) == new()


def test_the_id_of_a_dead_owner_needs_its_version_and_its_lease_to_be_over() -> None:
    """B6.6"""
    write = create_object(new(owner=TARGET), VersionedRow(ROOM, "v5"))
    assert write.conditions == [IfVersion(ROOM.row_key, "v5"), IfMissing(lease_row_key("owner-a", 3))]
    assert written(write).owner == TARGET


def test_a_lost_object_is_replaced_under_its_version_alone() -> None:
    """B6.8"""
    lost = msgspec.structs.replace(ROOM, state=RowState.LOST)
    assert create_object(new(), VersionedRow(lost, "v5")).conditions == [IfVersion(ROOM.row_key, "v5")]


@pytest.mark.parametrize(
    ("row", "previous"),
    [
        (new(object_generation=0), None),
        (new(object_generation=GENERATION_MAX + 1), None),
        (new(owner_generation=2), None),
        (new(state=RowState.LOST), None),
        (new(relocation=RelocationMark(1, 1, MarkOutcome.COMMITTED)), None),
        (new(object_generation=77), VersionedRow(ROOM, "v")),
        (new(object_id="other"), VersionedRow(ROOM, "v")),
    ],
)
def test_what_is_no_new_incarnation_is_refused(row: AuthorityRow, previous: VersionedRow | None) -> None:
    with pytest.raises(InvalidOperation):
        create_object(row, previous)


def test_a_row_changes_under_its_version_and_keeps_its_owner() -> None:
    joined = with_member(ROOM, "player 2")
    write = rewrite_object(VersionedRow(ROOM, "v5"), joined)
    assert write.conditions == [IfVersion(ROOM.row_key, "v5")]
    assert written(write) == joined
    with pytest.raises(InvalidOperation, match="only a move"):
        rewrite_object(VersionedRow(ROOM, "v5"), msgspec.structs.replace(ROOM, owner=TARGET))


def test_a_row_goes_under_its_version() -> None:
    write = delete_object(VersionedRow(ROOM, "v5"))
    assert write == StoreWrite([IfVersion(ROOM.row_key, "v5")], [Delete(ROOM.row_key)])


def test_writes_join_into_one() -> None:
    joined = create_object(new()) + delete_object(VersionedRow(ACTOR, "v1"))
    assert len(joined.conditions) == len(joined.mutations) == 2
    with pytest.raises(TypeError):
        operator.add(create_object(new()), ())


# moving


def test_a_move_changes_owner_and_generation_and_nothing_else() -> None:
    """B6.5: the version of the coordinator fence is the condition; owner generation + 1; RelocationId committed."""
    write = move_unit([VersionedRow(ACTOR, "fence")], TARGET, MOVE)
    assert write.conditions == [IfVersion(ACTOR.row_key, "fence")]
    moved = written(write)
    assert moved.owner == TARGET
    assert moved.owner_generation == 6
    assert moved.relocation == RelocationMark(11, 22, MarkOutcome.COMMITTED)
    assert (
        msgspec.structs.replace(moved, owner=SOURCE, owner_generation=5, relocation=ACTOR.relocation) == ACTOR
    )


def test_a_spot_and_its_members_move_in_one_write() -> None:
    """R3.3"""
    entry = Membership(ObjectKind.ENTRY_SPOT, "entry-b", 8)
    write = move_unit(
        [VersionedRow(ROOM, "v1"), VersionedRow(ACTOR, "v2")], TARGET, MOVE, {"player 1": entry}
    )
    assert write.conditions == [IfVersion(ROOM.row_key, "v1"), IfVersion(ACTOR.row_key, "v2")]
    assert written(write, 0).members == ("player 1",)
    assert written(write, 1).membership == entry


def test_what_is_lost_or_out_of_generations_does_not_move() -> None:
    with pytest.raises(DataLost):
        move_unit([VersionedRow(msgspec.structs.replace(ROOM, state=RowState.LOST), "v")], TARGET, MOVE)
    last = msgspec.structs.replace(ROOM, owner_generation=GENERATION_MAX)
    with pytest.raises(InvalidOperation, match="AuthorityOwnerGeneration"):
        move_unit([VersionedRow(last, "v")], TARGET, MOVE)


def test_a_fence_keeps_owner_and_generations_and_names_the_relocation() -> None:
    """B6.7"""
    write = fence_unit([VersionedRow(ROOM, "v1"), VersionedRow(ACTOR, "v2")], MOVE)
    assert write.conditions == [IfVersion(ROOM.row_key, "v1"), IfVersion(ACTOR.row_key, "v2")]
    fenced = written(write)
    assert msgspec.structs.replace(fenced, relocation=None) == ROOM
    assert fenced.relocation == RelocationMark(*MOVE, MarkOutcome.FENCED)


def test_a_lost_object_keeps_its_owner_for_the_reader() -> None:
    """B6.8"""
    write = mark_lost([VersionedRow(ROOM, "v1")])
    assert write.conditions == [IfVersion(ROOM.row_key, "v1")]
    assert written(write) == msgspec.structs.replace(ROOM, state=RowState.LOST)


# leases and descriptors


def test_a_lease_is_put_under_missing_and_renewed_under_its_version() -> None:
    key = "lease:3:owner-a"
    put = put_lease(LEASE, NODE, 15_000)
    assert put.conditions == [IfMissing(key)]
    assert put.mutations == [
        Put(key, encode_lease(LEASE), 15_000),
        Put("node:6e6f64652d61:7", encode_descriptor(NODE), 15_000),
    ]
    assert put_lease(LEASE, None, 15_000).mutations == put.mutations[:1]
    renewed = renew_lease(LEASE, "v3", NODE, 15_000)
    assert renewed == StoreWrite([IfVersion(key, "v3")], put.mutations)
    assert renew_lease(LEASE, "v3", None, 15_000).mutations == put.mutations[:1]
    released = release_lease(LEASE, "v4")
    assert released == StoreWrite([IfVersion(key, "v4")], [Delete(key), Delete("node:6e6f64652d61:7")])


# the counter of ObjectGenerations


def test_blocks_follow_each_other_in_the_store() -> None:
    first = reserve_generations(None, None)
    assert (first.first, first.last) == (1, BLOCK_SIZE)
    assert first.write.conditions == [IfMissing(COUNTER_KEY)]
    (put,) = first.write.mutations
    assert isinstance(put, Put)
    second = reserve_generations(put.value, "v1", size=10)
    assert (second.first, second.last) == (BLOCK_SIZE + 1, BLOCK_SIZE + 10)
    assert second.write.conditions == [IfVersion(COUNTER_KEY, "v1")]
    with pytest.raises(InvalidOperation, match="used up"):
        reserve_generations(encode_counter(CounterRow(GENERATION_MAX - 5)), "v1")


def test_a_block_is_handed_out_once_and_upwards() -> None:
    source = GenerationSource()
    assert source.take(0) is None
    source.add(reserve_generations(None, None, size=5), 1_000)
    assert [source.take(1_000), source.take(1_001)] == [1, 2]
    assert source.take(1_002, above=3) == 4, "greater than that of the row it replaces"
    assert source.take(1_003) == 5
    assert source.take(1_004) is None
    source.add(reserve_generations(encode_counter(CounterRow(5)), "v", size=5), 1_004)
    assert source.take(1_005, above=10) is None


def test_an_old_block_is_dropped() -> None:
    """An incarnation made later by another node must carry a greater generation (B9.1)."""
    source = GenerationSource()
    source.add(reserve_generations(None, None), 1_000)
    assert source.take(1_000 + BLOCK_AGE_MS - 1) == 1
    assert source.take(1_000 + BLOCK_AGE_MS) is None
    assert source.take(1_001) is None


# the reference page

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "rows.md"


@pytest.mark.parametrize("row", [AuthorityRow, NodeDescriptor, OwnerLease, CounterRow])
def test_the_reference_page_lists_every_field_in_order(row: type[msgspec.Struct]) -> None:
    listed = re.findall(r"^\| `(\w+)` \|", REFERENCE.read_text("utf-8"), re.MULTILINE)
    fields = list(row.__struct_fields__)
    assert any(listed[at : at + len(fields)] == fields for at in range(len(listed))), (
        f"docs/reference/rows.md: the table of {row.__name__} is not {fields}"
    )


def test_the_examples_of_the_reference_page_are_canonical() -> None:
    decoders = [decode_authority, decode_descriptor, decode_lease, decode_counter]
    examples = re.findall(r"```json\n(.*)\n```", REFERENCE.read_text("utf-8"))
    assert len(examples) == len(decoders)
    for decode, example in zip(decoders, examples, strict=True):
        decode(example.encode("utf-8"))
