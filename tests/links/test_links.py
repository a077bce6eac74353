"""Links between members over real sockets: one per pair of runs, frames both ways."""

from __future__ import annotations

import asyncio
import os

import pytest
from sojourn.errors import InvalidOperation, NotConfigured, Unavailable
from sojourn.frames import reply_frame
from sojourn.handshake_octets import HandshakeRefused, PeerRole
from sojourn.mesh import Call, CallResult
from sojourn.workers.link import LinkOptions
from sojourn.workers.links import Links

from tests.links.members import CLUSTER, SECRET, Notebook, member, record, run_of, turn_until, wait_until


async def test_frames_of_every_kind_arrive_in_order() -> None:
    async with member("a") as (a, seen_by_a), member("b") as (b, seen_by_b):
        link = await a.ensure(b.identity, b.endpoint)
        assert (link.peer, link.peer_role, link.dialled) == (b.identity, PeerRole.NODE, True)
        assert link.peer_receive_chunk_limit == 256 * 1024
        reply = reply_frame(0, 7, 1, 2, b"b", 1, b"result")
        link.send_record(record(b"first"))
        link.send(reply)
        link.send_contract([b"head", (b"bo", memoryview(b"dy"))], deadline_ms=1500)
        link.send_record(record(b"second"))
        link.send_control(Call(1, "ask", b"", 250))
        await wait_until(seen_by_b, lambda: bool(seen_by_b.controls))
        assert seen_by_b.frames == [
            ("record", record(b"first")),
            ("reply", reply),
            ("contract", b"body"),
            ("record", record(b"second")),
        ]
        assert seen_by_b.contracts == [(1500, [b"head", b"body"])]
        assert seen_by_b.controls == [Call(1, "ask", b"", 250)]

        back = b.get(a.identity)
        assert back is not None
        assert not back.dialled
        back.send_control(CallResult(1, b"value"))
        await wait_until(seen_by_a, lambda: bool(seen_by_a.controls))
        assert seen_by_a.controls == [CallResult(1, b"value")]


async def test_callers_share_one_dial() -> None:
    async with member("a") as (a, seen), member("b") as (b, _):
        links = await asyncio.gather(*(a.ensure(b.identity, b.endpoint) for _ in range(10)))
        assert len({link.connection_id for link in links}) == 1
        assert len(seen.ups) == 1


async def test_a_cancelled_caller_ends_only_its_own_wait() -> None:
    async with member("a") as (a, _), member("b") as (b, _):
        first = asyncio.ensure_future(a.ensure(b.identity, b.endpoint))
        second = asyncio.ensure_future(a.ensure(b.identity, b.endpoint))
        await asyncio.sleep(0)
        first.cancel()
        link = await second
        assert first.cancelled()
        assert a.get(b.identity) is link


async def test_sixty_four_mebibytes_of_chunks() -> None:
    chunk = os.urandom(256 * 1024)
    count = 256
    written: list[bool] = []
    async with member("a") as (a, _), member("b") as (b, seen):
        link = await a.ensure(b.identity, b.endpoint)
        for index in range(count):
            link.send_contract([(index.to_bytes(4, "big"), memoryview(chunk))], on_written=written.append)
        assert not written
        await wait_until(seen, lambda: len(seen.contracts) == count)
        for index, (_, (part,)) in enumerate(seen.contracts):
            assert part[:4] == index.to_bytes(4, "big")
            assert part[4:] == chunk
        await turn_until(lambda: len(written) == count)
        assert all(written)
        assert link.unwritten_octets == 0


async def test_clients_dial_and_are_not_dialled() -> None:
    async with (
        member("node") as (node, seen),
        member("client", role=PeerRole.CLIENT, host=None) as (client, _),
    ):
        assert client.endpoint == ""
        with pytest.raises(HandshakeRefused, match="unreachable"):
            await node.ensure(client.identity, client.endpoint)
        await client.ensure(node.identity, node.endpoint)
        await wait_until(seen, lambda: bool(seen.ups))
        link = await node.ensure(client.identity, "")
        assert link.peer_role is PeerRole.CLIENT


async def test_a_port_in_use_is_named() -> None:
    async with member("a") as (a, _):
        port = int(a.endpoint.rpartition(":")[2])
        other = Links(run_of("b"), CLUSTER, SECRET, Notebook(), port=port)
        with pytest.raises(NotConfigured, match=f"127.0.0.1:{port}: the port is in use"):
            await other.start()
        await other.stop(1.0)


def test_a_short_secret_is_refused_before_anything_listens() -> None:
    with pytest.raises(NotConfigured, match="16"):
        Links(run_of("a"), CLUSTER, b"short", Notebook())


async def test_sending_on_a_closed_link_is_a_typed_error() -> None:
    async with member("a") as (a, _), member("b") as (b, _):
        link = await a.ensure(b.identity, b.endpoint)
        link.close("test")
        assert a.get(b.identity) is None
        with pytest.raises(Unavailable) as caught:
            link.send_record(record(b"late"))
        assert caught.value.applied == "no"
        await link.wait_closed()


async def test_a_frame_the_peer_would_not_read_is_refused_here() -> None:
    async with member("a") as (a, _), member("b", options=LinkOptions(max_frame_bytes=1024)) as (b, _):
        link = await a.ensure(b.identity, b.endpoint)
        with pytest.raises(InvalidOperation, match="reads at most"):
            link.send_record(record(bytes(400 * 1024)))


async def test_peers_dial_what_a_member_advertises() -> None:
    """Also one that listens on every address, which nobody could dial."""
    async with member("a", host="0.0.0.0", advertise="127.0.0.1:0") as (a, _), member("b") as (b, _):
        assert a.listening.startswith("0.0.0.0:")
        assert a.endpoint == a.listening.replace("0.0.0.0", "127.0.0.1")
        link = await b.ensure(a.identity, a.endpoint)
        assert await link.probe()
    elsewhere = Links(run_of("c"), CLUSTER, SECRET, Notebook(), advertise="node.example:17000")
    assert elsewhere.endpoint == ""
    await elsewhere.start()
    assert elsewhere.endpoint == "node.example:17000"
    await elsewhere.stop(1.0)


@pytest.mark.parametrize("advertise", ["", "0.0.0.0:1", "[::]:1", "nowhere", "a:b:1"])
def test_an_address_that_nobody_can_dial_is_refused(advertise: str) -> None:
    with pytest.raises(NotConfigured):
        Links(run_of("a"), CLUSTER, SECRET, Notebook(), host="0.0.0.0", advertise=advertise)
