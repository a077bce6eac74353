"""Where a member accepts connections: one listening socket and the connections that have not proved themselves.

Owns binding, the limit on unauthenticated connections and on those that linger after a refusal. It must not
know links: whoever proves itself is passed on to the owner.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import ssl
from collections.abc import Callable

from sojourn.errors import NotConfigured
from sojourn.handshake import Handshake
from sojourn.handshake_octets import HandshakeRefused, Peer, RefusalReason
from sojourn.mesh import format_endpoint
from sojourn.workers.greeting import Greeting, GreetingOwner, GreetingSet

__all__ = ["Listener", "is_loopback"]


def is_loopback(host: str) -> bool:
    """True when `host` is a loopback address or `localhost`: nothing outside this machine reaches it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Listener:
    """Accepts connections and runs the accepting side of their handshakes.

    It is itself a `GreetingOwner`, so that its counts are right, and passes everything on to `owner`.
    """

    def __init__(
        self,
        owner: GreetingOwner,
        new_handshake: Callable[[], Handshake],
        unauthenticated_max: int,
        tls: ssl.SSLContext | None = None,
        tls_timeout_s: float = 5.0,
    ) -> None:
        self._owner = owner
        self._new_handshake = new_handshake
        self._unauthenticated_max = unauthenticated_max
        self._tls = tls
        self._tls_timeout_s = tls_timeout_s if tls is not None else None
        self._server: asyncio.Server | None = None
        self._greetings = GreetingSet()
        self.endpoint = ""
        """`host:port` as bound; empty before `start`."""

    async def start(self, host: str, port: int) -> None:
        """Listen on `host`; port 0 takes a free one.

        Raises:
            NotConfigured: the port is in use or may not be used, or the host is not one of this machine.
        """
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._accept,
                host,
                port,
                ssl=self._tls,
                ssl_handshake_timeout=self._tls_timeout_s,
                backlog=512,
            )
        except OSError as error:
            place = format_endpoint(host, port)
            if error.errno == errno.EADDRINUSE:
                way_out = "the port is in use; choose another one, or 0 for any free port"
            else:
                way_out = error.strerror or str(error)
            raise NotConfigured(f"cannot listen on {place}: {way_out}") from error
        bound = self._server.sockets[0].getsockname()
        self.endpoint = format_endpoint(host, bound[1])

    def stop_accepting(self) -> None:
        """Close the listening socket; connections in their handshake are refused."""
        if self._server is not None:
            self._server.close()
        for greeting in self._greetings:
            if not greeting.over:
                greeting.refuse(RefusalReason.SHUTTING_DOWN)

    async def stop(self) -> None:
        """Close everything that did not become a link."""
        self.stop_accepting()
        await self._greetings.abort_all()
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    @property
    def unauthenticated(self) -> int:
        """Connections that have not proved themselves."""
        return sum(1 for greeting in self._greetings if greeting.unauthenticated)

    def _accept(self) -> Greeting:
        return Greeting(self._new_handshake(), self)

    # GreetingOwner

    def on_connected(self, greeting: Greeting) -> None:
        self._greetings.add(greeting)
        self._make_room()
        self._owner.on_connected(greeting)

    def _make_room(self) -> None:
        """Whoever has waited longest gives way to who has just come: a member proves itself within moments, and
        strangers must not keep it out. Of those that said nothing and those that sent a Hello, which proves nothing
        either, the larger group loses its oldest: a crowd of the one kind drives out nobody of the other."""
        unproved = [greeting for greeting in self._greetings if greeting.unauthenticated]
        if len(unproved) > self._unauthenticated_max:
            earlier = unproved[:-1]
            silent = [greeting for greeting in earlier if greeting.said_nothing]
            begun = [greeting for greeting in earlier if not greeting.said_nothing]
            (silent if len(silent) >= len(begun) else begun)[0].refuse(RefusalReason.TOO_MANY)
        if len(self._greetings) > 2 * self._unauthenticated_max:
            lingering = (greeting for greeting in self._greetings if greeting.lingering)
            oldest = next(lingering, None)
            if oldest is not None:
                oldest.abort()

    def on_ask(self, greeting: Greeting, peer: Peer) -> None:
        self._owner.on_ask(greeting, peer)

    def on_established(
        self, greeting: Greeting, peer: Peer, transport: asyncio.Transport, leftover: bytes
    ) -> None:
        self._greetings.discard(greeting)
        self._owner.on_established(greeting, peer, transport, leftover)

    def on_failed(self, greeting: Greeting, error: HandshakeRefused) -> None:
        self._owner.on_failed(greeting, error)

    def on_gone(self, greeting: Greeting) -> None:
        self._greetings.discard(greeting)
        self._owner.on_gone(greeting)
