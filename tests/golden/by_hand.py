"""Contract bytes written by hand, field by field, from the format's description.

Nothing here uses the codec: the fixtures made of it would show a codec that misreads the format. A field is
its path and its bytes in hex; a length has no path of its own in the codec's output and is written as "-".
"""

from __future__ import annotations

from typing import Any

__all__ = ["COMMANDS", "ENVELOPES", "Field", "Fixture", "Malformed"]

Field = tuple[str, str]
Malformed = dict[str, Any]
Fixture = dict[str, Any]


def text(value: str) -> str:
    """text8 in hex."""
    raw = value.encode("utf-8")
    return f"{len(raw):02x} {raw.hex()}"


def head(number: int) -> list[Field]:
    return [("magic", "5a4d"), ("major", "01"), ("command", f"{number:02x}"), ("flags", "00")]


IDENTITY: list[Field] = [
    ("relocationIdentity.relocationId.high", "0123456789abcdef"),
    ("relocationIdentity.relocationId.low", "fedcba9876543210"),
    ("relocationIdentity.targetAttemptGeneration", "0000000000000003"),
    ("relocationIdentity.coordinatorFence.ownerId", "07 6f776e65722d31"),
    ("relocationIdentity.coordinatorFence.leaseGeneration", "0000000000000005"),
    ("relocationIdentity.coordinatorFence.nodeRid", "03 00ff41"),
    ("relocationIdentity.coordinatorFence.nodeGeneration", "0000000000000006"),
    ("relocationIdentity.coordinatorFence.expectedAuthorityStoreVersion", "0002 7637"),
]
COORDINATOR_VALUE = {
    "ownerId": "owner-1",
    "leaseGeneration": "5",
    "nodeRid": "00ff41",
    "nodeGeneration": "6",
    "expectedAuthorityStoreVersion": "v7",
}
RELOCATION_ID_VALUE = {"high": "81985529216486895", "low": "18364758544493064720"}
IDENTITY_VALUE = {
    "relocationId": RELOCATION_ID_VALUE,
    "targetAttemptGeneration": "3",
    "coordinatorFence": COORDINATOR_VALUE,
}

TARGET: list[Field] = [
    ("target.nodeRid", "02 6e32"),
    ("target.nodeGeneration", "0000000000000008"),
    ("target.ownerId", "07 6f776e65722d32"),
    ("target.ownerLeaseGeneration", "0000000000000009"),
]
TARGET_VALUE = {"nodeRid": "6e32", "nodeGeneration": "8", "ownerId": "owner-2", "ownerLeaseGeneration": "9"}

ACTOR: list[Field] = [
    ("object.tag", "01"),
    ("-", "0018"),
    ("object.actorId", "07 706c6179657231"),
    ("object.objectGeneration", "000000000000000a"),
    ("object.expectedAuthorityOwnerGeneration", "7fffffffffffffff"),
]
ACTOR_VALUE = {
    "tag": 1,
    "kind": "actor",
    "actorId": "player1",
    "objectGeneration": "10",
    "expectedAuthorityOwnerGeneration": "9223372036854775807",
}
USER_SPOT: list[Field] = [
    ("object.tag", "02"),
    ("-", "0013"),
    ("object.spotId", "02 c3a9"),
    ("object.objectGeneration", "000000000000000a"),
    ("object.expectedAuthorityOwnerGeneration", "000000000000000b"),
]
USER_SPOT_VALUE = {
    "tag": 2,
    "kind": "userSpot",
    "spotId": "é",
    "objectGeneration": "10",
    "expectedAuthorityOwnerGeneration": "11",
}
INSTANCE_SPOT: list[Field] = [
    ("object.tag", "03"),
    ("-", "0014"),
    ("object.instanceType", "05 4172656e61"),
    ("object.spotId", "05 612f622f63"),
    ("object.objectGeneration", "000000000000000a"),
]
INSTANCE_SPOT_VALUE = {
    "tag": 3,
    "kind": "instanceSpot",
    "instanceType": "Arena",
    "spotId": "a/b/c",
    "objectGeneration": "10",
}


