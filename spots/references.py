"""Typed references to Actors and Spots.

Owns the public calls (`request`, `send`, `relocate`) and the checks at the caller's side. A reference is
immutable and small; it is bound to the sender of its process (`Sender`) and binds anew where it arrives
when it travels inside a message or state. It must not know how messages are encoded.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, Self, TypeAlias, TypeVar

import msgspec
from sojourn.errors import InvalidOperation
from sojourn.ids import ObjectKey, actor_key, describe_key, key_id, spot_key
from sojourn.spots.declarations import Declaration, Request, Send
from sojourn.spots.objects import Actor, Resident, Spot

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from sojourn.spots.app import App, ObjectType

__all__ = ["ActorRef", "NodeName", "Reference", "References", "Relocation", "Sender", "SpotRef", "node_name"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Resident)
_A = TypeVar("_A", bound=Actor)
_S = TypeVar("_S", bound=Spot)


class NamedNode(Protocol):
    """Anything that stands for a node."""

    @property
    def rid(self) -> str | bytes:
        """The node's RID."""
        ...


NodeName: TypeAlias = str | NamedNode
"""A node: its name, or an object with a `rid`."""


class Relocation(msgspec.Struct, frozen=True):
    """How a move ended (B8.10).

    Attributes:
        outcome: `moved`, `failed`, or `in doubt` (the boundary was crossed and the row could not be read).
        reason: why it failed or is in doubt, empty when moved.
        node: the node that is known to hold the object, empty when in doubt.
        interruption_ns: seal to first turn on the target in nanoseconds (to open dispatch when nothing waited
            there); 0 when unknown or not moved (B10.7).
    """

    outcome: Literal["moved", "failed", "in doubt"]
    reason: str = ""
    node: str = ""
    interruption_ns: int = 0


