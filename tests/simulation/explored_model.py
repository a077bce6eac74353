"""One handoff as a model that can be copied: every step that can happen next, and what may never be seen.

One object, one source, one target, one store, one link, records. Checked in every state: never two open
instances, nobody runs without owning, nothing is restored past the boundary, no record has two ends. Checked
where nothing can happen any more: both machines are done, the payload was released once, every record has an
end or was lost with a connection.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff.machine import DeadlineReached, Effect, Event, Log, Machine
from sojourn.handoff.source import SourceHandoff, SourcePlan
from sojourn.handoff.source_states import SourceClosed, SourceRestored
from sojourn.handoff.target import TargetHandoff, TargetPlan
from sojourn.handoff.target_states import Announced, TargetForgotten
from sojourn.handoff.terms import DirectDisposal, HandoffIdentity, HandoffOptions, Manifest, RowFacts
from sojourn.ids import NodeRun

from tests.simulation.explored_states import clone_machine, freeze
from tests.simulation.history import Violation

__all__ = ["RECORDS", "Model"]

A, B = NodeRun(b"A", 1), NodeRun(b"B", 1)
IDENTITY = HandoffIdentity((0, 1), 1, "owner", 1, A, "v1")
OPTIONS = HandoffOptions(
    commit_reserve_s=3.0, follow_duration_s=3.0, ended_memory_s=3.0, sweep_s=2.0, retry_first_s=0.25
)
MANIFEST = Manifest(4, 1, 0)


def frozen(record: str) -> bytes:
    return record.encode()


class Model:
    """One state of the whole: machines, row, calls under way, link, records."""

    def __init__(self, faults: int, records: tuple[str, ...]) -> None:
        self.now = 0.0
        self.faults = faults
        plan = SourcePlan(IDENTITY, B, 1, 1, gives_up_at=2.5)
        self.machines: dict[str, Machine] = {
            "S": SourceHandoff(plan, zlib.crc32, frozen, OPTIONS),
            "T": TargetHandoff(TargetPlan(IDENTITY, b"sx", B, 0.0), zlib.crc32, frozen, OPTIONS),
        }
        self.row = RowFacts("v1", A, 1, 1)
        self.version = 1
        self.calls: dict[str, tuple[str, Any]] = {}
        """Under way at the store, by machine: its kind, then its answer once carried out."""
        self.late: tuple[tuple[str, Any], ...] = ()
        """Writes whose caller was told "unknown" and that may still be carried out."""
        self.link: int | None = 1
        self.links = 1
        self.frames: dict[str, tuple[Any, ...]] = {"S": (), "T": ()}
        """Frames on their way, by sender, oldest first."""
        self.unsent: tuple[tuple[Any, ...], ...] = ()
        """Sent by the source on a connection whose end it has not noticed."""
        self.outbox: dict[str, tuple[str, ...]] = {"S": (), "T": ()}
        self.open = {"S": True, "T": False}
        self.staged = False
        self.installed: dict[str, bool] = {"S": False, "T": False}
        self.sealed = False
        self.crossed = False
        self.captured = 0
        self.released = 0
        self.outcomes = 0
        self.ends: dict[str, str] = {}
        self.lost: frozenset[str] = frozenset()
        self.to_arrive = records
        self.saved: tuple[str, ...] = ("saved",)
        self.hops: dict[str, int] = {}
        self.begun = False
        self.cancelled = False

    def clone(self) -> Model:
        other = copy(self)
        other.machines = {name: clone_machine(machine) for name, machine in self.machines.items()}
        for name in ("calls", "frames", "outbox", "open", "installed", "ends", "hops"):
            setattr(other, name, dict(getattr(self, name)))
        return other

    def key(self) -> Any:
        now = self.now
        return (
            tuple(freeze(machine.state, now) for machine in self.machines.values()),
            self.row,
            tuple(sorted(self.calls.items(), key=repr)),
            self.late,
            self.link,
            self.frames["S"],
            self.frames["T"],
            self.unsent,
            tuple(self.outbox.values()),
            tuple(self.open.values()),
            self.staged,
            self.sealed,
            tuple(sorted(self.hops.items())),
            tuple(self.installed.values()),
            self.crossed,
            self.captured,
            self.released,
            self.outcomes,
            tuple(sorted(self.ends.items())),
            self.lost,
            self.to_arrive,
            self.faults,
            self.begun,
            round(self.target_ends_at - now, 6),
        )

    # steps

    def steps(self) -> Iterator[tuple[str, Callable[[Model], None]]]:
        """Everything that can happen next, faults included."""
        if not self.begun:
            yield "begin", Model.begin
            return
        quiet = True
        for who in ("S", "T"):
            if self.frames[who]:
                quiet = False
                yield f"deliver {self.frames[who][0][0]} of {who}", lambda m, w=who: m.deliver_frame(w)
            if who in self.calls:
                quiet = False
                if self.calls[who][0] == "answer":
                    yield f"answer {who}", lambda m, w=who: m.answer(w)
                else:
                    yield f"store carries out {who}", lambda m, w=who: m.carry_out(w)
        for index in range(len(self.late)):
            yield "late write", lambda m, i=index: m.carry_out_late(i)
        if self.link is None and not any(f[0] == "lost" for who in ("S", "T") for f in self.frames[who]):
            quiet = False
            yield "reconnect", Model.reconnect
        for record in self.to_arrive:
            yield f"arrive {record}", lambda m, r=record: m.arrive(r)
        if self.faults:
            yield from self.fault_steps()
        for who, machine in self.machines.items():
            if machine.deadline is not None and (quiet or self.faults):
                cost = 0 if quiet else 1
                yield f"time for {who}", lambda m, w=who, c=cost: m.pass_time(w, c)

    def fault_steps(self) -> Iterator[tuple[str, Callable[[Model], None]]]:
        if self.link is not None:
            for keep_s in range(len(self.frames["S"]) + 1):
                for keep_t in range(len(self.frames["T"]) + 1):
                    yield f"cut {keep_s} {keep_t}", lambda m, a=keep_s, b=keep_t: m.cut(a, b)
        if not self.cancelled:
            yield "cancel", Model.cancel
        for who, (kind, _) in self.calls.items():
            if kind in ("write owner", "fence", "mark lost"):
                for fate in ("applied", "never", "late"):
                    yield f"unknown {kind} {fate}", lambda m, w=who, f=fate: m.lose_answer(w, f)
            elif kind == "read":
                yield "read fails", lambda m, w=who: m.fail_read(w)

    def begin(self) -> None:
        self.begun = True
        self.tell("S", ev.RelocationStarted(1))

    def arrive(self, record: str) -> None:
        self.to_arrive = tuple(each for each in self.to_arrive if each != record)
        self.take("T" if record.startswith("direct") else "S", record, None)

    def cancel(self) -> None:
        self.faults -= 1
        self.cancelled = True
        if not isinstance(self.machines["S"].state, SourceClosed | SourceRestored):
            self.tell("S", ev.CancelRequested())

    def pass_time(self, who: str, cost: int) -> None:
        self.faults -= cost
        deadline = self.machines[who].deadline
        assert deadline is not None
        self.now = max(self.now, deadline)
        self.tell(who, DeadlineReached())

    def cut(self, keep_s: int, keep_t: int) -> None:
        self.faults -= 1
        for who, keep in (("S", keep_s), ("T", keep_t)):
            gone = self.frames[who][keep:]
            self.lost |= {frame[1] for frame in gone if frame[0] in ("relay", "follow")}
            self.frames[who] = (*self.frames[who][:keep], ("lost", self.link))
        self.link = None

    def reconnect(self) -> None:
        self.links += 1
        self.link = self.links
        self.tell("S", ev.LinkRestored(self.link))
        for who in ("S", "T"):
            waiting, self.outbox[who] = self.outbox[who], ()
            for record in waiting:
                self.send(who, ("follow", record))

    def deliver_frame(self, who: str) -> None:
        frame, *rest = self.frames[who]
        self.frames[who] = tuple(rest)
        kind = frame[0]
        to = "T" if who == "S" else "S"
        if kind == "lost":
            if not isinstance(self.machines[to].state, Announced):
                self.tell(to, self.lost_link(frame[1]) if to == "S" else ev.LinkLost(frame[1]))
        elif kind == "follow":
            self.lost -= {frame[1]}
            self.take(to, frame[1], who)
        elif to == "T":
            self.deliver_to_target(frame)
        elif kind == "ready":
            self.tell("S", ev.RelayReadyReceived(frame[1]))
        else:
            self.tell("S", ev.RelocationFailedReceived(frame[1], frame[2]))

    def deliver_to_target(self, frame: tuple[Any, ...]) -> None:
        kind = frame[0]
        if isinstance(self.machines["T"].state, Announced) and kind != "restore":
            return
        if kind == "restore":
            machine = self.machines["T"]
            if isinstance(machine.state, Announced):
                plan = TargetPlan(IDENTITY, b"sx", B, self.now + frame[1])
                self.machines["T"] = TargetHandoff(plan, zlib.crc32, frozen, OPTIONS)
            self.tell("T", ev.RestoreRequested(MANIFEST, frame[2]))
        elif kind == "chunk":
            self.tell("T", ev.ChunkArrived(0, b"data", frame[1]))
        elif kind == "relay" and isinstance(self.machines["T"].state, TargetForgotten):
            self.lost |= {frame[1]}  # on its way for longer than the identity is remembered
        elif kind == "relay":
            self.lost -= {frame[1]}
            self.tell("T", ev.RelayArrived(frame[1], frame[2]))
        elif kind == "cutover":
            self.tell("T", ev.CutoverArrived(frame[1], frame[2], frame[3]))
        else:
            self.tell("T", ev.WithdrawnReceived())

    def relayed(self) -> int:
        batch = getattr(self.machines["S"].state, "batch", None)
        return 0 if batch is None else len(batch.records)

    def lost_link(self, connection: int) -> ev.LinkLost:
        """What the source still sent before it noticed was never handed to the connection."""
        unsent, self.unsent = self.unsent, ()
        left = sum(1 for frame in unsent if frame[0] == "relay")
        back = tuple(frame[1] for frame in unsent if frame[0] == "follow")
        if isinstance(self.machines["S"].state, SourceClosed | SourceRestored):
            for record in back:
                self.end(record, "failed")
        return ev.LinkLost(connection, self.relayed() - left, back)

    def send(self, who: str, frame: tuple[Any, ...]) -> None:
        if self.link is not None:
            self.frames[who] = (*self.frames[who], frame)
        elif who == "S" and any(each[0] == "lost" for each in self.frames["T"]):
            self.unsent = (*self.unsent, frame)
        elif frame[0] == "follow":
            self.outbox[who] = (*self.outbox[who], frame[1])

    # the store

    def call(self, who: str, kind: str, argument: Any = None) -> None:
        if who in self.calls:
            raise Violation(f"{who} has two store calls under way")
        self.calls[who] = (kind, argument)

    def carry_out(self, who: str) -> None:
        kind, argument = self.calls[who]
        if kind == "read":
            self.calls[who] = ("answer", ev.RowRead(self.row))
        else:
            self.calls[who] = ("answer", ANSWERS[kind][0 if self.write(kind, argument) else 1])

    def write(self, kind: str, version: str) -> bool:
        if self.row.version != version:
            return False
        old = self.row
        self.version += 1
        if kind == "write owner":
            self.row = old._replace(owner=B, owner_generation=old.owner_generation + 1, relocation_id=(0, 1))
        elif kind == "fence":
            self.row = old._replace(relocation_id=(0, 1), fenced=True)
        else:
            self.row = old._replace(lost=True)
        self.row = self.row._replace(version=f"v{self.version}")
        return True

    def answer(self, who: str) -> None:
        _, event = self.calls.pop(who)
        self.tell(who, event)

    def lose_answer(self, who: str, fate: str) -> None:
        self.faults -= 1
        kind, argument = self.calls[who]
        if fate == "applied":
            self.write(kind, argument)
        elif fate == "late":
            self.late = (*self.late, (kind, argument))
        self.calls[who] = ("answer", ANSWERS[kind][2])

    def fail_read(self, who: str) -> None:
        self.faults -= 1
        self.calls[who] = ("answer", ev.RowReadFailed())

    def carry_out_late(self, index: int) -> None:
        kind, argument = self.late[index]
        self.late = self.late[:index] + self.late[index + 1 :]
        self.write(kind, argument)

    # records

    def take(self, who: str, record: str, sender: str | None) -> None:
        """A record is at a node: to the object, the staging, the handoff, the follow route, or its end."""
        if self.open[who]:
            self.handle(who, record)
        elif who == "T" and self.staged:
            self.tell("T", ev.DirectArrived(record) if sender is None else ev.FollowArrived(record, 1))
        elif who == "S" and self.sealed and not self.installed["S"]:
            self.tell("S", ev.RecordArrived(record))
        elif self.installed[who] or (who == "T" and sender is None):
            self.hops[record] = self.hops.get(record, 0) + 1
            if self.hops[record] > 8:
                self.end(record, "failed")
            else:
                self.send(who, ("follow", record))
        else:
            self.end(record, "failed")

    def handle(self, who: str, record: str) -> None:
        if self.row.owner != (A if who == "S" else B):
            raise Violation(f"{who} runs {record} while the row names {self.row.owner}: two owners")
        self.end(record, f"handled at {who}")

    def end(self, record: str, how: str) -> None:
        if record in self.ends:
            raise Violation(f"{record} is {how} after it was {self.ends[record]}")
        self.ends[record] = how

    # machines

    def tell(self, who: str, event: Event) -> None:
        waiting = deque((event,))
        while waiting:
            for effect in self.machines[who].handle(waiting.popleft(), self.now):
                answer = self.carry_effect(who, effect)
                if answer is not None:
                    waiting.append(answer)

    def carry_effect(self, who: str, effect: Effect) -> Event | None:
        if isinstance(effect, Log | fx.SendChunks | fx.EndDispatch | fx.StoreChunk | fx.CompareChunk):
            if isinstance(effect, fx.SendChunks):
                self.send("S", ("chunk", effect.connection))
            return None
        return (self.source_effect if who == "S" else self.target_effect)(effect)

    def source_effect(self, effect: Effect) -> Event | None:
        match effect:
            case fx.SealObject():
                self.open["S"] = False
                self.sealed = True
                self.captured += 1
                return ev.ObjectCaptured(MANIFEST)
            case fx.SendRestore(connection, _, remaining):
                self.send("S", ("restore", remaining, connection))
            case fx.SendWithdrawn():
                self.send("S", ("withdrawn",))
            case fx.SendRelay(connection, records):
                for record in records:
                    self.send("S", ("relay", record, connection))
            case fx.SendCutover(connection, count, checksum):
                self.crossed = True
                self.send("S", ("cutover", count, checksum, connection))
                return None if self.unsent else ev.CutoverSubmitted(connection)
            case fx.SendFollow(_, records):
                for record in records:
                    self.send("S", ("follow", record))
            case fx.RestoreDispatch(records, captured):
                if self.crossed:
                    raise Violation("restored past the boundary")
                self.open_at("S", (*(self.saved if captured else ()), *records))
                return ev.DispatchRestored()
            case fx.ReleasePayload():
                self.released += 1
            case fx.WriteFence():
                self.call("S", "fence", "v1")
            case fx.MarkLost(version):
                self.call("S", "mark lost", version)
            case fx.ReadRow():
                self.call("S", "read")
            case fx.FailHeld(records, _):
                for record in records:
                    self.end(record, "failed")
            case fx.DeliverRecords(records):
                for record in records:
                    self.take("S", record, None)
            case fx.InstallFollowRoute():
                self.installed["S"] = True
            case fx.RemoveFollowRoute():
                self.installed["S"] = self.sealed = False
            case fx.ForgetHandoff():
                self.sealed = False
            case fx.ReportOutcome():
                self.outcomes += 1
            case fx.DropObject() | fx.FailTaken():
                pass
            case _:
                raise Violation(f"unexpected {effect}")
        return None

    def target_effect(self, effect: Effect) -> Event | None:
        match effect:
            case fx.InstallTemporaryQueue():
                self.staged = True
            case fx.ReadRow():
                self.call("T", "read")
            case fx.VerifyAssembly():
                return ev.AssemblyVerified()
            case fx.RestoreObject():
                return ev.ObjectRestored()
            case fx.SendRelayReady(connection):
                self.send("T", ("ready", connection))
            case fx.SendRelocationFailed(connection, code):
                self.send("T", ("failed", code, connection))
            case fx.WriteOwner(version, _):
                self.call("T", "write owner", version)
            case fx.OpenDispatch(relay, queue):
                if self.row.owner != B:
                    raise Violation("dispatch opens without owning")
                self.staged = False
                self.open_at("T", (*self.saved, *relay, *queue))
                return ev.DispatchOpened()
            case fx.DropTarget():
                self.drop(effect)
            case fx.InstallFollowRoute():
                self.installed["T"] = True
            case fx.RemoveFollowRoute():
                self.installed["T"] = False
            case fx.SendFollow(_, records):
                for record in records:
                    self.send("T", ("follow", record))
            case fx.DeliverRecords(records):
                for record in records:
                    self.take("T", record, None)
            case fx.FailHeld(records, _):
                for record in records:
                    self.end(record, "failed")
            case fx.ForgetHandoff():
                pass
            case _:
                raise Violation(f"unexpected {effect}")
        return None

    @property
    def target_ends_at(self) -> float:
        target = self.machines["T"]
        assert isinstance(target, TargetHandoff)
        return target.plan.ends_at

    def drop(self, effect: fx.DropTarget) -> None:
        mine = self.row.owner == B and not self.row.lost
        if mine and self.now < self.target_ends_at:
            raise Violation(f"the target drops what it owns: {effect.reason}")
        self.staged = False
        self.calls.pop("T", None) if self.calls.get("T", ("",))[0] == "read" else None
        for record in effect.direct:
            if effect.disposal is DirectDisposal.FOLLOW_TO_SOURCE:
                self.send("T", ("follow", record))
            else:
                self.end(record, "failed")
        if effect.end_work:
            for record in (*self.saved, *effect.relay):
                self.end(record, "failed")

    def open_at(self, who: str, records: tuple[str, ...]) -> None:
        other = "T" if who == "S" else "S"
        if self.open[other]:
            raise Violation(f"{who} opens while {other} runs")
        self.open[who] = True
        for record in records:
            self.handle(who, record)

    def check_end(self) -> None:
        """Nothing can happen any more."""
        source, target = (self.machines[who].state for who in ("S", "T"))
        if not isinstance(source, SourceClosed | SourceRestored):
            raise Violation(f"the source is stuck in {source}")
        if not isinstance(target, TargetForgotten | Announced):
            raise Violation(f"the target is stuck in {target}")
        if self.released != self.captured or self.outcomes != 1:
            raise Violation(f"payload released {self.released} times, {self.outcomes} outcomes")
        alive = self.open["S"] or self.open["T"]
        for record in self.hops.keys() | {"saved", *RECORDS}:
            known = record in self.ends or record in self.lost or record in self.to_arrive
            if not known and (alive or record != "saved"):
                raise Violation(f"{record} vanished")
        if not alive and not self.row.lost and self.row.owner == A:
            raise Violation("the object is gone and nobody says so")


RECORDS: tuple[str, ...] = ("late", "direct")
ANSWERS: dict[str, tuple[Event, Event, Event]] = {
    "write owner": (ev.OwnerWritten(), ev.OwnerWriteConflicted(), ev.OwnerWriteUnknown()),
    "fence": (ev.FenceApplied(), ev.FenceConflicted(), ev.FenceUnknown()),
    "mark lost": (ev.LostMarked(), ev.LostConflicted(), ev.LostUnknown()),
}