def request_record(path: str) -> list[Field]:
    """An actor request (kind 10) from a Spot with a deadline."""
    prefix = f"{path}." if path else ""
    source = [
        (f"{prefix}source.tag", "02"),
        ("-", "001e"),
        (f"{prefix}source.nodeRid", "02 6e33"),
        (f"{prefix}source.nodeGeneration", "0000000000000004"),
        (f"{prefix}source.ownerId", "02 6f33"),
        (f"{prefix}source.ownerLeaseGeneration", "0000000000000005"),
        (f"{prefix}source.spotId", "07 6c6f6262792d37"),
    ]
    metadata = [
        (f"{prefix}hasMetadata", "01"),
        (f"{prefix}metadata.version", "01"),
        ("-", "01"),
        (f"{prefix}metadata[0].key", text("deadline-unix-ms")),
        (f"{prefix}metadata[0].value", "000d 31373634353830303030303030"),
    ]
    operation = [
        (f"{prefix}operationId.high", "0000000000000001"),
        (f"{prefix}operationId.low", "0000000000000002"),
        (f"{prefix}operationKind", "00000004"),
        (f"{prefix}replyRoute", "0008"),
        (f"{prefix}replyRoute.replyRouteId", "0001000000000007"),
    ]
    fence = [
        (f"{prefix}body.actorRouteFence.actorRef.actorId", "07 706c6179657231"),
        (f"{prefix}body.actorRouteFence.actorRef.objectGeneration", "000000000000000a"),
        (f"{prefix}body.actorRouteFence.targetNodeRid", "02 6e31"),
        (f"{prefix}body.actorRouteFence.targetNodeGeneration", "0000000000000006"),
        (f"{prefix}body.actorRouteFence.expectedAuthorityOwnerGeneration", "000000000000000b"),
        (f"{prefix}body.actorRouteFence.expectedOwnerLeaseGeneration", "0000000000000005"),
    ]
    payload = [
        (f"{prefix}body.payload.version", "01"),
        (f"{prefix}body.payload.length", "0000001a"),
        (f"{prefix}body.payload.packetName", "04 4d6f7665"),
        (f"{prefix}body.payload.contentType", "0d 6170706c69636174696f6e2f78"),
        (f"{prefix}body.payload.payload", "00000003 00ff10"),
    ]
    return [(f"{prefix}recordKind", "0a"), *source, *metadata, *operation, *fence, *payload]


REQUEST_VALUE = {
    "recordKind": 10,
    "source": {
        "tag": 2,
        "kind": "spot",
        "nodeRid": "6e33",
        "nodeGeneration": "4",
        "ownerId": "o3",
        "ownerLeaseGeneration": "5",
        "spotId": "lobby-7",
    },
    "hasMetadata": True,
    "metadata": [{"key": "deadline-unix-ms", "value": "1764580000000"}],
    "operationId": {"high": "1", "low": "2"},
    "operationKind": 4,
    "replyRoute": {"replyRouteId": "281474976710663"},
    "body": {
        "actorRouteFence": {
            "actorRef": {"actorId": "player1", "objectGeneration": "10"},
            "targetNodeRid": "6e31",
            "targetNodeGeneration": "6",
            "expectedAuthorityOwnerGeneration": "11",
            "expectedOwnerLeaseGeneration": "5",
        },
        "payload": {"packetName": "Move", "contentType": "application/x", "payload": "00ff10"},
    },
}


def bad(
    field: str, new: str, word: str, *, path: str | None = None, at: str | None = None, shift: int = 0
) -> Malformed:
    """Other bytes at a field. The error names `path`, `shift` bytes behind the start of `at` (else: the field)."""
    return {
        "field": field,
        "bytes": new,
        "word": word,
        "path": field if path is None else path,
        "at": field if at is None else at,
        "shift": shift,
    }


