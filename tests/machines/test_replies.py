"""ReplyRelay: every pair of its table, and what it promises, told as short stories."""

from __future__ import annotations

import pytest
from sojourn.handoff import replies as rp
from sojourn.handoff.machine import DeadlineReached, Effect, Event, IllegalTransition, Log, State
from sojourn.handoff.replies import ReplyRelay

UNTIL = 100.0
FINISHED = rp.ReplyFinished(1, UNTIL)
ENDED = [rp.DeleteReply(), rp.ForgetReply()]

SAMPLES: dict[type[Event], list[Event]] = {
    rp.ReplyFinished: [FINISHED, rp.ReplyFinished(None, UNTIL)],
    rp.BlobStored: [rp.BlobStored()],
    rp.BlobStoreFailed: [rp.BlobStoreFailed()],
    rp.RequesterLinkLost: [rp.RequesterLinkLost(1), rp.RequesterLinkLost(9)],
    rp.RequesterLinkRestored: [rp.RequesterLinkRestored(2)],
    rp.AckReceived: [rp.AckReceived()],
    rp.RequesterGone: [rp.RequesterGone()],
    rp.MemoryShort: [rp.MemoryShort()],
    rp.ReplyFetched: [rp.ReplyFetched()],
    rp.ReplyFetchFailed: [rp.ReplyFetchFailed(gone=True), rp.ReplyFetchFailed(gone=False)],
    DeadlineReached: [DeadlineReached()],
}
SCRIPTS: dict[type[State], list[Event]] = {
    rp.ReplyMade: [],
    rp.ReplyStoring: [FINISHED],
    rp.ReplyTelling: [FINISHED, rp.BlobStored()],
    rp.ReplyParked: [FINISHED, rp.BlobStored(), rp.MemoryShort()],
    rp.ReplyFetching: [FINISHED, rp.BlobStored(), rp.MemoryShort(), rp.RequesterLinkRestored(2)],
    rp.ReplyEnding: [FINISHED, rp.RequesterGone()],
    rp.ReplyOver: [FINISHED, rp.BlobStored(), rp.AckReceived()],
}


class Play:
    """A machine with a clock."""

    def __init__(self, *events: Event) -> None:
        self.machine = ReplyRelay()
        self.now = 0.0
        self(*events)

    def __call__(self, *events: Event, at: float | None = None) -> list[Effect]:
        self.now = self.now if at is None else at
        return [effect for event in events for effect in self.machine.handle(event, self.now)]

    @property
    def state(self) -> State:
        return self.machine.state


def in_state(kind: type[State]) -> Play:
    play = Play(*SCRIPTS[kind])
    assert type(play.state) is kind
    return play


def test_the_table_is_whole() -> None:
    reached: set[type[State]] = {ReplyRelay.STATES[0]}
    for (state, event), rule in ReplyRelay.rules.items():
        assert state in ReplyRelay.STATES
        assert event in ReplyRelay.EVENTS
        reached |= rule.targets
    assert reached == set(ReplyRelay.STATES) == set(SCRIPTS)
    assert set(SAMPLES) == set(ReplyRelay.EVENTS)


@pytest.mark.parametrize("when", [1.0, UNTIL])
@pytest.mark.parametrize("event", [event for events in SAMPLES.values() for event in events], ids=str)
@pytest.mark.parametrize("state", ReplyRelay.STATES, ids=lambda state: state.__name__)
def test_every_pair(state: type[State], event: Event, when: float) -> None:
    play = in_state(state)
    if (state, type(event)) not in ReplyRelay.rules:
        with pytest.raises(IllegalTransition, match="its story"):
            play(event, at=when)
        return
    effects = play(event, at=when)
    ended = rp.ForgetReply() in effects
    assert ended == (isinstance(play.state, rp.ReplyOver) and state is not rp.ReplyOver)
    assert effects.count(rp.DeleteReply()) <= 1
    if rp.DeleteReply() in effects:
        assert effects[-2:] == ENDED
    for effect in effects:
        if isinstance(effect, rp.SendReply | rp.SendReplyRelay):
            assert effect.connection == getattr(play.state, "connection", None)
    if isinstance(play.state, rp.ReplyOver | rp.ReplyEnding):
        assert play.machine.deadline is None
    elif not isinstance(play.state, rp.ReplyMade):
        assert play.machine.deadline is not None
        assert play.machine.deadline <= UNTIL


def test_the_reply_leaves_before_it_is_stored_and_the_33_behind() -> None:
    play = Play()
    assert play(FINISHED) == [rp.SendReply(1), rp.StoreReply()]
    assert play(rp.BlobStored()) == [rp.SendReplyRelay(1)]
    assert play(rp.AckReceived()) == ENDED
    assert play(rp.AckReceived()) == []


