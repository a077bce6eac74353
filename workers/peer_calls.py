"""Calls between nodes: create here, move this, where is that.

Owns the numbers of calls under way and what ends them: an answer, a time limit, a lost link. What an
operation does is its node's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from sojourn.control import ErrorBody
from sojourn.errors import DeadlineExceeded, InternalFailure, ProtocolError, Unavailable, error_from_fields
from sojourn.ids import NodeRun
from sojourn.mesh import Call, CallResult

__all__ = ["Operation", "PeerCalls"]

Operation = Callable[[dict[str, Any]], Awaitable[Any]]


class PeerCalls:
    """Outgoing and incoming calls of one member."""

    def __init__(self, send: Callable[[NodeRun, Call | CallResult], bool]) -> None:
        self._send = send
        self._next = 1
        self._waiting: dict[int, tuple[NodeRun, asyncio.Future[Any]]] = {}
        self.operations: dict[str, Operation] = {}

    async def call(self, run: NodeRun, operation: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        """Ask another node to do something and wait for its answer.

        Raises:
            Unavailable: no link (`applied` no) or the link broke under way (`applied` unknown).
            DeadlineExceeded: no answer within `timeout_s` seconds.
            SojournError: whatever typed error the other node answered.
        """
        number = self._next
        self._next += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (run, future)
        try:
            if not self._send(
                run, Call(number, operation, msgspec.msgpack.encode(arguments), int(timeout_s * 1000))
            ):
                raise Unavailable(f"there is no connection to node {run}", applied="no", phase=operation)
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise DeadlineExceeded(
                f"node {run} did not answer {operation!r} within {timeout_s:g} s",
                phase=operation,
                applied="unknown",
            ) from None
        finally:
            self._waiting.pop(number, None)

    def answered(self, run: NodeRun, result: CallResult) -> None:
        """A peer's answer; late ones are dropped.

        Raises:
            ProtocolError: its value cannot be decoded; the call ends with the link.
        """
        waiting = self._waiting.get(result.call)
        if waiting is None or waiting[0] != run or waiting[1].done():
            return
        if result.error is not None:
            waiting[1].set_exception(error_from_fields(result.error.kind, result.error.fields))
            return
        try:
            value = msgspec.msgpack.decode(result.value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"the answer of a call is malformed: {error}") from None
        waiting[1].set_result(value)

    def run_lost(self, run: NodeRun) -> None:
        """The link to a run went down: its calls are in doubt."""
        for target, future in list(self._waiting.values()):
            if target == run and not future.done():
                future.set_exception(
                    Unavailable(f"the connection to node {run} broke under way", applied="unknown")
                )

    async def serve(self, run: NodeRun, call: Call) -> None:
        """Carry out a peer's call and answer it; never raises."""
        self._send(run, await self.perform(call.call, call.operation, call.arguments))

    async def perform(self, number: int, name: str, arguments: bytes) -> CallResult:
        """Carry out an operation; every failure becomes the typed error of the answer."""
        operation = self.operations.get(name)
        try:
            if operation is None:
                raise InternalFailure(f"this node offers no operation {name!r}")
            value = await operation(msgspec.msgpack.decode(arguments))
            return CallResult(number, msgspec.msgpack.encode(value))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            return CallResult(number, b"", ErrorBody.of(error))
