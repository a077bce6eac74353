"""The text of an authority key, and the numbering of participants that follows from it.

Owns the one canonical spelling of an object's key in the Location Store. The mesh name and the kind of
Spot are not in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NoReturn

from sojourn.wire.errors import WireError, Word

__all__ = ["KEY_BYTES_MAX", "Family", "authority_key", "parse_authority_key", "participant_numbers"]

Family = Literal["a", "s"]
"""`a` = an Actor, `s` = a Spot of any kind."""

KEY_BYTES_MAX = 776
"""Longest key the contract allows."""

_PREFIX = "zla1:"
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SPELLING = tuple(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in range(256))
_COUNT = re.compile(r"[1-9][0-9]{0,2}", re.ASCII)
_ESCAPED = re.compile(r"(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})*", re.ASCII)


def authority_key(family: Family, raw_id: bytes) -> str:
    """The key of the object with this family and these id bytes.

    Raises:
        WireError: `invalid-field` when the id is not 1 to 255 bytes of UTF-8 without NUL.
    """
    _check_id(raw_id, 0)
    if family not in ("a", "s"):
        _fail(len(_PREFIX), "family", f"{family!r} is neither a nor s")
    return f"{_PREFIX}{family}:{len(raw_id)}:{''.join([_SPELLING[byte] for byte in raw_id])}"


def parse_authority_key(key: str) -> tuple[Family, bytes]:
    """Family and id bytes of a key in its one canonical spelling.

    Raises:
        WireError: `invalid-field` for anything but the spelling that `authority_key` gives.
    """
    if not key.startswith(_PREFIX):
        _fail(0, "prefix", f"must be {_PREFIX}")
    if not key.startswith(("a:", "s:"), len(_PREFIX)):
        _fail(len(_PREFIX), "family", "must be a or s, and a colon")
    family: Family = "a" if key[len(_PREFIX)] == "a" else "s"
    count_at = len(_PREFIX) + 2
    count = _COUNT.match(key, count_at)
    if count is None or not key.startswith(":", count.end()):
        _fail(count_at, "count", "must be a decimal number without leading zero, and a colon")
    id_at = count.end() + 1
    raw = _unescape(key, id_at)
    if len(raw) != int(count.group()):
        _fail(count_at, "count", f"{count.group()} announced, {len(raw)} bytes of id")
    _check_id(raw, id_at)
    return family, raw


def _unescape(key: str, at: int) -> bytes:
    plain = _ESCAPED.match(key, at)
    end = at if plain is None else plain.end()
    if end != len(key):
        _fail(end, "id", "neither a plain character nor % with two upper-case hex digits")
    raw = bytearray()
    while at < end:
        if key[at] != "%":
            raw.append(ord(key[at]))
            at += 1
            continue
        byte = int(key[at + 1 : at + 3], 16)
        if byte in _PLAIN:
            _fail(at, "id", "a needless escape")
        raw.append(byte)
        at += 3
    return bytes(raw)


def _check_id(raw: bytes, at: int) -> None:
    if not 1 <= len(raw) <= 255:
        _fail(at, "id", f"{len(raw)} bytes; 1..255 are allowed")
    if b"\0" in raw:
        _fail(at, "id", "a NUL character")
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        _fail(at, "id", "not UTF-8")


def _fail(offset: int, path: str, detail: str) -> NoReturn:
    raise WireError(Word.INVALID_FIELD, offset, path, detail)


def participant_numbers(keys: Iterable[str]) -> dict[str, int]:
    """The number of every participant of a unit: its keys in the order of their bytes, from 1."""
    # Canonical keys are ASCII: the order of their text is the order of their bytes.
    return {key: number for number, key in enumerate(sorted(set(keys)), 1)}
