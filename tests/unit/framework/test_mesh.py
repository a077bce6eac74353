"""Control messages of links and the spelling of endpoints."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from sojourn import mesh
from sojourn.control import ErrorBody
from sojourn.errors import NotConfigured, ProtocolError
from sojourn.mesh import (
    Announce,
    Call,
    CallResult,
    Credit,
    FailureTold,
    Goodbye,
    HandoffTimes,
    MarkerRefused,
    MarkerTaken,
    MeshControl,
    Ping,
    Pong,
    RequestsLost,
    RequestsTaken,
    RouteNotice,
    SealRefused,
    Withdrawn,
    decode_mesh,
    encode_mesh,
    format_endpoint,
    parse_endpoint,
)

ERROR = ErrorBody("Unavailable", {"message": "gone", "applied": "no"})
EXAMPLES: list[MeshControl] = [
    Credit(1024, 8 * 1024 * 1024),
    Ping(1),
    Pong(2**63),
    Goodbye("stopped"),
    Call(1, "create", b"\x90", 250),
    CallResult(1, b"\xc0"),
    CallResult(1, error=ERROR),
    RequestsLost([(7, 9), (8, 10)], ERROR),
    RequestsTaken(b"akey", [(7, 1, 9), (8, 1, 10)]),
    MarkerTaken(1, b"akey", 1, 2, 3, 22),
    MarkerRefused(1),
    Withdrawn(1, 2, 1),
    FailureTold(1, 2, 1, "TargetUnavailable", "it is Relocating"),
    RouteNotice(b"akey", 1, 2, 3, 22),
    Announce(b"{}"),
    HandoffTimes(1, 2, 3, 4),
    SealRefused(1, 2, b"session", 3, b"aplayer", ERROR),
]


def test_there_is_an_example_of_every_message() -> None:
    assert {type(example) for example in EXAMPLES} == set(get_args(mesh.MeshControl))


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_messages_survive_the_way(message: MeshControl) -> None:
    assert decode_mesh(memoryview(encode_mesh(message))) == message


def test_octets_of_the_reference() -> None:
    assert encode_mesh(EXAMPLES[0]).hex() == "93a6437265646974cd0400ce00800000"
    assert encode_mesh(Ping(1)).hex() == "92a450696e6701"
    assert encode_mesh(Goodbye("stopped")).hex() == "92a7476f6f64627965a773746f70706564"
    assert decode_mesh(msgspec.msgpack.encode(["Call", 1, "create", b""])) == Call(1, "create", b"")


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode(["Unknown", 1]),
        msgspec.msgpack.encode(["Ping"]),
        msgspec.msgpack.encode(["Ping", "one"]),
        msgspec.msgpack.encode(["Ping", 1, 2]),
        msgspec.msgpack.encode({"type": "Ping", "number": 1}),
        encode_mesh(Ping(1)) + b"\x00",
        encode_mesh(Ping(-1)),
        encode_mesh(RequestsLost([(1, 1)], ErrorBody("x", {"x": "*"}))).replace(
            b"\xa1*", b"\x91" * 10_000 + b"\xc0"
        ),
        encode_mesh(RequestsTaken(b"akey", [(7, -1, 9)])),
        encode_mesh(MarkerTaken(1, b"zkey", 1, 2, 3, 22)),
        encode_mesh(RouteNotice(b"a\xff", 1, 2, 3, 22)),
    ],
)
def test_anything_else_breaks_the_protocol(encoded: bytes) -> None:
    with pytest.raises(ProtocolError, match="control frame"):
        decode_mesh(encoded)


@pytest.mark.parametrize(
    ("endpoint", "host", "port"),
    [("127.0.0.1:80", "127.0.0.1", 80), ("[::1]:0", "::1", 0), ("node-a.local:65535", "node-a.local", 65535)],
)
def test_endpoints(endpoint: str, host: str, port: int) -> None:
    assert parse_endpoint(endpoint) == (host, port)
    assert format_endpoint(host, port) == endpoint


@pytest.mark.parametrize(
    "endpoint", ["", "host", ":80", "host:", "host:x", "host:65536", "host:-1", "::1:80", "host:٣"]
)
def test_what_is_no_endpoint_is_named(endpoint: str) -> None:
    with pytest.raises(NotConfigured, match="host:port"):
        parse_endpoint(endpoint)