HEAD_MALFORMED = [
    bad("magic", "5a4e", "invalid-magic"),
    bad("major", "02", "unsupported-major"),
    bad("command", "23", "unknown-command"),
    bad("command", "2d", "unknown-command"),
    bad("flags", "01", "forbidden-flag"),
    bad("flags", "08", "forbidden-flag"),
]
IDENTITY_MALFORMED = [
    bad("relocationIdentity.targetAttemptGeneration", "0000000000000000", "invalid-field"),
    bad("relocationIdentity.targetAttemptGeneration", "8000000000000000", "invalid-field"),
    bad("relocationIdentity.coordinatorFence.ownerId", "00", "invalid-field"),
    bad("relocationIdentity.coordinatorFence.ownerId", "02 c080", "invalid-field", shift=1),
    bad("relocationIdentity.coordinatorFence.ownerId", "03 eda080", "invalid-field", shift=1),
    bad("relocationIdentity.coordinatorFence.ownerId", "02 6100", "invalid-field", shift=1),
    bad("relocationIdentity.coordinatorFence.nodeRid", "00", "invalid-field"),
    bad("relocationIdentity.coordinatorFence.expectedAuthorityStoreVersion", "0000", "invalid-field"),
    bad("object.tag", "04", "invalid-field"),
]


def command(
    number: int, name: str, fields: list[Field], value: dict[str, Any], malformed: list[Malformed]
) -> Fixture:
    return {
        "name": f"{number} {name}",
        "fields": head(number) + fields,
        "value": {"command": number, "name": name, **value},
        "malformed": [*HEAD_MALFORMED, *malformed],
    }


SOURCE_ROLE = ("senderRole", "01")
TARGET_ROLE = ("senderRole", "02")

