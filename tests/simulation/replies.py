"""Replies of requests that moved: the driver of `ReplyRelay`, its store, and what a requester does with both (B7.1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sojourn.handoff import replies as rp
from sojourn.handoff.machine import Event, Log
from sojourn.ids import NodeRun

from tests.simulation.driver import Driver
from tests.simulation.history import Record, Violation
from tests.simulation.jobs import RECORD_OCTETS
from tests.simulation.store import Store

if TYPE_CHECKING:
    from tests.simulation.network import Connection
    from tests.simulation.node import Node

__all__ = ["Blobs", "KeptReply", "MovedReplies"]


class Blobs:
    """The Relocation Store: replies by the number of their request, until their retention is over.

    Its calls are as slow, lost and late as those of the Location Store.
    """

    def __init__(self, store: Store, retention_s: float) -> None:
        self._store = store
        self._retention_s = retention_s
        self.held: dict[int, float] = {}
        """The end of each blob on the store's clock."""
        self.writers: dict[int, NodeRun] = {}
        self.astray: set[int] = set()
        """Blobs whose put or delete nobody knows the outcome of: they may stay until their end."""

    def has(self, record: Record) -> bool:
        return self.held.get(record.number, 0.0) > self._store.now()

    def check_settled(self, dead: set[NodeRun]) -> None:
        """Whoever wrote a blob has deleted it, unless it died or the store left it in doubt."""
        for number, until in self.held.items():
            mine = number not in self.astray and self.writers[number] not in dead
            if mine and until > self._store.now():
                raise Violation(f"the reply to request {number} was left in the store")

    def put(self, record: Record, run: NodeRun, reply: Callable[..., None]) -> None:
        self.writers[record.number] = run

        def change() -> tuple[str]:
            self.held[record.number] = self._store.now() + self._retention_s
            return ("applied",)

        self._store.change(change, partial(self._told, record, reply), ("unknown",), ("failed",))

    def delete(self, record: Record) -> None:
        def change() -> tuple[str]:
            if self.has(record) and not record.reply_arrived and record.reply_excuse is None:
                raise Violation(f"the stored reply to {record} is deleted before its requester has it")
            self.held.pop(record.number, None)
            return ("applied",)

        def told(outcome: str) -> None:
            if outcome != "applied":
                self.astray.add(record.number)

        self._store.change(change, told, ("unknown",), ("failed",))

    def _told(self, record: Record, reply: Callable[..., None], outcome: str) -> None:
        if outcome == "unknown":
            self.astray.add(record.number)
        reply(outcome)

    def read(self, record: Record, reply: Callable[..., None]) -> None:
        """`reply(True, whether it is there)` or `reply(False, False)`."""
        self._store.ask(lambda: (True, self.has(record)), reply, (False, False))


class KeptReply(Driver):
    """Drives one `ReplyRelay`."""

    machine: rp.ReplyRelay

    def __init__(self, node: Node, record: Record) -> None:
        super().__init__(node, record.key)
        self.record = record
        self.machine = self.world.reply_class()
        self.until = node.local.now() + self.world.mix.reply_retention_s
        self.in_memory = True
        self.requester_gone = False

    def start(self) -> None:
        link = self.node.links.get(self.record.origin)
        self.deliver(rp.ReplyFinished(None if link is None else link.number, self.until))

    def _send_reply(self, effect: rp.SendReply) -> None:
        self.node.send_on(effect.connection, ("reply", self.record))

    def _send_relay(self, effect: rp.SendReplyRelay) -> None:
        if not self.in_memory:
            raise Violation(f"the reply to {self.record} is sent although it is not in memory")
        self.world.history.counts["replies relayed"] += 1
        self.node.send_on(effect.connection, ("reply relay", self.record))

    def _store(self, effect: rp.StoreReply) -> None:
        self.world.blobs.put(self.record, self.node.run, partial(self.node.step, self._stored))

    def _stored(self, outcome: str) -> None:
        self.deliver(rp.BlobStored() if outcome == "applied" else rp.BlobStoreFailed())

    def _fetch(self, effect: rp.FetchReply) -> None:
        self.world.blobs.read(self.record, partial(self.node.step, self._fetched))

    def _fetched(self, known: bool, found: bool) -> None:
        if not found:
            self.deliver(rp.ReplyFetchFailed(gone=known))
            return
        if isinstance(self.machine.state, rp.ReplyFetching):
            self.node.replies.keep(self)
        self.deliver(rp.ReplyFetched())

    def _release(self, effect: rp.ReleaseReply) -> None:
        self.world.history.counts["replies parked"] += 1
        self.node.replies.let_go(self)

    def _delete(self, effect: rp.DeleteReply) -> None:
        self._check_given_up("deleted")
        self.world.blobs.delete(self.record)

    def _forget(self, effect: rp.ForgetReply) -> None:
        self._check_given_up("forgotten")
        self.node.replies.forget(self)

    def _check_given_up(self, how: str) -> None:
        """A reply is kept until its requester's node has it, has ended, or the retention is over."""
        record = self.record
        if record.reply_arrived:
            return
        if self.requester_gone:
            record.reply_excuse = "its requester's lease was over"
        elif (
            self.node.local.now() >= self.until - self.world.mix.reply_retention_s * self.world.mix.drift * 2
        ):
            record.reply_excuse = "its retention was over"
        else:
            raise Violation(f"the reply to {record} is {how} before its requester has it")

    _carriers = {  # noqa: RUF012
        Log: Driver.log,
        rp.SendReply: _send_reply,
        rp.SendReplyRelay: _send_relay,
        rp.StoreReply: _store,
        rp.FetchReply: _fetch,
        rp.ReleaseReply: _release,
        rp.DeleteReply: _delete,
        rp.ForgetReply: _forget,
    }


