"""Message Follow and path markers of one node (R10, B9).

Owns how a record is sent on to where its object went, how original senders are told, and this node's own
markers with what waits behind them. Who follows what is decided by the handoff machines and by creation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn import frames
from sojourn.errors import Unavailable
from sojourn.frames import FLAG_ACTIVATE, FLAG_FOLLOW, FLAG_REQUEST, RecordHeader, parse_record_header
from sojourn.ids import NodeRun, ObjectKind, describe_key, key_id
from sojourn.wire import (
    ActorRef,
    ActorRouteFence,
    MessageFollow,
    OperationId,
    SpotRef,
    SpotRouteFence,
    encode_command,
)
from sojourn.wire.companion_commands import MessageFollowEnvelope
from sojourn.workers.debt import Debt
from sojourn.workers.objects import LocalObject, Place, route_fence
from sojourn.workers.routes import Route
from sojourn.workers.waiters import Waiters

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["Following"]


class Following:
    """See the module text."""

    def __init__(self, node: Supervisor) -> None:
        self._node = node
        self._marker_waiters = Waiters()

    async def own_marker_back(self, held: LocalObject) -> None:
        """No seal while this node's own marker for the object is out (B9.4)."""
        while self._node.senders.marker_out(held.key):
            await self._marker_waiters.wait()

    def marker_back(self) -> None:
        """A marker of this node ended: moves that wait for one look again."""
        self._marker_waiters.wake()

    # follow -------------------------------------------------------------------------------------

    def send_followed(self, held: LocalObject, body: bytes, run: NodeRun, debt: Debt | None = None) -> None:
        """Message Follow (R10.1): send one record on to the run that has the object now."""
        node = self._node
        header = parse_record_header(body)
        hops = header.hops + 1
        if run == node.run:
            current = node.router.objects.get(header.key)
            if current is not None and current is not held:
                node.router.to_object(current, body, header, debt, None)
                return
        if hops <= frames.HOPS_MAX and node.send_to(
            run, frames.set_hops(body, hops, FLAG_FOLLOW, FLAG_ACTIVATE), debt
        ):
            if header.flags & FLAG_REQUEST:
                node.senders.followed(header.reply_route, run)
            return
        if debt is not None:
            debt.settle()
        node.fail_record(
            body,
            header,
            Unavailable(
                f"{describe_key(held.key)} moved to {run} and the message could not be followed there "
                f"(hop {hops})",
                object_id=describe_key(held.key),
                applied="no",
            ),
        )

    def install(self, held: LocalObject, run: NodeRun, owner_generation: int, first: NodeRun) -> None:
        """Follow what comes for an object that left this node (see the machines' `InstallFollowRoute`)."""
        node = self._node
        if node.router.objects.get(held.key) is not held:
            return
        held.place = Place.FOLLOW
        held.staging = None
        held.follow_run = run
        held.noticed = None
        held.owner_generation = owner_generation or held.owner_generation
        if held.owner_generation:
            held.fence = self._fence(held, run, held.owner_generation)
            route = Route(
                run, held.kind, held.object_generation, held.owner_generation, held.fence, node.loop.time()
            )
        else:  # a target that ended before it had read the row: it knows where to, and no generation
            route = Route(run, held.kind, 0, 0, b"", node.loop.time())
        node.senders.install_follow(held, first, route)

    def _fence(self, held: LocalObject, run: NodeRun, owner_generation: int) -> bytes:
        lease = self._lease_of(run)
        return route_fence(held.key, held.kind, held.object_generation, run, owner_generation, lease)

    def notice_passed_on(self, to: NodeRun, held: LocalObject, header: RecordHeader) -> None:
        """Command 50 to a sender that took this node for the owner of what another node has."""
        if held.follow_run is not None and held.owner_generation:
            former = max(1, held.owner_generation - 1)
            self.notice(to, held, header, held.follow_run, former, held.owner_generation)

    def notice(
        self,
        to: NodeRun,
        held: LocalObject,
        header: RecordHeader,
        run: NodeRun,
        former_generation: int,
        owner_generation: int,
    ) -> None:
        """Command 50 to an original sender whose record was followed (B9.2)."""
        node = self._node
        link = node.links.get(to)
        if link is None:
            return
        notice = MessageFollow(
            envelope=MessageFollowEnvelope(
                source_route=_route(held, node.run, former_generation, node.lease_generation),
                target_route=_route(held, run, owner_generation, self._lease_of(run)),
                hop_count=min(header.hops + 1, frames.HOPS_MAX),
                queued_messages=0,
                queued_bytes=0,
                original_operation=OperationId(header.operation_high, header.operation_low),
                original_reply_route_id=header.reply_route,
            )
        )
        link.send_contract(encode_command(notice))

    def _lease_of(self, run: NodeRun) -> int:
        descriptor = self._node.roster.get(run)
        return descriptor.lease_generation if descriptor is not None else run.generation


def _route(
    held: LocalObject, run: NodeRun, owner_generation: int, lease_generation: int
) -> ActorRouteFence | SpotRouteFence:
    name = key_id(held.key)
    if held.kind == ObjectKind.ACTOR:
        return ActorRouteFence(
            ActorRef(name, held.object_generation),
            run.rid,
            run.generation,
            owner_generation,
            lease_generation,
        )
    return SpotRouteFence(
        SpotRef(name, held.object_generation), run.rid, run.generation, owner_generation, lease_generation
    )
