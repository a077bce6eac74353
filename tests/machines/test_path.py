"""SenderPath: order across a change of path (B9.4), told as short stories."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from sojourn.handoff.machine import DeadlineReached, Effect, Event, Log, State
from sojourn.handoff.path import (
    AwaitingMarker,
    FailSubmitted,
    LookingUp,
    LookUpRoute,
    MarkerAnswered,
    MarkerFailed,
    MarkerTaken,
    NoPath,
    OnPath,
    PathLost,
    PathTaken,
    RecordSubmitted,
    Route,
    RouteExpired,
    RouteLearned,
    RouteRefused,
    SenderPath,
    SendMarker,
    SendOn,
    StagingBegun,
    StalePath,
)
from sojourn.ids import NodeRun

A, B, C = (NodeRun(name, 1) for name in (b"A", b"B", b"C"))


def route(run: NodeRun, owner_generation: int) -> Route:
    return Route(run, 1, owner_generation)


class Numbers:
    """Marker numbers; the copy of a path goes on by itself."""

    def __init__(self) -> None:
        self.last = 0

    def __call__(self) -> int:
        self.last += 1
        return self.last


def new_path() -> SenderPath:
    return SenderPath(Numbers())


def on_path(run: NodeRun = A, owner_generation: int = 1) -> SenderPath:
    path = new_path()
    path.handle(RouteLearned(route(run, owner_generation)), 0.0)
    return path


def without_logs(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if not isinstance(effect, Log)]


def test_the_first_record_waits_for_a_look_up_and_keeps_its_order() -> None:
    path = new_path()
    assert path.handle(RecordSubmitted("m1"), 0.0) == [LookUpRoute()]
    assert path.handle(RecordSubmitted("m2"), 0.0) == []
    assert path.handle(RouteLearned(route(A, 1)), 0.1) == [SendOn(A, ("m1", "m2"))]
    assert path.current == A


def test_a_new_route_is_taken_only_behind_a_marker() -> None:
    path = on_path()
    assert path.handle(RouteLearned(route(B, 2)), 1.0) == [SendMarker(A, 1)]
    assert path.current is None
    assert path.marker_out
    assert path.handle(RecordSubmitted("m1"), 1.1) == []
    assert path.handle(MarkerAnswered(1, route(B, 2)), 1.2) == [SendOn(B, ("m1",))]
    assert path.current == B


def test_the_switch_goes_to_the_node_that_answered_not_to_the_route_learned() -> None:
    path = on_path()
    path.handle(RouteLearned(route(B, 2)), 1.0)
    path.handle(RecordSubmitted("m1"), 1.0)
    assert path.handle(RouteLearned(route(C, 3)), 1.1) == []
    assert path.handle(MarkerAnswered(1, route(B, 2)), 1.2) == [SendOn(B, ("m1",))]
    assert path.handle(RouteLearned(route(C, 3)), 1.3) == [SendMarker(B, 2)]


def test_an_older_route_changes_nothing() -> None:
    path = on_path(B, 5)
    assert path.handle(RouteLearned(route(A, 4)), 1.0) == []
    assert path.current == B


def test_news_of_a_failed_move_is_not_older_than_a_staged_answer() -> None:
    path = on_path(A, 4)
    path.handle(RouteLearned(route(B, 5)), 1.0)
    path.handle(MarkerAnswered(1, route(B, 4)), 1.1)
    assert path.handle(RouteLearned(route(A, 4)), 1.2) == [SendMarker(B, 2)]


def test_the_same_run_under_a_newer_generation_needs_no_marker() -> None:
    path = on_path(A, 1)
    assert path.handle(RouteLearned(route(A, 3)), 1.0) == []
    assert path.handle(RouteLearned(route(B, 2)), 1.0) == []
    assert path.current == A


def test_the_last_path_outlives_its_cache_entry() -> None:
    path = on_path()
    path.handle(RouteExpired(), 10.0)
    assert path.deadline == 40.0
    assert path.handle(RecordSubmitted("m1"), 11.0) == [LookUpRoute()]
    assert path.handle(RouteLearned(route(B, 2)), 11.1) == [SendMarker(A, 1)]
    assert path.handle(MarkerAnswered(1, route(B, 2)), 11.2) == [SendOn(B, ("m1",))]


def test_the_last_path_is_forgotten_after_the_follow_duration() -> None:
    path = on_path()
    path.handle(RouteExpired(), 10.0)
    path.handle(DeadlineReached(), 39.0)
    assert isinstance(path.state, StalePath)
    path.handle(DeadlineReached(), 40.0)
    assert isinstance(path.state, NoPath)


def test_a_refused_look_up_fails_what_waited() -> None:
    path = new_path()
    path.handle(RecordSubmitted("m1"), 0.0)
    assert path.handle(RouteRefused("NotFound"), 0.1) == [FailSubmitted(("m1",), "NotFound")]
    assert isinstance(path.state, NoPath)


def test_a_marker_that_does_not_come_back_is_waited_for_two_seconds() -> None:
    path = on_path()
    path.handle(RouteLearned(route(B, 2)), 1.0)
    path.handle(RecordSubmitted("m1"), 1.5)
    assert path.deadline == 3.0
    effects = path.handle(DeadlineReached(), 3.0)
    assert without_logs(effects) == [SendOn(B, ("m1",))]
    assert [e.name for e in effects if isinstance(e, Log)] == ["marker_timeout"]
    assert path.handle(MarkerAnswered(1, route(A, 1)), 3.1) == []
    assert path.current == B


@pytest.mark.parametrize("event", [PathLost(A), MarkerFailed(1)])
def test_a_lost_or_refused_marker_ends_the_wait(event: Any) -> None:
    path = on_path()
    path.handle(RouteLearned(route(B, 2)), 1.0)
    path.handle(RecordSubmitted("m1"), 1.0)
    assert without_logs(path.handle(event, 1.1)) == [SendOn(B, ("m1",))]


def test_when_the_learned_route_is_lost_too_it_is_looked_up() -> None:
    path = on_path()
    path.handle(RouteLearned(route(B, 2)), 1.0)
    path.handle(RecordSubmitted("m1"), 1.0)
    assert path.handle(PathLost(B), 1.1) == []
    assert isinstance(path.state, AwaitingMarker)
    assert without_logs(path.handle(PathLost(A), 1.2)) == [LookUpRoute()]
    assert isinstance(path.state, LookingUp)


def test_a_target_whose_last_path_was_the_source_takes_its_own_path_at_once() -> None:
    path = on_path()
    assert path.last_run == A
    assert path.handle(PathTaken(route(B, 1)), 1.0) == []
    assert isinstance(path.state, OnPath)
    assert path.current == B


def staged_at_b(last: NodeRun = A) -> SenderPath:
    """The object is being staged at B, coming from C, while B's last path leads elsewhere."""
    path = on_path(last)
    assert path.handle(StagingBegun(B, C), 1.0) == [SendMarker(last, 1)]
    return path


