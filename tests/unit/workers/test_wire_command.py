"""`sojourn wire`: input and output forms, exit codes, one line for malformed input."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from sojourn.workers import wire_command
from sojourn.workers.wire_command import run_wire

FIXTURES = Path(__file__).parents[2] / "golden" / "wire"


def load(name: str) -> Any:
    return json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))


class Shell:
    """Runs the command with given standard input and keeps what it printed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        self.monkeypatch = monkeypatch
        self.capture = capfdbinary
        self.out = b""
        self.err = ""

    def run(self, *arguments: str, stdin: bytes = b"") -> int:
        self.monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run_wire(list(arguments))
        out, err = self.capture.readouterr()
        self.out, self.err = out, err.decode()
        return code


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Shell:
    return Shell(monkeypatch, capfdbinary)


@pytest.mark.parametrize(("kind", "name"), [("command", "commands"), ("envelope", "envelopes")])
def test_decode_encode_and_check(shell: Shell, kind: str, name: str) -> None:
    for fixture in load(name):
        raw = fixture["bytes"].encode()
        assert shell.run("decode", kind, stdin=raw) == 0
        assert json.loads(shell.out) == fixture["value"]
        assert shell.run("encode", kind, stdin=shell.out) == 0
        assert shell.out == raw + b"\n"
        assert shell.run("check", kind, stdin=raw) == 0
        assert (shell.out, shell.err) == (b"ok\n", "")


def test_commands_of_two_parts(shell: Shell, tmp_path: Path) -> None:
    for fixture in load("further_commands"):
        raw = ",".join(fixture["parts"]).encode()
        assert shell.run("decode", "command", stdin=raw) == 0
        assert json.loads(shell.out) == fixture["value"]
        assert shell.run("encode", "command", stdin=shell.out) == 0
        assert shell.out == raw + b"\n"
        files = []
        for number, part in enumerate(fixture["parts"]):
            files.append(tmp_path / str(number))
            files[-1].write_bytes(bytes.fromhex(part))
        assert shell.run("check", "command", "--binary", *map(str, files)) == 0


def test_keys(shell: Shell) -> None:
    for fixture in load("keys")["valid"]:
        raw = fixture["key"].encode().hex().encode()
        assert shell.run("decode", "key", stdin=raw) == 0
        assert json.loads(shell.out) == {"family": fixture["family"], "id": fixture["id"]}
        assert shell.run("encode", "key", stdin=shell.out) == 0
        assert shell.out == raw + b"\n"
        assert shell.run("check", "key", "--binary", stdin=fixture["key"].encode()) == 0


def test_output_that_takes_no_unicode_gets_escapes(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)
    assert shell.run("decode", "key", "--binary", stdin=b"zla1:a:2:%C3%A9") == 0
    out.seek(0)
    text = out.read()
    assert "\\u00e9" in text
    assert json.loads(text) == {"family": "a", "id": "é"}


def test_offsets_are_added_and_ignored_by_encode(shell: Shell) -> None:
    fixture = load("envelopes")[1]
    assert shell.run("decode", "envelope", "--offsets", stdin=fixture["bytes"].encode()) == 0
    offsets = json.loads(shell.out)["offsets"]
    assert {path: offsets[path] for path in fixture["offsets"]} == fixture["offsets"]
    assert shell.run("encode", "envelope", stdin=shell.out) == 0
    assert shell.out.decode().strip() == fixture["bytes"]
    key = b"zla1:a:10:aaaaaaaaaa"
    assert shell.run("decode", "--offsets", "key", "--binary", stdin=key) == 0
    assert json.loads(shell.out)["offsets"] == {"prefix": 0, "family": 5, "count": 7, "id": 10}


def test_files_binary_and_blanks(shell: Shell, tmp_path: Path) -> None:
    raw = bytes.fromhex(load("envelopes")[0]["bytes"])
    as_hex, as_bytes, as_json = tmp_path / "hex", tmp_path / "bytes", tmp_path / "json"
    as_hex.write_text("\n".join(f"{byte:02X} " for byte in raw))
    as_bytes.write_bytes(raw)
    assert shell.run("check", "envelope", str(as_hex)) == 0
    assert shell.run("check", "envelope", str(as_bytes), "--binary") == 0
    assert shell.run("decode", "envelope", str(as_hex)) == 0
    as_json.write_bytes(shell.out)
    assert shell.run("encode", "envelope", "--binary", str(as_json)) == 0
    assert shell.out == raw


