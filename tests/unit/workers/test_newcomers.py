"""What somebody new gets wrong before anything has started: each error names the thing and the way out."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import sojourn as sj
from sojourn.store import parse_store_url
from sojourn.workers.local_node import LocalNode
from sojourn.workers.program import ProgramReference

app = sj.App("newcomers")
SECRET = "0123456789abcdef"
PROGRAM = ProgramReference(module=__name__, attribute="app")


@app.actor
class Player(sj.Actor):
    def __init__(self, score: int, *, name: str = "") -> None:
        self.score, self.name = score, name


class Unregistered(sj.Actor): ...


@pytest.fixture
def options(tmp_path: Path) -> sj.Options:
    return sj.Options(store_url=f"sqlite:///{tmp_path / 'store.db'}", secret=SECRET)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"app": "app"}, r"a local cluster runs an App, LocalCluster\(app, \.\.\.\), not 'app'"),
        ({"nodes": 0}, "a local cluster has 1 to 64 nodes, not 0"),
        ({"nodes": "2"}, "a local cluster has 1 to 64 nodes, not '2'"),
        ({"workers": 0}, "option workers = 0 is out of range: allowed is 1 to 1024"),
        ({"options": {"wrkers": 1}}, "unknown option 'wrkers': did you mean workers"),
        ({"log_level": "LOUD"}, "log_level = 'LOUD' must be one of DEBUG, INFO"),
        ({"store": "memory://x"}, "memory:// lives in one process"),
        ({"app": sj.App("hidden")}, r"write `app = sj\.App\('hidden', \.\.\.\)` at the top level"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_cluster_that_cannot_start(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(sj.NotConfigured, match=says):
        sj.LocalCluster(**{"app": app, **arguments})


@pytest.mark.parametrize(
    ("arguments", "workers"),
    [
        ({}, 2),
        ({"options": {"cluster": "c"}}, 2),
        ({"options": {"workers": 3}}, 3),
        ({"options": sj.Options(workers=3)}, 3),
        ({"options": sj.Options()}, 1),
        ({"options": sj.Options(workers=3), "workers": 4}, 4),
    ],
)
async def test_how_many_workers_a_node_of_a_local_cluster_has(
    arguments: dict[str, Any], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    async def start(node: LocalNode) -> None:
        started.append(node._config.workers)

    async def connect(app: sj.App, options: sj.Options) -> sj.Client:
        raise sj.Rejected("the nodes are no processes")

    monkeypatch.setattr(LocalNode, "start", start)
    with pytest.raises(sj.Rejected):
        async with sj.LocalCluster(app, 2, connect=connect, program=PROGRAM, **arguments):
            pass
    assert started == [workers, workers]


async def test_a_client_with_a_store_that_no_node_can_share() -> None:
    options = sj.Options(store_url="memory://newcomers", secret=SECRET)
    with pytest.raises(sj.NotConfigured, match="memory:// lives in one process, and no node"):
        async with sj.Client(app, options):
            pass


def test_no_store_is_named() -> None:
    with pytest.raises(sj.NotConfigured, match=r"set option store_url .* use sqlite:///absolute/path"):
        parse_store_url("")


@pytest.mark.parametrize(
    ("arguments", "named", "says"),
    [
        ((), {}, r"^Player\(score: .*, \*, name: .* = ''\): missing a required argument: 'score'"),
        ((1, 2), {}, "too many positional arguments"),
        ((1,), {"nam": "x"}, "got an unexpected keyword argument 'nam'"),
        ((threading.Lock(),), {}, "the creation arguments of Player cannot be sent: cannot pickle"),
    ],
)
async def test_creation_arguments_are_checked_where_they_are_written(
    arguments: tuple[Any, ...], named: dict[str, Any], says: str, options: sj.Options
) -> None:
    async with sj.Client(app, options) as client:
        with pytest.raises(sj.InvalidOperation, match=says):
            await client.create(Player, "p", *arguments, **named)


async def test_a_class_or_a_node_that_nobody_knows(options: sj.Options) -> None:
    async with sj.Client(app, options) as client:
        with pytest.raises(sj.NotConfigured, match=r"Unregistered is not registered: write @app\.actor over"):
            await client.create(Unregistered, "u")
        with pytest.raises(sj.Unavailable, match="no node can take actor 'p' of type 'Player'"):
            await client.create(Player, "p", 1)
        for lost in (client.create(Player, "p", 1, at="mars"), client.actor(Player, "p").relocate(to="mars")):
            with pytest.raises(sj.NotConfigured, match="no node has the RID 'mars'; known: none"):
                await lost
