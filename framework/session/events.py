"""Every event of `SessionSeal` and `SessionContact`: facts that a driver reports, in the past tense.

Messages and pushes are opaque objects: a machine keeps them, orders them and gives them back. Events come in
the order in which the facts became true at this member; frames of one connection in its order.
"""

from __future__ import annotations

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


class SealRequested(Event, frozen=True):
    """Command 42 for this binding arrived, for the first time or again."""

    terms: SealTerms
    connection: int


class RouteCommitted(Event, frozen=True):
    """Command 44 commit for this binding arrived: the Actor runs at `route`."""

    identity: SealIdentity
    binding: Binding
    object_generation: int
    route: SessionRoute


class RouteAborted(Event, frozen=True):
    """Command 44 abort for this binding arrived: the Actor runs at the source again."""

    identity: SealIdentity
    binding: Binding
    object_generation: int


class ClientMessageArrived(Event, frozen=True):
    """The client sent a request or a push for the Actor."""

    heavy = True
    message: Any


class PushArrived(Event, frozen=True):
    """An owner of the Actor sent something for the client, under its owner generation."""

    heavy = True
    push: Any
    owner_generation: int


class Unbound(Event, frozen=True):
    """The binding ended: the Actor was unbound, or a newer binding of it stands (B11.1)."""


class SocketClosed(Event, frozen=True):
    """The client's socket is gone."""


class LeaseOver(Event, frozen=True):
    """The lease of this session owner is over (B11.2)."""


# who moves the Actor


class ConnectionUp(Event, frozen=True):
    """A connection to the session owner stands; a new one has another number."""

    connection: int


class ConnectionDown(Event, frozen=True):
    """The connection to the session owner broke."""

    connection: int


class SealWanted(Event, frozen=True):
    """The handoff asks for the seal, or for a confirmation behind what this node has pushed so far."""


class SealAnswered(Event, frozen=True):
    """Command 43 arrived."""

    connection: int


class SealDenied(Event, frozen=True):
    """A refused 42 was answered. `no_binding`: the session owner knows no such binding."""

    connection: int
    no_binding: bool
    reason: str = ""


class RouteDecided(Event, frozen=True):
    """The move is decided for the session: tell its owner. `update` is the driver's command 44."""

    update: Any
    commit: bool


class OwnerGone(Event, frozen=True):
    """The session owner's lease is over: it counts as no binding (B11.2)."""


class ContactReleased(Event, frozen=True):
    """The handoff has nothing more to ask."""
