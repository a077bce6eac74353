"""CT-26, CT-28, CT-29, CT-31, and the session sides of CT-05, CT-17 and CT-20.

The Actor moves between real nodes; its session is owned by a member whose seals are the product's.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from msgspec.structs import replace
from sojourn.errors import Unavailable
from sojourn.ids import ObjectKey, actor_key
from sojourn.rows import MarkOutcome
from sojourn.session.terms import CloseCode
from sojourn.wire import RelocationCutover, SessionRelocationSeal
from sojourn.wire.blocks import Role
from sojourn.wire.commands import RouteAbort, RouteCommit
from sojourn.workers.bindings import binding_fields
from sojourn.workers.local_node import LocalNode

from tests.contract.app import Member
from tests.contract.hands import HandTarget, move_to
from tests.contract.peer import Peer, joined
from tests.contract.session_owner import BoundClient, SessionOwner
from tests.contract.stand import Stand, fresh
from tests.runtime.cluster import Gate, gate

pytestmark = pytest.mark.asyncio(loop_scope="module")
OPTIONS = {"relocation_cutover_wait_ms": 4_000, "relocation_commit_reserve_ms": 1_000}
CUTOVER_WAIT_S = 4.0
LATE = ("late_session_route_update", "warning")


async def bound(stand: Stand, peer: Peer, owner: SessionOwner) -> tuple[ObjectKey, BoundClient]:
    """A new Actor on node a with a client bound to it."""
    name = fresh("member")
    await stand.client.create(Member, name, at=stand.a.rid)
    key = actor_key(name)
    return key, await owner.client(stand.a, key)


def move(node: LocalNode, key: ObjectKey, to: LocalNode, deadline_s: float = 15.0) -> asyncio.Task[Any]:
    """Have a node move one of its objects."""
    arguments = {"key": key, "to": to.rid, "deadline_s": deadline_s}
    return asyncio.ensure_future(node.call("relocate", arguments, timeout_s=60.0))


async def turn_with_a_queue(stand: Stand, peer: Peer, key: ObjectKey, entrance: Gate) -> None:
    """A turn of the Actor on node a waits at the gate, and a message stands behind it."""
    peer.submit(stand.a, key, "hold", entrance.port)
    await entrance.arrived()
    peer.submit(stand.a, key, "note", "saved", request=False)


async def ran(stand: Stand, key: ObjectKey, expected: list[str]) -> None:
    """The Actor's turns, on whatever node, are these."""
    name = key[1:].decode()
    await stand.fact(lambda: len(stand.ran(name)) >= len(expected))
    assert stand.ran(name) == expected


async def test_ct_26_messages_wait_for_the_route_and_the_seal_goes(stand: Stand, peer: Peer) -> None:
    """R7.1: the session owner seals, switches and submits; nothing of the session moves."""
    owner = SessionOwner(peer)
    key, client = await bound(stand, peer, owner)
    client.send("before")

    def sends_under_the_seal(command: SessionRelocationSeal, number: int) -> None:
        client.send(f"held {number}a")
        client.send(f"held {number}b")
        assert client.texts() == ["before"], "held at the session owner, not at the source"

    owner.on_seal = sends_under_the_seal
    assert (await move(stand.a, key, stand.b))["outcome"] == "moved"
    await peer.until(lambda: not owner.desk.sealed() and client.kinds()[-1] == "submit" and owner.routes)
    client.send("after")
    held = ["held 1a", "held 1b", "held 2a", "held 2b"]
    assert client.kinds() == ["submit", "switch", "submit"]
    assert client.story[1] == ("switch", stand.b.rid.encode())
    assert all(entry[1] == stand.b.rid.encode() for entry in client.story[2:])
    await ran(stand, key, ["before", *held, "after"])
    assert owner.logged == []
    # The 42 went out twice, the same; the commit once, from the target (CT-05).
    assert [command for _, command in owner.seals] == [owner.seals[0][1]] * 2
    (update,) = owner.routes
    assert isinstance(update.route_update, RouteCommit)
    assert update.route_update.target_node_rid == stand.b.rid.encode()
    row = await stand.row(key)
    assert row is not None
    assert row.row.binding == client.binding, "the target copied it (B6.3)"


