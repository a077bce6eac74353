"""`ReplyRelay`: how the end of a request that moved reaches its requester (R5.2, B7.1).

Owns when a reply is stored, when command 33 goes out and goes out again, and when the stored copy may go. One
machine stands for one request that ended on the node its object moved to: its requester sent it to another
node, and a reply lost on the way would be lost for good. It must not know stores, links or octets: the driver
keeps the reply and does what the effects say.

The ordinary reply leaves at once where a connection stands; nothing waits for the store. The 33 goes behind it,
and is repeated on every new connection until the requester's node has answered with 46.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sojourn.handoff.machine import (
    DeadlineReached,
    Effect,
    Event,
    Ignored,
    Machine,
    Reasons,
    Same,
    State,
    on,
)

__all__ = [
    "FETCH_PAUSE_S",
    "AckReceived",
    "BlobStoreFailed",
    "BlobStored",
    "DeleteReply",
    "FetchReply",
    "ForgetReply",
    "MemoryShort",
    "ReleaseReply",
    "ReplyEnding",
    "ReplyFetchFailed",
    "ReplyFetched",
    "ReplyFetching",
    "ReplyFinished",
    "ReplyMade",
    "ReplyOver",
    "ReplyParked",
    "ReplyRelay",
    "ReplyStoring",
    "ReplyTelling",
    "RequesterGone",
    "RequesterLinkLost",
    "RequesterLinkRestored",
    "SendReply",
    "SendReplyRelay",
    "StoreReply",
]

FETCH_PAUSE_S = 1.0
"""How long after a failed read of the store the reply is read again."""


# events


class ReplyFinished(Event, frozen=True):
    """The request ended. `connection` to its requester's run, None without one; `until`: when the reply is not
    worth keeping any more."""

    connection: int | None
    until: float


class BlobStored(Event, frozen=True):
    """The reply is in the Relocation Store."""


class BlobStoreFailed(Event, frozen=True):
    """It is not, or nobody knows: the store did not answer, or holds something else under the reference."""


class RequesterLinkLost(Event, frozen=True):
    """The connection to the requester's run broke."""

    connection: int


class RequesterLinkRestored(Event, frozen=True):
    """A new connection to the requester's run stands."""

    connection: int


class AckReceived(Event, frozen=True):
    """Command 46: the requester's node has this end of the request, or had another one before."""


class RequesterGone(Event, frozen=True):
    """The requester's run ended: its lease is over."""


class MemoryShort(Event, frozen=True):
    """This node keeps as many replies in memory as it may: one that is stored can go."""


class ReplyFetched(Event, frozen=True):
    """The reply was read back; the driver has it until `ReleaseReply`."""


class ReplyFetchFailed(Event, frozen=True):
    """It could not be read back. `gone`: the store answers, and has no such blob (any more)."""

    gone: bool


# effects


class SendReply(Effect, frozen=True):
    """Send the ordinary reply on the connection."""

    connection: int


class StoreReply(Effect, frozen=True):
    """Put the reply into the Relocation Store; ends as `BlobStored` or `BlobStoreFailed`."""


class SendReplyRelay(Effect, frozen=True):
    """Send command 33 on the connection."""

    connection: int


class ReleaseReply(Effect, frozen=True):
    """Free the copy in memory; the store has it."""


class FetchReply(Effect, frozen=True):
    """Read the reply from the store; ends as `ReplyFetched` or `ReplyFetchFailed`. May wait for its turn."""


class DeleteReply(Effect, frozen=True):
    """Delete the blob. One that cannot be deleted now ends by its retention."""


class ForgetReply(Effect, frozen=True):
    """Nothing is left to do for this reply."""


# states


@dataclass(slots=True)
class ReplyMade(State):
    """The request has ended here; nothing was done yet."""

    phase = "made"


@dataclass(slots=True)
class ReplyStoring(State):
    """The store is writing the reply. `told`: a 33 is on this connection already."""

    phase = "storing"
    connection: int | None
    until: float
    told: bool = False

    @property
    def deadline(self) -> float | None:
        return self.until


