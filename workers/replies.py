"""Replies of requests that moved: kept by the node where they ended until their requester has them (B7.1).

Owns the replies themselves, their timers and what may be kept of them in memory. When what is sent, stored and
deleted is decided by `sojourn.handoff.replies`. A reply that did not move never comes here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from sojourn import frames, mesh
from sojourn.control import ErrorBody, SavedRequest, encode_error
from sojourn.errors import InvalidOperation, SojournError
from sojourn.frames import FLAG_ERROR, FLAG_REQUEST, RecordHeader, ReplyHeader
from sojourn.handoff import replies as rp
from sojourn.handoff.machine import DeadlineReached, Event, IllegalTransition, Log
from sojourn.ids import NodeRun
from sojourn.rows import authority_row_key
from sojourn.wire import MaintenanceRelocationContext, RelocationIdentity, ReplyRelayAck
from sojourn.workers.budget import Budget
from sojourn.workers.records import error_reply, record_origin, too_large
from sojourn.workers.reply_frames import blob_of_reply, relay_of, reply_of_blob, reply_reference

if TYPE_CHECKING:
    from sojourn.workers.lanes import RunningRequest
    from sojourn.workers.link import Link
    from sojourn.workers.objects import LocalObject
    from sojourn.workers.supervisor import Supervisor

__all__ = ["KEPT_OCTETS_MAX", "KEPT_REPLIES_MAX", "MovedHere", "MovedReplies", "TakenRequests"]

KEPT_REPLIES_MAX = 16_384
"""Replies whose requester has not acknowledged them; one more is sent once, as any reply."""
KEPT_OCTETS_MAX = 16 * 1024 * 1024
"""Octets of such replies in memory; above it those that are stored are let go of, the oldest first."""
LOOK_PAUSE_S = 1.0
"""How long after a look in vain for replies to let go of the next one is."""
TOLD_AT_ONCE = 1000
"""Requests in one `RequestsTaken`."""
_FRAME_ROOM = 64
_FETCHES_MAX = 16
"""Stored replies that are read at the same time when their requester is back."""
FETCHED_OCTETS_MAX = 4 * 1024 * 1024
"""Octets of replies that were read back and that no connection has taken yet; a larger one is read alone."""


class MovedHere:
    """The move that brought an object to this node: replies to requests that came with it name it.

    Attributes:
        identity: of the relocation.
        participant: the object's number in the unit that moved.
        sequence: orders given to its requests so far, the saved ones included.
    """

    __slots__ = ("identity", "participant", "sequence")

    def __init__(self, identity: RelocationIdentity, participant: int, sequence: int) -> None:
        self.identity = identity
        self.participant = participant
        self.sequence = sequence

    def context(self, request: RunningRequest) -> MaintenanceRelocationContext:
        """The context of a request's command 33."""
        sequence = request.sequence
        if not sequence:
            self.sequence += 1
            sequence = self.sequence
        return MaintenanceRelocationContext(self.identity, self.participant, sequence)


class TakenRequests:
    """Requests that a unit brought along, noted as it opens here: their ends are kept until their requesters
    have them, and those are told where they will come from.

    Args:
        unit: the objects that moved together.
        worker: the slot that has the object.
        saved: the requests in its restored queue.
    """

    def __init__(
        self,
        node: Supervisor,
        unit: Sequence[LocalObject],
        identity: RelocationIdentity,
        worker: int,
        saved: list[SavedRequest],
    ) -> None:
        self._node = node
        self._told: dict[tuple[NodeRun, bytes], list[tuple[int, int, int]]] = {}
        ordered = sorted(unit, key=lambda each: authority_row_key(each.key).encode("utf-8"))
        for participant, each in enumerate(ordered, 1):
            each.moved = MovedHere(identity, participant, saved[-1].order if saved else 0)
        node.lanes[worker].adopt(saved, moved=True)
        for request in saved:
            operation = request.reply_route, request.operation_high, request.operation_low
            self._add(NodeRun(request.rid, request.generation), request.key, operation)

    def _add(self, run: NodeRun, key: bytes, operation: tuple[int, int, int]) -> None:
        self._told.setdefault((run, key), []).append(operation)

    def add(self, body: bytes, header: RecordHeader) -> None:
        """A record that came by way of the object's former owner."""
        if header.flags & FLAG_REQUEST:
            operation = header.reply_route, header.operation_high, header.operation_low
            self._add(record_origin(body, header.record_at), header.key, operation)

    def tell(self) -> None:
        """Tell the nodes of the requesters."""
        for (run, key), requests in self._told.items():
            link = self._node.links.get(run)
            if link is not None:
                for start in range(0, len(requests), TOLD_AT_ONCE):
                    some = requests[start : start + TOLD_AT_ONCE]
                    link.send_control(mesh.RequestsTaken(key, some))


