"""SessionSeal and SessionContact: every pair of their tables, and what they promise, told as short stories."""

from __future__ import annotations

from typing import Any

import pytest
from sojourn.handoff.machine import DeadlineReached, Effect, Event, IllegalTransition, Log, Machine, State
from sojourn.session import effects as fx
from sojourn.session import events as se
from sojourn.session.contact import ContactAsking, ContactOver, ContactQuiet, ContactTelling, SessionContact
from sojourn.session.seal import RouteOpen, Sealed, SessionOver, SessionSeal
from sojourn.session.terms import CloseCode, SessionRoute

from tests.machines.session_samples import (
    ABORT,
    AT_A,
    AT_B,
    BINDING,
    COMMIT,
    MOVE,
    OTHER_BINDING,
    OTHER_MOVE,
    OTHER_TERMS,
    SEAL,
    SESSION_SAMPLES,
    TERMS,
    A,
    SessionPlay,
    contact_in,
    seal_in,
)

CLOSE = fx.CloseSocket(CloseCode.SEAL_TIMEOUT, b"token")


def message(text: str) -> se.ClientMessageArrived:
    return se.ClientMessageArrived(text)


def logged(effects: list[Effect]) -> list[tuple[str, str]]:
    return [(effect.name, effect.level) for effect in effects if isinstance(effect, Log)]


def silent(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if not isinstance(effect, Log)]


LATE = [("late_session_route_update", "warning")]

# tables


@pytest.mark.parametrize("machine", [SessionSeal, SessionContact])
def test_a_table_is_whole(machine: type[Machine]) -> None:
    reached = {machine.STATES[0]}
    for (state, event), rule in machine.rules.items():
        assert state in machine.STATES
        assert event in machine.EVENTS
        reached |= rule.targets
    assert reached == set(machine.STATES)
    assert {event for (_, event), rule in machine.rules.items() if rule.targets} == set(machine.EVENTS)
    if machine is SessionSeal:  # a session owner is told whatever its peers and clients do, at any time
        assert set(machine.rules) == {(state, event) for state in machine.STATES for event in machine.EVENTS}


def pairs(machine: type[Machine]) -> list[tuple[type[State], Event]]:
    return [
        (state, event)
        for state in machine.STATES
        for kind in machine.EVENTS
        for event in SESSION_SAMPLES[kind]
    ]


def name(value: Any) -> str:
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize(("state", "event"), pairs(SessionSeal), ids=name)
def test_seal_pair(state: type[State], event: Event) -> None:
    play = seal_in(state)
    effects = play(event)
    kinds = {type(effect) for effect in effects}
    held = getattr(play.state, "held", [])
    if state is Sealed and not isinstance(event, se.ClientMessageArrived):
        ended = [effect for effect in effects if isinstance(effect, fx.SubmitMessages | fx.DropMessages)]
        assert held == ["m1"] if not ended else ended[0].messages == ("m1",), "a held message has one end"
    if isinstance(event, se.SealRequested):
        assert len(kinds & {fx.SendSealed, fx.RefuseSeal}) == 1, "a 42 is always answered (B11.2)"
    if not isinstance(event, se.RouteCommitted):
        assert fx.SwitchRoute not in kinds
    if fx.CloseSocket in kinds:
        assert isinstance(event, se.LeaseOver), "nothing else closes a socket before its time"


@pytest.mark.parametrize(("state", "event"), pairs(SessionContact), ids=name)
def test_contact_pair(state: type[State], event: Event) -> None:
    play = contact_in(state)
    if (state, type(event)) not in SessionContact.rules:
        with pytest.raises(IllegalTransition, match="its story"):
            play(event)
        return
    effects = play(event)
    if isinstance(play.state, ContactOver) and state is not ContactOver:
        assert effects == [fx.ForgetContact()], "whoever is over is forgotten"
    if isinstance(event, se.SealWanted):
        assert effects, "a wish is sent or answered; here a connection stands"
    if state is ContactOver:
        assert effects == []


# the session owner


def test_messages_pass_until_the_seal_and_wait_behind_it() -> None:
    play = seal_in(RouteOpen)
    assert play(message("m0")) == [fx.SubmitMessages(AT_A, ("m0",))]
    assert play(SEAL) == [fx.SendSealed(1, TERMS)]
    assert play(message("m1"), message("m2")) == []
    assert play(COMMIT) == [fx.SwitchRoute(AT_B), fx.SubmitMessages(AT_B, ("m1", "m2"))]
    assert play(message("m3")) == [fx.SubmitMessages(AT_B, ("m3",))]


def test_an_abort_gives_back_to_the_old_route() -> None:
    play = seal_in(Sealed)
    play(message("m2"))
    assert play(ABORT) == [fx.SubmitMessages(AT_A, ("m1", "m2"))]
    assert isinstance(play.state, RouteOpen)


