"""`TargetHandoff` that gave up without knowing who ends the saved work: until the row tells (B8.15, B6.8).

An attempt that sent relay-ready and saw neither a 31 nor a 34 does not know on which side of the boundary its source
is. A source before it fences, restores the object and runs the saved work; a source behind it runs nothing of it any
more, and leaves it to the owner that the row shows. Owns what each content of the row says about that, and nothing
else: the saved work itself is kept by the driver, by name.
"""

from __future__ import annotations

from sojourn.handoff.effects import EndWork, ForgetWork, MarkLost, ReadRow, RemoveFollowRoute
from sojourn.handoff.events import (
    LostConflicted,
    LostMarked,
    LostUnknown,
    RowRead,
    RowReadFailed,
    WithdrawnReceived,
)
from sojourn.handoff.machine import DeadlineReached, on
from sojourn.handoff.target_base import TargetBase
from sojourn.handoff.target_states import TargetDoubting, TargetRemoved
from sojourn.handoff.terms import RowFacts

__all__ = ["TargetDoubt"]


class TargetDoubt(TargetBase):
    """Transitions of `TargetDoubting`."""

    @on(RowRead, TargetDoubting, to=(TargetDoubting, TargetRemoved))
    def _doubt_read(self, state: TargetDoubting, event: RowRead, now: float) -> None:
        self._judge(state, event.row, now)

    def _judge(self, state: TargetDoubting, row: RowFacts | None, now: float) -> None:
        """What the row says of the saved work."""
        if self._committed(row, state.owner_generation):
            assert row is not None
            self._own_unseen(state, row, now)
        elif row is None or row.object_generation != state.object_generation:
            # Made anew or destroyed: whether the source ran the work before that is not told any more.
            self._end_work(state, EndWork("DataLost", "unknown"))
        elif not self._unfenced(row):  # the source went on with the object and its work, or a later owner did
            self._leave_work(state)
        elif row.lost:
            # The source was behind the boundary. It has ended the requests, but does not know of the sends whether
            # they were ended here (B8.15).
            self._end_work(state, EndWork("DataLost", "no", requests=False))
        else:
            self._still_unchanged(state, now)

    def _still_unchanged(self, state: TargetDoubting, now: float) -> None:
        """Source and write are both still to be heard of; at the end of this identity's time it is given up."""
        if now >= state.forget_at:
            self._end_work(state, EndWork("Unavailable", "unknown"))
        else:
            self._look_again(state, now)

    def _own_unseen(self, state: TargetDoubting, row: RowFacts, now: float) -> None:
        """The write had been carried out: nothing of the object is here, and the source runs it no more (B6.8)."""
        if not state.ended:
            state.ended = True
            self._log("object_lost", "error", relocation_id=self.plan.identity.relocation_id)
            self._do(EndWork("DataLost", "no"))
        if row.lost:
            self.state = state.into(TargetRemoved)
        elif self._read_before_the_write(row):
            self._look_again(state, now)
        else:
            ours = (each for each in row.others if each.moves and each.version and each.owner == row.owner)
            self._do(MarkLost(row.version, tuple(each.condition for each in ours)))

    def _read_before_the_write(self, row: RowFacts) -> bool:
        """The own row was read last and shows the write; another one still says what it said before. Without it the
        lost mark would stand in some rows of the unit only."""
        assert self.first is not None
        before = {each.key: each.ours for each in self.first.others}
        return any(each.moves and before.get(each.key) == each.ours for each in row.others)

    def _unfenced(self, row: RowFacts) -> bool:
        """The row is still the source's, and it has fenced neither this attempt nor a later one. Behind a relay-ready
        it goes back only by its fence: it does not run the object."""
        first = self.first
        assert first is not None
        return (
            row.owner == self.plan.identity.source
            and row.owner_generation == first.owner_generation
            and (row.relocation_id, row.fenced) == (first.relocation_id, first.fenced)
        )

    def _end_work(self, state: TargetDoubting, effect: EndWork) -> None:
        if not state.ended:
            self._do(effect)
        self.state = state.into(TargetRemoved)

    def _proved(self, state: TargetDoubting) -> None:
        """A 31 or 34 came after all: the source is past the boundary, and the work is this node's to end (B8.15)."""
        self._end_work(state, EndWork("Unavailable", "no"))

    def _leave_work(self, state: TargetDoubting) -> None:
        if not state.ended:
            self._do(ForgetWork())
        self.state = state.into(TargetRemoved)

    @on(WithdrawnReceived, TargetDoubting, to=(TargetRemoved,))
    def _fenced_after_all(self, state: TargetDoubting, event: WithdrawnReceived, now: float) -> None:
        self._leave_work(state)

    @on(LostMarked, TargetDoubting, to=(TargetRemoved,))
    def _doubt_marked(self, state: TargetDoubting, event: LostMarked, now: float) -> None:
        self.state = state.into(TargetRemoved)

    @on(LostConflicted, TargetDoubting)
    @on(LostUnknown, TargetDoubting)
    @on(RowReadFailed, TargetDoubting)
    def _doubt_unread(
        self, state: TargetDoubting, event: LostConflicted | LostUnknown | RowReadFailed, now: float
    ) -> None:
        self._look_again(state, now)

    def _look_again(self, state: TargetDoubting, now: float) -> None:
        """Seldom after a while, and for as long as it takes: an unreadable store does not end the work."""
        pause = self.options.retry_first_s * 2.0 ** min(state.reads, 20)
        state.reads += 1
        state.read_at = now + min(pause, self.options.sweep_s)

    @on(DeadlineReached, TargetDoubting)
    def _time_to_look(self, state: TargetDoubting, event: DeadlineReached, now: float) -> None:
        if state.follows and now >= state.forget_at:
            state.follows = False
            self._do(RemoveFollowRoute())
        if state.read_at is not None and now >= state.read_at:
            state.read_at = None
            self._do(ReadRow())
