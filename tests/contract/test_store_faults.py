"""CT-19 to CT-21: the Location Store does not answer, answers nothing certain, or answers too late."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import msgspec
import pytest
import pytest_asyncio
from sojourn.ids import actor_key
from sojourn.rows import RowState

from tests.contract.app import Member
from tests.contract.hands import ledger_at, source, take
from tests.contract.peer import Peer
from tests.contract.session_owner import SessionOwner
from tests.contract.stand import Stand, fresh, standing
from tests.contract.store_proxy import StoreProxy, before_redis

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.allow_leaks("the node's new connections through the proxy stay"),
]
DEADLINE_MS = 1500


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(redis_url: str) -> AsyncIterator[StoreProxy]:
    """The way of the second node to its store."""
    port = urlsplit(redis_url).port
    assert port is not None
    async with before_redis(port) as between:
        yield between


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(
    redis_url: str, proxy: StoreProxy, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stand]:
    """Two nodes on one Redis server, the second through the proxy."""
    folder = tmp_path_factory.mktemp("contract")
    async with standing(folder, 1, store=redis_url, cluster=folder.name) as running:
        options = msgspec.structs.replace(
            running.cluster.options, store_url=f"redis://127.0.0.1:{proxy.port}/0"
        )
        await running.cluster.add_node(options=options)
        yield running


@pytest.mark.parametrize("fault", ["refused", "answer lost", "refused, then answer lost"])
async def test_ct_19_the_same_cas_is_retried_until_it_is_known(
    stand: Stand, peer: Peer, proxy: StoreProxy, fault: str
) -> None:
    """Refused = nothing was changed or nobody knows; answer lost = it was changed, and only a re-read tells."""
    key = await ledger_at(peer, stand.a)
    taken = await take(peer, stand.a, key)
    move = await source(peer, stand.b, taken, [peer.saved(key, "note", "saved")])
    await move.ready()
    met = proxy.met
    proxy.refuse = 3 if "refused" in fault else 0
    proxy.lose = 1 if "lost" in fault else 0
    move.cutover()
    final = await move.committed()
    assert final.row.owner_generation == taken.row.row.owner_generation + 1
    assert final.row.relocation is not None
    assert (final.row.relocation.high, final.row.relocation.low) == move.relocation
    assert await peer.ask(stand.b, key, "history") == ["saved"]
    assert proxy.met - met >= (4 if "refused" in fault else 1)
    assert not stand.log.events("location_update_failed", about=move.name)
    proxy.come_back()


async def test_ct_20_unconfirmed_at_the_deadline_everything_is_removed(
    stand: Stand, peer: Peer, proxy: StoreProxy
) -> None:
    """R4.5.3."""
    key = await ledger_at(peer, stand.a)
    taken = await take(peer, stand.a, key)
    move = await source(peer, stand.b, taken, [peer.saved(key, "note", "saved")])
    move.offer(DEADLINE_MS)
    await move.ready()
    direct = peer.submit(stand.b, key, "add", "direct")
    await peer.settle(stand.b)
    proxy.go_away = True
    move.cutover()
    event = await stand.event("location_update_failed", move.name)
    assert event.level == "ERROR"
    answer = await peer.answer(direct)
    assert (answer.error, answer.applied) == ("Unavailable", "no")
    proxy.come_back()
    assert await stand.row(key) == taken.row
    move.offer()  # an ended identity, and a CAS was issued: no answer, no second life
    move.cutover()
    await peer.settle(stand.b)
    assert len(move.replies()) == 1
    assert stand.ran(key[1:].decode()) == []
    again = await source(peer, stand.b, taken)
    await again.give()
    assert await peer.ask(stand.b, key, "add", "afterwards") == 1


async def test_ct_20_an_unconfirmed_target_tells_no_session(
    stand: Stand, peer: Peer, proxy: StoreProxy
) -> None:
    owner = SessionOwner(peer)
    name = fresh("member")
    await stand.client.create(Member, name, at=stand.a.rid)
    key = actor_key(name)
    client = await owner.client(stand.a, key)
    move = await source(peer, stand.b, await take(peer, stand.a, key))
    move.offer(DEADLINE_MS)
    await move.ready()
    proxy.go_away = True
    move.cutover()
    await stand.event("location_update_failed", move.name)
    proxy.come_back()
    await peer.settle(stand.b)
    assert owner.routes == []
    assert client.story == []
    assert owner.desk.sealed() == 1, "it ends by itself, when its time is over"
    owner.desk.close()


async def test_ct_21_saved_work_of_a_commit_that_nobody_saw_ends(
    stand: Stand, peer: Peer, proxy: StoreProxy
) -> None:
    """No 31 and no 34 came, and the write was carried out behind the target's deadline: its source reads a commit and
    ends nothing. The target reads it too, marks the object lost and ends what it had kept by name (B6.8, B8.15)."""
    key = await ledger_at(peer, stand.a)
    taken = await take(peer, stand.a, key)
    route = peer.new_route()
    work = [peer.saved(key, "note", "saved"), peer.saved(key, "add", "asked", route=route)]
    move = await source(peer, stand.b, taken, work)
    move.offer(DEADLINE_MS)
    await move.ready()
    proxy.keep_answer()
    await move.committed()  # by the fallback
    await stand.event("location_update_failed", move.name)
    assert route not in peer.answers
    proxy.come_back()
    answer = await peer.answer(route)
    assert (answer.error, answer.applied) == ("DataLost", "no")
    lost = await stand.row_when(key, lambda found: found.row.state is RowState.LOST)
    assert lost.row.owner.run == stand.run_of(stand.b)
    assert stand.ran(key[1:].decode()) == []
    dead = await stand.event("dead_letter", move.name)
    assert dead.fields["messages"] == "1"


async def test_ct_21_a_late_answer_revives_nothing(stand: Stand, peer: Peer, proxy: StoreProxy) -> None:
    """The write was carried out, but the target learned it only after its deadline: nothing runs, the id is lost."""
    key = await ledger_at(peer, stand.a)
    taken = await take(peer, stand.a, key)
    move = await source(peer, stand.b, taken, [peer.saved(key, "note", "saved")])
    move.offer(DEADLINE_MS)
    await move.ready()
    direct = peer.submit(stand.b, key, "add", "direct")
    await peer.settle(stand.b)
    proxy.keep_answer()
    move.cutover()
    await move.committed()
    await stand.event("location_update_failed", move.name)
    proxy.come_back()
    assert (await peer.answer(direct)).error == "Unavailable"
    assert (await peer.answer(peer.submit(stand.b, key, "add", "later"))).error == "DataLost"
    lost = await stand.row_when(key, lambda found: found.row.state is RowState.LOST)
    assert lost.row.owner.run == stand.run_of(stand.b)
    assert stand.ran(key[1:].decode()) == []
    assert len(move.replies()) == 1
