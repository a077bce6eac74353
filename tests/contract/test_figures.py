"""B3.5 on real nodes: every accepted message is in the figures once, with moves and with a worker that is killed."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from sojourn.errors import InternalFailure, SojournError, Unavailable
from sojourn.spots.references import SpotRef
from sojourn.workers.local_node import LocalNode

from tests.contract.app import Ledger
from tests.contract.hands import HandTarget, move_to, source, take
from tests.contract.hands import ledger_at as made_by_hand
from tests.contract.peer import Peer
from tests.contract.stand import Stand, fresh
from tests.runtime.cluster import gate

pytestmark = pytest.mark.asyncio(loop_scope="module")
ENDS = ("handled", "failed", "dead", "in_doubt")


async def figures(*nodes: LocalNode) -> dict[str, int]:
    """What the nodes say, added up."""
    total: dict[str, int] = {}
    for node in nodes:
        for name, value in (await node.status())["messages"].items():
            total[name] = total.get(name, 0) + value
    return total


async def settled(stand: Stand, accepted: int) -> dict[str, int]:
    """The figures of both nodes once nothing waits and that many were accepted."""
    async with asyncio.timeout(20):
        while True:
            found = await figures(stand.a, stand.b)
            if found["accepted"] == accepted and not found["waiting"]:
                return found


async def ledger_at(stand: Stand, node: LocalNode) -> tuple[SpotRef[Ledger], int]:
    """A new Ledger on that node, and how many messages making it took."""
    for sent in range(1, 50):
        ledger = stand.client.spot(Ledger, fresh("ledger"))
        await ledger.request(Ledger.history)
        if (await stand.client.locate(ledger)).node == node.rid:
            return ledger, sent
    raise AssertionError("placement never chose the node")


async def failed(ledger: SpotRef[Ledger]) -> None:
    with pytest.raises(InternalFailure, match="on purpose"):
        await ledger.request(Ledger.fail, "on purpose")


async def test_everything_accepted_ended_once(stand: Stand) -> None:
    """B3.5: accepted = handled + typed failures + dead letters + in doubt, over a move and a worker's death."""
    ledger, accepted = await ledger_at(stand, stand.a)
    handled, name = accepted, ledger.id
    for number in range(20):
        await ledger.send(Ledger.note, f"sent {number}")
    assert await ledger.request(Ledger.add, "asked") == 21
    await failed(ledger)
    accepted, handled = accepted + 22, handled + 21
    found = await settled(stand, accepted)
    assert [found[end] for end in ENDS] == [handled, 1, 0, 0]

    async with gate() as door:  # a queue that moves, and what is held meanwhile
        running = asyncio.ensure_future(ledger.request(Ledger.hold, door.port))
        await door.arrived()
        queued = [asyncio.ensure_future(ledger.request(Ledger.add, f"queued {each}")) for each in range(3)]
        late = asyncio.ensure_future(ledger.with_timeout(0.05).request(Ledger.add, "late"))
        with pytest.raises(SojournError):
            await late
        await ledger.send(Ledger.note, "queued too")
        before = await stand.started(stand.a)
        moving = asyncio.ensure_future(ledger.relocate(stand.b.rid))
        await stand.sealing(stand.a, before)
        held = asyncio.ensure_future(ledger.request(Ledger.add, "held"))
        await stand.a.status()
        door.open()
        assert (await moving).outcome == "moved"
        assert [await each for each in (running, *queued, held)] == [22, 23, 24, 25, 27]
    accepted, handled = accepted + 7, handled + 6
    found = await settled(stand, accepted)
    assert [found[end] for end in ENDS] == [handled, 1, 1, 0]  # the late one is a dead letter
    assert found["arrived"] == found["left"] == 5
    assert (await figures(stand.a))["waiting"] == (await figures(stand.b))["waiting"] == 0

    async with gate() as door:  # a worker dies with a turn and a queue
        doomed = [asyncio.ensure_future(ledger.request(Ledger.hold, door.port))]
        await door.arrived()
        doomed += [asyncio.ensure_future(ledger.request(Ledger.add, "never")) for _ in range(2)]
        for _ in range(4):
            await ledger.send(Ledger.note, "never")
        async with asyncio.timeout(20):
            while (await figures(stand.b))["waiting"] != 7:
                continue
        (worker,) = await stand.b.worker_pids()
        os.kill(worker, signal.SIGKILL)
        for each in doomed:
            with pytest.raises(Unavailable) as caught:
                await each
            assert caught.value.applied == "unknown"
    accepted += 7
    found = await settled(stand, accepted)
    assert [found[end] for end in ENDS] == [handled, 1, 1, 7]
    assert len(stand.ran(name)) == 27
    assert found["handled"] + found["failed"] + found["dead"] + found["in_doubt"] == found["accepted"]


async def kill_worker(stand: Stand, node: LocalNode) -> None:
    """Kill the node's worker right after it told its figures."""
    lost = len(stand.log.events("worker_lost"))
    await node.status()
    (worker,) = await node.worker_pids()
    os.kill(worker, signal.SIGKILL)
    await stand.fact(lambda: len(stand.log.events("worker_lost")) > lost, node)


async def test_a_payload_outlives_its_workers_in_the_figures_too(stand: Stand, peer: Peer) -> None:
    """B3.5, B6.6: what is captured or staged is not in doubt when its worker dies: it goes on in another one."""
    before = await figures(stand.a, stand.b)
    ledger, accepted = await ledger_at(stand, stand.a)
    handled = accepted
    async with gate() as door:
        running = asyncio.ensure_future(ledger.request(Ledger.hold, door.port))
        await door.arrived()
        queued = [asyncio.ensure_future(ledger.request(Ledger.add, f"queued {each}")) for each in range(3)]
        target, started = HandTarget(peer, stand.a, ledger.key), await stand.started(stand.a)
        moving = move_to(peer, stand.a, ledger.key)
        await stand.sealing(stand.a, started)
        door.open()
        assert await running == 1
        await target.prepared()
    await kill_worker(stand, stand.a)
    target.failed()
    assert (await moving)["outcome"] == "failed"
    assert [await each for each in queued] == [2, 3, 4]
    accepted, handled = accepted + 4, handled + 4
    found = await settled(stand, before["accepted"] + accepted)
    assert [found[end] - before[end] for end in ENDS] == [handled, 0, 0, 0]
    assert found["arrived"] - before["arrived"] == found["left"] - before["left"] == 3

    key = await made_by_hand(peer, stand.b)
    before = await figures(stand.a, stand.b)
    saved = [peer.saved(key, "note", f"saved {each}") for each in range(2)]
    move = await source(peer, stand.b, await take(peer, stand.b, key), saved)
    await move.ready()
    await kill_worker(stand, stand.b)
    await move.give()
    assert await peer.ask(stand.b, key, "history") == ["saved 0", "saved 1"]
    found = await settled(stand, before["accepted"] + 1)  # the others were accepted where they came from
    assert [found[end] - before[end] for end in ENDS] == [3, 0, 0, 0]
    assert (found["arrived"] - before["arrived"], found["left"] - before["left"]) == (4, 2)
