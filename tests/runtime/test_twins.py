"""Two nodes of one RID: the second is refused while the first is alive, and not when it has died (B1.1)."""

from __future__ import annotations

import asyncio

import pytest
from sojourn.errors import NotConfigured
from sojourn.ids import NodeRun
from sojourn.rows import HostState
from sojourn.workers.lease_keeper import LeaseKeeper
from sojourn.workers.links import Links
from sojourn.workers.program import reference_for
from sojourn.workers.supervisor import Supervisor

from tests.links.members import turn_until
from tests.runtime.cluster import Cluster, Config, cluster, hold_answer
from tests.runtime.fleet import Player, app


def twin(it: Cluster, rid: str = "n0") -> Supervisor:
    return Supervisor(Config(rid, it.options, reference_for(app), 1))


async def test_the_second_node_of_a_rid_is_refused_and_the_first_serves_on() -> None:
    async with cluster(nodes=2, workers=1) as it:
        player = await it.client.create(Player, "p", 3, at="n0")
        second = twin(it)
        with pytest.raises(NotConfigured, match=r"'n0' runs already, at 127\.0\.0\.1:\d+: .* \(--rid\)"):
            await second.start_node()
        assert second.state is HostState.STOPPED
        assert await player.request(Player.hit, 1) == 4
        assert (await player.relocate("n1")).outcome == "moved"
        assert (await player.relocate("n0")).outcome == "moved"  # still known, placed and dialled
        assert it.nodes["n1"].find_node(b"n0").run == it.nodes["n0"].run
        assert not it.journal.named("rid_in_use")


async def test_a_twin_that_is_refused_after_others_met_it_ends_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first did not answer at once: then the second has a lease and a descriptor, and the others dial it."""
    async with cluster(nodes=2, workers=1) as it:
        player = await it.client.create(Player, "p", 3, at="n0")
        first, other = it.nodes["n0"].run, it.nodes["n1"]
        looks = iter((False, True))
        answers = Links.answers

        async def slow(links: Links, run: NodeRun, endpoint: str) -> bool:
            return next(looks) and await answers(links, run, endpoint)

        monkeypatch.setattr(Links, "answers", slow)
        step = hold_answer(monkeypatch, LeaseKeeper, "put_first")
        second = twin(it)
        starting = asyncio.ensure_future(second.start_node())
        await step.wait()
        await other.links.ensure(second.run, second.links.endpoint)
        await turn_until(lambda: other.roster.get(second.run) is not None)
        assert other.roster.get(first) is not None
        assert other.find_node(b"n0").run == first
        step.release()
        with pytest.raises(NotConfigured, match="'n0' runs already"):
            await starting
        assert (await player.relocate("n1")).outcome == "moved"
        assert (await player.relocate("n0")).outcome == "moved"


async def test_a_node_that_died_is_started_again_at_once() -> None:
    """Its lease still stands, but nobody answers."""
    async with cluster(nodes=2, workers=1) as it:
        former = it.nodes["n0"].run
        await it.crash("n0")
        again = twin(it)
        await again.start_node()
        it.nodes["n0"] = again
        try:
            assert again.run.rid == former.rid
            assert again.run != former
            player = await it.client.create(Player, "p", 3, at="n0")
            assert await player.request(Player.hit, 1) == 4
        finally:
            await again.stop(2.0)


async def test_of_two_that_start_together_one_serves() -> None:
    async with cluster(nodes=1, workers=1) as it:
        both = [twin(it, "t"), twin(it, "t")]
        ended = await asyncio.gather(*(node.start_node() for node in both), return_exceptions=True)
        refused = [error for error in ended if error is not None]
        assert len(refused) == 1, ended
        assert isinstance(refused[0], NotConfigured)
        serving = [node for node in both if node.state is HostState.SERVING]
        assert len(serving) == 1
        await serving[0].stop(2.0)
