"""The rows of the Location Store (B6.3): their fields, keys and stored form.

Owns what stands in the store. It must not know how the store is reached, nor which writes change a row
(`sojourn.ownership`).
"""

from __future__ import annotations

import enum

import msgspec
from sojourn.errors import InvalidOperation, ProtocolError
from sojourn.ids import GENERATION_MAX, NodeRun, ObjectKey, ObjectKind, actor_key, spot_key
from sojourn.row_codec import RowCodec
from sojourn.wire.authority_key import Family, authority_key, parse_authority_key
from sojourn.wire.errors import WireError

__all__ = [
    "AUTHORITY_PREFIX",
    "COUNTER_KEY",
    "LEASE_PREFIX",
    "NODE_PREFIX",
    "AuthorityRow",
    "Binding",
    "CounterRow",
    "HostState",
    "MarkOutcome",
    "Membership",
    "NodeDescriptor",
    "Owner",
    "OwnerLease",
    "RelocationMark",
    "RowState",
    "TypeSupport",
    "authority_row_key",
    "check_generation",
    "decode_authority",
    "decode_counter",
    "decode_descriptor",
    "decode_lease",
    "descriptor_row_key",
    "encode_authority",
    "encode_counter",
    "encode_descriptor",
    "encode_lease",
    "lease_row_key",
    "object_key_of_row",
    "with_member",
    "without_member",
]

AUTHORITY_PREFIX = "zla1:"
NODE_PREFIX = "node:"
LEASE_PREFIX = "lease:"
COUNTER_KEY = "counter:object-generation"
"""The store-wide source of ObjectGenerations (B1.3)."""


class RowState(enum.StrEnum):
    """Whether the object of an authority row can still be reached."""

    LIVE = "live"
    LOST = "lost"
    """Past a relocation boundary and held by nobody (B6.8): requests get DataLost."""


class MarkOutcome(enum.StrEnum):
    """What the last relocation that wrote a row did."""

    COMMITTED = "committed"
    FENCED = "fenced"
    """The source took the attempt back before its boundary (B6.7)."""


class HostState(enum.StrEnum):
    """State of a node (B10.2); ready only in Serving."""

    PREPARING = "Preparing"
    SERVING = "Serving"
    RELOCATING = "Relocating"
    RELOCATED = "Relocated"
    DRAINING = "Draining"
    STOPPED = "Stopped"
    ERROR = "Error"


class Owner(msgspec.Struct, frozen=True):
    """The run that owns an object, and the lease its authority rests on."""

    rid: bytes
    node_generation: int
    owner_id: str
    lease_generation: int

    @property
    def run(self) -> NodeRun:
        """The node run."""
        return NodeRun(self.rid, self.node_generation)


class Membership(msgspec.Struct, frozen=True):
    """The Spot an Actor is in: an Entry or a User Spot (B1.5)."""

    kind: ObjectKind
    spot_id: str
    object_generation: int


class Binding(msgspec.Struct, frozen=True):
    """The session an Actor is bound to: the six session fields of command 42 (B6.3)."""

    session_owner_rid: bytes
    session_owner_generation: int
    session_owner_id: str
    session_owner_lease_generation: int
    session_rid: bytes
    binding_generation: int


class RelocationMark(msgspec.Struct, frozen=True):
    """The last relocation that wrote the row: its RelocationId and what it did."""

    high: int
    low: int
    outcome: MarkOutcome


class AuthorityRow(msgspec.Struct, frozen=True, kw_only=True):
    """Who owns one object (B6.3). No TTL.

    Attributes:
        object_generation: the incarnation; a move keeps it.
        owner_generation: order of the owners of one incarnation, from 1; a move writes exactly one more.
        membership: the Spot an Actor is in; None for Spots.
        members: for a User Spot the ids of its member Actors, in the order of their authority keys.
        binding: the session an Actor is bound to, or None.
        relocation: the last relocation that wrote the row, or None.
    """

    kind: ObjectKind
    object_id: str
    stable_type: str
    object_generation: int
    owner_generation: int
    owner: Owner
    state: RowState = RowState.LIVE
    membership: Membership | None = None
    members: tuple[str, ...] = ()
    binding: Binding | None = None
    relocation: RelocationMark | None = None

    @property
    def key(self) -> ObjectKey:
        """The object's key inside the cluster."""
        if self.kind is ObjectKind.ACTOR:
            return actor_key(self.object_id)
        return spot_key(self.object_id)

    @property
    def row_key(self) -> str:
        """The row's key in the store."""
        return authority_row_key(self.key)


