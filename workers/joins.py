"""What a node answers to an Actor of another node that wants into one of its Spots (commands 28 and 20).

Owns which of them were admitted, so that the move that follows changes the memberships with the owner (section 8 of
the contract). An admission belongs to the exact Actor, both its generations and the run that owns it: to which
Restore request it belongs is never told by order of arrival (R3.4).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from sojourn.ids import NodeRun, ObjectKey, ObjectKind, actor_key, describe_key, spot_key
from sojourn.wire import (
    ActorIdentity,
    ActorJoinReply,
    ActorJoinRequest,
    JoinAccepted,
    JoinRejected,
    SpotRef,
    encode_command,
)
from sojourn.wire.results import FailureCode, TerminalResult
from sojourn.workers.link import Link
from sojourn.workers.objects import LocalObject, Place

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["Joins"]

_Refusal = tuple[TerminalResult, FailureCode]
_NOT_SUPPORTED = TerminalResult.NOT_SUPPORTED, FailureCode.NONE


class _Actor(NamedTuple):
    """An Actor as its owner names it."""

    key: ObjectKey
    object_generation: int
    owner_generation: int
    owner: NodeRun


class _Admitted(NamedTuple):
    spot: ObjectKey
    until: float


class Joins:
    """The joins from other nodes that this node has admitted and that have not begun to move."""

    def __init__(self, node: Supervisor) -> None:
        self._node = node
        self._admitted: OrderedDict[_Actor, _Admitted] = OrderedDict()
        """All have the same time, so the one that ends first stands first."""

    def asked(self, link: Link, command: ActorJoinRequest) -> None:
        """Command 28: admit the Actor, or say why not. The same request again gets the same answer."""
        node, fence = self._node, command.actor_route_fence
        self._forget_old()
        owner = NodeRun(fence.target_node_rid, fence.target_node_generation)
        key = actor_key(fence.actor_ref.actor_id)
        actor = _Actor(
            key, fence.actor_ref.object_generation, fence.expected_authority_owner_generation, owner
        )
        refusal = self._refusal(link, actor, command)
        if refusal is not None:
            node.log("join_refused", "info", object_id=describe_key(key), reason=refusal[0].name)
            rejected = JoinRejected(spot_ref=None)
            self._answer(link, command, refusal, rejected)
            return
        options, spot = node.options, command.spot_route_fence.spot_ref
        until = node.loop.time() + (options.join_timeout_ms + options.relocation_commit_reserve_ms) / 1000
        self._admitted[actor] = _Admitted(spot_key(spot.spot_id), until)
        self._admitted.move_to_end(actor)
        accepted = JoinAccepted(
            spot_ref=SpotRef(spot.spot_id, spot.object_generation),
            membership_epoch=command.spot_route_fence.expected_authority_owner_generation,
            receive_chunk_limit_bytes=options.relocation_chunk_bytes,
        )
        self._answer(link, command, (TerminalResult.OK, FailureCode.NONE), accepted)

    def spot_of(self, named: ActorIdentity, source: NodeRun) -> ObjectKey | None:
        """The Spot that the Actor of a Restore request joins with this move; None: it changes none but for its
        Entry Spot."""
        self._forget_old()
        actor = _Actor(
            actor_key(named.actor_id),
            named.object_generation,
            named.expected_authority_owner_generation,
            source,
        )
        admitted = self._admitted.get(actor)
        return None if admitted is None else admitted.spot

    def _forget_old(self) -> None:
        """Looks only at what is over: it runs with every join and every Restore request."""
        now = self._node.loop.time()
        while self._admitted and next(iter(self._admitted.values())).until <= now:
            self._admitted.popitem(last=False)

    def _refusal(self, link: Link, actor: _Actor, command: ActorJoinRequest) -> _Refusal | None:
        node, fence = self._node, command.spot_route_fence
        if actor.owner != link.peer:
            return TerminalResult.INVALID_ARGUMENT, FailureCode.NONE
        if command.entry:
            return _NOT_SUPPORTED  # nothing is asked before an Actor joins an Entry Spot (B2.4)
        if not node.admission_open() or not node.takes_new_objects:
            return TerminalResult.REJECTED, FailureCode.REQUEST_REJECTED
        spot = spot_key(fence.spot_ref.spot_id)
        held = node.router.objects.get(spot)
        here = NodeRun(fence.target_node_rid, fence.target_node_generation) == node.run
        if not here or held is None or held.kind != ObjectKind.USER_SPOT or held.place is Place.FOLLOW:
            return TerminalResult.NOT_FOUND, FailureCode.SPOT_ROUTE_NOT_FOUND
        if held.place is not Place.ACTIVE:
            return TerminalResult.CONFLICT, FailureCode.SPOT_MOVING
        if (
            held.object_generation != fence.spot_ref.object_generation
            or held.owner_generation != fence.expected_authority_owner_generation
            or node.lease_generation != fence.expected_owner_lease_generation
        ):
            return TerminalResult.CONFLICT, FailureCode.SPOT_GENERATION_STALE
        admitted = self._admitted.get(actor)
        if admitted is not None and admitted.spot != spot:
            return (
                TerminalResult.CONFLICT,
                FailureCode.ACTOR_LOCATION_STALE,
            )  # it is on its way into another one
        return _NOT_SUPPORTED if self._shares_turn(held) else None

    def _shares_turn(self, held: LocalObject) -> bool:
        """Whether the Actor would have to stand in the worker of the Spot, under its turn."""
        entry = self._node.registry.get(held.stable_type)
        return entry is None or entry.shares_turn

    @staticmethod
    def _answer(
        link: Link, command: ActorJoinRequest, result: _Refusal, tail: JoinAccepted | JoinRejected
    ) -> None:
        if link.closing:
            return
        reply = ActorJoinReply(
            correlation=command.correlation,
            terminal_result=result[0],
            failure_code=result[1],
            join_result=tail,
        )
        link.send_contract(encode_command(reply))
