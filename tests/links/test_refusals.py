"""Who does not get a link, over real sockets: each refusal by its name at both ends, and strangers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import struct
from collections.abc import AsyncIterator

import pytest
from sojourn.handshake import Connected, Handshake, SendBytes
from sojourn.handshake_octets import PREAMBLE, HandshakeRefused, Identity, PeerRole, RefusalReason
from sojourn.ids import NodeRun
from sojourn.workers.link import LinkOptions
from sojourn.workers.links import Links
from sojourn.workers.peer_warnings import LINES_MAX

from tests.links.members import CLUSTER, member, run_of, turn_until, wait_until

QUICK = LinkOptions(handshake_timeout_s=0.1)


def hello_of(identity: Identity, to: NodeRun) -> bytes:
    """The first octets of a dialler that does not know the secret."""
    handshake = Handshake(
        identity=identity, cluster=CLUSTER, secret=bytes(32), nonce=bytes(32), deadline=5.0, dialled=to
    )
    return b"".join(
        effect.octets for effect in handshake.handle(Connected(), 0.0) if isinstance(effect, SendBytes)
    )


async def refused(links: Links, run: NodeRun, endpoint: str) -> HandshakeRefused:
    with pytest.raises(HandshakeRefused) as caught:
        await links.ensure(run, endpoint)
    assert caught.value.applied == "no"
    return caught.value


@contextlib.asynccontextmanager
async def stranger(endpoint: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A plain connection to a member."""
    host, _, port = endpoint.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def impostor(close_at_once: bool) -> AsyncIterator[str]:
    """The endpoint of a server that says nothing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not close_at_once:
            await everything(reader)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        gone.set()

    gone = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await gone.wait()


async def everything(reader: asyncio.StreamReader) -> bytes:
    """What arrives until the other side ends the connection, also when it ends it hard."""
    octets = bytearray()
    with contextlib.suppress(ConnectionError):
        while part := await reader.read(4096):
            octets += part
    return bytes(octets)


async def test_wrong_secret(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        member("a", secret=b"another secret of this cluster..") as (a, seen_a),
        member("b") as (b, seen_b),
    ):
        error = await refused(a, b.identity, b.endpoint)
        assert (error.reason, error.by_peer) == ("wrong-secret", True)
        assert seen_a.ups == seen_b.ups == []
        assert "wrong-secret" in caplog.text
        assert "another secret" not in caplog.text


async def test_other_cluster() -> None:
    async with member("a", cluster="green") as (a, _), member("b") as (b, _):
        assert (await refused(a, b.identity, b.endpoint)).reason == "other-cluster"


async def test_another_run_of_the_dialled_node() -> None:
    async with member("a") as (a, _), member("b", 2) as (b, _):
        error = await refused(a, run_of("b", 1), b.endpoint)
        assert error.reason == "other-generation"
        assert "b@1" in str(error)


async def test_another_node_at_the_endpoint() -> None:
    async with member("a") as (a, _), member("b") as (b, _):
        assert (await refused(a, run_of("c"), b.endpoint)).reason == "other-node"


async def test_self_connection() -> None:
    async with member("a") as (a, _), member("a") as (twin, _):
        assert (await refused(a, a.identity, a.endpoint)).reason == "self-connection"
        a.identity = run_of("other")  # so that only the handshake can notice
        assert (await refused(a, run_of("a"), twin.endpoint)).reason == "self-connection"


async def test_nobody_there() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        async with member("a") as (a, _):
            error = await refused(a, run_of("b"), f"127.0.0.1:{port}")
            assert error.reason == "unreachable"
            assert f"127.0.0.1:{port}" in str(error)


async def test_somebody_who_says_nothing() -> None:
    async with impostor(close_at_once=False) as endpoint, member("a", options=QUICK) as (a, _):
        assert (await refused(a, run_of("b"), endpoint)).reason == "handshake-slow"


async def test_somebody_who_closes_at_once() -> None:
    async with impostor(close_at_once=True) as endpoint, member("a") as (a, _):
        assert (await refused(a, run_of("b"), endpoint)).reason == "connection-lost"


async def test_garbage_gets_no_answer() -> None:
    async with member("a") as (a, _), stranger(a.endpoint) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" * 100)
        assert await everything(reader) == b""


async def test_another_version_is_told() -> None:
    async with member("a") as (a, _), stranger(a.endpoint) as (reader, writer):
        writer.write(b"SOJOURN\x09")
        assert await everything(reader) == PREAMBLE + b"\x00\x15\x05\x13unsupported-version"


async def test_an_oversized_handshake_is_told() -> None:
    async with member("a") as (a, _), stranger(a.endpoint) as (reader, writer):
        writer.write(PREAMBLE + b"\xff\xff" + bytes(3000))
        assert b"handshake-oversized" in await everything(reader)


async def test_a_handshake_octet_by_octet_ends_in_time() -> None:
    async with member("a", options=QUICK) as (a, _), stranger(a.endpoint) as (reader, writer):
        answer = asyncio.ensure_future(everything(reader))
        for octet in PREAMBLE + struct.pack(">HB", 900, 1):
            writer.write(bytes((octet,)))
            await asyncio.sleep(0)
        assert b"handshake-slow" in await answer


async def test_half_a_handshake_and_silence_ends_in_time() -> None:
    async with member("a", options=QUICK) as (a, _), stranger(a.endpoint) as (reader, writer):
        writer.write(PREAMBLE)
        writer.write_eof()
        assert await everything(reader) == b""


async def test_only_so_many_may_be_unauthenticated() -> None:
    options = LinkOptions(unauthenticated_max=2)
    async with (
        member("a", options=options) as (a, _),
        member("b") as (b, _),
        contextlib.AsyncExitStack() as stack,
    ):
        silent = []
        for number in range(2):
            silent.append(await stack.enter_async_context(stranger(a.endpoint)))
            await turn_until(lambda number=number: a._listener.unauthenticated > number)
        assert (await b.ensure(a.identity, a.endpoint)).peer == a.identity
        assert b"too-many-connections" in await everything(silent[0][0])
        assert a._listener.unauthenticated == 1  # the second of them is still there


async def test_a_flood_of_silent_connections_stays_bounded_and_keeps_nobody_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = LinkOptions(unauthenticated_max=2)
    async with (
        member("a", options=options) as (a, _),
        member("b") as (b, _),
        contextlib.AsyncExitStack() as stack,
    ):
        most = 0
        for _ in range(20):
            await stack.enter_async_context(stranger(a.endpoint))
            await asyncio.sleep(0)
            most = max(most, len(a._listener._greetings))
            assert a._listener.unauthenticated <= 2
        assert most <= 5  # as many that linger, and the one that came last
        assert (await b.ensure(a.identity, a.endpoint)).peer == a.identity
    lines = [entry.getMessage() for entry in caplog.records if "too-many-connections" in entry.getMessage()]
    assert len(lines) == LINES_MAX
    assert all(line.startswith("connection from 127.0.0.1:") for line in lines)


async def test_strangers_that_begin_a_handshake_do_not_drive_out_who_has_just_connected() -> None:
    """A Hello proves nothing: without the secret anybody can send one."""
    options = LinkOptions(unauthenticated_max=4)
    async with member("a", options=options) as (a, _), contextlib.AsyncExitStack() as stack:

        async def connected() -> asyncio.StreamReader:
            before = set(a._listener._greetings)
            reader, writer = await stack.enter_async_context(stranger(a.endpoint))
            await turn_until(lambda: set(a._listener._greetings) - before)
            writers.append(writer)
            return reader

        writers: list[asyncio.StreamWriter] = []
        readers = [await connected() for _ in range(4)]
        for number, writer in enumerate(writers):
            identity = Identity(run_of(f"x{number}"), PeerRole.NODE, 0, 65536)
            writer.write(hello_of(identity, a.identity))
        await turn_until(lambda: not any(greeting.said_nothing for greeting in a._listener._greetings))
        newcomer = await connected()  # its Hello is still on the way
        await connected()
        for reader in readers[:2]:
            assert b"too-many-connections" in await everything(reader)
        assert not newcomer.at_eof()
        assert sum(greeting.said_nothing for greeting in a._listener._greetings) == 2


async def test_a_stopping_member_says_so() -> None:
    async with member("a") as (a, _), stranger(a.endpoint) as (reader, writer):
        writer.write(PREAMBLE)
        await asyncio.sleep(0)
        await turn_until(lambda: a._listener.unauthenticated)
        stopping = asyncio.ensure_future(a.stop(1.0))
        assert await everything(reader) in (PREAMBLE + b"\x00\x0f\x05\x0dshutting-down", b"")
        await stopping
        assert (await refused(a, run_of("b"), "127.0.0.1:1")).reason == RefusalReason.SHUTTING_DOWN


async def test_refusals_are_logged_once_with_their_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sojourn.mesh")
    async with member("a", cluster="green") as (a, _), member("b") as (b, _):
        await refused(a, b.identity, b.endpoint)
    warnings = [entry for entry in caplog.records if entry.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert re.match(r"connection from 127\.0\.0\.1:\d+ refused: other-cluster: ", warnings[0].getMessage())


async def test_who_breaks_the_protocol_of_a_link_is_logged_at_both_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with member("a") as (a, seen_a), member("b") as (b, seen_b):
        link = await a.ensure(b.identity, b.endpoint)
        link._writer.send(bytes((77,)))
        await wait_until(seen_b, lambda: bool(seen_b.downs))
        await wait_until(seen_a, lambda: bool(seen_a.downs))
    warnings = sorted(entry.getMessage() for entry in caplog.records if entry.levelno == logging.WARNING)
    assert len(warnings) == 2
    assert re.fullmatch(
        r"a@1 at 127\.0\.0\.1:\d+ broke the protocol: a frame of kind 77 on a link", warnings[0]
    )
    assert re.fullmatch(
        r"b@1 at 127\.0\.0\.1:\d+ closed the link: protocol: a frame of kind 77.*", warnings[1]
    )


async def test_whether_a_run_answers_is_asked_without_a_link() -> None:
    """How a starting node finds that another of its RID is alive: the very run must answer, and a port is not one."""
    async with member("a") as (a, notebook), member("b") as (b, _), stranger_port() as port:
        assert await b.answers(a.identity, a.endpoint)
        assert not await b.answers(run_of("a", 2), a.endpoint)
        assert not await b.answers(b.identity, b.endpoint)
        assert not await b.answers(a.identity, "127.0.0.1:1")
        assert not await b.answers(a.identity, f"127.0.0.1:{port}")
        assert (a.all(), b.all(), notebook.ups) == ([], [], [])


@contextlib.asynccontextmanager
async def stranger_port() -> AsyncIterator[int]:
    """Somebody else who accepts, and closes."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_the_last_refusal_of_a_wanted_run_is_told_until_there_is_a_link() -> None:
    async with member("a") as (a, _):
        gone = run_of("b")
        a.want(gone, "127.0.0.1:1")
        await turn_until(lambda: gone in a.refusals())
        assert a.refusals()[gone].reason == "unreachable"
        async with member("b") as (b, _):
            await b.ensure(a.identity, a.endpoint)
            await turn_until(lambda: a.get(gone))
            assert a.refusals() == {}
        await turn_until(lambda: gone in a.refusals())
        a.unwant(gone)
        assert a.refusals() == {}
