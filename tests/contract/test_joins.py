"""CT-32: of two prewarm prepares of a join for one target queue one ends, whatever came first.

The source of the join is played by hand; the target, its Spot and the store are real. An Actor of the peer joins a
`PerActor` Spot of a node: admission (28, 20), then the handoff with both memberships in its one write (section 8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from sojourn.ids import ObjectKey, ObjectKind
from sojourn.ownership import VersionedRow, fence_unit, rewrite_object
from sojourn.rows import MarkOutcome, Membership
from sojourn.wire import (
    ActorJoinReply,
    ActorJoinRequest,
    ActorRef,
    ActorRouteFence,
    JoinAccepted,
    JoinRejected,
    RelocationFailed,
    RelocationReady,
    SpotRef,
    SpotRouteFence,
    encode_command,
)
from sojourn.wire.results import FailureCode, TerminalResult

from tests.contract.hands import HandSource, Taken, source
from tests.contract.peer import Peer
from tests.contract.stand import Stand
from tests.contract.test_units import Party

pytestmark = pytest.mark.asyncio(loop_scope="module")
OPTIONS = {"relocation_cutover_wait_ms": 4_000}
ACTOR_STALE = 21


@dataclass
class Join:
    """An Actor of the peer, in a Spot of the peer, that may enter a Spot of the second node."""

    stand: Stand
    peer: Peer
    home: Party
    away: Party

    @property
    def actor(self) -> ObjectKey:
        return self.home.ann

    async def rows(self) -> tuple[VersionedRow, VersionedRow, VersionedRow]:
        """The Actor, the Spot it leaves, the Spot it enters."""
        home, away = await self.home.rows(), await self.away.rows()
        return home[self.actor], home[self.home.spot], away[self.away.spot]

    def request(self, entered: VersionedRow, **changes: Any) -> ActorJoinRequest:
        """Command 28 for the Actor as it is and the Spot of this row."""
        row, run = entered.row, entered.row.owner.run
        fence = SpotRouteFence(
            SpotRef(row.object_id, changes.get("spot_generation", row.object_generation)),
            run.rid,
            run.generation,
            row.owner_generation,
            row.owner.lease_generation,
        )
        owner = changes.get("owner", self.peer.owner)
        actor = ActorRouteFence(
            ActorRef(self.actor[1:].decode(), 1), owner.rid, owner.node_generation, 1, owner.lease_generation
        )
        return ActorJoinRequest(
            correlation=self.peer.new_route(),
            actor_route_fence=actor,
            entry=changes.get("entry", False),
            spot_route_fence=fence,
        )

    async def asked(self, request: ActorJoinRequest) -> ActorJoinReply:
        """The answer of the second node."""
        link = self.peer.links.get(self.stand.run_of(self.stand.b))
        assert link is not None
        link.send_contract(encode_command(request))

        def answers() -> list[ActorJoinReply]:
            replies = self.peer.commands(ActorJoinReply)
            return [reply for reply in replies if reply.correlation == request.correlation]

        (answer,) = await self.peer.until(answers)
        return answer

    async def admitted(self) -> None:
        """Have the Actor admitted."""
        answer = await self.asked(self.request((await self.rows())[2]))
        assert answer.terminal_result is TerminalResult.OK
        accepted = answer.join_result
        assert isinstance(accepted, JoinAccepted)
        assert accepted.spot_ref == SpotRef(self.away.spot[1:].decode(), 1)
        assert accepted.receive_chunk_limit_bytes == 256 * 1024

    async def attempt(self, texts: tuple[str, ...] = (), version: str | None = None) -> HandSource:
        """A new identity for the Actor, with these messages in its queue."""
        row = (await self.rows())[0]
        handed = (await self.home.handed(self.actor, 1)).envelope
        saved = [self.home.message(self.actor, text) for text in texts]
        taken = Taken(self.actor, row, handed)
        return await source(self.peer, self.stand.b, taken, saved, version=version, chunk_octets=64)


async def prepared_join(stand: Stand, peer: Peer) -> Join:
    """An Actor that was admitted; nothing was asked beyond that."""
    home, away = await Party(peer, "Arena").made(), await Party(peer, "Arena").made()
    await (await source(peer, stand.b, await away.handed(away.spot, 1))).give()
    join = Join(stand, peer, home, away)
    await join.admitted()
    return join


async def late(join: Join, ended: HandSource) -> None:
    """Everything that an identity may still send after its end; what the store says stays as it was."""
    before, answers = await join.rows(), len(ended.replies())
    for ordinal in range(len(ended.chunks)):
        ended.chunk(ordinal)
    ended.relay(join.home.message(join.actor, "never"))
    ended.cutover()
    await join.peer.settle(join.stand.b)
    assert await join.rows() == before
    assert len(ended.replies()) == answers


async def finished(join: Join, move: HandSource, before: tuple[VersionedRow, ...]) -> None:
    """The join ends by the one write of the one identity that lives: owner and both memberships (section 8)."""
    actor, left, entered = before
    move.relay(join.home.message(join.actor, "relayed"))
    move.cutover()
    await move.committed()
    after = await join.rows()
    mark = after[0].row.relocation
    assert mark is not None
    assert ((mark.high, mark.low), mark.outcome) == (move.relocation, MarkOutcome.COMMITTED)
    assert after[0].row.owner_generation == actor.row.owner_generation + 1
    assert after[0].row.object_generation == actor.row.object_generation
    assert after[0].row.membership == Membership(ObjectKind.USER_SPOT, entered.row.object_id, 1)
    name = join.actor[1:].decode()
    assert set(left.row.members) - set(after[1].row.members) == {name}
    assert set(after[2].row.members) - set(entered.row.members) == {name}
    assert [each.row.owner for each in after[1:]] == [left.row.owner, entered.row.owner]
    assert [each.row.owner_generation for each in after[1:]] == [1, 2]
    assert await join.peer.ask(join.stand.b, join.actor, "add", join.home.book, "there") > 0


@pytest.mark.parametrize("stage", ["nothing", "a part", "all but the last chunk"])
async def test_ct_32_a_new_identity_aborts_the_prewarm_of_an_older_one(
    stand: Stand, peer: Peer, stage: str
) -> None:
    """R11.2, B8.16: the row names both, and the older has not sent relay-ready."""
    join = await prepared_join(stand, peer)
    before = await join.rows()
    older, newer = await join.attempt(("older",)), await join.attempt(("newer",))
    older.prepare()
    for ordinal in range({"nothing": 0, "a part": 1}.get(stage, len(older.chunks) - 1)):
        older.chunk(ordinal)
    direct = peer.submit(stand.b, join.actor, "add", join.home.book, "direct")
    await peer.settle(stand.b)
    assert older.replies() == []
    newer.prepare()
    ended = await older.replied()
    assert isinstance(ended, RelocationFailed)
    assert ended.failure_code == ACTOR_STALE
    assert newer.replies() == []
    await late(join, older)
    newer.offer()
    assert isinstance(await newer.replied(), RelocationReady)
    assert await join.rows() == before
    await late(join, older)

    newest = await join.attempt(("newest",))  # what sent relay-ready is no prewarm any more
    newest.offer()
    assert isinstance(await newest.replied(), RelocationFailed)
    await late(join, newest)
    await finished(join, newer, before)
    assert (await peer.answer(direct)).value == 3
    assert stand.ran(join.home.book)[:3] == ["ann newer", "ann relayed", "ann direct"]
    assert "ann never" not in stand.ran(join.home.book)
    final = await join.rows()
    await late(join, older)
    assert await join.rows() == final


async def test_ct_32_the_row_decides_which_of_two_lives(stand: Stand, peer: Peer) -> None:
    """B8.16: not the one that came last. First the row names the older one alone, then the newcomer alone."""
    join = await prepared_join(stand, peer)
    before = await join.rows()
    older, stale = await join.attempt(), await join.attempt(version="of a row that is no more")
    older.prepare()
    older.chunk(0)
    stale.offer()
    refused = await stale.replied()
    assert isinstance(refused, RelocationFailed)
    assert refused.failure_code == ACTOR_STALE
    await late(join, stale)
    assert older.replies() == []
    assert await join.rows() == before

    await peer.write(fence_unit([before[0]], older.relocation))  # the source gave up the older one (B6.7)
    fenced = await join.rows()
    newcomer = await join.attempt(("newcomer",))
    newcomer.offer()
    assert isinstance(await newcomer.replied(), RelocationReady)
    assert isinstance(await older.replied(), RelocationFailed)
    await late(join, older)
    await finished(join, newcomer, fenced)
    assert stand.ran(join.home.book)[:2] == ["ann newcomer", "ann relayed"]


async def test_ct_32_the_write_is_rebuilt_when_a_spot_changed_meanwhile(stand: Stand, peer: Peer) -> None:
    """B6.5: Spots' rows stand under versions of their own, the Actor's under that of the fence alone."""
    join = await prepared_join(stand, peer)
    move = await join.attempt()
    await move.ready()
    _, left, entered = await join.rows()
    for each in (left, entered):
        await peer.write(rewrite_object(each, each.row))
    await finished(join, move, await join.rows())


async def test_a_join_that_cannot_be_is_refused_and_nothing_kept(stand: Stand, peer: Peer) -> None:
    """The Restore request of an Actor that was not admitted is an ordinary move: it stays in its Spot."""
    home, away = await Party(peer, "Arena").made(), await Party(peer, "Arena").made()
    hall = await Party(peer, "Hall").made()
    await hall.give(stand.b)
    join = Join(stand, peer, home, away)
    here = (await away.rows())[away.spot]
    halls = (await hall.rows())[hall.spot]
    stranger = (await stand.row(hall.spot)) or halls
    wrong = {
        (TerminalResult.NOT_FOUND, FailureCode.SPOT_ROUTE_NOT_FOUND): join.request(here),  # not of this node
        (TerminalResult.NOT_SUPPORTED, FailureCode.NONE): join.request(halls),  # one turn with its members
        (TerminalResult.CONFLICT, FailureCode.SPOT_GENERATION_STALE): join.request(halls, spot_generation=9),
        (TerminalResult.INVALID_ARGUMENT, FailureCode.NONE): join.request(halls, owner=stranger.row.owner),
    }
    for expected, request in wrong.items():
        answer = await join.asked(request)
        assert (answer.terminal_result, answer.failure_code) == expected
        assert answer.join_result == JoinRejected(spot_ref=None)
    before = await home.rows()
    move = await join.attempt()
    await move.give()
    after = await home.rows()
    assert after[join.actor].row.membership == before[join.actor].row.membership
    assert after[home.spot] == before[home.spot]
