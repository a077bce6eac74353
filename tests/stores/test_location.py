"""The Location Store rules of B6.1, the same for every provider."""

from __future__ import annotations

import asyncio

import pytest
from sojourn.errors import InvalidOperation
from sojourn.location import (
    Applied,
    Condition,
    Conflict,
    Delete,
    Found,
    IfMissing,
    IfVersion,
    LocationStore,
    Missing,
    Mutation,
    Put,
    StoreRow,
    StoreUnavailable,
)

from tests.stores.providers import Provider


async def put(store: LocationStore, key: str, value: bytes = b"value", ttl_ms: int | None = None) -> str:
    """Write one row without a condition; its version."""
    result = await store.write([], [Put(key, value, ttl_ms)])
    assert isinstance(result, Applied)
    return result.versions[key]


async def version_of(store: LocationStore, key: str) -> str | None:
    found = await store.read(key)
    return found.version if isinstance(found, Found) else None


async def test_a_row_reads_back_as_it_was_written(store: LocationStore) -> None:
    value = bytes(range(256))
    version = await put(store, "key", value)
    found = await store.read("key")
    assert isinstance(found, Found)
    assert (found.value, found.version, found.expires_ms) == (value, version, None)


async def test_a_key_that_was_never_written_is_missing(store: LocationStore) -> None:
    missing = await store.read("key")
    assert isinstance(missing, Missing)
    assert missing.store_now_ms > 0


async def test_empty_values_and_odd_keys_are_rows_like_others(store: LocationStore) -> None:
    for key in ("ä", "a b", "%00", "x" * 1024, "\U0001f680", "a:b:{c}"):
        await put(store, key, b"")
        found = await store.read(key)
        assert isinstance(found, Found)
        assert found.value == b""


async def test_if_missing_holds_for_a_missing_row_only(store: LocationStore) -> None:
    assert isinstance(await store.write([IfMissing("key")], [Put("key", b"first")]), Applied)
    assert await store.write([IfMissing("key")], [Put("key", b"second")]) == Conflict("key")
    found = await store.read("key")
    assert isinstance(found, Found)
    assert found.value == b"first"


async def test_if_version_holds_for_exactly_that_version(store: LocationStore) -> None:
    first = await put(store, "key", b"1")
    second = await store.write([IfVersion("key", first)], [Put("key", b"2")])
    assert isinstance(second, Applied)
    assert second.versions["key"] != first
    assert await store.write([IfVersion("key", first)], [Put("key", b"3")]) == Conflict("key")
    assert await store.write([IfVersion("other", first)], [Put("other", b"3")]) == Conflict("other")
    assert await store.write([IfVersion("key", "")], []) == Conflict("key")


async def test_one_failed_condition_leaves_every_row_as_it_was(store: LocationStore) -> None:
    version = await put(store, "a")
    kept = await put(store, "kept")
    result = await store.write(
        [IfVersion("a", version), IfMissing("b"), IfMissing("kept")],
        [Put("a", b"changed"), Put("b", b"new"), Delete("kept")],
    )
    assert result == Conflict("kept")
    assert await version_of(store, "a") == version
    assert await version_of(store, "b") is None
    assert await version_of(store, "kept") == kept


async def test_the_first_failed_condition_is_named(store: LocationStore) -> None:
    await put(store, "b")
    await put(store, "c")
    assert await store.write([IfMissing("a"), IfMissing("b"), IfMissing("c")], []) == Conflict("b")


async def test_conditions_are_judged_before_the_mutations_of_the_same_write(store: LocationStore) -> None:
    version = await put(store, "key")
    result = await store.write([IfVersion("key", version)], [Delete("key"), Put("other", b"x")])
    assert isinstance(result, Applied)
    assert set(result.versions) == {"other"}
    assert await version_of(store, "key") is None
    assert isinstance(await store.write([IfMissing("key")], [Put("key", b"again")]), Applied)


async def test_a_condition_alone_is_a_check(store: LocationStore) -> None:
    version = await put(store, "key")
    assert await store.write([IfVersion("key", version)], []) == Applied({})
    assert await store.write([IfMissing("key")], []) == Conflict("key")
    assert await store.write([], []) == Applied({})


async def test_deleting_a_missing_row_is_no_error(store: LocationStore) -> None:
    assert await store.write([], [Delete("key")]) == Applied({})


async def test_a_put_without_ttl_takes_the_expiry_away(store: LocationStore, provider: Provider) -> None:
    await put(store, "key", ttl_ms=40)
    await put(store, "key")
    await provider.pass_time(60)
    assert await version_of(store, "key") is not None


