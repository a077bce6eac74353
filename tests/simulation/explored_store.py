"""The store of the explored world: the unit's rows, calls under way, answers that are lost, writes that come late.

A write is all or nothing over the rows it names. A read of a unit takes two steps, the own row last, since no
store call reads several rows at one moment.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sojourn.handoff import events as ev
from sojourn.handoff.machine import Event
from sojourn.handoff.terms import ParticipantFacts, RowFacts
from sojourn.ids import NodeRun

from tests.simulation.history import Violation

__all__ = ["ANSWERS", "RELOCATION", "WRITES", "A", "B", "Call", "Store", "facts", "first_rows", "run_of"]

A, B = NodeRun(b"A", 1), NodeRun(b"B", 1)
RELOCATION = (0, 1)
KEYS = (b"sx", b"ap")
"""The Spot's own row, then the Actor's."""

ANSWERS: dict[str, tuple[Event, Event, Event]] = {
    "write owner": (ev.OwnerWritten(), ev.OwnerWriteConflicted(), ev.OwnerWriteUnknown()),
    "fence": (ev.FenceApplied(), ev.FenceConflicted(), ev.FenceUnknown()),
    "mark lost": (ev.LostMarked(), ev.LostConflicted(), ev.LostUnknown()),
}
WRITES = frozenset(ANSWERS)


class Call(NamedTuple):
    """One call at the store: what it is, the versions it asks for by row, and its answer once there is one."""

    kind: str
    versions: tuple[tuple[int, str], ...] = ()
    seen: Any = None
    """What the first half of a read has seen."""
    answer: Event | None = None


def run_of(who: str) -> NodeRun:
    """The run of the source or the target."""
    return A if who == "S" else B


def first_rows(participants: int) -> tuple[RowFacts, ...]:
    """The rows as the source has read them before the handoff begins."""
    return tuple(RowFacts(f"{index}v1", A, 1, 1) for index in range(participants))


def facts(index: int, row: RowFacts) -> ParticipantFacts:
    """What the row of another participant says."""
    return ParticipantFacts(
        KEYS[index], row.version, row.owner, row.object_generation, row.owner_generation, "sx", row.lost
    )


class Store:
    """What the model knows of the store. `rows` and `calls` are replaced, never changed in place."""

    rows: tuple[RowFacts, ...]
    calls: dict[str, Call]
    """Under way at the store, by machine."""
    late: tuple[Call, ...]
    """Writes whose caller was told "unknown" or is dead, and that may still be carried out."""
    faults: int
    """How many more may happen."""
    harmed: bool
    """One happened that may end the move; a write to another row may not (B6.5)."""
    doomed: bool
    """One happened that may cost the object: a node or the only worker that has it ended, somebody wrote its own row,
    or a timer fired before or behind its time."""
    open: dict[str, bool]

    def spend(self, cost: int = 1, *, dooms: bool = False) -> None:
        """A fault happens."""
        self.faults -= cost
        self.harmed = self.harmed or cost > 0
        self.doomed = self.doomed or dooms

    def call(self, who: str, kind: str, own: str = "", others: Any = ()) -> None:
        if who in self.calls:
            raise Violation(f"{who} has two store calls under way")
        versions = ((0, own), *((KEYS.index(key), version) for key, version in others)) if own else ()
        self.calls[who] = Call(kind, versions)

    def carry_out(self, who: str) -> None:
        """The store does the next step of a call."""
        call = self.calls[who]
        if call.kind != "read":
            self.calls[who] = call._replace(answer=ANSWERS[call.kind][0 if self.write(call) else 1])
        elif len(self.rows) > 1 and call.seen is None:
            self.calls[who] = call._replace(seen=self.read_first())
        else:
            self.calls[who] = call._replace(answer=ev.RowRead(self.read_last(call.seen)))

    def read_first(self) -> Any:
        """The first half of reading a unit: the other rows."""
        return self.others_now()

    def read_last(self, seen: Any) -> RowFacts:
        """The second half: the own row."""
        return self.rows[0]._replace(others=seen or ())

    def others_now(self) -> tuple[ParticipantFacts, ...]:
        """What the rows of the other participants say now."""
        return tuple(facts(index, row) for index, row in enumerate(self.rows) if index)

    def write(self, call: Call) -> bool:
        if any(self.rows[index].version != version for index, version in call.versions):
            return False
        self.apply(call.kind, [index for index, _ in call.versions])
        return True

    def apply(self, kind: str, indices: list[int]) -> None:
        """Carry a write out over these rows, whose conditions hold."""
        rows = list(self.rows)
        for index in indices:
            old = rows[index]
            if kind == "write owner":
                new = old._replace(
                    owner=B, owner_generation=old.owner_generation + 1, relocation_id=RELOCATION
                )
            elif kind == "fence":
                new = old._replace(relocation_id=RELOCATION, fenced=True)
            elif kind == "mark lost":
                new = old._replace(lost=True)
            else:
                new = old
            rows[index] = new._replace(version=f"{index}v{int(old.version[2:]) + 1}")
        self.rows = tuple(rows)
        self.check_rows()

    def check_rows(self) -> None:
        """Owner, fence and lost mark stand in all rows of the unit or in none, and nobody loses what it runs."""
        if len({row._replace(version="") for row in self.rows}) > 1:
            raise Violation(f"the rows of the unit disagree: {self.rows}")
        for who, opened in self.open.items():
            if opened and self.rows[0].owner != run_of(who):
                raise Violation(f"the owner is written while {who} runs the object")

    def lose_answer(self, who: str, fate: str) -> None:
        """The caller never learns what became of its call: it was carried out, or never is, or will be."""
        self.spend()
        call = self.calls[who]
        if fate == "applied":
            self.write(call)
        elif fate == "late":
            self.late = (*self.late, call)
        unknown = ev.OwnerWriteFailed() if fate == "refused" else ANSWERS[call.kind][2]
        self.calls[who] = call._replace(answer=unknown)

    def fail_read(self, who: str) -> None:
        self.spend()
        self.calls[who] = self.calls[who]._replace(answer=ev.RowReadFailed())

    def carry_out_late(self, index: int) -> None:
        call = self.late[index]
        self.late = self.late[:index] + self.late[index + 1 :]
        self.write(call)

    def touch(self, index: int) -> None:
        """Somebody else writes this row anew and changes nothing that matters to the move."""
        harmed = self.harmed
        self.spend(dooms=index == 0)
        self.harmed = harmed or index == 0
        self.apply("touch", [index])
