"""A record that cannot be read, from a peer that has the secret: it costs that peer its link, and nobody else anything
(B5.2, B8.13)."""

from __future__ import annotations

import pytest
from sojourn import frames
from sojourn.workers.link import Link

from tests.contract.hands import ledger_at
from tests.contract.peer import Peer, joined
from tests.contract.stand import Stand

pytestmark = pytest.mark.asyncio(loop_scope="module")


def link_to(peer: Peer, stand: Stand) -> Link:
    link = peer.links.get(stand.run_of(stand.b))
    assert link is not None
    return link


@pytest.mark.parametrize("octets", [1, frames.KEY_AT, frames.KEY_AT + 20, -10])
async def test_a_cut_record_ends_its_link_only(stand: Stand, octets: int) -> None:
    async with joined(stand, "innocent") as innocent, joined(stand, "faulty") as faulty:
        key = await ledger_at(innocent, stand.b)
        pids = await stand.b.worker_pids()
        bystander, link = link_to(innocent, stand), link_to(faulty, stand)
        whole: list[bytes] = []
        send = link.send_record
        link.send_record = lambda body, debt=None: whole.append(body)  # type: ignore[method-assign]
        faulty.submit(stand.b, key, "history", hops=1)
        link.send_record = send  # type: ignore[method-assign]
        link.send_record(whole[0][:octets])
        await faulty.until(lambda: link.connection_id in faulty.downs)
        assert await innocent.ask(stand.b, key, "history") == []
        assert link_to(innocent, stand) is bystander
        assert await stand.b.worker_pids() == pids


async def test_too_many_hops_do_not_end_the_worker(stand: Stand) -> None:
    """What the supervisor passes on unread has to be what its worker can read."""
    async with joined(stand, "innocent") as innocent, joined(stand, "faulty") as faulty:
        key = await ledger_at(innocent, stand.b)
        pids = await stand.b.worker_pids()
        link = link_to(faulty, stand)
        whole: list[bytes] = []
        send = link.send_record
        link.send_record = lambda body, debt=None: whole.append(body)  # type: ignore[method-assign]
        faulty.submit(stand.b, key, "history")
        link.send_record = send  # type: ignore[method-assign]
        known = innocent.generations[key].to_bytes(8, "big")
        link.send_record(frames.set_hops(whole[0][:4] + known + whole[0][12:], 9))
        await faulty.until(lambda: link.connection_id in faulty.downs)
        assert await innocent.ask(stand.b, key, "history") == []
        assert await stand.b.worker_pids() == pids
