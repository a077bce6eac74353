"""A target that turns a unit away before the boundary costs an attempt, not the move (B8.1, B10.2)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sojourn.errors import Unavailable
from sojourn.handoff import effects, events
from sojourn.handoff.terms import TargetFailure
from sojourn.ids import NodeRun
from sojourn.options import Options
from sojourn.rows import HostState
from sojourn.workers import refusals
from sojourn.workers.coordinator import Coordinator
from sojourn.workers.host_move import STOPPING, MoveResult
from sojourn.workers.intake import Intake
from sojourn.workers.objects import Place
from sojourn.workers.target_driver import TargetDriver

KEY = b"sdesk"
EAST, WEST = NodeRun(b"east", 1), NodeRun(b"west", 1)


class Moves(Coordinator):
    """Real moves up to the choice of a target; what a target then answers is the test's."""

    def __init__(self, *targets: NodeRun) -> None:
        loop = asyncio.get_running_loop()
        self.held = SimpleNamespace(key=KEY, place=Place.ACTIVE, lead=None, policy="preserve")
        router = SimpleNamespace(objects={KEY: self.held})
        node = SimpleNamespace(
            options=Options(), router=router, loop=loop, retention=None, run=NodeRun(b"here", 1)
        )
        super().__init__(cast(Any, node))
        self.eligible = list(targets)
        self.asked: list[NodeRun] = []
        self.answers: dict[NodeRun, list[MoveResult]] = {}
        self.waiting = asyncio.Event()

    def _choose(self, held: Any, to: bytes | None, version: int | None, refused: Any = ()) -> Any:
        for run in self.eligible:
            if run not in refused and to in (None, run.rid):
                return SimpleNamespace(run=run)
        self.waiting.set()
        raise Unavailable("no node is eligible", applied="no")

    async def _attempt_at(self, target: Any, held: Any, deadline: float) -> MoveResult:
        self.asked.append(target.run)
        answers = self.answers.get(target.run)
        return answers.pop(0) if answers else MoveResult("moved", target=target.run.rid.decode())


def refusal(text: str = "node east is Relocating") -> MoveResult:
    return MoveResult("failed", "TargetUnavailable", text, "east")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "PAUSE_FIRST_S", 0.0)


async def test_another_target_is_chosen() -> None:
    moves = Moves(EAST, WEST)
    moves.answers[EAST] = [refusal()]
    assert (await moves.move(KEY, None, 30.0)).target == "west"
    assert moves.asked == [EAST, WEST]


async def test_a_named_target_is_not_replaced() -> None:
    moves = Moves(EAST, WEST)
    moves.answers[EAST] = [refusal()]
    result = await moves.move(KEY, b"east", 30.0)
    assert (result.reason, result.detail) == ("TargetUnavailable", "node east is Relocating")
    assert moves.asked == [EAST]


async def test_any_other_failure_ends_the_move() -> None:
    moves = Moves(EAST, WEST)
    moves.answers[EAST] = [MoveResult("failed", "StateIncompatible", "restore raised ValueError: no", "east")]
    assert (await moves.move(KEY, None, 30.0)).reason == "StateIncompatible"
    assert moves.asked == [EAST]


async def test_those_that_refused_are_asked_again_when_nobody_else_is_left() -> None:
    """A worker of the only other node was being replaced."""
    moves = Moves(EAST)
    moves.answers[EAST] = [refusal("no worker of node east is ready")] * 2
    assert (await moves.move(KEY, None, 30.0)).target == "east"
    assert moves.asked == [EAST] * 3


async def test_the_end_names_who_refused_and_why() -> None:
    """It has said meanwhile that it empties itself, so that it is not chosen again."""
    moves = Moves(EAST)
    moves.answers[EAST] = [refusal()]
    task = asyncio.ensure_future(moves.move(KEY, None, 30.0))
    await moves.waiting.wait()
    moves.eligible.clear()
    result = await task
    assert result.reason == "TargetUnavailable"
    assert result.detail == "node east is Relocating; no node is eligible"


async def test_without_time_nothing_is_tried_again() -> None:
    moves = Moves(EAST, WEST)
    moves.answers[EAST] = [refusal()]
    assert (await moves.move(KEY, None, 1.0)).reason == "TargetUnavailable"  # less than a seal may have left
    assert moves.asked == [EAST]


async def test_a_node_that_stops_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "PAUSE_FIRST_S", 1000.0)
    moves = Moves(EAST)
    moves.answers[EAST] = [refusal()]
    task = asyncio.ensure_future(moves.move(KEY, None, 1e6))
    await moves.waiting.wait()
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await moves.close()
        assert await task is STOPPING


@pytest.mark.parametrize(
    ("changes", "reason", "text"),
    [
        ({}, "", ""),
        ({"target_node_generation": 2}, "TargetUnavailable", "another run"),
        ({"deadline_ms": 0}, "RelocationFailed", "no deadline"),
        ({"application_version": 4}, "TargetUnavailable", "runs application version 3, not 4"),
        ({"admission": False}, "TargetUnavailable", "lease"),
        ({"state": HostState.RELOCATING}, "TargetUnavailable", "Relocating"),
        ({"workers": {}}, "TargetUnavailable", "no worker of node east@1 is ready"),
    ],
)
async def test_a_target_says_what_is_wrong_with_it(changes: dict[str, Any], reason: str, text: str) -> None:
    """Before it asks for a chunk: its source holds the object only for the way there and back."""
    state = changes.get("state", HostState.SERVING)
    node = SimpleNamespace(
        run=EAST,
        admission_open=lambda: changes.get("admission", True),
        takes_new_objects=state is HostState.SERVING,
        state=state,
        application_version=3,
        object_counts=changes.get("workers", {0: 0}),
    )
    command = SimpleNamespace(
        target=SimpleNamespace(node_rid=b"east", node_generation=changes.get("target_node_generation", 1)),
        application_version=changes.get("application_version", 3),
    )
    refused = Intake(cast(Any, node))._refusal(cast(Any, command), changes.get("deadline_ms", 1000))
    if not reason:
        assert refused is None
        return
    assert isinstance(refused, TargetFailure)
    assert refused.reason == reason
    assert text in str(refused)


async def test_a_target_whose_workers_end_before_the_object_is_built_says_so_at_once() -> None:
    """Its source serves on in milliseconds; a worker takes seconds to start (R4.2.8)."""
    told: list[Any] = []

    class Target(TargetDriver):
        def __init__(self) -> None:
            self._node = cast(Any, SimpleNamespace(run=EAST))
            self._out = None

        def _start_restoring(self) -> None:
            """No worker is ready."""

        def handle(self, event: Any) -> None:
            told.append(event)

    Target()._restore_object(effects.RestoreObject(1, 2))
    (failed,) = told
    assert isinstance(failed, events.RestoreFailed)
    assert failed.error == TargetFailure("TargetUnavailable", "no worker of node east@1 is ready")