COMMANDS: list[Fixture] = [
    command(
        30,
        "relocationReady",
        [*IDENTITY, *TARGET, *ACTOR, TARGET_ROLE],
        {
            "relocationIdentity": IDENTITY_VALUE,
            "target": TARGET_VALUE,
            "object": ACTOR_VALUE,
            "senderRole": 2,
        },
        [
            *IDENTITY_MALFORMED,
            bad("senderRole", "01", "wrong-role"),
            bad("senderRole", "03", "wrong-role"),
            bad("senderRole", "00", "invalid-field"),
            bad("senderRole", "04", "invalid-field"),
            bad("senderRole", "", "truncated-field"),
        ],
    ),
    command(
        31,
        "relocationData",
        [*IDENTITY, SOURCE_ROLE, *INSTANCE_SPOT, *request_record("frozenRecord")],
        {
            "relocationIdentity": IDENTITY_VALUE,
            "senderRole": 1,
            "object": INSTANCE_SPOT_VALUE,
            "frozenRecord": REQUEST_VALUE,
        },
        [
            bad("senderRole", "02", "wrong-role"),
            bad("frozenRecord.recordKind", "00", "invalid-field"),
            bad("frozenRecord.recordKind", "0f", "invalid-field"),
            bad("frozenRecord.source.tag", "05", "invalid-field"),
            bad("frozenRecord.hasMetadata", "02", "invalid-field"),
            bad("frozenRecord.metadata.version", "02", "invalid-field"),
            bad("frozenRecord.operationKind", "00000003", "invalid-field"),
            bad("frozenRecord.operationKind", "00000010", "invalid-field"),
            bad("frozenRecord.replyRoute", "0007", "invalid-body-length"),
            bad("frozenRecord.replyRoute", "0000", "invalid-body-length"),
            bad("frozenRecord.replyRoute.replyRouteId", "0000000000000000", "invalid-field"),
            bad("frozenRecord.body.payload.version", "00", "invalid-field"),
            bad("frozenRecord.body.payload.payload", "00000004 00ff10", "invalid-body-length", shift=4),
        ],
    ),
    command(
        34,
        "relocationCutover",
        [
            *IDENTITY,
            SOURCE_ROLE,
            *USER_SPOT,
            ("boundaryRecordCount", "0000000000000009"),
            ("boundaryChecksumCrc32c", "e3069283"),
        ],
        {
            "relocationIdentity": IDENTITY_VALUE,
            "senderRole": 1,
            "object": USER_SPOT_VALUE,
            "boundaryRecordCount": "9",
            "boundaryChecksumCrc32c": 0xE3069283,
        },
        [
            *IDENTITY_MALFORMED,
            bad("senderRole", "02", "wrong-role"),
            bad("boundaryRecordCount", "8000000000000000", "invalid-field"),
            bad("boundaryChecksumCrc32c", "e30692", "truncated-field"),
        ],
    ),
    command(
        40,
        "relocationPrepare",
        [
            *IDENTITY,
            *TARGET,
            ("initiatorRole", "01"),
            *ACTOR,
            ("sourceNodeRid", "02 6e31"),
            ("sourceNodeGeneration", "0000000000000006"),
            ("payloadTotalLength", "0000004000000000"),
            ("payloadChunkCount", "00100000"),
            ("payloadChecksumCrc32c", "e3069283"),
            ("applicationVersion", "0000000000000000"),
        ],
        {
            "relocationIdentity": IDENTITY_VALUE,
            "target": TARGET_VALUE,
            "initiatorRole": 1,
            "object": ACTOR_VALUE,
            "sourceNodeRid": "6e31",
            "sourceNodeGeneration": "6",
            "payloadTotalLength": "274877906944",
            "payloadChunkCount": 1048576,
            "payloadChecksumCrc32c": 0xE3069283,
            "applicationVersion": "0",
        },
        [
            *IDENTITY_MALFORMED,
            bad("initiatorRole", "02", "wrong-role"),
            bad("initiatorRole", "03", "wrong-role"),
            bad("payloadTotalLength", "0000004000000001", "invalid-field"),
            bad("applicationVersion", "ffffffffffffffff", "invalid-field"),
            bad("applicationVersion", "00000000000000", "truncated-field"),
        ],
    ),
    command(
        52,
        "relocationState",
        [*IDENTITY, SOURCE_ROLE, *ACTOR, ("chunkOrdinal", "00000000"), ("chunkData", "00000004 deadbeef")],
        {
            "relocationIdentity": IDENTITY_VALUE,
            "senderRole": 1,
            "object": ACTOR_VALUE,
            "chunkOrdinal": 0,
            "chunkData": "deadbeef",
        },
        [
            *IDENTITY_MALFORMED,
            bad("senderRole", "02", "wrong-role"),
            bad("chunkData", "00000004 deadbe", "truncated-field", shift=4),
            bad("chunkData", "00000003 deadbeef", "trailing-byte", path="", shift=7),
            bad("chunkData", "04000001 deadbeef", "invalid-field"),
        ],
    ),
    command(
        53,
        "relocationFailed",
        [*IDENTITY, *TARGET, *ACTOR, TARGET_ROLE, ("failureCode", "00000023")],
        {
            "relocationIdentity": IDENTITY_VALUE,
            "target": TARGET_VALUE,
            "object": ACTOR_VALUE,
            "senderRole": 2,
            "failureCode": 35,
        },
        [
            bad("senderRole", "01", "wrong-role"),
            bad("failureCode", "00000000", "invalid-field"),
            bad("failureCode", "00000017", "unknown-error-code"),
            bad("failureCode", "00000020", "unknown-error-code"),
            bad("failureCode", "00000024", "unknown-error-code"),
            bad("failureCode", "00000023 00", "trailing-byte", path="", shift=4),
        ],
    ),
]

