"""What holds for every test: the product's event loop, nothing left behind, heavy tests kept apart.

A test may leave no open file descriptor, child process, thread or asyncio task, and asyncio may have had no
error that it could only log. What the test's own fixtures have put away by then does not count; what fixtures
of a wider scope hold (a Redis server for the session) was there before and does not count either.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

import hypothesis
import pytest
import uvloop

from tests.hanging import Watchdog, limited
from tests.leaks import CheckedLoop, LoopErrors, adopt_orphans, what_is_left, what_is_there
from tests.redis_server import any_redis_url as any_redis_url
from tests.redis_server import redis_url as redis_url

HEAVY_FOLDERS = (
    "tests/cluster/",
    "tests/faults/",
    "tests/contract/",
    "tests/runtime/",
    "tests/processes/",
    "tests/packaging/",
    "tests/docs/",
)
"""Every test in these is heavy without saying so."""
SHARE_OF_TIMEOUT = 0.8
"""An async test is cancelled after this part of its timeout, and its other tasks are named.

For what blocks the loop pytest-timeout ends the whole process (method "thread"), since under uvloop a signal
does not wake a test that only waits. The watchdog is there for fixtures after a failure.
"""
SPARE_S = 20.0
"""How much longer than its timeout a test with its fixtures may take before the watchdog ends the process."""
watchdog_key = pytest.StashKey[Watchdog]()


hypothesis.settings.register_profile("busy", deadline=None, print_blob=True)
hypothesis.settings.register_profile(
    "repeatable", parent=hypothesis.settings.get_profile("busy"), derandomize=True
)
hypothesis.settings.load_profile("repeatable" if os.environ.get("CI") else "busy")
"""A busy machine makes single examples slow, which is no failure; what CI runs does not depend on chance."""


def pytest_configure(config: pytest.Config) -> None:
    adopt_orphans()
    config.stash[watchdog_key] = Watchdog(os.dup(2))
    uvloop.new_event_loop().close()  # libuv keeps one pipe for the whole process from its first loop on
    if config.getoption("dist", "no") == "load":
        config.option.dist = "loadgroup"
    if hasattr(config, "workerinput"):
        config.option.loadgroup = True  # a worker of pytest-xdist is told the command line only


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Async tests run on the loop that the product runs on."""
    return {"uvloop": CheckedLoop}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    grouped = config.pluginmanager.hasplugin("xdist")
    for item in items:
        if item.nodeid.startswith(HEAVY_FOLDERS):
            item.add_marker(pytest.mark.heavy)
        if grouped and item.get_closest_marker("heavy") is not None:
            item.add_marker(pytest.mark.xdist_group(_group_of(item)))
        if isinstance(item, pytest.Function) and asyncio.iscoroutinefunction(item.obj):
            item.obj = limited(item.obj, SHARE_OF_TIMEOUT * _timeout_s(item))
        if isinstance(item, pytest.Function) and _is_plain_async(item):
            item.fixturenames.insert(item.fixturenames.index("nothing_left") + 1, "no_task_left")


def _group_of(item: pytest.Item) -> str:
    """Installations may run beside clusters, but neither beside its like."""
    return "installing" if item.nodeid.startswith("tests/packaging/") else "heavy"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    watchdog = item.config.stash[watchdog_key]
    watchdog.expect(item.nodeid, _timeout_s(item) + SPARE_S)
    try:
        return (yield)
    finally:
        watchdog.expect("", None)


def _timeout_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    given = None if marker is None else (marker.args[0] if marker.args else marker.kwargs.get("timeout"))
    return float(item.config.getini("timeout") if given is None else given)


def _is_plain_async(item: pytest.Function) -> bool:
    """Whether a test is a coroutine on a loop of its own."""
    marker = item.get_closest_marker("asyncio")
    scope = "function" if marker is None else marker.kwargs.get("loop_scope", "function")
    return asyncio.iscoroutinefunction(item.obj) and scope == "function"


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compare what the process holds before and after a test."""
    before = what_is_there()
    with LoopErrors() as loop_errors:
        yield
    complaints = []
    if request.node.get_closest_marker("allow_leaks") is None:
        complaints += what_is_left(before)
    if request.node.get_closest_marker("allow_loop_errors") is None:
        complaints += loop_errors.texts
    if complaints:
        pytest.fail("the test left behind: " + "; ".join(complaints), pytrace=False)


@pytest.fixture
async def no_task_left(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """After a test and its async fixtures only this fixture's own task may be alive."""
    yield
    left: set[asyncio.Task[Any]] = set()
    for _ in range(50):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            return
        await asyncio.sleep(0)
    if request.node.get_closest_marker("allow_leaks") is None:
        pytest.fail("the test left tasks running: " + ", ".join(sorted(map(repr, left))), pytrace=False)


@pytest.fixture(autouse=True, scope="module")
def garbage_is_reported_here() -> Iterator[None]:
    """Have unclosed resources of a module's tests complained about while that module still runs."""
    yield
    gc.collect()


def pytest_report_header() -> str:
    return f"event loop: uvloop {version('uvloop')}, Python {sys.version.split()[0]}"
