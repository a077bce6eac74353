"""One live connection per pair of runs (B8.13): simultaneous dials, new connections beside old ones."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from sojourn.handshake_octets import HandshakeRefused
from sojourn.workers.link import Link, LinkOptions
from sojourn.workers.links import Links

from tests.links.members import Notebook, member, record, run_of, turn_until, wait_until


class Eager(Notebook):
    """Sends a record as soon as a link stands."""

    def on_up(self, link: Link) -> None:
        super().on_up(link)
        link.send_record(record(b"hello %d" % len(self.ups)))


@pytest.mark.parametrize("repeat", range(20))
async def test_simultaneous_dials_leave_one_link_that_loses_nothing(repeat: int) -> None:
    """B8.13."""
    async with member("a", receiver=Eager()) as (a, seen_a), member("b", receiver=Eager()) as (b, seen_b):

        async def dial(turns: int, links: Links, other: Links) -> Link:
            for _ in range(turns):
                await asyncio.sleep(0)
            return await links.ensure(other.identity, other.endpoint)

        at_a, at_b = await asyncio.gather(dial(repeat % 5, a, b), dial(repeat // 4, b, a))
        await wait_until(seen_a, lambda: bool(seen_a.records))
        await wait_until(seen_b, lambda: bool(seen_b.records))
        assert seen_a.ups == [at_a]
        assert seen_b.ups == [at_b]
        assert at_a.dialled != at_b.dialled
        if repeat == 0:
            assert at_a.dialled, "both dialled at once: that of the lower RID stays"
        assert seen_a.records == seen_b.records == [record(b"hello 1")]
        assert seen_a.downs == seen_b.downs == []


async def test_members_that_want_each_other_get_one_link() -> None:
    async with contextlib.AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(member(f"m{number}", receiver=Eager())) for number in range(5)
        ]
        for links, _ in members:
            for other, _ in members:
                if other is not links:
                    links.want(other.identity, other.endpoint)
        for _, seen in members:
            await wait_until(seen, lambda seen=seen: len(seen.records) == 4)
        for links, seen in members:
            assert len({link.peer for link in seen.ups}) == len(seen.ups) == 4
            assert seen.downs == []
            assert len(links.all()) == 4


@contextlib.asynccontextmanager
async def cut_off(options: LinkOptions | None = None):
    """Members a and b with a link that b has forgotten without a's knowing: the FIN never came."""
    async with member("a", options=options) as (a, seen_a):
        b = Links(run_of("b"), "test", b"0123456789abcdef0123456789abcdef", Notebook(), options=options)
        await b.start()
        old = await b.ensure(a.identity, a.endpoint)
        await wait_until(seen_a, lambda: len(seen_a.ups) == 1)
        transport = old._transport
        assert transport is not None
        transport.pause_reading()
        b._links.clear()
        try:
            yield a, seen_a, b, old
        finally:
            old.abort("end of test")
            await old.wait_closed()
            await b.stop(1.0)


async def test_a_new_connection_waits_for_the_end_of_the_old_one() -> None:
    async with cut_off(LinkOptions(supersede_timeout_s=30)) as (a, seen_a, b, old):
        dial = asyncio.ensure_future(b.ensure(a.identity, a.endpoint))
        await turn_until(lambda: a._held)
        assert not dial.done()
        assert len(seen_a.ups) == 1
        old.abort("the old connection ends")
        await dial
        await wait_until(seen_a, lambda: len(seen_a.ups) == 2)
        assert [link.peer for link, _ in seen_a.downs] == [b.identity]
        assert seen_a.downs[0][0] is seen_a.ups[0]
        assert not a._held


async def test_a_half_open_link_gives_way_in_time() -> None:
    async with cut_off(LinkOptions(supersede_timeout_s=0.05)) as (a, seen_a, b, _):
        link = await b.ensure(a.identity, a.endpoint)
        await wait_until(seen_a, lambda: len(seen_a.ups) == 2)
        assert seen_a.downs[0][1].startswith("superseded")
        link.send_record(record(b"on the new one"))
        await wait_until(seen_a, lambda: bool(seen_a.records))


async def test_a_live_link_refuses_another_connection() -> None:
    async with cut_off(LinkOptions(supersede_timeout_s=30, dial_timeout_s=0.2)) as (a, seen_a, b, old):
        assert old._transport is not None
        old._transport.resume_reading()  # b answers on the old link after all
        with pytest.raises(HandshakeRefused, match="already-connected"):
            await b.ensure(a.identity, a.endpoint)
        assert len(seen_a.ups) == 1
        assert seen_a.downs == []
        assert not a._held


async def test_a_waiting_connection_that_goes_away_leaves_the_old_link_alone() -> None:
    async with cut_off(LinkOptions(supersede_timeout_s=30)) as (a, seen_a, b, _):
        dial = asyncio.ensure_future(b.ensure(a.identity, a.endpoint))
        await turn_until(lambda: a._held)
        (held,) = a._held.values()
        await b.stop(0.0)
        await turn_until(lambda: not a._held)
        assert held.timer.cancelled()
        assert seen_a.downs == []
        with pytest.raises(HandshakeRefused, match="shutting-down"):
            await dial


async def test_a_second_waiting_connection_replaces_the_first() -> None:
    async with cut_off(LinkOptions(supersede_timeout_s=30, dial_timeout_s=10)) as (a, seen_a, b, old):
        first = asyncio.ensure_future(b._attempt(a.identity, "127.0.0.1", int(a.endpoint.split(":")[1])))
        await turn_until(lambda: a._held)
        second = asyncio.ensure_future(b._attempt(a.identity, "127.0.0.1", int(a.endpoint.split(":")[1])))
        outcome = await first
        assert isinstance(outcome, HandshakeRefused)
        assert outcome.reason == "duplicate-dial"
        old.abort("the old connection ends")
        assert isinstance(await second, Link)
        await wait_until(seen_a, lambda: len(seen_a.ups) == 2)
