"""A SpotWide Spot whose members are bound to sessions moves: every session is sealed, switched, or given back (R7, B11).

The unit moves between real nodes; its sessions are owned by a member whose seals are the product's.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import pytest_asyncio
from sojourn.ids import ObjectKey
from sojourn.wire import SessionRelocationSeal
from sojourn.wire.commands import RouteAbort, RouteCommit

from tests.contract.hands import HandTarget, move_to
from tests.contract.peer import Peer
from tests.contract.session_owner import BoundClient, SessionOwner
from tests.contract.stand import Stand
from tests.contract.test_units import Party

pytestmark = pytest.mark.asyncio(loop_scope="module")
OPTIONS = {"relocation_cutover_wait_ms": 4_000, "relocation_commit_reserve_ms": 1_000}


class BoundParty:
    """A Spot on node a with two members, each bound to a session of the peer; `shared`: to the same."""

    def __init__(self, stand: Stand, peer: Peer, shared: bool) -> None:
        self.stand = stand
        self.peer = peer
        self.owner = SessionOwner(peer, seal_timeout_s=10.0)
        self.party = Party(peer, "Hall")
        self.clients: dict[ObjectKey, BoundClient] = {}
        self._session = b"one for both" if shared else b""

    async def made(self) -> BoundParty:
        """Make it, and have everybody in its place."""
        party = await self.party.made()
        await party.give(self.stand.a)
        for key in self.members:
            self.clients[key] = await self.owner.client(self.stand.a, key, session=self._session)
        return self

    @property
    def members(self) -> tuple[ObjectKey, ObjectKey]:
        """In the order of their rows."""
        return self.party.ann, self.party.bob

    def move(self) -> asyncio.Task[Any]:
        """Have node a move the Spot to node b."""
        arguments = {"key": self.party.spot, "to": self.stand.b.rid, "deadline_s": 15.0}
        return asyncio.ensure_future(self.stand.a.call("relocate", arguments, timeout_s=60.0))

    def sealed(self) -> list[ObjectKey]:
        """For whom a 42 came, in order."""
        return [_actor(command) for _, command in self.owner.seals]

    def everybody_says(self, text: str) -> None:
        """Each client tells its member something."""
        for client in self.clients.values():
            client.send(text)

    async def heard(self, *expected: str) -> None:
        """Each member has run exactly what its client told it."""
        for key in self.members:
            name = key[1:].decode()
            await self.stand.fact(lambda name=name: len(self.stand.ran(name)) >= len(expected))
            assert self.stand.ran(name) == [*expected]

    async def works(self, count: int) -> None:
        """Everybody of the unit takes turns, wherever it is; asked for the `count`-th time."""
        for key in self.party.keys:
            assert await self.peer.ask(self.stand.a, key, "add", self.party.book, "on") >= count


def _actor(command: SessionRelocationSeal) -> ObjectKey:
    return b"a" + command.actor_route_fence.actor_ref.actor_id.encode()


@pytest_asyncio.fixture(loop_scope="module", params=[False, True], ids=["two sessions", "one session"])
async def bound(request: pytest.FixtureRequest, stand: Stand, peer: Peer) -> BoundParty:
    return await BoundParty(stand, peer, request.param).made()


async def test_both_sessions_are_sealed_before_the_stop_and_switched_after_it(bound: BoundParty) -> None:
    owner, stand = bound.owner, bound.stand
    bound.everybody_says("before")
    owner.on_seal = lambda command, number: (
        bound.everybody_says(f"under seal {number}") if number == 2 else None
    )
    owner.holds = lambda command, number: number == 2
    moving = bound.move()
    await bound.peer.until(lambda: len(owner.seals) == 2)
    await bound.peer.settle(stand.a)
    assert (bound.sealed(), owner.desk.sealed()) == ([*bound.members], 1)
    assert await bound.peer.ask(stand.a, bound.party.spot, "add", bound.party.book, "runs on") == 1
    owner.answer()
    assert (await moving)["outcome"] == "moved"
    await bound.peer.until(lambda: len(owner.routes) == 2 and not owner.desk.sealed())
    # Each is asked again behind the last push, and no route is switched before both have confirmed (B11.3).
    assert bound.sealed() == [*bound.members] * 2
    assert owner.told == ["seal"] * 4 + ["commit"] * 2
    for update in owner.routes:
        assert isinstance(update.route_update, RouteCommit)
        assert update.route_update.target_node_rid == stand.b.rid.encode()
        assert update.route_update.target_authority_owner_generation == 3
    bound.everybody_says("after")
    for client in bound.clients.values():
        assert [entry[0] for entry in client.story].count("switch") == 1
        assert client.texts() == ["before", "under seal 2", "after"]
    await bound.heard("before", "under seal 2", "after")
    rows = await bound.party.rows()
    assert [rows[key].row.binding for key in bound.members] == [
        client.binding for client in bound.clients.values()
    ]
    assert {found.row.owner.rid for found in rows.values()} == {stand.b.rid.encode()}
    assert owner.logged == []


async def test_both_seals_go_back_when_one_session_does_not_answer(bound: BoundParty) -> None:
    """B11.4: an abort for every 42 sent, answered or not; nobody of the unit was ever stopped."""
    owner = bound.owner
    owner.holds = lambda command, number: number == 2
    owner.on_seal = lambda command, number: bound.everybody_says("held") if number == 2 else None
    moving = bound.move()
    await bound.peer.until(lambda: len(owner.seals) == 2)
    await bound.works(1)
    assert (await moving)["outcome"] == "failed"
    await bound.peer.until(lambda: len(owner.routes) == 2)
    assert owner.told == ["seal"] * 2 + ["abort"] * 2
    assert owner.desk.sealed() == 0
    await bound.heard("held")
    owner.holds = lambda command, number: False
    assert (await bound.move())["outcome"] == "moved"


async def test_a_session_that_is_over_holds_up_neither_the_move_nor_the_other_s_switch(
    bound: BoundParty,
) -> None:
    """B11.2: the refusal of one is not taken for the other's, also where both are of one session."""
    owner, (ann, bob) = bound.owner, bound.members
    owner.desk.unbind(bound.clients[bob].binding.session_rid, bob)
    owner.on_seal = lambda command, number: bound.clients[ann].send(f"held {number}")
    assert (await bound.move())["outcome"] == "moved"
    await bound.peer.until(lambda: len(owner.routes) == 2 and not owner.desk.sealed())
    assert bound.sealed() == [ann, bob, ann]
    assert bound.clients[ann].texts() == ["held 1", "held 2", "held 3"]
    assert bound.clients[bob].story == []
    assert owner.logged == [("late_session_route_update", "warning")]  # for the binding that is over


async def test_no_session_is_given_back_before_the_unit_s_queue_is(bound: BoundParty) -> None:
    """R7.2: captured, then an explicit failure. What came for each member meanwhile runs first."""
    owner, peer, stand = bound.owner, bound.peer, bound.stand
    owner.on_seal = lambda command, number: bound.everybody_says("held") if number == 2 else None
    target = HandTarget(peer, stand.a, bound.party.spot)
    moving = move_to(peer, stand.a, bound.party.spot)
    await target.prepared()
    for key in bound.members:
        peer.submit(stand.a, key, "note", "kept", request=False)
    await peer.settle(stand.a)
    assert owner.told == ["seal"] * 4
    target.failed(33)
    assert (await moving)["outcome"] == "failed"
    await peer.until(lambda: len(owner.routes) == 2)
    assert all(isinstance(update.route_update, RouteAbort) for update in owner.routes)
    await bound.heard("kept", "held")
    assert owner.desk.sealed() == 0
    await bound.works(1)
    assert (await bound.move())["outcome"] == "moved"
