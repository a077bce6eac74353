"""Write the wire fixtures: `python -m tests.golden.generate` from the top folder.

They were made once and are frozen: a peer in another language checks itself against them. Change them only
when the format changes. What matters most was written by hand (`by_hand`) without the codec; the rest was
encoded from the values in `by_codec` and is here to stay the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.golden.by_codec import further_commands, records
from tests.golden.by_hand import COMMANDS, ENVELOPES, Field, Fixture, Malformed

FOLDER = Path(__file__).parent / "wire"

KEYS: list[dict[str, str]] = [
    {"family": "a", "id": "player-17", "key": "zla1:a:9:player-17"},
    {"family": "a", "id": "aaaaaaaaaa", "key": "zla1:a:10:aaaaaaaaaa"},
    {"family": "a", "id": "zz", "key": "zla1:a:2:zz"},
    {"family": "s", "id": "Az09-._~", "key": "zla1:s:8:Az09-._~"},
    {"family": "s", "id": "a:b/c %", "key": "zla1:s:7:a%3Ab%2Fc%20%25"},
    {"family": "a", "id": "\u00e9", "key": "zla1:a:2:%C3%A9"},
    {"family": "a", "id": "e\u0301", "key": "zla1:a:3:e%CC%81"},
]
KEYS_MALFORMED: list[dict[str, Any]] = [
    {"key": "zla2:a:1:a", "offset": 0, "path": "prefix"},
    {"key": "zla1:e:1:a", "offset": 5, "path": "family"},
    {"key": "zla1:a:01:a", "offset": 7, "path": "count"},
    {"key": "zla1:a:2:a", "offset": 7, "path": "count"},
    {"key": "zla1:a:0:", "offset": 7, "path": "count"},
    {"key": "zla1:a:2:%c3%a9", "offset": 9, "path": "id"},
    {"key": "zla1:a:1:%61", "offset": 9, "path": "id"},
    {"key": "zla1:a:1::", "offset": 9, "path": "id"},
    {"key": "zla1:a:1:%FF", "offset": 9, "path": "id"},
]
CHECKSUMS = [
    {"bytes": "", "crc32c": 0},
    {"bytes": b"123456789".hex(), "crc32c": 0xE3069283},
    {"bytes": "00" * 32, "crc32c": 0x8A9136AA},
    {"bytes": "ff" * 32, "crc32c": 0x62A8AB43},
    {"bytes": bytes(range(32)).hex(), "crc32c": 0x46DD794E},
]
"""The last three are those of RFC 3720, appendix B.4."""


def digits(text: str) -> str:
    return text.replace(" ", "")


def finished(fixture: Fixture) -> dict[str, Any]:
    """A fixture of `by_hand` with its offsets and malformed variants worked out."""
    fields: list[Field] = fixture["fields"]
    starts: dict[str, int] = {}
    length = 0
    for path, raw in fields:
        if path != "-":
            starts[path] = length
        length += len(digits(raw)) // 2
    return {
        "name": fixture["name"],
        "bytes": "".join(digits(raw) for _, raw in fields),
        "value": fixture["value"],
        "offsets": starts,
        "malformed": [malformed(fields, starts, change) for change in fixture["malformed"]],
    }


def malformed(fields: list[Field], starts: dict[str, int], change: Malformed) -> dict[str, Any]:
    parts = [change["bytes"] if path == change["field"] else raw for path, raw in fields]
    if change["bytes"] == "" or change["word"] in ("truncated-field", "trailing-byte"):
        assert fields[-1][0] == change["field"] or change["field"] == "applicationStates", change
    return {
        "what": f"{change['field']} = {change['bytes'] or '(nothing)'}",
        "bytes": digits("".join(parts)),
        "word": change["word"],
        "offset": starts[change["at"]] + change["shift"],
        "path": change["path"],
    }


def write(name: str, content: Any) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    write("commands", [finished(fixture) for fixture in COMMANDS])
    write("further_commands", further_commands())
    write("envelopes", [finished(fixture) for fixture in ENVELOPES])
    write("records", records())
    write("keys", {"valid": KEYS, "malformed": KEYS_MALFORMED})
    write("checksums", CHECKSUMS)


if __name__ == "__main__":
    main()
