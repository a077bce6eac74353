"""Authority keys: one spelling for each id, and the numbers of participants that follow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sojourn.wire import WireError, authority_key, parse_authority_key, participant_numbers
from sojourn.wire.authority_key import KEY_BYTES_MAX

IDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=60)


@given(st.sampled_from(["a", "s"]), IDS)
def test_keys_round_trip(family: str, object_id: str) -> None:
    raw = object_id.encode()
    key = authority_key(family, raw)  # type: ignore[arg-type]
    assert key.isascii()
    assert parse_authority_key(key) == (family, raw)


@given(st.sampled_from(["a", "s"]), IDS, st.integers(0, 200), st.characters(codec="latin-1"))
def test_whatever_parses_is_spelt_like_this(family: str, object_id: str, at: int, character: str) -> None:
    key = authority_key(family, object_id.encode())  # type: ignore[arg-type]
    changed = key[:at] + character + key[at + 1 :]
    try:
        found = parse_authority_key(changed)
    except WireError:
        return
    assert authority_key(*found) == changed


@pytest.mark.parametrize(
    ("family", "object_id", "key"),
    [
        ("a", "player-17", "zla1:a:9:player-17"),
        ("s", "lobby.1_~", "zla1:s:9:lobby.1_~"),
        ("a", "a:b/c", "zla1:a:5:a%3Ab%2Fc"),
        ("a", "é", "zla1:a:2:%C3%A9"),
        ("a", "e\u0301", "zla1:a:3:e%CC%81"),
        ("s", "%", "zla1:s:1:%25"),
        ("s", "x" * 255, "zla1:s:255:" + "x" * 255),
    ],
)
def test_spelling(family: str, object_id: str, key: str) -> None:
    assert authority_key(family, object_id.encode()) == key  # type: ignore[arg-type]
    assert parse_authority_key(key) == (family, object_id.encode())


def test_the_longest_key() -> None:
    assert len(authority_key("a", b"/" * 255)) == KEY_BYTES_MAX


@pytest.mark.parametrize(
    ("key", "offset", "path"),
    [
        ("", 0, "prefix"),
        ("zla2:a:1:a", 0, "prefix"),
        ("ZLA1:a:1:a", 0, "prefix"),
        ("zla1:e:1:a", 5, "family"),
        ("zla1:a", 5, "family"),
        ("zla1:a:", 7, "count"),
        ("zla1:a:01:a", 7, "count"),
        ("zla1:a:0:", 7, "count"),
        ("zla1:a:+1:a", 7, "count"),
        ("zla1:a:1a", 7, "count"),
        ("zla1:a:2:a", 7, "count"),
        ("zla1:a:1:ab", 7, "count"),
        ("zla1:a:1:", 7, "count"),
        ("zla1:a:1000:a", 7, "count"),
        ("zla1:a:256:" + "a" * 256, 11, "id"),
        ("zla1:a:2:%c3%a9", 9, "id"),
        ("zla1:a:1:%61", 9, "id"),
        ("zla1:a:1:%2D", 9, "id"),
        ("zla1:a:1::", 9, "id"),
        ("zla1:a:1:%", 9, "id"),
        ("zla1:a:1:%4", 9, "id"),
        ("zla1:a:2:a ", 10, "id"),
        ("zla1:a:2:é", 9, "id"),
        ("zla1:a:1:%00", 9, "id"),
        ("zla1:a:1:%FF", 9, "id"),
    ],
)
def test_another_spelling_is_refused(key: str, offset: int, path: str) -> None:
    with pytest.raises(WireError) as caught:
        parse_authority_key(key)
    assert (caught.value.word, caught.value.offset, caught.value.path) == ("invalid-field", offset, path)


@pytest.mark.parametrize("raw", [b"", b"x" * 256, b"a\0", b"\xff", b"\xed\xa0\x80"])
def test_ids_without_a_key(raw: bytes) -> None:
    with pytest.raises(WireError):
        authority_key("a", raw)


def test_there_are_two_families() -> None:
    with pytest.raises(WireError, match="family"):
        authority_key("e", b"a")  # type: ignore[arg-type]


def test_participants_are_numbered_in_the_order_of_their_keys() -> None:
    keys = [authority_key("s", b"a"), authority_key("a", b"zz"), authority_key("a", b"a" * 10)]
    assert participant_numbers(keys) == {
        "zla1:a:10:aaaaaaaaaa": 1,
        "zla1:a:2:zz": 2,
        "zla1:s:1:a": 3,
    }
