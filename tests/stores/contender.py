"""One of several processes that fight over the same rows: `python -m tests.stores.contender URL NAMESPACE NUMBER`.

Increments counters by compare-and-set and prints what it won as JSON: [key, version replaced, version written].
Any error ends it with a traceback.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys

from sojourn.location import Applied, Condition, Found, IfMissing, IfVersion, LocationStore, Put
from sojourn.store import open_location_store

__all__ = ["ATTEMPTS", "KEYS", "contend"]

ATTEMPTS = 500
KEYS = 50


async def contend(store: LocationStore, number: int) -> list[list[str]]:
    """Try `ATTEMPTS` increments, four at a time; the won ones."""
    choice = random.Random(number)
    won: list[list[str]] = []

    async def attempt() -> None:
        key = f"counter:{choice.randrange(KEYS)}"
        found = await store.read(key)
        condition: Condition = IfMissing(key)
        count, version = 0, ""
        if isinstance(found, Found):
            count, version = int(found.value), found.version
            condition = IfVersion(key, version)
        result = await store.write([condition], [Put(key, b"%d" % (count + 1))])
        if isinstance(result, Applied):
            won.append([key, version, result.versions[key]])

    for _ in range(ATTEMPTS // 4):
        await asyncio.gather(*[attempt() for _ in range(4)])
    return won


async def _main(url: str, namespace: str, number: int) -> None:
    store = open_location_store(url, namespace, timeout_ms=30_000)
    try:
        print(json.dumps(await contend(store, number)))
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
