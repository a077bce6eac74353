"""Messages that left this process with a moving object, by name: for the case that nobody else can end them.

Owns who asked and how many sends there are, and how they end: with typed errors and dead letters, or in doubt. When
they end, and at which node, is decided by the machines of a handoff (`FailTaken`, `EndWork`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from sojourn.control import ErrorBody, OpenRequest, SavedRequest, encode_error
from sojourn.errors import SojournError
from sojourn.frames import FLAG_LOOP, FLAG_MARKER, FLAG_REQUEST, parse_record_header
from sojourn.handoff.machine import Log
from sojourn.ids import NodeRun
from sojourn.wire import MaintenanceRelocationContext, RelocationIdentity
from sojourn.workers.bounded import in_turn
from sojourn.workers.ledger import Ended
from sojourn.workers.records import error_reply, record_origin
from sojourn.workers.reply_frames import reply_of_blob, reply_reference

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["NAME_OCTETS", "NamedWork", "end_requests"]

NAME_OCTETS = 192
"""What one request counts as while its name is kept (B5.3)."""
NamedRequest: TypeAlias = OpenRequest | SavedRequest


class NamedWork:
    """See the module text.

    Args:
        node: answers the requests and counts.
        identity: of the relocation; a reply that another node had stored is repeated under it.
        log: writes the log event of the handoff.

    Attributes:
        requests: who has to be told.
        sends: how many messages want no reply.
    """

    __slots__ = ("_identity", "_log", "_node", "_octets", "_queued", "requests", "sends")

    def __init__(self, node: Supervisor, identity: RelocationIdentity, log: Callable[[Log], None]) -> None:
        self._node = node
        self._identity = identity
        self._log = log
        self._octets = 0
        self._queued = 0, 0
        """Requests and sends that had been in a mailbox: they left it for good (B3.5)."""
        self.requests: list[NamedRequest] = []
        self.sends = 0

    def take(self, requests: Iterable[NamedRequest], sends: int) -> None:
        """These are the names, instead of what was named before: the messages of a queue."""
        self.forget()
        self.requests, self.sends = list(requests), sends
        self._queued = len(self.requests), sends

    def retain(self) -> None:
        """They are kept for longer than the move takes: they count as retained until they end (B5.3)."""
        self._octets = NAME_OCTETS * len(self.requests)
        self._node.retention.keep(self._octets)

    def add(self, body: bytes) -> None:
        """One more message, by its record frame; markers and looped records are nobody's message."""
        header = parse_record_header(body)
        if header.flags & FLAG_REQUEST:
            origin = record_origin(body, header.record_at)
            operation = header.operation_high, header.operation_low
            self.requests.append(OpenRequest(origin.rid, origin.generation, header.reply_route, *operation))
        elif not header.flags & (FLAG_MARKER | FLAG_LOOP):
            self.sends += 1

    def fail(self, error: SojournError, *, requests: bool = True, sends: bool = True) -> None:
        """Nobody runs them any more: each request ends with `error`, each send is a dead letter (B3.5)."""
        queued, queued_sends = self._queued
        self._node.ledger.returned(Ended(queued if requests else 0, queued_sends if sends else 0))
        if requests:
            self._node.count("failed_requests", len(self.requests))
            end_requests(self._node, self.requests, error)
        if sends and self.sends:
            self._node.count("dead_letters", self.sends)
            self._log(Log("dead_letter", "warning", {"reason": str(error), "messages": self.sends}))
        self.forget()

    def doubt(self, error: SojournError) -> None:
        """Somebody may have run them: a request ends with the reply that was stored for it, if there is one (B7.1),
        else with `error`."""
        self._node.ledger.returned(Ended(in_doubt=sum(self._queued)))
        self._node.count("in_doubt", len(self.requests) + self.sends)
        if self.requests:
            self._node.start(self._end_in_doubt(self.requests, error))
        self.forget()

    def forget(self) -> None:
        """They end elsewhere, or have ended."""
        self.requests, self.sends, self._queued = [], 0, (0, 0)
        self._node.retention.free(self._octets)
        self._octets = 0

    async def _end_in_doubt(self, requests: list[NamedRequest], error: SojournError) -> None:
        async def end(numbered: tuple[int, NamedRequest]) -> None:
            await self._end_one(*numbered, error)

        await in_turn(enumerate(requests, 1), end)

    async def _end_one(self, number: int, request: NamedRequest, error: SojournError) -> None:
        node = self._node
        reference = reply_reference(request.generation, request.operation_high, request.operation_low)
        try:
            blob = await node.blobs.read(reference)
            body = None if blob is None else reply_of_blob(blob)
        except SojournError:
            body = None
        if body is None:
            end_requests(node, [request], error)
        else:
            node.count("replies_from_store")
            node.replies.bring(body, MaintenanceRelocationContext(self._identity, 1, number))


def end_requests(node: Supervisor, requests: Iterable[NamedRequest], error: SojournError) -> None:
    """Answer requests that nobody will run any more; who has its reply already drops this one."""
    encoded = encode_error(ErrorBody.of(error))
    for request in requests:
        node.router.reply(
            error_reply(
                NodeRun(request.rid, request.generation),
                request.reply_route,
                request.operation_high,
                request.operation_low,
                encoded,
            )
        )
