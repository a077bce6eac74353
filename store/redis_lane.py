"""The way to a Redis server: a few connections, each carrying groups of calls.

Owns connecting, grouping, timeouts and the mapping of every foreign error: before a call was sent it is
`StoreUnavailable`, afterwards, for a write, `StoreUnknown`. It must not know what the calls mean.
"""

from __future__ import annotations

import asyncio
import importlib.resources
from collections import deque
from hashlib import sha1
from typing import Any

from redis.asyncio import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from sojourn.location import StoreUnavailable, StoreUnknown
from sojourn.store.limits import closed_error
from sojourn.store.urls import without_password

__all__ = ["RedisLanes", "Script"]

LANES = 2
"""Connections of one store: one can be filled while the other waits for its answers."""

GROUP_MAX = 128
"""Most calls in one group."""

GROUP_BYTES_MAX = 1024 * 1024
"""A group that has reached this many bytes takes no further call."""

IDLE_CHECK_S = 1.0
"""A connection unused for longer is checked before something is sent on it."""

NOT_RUN = (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    TryAgainError,
)
NOT_RUN_WORDS = ("BUSY ", "MISCONF ", "NOREPLICAS ")
"""Answers with which Redis refuses a script before its first change."""


class Script:
    """A Lua script of this package, called by its digest."""

    def __init__(self, name: str) -> None:
        self.text = importlib.resources.files("sojourn.store").joinpath(f"{name}.lua").read_bytes()
        self.digest = sha1(self.text, usedforsecurity=False).hexdigest().encode("ascii")


