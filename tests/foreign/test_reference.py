"""What the reference pages say to a peer in another language is what the code has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from sojourn import mesh
from sojourn.errors import ERROR_KINDS
from sojourn.frames import FLAG_FOLLOW, HOPS_MAX, MARKER_PACKET
from sojourn.spots.codec import MSGPACK, PICKLE

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
ROW = re.compile(r"^\| `(?P<name>[A-Z]\w+)` \| (?P<fields>[^|]*)\|", re.MULTILINE)


def test_control_messages() -> None:
    """Names, fields and their order (docs/reference/mesh.md)."""
    page = (REFERENCE / "mesh.md").read_text(encoding="utf-8")
    told = {found["name"]: re.findall(r"`(\w+)`", found["fields"]) for found in ROW.finditer(page)}
    assert told == {kind.__name__: list(kind.__struct_fields__) for kind in get_args(mesh.MeshControl)}


def test_error_kinds_and_fixed_names() -> None:
    page = (REFERENCE / "mesh.md").read_text(encoding="utf-8")
    (kinds,) = re.findall(r'"fields": map}`: kind one of ([^;]*);', page)
    assert re.findall(r"`(\w+)`", kinds) == list(ERROR_KINDS)
    assert f"`{MARKER_PACKET}`" in page
    assert f"Above {HOPS_MAX} hops" in page
    assert f"| {FLAG_FOLLOW:02x} | follow |" in page


def test_content_types() -> None:
    page = (REFERENCE / "peers.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(application/[^`]*)`", page, re.MULTILINE) == [MSGPACK, PICKLE]
