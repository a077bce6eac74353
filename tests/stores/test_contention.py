"""Many processes on the same rows: no lock error reaches a caller, and every version has one winner."""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from sojourn.location import Found, LocationStore
from sojourn.store import open_location_store
from sojourn.store.memory import MemoryLocationStore, MemoryRows

from tests.stores.contender import ATTEMPTS, KEYS, contend

ROOT = Path(__file__).parents[2]
CONTENDERS = 8


async def judge(store: LocationStore, won: list[list[str]]) -> None:
    """The counters show every win, and no version was replaced or written twice."""
    assert len(won) >= ATTEMPTS, "too few writes won for a fight"
    assert max(Counter((key, before) for key, before, _ in won).values()) == 1
    assert max(Counter((key, after) for key, _, after in won).values()) == 1
    wins = Counter(key for key, _, _ in won)
    for number in range(KEYS):
        found = await store.read(f"counter:{number}")
        assert isinstance(found, Found)
        assert int(found.value) == wins[f"counter:{number}"]


def fight(url: str, namespace: str) -> list[list[str]]:
    """Run the contenders as processes; everything they won."""
    command = [sys.executable, "-m", "tests.stores.contender", url, namespace]
    processes = [
        subprocess.Popen(
            [*command, str(number)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for number in range(CONTENDERS)
    ]
    won: list[list[str]] = []
    failures: list[str] = []
    for process in processes:
        output, errors = process.communicate()
        if process.returncode != 0:
            failures.append(errors)
        else:
            won += json.loads(output)
    assert not failures, failures[0]
    return won


@pytest.mark.heavy
async def test_processes_on_one_sqlite_file(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/store.db"
    won = await asyncio.to_thread(fight, url, "fight")
    store = open_location_store(url, "fight")
    await judge(store, won)
    await store.close()


@pytest.mark.heavy
async def test_processes_on_one_redis_server(redis_url: str) -> None:
    namespace = secrets.token_hex(8)
    won = await asyncio.to_thread(fight, redis_url, namespace)
    store = open_location_store(redis_url, namespace)
    await judge(store, won)
    await store.close()


async def test_tasks_on_one_memory() -> None:
    rows = MemoryRows()
    stores = [MemoryLocationStore(rows) for _ in range(CONTENDERS)]
    won = await asyncio.gather(*[contend(store, number) for number, store in enumerate(stores)])
    await judge(stores[0], [win for wins in won for win in wins])
