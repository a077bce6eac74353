"""One cluster for each module of fault tests, whole again before each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.contract.stand import NODE_WITH_LOG
from tests.faults.stand import FaultStand, faulty


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(
    request: pytest.FixtureRequest, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[FaultStand]:
    """The cluster of a module."""
    folder = tmp_path_factory.mktemp("faults")
    module = request.module
    program = getattr(module, "PROGRAM", NODE_WITH_LOG)
    async with faulty(folder, redis_url, program, **getattr(module, "OPTIONS", {})) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def it(nodes: FaultStand) -> AsyncIterator[FaultStand]:
    """The cluster, with every fault of a test mended behind it."""
    yield nodes
    await nodes.mend()
