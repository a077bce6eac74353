"""Workers as their supervisor sees them: started, spoken to, watched, replaced, stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from sojourn.control import CallNode, CallNodeResult, Created, CreateObject, ErrorBody, Grant
from sojourn.errors import NotConfigured, Unavailable
from sojourn.frames import KIND_REPLY
from sojourn.workers.pool import WorkerPool
from sojourn.workers.worker_run import WorkerPlan

from tests.processes.fake_host import make_host, order
from tests.processes.pools import ARENA, Story, arena, running_pool, welcome


class LogLineSeen(logging.Handler):
    """Waits for a log line."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self._seen = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self._seen.set()

    async def wait(self) -> None:
        logging.getLogger().addHandler(self)
        try:
            async with asyncio.timeout(20):
                await self._seen.wait()
        finally:
            logging.getLogger().removeHandler(self)


def create(key: bytes) -> Callable[[int], CreateObject]:
    return lambda call: CreateObject(call, key, 1, "Player", 1, 1, True)


async def test_workers_report_what_they_host_and_take_work(tmp_path: Path) -> None:
    story = Story()
    pool = WorkerPool(WorkerPlan(arena(tmp_path), host_factory=make_host), 2, story.events)
    application = await pool.start()
    try:
        assert (application.name, application.version) == ("arena", 3)
        assert [entry.stable_type for entry in application.registry] == ["Player"]
        assert pool.running() == []
        assert not pool.send(0, order("echo early"))
        pool.welcome(welcome)
        assert story.ready == [0, 1]
        assert len(set(pool.pids())) == 2
        for worker in range(2):
            assert pool.send(worker, order("identity"))
        await story.until(lambda: len(story.frames) == 2)
        assert sorted(story.frames) == [(0, order("n1/0 arena")), (1, order("n1/1 arena"))]
    finally:
        await pool.stop(3)
    assert story.lost == []
    assert pool.pids() == []


async def test_frames_of_every_kind_keep_their_order(tmp_path: Path) -> None:
    async with running_pool(arena(tmp_path)) as (pool, story):
        for number in range(2_000):
            pool.send(0, order(f"echo {number}"))
        large = "x" * 200_000
        pool.send(0, order(f"echo {large}"))
        pool.send(0, bytes((KIND_REPLY,)) + b"reply")
        chunks = [os.urandom(300_000) for _ in range(5)]
        for position, chunk in enumerate(chunks):
            pool.send_bulk(0, 9, position == 4, memoryview(chunk))
        pool.send(0, order("grant"))
        await story.until(lambda: story.bulk and story.controls)
        assert story.said() == [*map(str, range(2_000)), large, "reply"]
        assert story.bulk == [b"".join(chunks)]
        assert story.controls == [(0, Grant(3, 30))]


async def test_calls_get_their_own_answers(tmp_path: Path) -> None:
    async with running_pool(arena(tmp_path)) as (pool, _):
        answers = await asyncio.gather(*(pool.call(0, create(key)) for key in (b"sa", b"sno", b"sb")))
        assert [type(answer) for answer in answers] == [Created] * 3
        assert [answer.error is None for answer in answers] == [True, False, True]


async def test_a_worker_asks_its_node(tmp_path: Path) -> None:
    async with running_pool(arena(tmp_path)) as (pool, story):
        pool.send(0, order("ask relocate"))
        pool.send(0, order("ask refuse"))
        await story.until(lambda: len(story.controls) == 2)
        for worker, message in story.controls:
            assert isinstance(message, CallNode)
            assert msgspec.msgpack.decode(message.arguments) == {"to": "n2"}
            refused = message.operation == "refuse"
            error = ErrorBody("Rejected", {"message": "not now"}) if refused else None
            pool.control(worker, CallNodeResult(message.call, msgspec.msgpack.encode(["moved"]), error))
        await story.until(lambda: len(story.frames) == 2)
        assert story.said() == ["['moved']", "Rejected('not now')"]


