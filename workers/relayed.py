"""Ends of this member's own requests that come by the relay of replies (B7.1), or are waited for.

Owns command 33 as a requester's node takes it, and what becomes of a request whose object moved when the node it
moved to cannot be reached: its reply may still come, or lie in the Relocation Store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sojourn import mesh
from sojourn.errors import SojournError, Unavailable
from sojourn.ids import NodeRun, describe_key
from sojourn.wire import ReplyRelay, ReplyRelayStatus
from sojourn.workers.bounded import in_turn
from sojourn.workers.reply_frames import ack_of, reply_of_blob, reply_of_relay, reply_reference
from sojourn.workers.senders import Outstanding

if TYPE_CHECKING:
    from sojourn.workers.link import Link
    from sojourn.workers.member import Member
    from sojourn.workers.stream import Piece

__all__ = ["RelayedEnds"]


class RelayedEnds:
    """See the module text. One for each member."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._settling: set[NodeRun] = set()
        """Runs whose requests are being settled."""

    def relay_arrived(self, link: Link, command: ReplyRelay, parts: Sequence[Piece]) -> None:
        """Command 33: the request ends, if it had not, and the 46 goes back whatever is known of it."""
        member = self._member
        outstanding = member.senders.outstanding
        route = command.reply_route_id
        request = outstanding.get(route)
        known = request is not None and _is(request, command.operation_id.high, command.operation_id.low)
        if known:
            del outstanding[route]
        if route >> 48:  # a reply to a worker or a client; those look at the operation id
            payload = parts[1] if len(parts) > 1 else None
            member.deliver_reply(route, reply_of_relay(command, payload, member.run))
        status = ReplyRelayStatus.TERMINAL_RECEIVED if known else ReplyRelayStatus.ALREADY_TERMINAL
        if not link.closing:  # else this member leaves: the 33 ends with its run
            link.send_contract(ack_of(command, link.peer, member.owner, status))

    def requests_taken(self, run: NodeRun, message: mesh.RequestsTaken) -> None:
        """A node opened an object that moved to it with requests of this member: their ends come from there."""
        outstanding = self._member.senders.outstanding
        for route, high, low in message.requests:
            request = outstanding.get(route)
            if request is None or _is(request, high, low):
                outstanding[route] = Outstanding(message.key, run, high, low, moved=True)

    # a node that cannot be reached --------------------------------------------------------------

    def may_still_come(self, request: Outstanding) -> bool:
        """Whether the reply of a request that moved will be repeated by the node it moved to."""
        return request.moved and self._member.roster.get(request.run) is not None

    def look_around(self) -> None:
        """The rows of the members were read: requests that moved to a run that has ended are settled."""
        member = self._member
        gone: dict[NodeRun, list[int]] = {}
        for route, request in member.senders.outstanding.items():
            known = request.run == member.run or member.roster.get(request.run) is not None
            if known or request.run in self._settling:
                continue
            if request.moved and member.links.get(request.run) is None:
                gone.setdefault(request.run, []).append(route)
        self._settling.update(gone)
        for run, routes in gone.items():
            member.start(self._settle_gone(run, routes))

    async def _settle_gone(self, run: NodeRun, routes: Iterable[int]) -> None:
        """The node that had these requests has ended: what it stored is their end, else it is not known."""

        async def settle(route: int) -> None:
            await self._settle(run, route)

        try:
            await in_turn(routes, settle)
        finally:
            self._settling.discard(run)

    async def _settle(self, run: NodeRun, route: int) -> None:
        member = self._member
        outstanding = member.senders.outstanding
        request = outstanding.get(route)
        if request is None or request.run != run:
            return
        body = await self._stored(request)
        if outstanding.get(route) is not request:
            return
        if body is not None:
            del outstanding[route]
            member.count("replies_from_store")
            member.deliver_reply(route, body)
            return
        member.count("in_doubt")
        name = describe_key(request.key)
        error = Unavailable(
            f"node {run}, to which {name} had moved with the request, ended before its reply came",
            object_id=name,
            applied="unknown",
        )
        member.fail_request(route, request, error)

    async def _stored(self, request: Outstanding) -> bytes | None:
        """The reply that the node had stored, taken out of the store."""
        member = self._member
        reference = reply_reference(member.run.generation, request.operation_high, request.operation_low)
        body = None
        try:
            blob = await member.blobs.read(reference)
            if blob is not None:
                body = reply_of_blob(blob)
                await member.blobs.delete(reference)
        except SojournError as error:  # what could not be deleted ends by its retention
            member.log("stored_reply_not_read", "info", error=str(error))
        return body


def _is(request: Outstanding, high: int, low: int) -> bool:
    return (request.operation_high, request.operation_low) == (high, low)
