"""Deliveries of one node: records to the objects here, replies to whoever waits, follow for what moved.

Owns what happens to a record once it has reached this node's supervisor. The sending side (look-ups,
markers) is `sojourn.workers.senders`; moves are driven by the coordinator, which takes over an object's
records through `Staging`.
"""

from __future__ import annotations

import struct
from typing import Protocol

from sojourn import frames
from sojourn.errors import DataLost, InvalidOperation, ProtocolError, SojournError, TypeMismatch, Unavailable
from sojourn.frames import (
    FLAG_ACTIVATE,
    FLAG_COMPLETE,
    FLAG_FOLLOW,
    FLAG_INTENT,
    FLAG_LOOP,
    FLAG_MARKER,
    FLAG_REQUEST,
    HOPS_MAX,
    KEY_AT,
    REPLY_TO_AT,
    RecordHeader,
    ReplyHeader,
)
from sojourn.ids import NodeRun, ObjectKey, describe_key
from sojourn.workers.debt import Creditor, Debt
from sojourn.workers.lanes import RunningRequest, WorkerLane
from sojourn.workers.objects import LocalObject, Place
from sojourn.workers.record_check import check_record
from sojourn.workers.records import marker_number, record_origin, renewed_frame, unbind_payload
from sojourn.workers.senders import SenderPaths

__all__ = ["Router", "RouterHost"]

_PLAIN = frozenset({0, FLAG_REQUEST, FLAG_INTENT, FLAG_REQUEST | FLAG_INTENT})
"""Flags of a new message without anything special about it."""
_ACTIVE = Place.ACTIVE
_OWN = FLAG_MARKER | FLAG_LOOP
"""A record of the framework's own."""
_PLAIN_COMPLETE = frozenset(flags | FLAG_COMPLETE for flags in _PLAIN)
_NO_GENERATION = bytes(8)
_GENERATION_AT = 4
_NUMBER = struct.Struct(">Q")
_ROUTE_AT = 2
"""Offset of the reply route in a reply frame body."""


class RouterHost(Protocol):
    """What the router needs from its node."""

    run: NodeRun
    lanes: dict[int, WorkerLane]

    def send_to(self, run: NodeRun, body: bytes, debt: Debt | None) -> bool:
        """Put a record on the link to a run, which settles the debt; False when there is no link."""
        ...

    def send_reply(self, run: NodeRun, body: bytes) -> bool:
        """Put a reply on the link to a run; False when there is no link."""
        ...

    def reply_moved(self, request: RunningRequest, header: ReplyHeader, body: bytes) -> None:
        """Send another node the reply to a request that came with a move, until it has it (B7.1)."""
        ...

    def request_followed(self, held: LocalObject, body: bytes, header: RecordHeader) -> None:
        """A record that was followed to an object which had moved here: the end of a request is kept (B7.1)."""
        ...

    def deliver_reply(self, reply_route: int, body: bytes) -> None:
        """Give a reply to this node's own requester."""
        ...

    def activate(self, body: bytes, header: RecordHeader, debt: Debt | None) -> None:
        """A record for an object that is not here and that this node may have to make or to find."""
        ...

    def notice_route(self, to: NodeRun, held: LocalObject) -> None:
        """Tell a sender the generations of an object that is here."""
        ...

    def notice_follow(self, to: NodeRun, held: LocalObject, header: RecordHeader) -> None:
        """Tell a sender that its record was followed (command 50)."""
        ...

    def answer_marker(self, to: NodeRun, number: int, held: LocalObject) -> None:
        """Tell a sender that its marker was taken in here."""
        ...

    def unbind_arrived(self, held: LocalObject, body: bytes, header: RecordHeader) -> None:
        """An unbind has come to an Actor that is here and open (B11.1)."""
        ...

    def fail_record(self, body: bytes, header: RecordHeader, error: SojournError) -> None:
        """End a record with a typed error (request) or a dead letter (send)."""
        ...


