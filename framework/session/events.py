"""Every event of `SessionSeal` and `SessionContact`: facts that a driver reports, in the past tense.

Messages and pushes are opaque objects: a machine keeps them, orders them and gives them back. Events come in
the order in which the facts became true at this member; frames of one connection in its order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sojourn.handoff.machine import Event
from sojourn.rows import Binding
from sojourn.session.terms import SealIdentity, SealTerms, SessionRoute

__all__ = [
    "ClientMessageArrived",
    "ConnectionDown",
    "ConnectionUp",
    "ContactReleased",
    "LeaseOver",
    "OwnerGone",
    "PushArrived",
    "RouteAborted",
    "RouteCommitted",
    "RouteDecided",
    "SealAnswered",
    "SealDenied",
    "SealRequested",
    "SealWanted",
    "SocketClosed",
    "Unbound",
]


# the session owner


@dataclass(frozen=True, slots=True)
class SealRequested(Event):
    """Command 42 for this binding arrived, for the first time or again."""

    terms: SealTerms
    connection: int


@dataclass(frozen=True, slots=True)
class RouteCommitted(Event):
    """Command 44 commit for this binding arrived: the Actor runs at `route`."""

    identity: SealIdentity
    binding: Binding
    object_generation: int
    route: SessionRoute


@dataclass(frozen=True, slots=True)
class RouteAborted(Event):
    """Command 44 abort for this binding arrived: the Actor runs at the source again."""

    identity: SealIdentity
    binding: Binding
    object_generation: int


@dataclass(frozen=True, slots=True)
class ClientMessageArrived(Event):
    """The client sent a request or a push for the Actor."""

    heavy = True
    message: Any


@dataclass(frozen=True, slots=True)
class PushArrived(Event):
    """An owner of the Actor sent something for the client, under its owner generation."""

    heavy = True
    push: Any
    owner_generation: int


@dataclass(frozen=True, slots=True)
class Unbound(Event):
    """The binding ended: the Actor was unbound, or a newer binding of it stands (B11.1)."""


@dataclass(frozen=True, slots=True)
class SocketClosed(Event):
    """The client's socket is gone."""


@dataclass(frozen=True, slots=True)
class LeaseOver(Event):
    """The lease of this session owner is over (B11.2)."""


# who moves the Actor


@dataclass(frozen=True, slots=True)
class ConnectionUp(Event):
    """A connection to the session owner stands; a new one has another number."""

    connection: int


@dataclass(frozen=True, slots=True)
class ConnectionDown(Event):
    """The connection to the session owner broke."""

    connection: int


@dataclass(frozen=True, slots=True)
class SealWanted(Event):
    """The handoff asks for the seal, or for a confirmation behind what this node has pushed so far."""


@dataclass(frozen=True, slots=True)
class SealAnswered(Event):
    """Command 43 arrived."""

    connection: int


@dataclass(frozen=True, slots=True)
class SealDenied(Event):
    """A refused 42 was answered. `no_binding`: the session owner knows no such binding."""

    connection: int
    no_binding: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RouteDecided(Event):
    """The move is decided for the session: tell its owner. `update` is the driver's command 44."""

    update: Any
    commit: bool


@dataclass(frozen=True, slots=True)
class OwnerGone(Event):
    """The session owner's lease is over: it counts as no binding (B11.2)."""


@dataclass(frozen=True, slots=True)
class ContactReleased(Event):
    """The handoff has nothing more to ask."""
