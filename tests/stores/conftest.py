"""Fixtures of the conformance suite: every test runs once for each provider."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sojourn.blobs import RelocationStore
from sojourn.location import LocationStore

from tests.stores.providers import MemoryProvider, Provider, SqliteProvider


@pytest.fixture(params=["memory", "sqlite"])
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> Provider:
    if request.param == "memory":
        return MemoryProvider()
    return SqliteProvider(tmp_path)


@pytest.fixture
async def store(provider: Provider) -> AsyncIterator[LocationStore]:
    opened = provider.location()
    yield opened
    await opened.close()


@pytest.fixture
async def blobs(provider: Provider) -> AsyncIterator[RelocationStore]:
    opened = provider.relocation()
    yield opened
    await opened.close()
