"""Where a new or moving object goes, as a pure choice over descriptors (B8.1).

Owns eligibility and the weighted rendezvous choice: nodes that decide at the same time from the same
descriptors agree. It must not know links, leases or the store; a descriptor that is passed in counts as
live, since its row ends with the lease of its run.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from sojourn.errors import Unavailable
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, describe_key
from sojourn.rows import HostState, NodeDescriptor, TypeSupport

__all__ = ["Placement", "PlacementQuery", "Refusal", "choose_node", "why_refused"]


@dataclass(frozen=True, slots=True)
class PlacementQuery:
    """What is to be placed.

    Attributes:
        application_version: the version a node must run exactly, None = any.
        policy: the relocation policy the node must have for the type, None = any.
        wave: maintenance wave to stay out of (the source's); empty = no restriction.
        connected: runs with an authenticated connection, None = not asked.
        refused: why the last attempt to connect to a run failed, for the text of a refusal.
        excluded: runs that are not to be chosen (the source itself).
    """

    key: ObjectKey
    kind: ObjectKind
    stable_type: str
    policy: str | None = None
    application_version: int | None = None
    wave: str = ""
    connected: Collection[NodeRun] | None = None
    refused: Mapping[NodeRun, str] = field(default_factory=dict)
    excluded: Collection[NodeRun] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """One node that was not eligible, and why."""

    run: NodeRun
    reason: str


@dataclass(frozen=True, slots=True)
class Placement:
    """The chosen node, or None with a reason for every node there is."""

    node: NodeDescriptor | None
    refusals: tuple[Refusal, ...]

    def require(self, query: PlacementQuery) -> NodeDescriptor:
        """The chosen node.

        Raises:
            Unavailable: there is none; the text names every refusal.
        """
        if self.node is not None:
            return self.node
        reasons = "; ".join(f"{refusal.run}: {refusal.reason}" for refusal in self.refusals)
        raise Unavailable(
            f"no node can take {describe_key(query.key)} of type {query.stable_type!r}: "
            f"{reasons or 'no node is known: none runs with this store and cluster name, or it is still starting'}",
            applied="no",
        )


def choose_node(
    query: PlacementQuery, descriptors: Iterable[NodeDescriptor], *, to: bytes | None = None
) -> Placement:
    """Choose the node for an object.

    Args:
        query: what is to be placed.
        descriptors: every live descriptor of the cluster; clients are passed over.
        to: RID of the one node that was asked for; weight and wave then do not count.
    """
    eligible: list[NodeDescriptor] = []
    refusals: list[Refusal] = []
    named = False
    for node in descriptors:
        if node.client or (to is not None and node.rid != to):
            continue
        named = True
        reason = why_refused(query, node, explicit=to is not None)
        if reason is None:
            eligible.append(node)
        else:
            refusals.append(Refusal(node.run, reason))
    if to is not None and not named:
        refusals.append(Refusal(NodeRun(to, 0), "no node with this RID has a live lease"))
    chosen = max(
        eligible, key=lambda node: (_score(query.key, node), node.rid, node.generation), default=None
    )
    return Placement(chosen, tuple(refusals))


def why_refused(query: PlacementQuery, node: NodeDescriptor, *, explicit: bool = False) -> str | None:
    """Why this node cannot take the object, or None when it can (B8.1)."""
    return (
        _state_reason(query, node)
        or _type_reason(query, node)
        or (None if explicit else _share_reason(query, node))
    )


def _state_reason(query: PlacementQuery, node: NodeDescriptor) -> str | None:
    if node.run in query.excluded:
        return "it is excluded"
    if node.state is not HostState.SERVING:
        return f"it is {node.state.value}, not Serving"
    if node.cordoned:
        return "it is cordoned"
    if query.connected is not None and node.run not in query.connected:
        why = query.refused.get(node.run)
        return f"there is no authenticated connection to this run{f' ({why})' if why else ''}"
    if node.capacity and node.object_count >= node.capacity:
        return f"it is full ({node.object_count} of {node.capacity} objects)"
    return None


def _type_reason(query: PlacementQuery, node: NodeDescriptor) -> str | None:
    support = _support(query, node)
    if support is None:
        return f"it has no {query.kind.name.lower()} type {query.stable_type!r}"
    if query.policy is not None and support.policy != query.policy:
        return f"its relocation policy for {query.stable_type!r} is {support.policy}, not {query.policy}"
    if query.application_version is not None and node.application_version != query.application_version:
        return f"it runs application version {node.application_version}, not {query.application_version}"
    return None


def _share_reason(query: PlacementQuery, node: NodeDescriptor) -> str | None:
    if node.weight <= 0:
        return "its weight is 0"
    if query.wave and node.wave == query.wave:
        return f"it is in maintenance wave {query.wave!r} too"
    return None


def _support(query: PlacementQuery, node: NodeDescriptor) -> TypeSupport | None:
    for support in node.types:
        if support.kind is query.kind and support.stable_type == query.stable_type:
            return support
    return None


def _score(key: ObjectKey, node: NodeDescriptor) -> float:
    """Weighted rendezvous: a node's share is its weight, and a node that leaves moves only its own keys."""
    digest = hashlib.blake2b(
        key, digest_size=8, key=hashlib.blake2b(node.rid, digest_size=32).digest()
    ).digest()
    uniform = ((int.from_bytes(digest, "big") >> 12) + 0.5) / 2**52
    return -max(node.weight, 1) / math.log(uniform)
