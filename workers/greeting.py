"""The shell of one handshake: a connection before it becomes a link.

Owns the socket side of `sojourn.handshake`: a small receive buffer, one timer, and the half-closed moment in
which a refused peer reads why. It must not know which connections are wanted: it asks its `GreetingOwner`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol, cast

from sojourn.handshake import (
    Admitted,
    AskAdmission,
    BytesReceived,
    Close,
    Connected,
    DeadlinePassed,
    EndOfStream,
    Established,
    Event,
    Failed,
    Handshake,
    HandshakeState,
    NotAdmitted,
    SendBytes,
)
from sojourn.handshake_octets import HandshakeRefused, Peer, RefusalReason
from sojourn.ids import NodeRun
from sojourn.workers.peer_warnings import peer_address

__all__ = ["LINGER_S", "Greeting", "GreetingOwner", "GreetingSet"]

LINGER_S = 1.0
"""How long a refused connection stays half closed, so that the peer reads the refusal before a reset."""

_BUFFER = 4096
_SILENT = (HandshakeState.ACCEPTING, HandshakeState.AWAIT_HELLO)
_OVER = (HandshakeState.OPEN, HandshakeState.CLOSED)


class GreetingOwner(Protocol):
    """Who decides about a connection and takes it over."""

    def on_connected(self, greeting: Greeting) -> None:
        """The connection stands; called before its first octet. May call `refuse`."""

    def on_ask(self, greeting: Greeting, peer: Peer) -> None:
        """The dialling peer proved itself: call `admit` or `refuse`, now or later."""

    def on_established(
        self, greeting: Greeting, peer: Peer, transport: asyncio.Transport, leftover: bytes
    ) -> None:
        """Both sides proved themselves: the transport is the owner's."""

    def on_failed(self, greeting: Greeting, error: HandshakeRefused) -> None:
        """No link will come of it. Comes at most once, never after `on_established`."""

    def on_gone(self, greeting: Greeting) -> None:
        """The connection is closed. Not called for one that became a link; may come twice."""


class Greeting(asyncio.BufferedProtocol):
    """One connection during its handshake, either side."""

    def __init__(self, handshake: Handshake, owner: GreetingOwner) -> None:
        self.handshake = handshake
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(_BUFFER))
        self._timer: asyncio.TimerHandle | None = None
        self.address = ""
        """`host:port` of the other end, empty before the connection stands."""

    @property
    def dialled(self) -> NodeRun | None:
        """The run this side dialled, None when it accepted the connection."""
        return self.handshake.dialled

    @property
    def over(self) -> bool:
        """The handshake came to an end, either way."""
        return self.handshake.state in _OVER

    @property
    def unauthenticated(self) -> bool:
        """The peer has not proved itself yet."""
        return not self.over and self.handshake.state is not HandshakeState.AWAIT_ADMISSION

    @property
    def said_nothing(self) -> bool:
        """An accepted connection on which no Hello has come."""
        return self.handshake.state in _SILENT

    @property
    def lingering(self) -> bool:
        """Refused, and open for a moment so that the peer can read why."""
        return self.over and self._transport is not None and not self._transport.is_closing()

    def admit(self) -> None:
        """Answer to `on_ask`: yes."""
        self._feed(Admitted())

    def refuse(self, reason: RefusalReason) -> None:
        """Answer to `on_ask`: no; or the end of a handshake at any other time."""
        self._feed(NotAdmitted(reason))

    def abort(self) -> None:
        """Cut the connection without a word. `on_failed` follows when the handshake was not over."""
        if self._transport is not None:
            self._transport.abort()

    def forget(self) -> None:
        """The dial was given up before `create_connection` returned: uvloop then closes the connection without
        a `connection_lost`."""
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self._owner.on_gone(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no instances of it
        self.address = peer_address(transport)
        self._arm(self.handshake.deadline - self._loop.time(), self._deadline_passed)
        self._owner.on_connected(self)
        if not self.over:
            self._feed(Connected())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self.over:
            self._feed(BytesReceived(bytes(self._buffer[:nbytes])))

    def eof_received(self) -> bool:
        if not self.over:
            self._feed(EndOfStream())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        if not self.over:
            self._feed(EndOfStream())
        self._owner.on_gone(self)

    def _deadline_passed(self) -> None:
        self._feed(DeadlinePassed())

    def _feed(self, event: Event) -> None:
        now = self._loop.time()
        if isinstance(event, DeadlinePassed):
            now = max(now, self.handshake.deadline)
        for effect in self.handshake.handle(event, now):
            match effect:
                case SendBytes(octets):
                    if self._transport is not None:
                        self._transport.write(octets)
                case AskAdmission(peer):
                    self._owner.on_ask(self, peer)
                case Established(peer, leftover):
                    self._established(peer, leftover)
                case Failed(error):
                    self._owner.on_failed(self, error)
                case Close():
                    self._linger()

    def _established(self, peer: Peer, leftover: bytes) -> None:
        if self._timer is not None:
            self._timer.cancel()
        transport, self._transport = self._transport, None
        assert transport is not None
        self._owner.on_established(self, peer, transport, leftover)

    def _linger(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if not transport.can_write_eof():
            transport.close()
            return
        transport.write_eof()
        self._arm(LINGER_S, transport.abort)

    def _arm(self, delay_s: float, action: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.0, delay_s), action)


class GreetingSet:
    """The greetings of one owner whose connections are open."""

    def __init__(self) -> None:
        self._open: dict[Greeting, None] = {}
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Greeting]:
        """The oldest first."""
        return iter(list(self._open))

    def add(self, greeting: Greeting) -> None:
        """A connection stands."""
        self._open[greeting] = None

    def discard(self, greeting: Greeting) -> None:
        """A connection is closed, or has become a link."""
        self._open.pop(greeting, None)
        if not self._open and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def abort_all(self) -> None:
        """Cut every connection; return when all are closed. One caller at a time."""
        for greeting in self:
            greeting.abort()
        if self._open:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