async def test_logs_go_through_the_supervisor(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    program = arena(tmp_path, ARENA + "import logging\nlogging.getLogger('arena').warning('imported')\n")
    async with running_pool(program) as (pool, story):
        pool.send(0, order("log hello"))
        pool.send(0, order("echo done"))
        await story.until(lambda: story.frames)
    lines = {record.getMessage(): record for record in caplog.records if record.name == "arena"}
    first, *rest = lines
    assert first == "imported"
    assert [text.partition("\n")[0] for text in rest] == [
        "hello",
        "it went wrong",
        "closing because of HostShutdown",
    ]
    assert "ValueError: inner" in rest[1]
    assert (vars(lines["hello"])["worker"], vars(lines["hello"])["relocation"]) == (0, "r1")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("exit 3", "it ended with exit code 3"),
        ("exit 0", "it ended with exit code 0"),
        ("leave 4", "it ended with exit code 4"),
        ("raise broken", "it ended with exit code 1"),
        ("babble", "its connection failed: a frame of kind 9 does not belong on worker IPC"),
    ],
)
async def test_a_worker_that_ends_is_noticed_and_replaced(tmp_path: Path, words: str, reason: str) -> None:
    async with running_pool(arena(tmp_path), 2) as (pool, story):
        before = pool.pids()
        pending = pool.call(0, create(b"shang"))
        pool.send(0, order(words))
        await story.until(lambda: story.lost)
        assert story.lost == [(0, reason)]
        with pytest.raises(Unavailable, match=reason) as failure:
            await pending
        assert failure.value.applied == "unknown"
        with pytest.raises(Unavailable) as refused:
            await pool.call(0, create(b"sx"))
        assert refused.value.applied == "no"
        await story.until(lambda: len(story.ready) == 3)
        assert pool.pids()[0] not in before
        assert pool.pids()[1] == before[1]
        pool.send(0, order("identity"))
        await story.until(lambda: story.said(0))
        assert story.said(0)[-1] == "n1/0 arena"


async def test_a_killed_worker_is_noticed_within_a_second(tmp_path: Path) -> None:
    async with running_pool(arena(tmp_path)) as (pool, story):
        started = time.monotonic()
        os.kill(pool.pids()[0], signal.SIGKILL)
        await story.until(lambda: story.lost)
        assert time.monotonic() - started < 1
        assert story.lost == [(0, "it was ended by SIGKILL")]