class Router:
    """Routes by headers only; payloads pass untouched."""

    def __init__(self, host: RouterHost, senders: SenderPaths) -> None:
        self._host = host
        self._senders = senders
        self.objects: dict[ObjectKey, LocalObject] = {}
        run = host.run
        self._here = frames.reply_frame(0, 0, 0, 0, run.rid, run.generation, b"")[REPLY_TO_AT:]
        """This run as replies name it."""

    # records ------------------------------------------------------------------------------------

    def from_local(self, body: bytes, creditor: Creditor) -> None:
        """A record of one of this node's own workers (or of its client)."""
        if body[1] in _PLAIN:
            at = KEY_AT + body[KEY_AT - 1]
            key = body[KEY_AT:at]
            held = self.objects.get(key)
            if held is None:
                if self._senders.pass_on(body, key, creditor):
                    return
            elif (
                held.has_fence
                and body.startswith(_NO_GENERATION, _GENERATION_AT)
                and self._untouched(held, body, at)
                and not self._senders.busy(key)
            ):
                self._host.lanes[held.worker].pass_on(body, key, creditor)
                return
        header = frames.parse_record_header(body)
        debt = Debt(creditor, len(body))
        held = self.objects.get(header.key)
        if held is None or self._senders.busy(header.key):
            self._senders.submit(body, header, debt)
        else:
            self.to_object(held, body, header, debt, None)

    @staticmethod
    def _untouched(held: LocalObject, body: bytes, type_at: int) -> bool:
        """Whether a plain record for the present incarnation may go to its object without the long way, which
        would at most put the route fence in: the object serves here and is of the type the sender names."""
        if held.place is not _ACTIVE or held.guarded:
            return False
        octets = body[type_at]
        if not octets or not held.stable_type:
            return True
        return body[type_at + 1 : type_at + 1 + octets] == held.stable_type.encode()

    def from_link(self, run: NodeRun, body: bytes, creditor: Creditor) -> None:
        """A record that a peer sent.

        Raises:
            ProtocolError: it is malformed; nothing is kept of it.
        """
        try:
            self._from_link(run, body, creditor)
        except (IndexError, struct.error):
            raise ProtocolError("record frame: cut short") from None

    def _from_link(self, run: NodeRun, body: bytes, creditor: Creditor) -> None:
        if body[1] in _PLAIN_COMPLETE and not body[2]:
            at = KEY_AT + body[KEY_AT - 1]
            key = body[KEY_AT:at]
            held = self.objects.get(key)
            if held is not None and self._untouched(held, body, at):
                (generation,) = _NUMBER.unpack_from(body, _GENERATION_AT)
                if generation == held.object_generation:
                    self._host.lanes[held.worker].pass_on(body, key, creditor)
                    return
        header = frames.parse_record_header(body)
        check_record(body, header)
        debt = Debt(creditor, len(body))
        held = self.objects.get(header.key)
        if held is None:
            self._host.activate(body, header, debt)
            return
        if header.flags & FLAG_ACTIVATE and held.place is Place.ACTIVE:
            origin = record_origin(body, header.record_at)
            if held.notice_once(origin):
                self._host.notice_route(origin, held)
        self.to_object(held, body, header, debt, run)

    def to_object(
        self,
        held: LocalObject,
        body: bytes,
        header: RecordHeader,
        debt: Debt | None,
        from_run: NodeRun | None,
    ) -> None:
        """Give a record to an object on this node, wherever in its life it is."""
        if held.place is Place.CREATING:
            assert held.waiting is not None
            held.waiting.append((body, header, debt))
            return
        if header.object_generation not in (0, held.object_generation):
            if not self._may_renew(held, header):
                self._refuse_incarnation(held, body, header, debt)
                return
            body = renewed_frame(body, header, held.fence, held.object_generation)
            header = frames.parse_record_header(body)
        if held.stable_type and header.stable_type and header.stable_type.decode() != held.stable_type:
            self._refuse_type(held, body, header, debt)
            return
        if held.guarded and self._senders.holds_back(held, from_run):
            self._senders.hold(body, header, debt)
            return
        if held.moved is not None and header.flags & FLAG_FOLLOW and held.place is Place.ACTIVE:
            self._host.request_followed(held, body, header)
        self.into(held, body, header, debt, from_run)

    def into(
        self,
        held: LocalObject,
        body: bytes,
        header: RecordHeader,
        debt: Debt | None,
        from_run: NodeRun | None,
    ) -> None:
        """The last step of `to_object`: lane, staging or follow."""
        place = held.place
        if not body[1] & FLAG_COMPLETE and (fence := held.fence):
            body = frames.complete_record(body, header, fence, held.object_generation)
        if place is Place.ACTIVE:
            if header.flags & _OWN and self._is_for_the_node(held, body, header):
                self._return(debt)
            else:
                self._host.lanes[held.worker].deliver(body, header, debt)
        elif place is Place.FOLLOW:
            self.follow(held, body, header, debt)
        else:
            assert held.staging is not None
            held.staging.record_arrived(body, header, from_run, debt)

    def _is_for_the_node(self, held: LocalObject, body: bytes, header: RecordHeader) -> bool:
        """Carry out what the supervisor does at its place among the records; False: it is the worker's."""
        if header.flags & FLAG_MARKER:
            self._host.answer_marker(record_origin(body, header.record_at), marker_number(body), held)
        elif unbind_payload(body, header) is not None:
            self._host.unbind_arrived(held, body, header)
        else:
            return False
        return True

    @staticmethod
    def _return(debt: Debt | None) -> None:
        if debt is not None:
            debt.settle()

    def follow(self, held: LocalObject, body: bytes, header: RecordHeader, debt: Debt | None = None) -> None:
        """Message Follow (R10.1): send a record on to where its object went, and tell its sender once.

        It takes this node's own path to the object: two paths would overtake one another (B9.4).
        """
        run = held.follow_run
        hops = body[2] + 1
        if run is None or hops > HOPS_MAX:
            self._return(debt)
            self._host.fail_record(
                body,
                header,
                Unavailable(
                    f"{describe_key(held.key)} moved on and the message was followed {hops - 1} times",
                    object_id=describe_key(held.key),
                    applied="no",
                ),
            )
            return
        if not header.flags & FLAG_MARKER and held.object_generation:
            origin = record_origin(body, header.record_at)
            if origin != self._host.run and (header.flags & FLAG_REQUEST or held.notice_once(origin)):
                self._host.notice_follow(origin, held, header)
        # Without a fence the object does not exist yet: the node it is passed on to may have to make it.
        keep = 0 if body[1] & FLAG_COMPLETE else FLAG_ACTIVATE
        followed = frames.set_hops(body, hops, FLAG_FOLLOW | keep, FLAG_ACTIVATE & ~keep)
        self._senders.follow(held, followed, header, debt)

    @staticmethod
    def _may_renew(held: LocalObject, header: RecordHeader) -> bool:
        """With instance intent a message is for whichever incarnation there is: an Instance Spot comes back on
        demand (B6.6), and its senders cannot know when."""
        earlier = header.object_generation < held.object_generation
        return earlier and bool(header.flags & FLAG_INTENT) and held.has_fence

    def _refuse_incarnation(
        self, held: LocalObject, body: bytes, header: RecordHeader, debt: Debt | None
    ) -> None:
        self._return(debt)
        if held.place is Place.ACTIVE:
            self._host.notice_route(record_origin(body, header.record_at), held)
        self._host.fail_record(
            body,
            header,
            InvalidOperation(
                f"{describe_key(held.key)} was made anew since this route was learned "
                f"(generation {header.object_generation}, now {held.object_generation})",
                object_id=describe_key(held.key),
            ),
        )

    def _refuse_type(self, held: LocalObject, body: bytes, header: RecordHeader, debt: Debt | None) -> None:
        self._return(debt)
        self._host.fail_record(
            body,
            header,
            TypeMismatch(
                f"{describe_key(held.key)} is a {held.stable_type}, not a {header.stable_type.decode()}",
                object_id=describe_key(held.key),
            ),
        )

    # replies ------------------------------------------------------------------------------------

    def reply(self, body: bytes) -> bool:
        """A reply on its way back: to this node's own requester or over the link to its run.

        False without a link: it is dropped, the requester's node already ended the request when the link went.
        """
        if body.startswith(self._here, REPLY_TO_AT):
            (route,) = _NUMBER.unpack_from(body, _ROUTE_AT)
            self._senders.outstanding.pop(route, None)
            self._host.deliver_reply(route, body)
            return True
        header = frames.parse_reply_header(body)
        return self._host.send_reply(NodeRun(header.rid, header.generation), body)

    def reply_from_worker(self, lane: WorkerLane, body: bytes) -> None:
        """A worker's reply: its request is no longer running there."""
        if body.startswith(self._here, REPLY_TO_AT):
            (route,) = _NUMBER.unpack_from(body, _ROUTE_AT)
            lane.answered(*self._host.run, route)
            self._senders.outstanding.pop(route, None)
            self._host.deliver_reply(route, body)
            return
        header = frames.parse_reply_header(body)
        request = lane.answered(header.rid, header.generation, header.reply_route)
        if request is not None and request.moved:
            self._host.reply_moved(request, header, body)
        else:
            self._host.send_reply(NodeRun(header.rid, header.generation), body)


def lost_error(key: ObjectKey) -> DataLost:
    """The error of an object whose state is gone (B6.8)."""
    return DataLost(
        f"the state of {describe_key(key)} was lost with the process that held it; make it anew",
        object_id=describe_key(key),
    )