@pytest.mark.parametrize("kind", ["command", "envelope"])
def test_malformed_bytes_get_one_line(shell: Shell, kind: str) -> None:
    for fixture in load(f"{kind}s"):
        for variant in fixture["malformed"]:
            for action in ("decode", "check"):
                assert shell.run(action, kind, stdin=variant["bytes"].encode()) == 2
                start = f"{variant['word']} at offset {variant['offset']}, field {variant['path'] or '(whole input)'}: "
                assert shell.err.startswith(start)
                assert shell.err.count("\n") == 1
                assert shell.out == b""


def test_malformed_keys_get_one_line(shell: Shell) -> None:
    for fixture in load("keys")["malformed"]:
        assert shell.run("decode", "key", "--binary", stdin=fixture["key"].encode()) == 2
        assert shell.err.startswith(f"invalid-field at offset {fixture['offset']}, field {fixture['path']}: ")


@pytest.mark.parametrize(
    ("arguments", "stdin", "start"),
    [
        (
            ("decode", "command"),
            b"5a4",
            "invalid-field at offset 0, field (whole input): not hex (--binary reads the bytes as they are)",
        ),
        (
            ("decode", "command"),
            b"zz",
            "invalid-field at offset 0, field (whole input): not hex (--binary reads the bytes as they are)",
        ),
        (("decode", "command"), b"", "truncated-field at offset 0, field magic"),
        (("decode", "envelope"), b"00,00", "trailing-byte at offset 0, field part[1]"),
        (("encode", "command"), b"{", "invalid-field at offset 0, field (whole input): not JSON"),
        (("encode", "command"), b"\xff", "invalid-field at offset 0, field (whole input): not JSON"),
        (("encode", "command"), b"[]", "invalid-field at offset 0, field (whole input)"),
        (("encode", "command"), b"{}", "unknown-command at offset 0, field command"),
        (("encode", "command"), b'{"command": 35}', "unknown-command at offset 0, field command"),
        (("encode", "command"), b'{"command": [1]}', "unknown-command at offset 0, field command"),
        (("encode", "command"), b'{"command": 30, "name": "x"}', "invalid-field at offset 0, field name"),
        (("encode", "command"), b'{"command": 30}', "invalid-field at offset 0, field relocationIdentity"),
        (("encode", "envelope"), b"[]", "invalid-field at offset 0, field (whole input)"),
        (("encode", "key"), b'{"id": "a"}', "invalid-field at offset 0, field (whole input)"),
        (("encode", "key"), b'{"family": "a", "id": 1}', "invalid-field at offset 0, field (whole input)"),
        (("encode", "key"), b'{"family": "e", "id": "a"}', "invalid-field at offset 5, field family"),
        (("encode", "key"), b'{"family": "a", "id": "\\ud800"}', "invalid-field at offset 0, field id"),
    ],
)
def test_malformed_input(shell: Shell, arguments: tuple[str, ...], stdin: bytes, start: str) -> None:
    assert shell.run(*arguments, stdin=stdin) == 2
    assert shell.err.startswith(start)
    assert shell.err.count("\n") == 1


def test_wrong_values_in_json_are_named(shell: Shell) -> None:
    value = load("commands")[0]["value"]
    for path, content in (("senderRole", 9), ("senderRole", True), ("target", [])):
        assert shell.run("encode", "command", stdin=json.dumps(value | {path: content}).encode()) == 2
        assert f"field {path}" in shell.err


def test_check_compares_bytes(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """No input that decodes is known to encode otherwise: the comparison is shown with a codec that forgets."""
    monkeypatch.setattr(wire_command._KeyKind, "encode", lambda self, value: [b"zla1:a:1:b"])
    assert shell.run("check", "key", "--binary", stdin=b"zla1:a:1:a") == 2
    assert "encodes to other bytes" in shell.err


def test_wrong_usage_and_missing_files(shell: Shell, tmp_path: Path) -> None:
    assert shell.run("explain", "command") == 2
    assert shell.run("decode", "message") == 2
    assert shell.run("decode", "command", str(tmp_path / "none")) == 1
    assert "none" in shell.err
    assert shell.run("--help") == 0
    assert b"KIND" in shell.out
