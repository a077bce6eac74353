"""The relay of replies (R5.2, B7.1), commands 33 and 46, as a requester's node on the mesh sees it."""

from __future__ import annotations

import asyncio

import pytest
from sojourn import mesh
from sojourn.wire import (
    MaintenanceRelocationContext,
    OperationId,
    ReplyRelay,
    ReplyRelayAck,
    ReplyRelayStatus,
    encode_command,
)
from sojourn.wire.results import FailureCode, TerminalResult
from sojourn.workers.reply_frames import ack_of, reply_reference

from tests.contract.hands import ledger_at
from tests.contract.peer import Peer
from tests.contract.stand import Stand
from tests.runtime.cluster import gate

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def moved_request(stand: Stand, peer: Peer) -> tuple[bytes, int]:
    """A request of the peer that was sent to the first node, moved with its object, and ended on the second."""
    key = await ledger_at(peer, stand.a)
    async with gate() as entrance:
        peer.submit(stand.a, key, "hold", entrance.port)
        await entrance.arrived()
        route = peer.submit(stand.a, key, "add", "moved")
        await peer.settle(stand.a)
        before = await stand.started(stand.a)
        arguments = {"key": key, "to": stand.b.rid, "deadline_s": 10.0}
        moving = asyncio.ensure_future(stand.a.call("relocate", arguments, timeout_s=60.0))
        await stand.sealing(stand.a, before)
        entrance.open()
        assert (await moving)["outcome"] == "moved"
    return key, route


async def test_a_reply_that_moved_is_repeated_until_it_is_acknowledged(stand: Stand, peer: Peer) -> None:
    key, route = await moved_request(stand, peer)
    relays = lambda: peer.commands(ReplyRelay)  # noqa: E731
    (first,) = await peer.until(relays)
    assert (await peer.answer(route)).value == 2, "the ordinary reply came as well"
    assert (first.reply_route_id, first.terminal_result) == (route, TerminalResult.OK)
    assert isinstance(first.context, MaintenanceRelocationContext)
    assert first.context.relocation_identity.coordinator_fence.node_rid == stand.a.rid.encode()
    operation = first.operation_id
    taken = [message for message in peer.controls if isinstance(message, mesh.RequestsTaken)]
    assert taken == [mesh.RequestsTaken(key, [(route, operation.high, operation.low)])]
    reference = reply_reference(peer.run.generation, operation.high, operation.low)
    assert await stand.blobs.read(reference) is not None
    await peer.cut(stand.b)
    link = await peer.link_to(stand.b)
    assert relays() == [first, first]
    run = stand.run_of(stand.b)
    link.send_contract(ack_of(first, run, peer.owner, ReplyRelayStatus.TERMINAL_RECEIVED))
    await peer.settle(stand.b)
    await peer.cut(stand.b)
    await peer.link_to(stand.b)
    assert relays() == [first, first]
    async with asyncio.timeout(20):
        while await stand.blobs.read(reference) is not None:
            await stand.b.status()
    assert await peer.ask(stand.b, key, "history") == ["held", "moved"]


async def test_an_end_of_an_unknown_request_is_acknowledged(stand: Stand, peer: Peer) -> None:
    _, route = await moved_request(stand, peer)
    (known,) = await peer.until(lambda: [c for c in peer.commands(ReplyRelay) if c.reply_route_id == route])
    assert isinstance(known.context, MaintenanceRelocationContext)
    unknown = ReplyRelay(
        operation_id=OperationId(7, 8),
        reply_route_id=(1 << 48) | 5,
        context=known.context,
        terminal_result=TerminalResult.REJECTED,
        failure_code=FailureCode.REQUEST_REJECTED,
    )
    link = peer.links.get(stand.run_of(stand.a))
    assert link is not None
    link.send_contract(encode_command(unknown))
    (ack,) = await peer.until(lambda: peer.commands(ReplyRelayAck))
    assert (ack.operation_id, ack.reply_route_id) == (OperationId(7, 8), (1 << 48) | 5)
    assert ack.status is ReplyRelayStatus.ALREADY_TERMINAL
    assert ack.relocation_id == known.context.relocation_identity.relocation_id
    assert ack.request_source_fence.node_rid == stand.a.rid.encode()
