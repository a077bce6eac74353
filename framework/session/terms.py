"""The terms of a session seal: who asks, whom the binding names, why a socket is closed.

Owns the small immutable values that events and effects carry. It must not know bytes or sockets.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from sojourn.ids import NodeRun, ObjectKey
from sojourn.rows import Binding

__all__ = ["CloseCode", "SealIdentity", "SealTerms", "SessionOptions", "SessionPlan", "SessionRoute"]


class CloseCode(enum.IntEnum):
    """Why a session owner closes a client's socket: the codes that a client sees (B11.5)."""

    SEAL_TIMEOUT = 4001
    """An Actor that the session is bound to was not released in time after it had begun to move. Come back
    with the resume token and bind anew."""
    LEASE_OVER = 4002
    """The session owner's lease is over: nobody believes its bindings any more. Connect to another node."""


class SealIdentity(NamedTuple):
    """What ties 42, 43 and 44 together: RelocationId and coordinator fence. Hashable."""

    relocation_id: tuple[int, int]
    owner_id: str
    lease_generation: int
    source: NodeRun
    expected_version: str


class SealTerms(NamedTuple):
    """Everything a 42 says: two are the same request exactly when these are equal (B11.2)."""

    identity: SealIdentity
    binding: Binding
    object_generation: int
    owner_generation: int
    """Of the source, as its route fence names it."""


class SessionRoute(NamedTuple):
    """The owner that the client's messages for the Actor go to."""

    run: NodeRun
    owner_generation: int
    lease_generation: int


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """What is fixed for the life of one binding (B11.1). `resume_token` goes to the client with a close."""

    binding: Binding
    key: ObjectKey
    object_generation: int
    resume_token: bytes = b""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Durations in seconds; the defaults are the contract's."""

    seal_timeout_s: float = 3.0
    """`SessionRelocationSealTimeout`, counted from the first 42 (R7.3, B11.5)."""
    follow_duration_s: float = 30.0
    """How long pushes of a previous owner generation stay valid (B11.3), and a settled seal is remembered."""