class Sender(Protocol):
    """What a reference needs from its process: a worker's host or a client's outbox."""

    @property
    def app(self) -> App:
        """The application whose types the references name."""
        ...

    def request(
        self,
        reference: Reference[Any],
        handler: Declaration,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Coroutine[Any, Any, Any]:
        """Send a request and wait for its one terminal."""
        ...

    def send(
        self, reference: Reference[Any], handler: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, None]:
        """Send one way; returns when the outbound admission accepted it."""
        ...

    def send_nowait(
        self, reference: Reference[Any], handler: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Send one way or raise `Unavailable` where that would have to wait."""
        ...

    async def call_node(self, operation: str, arguments: dict[str, Any]) -> Any:
        """Ask this process's node for something."""
        ...


class Reference(Generic[T]):
    """Address of one object and the class it is used as. Equal when address and type are."""

    __slots__ = ("_sender", "key", "timeout_s", "type")

    def __init__(
        self, sender: Sender, record: ObjectType, key: ObjectKey, timeout_s: float | None = None
    ) -> None:
        self._sender = sender
        self.type = record
        self.key = key
        self.timeout_s = timeout_s

    @property
    def id(self) -> str:
        """The object's id."""
        return key_id(self.key)

    def request(self, handler: Request[T, P, R], *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call a handler and wait for its result: exactly one terminal (B3.1).

        Raises:
            InvalidOperation: the arguments do not fit, or the object would wait for itself.
            DeadlineExceeded: no reply in time (30 s unless `with_timeout` says otherwise).
            NotFound, Unavailable, DataLost, ShuttingDown, TypeMismatch: as they say.
            InternalFailure: the handler raised; carries its traceback.
        """
        if not isinstance(handler, Request):
            raise _wrong_declaration(handler, "request", self.type)
        return self._sender.request(self, handler, args, kwargs)

    def send(self, handler: Send[T, P], *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, None]:
        """Send one way; returns when the local outbound admission accepted it.

        Raises:
            InvalidOperation: the arguments do not fit.
            Unavailable: the outbound queue stayed full for the admission timeout (1 s), nothing was sent.
        """
        if not isinstance(handler, Send):
            raise _wrong_declaration(handler, "send", self.type)
        return self._sender.send(self, handler, args, kwargs)

    def send_nowait(self, handler: Send[T, P], *args: P.args, **kwargs: P.kwargs) -> None:
        """`send` where waiting is impossible: raises `Unavailable` instead of waiting for room."""
        if not isinstance(handler, Send):
            raise _wrong_declaration(handler, "send", self.type)
        self._sender.send_nowait(self, handler, args, kwargs)

    def with_timeout(self, timeout_s: float) -> Self:
        """The same reference with another request timeout in seconds."""
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not 0 < timeout_s < 1e9:
            raise InvalidOperation(f"with_timeout takes seconds above 0, not {timeout_s!r}")
        return type(self)(self._sender, self.type, self.key, float(timeout_s))

    async def relocate(self, to: NodeName | None = None, *, worker: int | None = None) -> Relocation:
        """Move the object and wait for the end of the move (B8.9, B8.10).

        Once this returned `moved` the next request is handled there. A move to where it already is succeeds.

        Args:
            to: the node; None = it stays on its node, and `worker` says where there.
            worker: number of the worker process, from 0 (B8.7); None = the node chooses.

        Raises:
            InvalidOperation: neither is given, or the node has no such worker.
            NotConfigured: no node has this RID; names those that run. One that has ended makes the move fail.
            NotFound: the object does not exist.
        """
        answer = await self._sender.call_node("relocate", {"key": self.key, **destination(to, worker)})
        return msgspec.convert(answer, Relocation)

    if not TYPE_CHECKING:  # a checker that saw it would let every misspelt name pass

        def __getattr__(self, name: str) -> Any:
            record = None if name in Reference.__slots__ else self.type
            handler = None if record is None else record.handlers.get(name)
            if record is not None and handler is not None:
                raise AttributeError(
                    f"a reference has no methods of its object: write "
                    f"ref.{handler.word}({record.cls.__name__}.{name}, ...)"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Reference):
            return NotImplemented
        return self.key == other.key and self.type.stable_type == other.type.stable_type

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.type.stable_type} {describe_key(self.key)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_arrived, (self.type.cls, self.key, self.timeout_s))


class ActorRef(Reference[_A]):
    """A reference to an Actor."""

    __slots__ = ()


class SpotRef(Reference[_S]):
    """A reference to a Spot."""

    __slots__ = ()


class References:
    """Makes the references of one sender."""

    __slots__ = ("_sender",)

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def actor(self, actor_class: type[_A], actor_id: str) -> ActorRef[_A]:
        """A reference to an Actor; the errors are those of `Resident.actor`."""
        record = self._sender.app.type_of(actor_class)
        if not issubclass(record.cls, Actor):
            raise InvalidOperation(
                f"{actor_class.__name__} is a Spot: write spot({actor_class.__name__}, ...)"
            )
        return ActorRef(self._sender, record, actor_key(actor_id))

    def spot(self, spot_class: type[_S], spot_id: str) -> SpotRef[_S]:
        """A reference to a Spot; the errors are those of `Resident.spot`."""
        record = self._sender.app.type_of(spot_class)
        if not issubclass(record.cls, Spot):
            raise InvalidOperation(
                f"{spot_class.__name__} is an Actor: write actor({spot_class.__name__}, ...)"
            )
        return SpotRef(self._sender, record, spot_key(spot_id))


_arriving: ContextVar[Sender | None] = ContextVar("sojourn_arriving_references", default=None)


@contextmanager
def references_bind_to(sender: Sender | None) -> Iterator[None]:
    """While this is open, decoded references belong to `sender`."""
    token = _arriving.set(sender)
    try:
        yield
    finally:
        _arriving.reset(token)


def _arrived(cls: type[Resident], key: ObjectKey, timeout_s: float | None) -> Reference[Any]:
    sender = _arriving.get()
    if sender is None:
        raise InvalidOperation("a reference was unpickled outside a message or an object's state")
    kind: type[Reference[Any]] = ActorRef if issubclass(cls, Actor) else SpotRef
    return kind(sender, sender.app.type_of(cls), key, timeout_s)


def node_name(node: NodeName) -> str:
    """The name of a node as the control plane takes it.

    Raises:
        InvalidOperation: neither a name nor an object with a `rid`.
    """
    rid = getattr(node, "rid", node)
    if isinstance(rid, bytes):
        rid = rid.decode("utf-8", "surrogateescape")
    if not isinstance(rid, str) or not rid:
        raise InvalidOperation(f"a node is given as itself or by its name, not as {node!r}")
    return rid


def destination(to: NodeName | None, worker: int | None) -> dict[str, Any]:
    """Where an object is to move, as the control plane takes it: `to`, `worker` or both.

    Raises:
        InvalidOperation: neither, or not a node, or not the number of a worker.
    """
    if to is None and worker is None:
        raise InvalidOperation("say where to: relocate(to=node), relocate(worker=number), or both")
    where: dict[str, Any] = {}
    if to is not None:
        where["to"] = node_name(to)
    if worker is not None:
        if isinstance(worker, bool) or not isinstance(worker, int) or worker < 0:
            raise InvalidOperation(f"`worker` is the number of a worker process, from 0, not {worker!r}")
        where["worker"] = worker
    return where


def _wrong_declaration(handler: Any, word: str, record: ObjectType) -> InvalidOperation:
    if isinstance(handler, Declaration):
        verb = "send" if isinstance(handler, Send) else handler.word
        return InvalidOperation(
            f"{handler.owner_name}.{handler.name} is declared with @{handler.word}: "
            f"it cannot be used with ref.{word}(...)" + ("" if verb == "timer" else f", use ref.{verb}(...)")
        )
    return InvalidOperation(
        f"ref.{word}(...) takes a declared handler of {record.cls.__name__}, like "
        f"{record.cls.__name__}.name, not {handler!r}"
    )
