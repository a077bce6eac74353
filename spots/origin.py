"""Who a process's messages come from: its node run and lease, as records carry them (`wire.md` 4.3)."""

from __future__ import annotations

from typing import NamedTuple

from sojourn.ids import ObjectKey, ObjectKind, key_id
from sojourn.wire import fast_record
from sojourn.wire.blocks import ActorRef
from sojourn.wire.record import ActorSource, NodeSource, SpotSource

__all__ = ["Origin", "is_actor", "record_kind"]


def is_actor(key: ObjectKey) -> bool:
    """True for the key of an Actor."""
    return key[0] == 0x61


def record_kind(kind: ObjectKind, asks: bool) -> int:
    """Record kind of a message to an object: 9 and 10 for Actors, 5 and 6 for Spots (send, request)."""
    return (9 if kind is ObjectKind.ACTOR else 5) + asks


class Origin(NamedTuple):
    """One node run and its owner lease."""

    rid: bytes
    generation: int
    owner_id: str
    lease_generation: int

    def node_source(self) -> bytes:
        """Source block of a message sent outside a turn."""
        return fast_record.encode_source_prefix(NodeSource(*self))

    def object_source(self, key: ObjectKey, object_generation: int) -> bytes:
        """Source block of a message sent in a turn of this object."""
        if is_actor(key):
            reference = ActorRef(key_id(key), object_generation)
            return fast_record.encode_source_prefix(ActorSource(*self, reference))
        return fast_record.encode_source_prefix(SpotSource(*self, key_id(key)))

    def route_fence(self, key: ObjectKey, object_generation: int, owner_generation: int) -> bytes:
        """Route fence of a message to an object that this node run owns."""
        encode = fast_record.encode_actor_fence if is_actor(key) else fast_record.encode_spot_fence
        return encode(
            key_id(key), object_generation, self.rid, self.generation, owner_generation, self.lease_generation
        )