async def test_ct_26_a_session_survives_many_moves_with_all_its_messages(stand: Stand, peer: Peer) -> None:
    owner = SessionOwner(peer)
    key, client = await bound(stand, peer, owner)
    sent: list[str] = []
    ended = asyncio.Event()

    async def keep_sending() -> None:
        while not ended.is_set():
            sent.append(str(len(sent)))
            client.send(sent[-1])
            await peer.settle(stand.a)

    sending = asyncio.ensure_future(keep_sending())
    for source, target in ((stand.a, stand.b), (stand.b, stand.a)) * 2:
        assert (await move(source, key, target))["outcome"] == "moved"
        await peer.until(lambda: not owner.desk.sealed())
    ended.set()
    await sending
    await ran(stand, key, sent)
    assert client.kinds() == ["submit", "switch"] * 4 + ["submit"]
    assert owner.logged == []


async def test_ct_28_without_a_route_update_the_session_is_closed(stand: Stand, peer: Peer) -> None:
    """The target here never reports; the seal's 3 s count from the first 42."""
    owner = SessionOwner(peer)
    key, client = await bound(stand, peer, owner)
    owner.on_seal = lambda command, number: client.send(f"held {number}")
    target = HandTarget(peer, stand.a, key)
    moving = move_to(peer, stand.a, key)
    await target.prepared()
    target.ready()
    await target.cutover()
    await target.commit()
    assert (await moving)["outcome"] == "moved"
    await peer.until(lambda: len(owner.seals) == 2)
    assert owner.desk.sealed() == 1
    while not client.story:
        await peer.settle(stand.a)
    closed, dropped = client.story
    assert closed[:3] == ("close", CloseCode.SEAL_TIMEOUT, b"come back")
    assert 3.0 <= closed[3] - owner.seals[0][0] < 3.5
    assert dropped == ("drop", ("held 1", "held 2"))
    assert len(owner.desk) == 0, "binding, held messages and seal are gone"
    assert owner.logged == [("session_seal_timeout", "warning")]
    row = await stand.row(key)
    assert row is not None
    assert row.row.owner.rid == peer.run.rid, "no session changes an owner (CT-17)"


async def test_ct_29_a_later_route_update_is_a_warning_only(stand: Stand, peer: Peer) -> None:
    """The second 43 is withheld for longer than this desk's seal lasts; then the target commits."""
    owner = SessionOwner(peer, seal_timeout_s=1.0)
    key, client = await bound(stand, peer, owner)
    owner.holds = lambda command, number: number == 2
    assert (await move(stand.a, key, stand.b))["outcome"] == "moved"
    await peer.until(lambda: owner.routes)
    assert client.kinds() == ["close"]
    assert owner.logged == [("session_seal_timeout", "warning"), LATE]
    assert (len(owner.desk), owner.desk.sealed()) == (0, 0)
    assert not owner.desk.message(client.binding.session_rid, key, "nobody is bound")


async def test_ct_29_an_update_of_another_relocation_is_a_warning_only(stand: Stand, peer: Peer) -> None:
    owner = SessionOwner(peer)
    key, client = await bound(stand, peer, owner)
    assert (await move(stand.a, key, stand.b))["outcome"] == "moved"
    (commit,) = await peer.until(lambda: owner.routes)
    assert (await move(stand.b, key, stand.a))["outcome"] == "moved"
    await peer.until(lambda: len(owner.routes) == 2 and not owner.desk.sealed())
    before = list(client.story)
    owner.desk.route_updated(commit)  # the first again: identical = already applied
    assert owner.logged == []
    owner.desk.route_updated(replace(commit, sender_role=Role.SOURCE, route_update=RouteAbort(1)))
    assert owner.logged == [LATE]
    assert client.story == before


