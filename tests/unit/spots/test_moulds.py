"""A frame out of a mould is the one made field by field."""

from __future__ import annotations

import pytest
import sojourn as sj
from sojourn.frames import FLAG_INTENT, FLAG_REQUEST, record_frame
from sojourn.ids import ObjectKind, actor_key, spot_key
from sojourn.spots.moulds import Mould
from sojourn.spots.origin import Origin, record_kind
from sojourn.wire.errors import WireError
from sojourn.wire.fast_record import encode_payload, encode_record_head

app = sj.App("moulds", version=1)
ORIGIN = Origin(b"node-1", 5, "node-1@5", 6)
HIGH = 2**63 - 5


@app.actor
class Player(sj.Actor):
    pass


@app.spot
class Device(sj.InstanceSpot):
    pass


@app.spot
class Room(sj.UserSpot):
    pass


def made_in_full(
    cls: type, key: bytes, source: bytes, route: int, low: int, deadline_ms: int | None, payload: bytes
) -> bytes:
    record = app.type_of(cls)
    head = encode_record_head(source, deadline_ms, HIGH, low, record_kind(record.kind, route != 0), route)
    spot = record.kind is ObjectKind.INSTANCE_SPOT
    flags = (FLAG_REQUEST if route else 0) | (FLAG_INTENT if spot else 0)
    stable_type = record.stable_type_bytes if spot else b""
    tail = encode_payload("say", "text/x", payload)
    return record_frame(flags, 0, record.kind, 0, route, HIGH, low, len(head), key, stable_type, head + tail)


@pytest.mark.parametrize("cls", [Player, Device, Room])
@pytest.mark.parametrize("from_object", [False, True])
@pytest.mark.parametrize("payload", [b"", b"x" * 70_000])
def test_same_octets(cls: type, from_object: bool, payload: bytes) -> None:
    record = app.type_of(cls)
    key = actor_key("käthe") if record.kind is ObjectKind.ACTOR else spot_key("käthe")
    source = ORIGIN.object_source(spot_key("sender"), 3) if from_object else ORIGIN.node_source()
    mould = Mould(record, "say", "text/x", source, HIGH)
    for deadline_ms in (1_764_580_000_000, 1, 10**15):
        asked = mould.request(key, 2**48 + 7, 9, deadline_ms, payload)
        assert asked == made_in_full(cls, key, source, 2**48 + 7, 9, deadline_ms, payload)
    assert mould.send(key, 10, payload) == made_in_full(cls, key, source, 0, 10, None, payload)


def test_octets_of_the_record_are_known_before_it_is_made() -> None:
    source = ORIGIN.node_source()
    mould = Mould(app.type_of(Room), "say", "text/x", source, HIGH)
    head = encode_record_head(source, 1_764_580_000_000, HIGH, 9, 6, 7)
    assert mould.record_octets == len(head) + len(encode_payload("say", "text/x", b""))


def test_a_name_that_no_record_can_carry() -> None:
    with pytest.raises(WireError):
        Mould(app.type_of(Room), "s" * 256, "text/x", ORIGIN.node_source(), HIGH)