class _Kept:
    """One reply. `body` is None while only the store has it."""

    __slots__ = (
        "body",
        "charged",
        "context",
        "header",
        "machine",
        "octets",
        "reference",
        "run",
        "timer",
        "timer_at",
    )

    def __init__(
        self, run: NodeRun, header: ReplyHeader, body: bytes, context: MaintenanceRelocationContext
    ) -> None:
        self.machine = rp.ReplyRelay()
        self.run = run
        self.header = header
        self.body: bytes | None = body
        self.context = context
        self.octets = len(body)
        self.charged = 0
        """Octets of `FETCHED_OCTETS_MAX` that it takes until it is sent."""
        self.reference = reply_reference(run.generation, header.operation_high, header.operation_low)
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at = 0.0


_Key = tuple[NodeRun, int, int, int]


class MovedReplies:
    """See the module text. One for each node.

    Attributes:
        octets: of the replies in memory.
    """

    def __init__(self, node: Supervisor) -> None:
        self._node = node
        self._kept: dict[_Key, _Kept] = {}
        self._look_at = 0.0
        self._fetching = asyncio.Semaphore(_FETCHES_MAX)
        self._fetched = Budget(0, FETCHED_OCTETS_MAX)
        self.octets = 0

    def __len__(self) -> int:
        """Replies that nobody has acknowledged."""
        return len(self._kept)

    # replies ------------------------------------------------------------------------------------

    def ended(
        self, held: LocalObject | None, request: RunningRequest, header: ReplyHeader, body: bytes
    ) -> None:
        """A request that moved ended here: `body` is its reply, for another node."""
        run = NodeRun(header.rid, header.generation)
        moved = None if held is None else held.moved
        if moved is None:
            self._node.send_reply(run, body)
        else:
            self._keep(run, header, body, moved.context(request))

    def followed(self, held: LocalObject, body: bytes, header: RecordHeader) -> None:
        """A request was followed to an object that had moved here. A former owner has told its requester where it went,
        and not whether the end is kept there: that depends on this node."""
        run = record_origin(body, header.record_at)
        link = self._node.links.get(run)
        if header.flags & FLAG_REQUEST and run != self._node.run and link is not None and not link.closing:
            operation = header.reply_route, header.operation_high, header.operation_low
            link.send_control(mesh.RequestsTaken(held.key, [operation]))

    def bring(self, body: bytes, context: MaintenanceRelocationContext) -> None:
        """A reply that a node which ended had stored: it becomes this node's to repeat. Its blob stays until the
        requester has it: whoever deletes it earlier loses it with the connection."""
        header = frames.parse_reply_header(body)
        run = NodeRun(header.rid, header.generation)
        if run != self._node.run:
            self._keep(run, header, body, context)
            return
        self._node.router.reply(body)
        reference = reply_reference(run.generation, header.operation_high, header.operation_low)
        self._node.start(self._delete(reference))

    def _keep(
        self, run: NodeRun, header: ReplyHeader, body: bytes, context: MaintenanceRelocationContext
    ) -> None:
        key = (run, header.operation_high, header.operation_low, header.reply_route)
        if key in self._kept or not self._room(len(body)):
            self._node.send_reply(run, body)
            return
        kept = self._kept[key] = _Kept(run, header, body, context)
        self._count(kept.octets)
        link = self._node.links.get(run)
        until = self._node.loop.time() + self._node.options.reply_retention_ms / 1000
        self._handle(kept, rp.ReplyFinished(None if link is None else link.connection_id, until))

    def _room(self, octets: int) -> bool:
        """Make room for one more; False when there is none: what is kept is not given up for it."""
        now = self._node.loop.time()
        if self.octets + octets > KEPT_OCTETS_MAX and now >= self._look_at:
            for kept in list(self._kept.values()):
                if kept.body is not None:
                    self._handle(kept, rp.MemoryShort())
                if self.octets + octets <= KEPT_OCTETS_MAX:
                    break
            else:  # the store has none of them: a look at each for every reply would cost more than the reply
                self._look_at = now + LOOK_PAUSE_S
        if self.octets + octets <= KEPT_OCTETS_MAX and len(self._kept) < KEPT_REPLIES_MAX:
            return True
        self._node.count("replies_not_kept")
        return False

    def _count(self, octets: int) -> None:
        self.octets += octets
        self._node.retention.keep(octets) if octets > 0 else self._node.retention.free(-octets)

    def acknowledged(self, link: Link, command: ReplyRelayAck) -> None:
        """Command 46 came from the requester's node."""
        operation = command.operation_id
        kept = self._kept.get((link.peer, operation.high, operation.low, command.reply_route_id))
        if kept is not None:
            self._handle(kept, rp.AckReceived())

    # news ---------------------------------------------------------------------------------------

    def link_up(self, link: Link) -> None:
        """A connection to a run stands: what waits for it is told, in the order it ended."""
        self._tell(link.peer, rp.RequesterLinkRestored(link.connection_id))

    def link_down(self, link: Link) -> None:
        """A connection broke."""
        self._tell(link.peer, rp.RequesterLinkLost(link.connection_id))

    def look_around(self) -> None:
        """The rows of the members were read: requesters that ended need no reply any more."""
        node = self._node
        runs = {kept.run for kept in self._kept.values()}
        for run in runs:
            if node.roster.get(run) is None and node.links.get(run) is None:
                self._tell(run, rp.RequesterGone())

    def _tell(self, run: NodeRun, event: Event) -> None:
        if self._kept:
            for kept in [kept for kept in self._kept.values() if kept.run == run]:
                self._handle(kept, event)

    def close(self) -> None:
        """The node stops: blobs stay until their requester reads them or their time is over."""
        for kept in self._kept.values():
            if kept.timer is not None:
                kept.timer.cancel()
        self._kept.clear()

    # machine ------------------------------------------------------------------------------------

    def _handle(self, kept: _Kept, event: Event) -> None:
        try:
            steps = kept.machine.handle(event, self._node.loop.time())
        except IllegalTransition as bug:
            self._node.log("illegal_transition", "error", story=bug.message)
            return
        for effect in steps:
            if isinstance(effect, rp.SendReply):
                assert kept.body is not None
                self._node.send_reply(kept.run, kept.body)
            elif isinstance(effect, rp.StoreReply):
                self._ask(kept, self._put(kept.reference, kept.body or b""))
            elif isinstance(effect, rp.SendReplyRelay):
                self._send(kept, effect.connection)
            elif isinstance(effect, rp.ReleaseReply):
                self._release(kept)
            elif isinstance(effect, rp.FetchReply):
                self._node.start(self._read_back(kept))
            elif isinstance(effect, rp.DeleteReply):
                self._node.start(self._delete(kept.reference))
            elif isinstance(effect, rp.ForgetReply):
                self._forget(kept)
            elif isinstance(effect, Log):
                self._node.log(effect.name, effect.level, requester=str(kept.run), **effect.fields)
        self._arm(kept)

    def _arm(self, kept: _Kept) -> None:
        deadline = kept.machine.deadline
        if kept.timer is not None:
            if deadline == kept.timer_at:
                return
            kept.timer.cancel()
            kept.timer = None
        if deadline is not None:
            kept.timer_at = deadline
            kept.timer = self._node.loop.call_at(deadline, self._deadline, kept)

    def _deadline(self, kept: _Kept) -> None:
        kept.timer = None
        self._handle(kept, DeadlineReached())

    def _ask(self, kept: _Kept, work: Awaitable[Event]) -> None:
        """Run what waits as one task that reports exactly one event."""

        async def report() -> None:
            self._handle(kept, await work)

        self._node.start(report())

    # steps --------------------------------------------------------------------------------------

    def _send(self, kept: _Kept, connection: int) -> None:
        """Command 33; in front of that of an error, which has no room for its text, the ordinary reply again."""
        link = self._node.links.get(kept.run)
        if link is None or link.connection_id != connection:
            return  # its end is on the way to the machine
        assert kept.body is not None
        if len(kept.body) + _FRAME_ROOM > link.peer_frame_octets_max:
            self._shorten(kept, link)
        if kept.header.flags & FLAG_ERROR:
            link.send(kept.body)
        charged = kept.charged

        def written(whole: bool) -> None:
            self._fetched.free(kept.run, charged)

        on_written = written if charged else None
        try:
            link.send_contract(relay_of(kept.body, kept.header, kept.context), on_written=on_written)
        except InvalidOperation:  # its head made it too large
            self._shorten(kept, link)
            link.send_contract(relay_of(kept.body, kept.header, kept.context), on_written=on_written)
        kept.charged = 0

    def _shorten(self, kept: _Kept, link: Link) -> None:
        assert kept.body is not None
        header = kept.header
        error = too_large("the reply", len(kept.body), kept.run, link.peer_frame_octets_max)
        encoded = encode_error(ErrorBody.of(error))
        body = error_reply(kept.run, header.reply_route, header.operation_high, header.operation_low, encoded)
        self._count(len(body) - len(kept.body))
        kept.body, kept.header = body, frames.parse_reply_header(body)

    def _release(self, kept: _Kept) -> None:
        if kept.body is not None:
            self._count(-len(kept.body))
            kept.body = None

    def _forget(self, kept: _Kept) -> None:
        self._release(kept)
        header = kept.header
        self._kept.pop((kept.run, header.operation_high, header.operation_low, header.reply_route), None)

    async def _put(self, reference: str, body: bytes) -> Event:
        node = self._node
        try:
            stored = await node.blobs.put(reference, blob_of_reply(body), node.options.reply_retention_ms)
        except SojournError as error:
            node.count("replies_not_stored")
            node.log("reply_not_stored", "info", error=str(error))
            return rp.BlobStoreFailed()
        return rp.BlobStored() if stored else rp.BlobStoreFailed()

    async def _read_back(self, kept: _Kept) -> None:
        """Read a reply and send it. What waits for a connection that takes nothing is bounded: the rest stays in
        the store until that one is written, or has ended."""
        async with self._fetching:
            await self._fetched.wait(kept.run, kept.octets)
            kept.charged = kept.octets
            event = await self._fetch(kept)
        self._handle(kept, event)
        if kept.charged:  # it was not sent
            charged, kept.charged = kept.charged, 0
            self._fetched.free(kept.run, charged)

    async def _fetch(self, kept: _Kept) -> Event:
        state = kept.machine.state
        if not isinstance(state, rp.ReplyFetching) or state.connection is None:
            return rp.ReplyFetchFailed(gone=False)  # it ended, or its connection did, while it waited
        try:
            blob = await self._node.blobs.read(kept.reference)
            body = None if blob is None else reply_of_blob(blob)
        except SojournError:
            return rp.ReplyFetchFailed(gone=False)
        if body is None:
            return rp.ReplyFetchFailed(gone=True)
        if isinstance(kept.machine.state, rp.ReplyFetching):
            kept.body = body
            self._count(len(body))
        return rp.ReplyFetched()

    async def _delete(self, reference: str) -> None:
        try:
            await self._node.blobs.delete(reference)
        except SojournError as error:
            self._node.log("reply_not_deleted", "info", error=str(error))