@pytest.mark.parametrize("by", ["failure reply", "fence"])
async def test_ct_31_the_abort_comes_only_when_the_queue_is_back(stand: Stand, peer: Peer, by: str) -> None:
    owner = SessionOwner(peer, seal_timeout_s=10.0)
    key, client = await bound(stand, peer, owner)
    target = HandTarget(peer, stand.a, key)
    async with gate() as entrance:
        owner.holds = lambda command, number: number == 1
        moving = move_to(peer, stand.a, key, deadline_s=4.0)
        await peer.until(lambda: owner.seals)
        await turn_with_a_queue(stand, peer, key, entrance)
        owner.answer()
        client.send("held 1")
        entrance.open()
        await target.prepared()
        peer.submit(stand.a, key, "note", "kept", request=False)
        await peer.settle(stand.a)
        assert owner.routes == []
        if by == "failure reply":
            target.failed()
        (update,) = await peer.until(lambda: owner.routes)
        row = await stand.row(key)
    assert row is not None
    mark = row.row.relocation
    assert (mark is not None and mark.outcome is MarkOutcome.FENCED) == (by == "fence")
    assert isinstance(update.route_update, RouteAbort)
    assert update.route_update.current_authority_owner_generation == row.row.owner_generation
    assert (await moving)["outcome"] == "failed"
    assert client.kinds() == ["submit"], "to the old route, and no socket was closed"
    assert owner.desk.sealed() == 0
    await ran(stand, key, ["held", "saved", "kept", "held 1"])
    # The next attempt seals under another RelocationId.
    owner.holds = lambda command, number: False
    assert (await move(stand.a, key, stand.b))["outcome"] == "moved"
    assert owner.seals[-1][1].relocation_id != owner.seals[0][1].relocation_id
    assert owner.logged == []


async def test_ct_31_an_unanswered_seal_is_aborted_too(stand: Stand, peer: Peer) -> None:
    owner = SessionOwner(peer)
    key, _ = await bound(stand, peer, owner)
    owner.holds = lambda command, number: True
    moving = move(stand.a, key, stand.b)
    await peer.until(lambda: owner.seals)
    assert await peer.ask(stand.a, key, "add", "still running") == 1
    assert (await moving)["outcome"] == "failed"
    (update,) = await peer.until(lambda: owner.routes)
    assert isinstance(update.route_update, RouteAbort)


async def test_a_turn_that_outlasts_the_seal_is_waited_for_and_sealed_again(stand: Stand, peer: Peer) -> None:
    """B8.12: abort, then another 42 under a new RelocationId at the turn's end."""
    owner = SessionOwner(peer)
    key, client = await bound(stand, peer, owner)
    async with gate() as entrance:
        owner.holds = lambda command, number: number == 1
        moving = move(stand.a, key, stand.b)
        await peer.until(lambda: owner.seals)
        await turn_with_a_queue(stand, peer, key, entrance)
        owner.answer()
        client.send("held 1")
        (update,) = await peer.until(lambda: owner.routes)
        assert isinstance(update.route_update, RouteAbort)
        assert client.texts() == ["held 1"]
        assert len(owner.seals) == 1, "the turn goes on: no second seal yet"
        entrance.open()
        assert (await moving)["outcome"] == "moved"
    await peer.until(lambda: not owner.desk.sealed() and len(owner.routes) == 2)
    first, second, third = (command.relocation_id for _, command in owner.seals)
    assert first != second == third
    await ran(stand, key, ["held", "saved", "held 1"])


async def test_the_cutover_waits_for_the_43_behind_the_last_push(stand: Stand, peer: Peer) -> None:
    """B11.3: not longer than half of the cutover wait."""
    owner = SessionOwner(peer)
    for answers in (True, False):
        key, _ = await bound(stand, peer, owner)
        owner.seals.clear()
        owner.holds = lambda command, number: number == 2
        target = HandTarget(peer, stand.a, key)
        moving = move_to(peer, stand.a, key)
        await target.prepared()
        target.ready()
        began = time.monotonic()
        await peer.settle(stand.a)
        assert not target.arrived(RelocationCutover)
        if answers:
            owner.answer()
        await target.cutover()
        waited = time.monotonic() - began
        assert (waited < CUTOVER_WAIT_S / 2) == answers
        await target.commit()
        assert (await moving)["outcome"] == "moved"
    owner.desk.close()


