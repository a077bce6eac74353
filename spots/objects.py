"""The classes users subclass: Actors and Spots.

Owns what an object can do from inside its own handlers. Everything is passed on to the cell that holds the
object; this module must not know queues, timers or how messages travel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from sojourn.errors import InvalidOperation
from sojourn.ids import ObjectKind, key_id

if TYPE_CHECKING:
    from sojourn.spots.cell import Cell
    from sojourn.spots.declarations import Timer
    from sojourn.spots.references import ActorRef, NodeName, SpotRef
    from sojourn.spots.ticks import OverrunPolicy

__all__ = ["Actor", "EntrySpot", "InstanceSpot", "Resident", "Spot", "UserSpot"]

_A = TypeVar("_A", bound="Actor")
_S = TypeVar("_S", bound="Spot")


class Resident:
    """What Actors and Spots share: an id, references to others, timers, a wish to move.

    The framework makes the instances. Attributes set on the instance are its state and move with it;
    handlers run one at a time, so they need no lock. A class may bring its own bytes instead:
    `capture(self) -> bytes` and `restore(self, state: bytes) -> None`, always both (B1.9); and
    `upgrade(self, old_version: int, state)`, which gets the state written by an older application version
    (attributes as a dict, or the captured bytes) and returns it in today's form.
    """

    __slots__ = ("__dict__", "__weakref__", "_cell")

    object_kind: ClassVar[ObjectKind]
    _cell: Cell

    @property
    def id(self) -> str:
        """The object's id."""
        return key_id(_cell_of(self).key)

    def actor(self, actor_class: type[_A], actor_id: str) -> ActorRef[_A]:
        """A typed reference to an Actor.

        Raises:
            NotConfigured: the class is not registered with this application.
            InvalidOperation: the id is not 1 to 255 bytes of UTF-8 without NUL.
        """
        return _cell_of(self).host.references.actor(actor_class, actor_id)

    def spot(self, spot_class: type[_S], spot_id: str) -> SpotRef[_S]:
        """A typed reference to a Spot; an Instance Spot is made by the first message.

        Raises:
            NotConfigured: the class is not registered with this application.
            InvalidOperation: the id is not 1 to 255 bytes of UTF-8 without NUL.
        """
        return _cell_of(self).host.references.spot(spot_class, spot_id)

    def relocate(self, to: NodeName | None = None, *, worker: int | None = None) -> None:
        """Ask for this object's own move; it starts after the running turn (B8.8).

        The caller of this turn still gets exactly one reply. A move that fails leaves the object here and is
        logged; policy `disabled` refuses at once.

        Args:
            to: the node; None = this one, and `worker` says where.
            worker: number of the worker process, from 0 (B8.7); None = the node chooses.

        Raises:
            InvalidOperation: outside a turn of this object, its type never moves, or neither is given.
        """
        cell = _cell_of(self)
        cell.host.ask_own_move(cell, to, worker)

    def start_timer(
        self,
        handler: Timer[Any],
        *,
        name: str | None = None,
        every: float | None = None,
        after: float | None = None,
        payload: Any = None,
        repeat: int | None = None,
        overrun: OverrunPolicy | None = None,
        max_catch_up: int | None = None,
        stop_on_error: bool | None = None,
    ) -> None:
        """Start a named timer, in place of one of the same name. What is left out comes from `@timer`.

        Args:
            handler: a declared timer callback of this class, `Room.tick`.
            name: the timer's name, 1 to 255 bytes; the callback's name when left out.
            every: period in seconds; with neither a period here nor at `@timer` it ticks once, at `after`.
            after: seconds to the first tick; one period when left out.
            payload: handed to every tick; it moves with the timer and must be encodable.
            repeat: number of ticks after which the timer ends; None = what `@timer` says, by default no end.

        Raises:
            InvalidOperation: not a declared timer callback of this class (a closure cannot move to another
                process), neither `every` nor `after`, or an unsuitable payload.
            NotConfigured: a bad number or policy.
        """
        cell = _cell_of(self)
        cell.host.timers.start(
            cell,
            handler,
            name=name,
            every=every,
            after=after,
            payload=payload,
            repeat=repeat,
            overrun=overrun,
            max_catch_up=max_catch_up,
            stop_on_error=stop_on_error,
        )

    def cancel_timer(self, name: str) -> bool:
        """End a timer: it does not fire any more once this returned, moved or not. False if there is none."""
        cell = _cell_of(self)
        return cell.host.timers.cancel(cell, name)


def _cell_of(instance: Resident) -> Cell:
    try:
        return instance._cell
    except AttributeError:
        raise InvalidOperation(
            f"this {type(instance).__name__} was made by calling its class; Actors and Spots are made by "
            "the framework: send to a reference instead"
        ) from None


class Actor(Resident):
    """An addressable object with one queue, member of exactly one Spot (B1.5)."""

    __slots__ = ()
    object_kind = ObjectKind.ACTOR


class Spot(Resident):
    """Base of the Spot kinds; subclass one of those."""

    __slots__ = ()

    async def on_initialize(self) -> None:
        """Called once in every process the Spot comes to, before its first turn and before its state is
        restored (B2.1). A request to itself from here is refused; sends are queued."""

    async def on_closing(self, reason: str, deadline: float) -> None:
        """Called at most once when the Spot ends here.

        Args:
            reason: `HostShutdown` or `RelocationOut` (B2.6).
            deadline: when it must be done, on the event loop's clock.
        """


class EntrySpot(Spot):
    """One per node, holds the Actors that are in no room; never moves (B1.4)."""

    __slots__ = ()
    object_kind = ObjectKind.ENTRY_SPOT

    async def on_create_actor(self, actor_id: str, actor_type: str) -> bool:
        """Admission of a new Actor on this node: False rejects it (B2.2)."""
        return True


class InstanceSpot(Spot):
    """Made on demand by the first message to its id; `__init__` takes no arguments (B1.4)."""

    __slots__ = ()
    object_kind = ObjectKind.INSTANCE_SPOT


class UserSpot(Spot):
    """A room: made explicitly, holds Actors."""

    __slots__ = ()
    object_kind = ObjectKind.USER_SPOT
