"""The rules between a frozen record's kind and its other fields."""

from __future__ import annotations

from typing import Any

import pytest
from sojourn import wire
from sojourn.wire.blocks import ROUTE_FENCE
from sojourn.wire.record import FROZEN_RECORD
from sojourn.wire.record_bodies import (
    ChannelBody,
    ColdActivationRoute,
    Completion,
    InnerOperation,
    InstanceActivation,
    NodeBody,
    NodeDestination,
    ReadyRoute,
    RelocationControl,
    SendReady,
)

NODE = wire.NodeSource(b"n", 1, "o", 1)
SPOT = wire.SpotSource(b"n", 1, "o", 1, "s")
PAYLOAD = wire.ApplicationPayload("p", "c", b"")
FENCE = wire.ActorRouteFence(wire.ActorRef("a", 1), b"n", 1, 1, 1)
READY = ReadyRoute(b"n", 1, "s", 1, "o", 1, 1, "v", True, 5)
COLD = ColdActivationRoute(b"n", 1, "s", "mesh", "Type", "1", 5)


def record(kind: int, body: Any, **changes: Any) -> wire.FrozenRecord:
    fields: dict[str, Any] = {
        "record_kind": wire.RecordKind(kind),
        "source": NODE,
        "metadata": None,
        "operation_id": wire.OperationIdOrZero(0, 0),
        "operation_kind": wire.OperationKind(0),
        "reply_route_id": None,
        "body": body,
    }
    return wire.FrozenRecord(**(fields | changes))


ID = {"operation_id": wire.OperationIdOrZero(0, 1)}


def activation(inner: int) -> InstanceActivation:
    return InstanceActivation(COLD, 1, InnerOperation(inner), PAYLOAD)


@pytest.mark.parametrize(
    ("broken", "path"),
    [
        (record(1, NodeBody(PAYLOAD), **ID), "operationId"),
        (record(3, ChannelBody("c", PAYLOAD), **ID), "operationId"),
        (record(9, wire.ActorBody(FENCE, PAYLOAD)), "operationId"),
        (record(2, NodeBody(PAYLOAD), **ID), "operationKind"),
        (record(1, NodeBody(PAYLOAD), operation_kind=wire.OperationKind(5), **ID), "operationKind"),
        (
            record(11, Completion(wire.TerminalResult.OK, wire.FailureCode.NONE, None), **ID),
            "operationKind",
        ),
        (record(12, SendReady(NodeDestination(b"n")), source=SPOT), "source"),
        (record(12, SendReady(NodeDestination(b"n")), metadata=()), "metadata"),
        (record(14, activation(2)), "body"),
        (record(14, activation(1), **ID), "operationId"),
        (
            record(14, activation(1), operation_kind=wire.OperationKind(12), reply_route_id=1, **ID),
            "body",
        ),
        (record(1, NodeBody(PAYLOAD), reply_route_id=1), "replyRoute"),
        (
            record(2, NodeBody(PAYLOAD), operation_kind=wire.OperationKind(1), **ID),
            "replyRoute",
        ),
        (record(1, ChannelBody("c", PAYLOAD)), "body"),
        (
            record(
                13,
                RelocationControl(
                    wire.Phase.PREPARED,
                    wire.Role.COORDINATOR,
                    wire.RelocationId(0, 1),
                    wire.ActorIdentity("a", 1, 1),
                    wire.TerminalResult.NOT_FOUND,
                    wire.FailureCode.NONE,
                ),
            ),
            "body.failureCode",
        ),
    ],
)
def test_a_broken_rule_names_its_field(broken: wire.FrozenRecord, path: str) -> None:
    with pytest.raises(wire.WireError) as caught:
        wire.encode_frozen_record(broken)
    assert (caught.value.word, caught.value.path) == ("invalid-field", path)


def test_both_kinds_of_operation_of_an_activation() -> None:
    send = record(14, activation(1))
    request = record(14, activation(2), operation_kind=wire.OperationKind(12), reply_route_id=1, **ID)
    for good in (send, request):
        assert wire.decode_frozen_record(wire.encode_frozen_record(good)) == good


def test_a_record_without_metadata_has_no_deadline() -> None:
    assert record(1, NodeBody(PAYLOAD)).deadline_ms is None
    assert record(1, NodeBody(PAYLOAD), metadata=(wire.MetadataEntry("k", "v"),)).deadline_ms is None


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"recordKind": 15}, "recordKind"),
        ({"recordKind": "1"}, "recordKind"),
        ({"source": None}, "source"),
        ({"source": {"tag": 9}}, "source.tag"),
        ({"source": {}}, "source.tag"),
        ({"source": {"tag": 1, "kind": "spot"}}, "source.tag"),
        ({"hasMetadata": True}, "hasMetadata"),
        ({"metadata": {}, "hasMetadata": True}, "metadata"),
        ({"metadata": [{"key": 1, "value": ""}], "hasMetadata": True}, "metadata[0].key"),
        ({"operationId": {"high": 0, "low": "0"}}, "operationId.high"),
        ({"operationId": {"high": "00", "low": "0"}}, "operationId.high"),
        ({"operationId": {"low": "0"}}, "operationId.high"),
        ({"replyRoute": None}, "replyRoute"),
        ({"replyRoute": {"replyRouteId": 1}}, "replyRoute.replyRouteId"),
        (
            {"body": {"payload": {"packetName": "p", "contentType": "c", "payload": "0"}}},
            "body.payload.payload",
        ),
        ({"surplus": 1}, "surplus"),
    ],
)
def test_json_that_cannot_stand_for_a_record(change: dict[str, Any], path: str) -> None:
    value = FROZEN_RECORD.to_json(record(1, NodeBody(PAYLOAD))) | change
    with pytest.raises(wire.WireError) as caught:
        FROZEN_RECORD.from_json(value, [])
    assert (caught.value.word, caught.value.path) == ("invalid-field", path)


def test_a_boolean_in_json_is_no_number() -> None:
    value = FROZEN_RECORD.to_json(record(14, InstanceActivation(READY, 1, InnerOperation(1), PAYLOAD)))
    value["body"]["instanceRoute"]["instanceIntent"] = 1
    with pytest.raises(wire.WireError, match=r"body\.instanceRoute\.instanceIntent: true or false"):
        FROZEN_RECORD.from_json(value, [])


def test_a_union_may_be_named_by_tag_or_kind() -> None:
    fence = wire.SpotRouteFence(wire.SpotRef("s", 1), b"n", 1, 1, 1)
    value = ROUTE_FENCE.to_json(fence)
    assert (value["tag"], value["kind"]) == (2, "spot")
    for left_out in ("tag", "kind"):
        assert ROUTE_FENCE.from_json({k: v for k, v in value.items() if k != left_out}, []) == fence