SMALLEST: list[Field] = [
    ("relocation.high", "0000000000000000"),
    ("relocation.low", "0000000000000001"),
    ("object.tag", "01"),
    ("-", "0012"),
    ("object.actorId", "01 61"),
    ("object.objectGeneration", "0000000000000001"),
    ("object.expectedAuthorityOwnerGeneration", "0000000000000001"),
    ("applicationVersion", "0000000000000001"),
    ("applicationStates", "00000001"),
    ("applicationStates[0].participantId", "0000000000000001"),
    ("applicationStates[0].hasState", "00"),
    ("applicationStates[0].payload", "0000000000000000"),
    ("savedWork", "00000000"),
    ("timerRegistrations", "00000000"),
    ("pendingTimerTicks", "00000000"),
]
FULL: list[Field] = [
    ("relocation.high", "0123456789abcdef"),
    ("relocation.low", "fedcba9876543210"),
    *USER_SPOT,
    ("applicationVersion", "7fffffffffffffff"),
    ("applicationStates", "00000003"),
    ("applicationStates[0].participantId", "0000000000000001"),
    ("applicationStates[0].hasState", "01"),
    ("applicationStates[0].payload", "000000000000000c 0000000000000004 deadbeef"),
    ("applicationStates[1].participantId", "0000000000000002"),
    ("applicationStates[1].hasState", "01"),
    ("applicationStates[1].payload", "0000000000000008 0000000000000000"),
    ("applicationStates[2].participantId", "0000000000000003"),
    ("applicationStates[2].hasState", "00"),
    ("applicationStates[2].payload", "0000000000000000"),
    ("savedWork", "00000002"),
    ("savedWork[0].participantId", "0000000000000001"),
    ("savedWork[0].order", "0000000000000001"),
    *request_record("savedWork[0].frozenRecord"),
    ("savedWork[1].participantId", "0000000000000001"),
    ("savedWork[1].order", "0000000000000004"),
    *request_record("savedWork[1].frozenRecord"),
    ("timerRegistrations", "00000001"),
    ("timerRegistrations[0].participantId", "0000000000000001"),
    ("timerRegistrations[0].name", "04 7469636b"),
    ("timerRegistrations[0].handlerType", "06 4f6e5469636b"),
    ("timerRegistrations[0].periodMilliseconds", "00000000000003e8"),
    ("timerRegistrations[0].overrunPolicy", "02"),
    ("timerRegistrations[0].maxCatchUpTicks", "0000000000000005"),
    ("timerRegistrations[0].stopOnUnhandledException", "01"),
    ("timerRegistrations[0].lastCompletedDeliveryIndex", "0000000000000000"),
    ("timerRegistrations[0].lastCompletedScheduledIndex", "0000000000000000"),
    ("timerRegistrations[0].nextScheduledAtUnixMilliseconds", "ffffffffffffffff"),
    ("pendingTimerTicks", "00000001"),
    ("pendingTimerTicks[0].participantId", "0000000000000001"),
    ("pendingTimerTicks[0].order", "0000000000000002"),
    ("pendingTimerTicks[0].timerName", "04 7469636b"),
    ("pendingTimerTicks[0].deliveryIndex", "0000000000000001"),
    ("pendingTimerTicks[0].scheduledIndex", "0000000000000002"),
    ("pendingTimerTicks[0].scheduledAtUnixMilliseconds", "0000019adbbd4400"),
    ("pendingTimerTicks[0].skippedTicks", "0000000000000001"),
]

