"""Identities: nodes, node runs, objects and operations (B1.1 to B1.3).

Owns the in-memory form of every identity the other modules pass around. Knows nothing about how
they travel (`sojourn.wire`) or where they are stored (`sojourn.rows`).
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from sojourn.errors import InvalidOperation

__all__ = [
    "GENERATION_MAX",
    "NodeRun",
    "ObjectKey",
    "ObjectKind",
    "SpotMode",
    "actor_key",
    "check_object_id",
    "check_rid",
    "describe_key",
    "is_key",
    "key_id",
    "spot_key",
]

GENERATION_MAX = 2**63 - 2
"""Largest generation of any kind (B1.3)."""

ObjectKey = bytes
"""An object's key inside one cluster: one family byte, `a` (actor) or `s` (spot of any kind), then the
UTF-8 id. It is a plain `bytes` because it is cut out of a routing header and used as a dictionary key
once per message."""


class ObjectKind(enum.IntEnum):
    """What an object is. 1 to 3 are the tags of the wire's object identity; an Entry Spot never moves and
    therefore never stands in one (R3.1)."""

    ACTOR = 1
    USER_SPOT = 2
    INSTANCE_SPOT = 3
    ENTRY_SPOT = 4


class SpotMode(enum.StrEnum):
    """Turn and relocation mode of a User Spot (B1.4)."""

    SPOT_WIDE = "SpotWide"
    PER_ACTOR = "PerActor"


class NodeRun(NamedTuple):
    """One run of one node: its RID and the generation of this process run (B1.1).

    Two runs of one RID are different peers: a generation is compared for equality only.
    """

    rid: bytes
    generation: int

    def __str__(self) -> str:
        return f"{self.rid.decode('utf-8', 'backslashreplace')}@{self.generation}"


def check_object_id(object_id: str) -> bytes:
    """Return the UTF-8 bytes of an object id, or refuse it.

    Raises:
        InvalidOperation: not 1 to 255 UTF-8 bytes, or it contains NUL or a lone surrogate (B1.2).
    """
    if not isinstance(object_id, str):
        raise InvalidOperation(f"an object id is text, not {object_id!r:.80}: write str(...) around it")
    try:
        raw = object_id.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidOperation(f"object id {object_id!r} is not valid Unicode text") from None
    if not 1 <= len(raw) <= 255 or b"\x00" in raw:
        raise InvalidOperation(
            f"object id {object_id!r:.80} must be 1 to 255 bytes of UTF-8 without NUL; it has {len(raw)} bytes"
        )
    return raw


def check_rid(rid: bytes) -> bytes:
    """Return `rid` unchanged, or refuse it.

    Raises:
        InvalidOperation: not 1 to 255 bytes (B1.1).
    """
    if not 1 <= len(rid) <= 255:
        raise InvalidOperation(f"a node RID has 1 to 255 bytes, not {len(rid)}")
    return rid


def actor_key(actor_id: str) -> ObjectKey:
    """The key of an Actor."""
    return b"a" + check_object_id(actor_id)


def spot_key(spot_id: str) -> ObjectKey:
    """The key of a Spot of any kind."""
    return b"s" + check_object_id(spot_id)


def is_key(octets: bytes) -> bool:
    """Whether these octets, from anywhere, are the key of an object: a family and an id (B1.2)."""
    if octets[:1] not in (b"a", b"s"):
        return False
    try:
        check_object_id(octets[1:].decode("utf-8"))
    except (UnicodeDecodeError, InvalidOperation):
        return False
    return True


def key_id(key: ObjectKey) -> str:
    """The object id inside a key."""
    return key[1:].decode("utf-8")


def describe_key(key: ObjectKey) -> str:
    """A key as people read it in errors and logs."""
    family = "actor" if key[:1] == b"a" else "spot"
    return f"{family} {key[1:].decode('utf-8', 'backslashreplace')!r}"
