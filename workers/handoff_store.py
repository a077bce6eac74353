"""The store's part in a handoff: each step is one read or one conditional write, and ends as one event.

Owns how the outcome of a store call is told to a machine; an unknown outcome is never told as "no". Nothing
here is repeated and nothing is decided here.
"""

from __future__ import annotations

from sojourn.errors import SojournError
from sojourn.handoff import events
from sojourn.handoff.effects import Conditions
from sojourn.handoff.machine import Event
from sojourn.location import Applied, StoreUnavailable
from sojourn.ownership import VersionedRow, fence_unit, mark_lost
from sojourn.rows import Membership, Owner
from sojourn.workers.unit_rows import UnitRows

__all__ = ["lose_unit", "read_facts", "write_fence", "write_owner"]


async def read_facts(rows: UnitRows) -> Event:
    """What the rows say about the handoff: `RowRead` or `RowReadFailed`."""
    try:
        return events.RowRead(await rows.facts())
    except SojournError:
        return events.RowReadFailed()


async def write_fence(rows: UnitRows, conditions: Conditions, relocation: tuple[int, int]) -> Event:
    """A source shuts out the target it gave up on, in every row of the unit (B6.7)."""
    assert rows.first is not None
    unit = rows.under(rows.first, conditions)
    if unit is None:
        return events.FenceConflicted()
    try:
        result = await rows.directory.write(fence_unit(unit, relocation))
    except SojournError:
        return events.FenceUnknown()
    return events.FenceApplied() if isinstance(result, Applied) else events.FenceConflicted()


async def lose_unit(rows: UnitRows, version: str, conditions: Conditions) -> Event:
    """Mark every row of the unit lost if the own row is still the one of `version` (B6.8)."""
    try:
        found = await rows.read()
        unit = None if found is None or found.version != version else rows.under(found, conditions)
        if unit is None:
            return events.LostConflicted()
        result = await rows.directory.write(mark_lost(unit))
    except SojournError:
        return events.LostUnknown()
    return events.LostMarked() if isinstance(result, Applied) else events.LostConflicted()


async def write_owner(
    rows: UnitRows,
    expected_version: str,
    conditions: Conditions,
    owner: Owner,
    relocation: tuple[int, int],
    memberships: dict[str, Membership],
) -> Event:
    """The only store write of a target, over every row of the unit (B6.5): the own row never under a version it
    read itself (R4.5.1)."""
    assert rows.first is not None
    unit = rows.under(VersionedRow(rows.first.row, expected_version), conditions)
    if unit is None:
        return events.OwnerWriteConflicted()
    try:
        result = await rows.directory.write(rows.moved(unit, owner, relocation, memberships))
    except StoreUnavailable:
        return events.OwnerWriteFailed()
    except SojournError:
        return events.OwnerWriteUnknown()
    return events.OwnerWritten() if isinstance(result, Applied) else events.OwnerWriteConflicted()
