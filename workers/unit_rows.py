"""The rows of one handoff's unit: the own row, and those of the members that move with a `SpotWide` Spot.

Owns in which order they are read and which of them a write is made of. It must not decide anything: which rows
belong together is what the own row lists (B6.3), which versions a write asks for is the machine's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from sojourn.handoff.effects import Conditions
from sojourn.handoff.terms import ParticipantFacts, RowFacts
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, actor_key, spot_key
from sojourn.location import StoreWrite
from sojourn.ownership import VersionedRow, move_unit, rewrite_object
from sojourn.rows import (
    AuthorityRow,
    MarkOutcome,
    Membership,
    Owner,
    RowState,
    authority_row_key,
    with_member,
    without_member,
)

if TYPE_CHECKING:
    from sojourn.workers.directory import Directory

__all__ = ["UnitRows", "row_facts"]


def row_facts(found: VersionedRow | None, others: tuple[ParticipantFacts, ...] = ()) -> RowFacts | None:
    """What a row says about a handoff."""
    if found is None:
        return None
    row = found.row
    mark = row.relocation
    return RowFacts(
        found.version,
        row.owner.run,
        row.object_generation,
        row.owner_generation,
        None if mark is None else (mark.high, mark.low),
        mark is not None and mark.outcome is MarkOutcome.FENCED,
        row.state is RowState.LOST,
        row.binding is not None,
        others,
    )


def _participant_facts(key: ObjectKey, found: VersionedRow | None, moves: bool) -> ParticipantFacts:
    if found is None:
        return ParticipantFacts(key, "", NodeRun(b"", 0), 0, 0, moves=moves)
    row = found.row
    return ParticipantFacts(
        key,
        found.version,
        row.owner.run,
        row.object_generation,
        row.owner_generation,
        row.membership,
        row.state is RowState.LOST,
        row.binding is not None,
        moves,
    )


class UnitRows:
    """The rows of one unit, as one half of a handoff read them.

    Attributes:
        first: the own row as it was first read; it is never refreshed, nor is its version (R4.5.1).
        others: the other participants' rows as last read, in the order of their authority keys.
    """

    def __init__(
        self,
        directory: Directory,
        key: ObjectKey,
        shares_turn: Callable[[AuthorityRow], bool],
        *,
        joined: ObjectKey | None = None,
    ) -> None:
        """`shares_turn`: whether the Spot of a row is `SpotWide`, so that its members move with it. `joined`: the
        User Spot that the Actor of a cross-node join enters; which one it leaves its own row says."""
        self.directory = directory
        self._left: ObjectKey | None = None
        self._joined = joined
        self._spots: tuple[ObjectKey, ...] = () if joined is None else (joined,)
        self.key = key
        self._shares_turn = shares_turn
        self.first: VersionedRow | None = None
        self.others: dict[ObjectKey, VersionedRow | None] = {}

    async def read(self) -> VersionedRow | None:
        """Read all of them, the own row last (`ReadRow`), and return the own one.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        keys = tuple(self.others) or self._spots
        while True:
            others = await self.directory.read_many(keys) if keys else {}
            found = await self.directory.read(self.key)
            self._find_left(found)
            listed = self._listed(found)
            if listed == keys:
                break
            keys = listed
        self.others = {key: others[key] for key in keys}
        if self.first is None:
            self.first = found
        return found

    def _find_left(self, found: VersionedRow | None) -> None:
        """The Spot that a join leaves is the one of the row as first read (R4.5.1)."""
        if self._joined is None or self.first is not None or found is None:
            return
        membership = found.row.membership
        if membership is not None and membership.kind is ObjectKind.USER_SPOT:
            left = spot_key(membership.spot_id)
            self._left = None if left == self._joined else left
        spots = (spot for spot in (self._left, self._joined) if spot is not None)
        self._spots = tuple(sorted(spots, key=authority_row_key))

    def _listed(self, found: VersionedRow | None) -> tuple[ObjectKey, ...]:
        row = None if found is None else found.row
        if row is None or row.kind is not ObjectKind.USER_SPOT or not row.members:
            return self._spots
        members = sorted(map(actor_key, row.members), key=authority_row_key)
        return tuple(members) if self._shares_turn(row) else ()

    async def facts(self) -> RowFacts | None:
        """Read them, and say what they mean to a handoff."""
        return self.facts_of(await self.read())

    def facts_of(self, found: VersionedRow | None) -> RowFacts | None:
        """What the rows last read say, the own one being `found`."""
        spots = self._spots
        others = (_participant_facts(key, other, key not in spots) for key, other in self.others.items())
        return row_facts(found, tuple(others))

    def present(self) -> Iterator[VersionedRow]:
        """The own row as first read, and the other rows that there are."""
        if self.first is not None:
            yield self.first
        for key, found in self.others.items():
            if found is not None and key not in self._spots:
                yield found

    def under(self, own: VersionedRow, conditions: Conditions) -> list[VersionedRow] | None:
        """The rows of one write: the own row as given, the others under the versions that the machine asks for.

        None when another version was read meanwhile: the write could only conflict.
        """
        unit = [own]
        for key, version in conditions:
            found = self.others.get(key)
            if found is None or found.version != version:
                return None
            unit.append(found)
        return unit

    def moved(
        self,
        unit: list[VersionedRow],
        owner: Owner,
        relocation: tuple[int, int],
        memberships: dict[str, Membership],
    ) -> StoreWrite:
        """The write of a move over these rows (B6.5): new owners, and the memberships that change with them, in
        the Actors' rows and in the lists of the Spots that they leave and enter (section 8 of the contract)."""
        participants = [each for each in unit if each.row.key not in self._spots]
        spots = {each.row.key: each for each in unit if each.row.key in self._spots}
        actor = participants[0].row.object_id
        lists = StoreWrite([], [])
        if self._left in spots:
            left = spots[self._left]
            lists += rewrite_object(left, without_member(left.row, actor))
        if self._joined in spots:
            joined = spots[self._joined]
            lists += rewrite_object(joined, with_member(joined.row, actor))
            entered = Membership(joined.row.kind, joined.row.object_id, joined.row.object_generation)
            memberships = {**memberships, actor: entered}
        return move_unit(participants, owner, relocation, memberships) + lists