def test_a_repeat_changes_nothing_not_even_the_time() -> None:
    play = seal_in(Sealed)
    assert play(se.SealRequested(TERMS, 2), at=2.5) == [fx.SendSealed(2, TERMS)]
    assert play.machine.deadline == 3.0
    assert play.state.held == ["m1"]  # type: ignore[attr-defined]


def test_a_conflicting_seal_is_an_answered_refusal() -> None:
    play = seal_in(Sealed)
    (refusal,) = play(se.SealRequested(OTHER_TERMS, 4))
    assert isinstance(refusal, fx.RefuseSeal)
    assert (refusal.connection, refusal.terms, refusal.kind) == (4, OTHER_TERMS, "InvalidOperation")
    assert play(COMMIT)[-1] == fx.SubmitMessages(AT_B, ("m1",)), "the seal that stands is untouched"


def test_after_an_abort_only_a_new_relocation_seals() -> None:
    play = seal_in(Sealed)
    play(ABORT)
    (refusal,) = play(SEAL)
    assert isinstance(refusal, fx.RefuseSeal)
    assert isinstance(play.state, RouteOpen)
    assert play(se.SealRequested(OTHER_TERMS, 1)) == [fx.SendSealed(1, OTHER_TERMS)]
    assert isinstance(play.state, Sealed)


def test_a_repeat_that_its_own_commit_overtook_seals_nothing() -> None:
    play = seal_in(Sealed)
    play(COMMIT)
    assert play(SEAL) == [fx.SendSealed(1, TERMS)]
    assert isinstance(play.state, RouteOpen)


def test_a_binding_of_another_generation_or_incarnation_is_none() -> None:
    play = seal_in(RouteOpen)
    for terms in (TERMS._replace(binding=OTHER_BINDING), TERMS._replace(object_generation=2)):
        (refusal,) = play(se.SealRequested(terms, 1))
        assert isinstance(refusal, fx.RefuseSeal)
        assert refusal.kind == "NotFound"
        assert isinstance(play.state, RouteOpen)


def test_without_an_update_in_time_the_socket_is_closed() -> None:
    play = seal_in(Sealed)
    assert play(DeadlineReached(), at=2.9) == []
    effects = play(DeadlineReached(), at=3.0)
    assert silent(effects) == [CLOSE, fx.DropMessages(("m1",)), fx.ForgetBinding()]
    assert logged(effects) == [("session_seal_timeout", "warning")]
    assert isinstance(play.state, SessionOver)


def test_an_update_after_that_is_a_warning_only() -> None:
    play = seal_in(Sealed)
    play(DeadlineReached(), at=3.0)
    for update in (COMMIT, ABORT):
        effects = play(update)
        assert silent(effects) == []
        assert logged(effects) == LATE


def test_a_late_timer_does_not_prolong_the_seal() -> None:
    play = seal_in(Sealed)
    effects = play(COMMIT, at=3.2)
    assert silent(effects) == [CLOSE, fx.DropMessages(("m1",)), fx.ForgetBinding()]
    assert logged(effects) == [("session_seal_timeout", "warning"), *LATE]


def test_an_update_of_another_relocation_is_a_warning_only() -> None:
    for kind in (RouteOpen, Sealed):
        play = seal_in(kind)
        effects = play(
            se.RouteCommitted(OTHER_MOVE, BINDING, 3, AT_B), se.RouteAborted(OTHER_MOVE, BINDING, 3)
        )
        assert silent(effects) == []
        assert logged(effects) == LATE * 2
        assert type(play.state) is kind


def test_an_identical_update_again_is_no_news_another_one_is_a_warning() -> None:
    play = seal_in(Sealed)
    play(COMMIT)
    assert play(COMMIT) == []
    assert logged(play(ABORT)) == LATE
    assert logged(play(se.RouteCommitted(MOVE, BINDING, 3, SessionRoute(A, 6, 1)))) == LATE
    assert play(message("m2")) == [fx.SubmitMessages(AT_B, ("m2",))]


def test_pushes_of_the_previous_owner_are_believed_for_the_follow_duration() -> None:
    play = seal_in(Sealed)
    play(COMMIT, at=1.0)
    assert play(se.PushArrived("p4", 4), at=30.9) == [fx.DeliverPush("p4")]
    assert play(se.PushArrived("p4", 4), at=31.0) == [fx.DropPush("p4")]
    assert play(se.PushArrived("p5", 5)) == [fx.DeliverPush("p5")]
    assert play(se.PushArrived("p3", 3)) == [fx.DropPush("p3")]


def test_the_first_push_of_the_target_may_come_before_its_commit() -> None:
    play = seal_in(Sealed)
    assert play(se.PushArrived("p5", 5)) == [fx.DeliverPush("p5")]


@pytest.mark.parametrize(
    ("event", "closes"),
    [
        (se.Unbound(), []),
        (se.SocketClosed(), []),
        (se.LeaseOver(), [fx.CloseSocket(CloseCode.LEASE_OVER, b"token")]),
    ],
)
def test_endings_drop_what_is_held(event: Event, closes: list[Effect]) -> None:
    assert seal_in(RouteOpen)(event) == [*closes, fx.ForgetBinding()]
    play = seal_in(Sealed)
    assert play(event) == [*closes, fx.DropMessages(("m1",)), fx.ForgetBinding()]
    assert play(message("m2")) == [fx.DropMessages(("m2",))]
    assert play(se.PushArrived("p", 4)) == [fx.DropPush("p")]