@pytest.mark.parametrize("words", ["spin", "compute"])
async def test_a_silent_worker_shows_its_stack_and_is_killed(
    tmp_path: Path, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_pool(arena(tmp_path), silent_s=0.3, unresponsive_s=1.2) as (pool, story):
        pool.send(0, order(words))
        await story.until(lambda: story.lost)
        assert story.lost == [(0, "it did not answer for 1.2 s")]
    texts = [record.getMessage() for record in caplog.records if "is silent for" in record.getMessage()]
    assert len(texts) == 1
    assert 'fake_host.py", line' in texts[0] or words == "compute"
    assert "most recent call first" in texts[0]


async def test_a_stopped_worker_that_comes_back_in_time_lives_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_pool(arena(tmp_path), silent_s=0.2, unresponsive_s=60) as (pool, story):
        pid = pool.pids()[0]
        os.kill(pid, signal.SIGSTOP)
        pool.send(0, order("echo after"))
        asyncio.get_running_loop().call_later(0.6, os.kill, pid, signal.SIGCONT)
        await story.until(lambda: story.frames)
        assert story.lost == []
        assert pool.pids() == [pid]


@pytest.mark.parametrize("words", ["spin", "compute"])
async def test_a_busy_worker_cannot_hold_up_the_stop(tmp_path: Path, words: str) -> None:
    async with running_pool(arena(tmp_path)) as (pool, story):
        pool.send(0, order(words))
        await story.until(lambda: story.frames)
        started = time.monotonic()
        await pool.stop(1)
        assert time.monotonic() - started < 2
        assert pool.pids() == []
        assert story.lost == []


async def test_a_host_that_never_closes_is_ended(tmp_path: Path) -> None:
    async with running_pool(arena(tmp_path)) as (pool, _):
        started = time.monotonic()
        await pool.stop(0.8, "never")
        assert time.monotonic() - started < 2
        assert pool.pids() == []


async def test_a_second_stop_cuts_the_first_short(tmp_path: Path) -> None:
    async with running_pool(arena(tmp_path)) as (pool, _):
        first = asyncio.ensure_future(pool.stop(60, "never"))
        await asyncio.sleep(0)
        started = time.monotonic()
        await pool.stop(0)
        await first
        assert time.monotonic() - started < 2


async def test_sigterm_is_a_clean_stop_of_a_worker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_pool(arena(tmp_path)) as (pool, story):
        pool.send(0, order("echo"))
        await story.until(lambda: story.frames)
        os.kill(pool.pids()[0], signal.SIGTERM)
        await story.until(lambda: story.lost)
        assert story.lost == [(0, "it ended with exit code 0")]
    assert any(record.getMessage() == "closing because of HostShutdown" for record in caplog.records)


async def test_workers_ignore_ctrl_c(tmp_path: Path) -> None:
    async with running_pool(arena(tmp_path)) as (pool, story):
        os.kill(pool.pids()[0], signal.SIGINT)
        pool.send(0, order("echo here"))
        await story.until(lambda: story.frames)
        assert story.lost == []


async def test_a_program_that_changed_meanwhile_is_not_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_pool(arena(tmp_path)) as (pool, story):
        arena(tmp_path, ARENA.replace("class Player", "class Champion"))
        os.kill(pool.pids()[0], signal.SIGKILL)
        await story.until(lambda: story.lost)
        refusal = "its registered types changed: Champion, Player"
        await LogLineSeen(refusal).wait()
        assert pool.running() == []
        arena(tmp_path, ARENA)
        await story.until(lambda: len(story.ready) == 2)


START_FAILURES = {
    "raises": ("raise RuntimeError('boom')", "RuntimeError: boom"),
    "exits": ("raise SystemExit(3)", "SystemExit: 3"),
    "missing import": ("import nowhere_to_be_found", "No module named 'nowhere_to_be_found'"),
    "no app": ("x = 1", "arena has no app 'app'; it has no App at its top level"),
    "other name": (
        ARENA.replace("app =", "application =").replace("@app", "@application"),
        "it has: application",
    ),
    "not an app": ("app = 5", "arena:app is a int, not a sojourn App"),
}


@pytest.mark.parametrize("name", START_FAILURES)
async def test_a_program_that_cannot_be_used_is_a_typed_error(tmp_path: Path, name: str) -> None:
    text, expected = START_FAILURES[name]
    with pytest.raises(NotConfigured, match=expected):
        async with running_pool(arena(tmp_path, text), 2):
            pass


async def test_the_traceback_of_a_failed_import_starts_in_the_users_program(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured) as failure:
        async with running_pool(arena(tmp_path, "def f():\n    return 1 / 0\nf()\n")):
            pass
    text = failure.value.remote_traceback
    assert text is not None
    assert text.splitlines()[1].endswith('arena.py", line 3, in <module>')
    assert text.endswith("ZeroDivisionError: division by zero\n")


async def test_an_import_that_never_ends_is_a_typed_error_with_its_stack(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured, match=r"has not finished importing .*arena:app within 2 s") as failure:
        async with running_pool(arena(tmp_path, "import time\ntime.sleep(600)\n"), start_s=2):
            pass
    assert 'arena.py", line 2' in (failure.value.remote_traceback or "")


async def test_a_worker_that_dies_while_it_starts_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="worker 0 ended before it was ready: it ended with exit code 9"):
        async with running_pool(arena(tmp_path, "import os\nos._exit(9)\n")):
            pass


async def test_a_cancelled_start_leaves_nothing(tmp_path: Path) -> None:
    story = Story()
    program = arena(tmp_path, "import time\ntime.sleep(600)\n")
    pool = WorkerPool(WorkerPlan(program, host_factory=make_host), 2, story.events)
    start = asyncio.ensure_future(pool.start())
    for _ in range(5):
        await asyncio.sleep(0)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert pool.pids() == []


def test_the_logger_of_workers_is_not_silenced() -> None:
    assert logging.getLogger("sojourn.workers").propagate
