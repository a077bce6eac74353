"""What somebody new gets wrong before anything has started: each error names the thing and the way out."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import sojourn as sj
from sojourn.store import parse_store_url

app = sj.App("newcomers")
OPTIONS = sj.Options(store_url="memory://newcomers", secret="0123456789abcdef")


@app.actor
class Player(sj.Actor):
    def __init__(self, score: int, *, name: str = "") -> None:
        self.score, self.name = score, name


class Unregistered(sj.Actor): ...


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
    arguments: tuple[Any, ...], named: dict[str, Any], says: str
) -> None:
    async with sj.Client(app, OPTIONS) as client:
        with pytest.raises(sj.InvalidOperation, match=says):
            await client.create(Player, "p", *arguments, **named)


async def test_a_class_or_a_node_that_nobody_knows() -> None:
    async with sj.Client(app, OPTIONS) as client:
        with pytest.raises(sj.NotConfigured, match=r"Unregistered is not registered: write @app\.actor over"):
            await client.create(Unregistered, "u")
        with pytest.raises(sj.Unavailable, match="no node can take actor 'p' of type 'Player'"):
            await client.create(Player, "p", 1)
