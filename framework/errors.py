"""The error tree (B3.3): one base, split by what the caller does next.

The class names are the API. Every error carries structured fields; the text is built from them.
Every class survives pickling, since errors cross process borders.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "ERROR_KINDS",
    "AlreadyExists",
    "DataLost",
    "DeadlineExceeded",
    "InternalFailure",
    "InvalidOperation",
    "NotConfigured",
    "NotFound",
    "ProtocolError",
    "Rejected",
    "ShuttingDown",
    "SojournError",
    "TypeMismatch",
    "Unavailable",
    "error_from_fields",
]


class SojournError(Exception):
    """Base of every error Sojourn raises.

    Attributes:
        message: what happened and what to do about it.
        object_id: the actor or spot concerned, as people read it, or None.
        operation_id: 128-bit id of the message concerned as 32 hex digits, or None.
        phase: where in its life the operation was (for example a relocation phase), or None.
        applied: for lost routes and for time that is over, ``"no"`` (never handed on, or never started) or
            ``"unknown"`` (handed on or begun: it may have been carried out, or a part of it); None elsewhere (B3.4).
        remote_traceback: text of the traceback where the failure happened, or None.
    """

    kind: ClassVar[str] = "SojournError"

    def __init__(
        self,
        message: str,
        *,
        object_id: str | None = None,
        operation_id: str | None = None,
        phase: str | None = None,
        applied: str | None = None,
        remote_traceback: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.object_id = object_id
        self.operation_id = operation_id
        self.phase = phase
        self.applied = applied
        self.remote_traceback = remote_traceback

    def __str__(self) -> str:
        parts = [self.message]
        for name in ("object_id", "operation_id", "phase", "applied"):
            value = getattr(self, name)
            if value is not None and str(value) not in self.message:
                parts.append(f"[{name.replace('_', ' ')}: {value}]")
        if self.remote_traceback:
            parts.append(f"\n--- remote traceback ---\n{self.remote_traceback.rstrip()}")
        return " ".join(parts)

    def fields(self) -> dict[str, Any]:
        """The structured fields, for logs and for the way across a process border."""
        return {
            "message": self.message,
            "object_id": self.object_id,
            "operation_id": self.operation_id,
            "phase": self.phase,
            "applied": self.applied,
            "remote_traceback": self.remote_traceback,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.fields(), self._extra()))

    def _extra(self) -> dict[str, Any]:
        """Further attributes of a subclass that must survive pickling."""
        base = set(self.fields())
        return {
            name: value for name, value in self.__dict__.items() if name not in base and name != "__notes__"
        }


def _rebuild(cls: type[SojournError], fields: dict[str, Any], extra: dict[str, Any]) -> SojournError:
    error = cls.__new__(cls)
    SojournError.__init__(error, **fields)
    error.__dict__.update(extra)
    return error


class InvalidOperation(SojournError):
    """The call itself is wrong here: bad arguments, awaiting one's own queue, a stale incarnation."""

    kind = "InvalidOperation"


class NotConfigured(SojournError):
    """The program or a setting is wrong: an unknown handler, a class that cannot be imported, a bad option."""

    kind = "NotConfigured"


class TypeMismatch(SojournError):
    """The object exists under another type than the caller named."""

    kind = "TypeMismatch"


class NotFound(SojournError):
    """No such object, and the message did not carry the intent to make one (B3.4)."""

    kind = "NotFound"


class AlreadyExists(SojournError):
    """An object with this id exists."""

    kind = "AlreadyExists"


class Rejected(SojournError):
    """Refused now, by an admission callback or an authority."""

    kind = "Rejected"


class Unavailable(SojournError):
    """The owner cannot be reached or may not run now; see `applied` before trying again (B3.4)."""

    kind = "Unavailable"


class ShuttingDown(SojournError):
    """The node or the cluster is stopping and takes no new work."""

    kind = "ShuttingDown"


class DeadlineExceeded(SojournError):
    """The time of the operation is over; see `applied` for what is known of its outcome."""

    kind = "DeadlineExceeded"


class DataLost(SojournError):
    """The object's state was lost; it may be created anew (B6.8)."""

    kind = "DataLost"


class ProtocolError(SojournError):
    """A peer sent bytes that break the protocol, or that this peer is not allowed to send."""

    kind = "ProtocolError"


class InternalFailure(SojournError):
    """A user's handler raised, or Sojourn itself has a bug; carries the remote traceback."""

    kind = "InternalFailure"


ERROR_KINDS: dict[str, type[SojournError]] = {
    cls.kind: cls
    for cls in (
        NotFound,
        AlreadyExists,
        TypeMismatch,
        NotConfigured,
        Rejected,
        Unavailable,
        DeadlineExceeded,
        ShuttingDown,
        ProtocolError,
        InvalidOperation,
        DataLost,
        InternalFailure,
    )
}
"""Kind name on the wire to class."""


def error_from_fields(kind: str, fields: dict[str, Any]) -> SojournError:
    """Rebuild an error that came from another process; an unknown kind becomes InternalFailure."""
    known: dict[str, Any] = {name: fields.get(name) for name in SojournError("").fields()}
    known["message"] = str(fields.get("message", ""))
    cls = ERROR_KINDS.get(kind)
    if cls is None:
        known["message"] = f"{kind}: {known['message']}"
        cls = InternalFailure
    return cls(**known)