class MovedReplies:
    """The replies that a node keeps, and the ends that its own requests get from where they moved to."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.kept: dict[int, KeptReply] = {}
        self.in_memory = 0
        self.moved_to: dict[int, tuple[Record, NodeRun]] = {}
        """This node's own requests that a run took along, as it said (`RequestsTaken`)."""
        self._settling: set[int] = set()

    # where the request ended

    def ended(self, record: Record) -> bool:
        """Keep the reply if there is room for it."""
        world = self.node.world
        if self.in_memory >= world.mix.replies_in_memory:
            for kept in list(self.kept.values()):
                kept.deliver(rp.MemoryShort())
        if len(self.kept) >= world.mix.kept_replies or self.in_memory >= world.mix.replies_in_memory:
            return False
        kept = self.kept[record.number] = KeptReply(self.node, record)
        record.kept = True
        world.history.counts["replies kept"] += 1
        self.in_memory += 1
        self.node.retained.keep(RECORD_OCTETS)
        kept.start()
        return True

    def bring(self, record: Record) -> None:
        """A reply that a run which ended had stored: it becomes this run's to repeat."""
        node = self.node
        node.world.history.counts["replies from the store"] += 1
        if record.origin == node.run:
            node.requests.arrived(record)
            node.world.blobs.delete(record)
        elif node.world.drops_stored:
            node.send(record.origin, ("reply", record))
            node.world.blobs.delete(record)
        elif record.number in self.kept or not self.ended(record):
            node.send(record.origin, ("reply", record))

    def keep(self, kept: KeptReply) -> None:
        kept.in_memory = True
        self.in_memory += 1
        self.node.retained.keep(RECORD_OCTETS)

    def let_go(self, kept: KeptReply) -> None:
        if kept.in_memory:
            kept.in_memory = False
            self.in_memory -= 1
            self.node.retained.free(RECORD_OCTETS)

    def forget(self, kept: KeptReply) -> None:
        self.let_go(kept)
        self.kept.pop(kept.record.number, None)

    def acknowledged(self, record: Record) -> None:
        kept = self.kept.get(record.number)
        if self.node.world.acknowledges_any:
            kept = next((each for each in self.kept.values() if each.record.origin == record.origin), None)
        if kept is not None:
            kept.deliver(rp.AckReceived())

    def link_up(self, connection: Connection, run: NodeRun) -> None:
        self._tell(run, rp.RequesterLinkRestored(connection.number))

    def link_down(self, connection: Connection, run: NodeRun) -> None:
        self._tell(run, rp.RequesterLinkLost(connection.number))

    def _tell(self, run: NodeRun, event: Event) -> None:
        for kept in [each for each in self.kept.values() if each.record.origin == run]:
            kept.deliver(event)

    def tell_taken(self, records: list[Record]) -> None:
        """An object opens here: the requesters of what it brought along learn where their ends come from."""
        taken: dict[NodeRun, list[Record]] = {}
        for record in records:
            if record.request and record.fate is None and record.origin != self.node.run:
                taken.setdefault(record.origin, []).append(record)
        for run, requests in taken.items():
            self.node.send(run, ("requests taken", requests), queue=False)

    # where it was made

    def relay_arrived(self, connection: Connection, record: Record) -> None:
        """Command 33: the request ends if it had not, and the 46 goes back whatever is known of it."""
        requests = self.node.requests
        known = record.number in requests.pending
        requests.arrived(record)
        if known or self.node.world.acknowledges_unknown:
            self.node.send_on(connection.number, ("reply ack", record))

    def taken(self, run: NodeRun, records: list[Record]) -> None:
        for record in records:
            if record.number in self.node.requests.pending:
                self.moved_to[record.number] = record, run

    def ended_elsewhere(self, record: Record, how: str) -> None:
        """The source of a move ends what it took along: nobody else is there to do it."""
        self.node.requests.ended(record, how)

    # runs that end

    def look_around(self, leased: set[NodeRun]) -> None:
        """The leases were read."""
        node = self.node
        for kept in list(self.kept.values()):
            run = kept.record.origin
            if run not in leased and run not in node.links:
                kept.requester_gone = True
                kept.deliver(rp.RequesterGone())
        for number, (record, run) in list(self.moved_to.items()):
            if number not in node.requests.pending:
                del self.moved_to[number]
            elif run not in leased and run not in node.links and number not in self._settling:
                if node.world.never_looks:
                    self._settle(record, run, known=True, found=False)
                    continue
                self._settling.add(number)
                node.world.blobs.read(record, partial(node.step, self._settle, record, run))

    def _settle(self, record: Record, run: NodeRun, known: bool, found: bool) -> None:
        """The run that had the request has ended: what it stored is the end, else it is not known."""
        self._settling.discard(record.number)
        if self.moved_to.get(record.number) != (record, run):
            return
        del self.moved_to[record.number]
        world = self.node.world
        if found:
            world.history.counts["replies from the store"] += 1
            self.node.requests.arrived(record)
            world.blobs.delete(record)
        else:
            if known and world.blobs.has(record):
                raise Violation(f"{record} ends in doubt while its reply lies in the store")
            self.node.requests.ended(record, "in doubt")
