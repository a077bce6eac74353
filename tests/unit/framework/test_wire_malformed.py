"""What each malformed input gets: the word, the offset and the field path. One test for each row of the contract."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from sojourn import wire
from sojourn.errors import ProtocolError
from sojourn.wire.companion_commands import ReadyBarrier

from tests.unit.framework.wire_frames import (
    ACTOR,
    COORDINATOR,
    CUTOVER,
    DATA,
    ENVELOPE,
    FAILED,
    FENCE,
    FOLLOW,
    IDENTITY,
    JOIN_REPLY,
    PREPARE,
    READY,
    RECORD,
    RELAY,
    ROUTE,
    SPOT_FENCE,
    STATE,
    changed,
    decode,
    offsets_of,
    refused,
    refused_envelope,
)


def test_invalid_magic() -> None:
    frame = wire.encode_command(READY)[0]
    assert refused(b"\x5a\x4e" + frame[2:]) == ("invalid-magic", 0, "magic")


def test_unsupported_major() -> None:
    frame = wire.encode_command(READY)[0]
    assert refused(frame[:2] + b"\x02" + frame[3:]) == ("unsupported-major", 2, "major")


@pytest.mark.parametrize("number", [0, *range(7, 16), 32, 35, 41, 45, *range(54, 256), 1, 48, 51])
def test_unknown_command(number: int) -> None:
    frame = wire.encode_command(READY)[0]
    assert refused(frame[:3] + bytes((number,)) + frame[4:]) == ("unknown-command", 3, "command")


@pytest.mark.parametrize("flag", [0x01, 0x02, 0x04, 0x08, 0x10, 0x80])
@pytest.mark.parametrize("command", [READY, RELAY, JOIN_REPLY])
def test_forbidden_flag(command: wire.Command, flag: int) -> None:
    frame = wire.encode_command(command)[0]
    assert refused(frame[:4] + bytes((flag,)) + frame[5:]) == ("forbidden-flag", 4, "flags")


@pytest.mark.parametrize("command", [READY, DATA, CUTOVER, PREPARE, STATE, FAILED, ROUTE])
def test_truncated_field(command: wire.Command) -> None:
    frame = wire.encode_command(command)[0]
    for length in range(len(frame)):
        word, offset, _ = refused(frame[:length])
        assert word == "truncated-field"
        assert offset <= length


def test_truncated_chunk_and_record() -> None:
    frame = wire.encode_command(STATE)[0]
    word, offset, path = refused(frame[:-1])
    assert (word, path) == ("truncated-field", "chunkData")
    assert offset == len(frame) - len(STATE.chunk_data)


@pytest.mark.parametrize(
    ("path", "minimum"), [("applicationStates", 17), ("savedWork", 68), ("timerRegistrations", 54)]
)
def test_a_count_that_cannot_fit_is_refused_before_allocating(path: str, minimum: int) -> None:
    encoded = wire.encode_envelope(ENVELOPE)
    at = offsets_of(ENVELOPE)[path]
    for count in (2**32 - 1, (len(encoded) - at) // minimum + 1):
        huge = encoded[:at] + count.to_bytes(4, "big") + encoded[at + 4 :]
        assert refused_envelope(huge) == ("truncated-field", at, path)


@pytest.mark.parametrize(
    ("command", "path", "value"),
    [
        (READY, "relocationIdentity.targetAttemptGeneration", bytes(8)),
        (READY, "relocationIdentity.targetAttemptGeneration", b"\x80" + bytes(7)),
        (READY, "relocationIdentity.coordinatorFence.leaseGeneration", bytes(8)),
        (READY, "relocationIdentity.coordinatorFence.ownerId", b"\x00"),
        (READY, "relocationIdentity.coordinatorFence.nodeRid", b"\x00"),
        (READY, "relocationIdentity.coordinatorFence.expectedAuthorityStoreVersion", b"\x00\x00"),
        (READY, "relocationIdentity.coordinatorFence.expectedAuthorityStoreVersion", b"\x10\x01"),
        (READY, "object.tag", b"\x00"),
        (READY, "object.tag", b"\x04"),
        (READY, "senderRole", b"\x00"),
        (READY, "senderRole", b"\x04"),
        (CUTOVER, "boundaryRecordCount", b"\x80" + bytes(7)),
        (PREPARE, "payloadTotalLength", (256 * 2**30 + 1).to_bytes(8, "big")),
        (PREPARE, "applicationVersion", b"\xff" * 8),
        (STATE, "chunkData", (64 * 2**20 + 1).to_bytes(4, "big")),
        (FOLLOW, "envelope.version", b"\x02"),
        (FOLLOW, "envelope.length", (16 * 2**20 + 1).to_bytes(4, "big")),
        (FOLLOW, "envelope.hopCount", b"\x00"),
        (FOLLOW, "envelope.hopCount", b"\x09"),
        (JOIN_REPLY, "joinResult.tag", b"\x00\x00\x00\x02"),
        (JOIN_REPLY, "joinResult.receiveChunkLimitBytes", (64 * 2**20 + 1).to_bytes(4, "big")),
        (JOIN_REPLY, "terminalResult", b"\x00\x00\x00\x01"),
        (FAILED, "failureCode", bytes(4)),
    ],
)
def test_invalid_field(command: wire.Command, path: str, value: bytes) -> None:
    assert refused(changed(command, path, value)) == ("invalid-field", offsets_of(command)[path], path)


@pytest.mark.parametrize(
    "text",
    [b"\xc0\x80", b"\xed\xa0\x80", b"\xff", b"\xe9", b"\xc0\xaf", b"a\0b"],
    ids=lambda text: text.hex(),
)
def test_texts_are_strict_utf8_without_nul(text: bytes) -> None:
    path = "relocationIdentity.coordinatorFence.ownerId"
    at = offsets_of(READY)[path]
    frame = wire.encode_command(READY)[0]
    end = at + 1 + frame[at]
    word, offset, found = refused(frame[:at] + bytes((len(text),)) + text + frame[end:])
    assert (word, found, offset) == ("invalid-field", path, at + 1)


def test_a_leading_bom_is_data() -> None:
    fence = wire.CoordinatorFence("\ufeffowner", 1, b"n", 1, "v")
    command = wire.RelocationReady(
        identity=wire.RelocationIdentity(IDENTITY.relocation_id, 1, fence),
        target=READY.target,
        object=ACTOR,
    )
    assert decode(wire.encode_command(command)[0]) == command


def test_both_zero_ids() -> None:
    path = "relocationIdentity.relocationId.high"
    assert refused(changed(READY, path, bytes(16))) == ("invalid-field", 5, path)
    path = "operationId.high"
    assert refused(changed(RELAY, path, bytes(16))) == ("invalid-field", 5, path)


def test_trailing_byte() -> None:
    frame = wire.encode_command(READY)[0]
    assert refused(frame + b"\x00") == ("trailing-byte", len(frame), "")
    encoded = wire.encode_envelope(ENVELOPE)
    assert refused_envelope(encoded + b"\x00") == ("trailing-byte", len(encoded), "")
    data = wire.encode_command(DATA)[0]
    assert refused(data + b"\x00") == ("trailing-byte", len(data), "")


def test_a_part_too_many_is_trailing() -> None:
    frame = wire.encode_command(READY)[0]
    payload = wire.encode_payload("p", "c", b"")
    assert refused(frame, payload) == ("trailing-byte", 0, "part[1]")
    relay, part = wire.encode_command(RELAY)
    assert refused(relay, part, part) == ("trailing-byte", 0, "part[2]")
    assert refused(relay, part + b"\x00") == ("trailing-byte", len(part), "payload")


@pytest.mark.parametrize("difference", [-1, 1])
@pytest.mark.parametrize(
    ("command", "path", "width"),
    [
        (READY, "object.tag", 2),
        (FOLLOW, "envelope.version", 4),
        (RELAY, "context.tag", 2),
        (DATA, "object.tag", 2),
    ],
)
def test_invalid_body_length(command: wire.Command, path: str, width: int, difference: int) -> None:
    frame = wire.encode_command(command)[0]
    at = offsets_of(command)[path] + 1
    length = int.from_bytes(frame[at : at + width], "big") + difference
    wrong = frame[:at] + length.to_bytes(width, "big") + frame[at + width :]
    # A body said to be longer than all that is left is a cut one: only the followed envelope ends its frame.
    cut = command is FOLLOW and difference == 1
    word, _, found = refused(wrong)
    assert word == ("truncated-field" if cut else "invalid-body-length")
    assert found.startswith(path.split(".")[0])


def test_body_length_of_an_application_state() -> None:
    encoded = wire.encode_envelope(ENVELOPE)
    at = offsets_of(ENVELOPE)["applicationStates[0].payload"]
    assert encoded[at : at + 16] == (8 + 5).to_bytes(8, "big") + (5).to_bytes(8, "big")
    for first, second in ((8 + 4, 5), (8 + 6, 5), (8 + 5, 4), (8 + 5, 6)):
        lengths = first.to_bytes(8, "big") + second.to_bytes(8, "big")
        assert refused_envelope(encoded[:at] + lengths + encoded[at + 16 :])[0] == "invalid-body-length"
    absent = encoded[: at - 1] + b"\x00" + encoded[at:]
    assert refused_envelope(absent) == ("invalid-body-length", at, "applicationStates[0].payload")


def test_a_reply_route_has_the_length_of_its_operation_kind() -> None:
    path = "frozenRecord.replyRoute"
    for length in (0, 7, 9):
        wrong = changed(DATA, path, length.to_bytes(2, "big"))
        assert refused(wrong) == ("invalid-body-length", offsets_of(DATA)[path], path)


def test_unsorted_vector_and_duplicate_item() -> None:
    first, second = ENVELOPE.saved_work
    encoded = wire.encode_envelope(ENVELOPE)
    offsets = offsets_of(ENVELOPE)
    at = offsets["savedWork[1].order"]
    for order, word in ((first.order, "duplicate-item"), (first.order - 1, "unsorted-vector")):
        wrong = encoded[:at] + order.to_bytes(8, "big") + encoded[at + 8 :]
        assert refused_envelope(wrong) == (word, offsets["savedWork[1]"], "savedWork[1]")
    assert second.order > first.order


def test_repeated_metadata_key() -> None:
    entry = b"\x01k\x00\x00"
    with pytest.raises(wire.WireError) as caught:
        wire.decode_metadata(b"\x01\x02" + entry + entry)
    assert (caught.value.word, caught.value.offset, caught.value.path) == ("duplicate-item", 6, "[1]")
    # The order of keys is kept as sent.
    assert [entry.key for entry in wire.decode_metadata(b"\x01\x02\x01z\x00\x00\x01a\x00\x00")] == ["z", "a"]


def test_metadata_have_at_most_1024_bytes() -> None:
    wire.encode_metadata((wire.MetadataEntry("k", "x" * 1018),))
    with pytest.raises(wire.WireError, match="1025 bytes"):
        wire.encode_metadata((wire.MetadataEntry("k", "x" * 1019),))
    with pytest.raises(wire.WireError, match="1025 bytes"):
        wire.decode_metadata(b"\x01\x01\x01k" + (1019).to_bytes(2, "big") + b"x" * 1019)
    with pytest.raises(wire.WireError, match="256 entries"):
        wire.encode_metadata(tuple(wire.MetadataEntry(str(number), "") for number in range(256)))


@pytest.mark.parametrize("code", [*range(23, 33), 36, 1000, 2**32 - 1])
def test_unknown_error_code(code: int) -> None:
    for command in (FAILED, JOIN_REPLY):
        wrong = changed(command, "failureCode", code.to_bytes(4, "big"))
        assert refused(wrong) == ("unknown-error-code", offsets_of(command)["failureCode"], "failureCode")


@pytest.mark.parametrize(
    ("command", "path", "roles"),
    [
        (READY, "senderRole", (1, 3)),
        (FAILED, "senderRole", (1, 3)),
        (DATA, "senderRole", (2, 3)),
        (CUTOVER, "senderRole", (2, 3)),
        (STATE, "senderRole", (2, 3)),
        (PREPARE, "initiatorRole", (2, 3)),
        (ROUTE, "senderRole", (1, 3)),
    ],
)
def test_wrong_role(command: wire.Command, path: str, roles: tuple[int, ...]) -> None:
    for role in roles:
        wrong = changed(command, path, bytes((role,)))
        assert refused(wrong) == ("wrong-role", offsets_of(command)[path], path)


def test_an_abort_from_the_target_is_a_wrong_role() -> None:
    fields = {name: getattr(ROUTE, name) for name in ROUTE.__struct_fields__}
    abort = wire.SessionRelocationRoute(
        **(fields | {"sender_role": wire.Role.SOURCE, "route_update": wire.RouteAbort(3)})
    )
    assert decode(wire.encode_command(abort)[0]) == abort
    assert refused(changed(abort, "senderRole", b"\x02"))[0] == "wrong-role"


def test_follow_routes_name_one_object() -> None:
    other = wire.ActorRouteFence(wire.ActorRef("other", 1), b"n", 1, 1, 1)
    for target in (other, SPOT_FENCE):
        envelope = FOLLOW.envelope
        fields = {name: getattr(envelope, name) for name in envelope.__struct_fields__}
        with pytest.raises(wire.WireError) as caught:
            wire.encode_command(
                wire.MessageFollow(envelope=wire.MessageFollowEnvelope(**(fields | {"target_route": target})))
            )
        assert (caught.value.word, caught.value.path) == ("invalid-field", "envelope.targetRoute")


@pytest.mark.parametrize(
    ("result", "code", "with_payload", "path"),
    [
        (0, 1, False, "failureCode"),
        (101, 19, False, "failureCode"),
        (113, 1, False, "failureCode"),
        (102, 0, False, "failureCode"),
        (102, 2, False, "failureCode"),
        (107, 1, False, "failureCode"),
        (105, 17, True, "payload"),
        (108, 0, True, "payload"),
    ],
)
def test_results_failures_and_payloads_go_together(
    result: int, code: int, with_payload: bool, path: str
) -> None:
    payload = wire.ApplicationPayload("p", "c", b"") if with_payload else None
    command = wire.ReplyRelay(
        operation_id=wire.OperationId(0, 1),
        reply_route_id=1,
        context=wire.ColdActivationContext(ReadyBarrier(wire.GenerationFence(1, "o", 1, 1, "v"))),
        terminal_result=wire.TerminalResult(result),
        failure_code=wire.FailureCode(code),
        payload=payload,
    )
    with pytest.raises(wire.WireError) as caught:
        wire.encode_command(command)
    assert (caught.value.word, caught.value.path) == ("invalid-field", path)


def test_values_without_an_encoding_are_refused_when_encoding() -> None:
    bad: list[tuple[Any, str]] = [
        (wire.TargetFence(b"", 1, "o", 1), "target.nodeRid"),
        (wire.TargetFence(b"n" * 256, 1, "o", 1), "target.nodeRid"),
        (wire.TargetFence(b"n", 0, "o", 1), "target.nodeGeneration"),
        (wire.TargetFence(b"n", 1, "", 1), "target.ownerId"),
        (wire.TargetFence(b"n", 1, "a\0", 1), "target.ownerId"),
        (wire.TargetFence(b"n", 1, "\ud800", 1), "target.ownerId"),
        (COORDINATOR, "target"),
    ]
    for target, path in bad:
        with pytest.raises(wire.WireError) as caught:
            wire.encode_command(wire.RelocationReady(identity=IDENTITY, target=target, object=ACTOR))
        assert (caught.value.word, caught.value.path) == ("invalid-field", path)
    with pytest.raises(wire.WireError, match="no case of this union"):
        wire.encode_command(wire.RelocationReady(identity=IDENTITY, target=READY.target, object=FENCE))  # type: ignore[arg-type]
    with pytest.raises(wire.WireError, match="is no Role"):
        wire.encode_command(
            wire.RelocationReady(identity=IDENTITY, target=READY.target, object=ACTOR, sender_role=9)  # type: ignore[arg-type]
        )


def test_a_malformed_record_inside_31_is_named_by_its_path() -> None:
    path = "frozenRecord.recordKind"
    assert refused(changed(DATA, path, b"\x0f")) == ("invalid-field", offsets_of(DATA)[path], path)
    assert decode(wire.encode_command(DATA)[0]).record == RECORD  # type: ignore[union-attr]


def test_the_error_is_a_protocol_error_that_survives_pickling() -> None:
    with pytest.raises(ProtocolError) as caught:
        wire.decode_command(b"\x5a\x4d\x01")
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, wire.WireError)
    assert (again.word, again.offset, again.path) == (wire.Word.TRUNCATED_FIELD, 3, "command")
    assert str(again) == "truncated-field at offset 3, field command: needs 1 bytes, 0 are left"
