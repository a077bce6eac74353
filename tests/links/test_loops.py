"""Links on both event loops, plain and over TLS: the same conversation each time."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from sojourn.errors import NotConfigured
from sojourn.frames import reply_frame
from sojourn.handshake_octets import HandshakeRefused
from sojourn.workers.links import Links

from tests.links.members import CLUSTER, SECRET, Notebook, member, record, run_of, turn_until, wait_until

CERTIFICATE = Path(__file__).with_name("loopback.pem")
"""A key and a certificate for 127.0.0.1, made for these tests alone."""

Loop = Callable[[], asyncio.AbstractEventLoop]


def contexts() -> dict[str, Any]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(CERTIFICATE)
    return {"tls_server": server, "tls_client": ssl.create_default_context(cafile=str(CERTIFICATE))}


async def conversation(**tls: Any) -> None:
    """Records both ways, chunks beside them, a reply larger than any buffer, an orderly end."""
    chunk = os.urandom(256 * 1024)
    written: list[bool] = []
    async with member("a", **tls) as (a, seen_a), member("b", **tls) as (b, seen_b):
        link = await a.ensure(b.identity, b.endpoint)
        await wait_until(seen_b, lambda: bool(seen_b.ups))
        back = seen_b.ups[0]
        for number in range(40):
            link.send_record(record(b"%d" % number))
            link.send_contract([(b"head", memoryview(chunk))], on_written=written.append)
            back.send_record(record(b"back %d" % number))
        back.send(reply_frame(0, 1, 0, 1, b"a", 1, bytes(1_000_000)))
        await wait_until(seen_b, lambda: len(seen_b.contracts) == 40 and len(seen_b.records) == 40)
        await wait_until(seen_a, lambda: bool(seen_a.replies) and len(seen_a.records) == 40)
        assert seen_b.records == [record(b"%d" % number) for number in range(40)]
        assert seen_a.records == [record(b"back %d" % number) for number in range(40)]
        assert all(parts == [b"head" + chunk] for _, parts in seen_b.contracts)
        await turn_until(lambda: len(written) == 40)
        assert all(written)
        link.close("enough")
        await link.wait_closed()
        await wait_until(seen_b, lambda: bool(seen_b.downs))
        assert seen_b.downs[0][1] == "goodbye: enough"
        assert link.unsent == []


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(
    "loop", [uvloop.new_event_loop, asyncio.SelectorEventLoop], ids=["uvloop", "asyncio"]
)
def test_a_conversation(loop: Loop, secure: bool) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(conversation(**(contexts() if secure else {})))


async def refused_then_stopped() -> None:
    async with member("a", cluster="green") as (a, _), member("b") as (b, _):
        with pytest.raises(HandshakeRefused, match="other-cluster"):
            await a.ensure(b.identity, b.endpoint)
        dial = asyncio.ensure_future(a.ensure(b.identity, b.endpoint))
        await asyncio.sleep(0)
        await a.stop(1.0)
        with pytest.raises(HandshakeRefused):
            await dial


@pytest.mark.parametrize(
    "loop", [uvloop.new_event_loop, asyncio.SelectorEventLoop], ids=["uvloop", "asyncio"]
)
def test_a_refusal_and_a_stop_inside_a_dial(loop: Loop) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(refused_then_stopped())


async def test_a_plain_member_is_refused_by_a_secure_one() -> None:
    async with member("a") as (a, _), member("b", **contexts()) as (b, seen):
        with pytest.raises(HandshakeRefused) as caught:
            await a.ensure(b.identity, b.endpoint)
        assert caught.value.reason in ("connection-lost", "not-sojourn")
        assert seen.ups == []


async def test_a_secure_member_does_not_fall_back() -> None:
    async with member("a", **contexts()) as (a, _), member("b") as (b, seen):
        with pytest.raises(HandshakeRefused, match="unreachable"):
            await a.ensure(b.identity, b.endpoint)
        assert seen.ups == []


def test_one_tls_context_is_not_enough() -> None:
    with pytest.raises(NotConfigured, match="both a server and a client context"):
        Links(run_of("a"), CLUSTER, SECRET, Notebook(), tls_server=contexts()["tls_server"])
