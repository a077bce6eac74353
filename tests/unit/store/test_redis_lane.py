"""The way to Redis: errors before and after sending, reconnecting, time limits, grouping."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from sojourn.location import Applied, Found, IfMissing, Missing, Put, StoreUnavailable, StoreUnknown
from sojourn.store import redis_lane
from sojourn.store.redis import RedisLocationStore, RedisRelocationStore

from tests.redis_server import end_redis_server, free_port, running_redis_server, start_redis_server
from tests.unit.store.redis_fakes import FakeRedis, fake_redis

Open = Callable[..., RedisLocationStore]
MISSING = b"*1\r\n:1\r\n"
APPLIED = b"*2\r\n:1\r\n$1\r\n7\r\n"
PUT = Put("key", b"value")


@pytest.fixture
async def fake() -> AsyncIterator[FakeRedis]:
    async with fake_redis() as server:
        yield server


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    """Opens stores that are closed at the end."""
    stores: list[RedisLocationStore] = []

    def open_store(url: str, **settings: Any) -> RedisLocationStore:
        stores.append(RedisLocationStore(url, secrets.token_hex(8), **settings))
        return stores[-1]

    yield open_store
    for store in stores:
        await store.close()


async def test_a_server_that_is_not_there_is_named_and_nothing_was_changed(opened: Open) -> None:
    store = opened(f"redis://:secret@127.0.0.1:{free_port()}/0")
    for call in (store.read("key"), store.write([], [PUT]), store.scan("k")):
        with pytest.raises(
            StoreUnavailable, match=r"redis://…@127\.0\.0\.1:\d+/0 cannot be reached"
        ) as caught:
            await call
        assert caught.value.applied == "no"
        assert "secret" not in str(caught.value)


async def test_a_write_whose_answer_is_lost_is_unknown_and_a_read_is_asked_again(
    fake: FakeRedis, opened: Open
) -> None:
    store = opened(fake.url)
    fake.answer = lambda command: None
    with pytest.raises(StoreUnknown, match="was lost after a write was sent") as unknown:
        await store.write([], [PUT])
    assert unknown.value.applied == "unknown"
    assert len(fake.seen) == 1, "a write is never sent twice"
    answers = iter([None, MISSING])
    fake.answer = lambda command: next(answers)
    assert await store.read("key") == Missing(1)
    assert len(fake.seen) == 3
    fake.answer = lambda command: None
    with pytest.raises(StoreUnavailable) as unavailable:
        await store.read("key")
    assert unavailable.value.applied == "no"


async def test_a_server_that_is_silent_costs_one_time_limit(fake: FakeRedis, opened: Open) -> None:
    store = opened(fake.url, timeout_ms=80)
    fake.answer = lambda command: b""
    with pytest.raises(StoreUnknown, match=r"(did not|no) answer within"):
        await store.write([], [PUT])
    with pytest.raises(StoreUnavailable):
        await store.read("key")
    fake.answer = lambda command: APPLIED
    assert await store.write([], [PUT]) == Applied({"key": "7"})


async def test_calls_made_together_go_out_together(fake: FakeRedis, opened: Open) -> None:
    store = opened(fake.url)
    fake.answer = lambda command: APPLIED
    results = await asyncio.gather(*[store.write([], [Put(f"k{number}", b"")]) for number in range(500)])
    assert all(isinstance(result, Applied) for result in results)
    assert len(fake.seen) == 500
    assert fake.connections <= redis_lane.LANES


async def test_large_calls_are_not_grouped_without_end(fake: FakeRedis, opened: Open) -> None:
    store = opened(fake.url)
    fake.answer = lambda command: APPLIED
    large = bytes(redis_lane.GROUP_BYTES_MAX)
    await asyncio.gather(*[store.write([], [Put(f"k{number}", large)]) for number in range(4)])
    assert len(fake.seen) == 4


async def test_a_call_cancelled_before_it_was_sent_is_never_sent(fake: FakeRedis, opened: Open) -> None:
    store = opened(fake.url)
    task = asyncio.create_task(store.write([], [PUT]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    fake.answer = lambda command: MISSING
    await store.read("other")
    assert [command[3] for command in fake.seen] == [fake.seen[0][3]]
    assert b"other" in fake.seen[0][3]


async def test_a_caller_that_goes_away_does_not_disturb_the_answers_of_others(
    fake: FakeRedis, opened: Open
) -> None:
    store = opened(fake.url)
    sent = asyncio.get_running_loop().create_future()

    def answer(command: list[bytes]) -> bytes:
        if not sent.done():
            sent.set_result(None)
        return APPLIED

    fake.answer = answer
    first = asyncio.create_task(store.write([], [PUT]))
    second = asyncio.create_task(store.write([], [PUT]))
    await sent
    first.cancel()
    assert await second == Applied({"key": "7"})
    assert await store.write([], [PUT]) == Applied({"key": "7"})


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"-READONLY You can't write against a read only replica.\r\n", StoreUnavailable),
        (b"-LOADING Redis is loading the dataset in memory\r\n", StoreUnavailable),
        (b"-OOM command not allowed when used memory > 'maxmemory'.\r\n", StoreUnavailable),
        (b"-MISCONF Redis is configured to save RDB snapshots\r\n", StoreUnavailable),
        (b"-BUSY Redis is busy running a script.\r\n", StoreUnavailable),
        (b"-NOPERM this user has no permissions\r\n", StoreUnavailable),
        (b"-NOAUTH Authentication required.\r\n", StoreUnavailable),
        (b"-ERR something new in the middle of a script\r\n", StoreUnknown),
    ],
)
async def test_answers_that_refuse(
    fake: FakeRedis, opened: Open, answer: bytes, kind: type[Exception]
) -> None:
    store = opened(fake.url)
    fake.answer = lambda command: answer
    with pytest.raises(kind, match="refused a call") as caught:
        await store.write([], [PUT])
    assert type(caught.value) is kind
    with pytest.raises(StoreUnavailable):
        await store.read("key")
    fake.answer = lambda command: APPLIED
    assert isinstance(await store.write([], [PUT]), Applied)


async def test_closing_ends_what_is_out_as_unknown(fake: FakeRedis) -> None:
    store = RedisLocationStore(fake.url, "n")
    sent = asyncio.get_running_loop().create_future()

    def answer(command: list[bytes]) -> bytes:
        if not sent.done():
            sent.set_result(None)
        return b""

    fake.answer = answer
    write = asyncio.create_task(store.write([], [PUT]))
    await sent
    busy = [asyncio.create_task(store.write([], [PUT])) for _ in range(3)]
    for _ in range(3):
        await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StoreUnknown):
        await write
    for outcome in await asyncio.gather(*busy, return_exceptions=True):
        assert isinstance(outcome, StoreUnknown | StoreUnavailable)


async def test_calls_that_wait_when_the_store_closes_were_not_sent(fake: FakeRedis) -> None:
    store = RedisLocationStore(fake.url, "n")
    task = asyncio.create_task(store.write([], [PUT]))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StoreUnavailable) as caught:
        await task
    assert caught.value.applied == "no"
    assert fake.seen == []


async def test_an_idle_connection_that_ended_is_replaced_before_sending(
    fake: FakeRedis, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_lane, "IDLE_CHECK_S", -1.0)
    store = opened(fake.url)
    fake.answer = lambda command: APPLIED
    await store.write([], [PUT])
    await store.write([], [PUT])
    assert fake.connections == 1, "a good connection is kept"
    for writer in tuple(fake.writers):
        writer.close()
        await writer.wait_closed()
    for _ in range(5):
        await asyncio.sleep(0)
    assert await store.write([], [PUT]) == Applied({"key": "7"})
    assert fake.connections == 2


# with a real server


async def test_scripts_that_the_server_forgot_are_loaded_again(redis_url: str, opened: Open) -> None:
    store = opened(redis_url)
    await store.write([], [PUT])
    await store._lanes.call([b"SCRIPT", b"FLUSH"], writes=False)
    results = await asyncio.gather(
        *[store.write([IfMissing(f"k{n}")], [Put(f"k{n}", b"")]) for n in range(300)]
    )
    assert all(isinstance(result, Applied) for result in results)
    assert isinstance(await store.read("key"), Found)


async def test_a_server_without_script_memory_is_an_error(fake: FakeRedis, opened: Open) -> None:
    store = opened(fake.url)
    fake.answer = lambda command: b"-NOSCRIPT No matching script.\r\n"
    with pytest.raises(StoreUnavailable, match="does not keep its scripts"):
        await store.write([], [PUT])


@pytest.mark.heavy
async def test_a_server_that_comes_back_is_used_again(opened: Open, tmp_path: Path) -> None:
    with running_redis_server() as (server, port):
        store = opened(f"redis://127.0.0.1:{port}/0")
        assert isinstance(await store.write([], [PUT]), Applied)
        end_redis_server(server)
        with pytest.raises((StoreUnavailable, StoreUnknown)):
            await store.write([], [PUT])
        with pytest.raises(StoreUnavailable):
            await store.read("key")
        again = start_redis_server(port, tmp_path)
        assert again is not None
        try:
            assert isinstance(await store.read("key"), Missing), "this server keeps nothing"
            assert isinstance(await store.write([IfMissing("key")], [PUT]), Applied)
        finally:
            end_redis_server(again)


@pytest.mark.heavy
async def test_a_password_is_used_and_a_wrong_one_is_told(opened: Open) -> None:
    with running_redis_server() as (_, port):
        admin = opened(f"redis://127.0.0.1:{port}/0")
        await admin._lanes.call([b"CONFIG", b"SET", b"requirepass", b"right"], writes=True)
        assert isinstance(await opened(f"redis://:right@127.0.0.1:{port}/0").write([], [PUT]), Applied)
        for wrong in (f"redis://:wrong@127.0.0.1:{port}/0", f"redis://127.0.0.1:{port}/0"):
            with pytest.raises(StoreUnavailable) as caught:
                await opened(wrong).write([], [PUT])
            assert caught.value.applied == "no"
            assert "wrong@" not in str(caught.value)


@pytest.mark.heavy
async def test_a_full_or_demoted_server_refuses_before_anything_is_changed(opened: Open) -> None:
    with running_redis_server() as (_, port):
        store = opened(f"redis://127.0.0.1:{port}/0")
        await store.write([], [PUT])
        for on, off in (
            ([b"CONFIG", b"SET", b"maxmemory", b"1"], [b"CONFIG", b"SET", b"maxmemory", b"0"]),
            ([b"REPLICAOF", b"127.0.0.1", b"1"], [b"REPLICAOF", b"NO", b"ONE"]),
        ):
            await store._lanes.call(on, writes=True)
            with pytest.raises(StoreUnavailable, match="refused") as caught:
                await store.write([], [Put("a", b""), Put("b", b"")])
            assert caught.value.applied == "no"
            await store._lanes.call(off, writes=True)
        assert [row.key for row in (await store.scan("")).rows] == ["key"]


async def test_a_version_stays_later_than_those_of_a_server_that_forgot(redis_url: str, opened: Open) -> None:
    store = opened(redis_url)
    first = await store.write([], [PUT])
    await store._lanes.call([b"DEL", store._version, store._index, store._rows + b"key"], writes=True)
    second = await store.write([], [PUT])
    assert isinstance(first, Applied)
    assert isinstance(second, Applied)
    assert first.versions["key"] < second.versions["key"]


async def test_every_key_of_a_namespace_shares_one_hash_tag(redis_url: str) -> None:
    store = RedisLocationStore(redis_url, "tagged")
    blobs = RedisRelocationStore(redis_url, "tagged")
    await store.write([], [Put("a{b}c", b""), PUT])
    await blobs.put("ref", b"")
    keys = await store._lanes.call([b"KEYS", b"*tagged*"], writes=False)
    assert len(keys) == 5
    assert all(key.startswith(b"{sojourn:tagged}:") for key in keys)
    await store.close()
    await blobs.close()
