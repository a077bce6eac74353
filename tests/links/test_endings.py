"""How links end over real sockets: in order, broken, silent; and how they come back."""

from __future__ import annotations

import socket

import pytest
from sojourn.frames import LENGTH, reply_frame
from sojourn.handshake_octets import HandshakeRefused
from sojourn.workers.link import LinkOptions
from sojourn.workers.stream import HandedMark

from tests.links.members import Notebook, member, record, run_of, turn_until, wait_until


async def test_stopping_says_goodbye_and_delivers_what_was_sent() -> None:
    async with member("a") as (a, seen_a), member("b") as (b, seen_b):
        link = await a.ensure(b.identity, b.endpoint)
        for number in range(100):
            link.send_record(record(b"%d" % number))
        link.send(reply_frame(0, 1, 0, 1, b"b", 1, bytes(500_000)))
        await wait_until(seen_a, lambda: link.outbound_records == 0 or True)
        await a.stop(5.0)
        await wait_until(seen_b, lambda: bool(seen_b.downs))
        assert seen_a.downs == [(link, "stopped")]
        assert seen_b.downs[0][1] == "goodbye: stopped"
        assert len(seen_b.replies) == 1
        # What had no credit yet is reported, the rest has arrived: nothing is in doubt after a goodbye.
        assert seen_b.records + link.unsent == [record(b"%d" % number) for number in range(100)]


async def test_credit_runs_out_and_comes_back() -> None:
    options = LinkOptions(credit_records=10)
    async with (
        member("a") as (a, _),
        member("b", receiver=Notebook(give_back=False), options=options) as (b, seen),
    ):
        link = await a.ensure(b.identity, b.endpoint)
        for number in range(25):
            link.send_record(record(b"%d" % number))
        await wait_until(seen, lambda: len(seen.records) == 10)
        link.send(reply_frame(0, 1, 0, 1, b"b", 1, b"through"))
        await wait_until(seen, lambda: bool(seen.replies))
        assert len(seen.records) == 10
        assert link.outbound_records == 15
        back = b.get(a.identity)
        assert back is not None
        for given in range(10):
            back.give_back(1, len(seen.records[given]))
        await wait_until(seen, lambda: len(seen.records) == 20)
        assert link.outbound_records == 5
        for given in range(10, 20):
            back.give_back(1, len(seen.records[given]))
        await wait_until(seen, lambda: len(seen.records) == 25)
        assert seen.records == [record(b"%d" % number) for number in range(25)]
        assert (link.outbound_records, link.outbound_octets) == (0, 0)


async def test_a_broken_link_reports_unsent_records() -> None:
    options = LinkOptions(credit_records=1)
    async with (
        member("a") as (a, seen_a),
        member("b", receiver=Notebook(give_back=False), options=options) as (b, seen),
    ):
        link = await a.ensure(b.identity, b.endpoint)
        for number in range(3):
            link.send_record(record(b"%d" % number))
        await wait_until(seen, lambda: bool(seen.records))
        back = b.get(a.identity)
        assert back is not None
        back.abort("cut")
        await wait_until(seen_a, lambda: bool(seen_a.downs))
        assert link.unsent == [record(b"1"), record(b"2")]
        assert seen.downs == [(back, "cut")]


async def test_a_contract_frame_that_never_left_is_told() -> None:
    told: list[bool] = []
    async with member("a") as (a, seen_a), member("b") as (b, _):
        link = await a.ensure(b.identity, b.endpoint)
        back = b.get(a.identity)
        assert back is not None
        assert back._transport is not None
        back._transport.pause_reading()
        chunk = memoryview(bytes(256 * 1024))
        for _ in range(200):
            link.send_contract([chunk], on_written=told.append)
        await turn_until(lambda: link.unwritten_octets and told)
        back.abort("cut")
        await wait_until(seen_a, lambda: bool(seen_a.downs))
        assert len(told) == 200
        assert told == sorted(told, reverse=True)
        assert told[0]
        assert not told[-1]


