"""Between the session machines' terms and the bytes of commands 42, 43 and 44.

Owns the conversions that session owners and movers share. Knows nothing about connections or time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from sojourn.handoff.terms import HandoffIdentity
from sojourn.ids import NodeRun, ObjectKey, actor_key, key_id
from sojourn.rows import AuthorityRow, Binding, MarkOutcome, RelocationMark
from sojourn.session.events import RouteAborted, RouteCommitted
from sojourn.session.terms import SealIdentity, SealTerms, SessionRoute
from sojourn.wire import (
    ActorRef,
    ActorRouteFence,
    CoordinatorFence,
    RelocationId,
    SessionRelocationRoute,
    SessionRelocationSeal,
    SessionRelocationSealed,
)
from sojourn.wire.blocks import Role
from sojourn.wire.commands import RouteAbort, RouteCommit, RouteUpdate

__all__ = [
    "SessionCommand",
    "SessionWire",
    "actor_of",
    "binding_of",
    "sealed_answer",
    "terms_of",
    "update_of",
    "wires_of",
]

SessionCommand: TypeAlias = SessionRelocationSeal | SessionRelocationSealed | SessionRelocationRoute


def binding_of(command: SessionCommand) -> Binding:
    """The six session fields of a command."""
    return Binding(
        command.session_owner_node_rid,
        command.session_owner_node_generation,
        command.session_owner_id,
        command.session_owner_lease_generation,
        command.session_rid,
        command.binding_generation,
    )


def actor_of(command: SessionCommand) -> tuple[ObjectKey, int]:
    """Key and ObjectGeneration of the Actor that a command speaks of."""
    if isinstance(command, SessionRelocationRoute):
        ref = command.actor_ref
    else:
        ref = command.actor_route_fence.actor_ref
    return actor_key(ref.actor_id), ref.object_generation


def seal_identity(relocation: RelocationId, fence: CoordinatorFence) -> SealIdentity:
    """What ties the three commands together."""
    return SealIdentity(
        (relocation.high, relocation.low),
        fence.owner_id,
        fence.lease_generation,
        NodeRun(fence.node_rid, fence.node_generation),
        fence.expected_authority_store_version,
    )


def terms_of(command: SessionRelocationSeal | SessionRelocationSealed) -> SealTerms:
    """What a 42, or the 43 that answers it, says."""
    fence = command.actor_route_fence
    return SealTerms(
        seal_identity(command.relocation_id, command.coordinator_fence),
        binding_of(command),
        fence.actor_ref.object_generation,
        fence.expected_authority_owner_generation,
    )


def sealed_answer(command: SessionRelocationSeal) -> SessionRelocationSealed:
    """Command 43 for a 42."""
    return SessionRelocationSealed(
        relocation_id=command.relocation_id,
        coordinator_fence=command.coordinator_fence,
        actor_route_fence=command.actor_route_fence,
        session_owner_node_rid=command.session_owner_node_rid,
        session_owner_node_generation=command.session_owner_node_generation,
        session_owner_id=command.session_owner_id,
        session_owner_lease_generation=command.session_owner_lease_generation,
        session_rid=command.session_rid,
        binding_generation=command.binding_generation,
    )


def update_of(command: SessionRelocationRoute) -> RouteCommitted | RouteAborted:
    """The event that a 44 is."""
    identity = seal_identity(command.relocation_id, command.coordinator_fence)
    binding, generation = binding_of(command), command.actor_ref.object_generation
    update = command.route_update
    if isinstance(update, RouteAbort):
        return RouteAborted(identity, binding, generation)
    route = SessionRoute(
        NodeRun(update.target_node_rid, update.target_node_generation),
        update.target_authority_owner_generation,
        update.target_owner_lease_generation,
    )
    return RouteCommitted(identity, binding, generation, route)


@dataclass(frozen=True, slots=True)
class SessionWire:
    """Makes the commands of one handoff for one session; `owner_generation` is the source's."""

    identity: HandoffIdentity
    key: ObjectKey
    object_generation: int
    owner_generation: int
    binding: Binding

    @property
    def session_owner(self) -> NodeRun:
        """The run that holds the client's socket."""
        return NodeRun(self.binding.session_owner_rid, self.binding.session_owner_generation)

    @property
    def terms(self) -> SealTerms:
        """What our 42 says."""
        each = self.identity
        identity = SealIdentity(
            each.relocation_id, each.owner_id, each.lease_generation, each.source, each.expected_version
        )
        return SealTerms(identity, self.binding, self.object_generation, self.owner_generation)

    def seal(self) -> SessionRelocationSeal:
        """Command 42."""
        binding, identity = self.binding, self.identity
        return SessionRelocationSeal(
            relocation_id=RelocationId(*identity.relocation_id),
            coordinator_fence=self._fence(),
            actor_route_fence=ActorRouteFence(
                self._actor(),
                identity.source.rid,
                identity.source.generation,
                self.owner_generation,
                identity.lease_generation,
            ),
            session_owner_node_rid=binding.session_owner_rid,
            session_owner_node_generation=binding.session_owner_generation,
            session_owner_id=binding.session_owner_id,
            session_owner_lease_generation=binding.session_owner_lease_generation,
            session_rid=binding.session_rid,
            binding_generation=binding.binding_generation,
        )

    def abort(self) -> SessionRelocationRoute:
        """Command 44 from the source: the Actor runs there again."""
        return self._route(Role.SOURCE, RouteAbort(self.owner_generation))

    def commit(self, target: NodeRun, lease_generation: int) -> SessionRelocationRoute:
        """Command 44 from the target: the Actor runs there."""
        before = self.owner_generation
        commit = RouteCommit(before, before + 1, target.rid, target.generation, lease_generation)
        return self._route(Role.TARGET, commit)

    def _route(self, role: Role, update: RouteUpdate) -> SessionRelocationRoute:
        binding = self.binding
        return SessionRelocationRoute(
            relocation_id=RelocationId(*self.identity.relocation_id),
            coordinator_fence=self._fence(),
            sender_role=role,
            actor_ref=self._actor(),
            session_owner_node_rid=binding.session_owner_rid,
            session_owner_node_generation=binding.session_owner_generation,
            session_owner_id=binding.session_owner_id,
            session_owner_lease_generation=binding.session_owner_lease_generation,
            session_rid=binding.session_rid,
            binding_generation=binding.binding_generation,
            route_update=update,
        )

    def _actor(self) -> ActorRef:
        return ActorRef(key_id(self.key), self.object_generation)

    def _fence(self) -> CoordinatorFence:
        identity = self.identity
        return CoordinatorFence(
            identity.owner_id,
            identity.lease_generation,
            identity.source.rid,
            identity.source.generation,
            identity.expected_version,
        )


def wires_of(identity: HandoffIdentity, rows: Iterable[AuthorityRow]) -> list[SessionWire]:
    """The sessions a unit is bound to, as the rows of its participants name them (B6.3): as they were before the
    move, or as a target read them again after its write, whose outcome it did not know."""
    return [
        SessionWire(identity, row.key, row.object_generation, _generation_before(row, identity), row.binding)
        for row in rows
        if row.binding is not None
    ]


def _generation_before(row: AuthorityRow, identity: HandoffIdentity) -> int:
    """The source's owner generation, whether this move is written in the row or not."""
    written = row.relocation == RelocationMark(*identity.relocation_id, MarkOutcome.COMMITTED)
    return row.owner_generation - 1 if written else row.owner_generation
