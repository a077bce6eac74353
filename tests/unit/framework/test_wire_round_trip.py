"""Whatever is encoded decodes to the same value, as bytes and as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sojourn import wire
from sojourn.wire.command_frame import COMMANDS, command_from_json, command_to_json
from sojourn.wire.cursor import Reader, Writer
from sojourn.wire.envelope import ENVELOPE
from sojourn.wire.payload import APPLICATION_PAYLOAD, METADATA
from sojourn.wire.record import FROZEN_RECORD
from sojourn.wire.store_envelope import (
    StoredChunk,
    StoredManifest,
    decode_stored_chunk,
    decode_stored_manifest,
    encode_stored_chunk,
    encode_stored_manifest,
)
from sojourn.wire.structure import block

from tests.unit.framework.wire_values import command_values, envelope_values, record_values, values

FEW = settings(max_examples=20, deadline=None)


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("number", sorted(COMMANDS))
@FEW
@given(data=st.data())
def test_every_command_round_trips(number: int, data: st.DataObject) -> None:
    command = data.draw(command_values(COMMANDS[number]))
    parts = wire.encode_command(command)
    trace: dict[str, int] = {}
    assert wire.decode_command(parts[0], parts[1:], trace) == command
    assert parts[0][:5] == bytes((0x5A, 0x4D, 1, number, 0))
    assert trace["magic"] == 0
    assert command_from_json(through_json(command_to_json(command))) == command


@pytest.mark.parametrize("kind", list(wire.RecordKind))
@FEW
@given(data=st.data())
def test_every_kind_of_record_round_trips(kind: wire.RecordKind, data: st.DataObject) -> None:
    record = data.draw(record_values((kind,)))
    encoded = wire.encode_frozen_record(record)
    assert wire.decode_frozen_record(memoryview(encoded)) == record
    assert FROZEN_RECORD.from_json(through_json(FROZEN_RECORD.to_json(record)), []) == record


@FEW
@given(envelope_values())
def test_envelopes_round_trip(envelope: wire.Envelope) -> None:
    encoded = wire.encode_envelope(envelope)
    read: dict[str, int] = {}
    written: dict[str, int] = {}
    assert wire.decode_envelope(encoded, read) == envelope
    assert b"".join(wire.encode_envelope_parts(envelope, written)) == encoded
    reported = (".participantId", ".order", ".timerName")  # by validate_envelope
    assert all(read[path] == offset for path, offset in written.items() if path.endswith(reported))
    assert ENVELOPE.from_json(through_json(ENVELOPE.to_json(envelope)), []) == envelope


@FEW
@given(values(METADATA))
def test_metadata_round_trip(metadata: wire.Metadata) -> None:
    encoded = wire.encode_metadata(metadata)
    assert wire.decode_metadata(encoded) == metadata
    assert METADATA.from_json(through_json(METADATA.to_json(metadata)), []) == metadata


@FEW
@given(values(APPLICATION_PAYLOAD))
def test_application_payloads_round_trip(payload: wire.ApplicationPayload) -> None:
    encoded = wire.encode_payload_envelope(payload)
    assert wire.decode_payload(encoded) == payload
    assert wire.encode_payload(payload.packet_name, payload.content_type, payload.payload) == encoded


@FEW
@given(values(block(StoredChunk)), values(block(StoredManifest)))
def test_store_envelopes_round_trip(chunk: StoredChunk, manifest: StoredManifest) -> None:
    assert decode_stored_chunk(encode_stored_chunk(chunk)) == chunk
    assert decode_stored_manifest(encode_stored_manifest(manifest)) == manifest


@FEW
@given(st.data())
def test_a_vector_never_promises_fewer_bytes_than_its_items_need(data: st.DataObject) -> None:
    """`minimum` bounds what a count may announce: it must not be above the shortest real encoding."""
    for codec in (FROZEN_RECORD, ENVELOPE, METADATA, APPLICATION_PAYLOAD):
        writer = Writer()
        codec.write(writer, data.draw(values(codec)))
        assert len(writer.joined()) >= codec.minimum
        assert Reader(writer.joined()).remaining >= codec.minimum
