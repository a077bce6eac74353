"""Section 9, the row of sessions, on real processes: no route update within the seal timeout.

The Actor moves from a to b; its client's session is held by c. The target owns the Actor, and the session is closed.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sojourn.session.terms import CloseCode
from sojourn.spots.references import ActorRef

from tests.contract.app import Member
from tests.contract.stand import LIMIT_S
from tests.faults.network import CUTOVER, ROUTE, Trap
from tests.faults.session_node import PROGRAM  # the fixture has every node run it
from tests.faults.stand import FaultStand

__all__ = ["PROGRAM"]

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.allow_leaks("connections and processes of the module's cluster come and go"),
]
CLOSED = ["close", int(CloseCode.SEAL_TIMEOUT)]


class Client:
    """A client whose socket is at c."""

    def __init__(self, it: FaultStand, item: ActorRef[Member], session: bytes) -> None:
        self._it = it
        self._item = item
        self._named = {"session": session, "key": item.key}

    async def sends(self, text: str) -> bool:
        """False: its session is bound to nobody."""
        sent: bool = await self._it.c.call("client_sends", self._named | {"text": text})
        return sent

    async def story(self) -> list[list[Any]]:
        """What happened to it."""
        told: list[list[Any]] = await self._it.c.call("client_story", self._named)
        return told

    async def closed(self) -> list[list[Any]]:
        """Its story, once its socket was closed."""
        async with asyncio.timeout(LIMIT_S):
            while CLOSED not in (told := await self.story()):
                continue
        return told


async def bound(it: FaultStand) -> tuple[ActorRef[Member], Client]:
    """An Actor at a, and a client that has told it something."""
    item = await it.item()
    client = Client(it, item, await it.c.call("client_binds", {"key": item.key}))
    assert await client.sends("from the client")
    async with asyncio.timeout(LIMIT_S):
        while it.ran(item) != ["before", "from the client"]:
            await it.c.status()
    return item, client


async def sealed_move(
    it: FaultStand, item: ActorRef[Member], client: Client
) -> tuple[asyncio.Task[Any], Trap]:
    """A move whose cutover is on its way; what the client sends is held."""
    trap = it.network.way(it.a.rid, it.b.rid).trap(CUTOVER)
    moving = it.move(item)
    await trap.sprung()
    assert await client.sends("held")
    assert ["submit", "held"] not in await client.story()
    assert (await it.c.status())["sealed_sessions"] == 1
    return moving, trap


async def nothing_is_left(it: FaultStand, client: Client) -> None:
    """Binding, held messages and seal are gone with the socket."""
    assert await client.closed() == [["submit", "from the client"], CLOSED, ["drop", "held"]]
    status = await it.c.status()
    assert (status["bound_sessions"], status["sealed_sessions"]) == (0, 0)
    assert not await client.sends("nobody is bound")


async def test_the_target_ends_after_the_cas_and_tells_no_session(it: FaultStand) -> None:
    item, client = await bound(it)
    moving, trap = await sealed_move(it, item, client)
    it.stores[1].keep_answer()
    trap.release()
    await it.owned(item, it.b.rid)
    await it.b.kill()
    await nothing_is_left(it, client)
    await it.logged("session_seal_timeout")
    assert await it.owner(item) == it.b.rid, "the target owns it, and no session changes that"
    await moving
    assert it.ran(item) == ["before", "from the client"]
    await it.mend()
    await it.lease_over(item)
    await it.made_anew(item)


async def test_a_route_update_that_comes_too_late_is_a_warning_only(it: FaultStand) -> None:
    item, client = await bound(it)
    late = it.network.way(it.b.rid, it.c.rid).trap(ROUTE)
    moving, trap = await sealed_move(it, item, client)
    trap.release()
    await late.sprung()
    assert (await moving).outcome == "moved"
    await nothing_is_left(it, client)
    assert it.logs("late_session_route_update", item) == 0
    before = await client.story()
    late.release()
    await it.logged("late_session_route_update", item)
    (warning,) = it.stand.log.events("late_session_route_update", about=item.id)
    assert warning.level == "WARNING"
    assert await client.story() == before
    assert (await it.c.status())["bound_sessions"] == 0
    # Its row still names the session; the next move asks for it in vain, and is not held up.
    await it.moves_again(item, ["before", "from the client"])


async def test_a_route_update_in_time_keeps_the_session(it: FaultStand) -> None:
    """The same without a fault: so it is the missing update that closes."""
    item, client = await bound(it)
    moving, trap = await sealed_move(it, item, client)
    trap.release()
    assert (await moving).outcome == "moved"
    async with asyncio.timeout(LIMIT_S):
        while ["submit", "held"] not in (told := await client.story()):
            continue
    assert told == [["submit", "from the client"], ["switch", it.b.rid], ["submit", "held"]]
    assert await client.sends("after")
    async with asyncio.timeout(LIMIT_S):
        while it.ran(item)[-1] != "after":
            await it.c.status()
    assert it.ran(item) == ["before", "from the client", "held", "after"]