ENVELOPES: list[Fixture] = [
    {
        "name": "smallest legal stream",
        "fields": SMALLEST,
        "value": {
            "relocation": {"high": "0", "low": "1"},
            "object": {
                "tag": 1,
                "kind": "actor",
                "actorId": "a",
                "objectGeneration": "1",
                "expectedAuthorityOwnerGeneration": "1",
            },
            "applicationVersion": "1",
            "applicationStates": [{"participantId": "1", "hasState": False, "payload": None}],
            "savedWork": [],
            "timerRegistrations": [],
            "pendingTimerTicks": [],
        },
        "malformed": [
            bad(
                "relocation.low",
                "0000000000000000",
                "invalid-field",
                path="relocation.high",
                at="relocation.high",
            ),
            bad("object.tag", "00", "invalid-field"),
            bad("object.objectGeneration", "0000000000000000", "invalid-field"),
            bad("applicationVersion", "8000000000000000", "invalid-field"),
            bad("applicationStates", "00000002", "truncated-field"),
            bad("applicationStates", "ffffffff", "truncated-field"),
            bad("applicationStates[0].hasState", "02", "invalid-field"),
            bad("applicationStates[0].payload", "0000000000000008", "invalid-body-length"),
            bad("pendingTimerTicks", "00000000 00", "trailing-byte", path="", shift=4),
            bad("pendingTimerTicks", "000000", "truncated-field"),
            # The decoder takes these; the validation that follows does not.
            bad(
                "applicationStates[0].participantId",
                "0000000000000002",
                "invalid-field",
                path="applicationStates",
                at="applicationStates",
            ),
        ],
    },
    {
        "name": "every vector",
        "fields": FULL,
        "value": {
            "relocation": RELOCATION_ID_VALUE,
            "object": USER_SPOT_VALUE,
            "applicationVersion": "9223372036854775807",
            "applicationStates": [
                {"participantId": "1", "hasState": True, "payload": "deadbeef"},
                {"participantId": "2", "hasState": True, "payload": ""},
                {"participantId": "3", "hasState": False, "payload": None},
            ],
            "savedWork": [
                {"participantId": "1", "order": "1", "frozenRecord": REQUEST_VALUE},
                {"participantId": "1", "order": "4", "frozenRecord": REQUEST_VALUE},
            ],
            "timerRegistrations": [
                {
                    "participantId": "1",
                    "name": "tick",
                    "handlerType": "OnTick",
                    "periodMilliseconds": "1000",
                    "overrunPolicy": 2,
                    "maxCatchUpTicks": "5",
                    "stopOnUnhandledException": True,
                    "lastCompletedDeliveryIndex": "0",
                    "lastCompletedScheduledIndex": "0",
                    "nextScheduledAtUnixMilliseconds": "18446744073709551615",
                }
            ],
            "pendingTimerTicks": [
                {
                    "participantId": "1",
                    "order": "2",
                    "timerName": "tick",
                    "deliveryIndex": "1",
                    "scheduledIndex": "2",
                    "scheduledAtUnixMilliseconds": str(0x19ADBBD4400),
                    "skippedTicks": "1",
                }
            ],
        },
        "malformed": [
            bad(
                "applicationStates[1].participantId",
                "0000000000000001",
                "duplicate-item",
                path="applicationStates[1]",
            ),
            bad(
                "applicationStates[2].participantId",
                "0000000000000001",
                "unsorted-vector",
                path="applicationStates[2]",
            ),
            bad("savedWork[0].order", "0000000000000000", "invalid-field"),
            bad(
                "savedWork[1].order",
                "0000000000000001",
                "duplicate-item",
                path="savedWork[1]",
                at="savedWork[1].participantId",
            ),
            bad(
                "savedWork[0].order",
                "0000000000000005",
                "unsorted-vector",
                path="savedWork[1]",
                at="savedWork[1].participantId",
            ),
            bad("savedWork[1].participantId", "0000000000000004", "invalid-field"),
            bad("timerRegistrations[0].overrunPolicy", "04", "invalid-field"),
            bad("timerRegistrations[0].stopOnUnhandledException", "02", "invalid-field"),
            bad("pendingTimerTicks[0].order", "0000000000000001", "duplicate-item"),
            bad("pendingTimerTicks[0].timerName", "04 746f636b", "invalid-field"),
            bad(
                "pendingTimerTicks[0].participantId",
                "0000000000000002",
                "invalid-field",
                path="pendingTimerTicks[0].timerName",
                at="pendingTimerTicks[0].timerName",
            ),
        ],
    },
]
