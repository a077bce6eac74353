"""One cluster for each module of contract tests. A module says with `NODES`, `OPTIONS` and `STORE` what it needs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.contract.peer import Peer, joined
from tests.contract.stand import Stand, standing


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stand]:
    """The cluster of a module."""
    module = request.module
    options = getattr(module, "OPTIONS", {})
    folder = tmp_path_factory.mktemp("contract")
    async with standing(folder, getattr(module, "NODES", 2), **options) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def peer(stand: Stand) -> AsyncIterator[Peer]:
    """A hand-made member, linked with every node."""
    await stand.whole()
    async with joined(stand) as member:
        yield member