async def test_what_the_transport_was_given_is_told_from_what_it_never_was() -> None:
    marks = [HandedMark() for _ in range(200)]
    told: list[bool] = []
    async with member("a") as (a, seen_a), member("b") as (b, _):
        link = await a.ensure(b.identity, b.endpoint)
        back = b.get(a.identity)
        assert back is not None
        assert back._transport is not None
        back._transport.pause_reading()
        chunk = memoryview(bytes(256 * 1024))
        for mark in marks:
            link.send_contract([chunk], on_written=told.append)
            link.send_contract([b"small"], on_written=mark)
        await turn_until(lambda: link.unwritten_octets and told)
        back.abort("cut")
        await wait_until(seen_a, lambda: bool(seen_a.downs))
    handed = [mark.handed for mark in marks]
    assert handed == sorted(handed, reverse=True)
    assert sum(told) - 1 <= sum(handed) < len(marks)


async def test_a_silent_peer_is_given_up() -> None:
    options = LinkOptions(ping_interval_s=0.02, silence_limit_s=0.06)
    async with member("a", options=options) as (a, seen_a), member("b") as (b, _):
        await a.ensure(b.identity, b.endpoint)
        back = b.get(a.identity)
        assert back is not None
        assert back._transport is not None
        back._transport.pause_reading()
        await wait_until(seen_a, lambda: bool(seen_a.downs))
        assert seen_a.downs[0][1] == "silent for 0.06 s"
        back.abort("end of test")


async def test_a_quiet_but_living_peer_is_kept() -> None:
    options = LinkOptions(ping_interval_s=0.01, silence_limit_s=0.5)
    async with member("a", options=options) as (a, seen_a), member("b") as (b, _):
        link = await a.ensure(b.identity, b.endpoint)
        for _ in range(5):
            assert await link.probe()
        assert seen_a.downs == []


async def test_a_wanted_peer_is_dialled_again() -> None:
    options = LinkOptions(redial_first_s=0.01, redial_max_s=0.02)
    async with member("a", options=options) as (a, seen), member("b") as (b, _):
        a.want(b.identity, b.endpoint)
        for count in range(1, 4):
            await wait_until(seen, lambda count=count: len(seen.ups) == count)
            assert len(seen.downs) == count - 1
            seen.ups[-1].abort("cut")
        await wait_until(seen, lambda: len(seen.ups) == 4)
        a.unwant(b.identity)
        assert a.get(b.identity) is seen.ups[-1]


async def test_a_wanted_peer_may_start_later() -> None:
    options = LinkOptions(redial_first_s=0.01, redial_max_s=0.02)
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    async with member("a", options=options) as (a, seen):
        a.want(run_of("b"), f"127.0.0.1:{port}")
        with pytest.raises(HandshakeRefused, match="unreachable"):
            await a.ensure(run_of("b"), f"127.0.0.1:{port}")
        async with member("b", port=port) as (b, _):
            await wait_until(seen, lambda: bool(seen.ups))
            assert seen.ups[0].peer == b.identity
            a.unwant(b.identity)


async def test_the_other_way_a_link_ends_in_a_process_that_dies() -> None:
    """A raw peer that ends inside a frame: the octets are not taken for a frame."""
    async with member("a") as (a, seen_a), member("b") as (b, _):
        await a.ensure(b.identity, b.endpoint)
        back = b.get(a.identity)
        assert back is not None
        transport = back._transport
        assert transport is not None
        transport.write(LENGTH.pack(1000) + b"half")
        transport.write_eof()
        await wait_until(seen_a, lambda: bool(seen_a.downs))
        assert seen_a.downs[0][1] == "end of stream inside a frame"
        assert seen_a.records == []


async def test_many_links_come_and_go_without_leaving_anything() -> None:
    async with member("hub") as (hub, seen):
        for generation in range(1, 21):
            async with member("spoke", generation) as (spoke, _):
                await spoke.ensure(hub.identity, hub.endpoint)
            await wait_until(seen, lambda generation=generation: len(seen.downs) == generation)
        assert hub.all() == []
        assert len(hub._listener._greetings) == 0
        assert not hub._links
        assert not hub._dials