async def test_versions_never_repeat_not_even_across_delete_and_reopening(provider: Provider) -> None:
    seen: set[str] = set()
    for _ in range(4):
        store = provider.location()
        for _ in range(5):
            for action in (b"1", b"2"):
                version = await put(store, "key", action)
                assert version not in seen
                seen.add(version)
            await store.write([], [Delete("key")])
        await store.close()


async def test_a_version_of_before_a_delete_does_not_hold_for_the_row_after(store: LocationStore) -> None:
    old = await put(store, "key", b"same")
    await store.write([IfVersion("key", old)], [Delete("key")])
    await put(store, "key", b"same")
    assert await store.write([IfVersion("key", old)], [Put("key", b"stale")]) == Conflict("key")


async def test_expiry_is_told_on_the_clock_of_the_store(store: LocationStore) -> None:
    await put(store, "key", ttl_ms=60_000)
    found = await store.read("key")
    assert isinstance(found, Found)
    assert found.expires_ms is not None
    assert 50_000 < found.expires_ms - found.store_now_ms <= 60_000


async def test_an_expired_row_is_missing_for_every_condition_and_read(
    store: LocationStore, provider: Provider
) -> None:
    version = await put(store, "lease", ttl_ms=30)
    await put(store, "lease2", ttl_ms=60_000)
    await provider.pass_time(40)
    assert isinstance(await store.read("lease"), Missing)
    assert await store.write([IfVersion("lease", version)], [Put("other", b"x")]) == Conflict("lease")
    assert [row.key for row in (await store.scan("lease")).rows] == ["lease2"]
    assert isinstance(await store.write([IfMissing("lease")], [Put("lease", b"new", 60_000)]), Applied)
    assert await version_of(store, "lease") not in (None, version)


async def test_renewing_keeps_a_row_alive(store: LocationStore, provider: Provider) -> None:
    version = await put(store, "lease", ttl_ms=500)
    for _ in range(3):
        await provider.pass_time(200)
        renewed = await store.write([IfVersion("lease", version)], [Put("lease", b"v", 500)])
        assert isinstance(renewed, Applied)
        version = renewed.versions["lease"]


async def test_scan_gives_keys_of_the_prefix_in_byte_order_page_by_page(store: LocationStore) -> None:
    inside = sorted(
        f"node:{name}" for name in ("", "a", "a:b", "b", "B", "ä", "\uffff", "\U0001f680", "10", "2")
    )
    inside.sort(key=lambda key: key.encode("utf-8"))
    await store.write(
        [], [Put(key, key.encode("utf-8")) for key in [*inside, "node", "node;", "nodf", "a", "zz"]]
    )
    for limit in (1, 3, 10, 100):
        rows: list[StoreRow] = []
        cursor = None
        while True:
            page = await store.scan("node:", cursor, limit)
            assert len(page.rows) <= limit
            rows += page.rows
            cursor = page.cursor
            if cursor is None:
                break
        assert [row.key for row in rows] == inside
        assert all(row.value == row.key.encode("utf-8") for row in rows)
    assert len((await store.scan("")).rows) == len(inside) + 5


async def test_scan_rows_carry_their_versions(store: LocationStore) -> None:
    version = await put(store, "node:a")
    (row,) = (await store.scan("node:")).rows
    assert row.version == version
    await store.write([], [Delete("node:a")])
    page = await store.scan("node:")
    assert page.rows == ()
    assert page.cursor is None
    assert page.store_now_ms > 0


async def test_a_scan_goes_on_past_rows_that_went_away(store: LocationStore) -> None:
    await store.write([], [Put(f"n:{number}", b"") for number in range(5)])
    page = await store.scan("n:", limit=2)
    assert page.cursor == "n:1"
    await store.write([], [Delete("n:1"), Delete("n:2")])
    assert [row.key for row in (await store.scan("n:", page.cursor)).rows] == ["n:3", "n:4"]


async def test_ten_thousand_and_one_keys_go_in_one_write(store: LocationStore) -> None:
    keys = [f"zla1:a:5:{number:05d}" for number in range(10_001)]
    first = await store.write([IfMissing(key) for key in keys], [Put(key, b"x" * 300) for key in keys])
    assert isinstance(first, Applied)
    conditions: list[Condition] = [IfVersion(key, first.versions[key]) for key in keys]
    changes: list[Mutation] = [Put(key, b"y" * 300) for key in keys]
    assert isinstance(await store.write(conditions, changes), Applied)
    assert await store.write(conditions, changes) == Conflict(keys[0])
    assert len((await store.scan("zla1:", limit=10_000)).rows) == 10_000


