"""One handoff as a model that can be copied: every step that can happen next, and what may never be seen.

One unit of one participant or two, one source, one target, one store, one link, two records. Checked in every
state: never two open instances, nobody runs without owning or loses what it runs, nothing is restored past the
boundary, no record has two ends, all rows of the unit say the same, and so does what the caller is told. Checked
where nothing can happen any more: the machines of living nodes are done, the payload was released once, there was
one outcome, every record has an end or was lost with a connection or a node, a move that met no fault, or only a
write to another row, has moved, and the object is there unless something happened that may cost it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from sojourn.handoff import events as ev
from sojourn.handoff.machine import DeadlineReached, Machine
from sojourn.handoff.source import SourceHandoff, SourcePlan
from sojourn.handoff.source_states import Paused, SourceClosed, SourceRestored
from sojourn.handoff.target import TargetHandoff, TargetPlan
from sojourn.handoff.target_states import (
    Announced,
    Committing,
    ObjectStaged,
    RelayReady,
    TargetDoubting,
    TargetForgotten,
    TargetOpen,
    TargetRemoved,
)

from tests.simulation.explored_effects import IDENTITY, MANIFEST, OPTIONS, Effects, frozen
from tests.simulation.explored_link import CONTROL, peer_of
from tests.simulation.explored_states import instant, picture
from tests.simulation.explored_store import KEYS, B, first_rows
from tests.simulation.history import Violation

__all__ = ["LINE", "SINGLE", "UNIT", "UNIT_TURNED", "WORLDS", "Model", "Step", "Unit"]

Step = tuple[str, Callable[["Model"], None]]
OVER_AT_SOURCE = (SourceClosed, SourceRestored)
OVER_AT_TARGET = (TargetOpen, TargetRemoved, TargetForgotten)
WORKER_MATTERS = (ObjectStaged, RelayReady, Committing)


class Unit(NamedTuple):
    """A world: how many participants, and the records; each name ends in the participant it is for. `direct` comes
    to the target, the others to the source, from one sender in this order, before the seal or behind it."""

    participants: int
    records: tuple[str, ...]


SINGLE = Unit(1, ("late0", "direct0"))
UNIT = Unit(2, ("late0", "direct1"))
UNIT_TURNED = Unit(2, ("late1", "direct0"))
LINE = Unit(1, ("late0", "then0", "last0"))
WORLDS = {"single": SINGLE, "unit": UNIT, "unit-turned": UNIT_TURNED, "line": LINE}


class Model(Effects):
    """One state of the whole: machines, rows, calls under way, link, records."""

    source_class: type[SourceHandoff] = SourceHandoff
    target_class: type[TargetHandoff] = TargetHandoff
    only: tuple[str, ...] = ()
    """How the faults begin that may happen; empty = all."""

    def __init__(self, faults: int, unit: Unit) -> None:
        self.now = 0.0
        self.faults = faults
        self.rows = first_rows(unit.participants)
        plan = SourcePlan(IDENTITY, B, 1, 1, gives_up_at=2.5, others=self.others_now())
        self.machines: dict[str, Machine] = {
            "S": self.source_class(plan, zlib.crc32, frozen, OPTIONS),
            "T": self.target_class(TargetPlan(IDENTITY, KEYS[0], B, 0.0), zlib.crc32, frozen, OPTIONS),
        }
        self.owned = frozenset()
        self.calls = {}
        self.late = ()
        self.link = 1
        self.links = 1
        self.unbroken = True
        self.frames = {"S": (), "T": ()}
        self.unsent = ()
        self.outbox = {"S": (), "T": ()}
        self.echoes = ()
        self.cut_off = ()
        self.dead = frozenset()
        self.gone = False
        self.lost = frozenset()
        self.open = {"S": True, "T": False}
        self.work = {}
        self.worker_gone = False
        self.reopening = None
        self.rebuilding = False
        self.rebuilt_in_vain = False
        self.opening = None
        self.staged = frozenset()
        self.installed = {"S": False, "T": False}
        self.sealed = False
        self.crossed = False
        self.captured = 0
        self.released = 0
        self.outcomes = 0
        self.ends = {}
        self.records = unit.records
        self.to_arrive = unit.records
        self.saved = tuple(f"saved{index}" for index in range(unit.participants))
        self.hops = {}
        self.begun = False
        self.cancelled = False
        self.harmed = False
        self.doomed = False

    def clone(self) -> Model:
        other = object.__new__(type(self))
        state = other.__dict__
        state.update(self.__dict__)
        for name in ("machines", "calls", "frames", "outbox", "open", "work", "installed", "ends", "hops"):
            state[name] = state[name].copy()
        other.owned = frozenset()
        return other

    def key(self) -> Any:
        """Everything that the future depends on."""
        now, calls, frames = self.now, self.calls, self.frames
        return (
            *(None if who in self.dead else picture(self.machines[who], now) for who in ("S", "T")),
            self.rows,
            calls.get("S"),
            calls.get("T"),
            self.late,
            self.link,
            self.unbroken,
            frames["S"],
            frames["T"],
            self.unsent,
            self.outbox["S"],
            self.outbox["T"],
            self.echoes,
            self.cut_off,
            self.dead,
            self.gone,
            self.lost,
            self.open["S"],
            self.open["T"],
            self.work.get("S"),
            self.work.get("T"),
            self.worker_gone,
            self.reopening,
            self.rebuilding,
            self.rebuilt_in_vain,
            self.opening,
            self.staged,
            self.installed["S"],
            self.installed["T"],
            self.sealed,
            self.crossed,
            self.captured,
            self.released,
            self.outcomes,
            frozenset(self.ends.items()),
            self.to_arrive,
            frozenset(self.hops.items()),
            self.faults,
            self.begun,
            self.cancelled if self.faults else None,
            self.harmed,
            self.doomed,
            instant(self.target_ends_at, now),
        )

    # steps

    def steps(self) -> Iterator[Step]:
        """Everything that can happen next, faults included."""
        if not self.begun:
            yield "begin", Model.begin
            return
        ordinary = list(self.ordinary_steps())
        yield from ordinary
        for index in range(len(self.late)):
            yield "a late write", lambda m, i=index: m.carry_out_late(i)
        for index, (who, frame) in enumerate(self.echoes):
            if self.hears(peer_of(who)):
                yield f"{frame[0]} of {who} once more", lambda m, i=index: m.echo(i)
        for record in self.may_arrive():
            if ("T" if record.startswith("direct") else "S") not in self.dead:
                yield f"{record} arrives", lambda m, r=record: m.arrive(r)
        if "T" in self.dead and self.unnoticed("S") is None and not self.gone:
            yield "the target's run has ended", Model.target_gone
        if self.faults:
            yield from (step for step in self.fault_steps() if self.may_happen(step[0]))
        early = self.faults and self.may_happen("time")
        for who, machine in self.machines.items():
            if machine.deadline is not None and who not in self.dead and (not ordinary or early):
                cost = 1 if ordinary else 0
                yield f"time for {who}", lambda m, w=who, c=cost: m.pass_time(w, c)

    def may_happen(self, fault: str) -> bool:
        """Whether this fault is in the alphabet of this walk."""
        return not self.only or fault.startswith(self.only)

    def may_arrive(self) -> list[str]:
        """What comes to the target at any time, and the next of what one sender sends to the source."""
        direct = [record for record in self.to_arrive if record.startswith("direct")]
        return direct + [record for record in self.to_arrive if record not in direct][:1]

    def ordinary_steps(self) -> Iterator[Step]:
        """What happens by itself, and before any time passes if nothing is wrong."""
        for who in ("S", "T"):
            if self.frames[who]:
                yield f"{self.frames[who][0][0]} of {who}", lambda m, w=who: m.deliver_next(w)
            call = self.calls.get(who)
            if call is not None and call.answer is not None:
                yield f"{who} hears of its {call.kind}", lambda m, w=who: m.answer(w)
            elif call is not None:
                yield f"the store does {call.kind} of {who}", lambda m, w=who: m.carry_out(w)
            if who in self.work:
                yield f"{self.work[who]} is done", lambda m, w=who: m.work_done(w)
        if self.rebuilding:
            yield "the target restores it again", Model.rebuilt
        noticed = self.unnoticed("S") is None and self.unnoticed("T") is None
        if self.link is None and noticed and not self.dead:
            yield "a new connection", Model.reconnect

    def fault_steps(self) -> Iterator[Step]:
        source, target = self.machines["S"].state, self.machines["T"].state
        over = isinstance(target, (*OVER_AT_TARGET, Announced)) and not isinstance(target, TargetDoubting)
        if isinstance(source, OVER_AT_SOURCE) and over:
            return
        yield from self.network_faults()
        yield from self.store_faults()
        yield from self.node_faults()
        if not self.cancelled and not isinstance(source, OVER_AT_SOURCE) and "S" not in self.dead:
            yield "the caller cancels", Model.cancel

    def network_faults(self) -> Iterator[Step]:
        if self.link is not None:
            for keep_s in range(len(self.frames["S"]) + 1):
                for keep_t in range(len(self.frames["T"]) + 1):
                    yield f"cut {keep_s} {keep_t}", lambda m, a=keep_s, b=keep_t: m.cut(a, b)
        for who in ("S", "T"):
            if self.frames[who] and self.frames[who][0][0] in CONTROL:
                yield f"{self.frames[who][0][0]} of {who} comes twice", lambda m, w=who: m.double(w)
        for index, (who, frame) in enumerate(self.cut_off):
            if self.hears(peer_of(who)) and self.unnoticed(peer_of(who)) is None:
                yield f"{frame[0]} of {who} comes late", lambda m, i=index: m.come_late(i)

    def store_faults(self) -> Iterator[Step]:
        for who, call in self.calls.items():
            if call.answer is not None:
                continue
            if call.kind == "read":
                yield f"{who} cannot read", lambda m, w=who: m.fail_read(w)
                continue
            fates = ("applied", "never", "late", *(("refused",) if call.kind == "write owner" else ()))
            for fate in fates:
                yield (
                    f"{who} does not hear of its {call.kind}: {fate}",
                    lambda m, w=who, f=fate: m.lose_answer(w, f),
                )
        for index in range(len(self.rows)):
            yield f"row {index} is written by somebody else", lambda m, i=index: m.touch(i)

    def node_faults(self) -> Iterator[Step]:
        for who in ("S", "T"):
            if self.dead:  # without both there is nothing left to see
                break
            keeps = len(self.frames[who]) if self.link is not None else 0
            for keep in range(keeps + 1):
                for late in (False, True) if self.writes_now(who) else (False,):
                    yield f"{who} dies {keep} {late}", lambda m, w=who, k=keep, c=late: m.die(w, k, c)
        busy = self.work.get("S")
        if busy == "capture":
            yield "the capture is refused", Model.refuse_capture
            yield "the source's worker ends", Model.lose_source_worker
        elif busy == "restore here":
            yield "restoring it here fails", Model.fail_restore_here
        elif isinstance(self.machines["S"].state, Paused) and not self.worker_gone and "S" not in self.dead:
            yield "the source's worker ends", Model.lose_captured
        if "T" in self.work:
            yield "the restore fails", Model.fail_restore
        elif self.rebuilding:
            yield "restoring it again fails", Model.rebuild_fails
        elif self.target_worker_matters():
            yield "the target's worker ends", Model.lose_target_worker

    def target_worker_matters(self) -> bool:
        """Whether the object stands in a worker of the target and has not opened."""
        staged = isinstance(self.machines["T"].state, WORKER_MATTERS)
        return staged and not self.rebuilt_in_vain and "T" not in self.dead

    # what the steps do

    def begin(self) -> None:
        self.begun = True
        self.tell("S", ev.RelocationStarted(1))

    def arrive(self, record: str) -> None:
        self.to_arrive = tuple(each for each in self.to_arrive if each != record)
        self.take("T" if record.startswith("direct") else "S", record, None)

    def cancel(self) -> None:
        self.spend()
        self.cancelled = True
        self.tell("S", ev.CancelRequested())

    def pass_time(self, who: str, cost: int) -> None:
        deadline = self.machines[who].deadline
        assert deadline is not None
        ahead = [m.deadline for each, m in self.machines.items() if each not in self.dead and m.deadline]
        self.spend(cost, dooms=cost > 0 or deadline > min(ahead))
        self.now = max(self.now, deadline)
        self.tell(who, DeadlineReached())

    def answer(self, who: str) -> None:
        event = self.calls.pop(who).answer
        assert event is not None
        self.tell(who, event)

    def deliver_next(self, who: str) -> None:
        frame, *rest = self.frames[who]
        self.frames[who] = tuple(rest)
        self.deliver(who, frame)

    def hears(self, who: str) -> bool:
        """Whether a frame that comes late could still be for somebody."""
        if who == "T" and isinstance(self.machines["T"].state, TargetForgotten):
            return False
        return who not in self.dead

    def double(self, who: str) -> None:
        """This frame arrives, and once more whenever that may be."""
        self.spend()
        self.echoes = (*self.echoes, (who, self.frames[who][0]))
        self.deliver_next(who)

    def echo(self, index: int) -> None:
        who, frame = self.echoes[index]
        self.echoes = self.echoes[:index] + self.echoes[index + 1 :]
        self.deliver(who, frame)

    def come_late(self, index: int) -> None:
        self.spend()
        who, frame = self.cut_off[index]
        self.cut_off = ()
        self.deliver(who, frame)

    def reconnect(self) -> None:
        self.links += 1
        self.link = self.links
        self.tell("S", ev.LinkRestored(self.link))
        for who in ("S", "T"):
            waiting, self.outbox[who] = self.outbox[who], ()
            for record in waiting:
                self.send(who, "follow", 0, record)

    def target_gone(self) -> None:
        self.gone = True
        self.tell("S", ev.TargetRunGone())

    def die(self, who: str, keep: int, call_is_late: bool) -> None:
        super().die(who, keep, call_is_late)
        self.work.pop(who, None)
        if who == "S":
            self.lost |= set(self.reopening or ())
            self.reopening = None
        else:
            self.lost |= set(self.opening or ())
            self.opening = None
            self.staged = frozenset()
            self.rebuilding = self.rebuilt_in_vain = False

    # workers

    def work_done(self, who: str) -> None:
        busy = self.work.pop(who)
        if busy == "capture":
            self.captured += 1
            self.tell("S", ev.ObjectCaptured(MANIFEST))
        elif busy == "restore here":
            records, self.reopening = self.reopening or (), None
            self.open_at("S", records)
            self.tell("S", ev.DispatchRestored())
        else:
            self.tell("T", ev.ObjectRestored())

    def refuse_capture(self) -> None:
        self.spend()
        del self.work["S"]
        self.tell("S", ev.CaptureRefused("no"))

    def lose_source_worker(self) -> None:
        """The object is lost with it; the node says so in the rows (B6.6)."""
        self.spend(dooms=True)
        del self.work["S"]
        for record in self.saved:
            self.end(record, "failed")
        self.tell("S", ev.WorkerLost())
        self.apply("mark lost", list(range(len(self.rows))))

    def lose_captured(self) -> None:
        """The payload is in the supervisor: the move goes on, and whoever restores it needs another worker (B6.6)."""
        self.spend()
        self.worker_gone = True
        self.tell("S", ev.WorkerLost())

    def fail_restore_here(self) -> None:
        self.spend(dooms=True)
        del self.work["S"]
        self.tell("S", self.lose_at_source())

    def fail_restore(self) -> None:
        self.spend()
        del self.work["T"]
        self.tell("T", ev.RestoreFailed("no"))

    def lose_target_worker(self) -> None:
        """Before relay-ready that ends the attempt; after it the object is restored into another worker (B6.6)."""
        self.spend()
        self.rebuilding = not isinstance(self.machines["T"].state, ObjectStaged)
        self.tell("T", ev.RestoreFailed("worker gone"))

    def rebuilt(self) -> None:
        self.rebuilding = False
        if self.opening is not None:
            self.tell("T", self.open_now())

    def rebuild_fails(self) -> None:
        self.spend(dooms=True)
        self.rebuilding = False
        if self.opening is None:
            self.rebuilt_in_vain = True
        else:
            self.tell("T", self.lose_at_target())

    # the end

    def check_end(self) -> None:
        """Nothing can happen any more."""
        source, target = (self.machines[who].state for who in ("S", "T"))
        if "S" not in self.dead:
            if not isinstance(source, OVER_AT_SOURCE):
                raise Violation(f"the source is stuck in {source}")
            if self.released != self.captured or self.outcomes != 1:
                raise Violation(f"payload released {self.released} times, {self.outcomes} outcomes")
        if "T" not in self.dead and not isinstance(target, TargetForgotten | Announced):
            raise Violation(f"the target is stuck in {target}")
        if not self.harmed and not self.open["T"]:
            raise Violation("nothing was wrong, and the object did not move")
        alive = self.open["S"] or self.open["T"]
        if not self.doomed and not alive:
            raise Violation("nothing happened that may cost the object, and it is gone")
        for record in (*self.saved, *self.records):
            known = record in self.ends or record in self.lost or record in self.to_arrive
            if not known and (record not in self.saved or not self.dead):
                raise Violation(f"{record} vanished")
        own = self.rows[0]
        if not alive and not own.lost and own.owner != B and "S" not in self.dead:
            raise Violation("the object is gone and nobody says so")