@dataclass(slots=True)
class ReplyTelling(State):
    """The reply is in memory and its 33 is on the connection, or waits for one. `stored`: so is a copy in the
    store."""

    phase = "telling"
    connection: int | None
    until: float
    stored: bool

    @property
    def deadline(self) -> float | None:
        return self.until


@dataclass(slots=True)
class ReplyParked(State):
    """Only the store has the reply; a new connection needs it. `fetch_at`: when to read it again after a read
    that failed."""

    phase = "parked"
    connection: int | None
    until: float
    fetch_at: float | None = None

    @property
    def deadline(self) -> float | None:
        return self.until if self.fetch_at is None else min(self.until, self.fetch_at)


@dataclass(slots=True)
class ReplyFetching(State):
    """The reply is being read back, for a connection that may break meanwhile."""

    phase = "fetching"
    connection: int | None
    until: float

    @property
    def deadline(self) -> float | None:
        return self.until


@dataclass(slots=True)
class ReplyEnding(State):
    """Nobody waits for it any more; what the store is still writing is deleted once that is over."""

    phase = "ending"


@dataclass(slots=True)
class ReplyOver(State):
    """Nothing is left."""

    phase = "over"


_Waiting = ReplyStoring | ReplyTelling | ReplyParked | ReplyFetching
_LINKS: Reasons = dict.fromkeys(
    (RequesterLinkLost, RequesterLinkRestored, AckReceived, RequesterGone, MemoryShort, DeadlineReached),
    "nobody waits for the reply any more",
)


