"""Every effect of `SessionSeal` and `SessionContact`: commands to the driver, in the imperative.

A driver carries them out in order, without an `await` between `handle` and the last of them.
"""

from __future__ import annotations

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


class SendSealed(Effect, frozen=True):
    """Send command 43 on the connection."""

    connection: int
    terms: SealTerms


class RefuseSeal(Effect, frozen=True):
    """Answer the 42 with the control message `SealRefused`; the link stays. `kind` names the error class:
    NotFound where there is no such binding, else InvalidOperation."""

    connection: int
    terms: SealTerms
    kind: str
    reason: str


class SwitchRoute(Effect, frozen=True):
    """From here on the client's messages for the Actor go to this owner."""

    route: SessionRoute


class SubmitMessages(Effect, frozen=True):
    """Send the client's messages to the owner, in order, behind everything submitted before."""

    route: SessionRoute
    messages: tuple[Any, ...]


class DeliverPush(Effect, frozen=True):
    """Give the push to the client."""

    push: Any


class DropPush(Effect, frozen=True):
    """End the push: it comes from an owner that is no longer believed, or nobody is there to take it."""

    push: Any


class DropMessages(Effect, frozen=True):
    """End the client's messages: their session is closed or unbound; none of them left this member."""

    messages: tuple[Any, ...]


class CloseSocket(Effect, frozen=True):
    """Close the client's socket with this code and the resume token (B11.5)."""

    code: CloseCode
    resume_token: bytes


class ForgetBinding(Effect, frozen=True):
    """The binding is over; nothing of it is kept."""


# who moves the Actor


class SendSeal(Effect, frozen=True):
    """Send the handoff's 42 on the connection; the one that confirms the seal behind every push this node has for the
    session, also behind those that wait for credit (B11.3)."""

    connection: int


class SendRoute(Effect, frozen=True):
    """Send command 44 on the connection."""

    connection: int
    update: Any


class ReportSealed(Effect, frozen=True):
    """Tell the handoff: the latest 42 was answered by its 43."""


class ReportNoBinding(Effect, frozen=True):
    """Tell the handoff: there is no such session (any more); the Actor moves as one that is not bound."""


class ReportRefused(Effect, frozen=True):
    """Tell the handoff: the 42 was refused."""

    reason: str


class ForgetContact(Effect, frozen=True):
    """Nothing is left to say to this session owner."""
