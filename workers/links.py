"""The mesh of one member: one live link per peer run, dialled or accepted (B8.13, B13.1).

Owns who dials, which of two connections stays, re-dialling while a peer is wanted, and orderly stopping. It must
not know routes or what links carry.

Which connection stays. A connection becomes a link when the accepting side admits it. The accepting side refuses
it (`duplicate-dial`) while its own dial to the same run has sent its Hello and its own run is the lower one;
otherwise it admits it and drops its own dial. While an older link of the same run is alive here, the new
connection waits unread: the old link is asked for a sign of life. If it answers, the new one is refused
(`already-connected`); when it ends, or does neither in time and is cut, the new one is admitted.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import ssl
from typing import Any, Protocol

from sojourn import mesh
from sojourn.errors import NotConfigured, Unavailable
from sojourn.handshake import (
    BytesReceived,
    Connected,
    EndOfStream,
    Handshake,
    HandshakeState,
    SendBytes,
)
from sojourn.handshake_octets import (
    NONCE_OCTETS,
    HandshakeRefused,
    Identity,
    Peer,
    PeerRole,
    RefusalReason,
    check_cluster,
    check_secret,
)
from sojourn.ids import NodeRun
from sojourn.workers.greeting import Greeting, GreetingSet
from sojourn.workers.link import Link, LinkOptions, LinkReceiver
from sojourn.workers.listener import Listener, is_loopback
from sojourn.workers.peer_warnings import PeerWarnings
from sojourn.workers.records import too_large

__all__ = ["Links", "MeshReceiver"]

_log = logging.getLogger("sojourn.mesh")


class MeshReceiver(LinkReceiver, Protocol):
    """Who gets everything from all links: frames as `LinkReceiver` says, and their coming and going."""

    def on_up(self, link: Link) -> None:
        """A link stands; before its first frame. Sending is allowed."""

    def on_down(self, link: Link, reason: str) -> None:
        """A link is over; its last callback, and before `on_up` of another one to the same run. See
        `Link.unsent`."""


class _Held:
    """An authenticated connection that waits for the end of an older link."""

    def __init__(self, greeting: Greeting, peer: Peer, timer: asyncio.TimerHandle) -> None:
        self.greeting = greeting
        self.peer = peer
        self.timer = timer


class Links:
    """All links of one member. Made and used inside one event loop."""

    def __init__(
        self,
        identity: NodeRun,
        cluster: str,
        secret: bytes,
        receiver: MeshReceiver,
        *,
        role: PeerRole = PeerRole.NODE,
        host: str | None = "127.0.0.1",
        port: int = 0,
        advertise: str = "",
        options: LinkOptions | None = None,
        tls_server: ssl.SSLContext | None = None,
        tls_client: ssl.SSLContext | None = None,
    ) -> None:
        """`host` None: accept nothing (clients). `advertise`: the `host:port` that peers dial, where that is not
        where this member listens; port 0 stands for the port it listens on. A secret is always required, TLS is optional: both contexts
        or none. With `tls_client` every dial uses TLS; certificates are the context's business.

        Raises:
            NotConfigured: a secret of less than 16 octets, a bad cluster name, only one TLS context, an
                address that peers cannot dial.
        """
        check_cluster(cluster)
        check_secret(secret)
        if host is not None and (tls_server is None) != (tls_client is None):
            raise NotConfigured(
                "TLS needs both a server and a client context: every member listens and dials"
            )
        self._advertise = _advertised(host, advertise)
        self.identity = identity
        self.options = options or LinkOptions()
        self._cluster = cluster
        self._secret = secret
        self._receiver = receiver
        self._self = Identity(identity, role, self.options.receive_chunk_limit, self.options.frame_octets_max)
        self._host = host
        self._port = port
        self._tls_client = tls_client
        self._listener = Listener(
            self,
            self._accepting,
            self.options.unauthenticated_max,
            tls_server,
            self.options.handshake_timeout_s,
        )
        self._links: dict[NodeRun, Link] = {}
        self._held: dict[NodeRun, _Held] = {}
        self._dials: dict[NodeRun, asyncio.Task[Link | HandshakeRefused]] = {}
        self._greeted: dict[NodeRun, Greeting] = {}
        self._arrivals: dict[NodeRun, asyncio.Future[Link]] = {}
        self._dial_results: dict[Greeting, asyncio.Future[Link | HandshakeRefused]] = {}
        self._keepers: dict[NodeRun, asyncio.Task[None]] = {}
        self._refusals: dict[NodeRun, HandshakeRefused] = {}
        self._dialling = GreetingSet()
        self._warnings = PeerWarnings(_log, asyncio.get_running_loop().time)
        self._stopping = False

    # the public face

    @property
    def endpoint(self) -> str:
        """`host:port` where peers reach this member; empty for clients and before `start`."""
        if self._advertise is None or not self.listening:
            return self.listening
        host, port = self._advertise
        return mesh.format_endpoint(host, port or mesh.parse_endpoint(self.listening)[1])

    @property
    def listening(self) -> str:
        """`host:port` this member listens on; empty for clients and before `start`."""
        return self._listener.endpoint

    async def start(self) -> None:
        """Begin to accept. Does nothing for a member without a host.

        Raises:
            NotConfigured: the address cannot be used; names it.
        """
        if self._host is None:
            return
        if not is_loopback(self._host):
            _log.info(
                "listening beyond loopback on %s, %s",
                self._host,
                "TLS" if self._tls_client else "without TLS",
            )
        await self._listener.start(self._host, self._port)

    def get(self, run: NodeRun) -> Link | None:
        """The usable link to `run`, if there is one."""
        link = self._links.get(run)
        return None if link is None or link.closing else link

    def for_move(self, run: NodeRun, message_octets: int) -> Link:
        """The link over which an object may move whose messages have up to `message_octets`.

        Raises:
            Unavailable: there is none.
            InvalidOperation: the target reads less. Behind the boundary a relayed message could be refused, and
                nothing could be taken back any more (R4.1.1, R4.4.2).
        """
        link = self.get(run)
        if link is None:
            raise Unavailable(f"there is no connection to node {run}", applied="no")
        if link.peer_frame_octets_max < message_octets:
            raise too_large("a message", message_octets, run, link.peer_frame_octets_max)
        return link

    def refusals(self) -> dict[NodeRun, HandshakeRefused]:
        """Runs that are wanted and not linked, with what the last dial ended in."""
        return dict(self._refusals)

    def all(self) -> list[Link]:
        """Every usable link."""
        return [link for link in self._links.values() if not link.closing]

    async def ensure(self, run: NodeRun, endpoint: str) -> Link:
        """The link to `run`, dialled if there is none. Callers at the same time share one dial.

        Cancelling a caller ends only its own wait.

        Raises:
            HandshakeRefused: (an Unavailable, `applied` "no") with the `reason`.
            NotConfigured: an endpoint that is not `host:port`.
        """
        link = self.get(run)
        if link is not None:
            return link
        outcome = await self._dial(run, endpoint)
        if isinstance(outcome, HandshakeRefused):
            raise HandshakeRefused.copy_of(outcome)
        return outcome

    def want(self, run: NodeRun, endpoint: str) -> None:
        """Keep a link to `run` until `unwant`: dial now, and again after it breaks, with growing pauses.

        Wanting a run again with another endpoint replaces the endpoint.
        """
        mesh.parse_endpoint(endpoint)
        self.unwant(run)
        if not self._stopping:
            self._keepers[run] = asyncio.get_running_loop().create_task(
                self._keep(run, endpoint), name=f"keep {run}"
            )

    def unwant(self, run: NodeRun) -> None:
        """Stop dialling `run`; a link that stands is left as it is."""
        self._refusals.pop(run, None)
        keeper = self._keepers.pop(run, None)
        if keeper is not None:
            keeper.cancel()

    async def answers(self, run: NodeRun, endpoint: str) -> bool:
        """Whether `run` itself answers at an endpoint. No link comes of it, and nothing is proved to it."""
        handshake = self._handshake(run)
        host, port = mesh.parse_endpoint(endpoint)
        now = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self.options.dial_timeout_s):
                reader, writer = await asyncio.open_connection(host, port, ssl=self._tls_client)
                try:
                    for effect in handshake.handle(Connected(), now):
                        if isinstance(effect, SendBytes):
                            writer.write(effect.octets)
                    while handshake.state is HandshakeState.AWAIT_CHALLENGE:
                        octets = await reader.read(4096)
                        handshake.handle(BytesReceived(octets) if octets else EndOfStream(), now)
                finally:
                    writer.transport.abort()
        except (OSError, TimeoutError):
            return False
        return handshake.peer is not None

    async def stop(self, timeout_s: float) -> None:
        """Say goodbye on every link, wait for the peers' goodbyes up to `timeout_s`, then cut what is left.

        `on_down` has run for every link when this returns.
        """
        self._stopping = True
        self._listener.stop_accepting()
        keepers, dials = list(self._keepers.values()), list(self._dials.values())
        self._keepers.clear()
        for keeper in keepers:
            keeper.cancel()
        for dial in dials:
            dial.cancel()
        await asyncio.gather(*keepers, *dials, return_exceptions=True)
        links = list(self._links.values())
        for link in links:
            link.close("stopped")
        ends = [asyncio.ensure_future(link.wait_closed()) for link in links]
        if ends:
            await asyncio.wait(ends, timeout=timeout_s)
            for link in links:
                if link in self._links.values():
                    link.abort("stopped")
            await asyncio.wait(ends)
        await self._dialling.abort_all()
        await self._listener.stop()

    # dialling

    async def _dial(self, run: NodeRun, endpoint: str) -> Link | HandshakeRefused:
        """The outcome of the one dial to `run`; it goes on when this caller is cancelled."""
        task = self._dials.get(run)
        if task is None:
            if self._stopping:
                return HandshakeRefused.of(RefusalReason.SHUTTING_DOWN, "this member is stopping")
            if run == self.identity:
                return HandshakeRefused.of(RefusalReason.SELF, f"{run} is this member itself")
            if not endpoint:
                return HandshakeRefused.of(RefusalReason.UNREACHABLE, f"{run} accepts no connections")
            host, port = mesh.parse_endpoint(endpoint)
            task = asyncio.get_running_loop().create_task(self._dial_run(run, host, port), name=f"dial {run}")
            self._dials[run] = task
            task.add_done_callback(lambda _: self._dials.pop(run, None))
        await asyncio.wait({task})
        if task.cancelled():
            return HandshakeRefused.of(RefusalReason.SHUTTING_DOWN, "this member is stopping")
        outcome = task.result()
        if isinstance(outcome, HandshakeRefused) and run in self._keepers:
            self._refusals[run] = outcome
        return outcome

    async def _dial_run(self, run: NodeRun, host: str, port: int) -> Link | HandshakeRefused:
        """One dial; a link that the peer dialled meanwhile is as good."""
        while (old := self._links.get(run)) is not None:
            if not old.closing:
                return old
            await old.wait_closed()  # B8.13: never two connections that are read
        arrival: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
        self._arrivals[run] = arrival
        attempt = asyncio.ensure_future(self._attempt(run, host, port))
        try:
            return await self._first_of(arrival, attempt, run)
        finally:
            self._arrivals.pop(run, None)
            attempt.cancel()
            await asyncio.gather(attempt, return_exceptions=True)

    async def _first_of(
        self, arrival: asyncio.Future[Link], attempt: asyncio.Future[Link | HandshakeRefused], run: NodeRun
    ) -> Link | HandshakeRefused:
        deadline = asyncio.get_running_loop().time() + self.options.dial_timeout_s
        both: set[asyncio.Future[Any]] = {arrival, attempt}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED, timeout=self.options.dial_timeout_s)
        if arrival.done():
            return arrival.result()
        if not attempt.done():
            return HandshakeRefused.of(
                RefusalReason.UNREACHABLE, f"no link to {run} within {self.options.dial_timeout_s:g} s"
            )
        outcome = attempt.result()
        if isinstance(outcome, HandshakeRefused) and outcome.by_peer and outcome.reason in _PEER_HAS_ANOTHER:
            left_s = deadline - asyncio.get_running_loop().time()
            await asyncio.wait({arrival}, timeout=max(0.0, left_s))
            if arrival.done():
                return arrival.result()
        return outcome

    async def _attempt(self, run: NodeRun, host: str, port: int) -> Link | HandshakeRefused:
        loop = asyncio.get_running_loop()
        greeting = Greeting(self._handshake(run), self)
        result: asyncio.Future[Link | HandshakeRefused] = loop.create_future()
        self._dial_results[greeting] = result
        try:
            await self._connect(greeting, host, port)
            return await result
        except OSError as error:
            place = mesh.format_endpoint(host, port)
            return HandshakeRefused.of(
                RefusalReason.UNREACHABLE, f"{run} at {place}: {error.strerror or error}"
            )
        finally:
            del self._dial_results[greeting]
            if self._greeted.get(run) is greeting:
                del self._greeted[run]
            if not greeting.over:
                greeting.abort()

    async def _connect(self, greeting: Greeting, host: str, port: int) -> None:
        timeout_s = None if self._tls_client is None else self.options.handshake_timeout_s
        connected = False
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: greeting, host, port, ssl=self._tls_client, ssl_handshake_timeout=timeout_s
            )
            connected = True
        finally:
            if not connected:
                greeting.forget()

    async def _keep(self, run: NodeRun, endpoint: str) -> None:
        pause_s = self.options.redial_first_s
        while True:
            link = self.get(run)
            if link is None:
                outcome = await self._dial(run, endpoint)
                if isinstance(outcome, HandshakeRefused):
                    _log.info("no link to %s, again in %.2f s: %s", run, pause_s, outcome.message)
                    await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
                    pause_s = min(2 * pause_s, self.options.redial_max_s)
                    continue
                link = outcome
            pause_s = self.options.redial_first_s
            await link.wait_closed()

    # accepting

    def _accepting(self) -> Handshake:
        return self._handshake(None)

    def _handshake(self, dialled: NodeRun | None) -> Handshake:
        return Handshake(
            self._self,
            self._cluster,
            self._secret,
            secrets.token_bytes(NONCE_OCTETS),
            asyncio.get_running_loop().time() + self.options.handshake_timeout_s,
            dialled,
            self.options.handshake_octets_max,
        )

    def _hold(self, greeting: Greeting, peer: Peer, old: Link) -> None:
        earlier = self._held.pop(peer.run, None)
        if earlier is not None:
            earlier.timer.cancel()
            earlier.greeting.refuse(RefusalReason.DUPLICATE_DIAL)
        timer = asyncio.get_running_loop().call_later(
            self.options.supersede_timeout_s, old.abort, "superseded by a new connection of the same run"
        )
        held = _Held(greeting, peer, timer)
        self._held[peer.run] = held

        def answered(alive: asyncio.Future[bool]) -> None:
            if alive.result() and self._held.get(peer.run) is held:
                self._release(held)
                greeting.refuse(RefusalReason.ALREADY_CONNECTED)

        old.probe().add_done_callback(answered)

    def _release(self, held: _Held) -> None:
        held.timer.cancel()
        del self._held[held.peer.run]

    # GreetingOwner

    def on_connected(self, greeting: Greeting) -> None:
        """The connection of a greeting stands."""
        dialled = greeting.dialled
        if dialled is not None:
            self._greeted[dialled] = greeting
            self._dialling.add(greeting)

    def on_ask(self, greeting: Greeting, peer: Peer) -> None:
        """A dialling peer proved itself: see the module for the rule."""
        run = peer.run
        old = self._links.get(run)
        if self._stopping:
            greeting.refuse(RefusalReason.SHUTTING_DOWN)
        elif old is not None:
            self._hold(greeting, peer, old)
        elif run in self._greeted and self.identity < run:
            greeting.refuse(RefusalReason.DUPLICATE_DIAL)
        else:
            greeting.admit()

    def on_established(
        self, greeting: Greeting, peer: Peer, transport: asyncio.Transport, leftover: bytes
    ) -> None:
        """A handshake is over: the connection becomes the link of its run."""
        self._dialling.discard(greeting)
        run = peer.run
        result = self._dial_results.get(greeting)
        present = self._links.get(run)
        if present is not None or self._stopping:
            # The peer's own connection came first and this dial lost; it carried nothing.
            transport.abort()
            if result is not None and not result.done():
                text = f"another connection to {run} was first"
                result.set_result(HandshakeRefused.of(RefusalReason.DUPLICATE_DIAL, text))
            return
        self._refusals.pop(run, None)
        link = Link(peer, self._receiver, self.options, self._link_closed)
        self._links[run] = link
        own = self._greeted.pop(run, None)
        if own is not None and own is not greeting:
            own.abort()
        self._receiver.on_up(link)
        arrival = self._arrivals.get(run)
        if arrival is not None and not arrival.done():
            arrival.set_result(link)
        if result is not None and not result.done():
            result.set_result(link)
        link.open(transport, leftover)

    def on_failed(self, greeting: Greeting, error: HandshakeRefused) -> None:
        """A handshake ended without a link."""
        result = self._dial_results.get(greeting)
        if result is not None:
            if not result.done():
                result.set_result(error)
            return
        peer = greeting.handshake.peer
        if peer is not None:
            held = self._held.get(peer.run)
            if held is not None and held.greeting is greeting:
                self._release(held)
        if error.reason not in _EXPECTED:
            address = greeting.address
            self._warnings.about_stranger(address, f"connection from {address} refused: {error.message}")

    def on_gone(self, greeting: Greeting) -> None:
        """A connection that did not become a link is closed."""
        self._dialling.discard(greeting)

    def _link_closed(self, link: Link, reason: str) -> None:
        """A link is over: tell the receiver, then admit the connection that waited for its end."""
        if self._links.get(link.peer) is link:
            del self._links[link.peer]
        who = f"{link.peer} at {link.address}"
        if link.violation:
            self._warnings.about(str(link.peer), f"{who} broke the protocol: {link.violation}")
        elif reason.startswith("goodbye: protocol: "):
            self._warnings.about(str(link.peer), f"{who} closed the link: {reason.removeprefix('goodbye: ')}")
        try:
            self._receiver.on_down(link, reason)
        finally:
            held = self._held.get(link.peer)
            if held is not None:
                self._release(held)
                self.on_ask(held.greeting, held.peer)


def _advertised(host: str | None, advertise: str) -> tuple[str, int] | None:
    """The address that peers are told instead of the one listened on, checked."""
    if not advertise:
        if host in _ANY_ADDRESS:
            raise NotConfigured(
                f"listen address {host!r} names no interface, and peers are told where to dial: "
                "listen on the address they reach this machine by, or name that one with `advertise`"
            )
        return None
    address = mesh.parse_endpoint(advertise)
    if address[0] in _ANY_ADDRESS:
        raise NotConfigured(f"advertise = {advertise!r} names no address that peers could dial")
    return address


_ANY_ADDRESS = ("0.0.0.0", "::", "")
_PEER_HAS_ANOTHER = (RefusalReason.DUPLICATE_DIAL.value, RefusalReason.ALREADY_CONNECTED.value)
_EXPECTED = (*_PEER_HAS_ANOTHER, RefusalReason.CONNECTION_LOST.value, RefusalReason.SHUTTING_DOWN.value)
