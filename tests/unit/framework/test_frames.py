"""The frames between processes: layouts byte by byte, and what is cut short (ProtocolError)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sojourn import frames
from sojourn.errors import ProtocolError
from sojourn.frames import (
    FLAG_ACTIVATE,
    FLAG_COMPLETE,
    FLAG_FOLLOW,
    FLAG_INTENT,
    FLAG_REQUEST,
    HOPS_MAX,
    RecordHeader,
    ReplyHeader,
)

RECORD = frames.record_frame(
    FLAG_REQUEST | FLAG_INTENT, 1, 3, 0, 0x0102, 0x0304, 0x0506, 4, b"sdevice", b"Device", b"headtail"
)


def test_a_record_frame_stands_as_the_layout_says() -> None:
    assert RECORD.hex(" ") == (
        "02 03 01 03"
        " 00 00 00 00 00 00 00 00"
        " 00 00 00 00 00 00 01 02"
        " 00 00 00 00 00 00 03 04"
        " 00 00 00 00 00 00 05 06"
        " 00 04"
        " 07 73 64 65 76 69 63 65"
        " 06 44 65 76 69 63 65"
        " 68 65 61 64 74 61 69 6c"
    )
    header = frames.parse_record_header(RECORD)
    assert header == RecordHeader(
        3, 1, 3, 0, 0x0102, 0x0304, 0x0506, 4, b"sdevice", b"Device", len(RECORD) - 8
    )
    assert frames.parse_record_header(memoryview(RECORD)) == header


def test_a_fence_is_spliced_in_where_the_sender_left_it_out() -> None:
    header = frames.parse_record_header(RECORD)
    complete = frames.complete_record(RECORD, header, b"<fence>", 9)
    known = frames.parse_record_header(complete)
    assert complete[known.record_at :] == b"head<fence>tail"
    assert (known.flags, known.object_generation) == (header.flags | FLAG_COMPLETE, 9)
    assert known[6:] == header[6:]
    assert RECORD[1] == header.flags  # what was sent first is not touched


def test_hops_and_flags_change_in_a_copy() -> None:
    followed = frames.set_hops(RECORD, 2, FLAG_FOLLOW, FLAG_INTENT)
    header = frames.parse_record_header(followed)
    assert (header.hops, header.flags) == (2, FLAG_REQUEST | FLAG_FOLLOW)
    assert followed[3:] == RECORD[3:]
    assert frames.set_hops(RECORD, 1, FLAG_ACTIVATE, FLAG_ACTIVATE) == RECORD


@pytest.mark.parametrize("length", range(45))
def test_a_record_whose_header_is_cut_short(length: int) -> None:
    header_length = frames.parse_record_header(RECORD).record_at
    cut = RECORD[: min(length, header_length - 1)]
    with pytest.raises(ProtocolError, match="record frame"):
        frames.parse_record_header(cut)


@pytest.mark.parametrize(
    "broken",
    [
        frames.set_hops(RECORD, HOPS_MAX + 1),
        frames.record_frame(0, 0, 3, 0, 0, 1, 1, 0, b"s", b"", b""),
        frames.record_frame(0, 0, 3, 0, 0, 1, 1, 0, b"", b"", b""),
    ],
    ids=["too many hops", "a family without an id", "no key"],
)
def test_a_record_with_an_impossible_header(broken: bytes) -> None:
    with pytest.raises(ProtocolError, match="invalid routing header"):
        frames.parse_record_header(broken)


def test_a_reply_frame_stands_as_the_layout_says() -> None:
    body = frames.reply_frame(1, 2, 3, 4, b"n1", 5, b"result")
    assert body.hex(" ") == (
        "03 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 04"
        " 02 6e 31 00 00 00 00 00 00 00 05 72 65 73 75 6c 74"
    )
    assert frames.parse_reply_header(body) == ReplyHeader(1, 2, 3, 4, b"n1", 5, 37)
    for length in range(37):
        with pytest.raises(ProtocolError, match="reply frame"):
            frames.parse_reply_header(body[:length])


@pytest.mark.parametrize("parts", [[b"one"], [b"one", b""], [b"", b"two", b"three" * 100]])
@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_a_contract_frame_keeps_its_parts(parts: list[bytes], kind: Callable[[bytes], Any]) -> None:
    body = frames.contract_frame(parts, 1500)
    assert body.startswith(frames.contract_head(len(parts), 1500))
    deadline_ms, read = frames.parse_contract(kind(body))
    assert deadline_ms == 1500
    assert [bytes(part) for part in read] == parts
    assert all(type(part) is kind for part in read)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"\x01\x00\x00\x00\x00", "truncated"),
        (frames.contract_head(0, 0), "no part"),
        (frames.contract_head(2, 0) + b"\x00\x00", "truncated"),
        (frames.contract_head(2, 0) + b"\x00\x00\x00\x05four", "truncated part"),
    ],
)
def test_a_contract_frame_that_is_cut_short(body: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        frames.parse_contract(body)


@pytest.mark.parametrize("last", [False, True])
def test_a_bulk_frame_carries_its_chunk_uncopied(last: bool) -> None:
    chunk = b"state"
    head, carried = frames.bulk_parts(7, last, memoryview(chunk))
    assert isinstance(carried, memoryview)
    assert carried.obj is chunk
    body = frames.bulk_frame(7, last, chunk)
    assert body == head + chunk
    assert frames.parse_bulk(memoryview(body)) == (7, last, b"state")
    with pytest.raises(ProtocolError, match="bulk frame"):
        frames.parse_bulk(memoryview(body)[:9])


def test_a_control_frame_is_its_kind_and_the_message() -> None:
    assert frames.control_frame(b"\x91\x01") == bytes((frames.KIND_CONTROL, 0x91, 0x01))
