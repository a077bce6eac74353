"""One authenticated link between two node runs: frames both ways, credit for records, keepalive.

Owns what happens on one connection after its handshake (B5.2, B8.13): order of frames, record credit, liveness,
orderly closing, and what is known about octets when it breaks. It must not know routes, objects, or other links.

Order on one link: everything sent leaves in the order of the calls, with two exceptions: a record that waits for
credit is overtaken by whatever needs none (replies, control, contract frames), and state that waits behind other
state is overtaken by whatever else is sent. Records never overtake records, nor state state.
Where a contract frame must follow an object's records (a relay behind what was sent before), its sender waits
until `outbound_records` is 0 or takes care of that object's records itself.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, cast

from sojourn import mesh
from sojourn.errors import InvalidOperation, NotConfigured, ProtocolError, Unavailable
from sojourn.frames import (
    KIND_CONTRACT,
    KIND_CONTROL,
    KIND_RECORD,
    KIND_REPLY,
    LENGTH,
    contract_head,
    control_frame,
    parse_contract,
)
from sojourn.handshake_octets import CHUNK_LIMIT_MAX, Peer, PeerRole
from sojourn.ids import NodeRun
from sojourn.options import Options
from sojourn.workers.bulk_ahead import BulkAhead
from sojourn.workers.debt import Debt
from sojourn.workers.peer_warnings import peer_address
from sojourn.workers.stream import FrameReader, FrameWriter, Piece

__all__ = ["ContractPart", "Link", "LinkOptions", "LinkReceiver"]

ContractPart: TypeAlias = Piece | Sequence[Piece]
"""One part of a contract record: its octets, or pieces that make it up (a command's head and the chunk)."""

_HEADER_ROOM = 64 * 1024
_connection_ids = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """Limits and times of links. Octets and seconds."""

    max_frame_bytes: int = 1024 * 1024
    """Largest application record; a frame may be 64 KiB larger (headers)."""
    receive_chunk_limit: int = 256 * 1024
    """Largest chunkData this member takes, announced in the handshake (R4.2.5, B8.11); 0 to 64 MiB."""
    credit_records: int = 1024
    """Application records a peer may have on the way to this member, not yet given back."""
    credit_octets: int = 8 * 1024 * 1024
    """The same in octets of frame bodies. One record may go beyond it, so a large one is never stuck."""
    handshake_timeout_s: float = 5.0
    dial_timeout_s: float = 5.0
    """One attempt to connect, handshake included."""
    handshake_octets_max: int = 8192
    """Most octets read from a connection before it is authenticated."""
    unauthenticated_max: int = 64
    """Accepted connections that have not proved themselves yet."""
    ping_interval_s: float = 2.0
    """A peer not heard from for this long is asked."""
    silence_limit_s: float = 10.0
    """A peer not heard from for this long is given up."""
    supersede_timeout_s: float = 1.0
    """How long an old link of the same run may take to answer or end once a new connection waits (B8.13)."""
    goodbye_timeout_s: float = 2.0
    redial_first_s: float = 0.05
    redial_max_s: float = 2.0

    def __post_init__(self) -> None:
        if not 0 <= self.receive_chunk_limit <= CHUNK_LIMIT_MAX:
            raise NotConfigured(
                f"receive_chunk_limit is 0 to {CHUNK_LIMIT_MAX} octets, not {self.receive_chunk_limit}"
            )
        if not 1024 <= self.max_frame_bytes <= 2**31:
            raise NotConfigured(f"max_frame_bytes is 1024 to {2**31}, not {self.max_frame_bytes}")
        if self.credit_records < 1 or self.credit_octets < 1:
            raise NotConfigured("credit_records and credit_octets are at least 1")
        if self.silence_limit_s < self.ping_interval_s:
            raise NotConfigured("silence_limit_s must not be below ping_interval_s")

    @classmethod
    def of(cls, options: Options) -> LinkOptions:
        """What a member's options say about its links; the rest are the defaults."""
        return cls(
            max_frame_bytes=options.max_frame_bytes,
            receive_chunk_limit=options.relocation_chunk_bytes,
            handshake_timeout_s=options.handshake_timeout_ms / 1000,
            dial_timeout_s=options.handshake_timeout_ms / 1000,
            handshake_octets_max=options.handshake_max_bytes,
            unauthenticated_max=options.handshake_max_connections,
        )

    @property
    def frame_octets_max(self) -> int:
        """Largest frame body this member reads, announced in the handshake."""
        return max(self.max_frame_bytes, self.receive_chunk_limit) + _HEADER_ROOM


class LinkReceiver(Protocol):
    """Who gets what arrives. Called in the order of the connection; a raised ProtocolError closes the link."""

    def on_record(self, link: Link, body: bytes) -> None:
        """An application record frame (kind 2). Its credit is given back with `link.give_back`."""

    def on_reply(self, link: Link, body: bytes) -> None:
        """A reply frame (kind 3)."""

    def on_contract(self, link: Link, parts: Sequence[Piece], deadline_ms: int) -> None:
        """A contract record. Parts of frames above 64 KiB are read-only views, others bytes. All may be kept,
        but a kept view keeps the whole frame's memory and costs the link its reuse: copy what stays long."""

    def on_control(self, link: Link, message: mesh.MeshControl) -> None:
        """A control message that is not the link's own."""


class Link(asyncio.BufferedProtocol):
    """See the module. Made by `Links` once a handshake is over; usable until `closing` is True.

    Attributes:
        peer: the run at the other end.
        peer_role: node or client.
        peer_receive_chunk_limit: octets of chunkData the peer takes (32 KiB where it announced none).
        peer_frame_octets_max: largest frame body the peer reads.
        dialled: True when this side opened the connection.
        address: `host:port` of the other end, empty before `open`.
        violation: how the peer broke the protocol, empty while it has not; the link then ends.
        connection_id: unique in this process; another connection to the same run has another.
        outbound_records, outbound_octets: records that wait here for credit.
        unsent: after the end, records never handed to the transport, in order.
        unsent_replies: after the end, replies never handed to the transport.
    """

    def __init__(
        self,
        peer: Peer,
        receiver: LinkReceiver,
        options: LinkOptions,
        on_closed: Callable[[Link, str], None],
    ) -> None:
        """`on_closed(link, reason)` is the last call: `unsent` then holds the records that were never handed
        over; every other record sent on the link may or may not have arrived."""
        self.peer: NodeRun = peer.run
        self.peer_role: PeerRole = peer.identity.role
        self.peer_receive_chunk_limit = peer.receive_chunk_limit
        self.peer_frame_octets_max = peer.identity.frame_octets_max
        self.dialled = peer.dialled
        self.connection_id = next(_connection_ids)
        self.outbound_records = 0
        self.outbound_octets = 0
        self.unsent: list[bytes] = []
        self.unsent_replies: list[bytes] = []
        self.closing = False
        self.address = ""
        self.violation = ""
        self._receiver = receiver
        self._on_record = receiver.on_record
        self._on_closed = on_closed
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(self._deliver, options.frame_octets_max)
        self._writer = FrameWriter(self._loop, self._before_flush)
        self._bulk = BulkAhead(self._writer.send_parts, self.probe)
        self._waiting: deque[tuple[bytes, Debt | None] | list[Piece]] = deque()
        self._credit_records = 0
        self._credit_octets = 0
        self._granted_records = 0
        self._granted_octets = 0
        self._low_records = options.credit_records // 2
        self._low_octets = options.credit_octets // 2
        self._back_records = options.credit_records
        self._back_octets = options.credit_octets
        self._reason = ""
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._deaf = False
        self._gives_way = False
        self._said_goodbye = False
        self._heard = True
        self._silent_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._ping_numbers = itertools.count(1)
        self._probes: dict[int, asyncio.Future[bool]] = {}

    def __repr__(self) -> str:
        return f"<Link {self.connection_id} to {self.peer}{' closing' if self.closing else ''}>"

    # sending

    def send(self, body: bytes) -> None:
        """Send a frame that needs no credit: a reply, or a contract or control frame built elsewhere.

        Raises:
            Unavailable: the link is closing (`applied` is "no").
            InvalidOperation: larger than the peer reads.
        """
        if self.closing or len(body) > self.peer_frame_octets_max:
            raise self._refusal(len(body))
        self._writer.send(body)

    def send_control(self, message: mesh.MeshControl) -> None:
        """Send a control message; raises as `send`."""
        self.send(control_frame(mesh.encode_mesh(message)))

    def send_contract(
        self,
        parts: Sequence[ContractPart],
        deadline_ms: int = 0,
        on_written: Callable[[bool], None] | None = None,
    ) -> None:
        """Send one contract record; pieces of 16 KiB and more are not copied and must not change meanwhile.

        `on_written(True)` comes when the kernel has every octet of it (the transport lets go of a batch of up
        to 1 MiB at a time and of nothing after it before that), `on_written(False)` when the connection
        broke first: then it may have arrived in part, or, if it was handed over, as a whole. Exactly one of
        the two comes, in the call order of the frames. It may come from inside a later flush, never from
        inside this call. Raises as `send`.
        """
        pieces, _ = self._contract_pieces(parts, deadline_ms)
        self._writer.send_parts(pieces, on_written)

    def send_behind_records(self, parts: Sequence[ContractPart]) -> None:
        """Send one contract record behind every record that was accepted here before, also behind those that wait for
        credit; it takes none itself. Raises as `send`."""
        pieces, _ = self._contract_pieces(parts, 0)
        if self._waiting:
            self._waiting.append(pieces)
        else:
            self._writer.send_parts(pieces)

    def send_bulk(self, parts: Sequence[ContractPart], on_written: Callable[[bool], None]) -> None:
        """Send one contract record that carries state, behind those sent by this call before. Only a little of
        them is handed on at a time: every other frame overtakes what waits here. Otherwise as `send_contract`."""
        pieces, octets = self._contract_pieces(parts, 0)
        self._bulk.put(pieces, octets, on_written)

    def _contract_pieces(self, parts: Sequence[ContractPart], deadline_ms: int) -> tuple[list[Piece], int]:
        pieces: list[Piece] = [contract_head(len(parts), deadline_ms)]
        last = len(parts) - 1
        for index, part in enumerate(parts):
            part_pieces: Sequence[Piece] = (part,) if isinstance(part, bytes | memoryview) else part
            if index != last:
                pieces.append(LENGTH.pack(sum(map(len, part_pieces))))
            pieces.extend(part_pieces)
        octets = sum(map(len, pieces))
        if self.closing or octets > self.peer_frame_octets_max:
            raise self._refusal(octets)
        return pieces, octets

    def send_record(self, body: bytes, debt: Debt | None = None) -> None:
        """Send an application record frame now, or queue it until the peer grants credit. Raises as `send`.

        `debt` is settled when the record goes to the transport, or at the end of the link.
        """
        octets = len(body)
        if self.closing or octets > self.peer_frame_octets_max:
            raise self._refusal(octets)
        if self._waiting or self._credit_records <= 0 or self._credit_octets <= 0:
            self._waiting.append((body, debt))
            self.outbound_records += 1
            self.outbound_octets += octets
            return
        self._credit_records -= 1
        self._credit_octets -= octets
        self._writer.send(body)
        if debt is not None:
            debt.settle()

    def give_back(self, records: int, octets: int) -> None:
        """Grant the peer credit for records that left this member's care.

        Sent once per loop turn, and not before the peer has used up half of what it was granted: credit it
        does not need yet costs a frame. `octets` counts whole frame bodies, as they were given to `on_record`.
        Ignored once the link is closing.
        """
        self._back_records += records
        self._back_octets += octets
        if self._granted_records <= self._low_records or self._granted_octets <= self._low_octets:
            self._writer.schedule()

    @property
    def unwritten_octets(self) -> int:
        """Octets of frames accepted here and not yet handed to the transport, waiting records not counted."""
        return self._writer.octets

    def _refusal(self, octets: int) -> Unavailable | InvalidOperation:
        if self.closing:
            return Unavailable(f"the link to {self.peer} is closed ({self._reason})", applied="no")
        return InvalidOperation(
            f"a frame of {octets} octets; {self.peer} reads at most {self.peer_frame_octets_max}"
        )

    def _before_flush(self) -> None:
        if (self._back_records or self._back_octets) and self._credit_is_low() and not self.closing:
            self._granted_records += self._back_records
            self._granted_octets += self._back_octets
            self.send_control(mesh.Credit(self._back_records, self._back_octets))
            self._back_records = self._back_octets = 0

    def _credit_is_low(self) -> bool:
        return self._granted_records <= self._low_records or self._granted_octets <= self._low_octets

    def _credit(self, message: mesh.Credit) -> None:
        self._credit_records += message.records
        self._credit_octets += message.octets
        waiting = self._waiting
        while waiting and not self.closing:
            first = waiting[0]
            if isinstance(first, list):
                self._writer.send_parts(first)
                waiting.popleft()
                continue
            if self._credit_records <= 0 or self._credit_octets <= 0:
                break
            waiting.popleft()
            body, debt = first
            octets = len(body)
            self.outbound_records -= 1
            self.outbound_octets -= octets
            self._credit_records -= 1
            self._credit_octets -= octets
            self._writer.send(body)
            if debt is not None:
                debt.settle()

    # receiving

    def _deliver(self, body: Piece) -> None:
        if self._deaf:
            return
        kind = body[0]
        if kind == KIND_RECORD:
            if self._granted_records <= 0 or self._granted_octets <= 0:
                raise ProtocolError("a record without credit")
            self._granted_records -= 1
            self._granted_octets -= len(body)
            if (self._back_records or self._back_octets) and self._credit_is_low():
                self._writer.schedule()
            self._on_record(self, body if type(body) is bytes else bytes(body))
        elif kind == KIND_REPLY:
            self._receiver.on_reply(self, bytes(body))
        elif kind == KIND_CONTRACT:
            self._contract(body)
        elif kind == KIND_CONTROL:
            self._control(mesh.decode_mesh(body[1:]))
        else:
            raise ProtocolError(f"a frame of kind {kind} on a link")

    def _contract(self, body: Piece) -> None:
        parts: Sequence[Piece]
        if isinstance(body, bytes):
            deadline_ms, parts = parse_contract(body)
        else:
            deadline_ms, parts = parse_contract(body)
            self._give_way()
        self._receiver.on_contract(self, parts, deadline_ms)

    def _give_way(self) -> None:
        """A large frame came, probably with more behind it: what waits on other connections comes first. The event
        loop would read some thirty of them before it looks there."""
        if not self._gives_way and self._transport is not None:
            self._gives_way = True
            self._transport.pause_reading()
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._gives_way = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _control(self, message: mesh.MeshControl) -> None:
        if isinstance(message, mesh.Credit):
            self._credit(message)
        elif isinstance(message, mesh.Ping):
            if not self.closing:
                self.send_control(mesh.Pong(message.number))
        elif isinstance(message, mesh.Pong):
            probe = self._probes.pop(message.number, None)
            if probe is not None and not probe.done():
                probe.set_result(True)
        elif isinstance(message, mesh.Goodbye):
            self._goodbye(message)
        else:
            self._receiver.on_control(self, message)

    # life

    def open(self, transport: asyncio.Transport, leftover: bytes) -> None:
        """Take over a connection whose handshake is over; `leftover` are the first octets behind it."""
        transport.set_protocol(self)
        self.connection_made(transport)
        if leftover:
            self._take(self._reader.feed, leftover)

    def close(self, reason: str) -> None:
        """End in order: send what was accepted (not what waits for credit), say goodbye, let the peer do the
        same. After `goodbye_timeout_s` the connection is cut."""
        if self.closing:
            return
        self._say_goodbye(reason)
        self._arm(self._options.goodbye_timeout_s, lambda: self.abort(f"{reason} (no goodbye in time)"))

    def abort(self, reason: str) -> None:
        """Cut the connection now; nothing received after this call is delivered."""
        self._reason = self._reason if self.closing and self._reason else reason
        self.closing = self._deaf = True
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Return when the connection is over and `on_closed` has run."""
        await asyncio.shield(self._ended)

    def probe(self) -> asyncio.Future[bool]:
        """Ask the peer for a sign of life on this very connection: True when it answers, False at the end."""
        future: asyncio.Future[bool] = self._loop.create_future()
        number = next(self._ping_numbers)
        if self._ended.done():
            future.set_result(False)
            return future
        self._probes[number] = future
        if not self.closing:
            self.send_control(mesh.Ping(number))
        return future

    def _say_goodbye(self, reason: str) -> None:
        self._reason = reason
        self.closing = True
        self._bulk.hurry()
        farewell = control_frame(mesh.encode_mesh(mesh.Goodbye(reason[:200])))
        self._writer.send_parts((farewell,), self._goodbye_sent)

    def _goodbye_sent(self, written: bool) -> None:
        self._said_goodbye = written
        self._close_when_both_are_done()

    def _goodbye(self, message: mesh.Goodbye) -> None:
        self._deaf = True
        if not self.closing:
            self._say_goodbye(f"goodbye: {message.reason}")
            self._arm(self._options.goodbye_timeout_s, lambda: self.abort("goodbye not written in time"))
        self._close_when_both_are_done()

    def _violation(self, error: ProtocolError) -> None:
        """The peer broke the protocol: tell it why, and close without waiting for its goodbye."""
        self._deaf = True
        self.violation = error.message
        reason = f"protocol: {error.message}"
        if not self.closing:
            self._say_goodbye(reason)
        self._reason = reason
        self._arm(self._options.goodbye_timeout_s, lambda: self.abort(reason))
        self._close_when_both_are_done()

    def _close_when_both_are_done(self) -> None:
        """Deaf means the peer has said goodbye, or is not listened to any more."""
        if self._deaf and self._said_goodbye and self._transport is not None:
            self._transport.close()

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no instances of it
        self.address = peer_address(transport)
        self._writer.attach(self._transport)
        self._writer.schedule()  # the first credit
        self._arm(self._options.ping_interval_s, self._tick)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = True
        self._take(self._reader.buffer_updated, nbytes)

    def _take(self, step: Callable[..., None], octets: object) -> None:
        if self._deaf:
            return
        try:
            step(octets)
        except ProtocolError as error:
            self._violation(error)

    def eof_received(self) -> bool:
        self._reason = self._reason or (
            "end of stream inside a frame" if self._reader.held else "end of stream"
        )
        return False

    def pause_writing(self) -> None:
        self._writer.pause_writing()

    def resume_writing(self) -> None:
        self._writer.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = self._deaf = True
        self._reason = self._reason or (f"connection broken: {exc}" if exc else "end of stream")
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        left = self._writer.close()
        self._bulk.fail()
        self.unsent = [body for body in left if body[0] == KIND_RECORD]
        for entry in self._waiting:
            if isinstance(entry, list):
                continue  # told on another connection, if it still matters
            body, debt = entry
            self.unsent.append(body)
            if debt is not None:
                debt.settle()
        self.unsent_replies = [body for body in left if body[0] == KIND_REPLY]
        self._waiting.clear()
        self.outbound_records = self.outbound_octets = 0
        try:
            self._on_closed(self, self._reason)
        finally:
            self._ended.set_result(None)
            for probe in self._probes.values():
                if not probe.done():
                    probe.set_result(False)
            self._probes.clear()

    def _arm(self, delay_s: float, action: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, action)

    def _tick(self) -> None:
        """One ping interval is over. Silence is counted in intervals this process lived through, so a process
        that was stopped for a while does not give its peers up at once."""
        if self._heard:
            self._heard = False
            self._silent_s = 0.0
        else:
            self._silent_s += self._options.ping_interval_s
            if self._silent_s >= self._options.silence_limit_s:
                self.abort(f"silent for {self._options.silence_limit_s:g} s")
                return
            self.send_control(mesh.Ping(next(self._ping_numbers)))
        self._arm(self._options.ping_interval_s, self._tick)