def test_a_move_back_and_forth_keeps_generations_apart() -> None:
    play = seal_in(Sealed)
    play(COMMIT)
    back = TERMS._replace(identity=OTHER_MOVE, owner_generation=5)
    play(se.SealRequested(back, 1), message("m2"), at=1.0)
    effects = play(se.RouteCommitted(OTHER_MOVE, BINDING, 3, SessionRoute(A, 6, 1)))
    assert effects[-1] == fx.SubmitMessages(SessionRoute(A, 6, 1), ("m2",))
    assert play(SEAL) == [fx.SendSealed(1, TERMS)], "a straggler of the first move seals nothing"
    assert isinstance(play.state, RouteOpen)


def test_settled_seals_are_forgotten_in_the_end() -> None:
    play = seal_in(Sealed)
    play(COMMIT)
    play(se.SealRequested(OTHER_TERMS, 1), at=31.0)
    assert play.state.settled == {}  # type: ignore[attr-defined]


# the contact


def contact(*events: Event) -> SessionPlay:
    play = SessionPlay(SessionContact())
    play(*events)
    return play


def test_a_wish_waits_for_a_connection_and_is_repeated_on_the_next() -> None:
    play = contact()
    assert play(se.SealWanted()) == []
    assert play(se.ConnectionUp(1)) == [fx.SendSeal(1)]
    assert play(se.ConnectionDown(1)) == []
    assert play(se.ConnectionUp(2)) == [fx.SendSeal(2)]
    assert play(se.SealAnswered(2)) == [fx.ReportSealed()]
    assert isinstance(play.state, ContactQuiet)


def test_only_the_answer_to_the_latest_request_counts() -> None:
    play = contact(se.ConnectionUp(1), se.SealWanted(), se.SealWanted())
    assert play(se.SealAnswered(1)) == []
    assert play(se.SealAnswered(1)) == [fx.ReportSealed()]
    assert play(se.SealAnswered(1)) == []


def test_an_answer_of_a_connection_that_broke_does_not_count() -> None:
    play = contact(se.ConnectionUp(1), se.SealWanted(), se.ConnectionDown(1), se.ConnectionUp(2))
    assert play(se.SealAnswered(1)) == []
    assert play(se.SealAnswered(2)) == [fx.ReportSealed()]


def test_an_abort_goes_out_for_a_seal_that_was_never_answered() -> None:
    play = contact(se.ConnectionUp(1), se.SealWanted())
    assert play(se.RouteDecided("abort", commit=False)) == [fx.SendRoute(1, "abort")]


def test_no_abort_without_a_seal() -> None:
    for events in ([se.ConnectionUp(1)], [se.SealWanted()]):
        play = contact(*events)
        assert play(se.RouteDecided("abort", commit=False)) == [fx.ForgetContact()]
        assert isinstance(play.state, ContactOver)
    play = contact(se.ConnectionUp(1), se.SealWanted())
    assert play(se.SealDenied(1, no_binding=False, reason="other")) == [fx.ReportRefused("other")]
    assert play(se.RouteDecided("abort", commit=False)) == [fx.ForgetContact()]


def test_an_update_is_repeated_on_new_connections_within_the_seal_timeout() -> None:
    play = contact()
    assert play(se.RouteDecided("commit", commit=True), at=1.0) == []
    assert play(se.ConnectionUp(1), at=1.1) == [fx.SendRoute(1, "commit")]
    play(se.ConnectionDown(1))
    assert play(se.ConnectionUp(2), at=3.9) == [fx.SendRoute(2, "commit")]
    assert play(DeadlineReached(), at=3.9) == []
    assert play(DeadlineReached(), at=4.0) == [fx.ForgetContact()]
    assert play(se.ConnectionUp(3)) == []


def test_an_owner_that_is_gone_counts_as_no_binding() -> None:
    play = contact(se.ConnectionUp(1), se.SealWanted())
    assert play(se.OwnerGone()) == [fx.ReportNoBinding()]
    assert play(se.SealWanted()) == [fx.ReportNoBinding()]
    play = contact(se.ConnectionUp(1), se.SealWanted())
    assert play(se.SealDenied(1, no_binding=True)) == [fx.ReportNoBinding()]
    assert contact_in(ContactTelling)(se.OwnerGone()) == [fx.ForgetContact()]


def test_a_released_contact_ends_unless_it_still_has_to_tell() -> None:
    assert contact_in(ContactAsking)(se.ContactReleased()) == [fx.ForgetContact()]
    play = contact_in(ContactTelling)
    assert play(se.ContactReleased()) == []
    assert isinstance(play.state, ContactTelling)