def test_a_failed_put_does_not_hold_it_back() -> None:
    play = Play(FINISHED)
    assert play(rp.BlobStoreFailed()) == [rp.SendReplyRelay(1)]
    assert play(rp.MemoryShort()) == []
    assert isinstance(play.state, rp.ReplyTelling), "the copy in memory is the only one"
    assert play(rp.RequesterLinkLost(1), rp.RequesterLinkRestored(2)) == [rp.SendReplyRelay(2)]


def test_it_is_told_again_on_every_new_connection() -> None:
    play = Play(rp.ReplyFinished(None, UNTIL))
    assert play(rp.BlobStored()) == []
    for connection in (1, 2, 3):
        assert play(rp.RequesterLinkRestored(connection)) == [rp.SendReplyRelay(connection)]
        assert play(rp.RequesterLinkLost(connection)) == []
    assert play(rp.RequesterLinkRestored(4), rp.RequesterLinkLost(3)) == [rp.SendReplyRelay(4)]
    assert play(rp.AckReceived()) == ENDED


def test_a_new_connection_does_not_wait_for_a_slow_store_and_hears_it_once() -> None:
    play = Play(FINISHED, rp.RequesterLinkLost(1))
    assert play(rp.RequesterLinkRestored(2)) == [rp.SendReplyRelay(2)]
    assert play(rp.BlobStored()) == []
    play = Play(FINISHED, rp.RequesterLinkLost(1), rp.RequesterLinkRestored(2), rp.RequesterLinkLost(2))
    assert play(rp.BlobStored()) == []
    assert play(rp.RequesterLinkRestored(3)) == [rp.SendReplyRelay(3)]


@pytest.mark.parametrize("put", [rp.BlobStored(), rp.BlobStoreFailed()])
@pytest.mark.parametrize("end", [rp.AckReceived(), rp.RequesterGone()])
def test_what_ends_during_the_put_is_deleted_behind_it(put: Event, end: Event) -> None:
    play = Play(FINISHED, rp.RequesterLinkLost(1), rp.RequesterLinkRestored(2))
    assert play(end) == []
    assert play(rp.RequesterLinkRestored(3)) == [], "nobody is told any more"
    assert play(put) == ENDED


@pytest.mark.parametrize("state", [rp.ReplyTelling, rp.ReplyParked, rp.ReplyFetching])
@pytest.mark.parametrize("end", [rp.AckReceived(), rp.RequesterGone()])
def test_an_end_deletes_the_blob(state: type[State], end: Event) -> None:
    assert in_state(state)(end) == ENDED


def test_a_parked_reply_is_read_back_for_a_new_connection() -> None:
    play = Play(FINISHED, rp.BlobStored(), rp.RequesterLinkLost(1))
    assert play(rp.MemoryShort()) == [rp.ReleaseReply()]
    assert play(rp.RequesterLinkRestored(2)) == [rp.FetchReply()]
    assert play(rp.RequesterLinkLost(2), rp.RequesterLinkRestored(3)) == []
    assert play(rp.ReplyFetched()) == [rp.SendReplyRelay(3), rp.ReleaseReply()]
    assert play(rp.RequesterLinkRestored(4)) == [rp.FetchReply()]
    assert play(rp.RequesterLinkLost(4), rp.ReplyFetched()) == [rp.ReleaseReply()]


def test_a_read_that_fails_is_tried_again_while_there_is_a_connection() -> None:
    play = in_state(rp.ReplyFetching)
    assert play(rp.ReplyFetchFailed(gone=False), at=5.0) == []
    assert play.machine.deadline == 5.0 + rp.FETCH_PAUSE_S
    assert play(DeadlineReached(), at=5.5) == []
    assert play(DeadlineReached(), at=6.0) == [rp.FetchReply()]
    assert play(rp.RequesterLinkLost(2), rp.ReplyFetchFailed(gone=False)) == []
    assert play.machine.deadline == UNTIL
    play = in_state(rp.ReplyFetching)
    play(rp.ReplyFetchFailed(gone=False), at=5.0)
    assert play(rp.RequesterLinkLost(2)) == []
    assert play(DeadlineReached(), at=6.0) == []
    assert play.machine.deadline == UNTIL


def test_a_blob_that_has_ended_ends_the_relay() -> None:
    effects = in_state(rp.ReplyFetching)(rp.ReplyFetchFailed(gone=True))
    assert effects == [Log("reply_expired", "warning", {}), rp.ForgetReply()]


def test_its_time_ends_it_in_every_state() -> None:
    for kind in (rp.ReplyTelling, rp.ReplyParked, rp.ReplyFetching):
        assert in_state(kind)(DeadlineReached(), at=UNTIL) == ENDED
    play = in_state(rp.ReplyStoring)
    assert play(DeadlineReached(), at=UNTIL) == []
    assert play(rp.BlobStored()) == ENDED
