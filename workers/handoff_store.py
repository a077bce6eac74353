"""The store's part in a handoff: each step is one read or one conditional write, and ends as one event.

Owns how the outcome of a store call is told to a machine; an unknown outcome is never told as "no". Nothing
here is repeated and nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping

from sojourn.errors import SojournError
from sojourn.handoff import events
from sojourn.handoff.machine import Event
from sojourn.ids import ObjectKey
from sojourn.location import Applied, StoreUnavailable
from sojourn.ownership import VersionedRow, fence_unit, mark_lost, move_unit
from sojourn.rows import Membership, Owner
from sojourn.workers.directory import Directory
from sojourn.workers.handoff_wire import row_facts

__all__ = ["lose_object", "read_facts", "write_fence", "write_owner"]


async def read_facts(directory: Directory, key: ObjectKey) -> Event:
    """What the row says about the handoff: `RowRead` or `RowReadFailed`."""
    try:
        return events.RowRead(row_facts(await directory.read(key)))
    except SojournError:
        return events.RowReadFailed()


async def write_fence(directory: Directory, found: VersionedRow, relocation: tuple[int, int]) -> Event:
    """A source shuts out the target it gave up on (B6.7)."""
    try:
        result = await directory.write(fence_unit([found], relocation))
    except SojournError:
        return events.FenceUnknown()
    return events.FenceApplied() if isinstance(result, Applied) else events.FenceConflicted()


async def lose_object(directory: Directory, key: ObjectKey, version: str) -> Event:
    """Mark the object lost if its row is still the one of `version` (B6.6)."""
    try:
        found = await directory.read(key)
        if found is None or found.version != version:
            return events.LostConflicted()
        result = await directory.write(mark_lost([found]))
    except SojournError:
        return events.LostUnknown()
    return events.LostMarked() if isinstance(result, Applied) else events.LostConflicted()


async def write_owner(
    directory: Directory,
    unit: VersionedRow,
    owner: Owner,
    relocation: tuple[int, int],
    memberships: Mapping[str, Membership] | None,
) -> Event:
    """The only store write of a target (B6.5): never under a version it read itself (R4.5.1)."""
    try:
        result = await directory.write(move_unit([unit], owner, relocation, memberships))
    except StoreUnavailable:
        return events.OwnerWriteFailed()
    except SojournError:
        return events.OwnerWriteUnknown()
    return events.OwnerWritten() if isinstance(result, Applied) else events.OwnerWriteConflicted()