async def last_push_under_the_seal(
    stand: Stand, peer: Peer, owner: SessionOwner
) -> tuple[BoundClient, asyncio.Task[Any]]:
    """A move from a to b whose Actor pushed once more on a when its session was sealed already, and will push as
    soon as it runs on b. It is captured, and the session owner has no credit for the last push yet."""
    peer.thrifty = True
    key, client = await bound(stand, peer, owner)
    screen = await owner.screen(client, (stand.a, stand.b))
    peer.submit(stand.a, key, "push", screen, "first of a", request=False)
    await peer.until(lambda: owner.told == ["push first of a"])
    owner.holds = lambda command, number: number == 1
    async with gate() as entrance:
        moving = move(stand.a, key, stand.b)
        await peer.until(lambda: owner.seals)
        peer.submit(stand.a, key, "hold_push", entrance.port, screen, "last of a")
        await entrance.arrived()
        peer.submit(stand.a, key, "push", screen, "first of b", request=False)
        await peer.settle(stand.a)
        owner.answer()
        await peer.settle(stand.a)
        await stand.a.status()  # its worker has answered, so it has been told to seal
        entrance.open()
        async with asyncio.timeout(10):
            while not (await stand.a.status())["payload_octets"]:
                continue
    await peer.settle(stand.a)
    assert owner.told == ["push first of a", "seal"], "nothing has come past the last push"
    return client, moving


def pushes(client: BoundClient) -> list[str]:
    """What the client was shown, in order."""
    return [entry[1] for entry in client.story if entry[0] == "push"]


async def test_the_seal_is_confirmed_behind_the_last_push_of_the_source(stand: Stand) -> None:
    """B11.3: also while that push waits for the session owner's credit. No route commit overtakes it."""
    async with joined(stand, "owner", credit_records=1) as peer:
        owner = SessionOwner(peer)
        client, moving = await last_push_under_the_seal(stand, peer, owner)
        peer.spend()
        assert (await moving)["outcome"] == "moved"
        await peer.until(lambda: len(owner.told) == 6)
        assert owner.told[2:4] == ["push last of a", "seal"]
        assert sorted(owner.told[4:]) == ["commit", "push first of b"]
        assert pushes(client) == ["first of a", "last of a", "first of b"]
        assert owner.logged == []


async def test_a_last_push_that_is_too_late_is_believed_all_the_same(stand: Stand) -> None:
    """B11.3: half of the cutover wait, then the cutover goes out; the source's generation is believed for the follow
    duration, and a 42 that the commit has overtaken seals nothing."""
    async with joined(stand, "owner", credit_records=1) as peer:
        owner = SessionOwner(peer, seal_timeout_s=10.0)
        client, moving = await last_push_under_the_seal(stand, peer, owner)
        began = time.monotonic()
        assert (await moving)["outcome"] == "moved"
        await peer.until(lambda: sorted(owner.told[2:]) == ["commit", "push first of b"])
        assert time.monotonic() - began < CUTOVER_WAIT_S
        peer.spend()
        await peer.until(lambda: owner.told[4:] == ["push last of a", "seal"])
        assert pushes(client) == ["first of a", "first of b", "last of a"]
        assert (owner.desk.sealed(), owner.logged) == (0, [])


async def test_a_moving_actor_refuses_a_bind_until_its_move_ended(stand: Stand, peer: Peer) -> None:
    """B11.1; and a session owner whose binding is over counts as none (B11.2)."""
    owner = SessionOwner(peer)
    key, client = await bound(stand, peer, owner)
    owner.holds = lambda command, number: number == 1
    moving = move(stand.a, key, stand.b)
    await peer.until(lambda: owner.seals)
    arguments = {"key": key, "binding": binding_fields(client.binding)}
    with pytest.raises(Unavailable, match="is moving"):
        await stand.a.call("bind_session", arguments)
    owner.desk.socket_closed(client.binding.session_rid)
    owner.answer()  # refused: there is no such binding any more
    assert (await moving)["outcome"] == "moved"
    await stand.a.call("unbind_session", arguments)
    row = await stand.row(key)
    assert row is not None
    assert row.row.binding is None
