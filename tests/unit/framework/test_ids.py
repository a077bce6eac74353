"""Identities: what is an id, and how people read it (B1.1, B1.2)."""

from __future__ import annotations

from typing import Any

import pytest
from sojourn.errors import InvalidOperation
from sojourn.ids import NodeRun, actor_key, check_object_id, check_rid, describe_key, is_key, key_id, spot_key


@pytest.mark.parametrize("object_id", ["p", "ü" * 127, "x" * 255, " ", "a/b"])
def test_what_is_an_object_id(object_id: str) -> None:
    assert key_id(actor_key(object_id)) == key_id(spot_key(object_id)) == object_id
    assert actor_key(object_id) != spot_key(object_id)


@pytest.mark.parametrize(
    ("object_id", "says"),
    [
        ("", "it has 0 bytes"),
        ("x" * 256, "it has 256 bytes"),
        ("ü" * 128, "it has 256 bytes"),
        ("a\0b", "without NUL"),
        ("\ud800", "not valid Unicode"),
        (5, r"an object id is text, not 5: write str\(...\) around it"),
    ],
)
def test_what_is_no_object_id(object_id: Any, says: str) -> None:
    with pytest.raises(InvalidOperation, match=says):
        check_object_id(object_id)


def test_a_rid_has_1_to_255_bytes() -> None:
    assert check_rid(b"\xff" * 255) == b"\xff" * 255
    for rid in (b"", b"x" * 256):
        with pytest.raises(InvalidOperation, match="1 to 255 bytes"):
            check_rid(rid)


def test_how_people_read_them() -> None:
    assert str(NodeRun(b"n1", 7)) == "n1@7"
    assert str(NodeRun(b"\xff", 7)) == "\\xff@7"
    assert describe_key(actor_key("p")) == "actor 'p'"
    assert describe_key(b"s\xff") == "spot '\\\\xff'"


@pytest.mark.parametrize("octets", [b"", b"a", b"s\x00", b"zone", b"a\xff", b"a" * 257])
def test_what_is_no_key(octets: bytes) -> None:
    assert not is_key(octets)
    assert is_key(actor_key("ü"))
    assert is_key(b"a" * 256)
