"""Members that dial, cut and send at random: what holds for every pair of runs whatever happens (B8.13, R5.1)."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence

import pytest
from sojourn.mesh import MeshControl
from sojourn.workers.link import Link, LinkOptions
from sojourn.workers.links import Links
from sojourn.workers.stream import Piece

from tests.links.members import CLUSTER, SECRET, run_of, turn_until

OPTIONS = LinkOptions(
    credit_records=8, redial_first_s=0.001, redial_max_s=0.01, supersede_timeout_s=0.05, goodbye_timeout_s=0.2
)
PADDING = bytes(300)


class Checker:
    """Sends numbered records on every link it has, and checks what it is told.

    A record carries the sender's connection id and its number there.
    """

    def __init__(self, generator: random.Random) -> None:
        self.generator = generator
        self.up: dict[bytes, Link] = {}
        self.sent: dict[int, list[bytes]] = {}
        self.unsent: dict[int, list[bytes]] = {}
        self.received: dict[int, list[bytes]] = {}
        self.written: list[bool | None] = []

    def on_up(self, link: Link) -> None:
        assert link.peer.rid not in self.up, "two links to one run"
        self.up[link.peer.rid] = link
        self.sent[link.connection_id] = []
        self.received[link.connection_id] = []

    def on_down(self, link: Link, reason: str) -> None:
        assert self.up.pop(link.peer.rid) is link
        self.unsent[link.connection_id] = list(link.unsent)

    def on_record(self, link: Link, body: bytes) -> None:
        assert self.up.get(link.peer.rid) is link, "a record on a link that is not up"
        self.received[link.connection_id].append(body)
        if self.generator.random() < 0.5:
            link.give_back(1, len(body))
        else:
            asyncio.get_running_loop().call_soon(link.give_back, 1, len(body))

    def on_reply(self, link: Link, body: bytes) -> None: ...

    def on_contract(self, link: Link, parts: Sequence[Piece], deadline_ms: int) -> None:
        assert self.up.get(link.peer.rid) is link

    def on_control(self, link: Link, message: MeshControl) -> None: ...

    def send(self, link: Link) -> None:
        if link.closing:
            return
        number = len(self.sent[link.connection_id])
        body = b"\x02%d:%d" % (link.connection_id, number) + PADDING
        link.send_record(body)
        self.sent[link.connection_id].append(body)
        if self.generator.random() < 0.2:
            at = len(self.written)
            self.written.append(None)

            def told(written: bool) -> None:
                assert self.written[at] is None, "told twice"
                self.written[at] = written

            link.send_contract([bytes(self.generator.randrange(1, 100_000))], on_written=told)

    def act(self) -> None:
        if not self.up:
            return
        link = self.generator.choice(list(self.up.values()))
        chance = self.generator.random()
        if chance < 0.03:
            link.abort("chaos")
        elif chance < 0.05:
            link.close("chaos")
        else:
            for _ in range(self.generator.randrange(1, 6)):
                self.send(link)


def check(checkers: list[Checker]) -> None:
    """Each record's fate: received, reported unsent, or on a connection that broke; in order, never twice."""
    received: dict[bytes, list[list[bytes]]] = {}
    for checker in checkers:
        for bodies in checker.received.values():
            if bodies:
                origin = bodies[0].partition(b":")[0]
                received.setdefault(origin, []).append(bodies)
    for checker in checkers:
        assert None not in checker.written, "an on_written that never came"
        for connection, sent in checker.sent.items():
            arrived = received.get(b"\x02%d" % connection, [])
            assert len(arrived) <= 1, "records of one connection came out of two"
            got = arrived[0] if arrived else []
            unsent = checker.unsent[connection]
            assert got == sent[: len(got)], "not in order, or a gap"
            assert unsent == sent[len(sent) - len(unsent) :], "unsent is not the tail"
            assert len(got) + len(unsent) <= len(sent), "received and reported unsent"


@pytest.mark.parametrize("seed", range(12))
async def test_one_link_a_pair_and_every_record_accounted_for(seed: int) -> None:
    generator = random.Random(seed)
    checkers = [Checker(generator) for _ in range(4)]
    members = [
        Links(run_of(f"m{number}"), CLUSTER, SECRET, checker, options=OPTIONS)
        for number, checker in enumerate(checkers)
    ]
    async with contextlib.AsyncExitStack() as stack:
        for links in members:
            await links.start()
            stack.push_async_callback(links.stop, 0.5)
        for links in members:
            for other in members:
                if other is not links and generator.random() < 0.8:
                    links.want(other.identity, other.endpoint)
        for _ in range(400):
            generator.choice(checkers).act()
            if generator.random() < 0.7:
                await asyncio.sleep(0)
        for links in members:
            for other in members:
                if other is not links:
                    links.want(other.identity, other.endpoint)
        await turn_until(lambda: all(len(links.all()) == 3 for links in members))
    assert all(not checker.up for checker in checkers)
    check(checkers)
    assert sum(len(bodies) for checker in checkers for bodies in checker.received.values()) > 20