class ReplyRelay(Machine):
    """The relay of one reply to the node of its requester."""

    STATES = (
        ReplyMade,
        ReplyStoring,
        ReplyTelling,
        ReplyParked,
        ReplyFetching,
        ReplyEnding,
        ReplyOver,
    )
    EVENTS: ClassVar[tuple[type[Event], ...]] = (
        ReplyFinished,
        BlobStored,
        BlobStoreFailed,
        RequesterLinkLost,
        RequesterLinkRestored,
        AckReceived,
        RequesterGone,
        MemoryShort,
        ReplyFetched,
        ReplyFetchFailed,
        DeadlineReached,
    )
    IGNORED: ClassVar[Ignored] = {
        ReplyStoring: {MemoryShort: "the only copy"},
        ReplyParked: {MemoryShort: "nothing of it is in memory"},
        ReplyFetching: {MemoryShort: "it goes as soon as it was sent"},
        ReplyEnding: _LINKS,
        ReplyOver: {
            **_LINKS,
            **dict.fromkeys((ReplyFetched, ReplyFetchFailed), "a read that was under way at the end"),
        },
    }

    def __init__(self) -> None:
        super().__init__(ReplyMade())

    # the store

    @on(ReplyFinished, ReplyMade, to=(ReplyStoring,))
    def _finished(self, state: ReplyMade, event: ReplyFinished, now: float) -> None:
        if event.connection is not None:
            self._do(SendReply(event.connection))
        self._do(StoreReply())
        self.state = ReplyStoring(event.connection, event.until)

    @on(BlobStored, ReplyStoring, to=(ReplyTelling,))
    @on(BlobStoreFailed, ReplyStoring, to=(ReplyTelling,))
    def _stored(self, state: ReplyStoring, event: BlobStored | BlobStoreFailed, now: float) -> None:
        """A put that failed does not hold the reply back (B7.1)."""
        if state.connection is not None and not state.told:
            self._do(SendReplyRelay(state.connection))
        self.state = state.into(ReplyTelling, stored=isinstance(event, BlobStored))

    @on(BlobStored, ReplyEnding, to=(ReplyOver,))
    @on(BlobStoreFailed, ReplyEnding, to=(ReplyOver,))
    def _stored_late(self, state: ReplyEnding, event: BlobStored | BlobStoreFailed, now: float) -> None:
        """Deleted also when the put failed: its outcome may be unknown."""
        self._end()

    # connections

    @on(RequesterLinkLost, ReplyStoring, ReplyTelling, ReplyParked, ReplyFetching)
    def _lost(self, state: _Waiting, event: RequesterLinkLost, now: float) -> None:
        if event.connection == state.connection:
            state.connection = None
            if isinstance(state, ReplyStoring):
                state.told = False

    @on(RequesterLinkRestored, ReplyStoring)
    def _tell_unstored(self, state: ReplyStoring, event: RequesterLinkRestored, now: float) -> None:
        """The ordinary reply may be lost with the former connection: the 33 does not wait for the store."""
        state.connection, state.told = event.connection, True
        self._do(SendReplyRelay(event.connection))

    @on(RequesterLinkRestored, ReplyTelling)
    def _tell_again(self, state: ReplyTelling, event: RequesterLinkRestored, now: float) -> None:
        state.connection = event.connection
        self._do(SendReplyRelay(event.connection))

    @on(RequesterLinkRestored, ReplyParked, to=(ReplyFetching,))
    def _fetch(self, state: ReplyParked, event: RequesterLinkRestored, now: float) -> None:
        self._do(FetchReply())
        self.state = ReplyFetching(event.connection, state.until)

    @on(RequesterLinkRestored, ReplyFetching)
    def _fetching_for(self, state: ReplyFetching, event: RequesterLinkRestored, now: float) -> None:
        state.connection = event.connection

    @on(ReplyFetched, ReplyFetching, to=(ReplyParked,))
    def _fetched(self, state: ReplyFetching, event: ReplyFetched, now: float) -> None:
        if state.connection is not None:
            self._do(SendReplyRelay(state.connection))
        self._do(ReleaseReply())
        self.state = state.into(ReplyParked)

    @on(ReplyFetchFailed, ReplyFetching, to=(ReplyParked, ReplyOver))
    def _not_fetched(self, state: ReplyFetching, event: ReplyFetchFailed, now: float) -> None:
        if event.gone:
            self._log("reply_expired", "warning")
            self._do(ForgetReply())
            self.state = ReplyOver()
        else:
            again = None if state.connection is None else now + FETCH_PAUSE_S
            self.state = state.into(ReplyParked, fetch_at=again)

    @on(MemoryShort, ReplyTelling, to=(Same, ReplyParked))
    def _park(self, state: ReplyTelling, event: MemoryShort, now: float) -> None:
        if state.stored:
            self._do(ReleaseReply())
            self.state = state.into(ReplyParked)

    # endings

    @on(AckReceived, ReplyStoring, to=(ReplyEnding,))
    @on(RequesterGone, ReplyStoring, to=(ReplyEnding,))
    def _ended_while_storing(
        self, state: ReplyStoring, event: AckReceived | RequesterGone, now: float
    ) -> None:
        self.state = ReplyEnding()

    @on(AckReceived, ReplyTelling, ReplyParked, ReplyFetching, to=(ReplyOver,))
    @on(RequesterGone, ReplyTelling, ReplyParked, ReplyFetching, to=(ReplyOver,))
    def _ended(self, state: _Waiting, event: AckReceived | RequesterGone, now: float) -> None:
        self._end()

    @on(DeadlineReached, ReplyStoring, to=(Same, ReplyEnding))
    def _too_late_to_store(self, state: ReplyStoring, event: DeadlineReached, now: float) -> None:
        if now >= state.until:
            self.state = ReplyEnding()

    @on(DeadlineReached, ReplyTelling, ReplyFetching, to=(Same, ReplyOver))
    def _too_late(self, state: ReplyTelling | ReplyFetching, event: DeadlineReached, now: float) -> None:
        if now >= state.until:
            self._end()

    @on(DeadlineReached, ReplyParked, to=(Same, ReplyFetching, ReplyOver))
    def _parked_deadline(self, state: ReplyParked, event: DeadlineReached, now: float) -> None:
        if now >= state.until:
            self._end()
        elif state.fetch_at is not None and now >= state.fetch_at:
            if state.connection is None:
                state.fetch_at = None
            else:
                self._do(FetchReply())
                self.state = ReplyFetching(state.connection, state.until)

    def _end(self) -> None:
        self._do(DeleteReply())
        self._do(ForgetReply())
        self.state = ReplyOver()
