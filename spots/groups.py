"""Groups: a Spot and the Actors that share its one turn (B1.6, `SpotWide`).

Owns what a member's cell has in common with its Spot's: one mailbox in one order, one running turn, one phase.
Such a group is one unit of a move (R3.3). It must not know why an Actor is in a Spot.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sojourn.errors import InvalidOperation
from sojourn.ids import ObjectKey, describe_key
from sojourn.rows import authority_row_key
from sojourn.spots.cell import Cell, Phase

__all__ = ["Group", "MemberCell", "dissolve", "in_unit_order", "join_turn", "lead_of"]


class Group:
    """A Spot's cell and those of its members, by key."""

    __slots__ = ("lead", "members")

    def __init__(self, lead: Cell) -> None:
        self.lead = lead
        self.members: dict[ObjectKey, Cell] = {}

    def __contains__(self, key: object) -> bool:
        return key == self.lead.key or key in self.members


def _of_lead(name: str) -> Any:
    """An attribute that a member shares with its Spot."""

    def read(self: Cell) -> Any:
        assert self.group is not None
        return getattr(self.group.lead, name)

    def write(self: Cell, value: Any) -> None:
        assert self.group is not None
        setattr(self.group.lead, name, value)

    return property(read, write)


class MemberCell(Cell):
    """The cell of an Actor in a group. A cell outside any group pays nothing for there being groups."""

    __slots__ = ()

    boundary = _of_lead("boundary")
    captured = _of_lead("captured")
    closing = _of_lead("closing")
    listed = _of_lead("listed")
    phase = _of_lead("phase")
    queue = _of_lead("queue")
    running = _of_lead("running")
    seal = _of_lead("seal")


def lead_of(cell: Cell) -> Cell:
    """The cell whose mailbox and turn this one has: its Spot's, or its own."""
    return cell if cell.group is None else cell.group.lead


def in_unit_order(cell: Cell) -> tuple[Cell, ...]:
    """The participants of an object's unit in the order of their authority keys: number 1 first (R4.2.2)."""
    if cell.group is None:
        return (cell,)
    group = cell.group
    # Canonical keys are ASCII: the order of their text is the order of their bytes.
    return tuple(sorted((group.lead, *group.members.values()), key=lambda each: authority_row_key(each.key)))


def join_turn(lead: Cell, member: Cell) -> None:
    """Let an Actor share the turn of a Spot in the same worker from now on.

    What waits for the Actor goes behind what waits for the Spot.

    Raises:
        InvalidOperation: one of them is in a turn, moving, not in the same phase, or in another group.
    """
    name = describe_key(member.key)
    if member.group is not None or (lead.group is not None and lead.group.lead is not lead):
        raise InvalidOperation(f"{name} or its Spot is in a group already", object_id=name)
    if member.running is not None or member.phase is not lead.phase or member.phase > Phase.OPEN:
        raise InvalidOperation(f"{name} can join a turn only between turns of its own", object_id=name)
    jobs = member.take_all()
    if lead.group is None:
        lead.group = Group(lead)
    member.group = lead.group
    # The same cell, since timers, messages and the instance name it; the classes have one layout.
    member.__class__ = MemberCell
    lead.group.members[member.key] = member
    for job in jobs:
        lead.put(job)


def dissolve(lead: Cell) -> Iterable[Cell]:
    """End a group with its Spot: every member is gone from its turn. Returns the former members."""
    group, lead.group = lead.group, None
    members = () if group is None else tuple(group.members.values())
    for member in members:
        member.group = None
        member.__class__ = Cell
        member.phase = Phase.GONE
        member.queue = member.running = None
        member.listed = False
        member.seal = member.closing = member.captured = member.boundary = None
    return members