class TypeSupport(msgspec.Struct, frozen=True):
    """One registered type a node can host (B8.1)."""

    kind: ObjectKind
    stable_type: str
    policy: str
    """Relocation policy: preserve, recreate or disabled (B1.8)."""


class NodeDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """What a node run tells the others about itself; written together with its lease, with the same TTL.

    Attributes:
        endpoints: `host:port` texts to dial, best first; empty for a client.
        weight: share of placements, 0 = none.
        wave: maintenance wave; empty = unset.
        capacity: most objects, 0 = no limit.
        client: a member without workers (B13.1).
    """

    rid: bytes
    generation: int
    owner_id: str
    lease_generation: int
    application: str
    application_version: int
    endpoints: tuple[str, ...] = ()
    types: tuple[TypeSupport, ...] = ()
    state: HostState = HostState.PREPARING
    cordoned: bool = False
    weight: int = 100
    wave: str = ""
    capacity: int = 0
    object_count: int = 0
    workers: int = 0
    client: bool = False

    @property
    def run(self) -> NodeRun:
        """The node run."""
        return NodeRun(self.rid, self.generation)

    @property
    def accepted(self) -> bool:
        """It has its lease and met no living twin (B1.1): whoever is still Preparing may be refused."""
        return self.state is not HostState.PREPARING


class OwnerLease(msgspec.Struct, frozen=True):
    """The lease of one node run (B6.4); the row's TTL is the lease."""

    rid: bytes
    generation: int
    owner_id: str
    lease_generation: int

    @property
    def owner(self) -> Owner:
        """The owner fields that authority rows of this run carry."""
        return Owner(self.rid, self.generation, self.owner_id, self.lease_generation)


class CounterRow(msgspec.Struct, frozen=True):
    """The highest ObjectGeneration ever reserved."""

    last: int


def authority_row_key(key: ObjectKey) -> str:
    """The authority key text of an object: `zla1:`, family, count of id bytes, escaped id (wire.md section 7).

    Raises:
        InvalidOperation: `key` is no object key.
    """
    family: Family = "a" if key[:1] == b"a" else "s"
    try:
        if key[:1] not in (b"a", b"s"):
            raise InvalidOperation(f"{key!r:.80} is not an object key: it starts with neither a nor s")
        return authority_key(family, key[1:])
    except WireError as error:
        raise InvalidOperation(f"{key!r:.80} is not an object key: {error}") from None


def object_key_of_row(row_key: str) -> ObjectKey:
    """The object key behind an authority key text; there is one spelling for each key.

    Raises:
        ProtocolError: it is not the canonical spelling of an authority key.
    """
    try:
        family, raw = parse_authority_key(row_key)
    except WireError as error:
        raise ProtocolError(f"{row_key!r:.120} is not a canonical authority key: {error}") from error
    return family.encode("ascii") + raw


def descriptor_row_key(run: NodeRun) -> str:
    """The key of a run's descriptor."""
    return f"{NODE_PREFIX}{run.rid.hex()}:{run.generation}"


def lease_row_key(owner_id: str, lease_generation: int) -> str:
    """The key of a run's lease. It names the run, so that a restart under the same owner id does not keep the
    leases of its former run alive (B6.6)."""
    return f"{LEASE_PREFIX}{lease_generation}:{owner_id}"


def with_member(row: AuthorityRow, actor_id: str) -> AuthorityRow:
    """The row of a User Spot with one more member."""
    if actor_id in row.members:
        return row
    members = sorted({*row.members, actor_id}, key=lambda member: authority_row_key(actor_key(member)))
    return msgspec.structs.replace(row, members=tuple(members))


def without_member(row: AuthorityRow, actor_id: str) -> AuthorityRow:
    """The row of a User Spot without this member."""
    return msgspec.structs.replace(row, members=tuple(member for member in row.members if member != actor_id))


def check_generation(generation: int, name: str) -> int:
    """Return a generation unchanged, or refuse it (B1.3: 1 to 2^63-2)."""
    if not 1 <= generation <= GENERATION_MAX:
        raise InvalidOperation(f"{name} {generation} is not in 1 to {GENERATION_MAX}")
    return generation


_authority = RowCodec(AuthorityRow)
_descriptor = RowCodec(NodeDescriptor)
_lease = RowCodec(OwnerLease)
_counter = RowCodec(CounterRow)

encode_authority = _authority.encode
decode_authority = _authority.decode
encode_descriptor = _descriptor.encode
decode_descriptor = _descriptor.decode
encode_lease = _lease.encode
decode_lease = _lease.decode
encode_counter = _counter.encode
decode_counter = _counter.decode