def test_a_target_whose_last_path_was_not_the_source_marks_it() -> None:
    path = staged_at_b()
    assert path.holds_from(A)
    assert path.holds_from(None)
    assert not path.holds_from(C)
    path.handle(RecordSubmitted("m1"), 1.1)
    assert path.handle(MarkerAnswered(1, route(B, 0)), 1.2) == [SendOn(B, ("m1",))]
    assert not path.holds_from(A)


def test_a_targets_marker_must_come_home() -> None:
    path = staged_at_b()
    path.handle(RecordSubmitted("m1"), 1.1)
    elsewhere = NodeRun(b"D", 1)
    assert path.handle(MarkerAnswered(1, route(elsewhere, 1)), 1.2) == [
        SendOn(elsewhere, ("m1",)),
        SendMarker(elsewhere, 2),
    ]
    assert path.deadline == 3.0
    path.handle(RecordSubmitted("m2"), 1.3)
    assert path.handle(MarkerAnswered(2, route(B, 0)), 1.4) == [SendOn(B, ("m2",))]


def test_who_was_answered_here_passes_by() -> None:
    path = staged_at_b()
    path.handle(MarkerTaken(A), 1.1)
    assert not path.holds_from(A)


def test_a_staging_that_is_given_up_lets_the_marker_decide() -> None:
    path = staged_at_b()
    path.handle(RecordSubmitted("m1"), 1.1)
    path.handle(PathTaken(route(C, 1)), 1.2)
    assert path.holds_from(A)
    assert path.handle(MarkerAnswered(1, route(C, 1)), 1.3) == [SendOn(C, ("m1",))]
    assert path.current == C


def test_an_expiry_noticed_late_counts_from_when_it_was() -> None:
    path = on_path()
    path.handle(RouteExpired(expired_at=10.0), 20.0)
    assert path.deadline == 40.0
    path = on_path()
    path.handle(RouteExpired(expired_at=10.0), 60.0)
    assert isinstance(path.state, NoPath)


# every pair of the table, and what follows from it


def happenings(path: SenderPath, record: int) -> list[Event]:
    """Everything that can happen to a path now; the marker that is out is answered as well as one that is not."""
    marker = getattr(path.state, "marker_id", 0)
    routes = [route(A, 1), route(B, 2), route(C, 3), Route(A, 2, 1)]
    return [
        RecordSubmitted(record),
        *map(RouteLearned, routes),
        RouteRefused("no"),
        RouteExpired(),
        *map(PathTaken, routes[:3]),
        StagingBegun(B, A),
        StagingBegun(A, C, queued=True),
        MarkerTaken(A),
        PathLost(A),
        PathLost(B),
        *(MarkerAnswered(number, at) for number in (marker, 77) for at in routes[:2]),
        MarkerFailed(marker),
        MarkerFailed(77),
        DeadlineReached(),
    ]


def left(effects: list[Effect]) -> list[Any]:
    return [r for effect in effects if isinstance(effect, SendOn | FailSubmitted) for r in effect.records]


def held(path: SenderPath) -> list[Any]:
    return list(getattr(path.state, "held", ()))


def test_no_sequence_of_six_loses_doubles_or_overtakes_a_record() -> None:
    """In every state, every event: records leave from the front, once, and nothing is sent past a marker."""
    met: set[tuple[type[State], type[Event]]] = set()
    seen: set[str] = set()
    todo = [(new_path(), 0.0, 0)]
    while todo:
        here, now, depth = todo.pop()
        for event in happenings(here, depth):
            path, before = deepcopy(here), held(here)
            met.add((type(here.state), type(event)))
            later = now if not isinstance(event, DeadlineReached) else max(now, here.deadline or now)
            effects = path.handle(event, later)
            submitted = [event.record] if isinstance(event, RecordSubmitted) else []
            assert left(effects) + held(path) == before + submitted, f"{event} in {here.state}"
            if isinstance(path.state, AwaitingMarker) and isinstance(here.state, AwaitingMarker):
                again = path.state.marker_id != here.state.marker_id
                assert again or not any(isinstance(effect, SendOn) for effect in effects)
            picture = f"{path.state} {later}"
            if depth < 5 and picture not in seen:
                seen.add(picture)
                todo.append((path, later, depth + 1))
    assert met == {(state, event) for state in SenderPath.STATES for event in SenderPath.EVENTS}