async def test_the_largest_write_works_and_a_larger_one_is_refused(store: LocationStore) -> None:
    mutations: list[Mutation] = [Put(f"k{number}", b"") for number in range(65_536)]
    assert isinstance(await store.write([], mutations), Applied)
    with pytest.raises(InvalidOperation, match="65536 keys, not 65537"):
        await store.write([IfMissing("one more")], mutations)
    with pytest.raises(InvalidOperation, match="bytes"):
        await store.write([], [Put("a", bytes(33 << 20)), Put("b", bytes(33 << 20))])


@pytest.mark.parametrize("key", ["", "x" * 1025, "a\x00b", "\ud800"])
async def test_bad_keys_are_refused_before_anything_happens(store: LocationStore, key: str) -> None:
    with pytest.raises(InvalidOperation):
        await store.read(key)
    with pytest.raises(InvalidOperation):
        await store.write([], [Put("good", b""), Put(key, b"")])
    with pytest.raises(InvalidOperation):
        await store.write([IfMissing(key)], [])
    assert await version_of(store, "good") is None


async def test_bad_arguments_are_refused(store: LocationStore) -> None:
    with pytest.raises(InvalidOperation, match="two mutations"):
        await store.write([], [Put("key", b""), Delete("key")])
    with pytest.raises(InvalidOperation, match="TTL"):
        await store.write([], [Put("key", b"", 0)])
    with pytest.raises(InvalidOperation, match="1 to 10000 rows"):
        await store.scan("n:", limit=0)
    with pytest.raises(InvalidOperation, match="cursor"):
        await store.scan("n:", "m:1")


async def test_namespaces_do_not_see_each_other(store: LocationStore, provider: Provider) -> None:
    other = provider.location("other")
    await put(store, "key", b"mine")
    assert isinstance(await other.read("key"), Missing)
    await put(other, "key", b"theirs")
    found = await store.read("key")
    assert isinstance(found, Found)
    assert found.value == b"mine"
    assert [row.value for row in (await other.scan("")).rows] == [b"theirs"]
    await other.close()


async def test_stores_over_the_same_rows_see_each_other_at_once(
    store: LocationStore, provider: Provider
) -> None:
    second = provider.location()
    version = await put(store, "key", b"1")
    assert isinstance(await second.write([IfVersion("key", version)], [Put("key", b"2")]), Applied)
    found = await store.read("key")
    assert isinstance(found, Found)
    assert found.value == b"2"
    await second.close()


async def test_of_many_writers_on_one_version_exactly_one_wins(store: LocationStore) -> None:
    version = await put(store, "key", b"0")
    results = await asyncio.gather(
        *[store.write([IfVersion("key", version)], [Put("key", str(n).encode())]) for n in range(50)]
    )
    assert [isinstance(result, Applied) for result in results].count(True) == 1
    results = await asyncio.gather(*[store.write([IfMissing("new")], [Put("new", b"")]) for _ in range(50)])
    assert [isinstance(result, Applied) for result in results].count(True) == 1


async def test_a_cancelled_write_is_whole_or_not_at_all_and_the_store_goes_on(store: LocationStore) -> None:
    for turn in range(20):
        keys = [f"{turn}:{number}" for number in range(20)]
        task = asyncio.create_task(store.write([], [Put(key, b"x") for key in keys]))
        for _ in range(turn % 5):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        page = await store.scan(f"{turn}:")
        assert len(page.rows) in (0, len(keys))
        await put(store, "after", b"")


async def test_after_close_every_call_is_refused(provider: Provider) -> None:
    store = provider.location()
    await put(store, "key")
    await store.close()
    await store.close()
    for call in (store.read("key"), store.write([], [Put("key", b"")]), store.scan("")):
        with pytest.raises(StoreUnavailable, match="closed") as caught:
            await call
        assert caught.value.applied == "no"


async def test_close_lets_calls_that_are_out_end(provider: Provider) -> None:
    store = provider.location()
    await put(store, "key")
    writes = [asyncio.create_task(store.write([], [Put(f"k{n}", b"")])) for n in range(20)]
    await asyncio.sleep(0)
    await store.close()
    for outcome in await asyncio.gather(*writes, return_exceptions=True):
        assert isinstance(outcome, Applied | StoreUnavailable | Exception)
