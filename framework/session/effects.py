"""Every effect of `SessionSeal` and `SessionContact`: commands to the driver, in the imperative.

A driver carries them out in order, without an `await` between `handle` and the last of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sojourn.handoff.machine import Effect
from sojourn.session.terms import CloseCode, SealTerms, SessionRoute

__all__ = [
    "CloseSocket",
    "DeliverPush",
    "DropMessages",
    "DropPush",
    "ForgetBinding",
    "ForgetContact",
    "RefuseSeal",
    "ReportNoBinding",
    "ReportRefused",
    "ReportSealed",
    "SendRoute",
    "SendSeal",
    "SendSealed",
    "SubmitMessages",
    "SwitchRoute",
]


# the session owner


@dataclass(frozen=True, slots=True)
class SendSealed(Effect):
    """Send command 43 on the connection."""

    connection: int
    terms: SealTerms


@dataclass(frozen=True, slots=True)
class RefuseSeal(Effect):
    """Answer the 42 with the control message `SealRefused`; the link stays. `kind` names the error class:
    NotFound where there is no such binding, else InvalidOperation."""

    connection: int
    terms: SealTerms
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class SwitchRoute(Effect):
    """From here on the client's messages for the Actor go to this owner."""

    route: SessionRoute


@dataclass(frozen=True, slots=True)
class SubmitMessages(Effect):
    """Send the client's messages to the owner, in order, behind everything submitted before."""

    route: SessionRoute
    messages: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class DeliverPush(Effect):
    """Give the push to the client."""

    push: Any


@dataclass(frozen=True, slots=True)
class DropPush(Effect):
    """End the push: it comes from an owner that is no longer believed, or nobody is there to take it."""

    push: Any


@dataclass(frozen=True, slots=True)
class DropMessages(Effect):
    """End the client's messages: their session is closed or unbound; none of them left this member."""

    messages: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class CloseSocket(Effect):
    """Close the client's socket with this code and the resume token (B11.5)."""

    code: CloseCode
    resume_token: bytes


@dataclass(frozen=True, slots=True)
class ForgetBinding(Effect):
    """The binding is over; nothing of it is kept."""


# who moves the Actor


@dataclass(frozen=True, slots=True)
class SendSeal(Effect):
    """Send the handoff's 42 on the connection, behind every push this node has for the session."""

    connection: int


@dataclass(frozen=True, slots=True)
class SendRoute(Effect):
    """Send command 44 on the connection."""

    connection: int
    update: Any


@dataclass(frozen=True, slots=True)
class ReportSealed(Effect):
    """Tell the handoff: the latest 42 was answered by its 43."""


@dataclass(frozen=True, slots=True)
class ReportNoBinding(Effect):
    """Tell the handoff: there is no such session (any more); the Actor moves as one that is not bound."""


@dataclass(frozen=True, slots=True)
class ReportRefused(Effect):
    """Tell the handoff: the 42 was refused."""

    reason: str


@dataclass(frozen=True, slots=True)
class ForgetContact(Effect):
    """Nothing is left to say to this session owner."""
