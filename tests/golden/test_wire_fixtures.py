"""The codec against the frozen fixtures: what they say decodes, encodes and fails as stated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sojourn import wire
from sojourn.wire.command_frame import command_from_json, command_to_json
from sojourn.wire.envelope import ENVELOPE
from sojourn.wire.record import FROZEN_RECORD

from tests.golden import by_codec, generate, wire_tables

FOLDER = Path(__file__).parent / "wire"


def load(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def named(name: str) -> Any:
    return pytest.mark.parametrize("fixture", load(name), ids=lambda fixture: fixture["name"])


def decode_valid_envelope(data: bytes, trace: dict[str, int] | None = None) -> wire.Envelope:
    envelope = wire.decode_envelope(data, trace)
    wire.validate_envelope(envelope, participants=max(1, len(envelope.application_states)))
    return envelope


@named("commands")
def test_commands(fixture: dict[str, Any]) -> None:
    frame = bytes.fromhex(fixture["bytes"])
    trace: dict[str, int] = {}
    command = wire.decode_command(frame, trace=trace)
    assert command_to_json(command) == fixture["value"]
    assert wire.encode_command(command_from_json(fixture["value"])) == [frame]
    assert {path: trace.get(path) for path in fixture["offsets"]} == fixture["offsets"]


@named("envelopes")
def test_envelopes(fixture: dict[str, Any]) -> None:
    stream = bytes.fromhex(fixture["bytes"])
    trace: dict[str, int] = {}
    envelope = decode_valid_envelope(stream, trace)
    assert ENVELOPE.to_json(envelope) == fixture["value"]
    assert wire.encode_envelope(ENVELOPE.from_json(fixture["value"], [])) == stream
    assert {path: trace.get(path) for path in fixture["offsets"]} == fixture["offsets"]


@pytest.mark.parametrize("kind", ["commands", "envelopes"])
def test_malformed_variants(kind: str) -> None:
    decode: Any = wire.decode_command if kind == "commands" else decode_valid_envelope
    for fixture in load(kind):
        assert fixture["malformed"]
        for variant in fixture["malformed"]:
            with pytest.raises(wire.WireError) as caught:
                decode(bytes.fromhex(variant["bytes"]))
            found = (caught.value.word, caught.value.offset, caught.value.path)
            assert found == (variant["word"], variant["offset"], variant["path"]), variant["what"]


def test_the_smallest_stream_is_the_one_of_78_bytes() -> None:
    assert len(bytes.fromhex(load("envelopes")[0]["bytes"])) == 78


@named("further_commands")
def test_further_commands(fixture: dict[str, Any]) -> None:
    parts = [bytes.fromhex(part) for part in fixture["parts"]]
    command = wire.decode_command(parts[0], parts[1:])
    assert command_to_json(command) == fixture["value"]
    assert wire.encode_command(command_from_json(fixture["value"])) == parts


@named("records")
def test_records(fixture: dict[str, Any]) -> None:
    raw = bytes.fromhex(fixture["bytes"])
    record = wire.decode_frozen_record(raw)
    assert FROZEN_RECORD.to_json(record) == fixture["value"]
    assert wire.encode_frozen_record(FROZEN_RECORD.from_json(fixture["value"], [])) == raw
    if record.record_kind in (5, 6, 9, 10):
        assert wire.read_record(raw).packet_name == "Move"


@pytest.mark.parametrize("fixture", load("keys")["valid"], ids=lambda fixture: fixture["key"])
def test_keys(fixture: dict[str, str]) -> None:
    raw = fixture["id"].encode()
    assert wire.authority_key(fixture["family"], raw) == fixture["key"]  # type: ignore[arg-type]
    assert wire.parse_authority_key(fixture["key"]) == (fixture["family"], raw)


@pytest.mark.parametrize("fixture", load("keys")["malformed"], ids=lambda fixture: fixture["key"])
def test_malformed_keys(fixture: dict[str, Any]) -> None:
    with pytest.raises(wire.WireError) as caught:
        wire.parse_authority_key(fixture["key"])
    assert caught.value.word == "invalid-field"
    assert (caught.value.offset, caught.value.path) == (fixture["offset"], fixture["path"])


@pytest.mark.parametrize("fixture", load("checksums"), ids=lambda fixture: fixture["bytes"][:18])
def test_checksums(fixture: dict[str, Any]) -> None:
    assert wire.checksum(bytes.fromhex(fixture["bytes"])) == fixture["crc32c"]


def test_the_fixtures_are_those_their_sources_give() -> None:
    """Changing a source without writing the fixtures anew, or the other way round, shows here."""
    assert load("commands") == [generate.finished(fixture) for fixture in generate.COMMANDS]
    assert load("envelopes") == [generate.finished(fixture) for fixture in generate.ENVELOPES]
    assert load("keys") == {"valid": generate.KEYS, "malformed": generate.KEYS_MALFORMED}
    assert load("records") == by_codec.records()
    assert load("further_commands") == by_codec.further_commands()
    assert {fixture["value"]["recordKind"] for fixture in load("records")} == set(range(1, 15))
    numbers = {fixture["value"]["command"] for fixture in load("commands") + load("further_commands")}
    assert numbers == set(wire.COMMANDS)


def test_the_tables_of_the_reference_are_those_of_the_codec() -> None:
    page = wire_tables.PAGE.read_text(encoding="utf-8")
    assert wire_tables.page_with_tables(page) == page
