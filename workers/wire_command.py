"""The `sojourn wire` command: contract bytes to JSON and back, for people and for peers in other languages.

Owns the command's arguments, input and output. Every layout is `sojourn.wire`'s.
"""

from __future__ import annotations

import argparse
import codecs
import json
import re
import sys
from pathlib import Path
from typing import Any, Protocol

from sojourn.wire.authority_key import authority_key, parse_authority_key
from sojourn.wire.command_frame import command_from_json, command_to_json, decode_command, encode_command
from sojourn.wire.envelope import ENVELOPE, Envelope, decode_envelope, encode_envelope
from sojourn.wire.envelope_rules import validate_envelope
from sojourn.wire.errors import WireError, Word

__all__ = ["run_wire"]

_HELP = """KIND is envelope (a relocation-envelope-v1 stream), command (told apart by its head) or key (an authority
key). decode and check read hex, blanks and line ends ignored; a command's payload part follows its frame
behind a comma, or in a second FILE. encode reads the JSON that decode prints. 64-bit numbers are decimal
strings, byte strings hex. Malformed input: exit code 2 and one line with error word, offset and field path."""

_Offsets = dict[str, int]


class _Kind(Protocol):
    """One KIND: parts to JSON, JSON to parts."""

    def decode(self, parts: list[bytes], offsets: _Offsets | None) -> dict[str, Any]: ...

    def encode(self, value: Any) -> list[bytes]: ...


class _EnvelopeKind:
    def decode(self, parts: list[bytes], offsets: _Offsets | None) -> dict[str, Any]:
        envelope = decode_envelope(_only(parts), offsets)
        self._validate(envelope)
        return ENVELOPE.to_json(envelope)

    def encode(self, value: Any) -> list[bytes]:
        envelope = ENVELOPE.from_json(value, [])
        encoded = encode_envelope(envelope)
        self._validate(envelope)
        return [encoded]

    def _validate(self, envelope: Envelope) -> None:
        # The size of the unit is not in the stream: it is taken to be the number of states.
        validate_envelope(envelope, participants=max(1, len(envelope.application_states)))


class _CommandKind:
    def decode(self, parts: list[bytes], offsets: _Offsets | None) -> dict[str, Any]:
        return command_to_json(decode_command(parts[0], parts[1:], offsets))

    def encode(self, value: Any) -> list[bytes]:
        return encode_command(command_from_json(value))


class _KeyKind:
    def decode(self, parts: list[bytes], offsets: _Offsets | None) -> dict[str, Any]:
        key = _only(parts).decode("latin-1")
        family, raw_id = parse_authority_key(key)
        if offsets is not None:
            offsets.update({"prefix": 0, "family": 5, "count": 7, "id": key.index(":", 7) + 1})
        return {"family": family, "id": raw_id.decode("utf-8")}

    def encode(self, value: Any) -> list[bytes]:
        if not isinstance(value, dict) or set(value) != {"family", "id"}:
            raise _malformed("an object with family and id is needed")
        family, object_id = value["family"], value["id"]
        if not isinstance(family, str) or not isinstance(object_id, str):
            raise _malformed("family and id are texts")
        return [authority_key(family, object_id.encode("utf-8", "surrogatepass")).encode()]  # type: ignore[arg-type]


_KINDS: dict[str, _Kind] = {"envelope": _EnvelopeKind(), "command": _CommandKind(), "key": _KeyKind()}


def run_wire(arguments: list[str]) -> int:
    """Run `sojourn wire` with the arguments behind these words; returns the exit code.

    0 = done, 1 = a file cannot be read, 2 = malformed input or wrong usage.
    """
    try:
        options = _parser().parse_intermixed_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        _ACTIONS[options.action](_KINDS[options.kind], options)
    except WireError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"sojourn wire: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sojourn wire", description=_HELP)
    parser.add_argument("action", choices=tuple(_ACTIONS))
    parser.add_argument("kind", choices=tuple(_KINDS), metavar="KIND", help="envelope, command or key")
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="input; standard input when left out, or for -"
    )
    parser.add_argument("--binary", action="store_true", help="raw bytes instead of hex")
    parser.add_argument("--offsets", action="store_true", help="decode: add the offset of every field")
    return parser


def _decode(kind: _Kind, options: argparse.Namespace) -> None:
    offsets: _Offsets | None = {} if options.offsets else None
    value = kind.decode(_read_parts(options), offsets)
    if offsets is not None:
        value["offsets"] = offsets
    plain = (
        codecs.lookup(sys.stdout.encoding or "ascii").name != "utf-8"
    )  # a terminal or pipe of another locale
    print(json.dumps(value, indent=2, ensure_ascii=plain))


def _encode(kind: _Kind, options: argparse.Namespace) -> None:
    parts = kind.encode(_read_json(options))
    if options.binary:
        sys.stdout.buffer.write(_only(parts))
    else:
        print(",".join(part.hex() for part in parts))


def _check(kind: _Kind, options: argparse.Namespace) -> None:
    parts = _read_parts(options)
    # By way of JSON, so that what a person reads is checked along with the bytes.
    if kind.encode(kind.decode(parts, None)) != parts:
        raise _malformed("decodes, but encodes to other bytes")
    print("ok")


_ACTIONS = {"decode": _decode, "encode": _encode, "check": _check}


def _read_json(options: argparse.Namespace) -> Any:
    raw = b"".join(_read_files(options))
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _malformed(f"not JSON: {error}") from None
    if isinstance(value, dict):
        value.pop("offsets", None)
    return value


def _read_parts(options: argparse.Namespace) -> list[bytes]:
    contents = _read_files(options)
    if options.binary:
        return contents
    return [_from_hex(part) for content in contents for part in content.split(b",")]


def _from_hex(text: bytes) -> bytes:
    digits = b"".join(text.split())
    if not re.fullmatch(rb"(?:[0-9A-Fa-f]{2})*", digits):
        raise _malformed("not hex (--binary reads the bytes as they are)")
    return bytes.fromhex(digits.decode("ascii"))


def _read_files(options: argparse.Namespace) -> list[bytes]:
    return [_read_file(name) for name in options.files or ["-"]]


def _read_file(name: str) -> bytes:
    return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()


def _only(parts: list[bytes]) -> bytes:
    if len(parts) > 1:
        raise WireError(Word.TRAILING_BYTE, 0, "part[1]", "there is one part only")
    return parts[0]


def _malformed(detail: str) -> WireError:
    return WireError(Word.INVALID_FIELD, 0, "", detail)
