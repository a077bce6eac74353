"""Calls between nodes: each ends once, with a value or a typed error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sojourn.errors import DeadlineExceeded, InternalFailure, NotFound, ProtocolError, Unavailable
from sojourn.ids import NodeRun
from sojourn.mesh import Call, CallResult
from sojourn.workers.peer_calls import PeerCalls

A, B = NodeRun(b"a", 1), NodeRun(b"b", 1)


class Mesh:
    """Two members whose messages arrive one loop turn later."""

    def __init__(self) -> None:
        self.down = False
        self.deaf = False
        self.a = PeerCalls(lambda run, message: self._carry(self.b, A, message))
        self.b = PeerCalls(lambda run, message: self._carry(self.a, B, message))
        self.tasks: list[asyncio.Task[None]] = []

    def _carry(self, to: PeerCalls, sender: NodeRun, message: Call | CallResult) -> bool:
        if not self.down and not self.deaf:
            loop = asyncio.get_running_loop()
            if isinstance(message, Call):
                self.tasks.append(loop.create_task(to.serve(sender, message)))
            else:
                loop.call_soon(to.answered, sender, message)
        return not self.down


async def test_a_value_comes_back() -> None:
    mesh = Mesh()

    async def double(arguments: dict[str, Any]) -> int:
        return int(arguments["number"]) * 2

    mesh.b.operations = {"double": double}
    assert await mesh.a.call(B, "double", {"number": 21}, 5.0) == 42


async def test_errors_come_back_as_they_are_and_others_as_internal_failures() -> None:
    mesh = Mesh()

    async def missing(arguments: dict[str, Any]) -> None:
        raise NotFound("no such thing", object_id="spot 'x'")

    async def broken(arguments: dict[str, Any]) -> None:
        raise ZeroDivisionError("oops")

    mesh.b.operations = {"missing": missing, "broken": broken}
    with pytest.raises(NotFound) as caught:
        await mesh.a.call(B, "missing", {}, 5.0)
    assert caught.value.object_id == "spot 'x'"
    with pytest.raises(InternalFailure, match="ZeroDivisionError: oops"):
        await mesh.a.call(B, "broken", {}, 5.0)
    with pytest.raises(InternalFailure, match="no operation 'unknown'"):
        await mesh.a.call(B, "unknown", {}, 5.0)


async def test_without_a_link_nothing_was_asked_and_a_lost_one_leaves_it_open() -> None:
    mesh = Mesh()
    mesh.down = True
    with pytest.raises(Unavailable) as refused:
        await mesh.a.call(B, "x", {}, 5.0)
    assert refused.value.applied == "no"
    mesh.down, mesh.deaf = False, True
    waiting = asyncio.create_task(mesh.a.call(B, "x", {}, 5.0))
    await asyncio.sleep(0)
    mesh.a.run_lost(A)
    assert not waiting.done()
    mesh.a.run_lost(B)
    with pytest.raises(Unavailable) as lost:
        await waiting
    assert lost.value.applied == "unknown"


async def test_silence_ends_in_time_and_a_late_answer_is_dropped() -> None:
    mesh = Mesh()
    mesh.deaf = True
    with pytest.raises(DeadlineExceeded) as silent:
        await mesh.a.call(B, "x", {}, 0.0)
    assert silent.value.applied == "unknown"
    mesh.a.answered(B, CallResult(1, b"\xc0"))


async def test_only_the_node_that_was_asked_may_answer() -> None:
    mesh = Mesh()
    mesh.deaf = True
    waiting = asyncio.create_task(mesh.a.call(B, "x", {}, 5.0))
    await asyncio.sleep(0)
    mesh.a.answered(A, CallResult(1, b"\xc3"))
    assert not waiting.done()
    mesh.a.answered(B, CallResult(1, b"\xc2"))
    assert await waiting is False


@pytest.mark.parametrize(
    "value", [b"", b"\xc1", b"\xa1\xff", b"\x91" * 10_000], ids=["none", "bad", "text", "deep"]
)
async def test_an_answer_that_cannot_be_decoded_ends_the_link_and_with_it_the_call(value: bytes) -> None:
    calls = PeerCalls(lambda run, message: True)
    asked = asyncio.ensure_future(calls.call(B, "x", {}, 5.0))
    await asyncio.sleep(0)
    with pytest.raises(ProtocolError, match="the answer of a call"):
        calls.answered(B, CallResult(1, value))
    calls.run_lost(B)
    with pytest.raises(Unavailable):
        await asked