class _Call:
    __slots__ = ("arguments", "attempts", "future", "sent", "size", "writes")

    def __init__(self, arguments: list[bytes], writes: bool, future: asyncio.Future[Any]) -> None:
        self.arguments = arguments
        self.writes = writes
        self.future = future
        self.sent = False
        self.attempts = 0
        self.size = sum(map(len, arguments))

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class RedisLanes:
    """Calls to one Redis server, as few round trips as possible.

    Args:
        url: `redis://`, `rediss://` or `unix://`.
        scripts: loaded on every new connection.
        timeout_ms: longest wait of a caller, connecting included.
    """

    def __init__(self, url: str, scripts: tuple[Script, ...], timeout_ms: int) -> None:
        self.name = without_password(url)
        self._scripts = scripts
        self._timeout_s = timeout_ms / 1000
        self._pool = ConnectionPool.from_url(
            url,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=self._timeout_s,
            socket_timeout=None,
            protocol=2,
        )
        self._waiting: deque[_Call] = deque()
        self._free = [_Lane(self) for _ in range(LANES)]
        self._lanes = tuple(self._free)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def call(self, arguments: list[bytes], *, writes: bool) -> Any:
        """Send one command and return its answer.

        Raises:
            StoreUnavailable: nothing was changed.
            StoreUnknown: a write was sent and its answer did not come.
        """
        if self._closed:
            raise closed_error(self.name)
        loop = asyncio.get_running_loop()
        call = _Call(arguments, writes, loop.create_future())
        timer = loop.call_later(self._timeout_s, self._expire, call)
        self._waiting.append(call)
        self._start_lane()
        try:
            return await call.future
        finally:
            timer.cancel()

    async def run(self, script: Script, keys: list[bytes], arguments: list[bytes], *, writes: bool) -> Any:
        """Run a script."""
        command = [b"EVALSHA", script.digest, str(len(keys)).encode("ascii"), *keys, *arguments]
        return await self.call(command, writes=writes)

    async def close(self) -> None:
        """End what is out (its outcome is unknown) and close the connections."""
        self._closed = True
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self._waiting:
            self._waiting.popleft().fail(closed_error(self.name))
        for lane in self._lanes:
            await lane.disconnect(wait=True)

    def make_connection(self) -> Any:
        """A connection that is not connected yet."""
        return self._pool.make_connection()  # type: ignore[no-untyped-call]

    @property
    def scripts(self) -> tuple[Script, ...]:
        """What every connection has to load."""
        return self._scripts

    @property
    def timeout_s(self) -> float:
        """Longest exchange on a connection."""
        return self._timeout_s

    def lost(self, call: _Call, cause: object) -> None:
        """End a call whose answer will not come: again where that is safe, else with the error that fits."""
        call.attempts += 1
        if (
            not call.future.done()
            and call.attempts < 2
            and not self._closed
            and (not call.writes or not call.sent)
        ):
            call.sent = False
            self._waiting.appendleft(call)
            return
        if call.writes and call.sent:
            call.fail(
                StoreUnknown(
                    f"the store {self.name} was lost after a write was sent: {cause}", applied="unknown"
                )
            )
        else:
            call.fail(StoreUnavailable(f"the store {self.name} cannot be reached: {cause}", applied="no"))

    def take_group(self) -> list[_Call]:
        """The next calls that go out together."""
        group: list[_Call] = []
        size = 0
        while self._waiting and len(group) < GROUP_MAX and size < GROUP_BYTES_MAX:
            call = self._waiting.popleft()
            # Cancelled or out of time before it was sent: it never is.
            if not call.future.done():
                group.append(call)
                size += call.size
        return group

    def _start_lane(self) -> None:
        if self._free and not self._closed:
            task = asyncio.create_task(self._drain(self._free.pop()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _drain(self, lane: _Lane) -> None:
        """Exchange group after group while calls wait; the lane is free again at the end."""
        try:
            while group := self.take_group():
                await lane.exchange(group)
        finally:
            self._free.append(lane)

    def _expire(self, call: _Call) -> None:
        waited = f"did not answer within {self._timeout_s * 1000:.0f} ms"
        if call.writes and call.sent:
            call.fail(StoreUnknown(f"the store {self.name} {waited}", applied="unknown"))
        else:
            call.fail(StoreUnavailable(f"the store {self.name} {waited}", applied="no"))


class _Lane:
    """One connection."""

    def __init__(self, lanes: RedisLanes) -> None:
        self._lanes = lanes
        self._connection: Any = None
        self._has_scripts = False
        self._used_at = 0.0

    async def exchange(self, group: list[_Call]) -> None:
        """Send a group and hand out its answers. Only cancellation gets out of here."""
        answered = 0
        not_known: list[_Call] = []
        try:
            async with asyncio.timeout(self._lanes.timeout_s):
                await self._connect()
                for call in group:
                    call.sent = True
                await self._connection.send_packed_command(
                    self._connection.pack_commands([call.arguments for call in group]), check_health=False
                )
                for call in group:
                    answer = await self._answer()
                    answered += 1
                    if isinstance(answer, NoScriptError):
                        not_known.append(call)
                    else:
                        self._settle(call, answer)
            self._used_at = asyncio.get_running_loop().time()
        except TimeoutError:
            await self.disconnect()
            self._lose(group[answered:], f"no answer within {self._lanes.timeout_s:g} s")
        except Exception as error:
            # Whatever the client library raises: the connection is in no known state.
            await self.disconnect()
            self._lose(group[answered:], str(error) or repr(error))
        except asyncio.CancelledError:
            self._lose(group[answered:], "it was closed")
            await self.disconnect()
            raise
        finally:
            for call in not_known:
                call.sent = False
            self._has_scripts = self._has_scripts and not not_known
            self._lose(not_known, "it does not keep its scripts")

    def _lose(self, calls: list[_Call], cause: str) -> None:
        # The last first: those that are tried again go to the head of the queue.
        for call in reversed(calls):
            self._lanes.lost(call, cause)

    async def disconnect(self, *, wait: bool = False) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        self._has_scripts = False
        if connection is not None:
            await connection.disconnect(nowait=not wait)

    async def _connect(self) -> None:
        idle = asyncio.get_running_loop().time() - self._used_at > IDLE_CHECK_S
        if self._connection is not None and idle and not await self._is_alive():
            await self.disconnect()
        if self._connection is None:
            self._connection = self._lanes.make_connection()
            await self._connection.connect()
        if not self._has_scripts:
            await self._load_scripts()

    async def _is_alive(self) -> bool:
        """Whether an idle connection still answers: better found out before a write is sent on it."""
        try:
            await self._connection.send_packed_command(
                self._connection.pack_command(b"PING"), check_health=False
            )
            await self._answer()
        except (RedisError, OSError):
            return False
        return True

    async def _load_scripts(self) -> None:
        commands = [[b"SCRIPT", b"LOAD", script.text] for script in self._lanes.scripts]
        await self._connection.send_packed_command(
            self._connection.pack_commands(commands), check_health=False
        )
        for _ in commands:
            await self._connection.read_response(disable_decoding=True)
        self._has_scripts = True

    async def _answer(self) -> Any:
        try:
            return await self._connection.read_response(disable_decoding=True)
        except (ResponseError, AuthenticationError, BusyLoadingError) as error:
            return error

    def _settle(self, call: _Call, answer: Any) -> None:
        if not isinstance(answer, RedisError):
            if not call.future.done():
                call.future.set_result(answer)
            return
        text = f"the store {self._lanes.name} refused a call: {type(answer).__name__}: {answer}"
        if not call.writes or isinstance(answer, NOT_RUN) or str(answer).startswith(NOT_RUN_WORDS):
            call.fail(StoreUnavailable(text, applied="no"))
        else:
            call.fail(StoreUnknown(text, applied="unknown"))
