"""What the effects of both machines do in the explored world: the part of the two drivers."""

from __future__ import annotations

import zlib
from collections import deque

from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff.machine import Effect, Event, Log
from sojourn.handoff.source_states import SourceClosed, SourceRestored
from sojourn.handoff.target import TargetHandoff, TargetPlan
from sojourn.handoff.target_states import Announced, TargetForgotten
from sojourn.handoff.terms import DirectDisposal, HandoffIdentity, HandoffOptions, Manifest, Outcome

from tests.simulation.explored_link import Frame, Link, peer_of
from tests.simulation.explored_states import clone_machine
from tests.simulation.explored_store import KEYS, RELOCATION, A, B, run_of
from tests.simulation.history import Violation

__all__ = ["IDENTITY", "MANIFEST", "OPTIONS", "Effects", "frozen", "participant"]

IDENTITY = HandoffIdentity(RELOCATION, 1, "owner", 1, A, "0v1")
OPTIONS = HandoffOptions(
    commit_reserve_s=3.0, follow_duration_s=3.0, ended_memory_s=3.0, sweep_s=2.0, retry_first_s=0.25
)
MANIFEST = Manifest(4, 1, 0)
NOTHING = (Log, fx.EndDispatch, fx.StoreChunk, fx.CompareChunk, fx.DropObject, fx.ForgetWork)


def frozen(record: str) -> bytes:
    return record.encode()


def participant(record: str) -> int:
    """Which participant of the unit a record is for."""
    return int(record[-1])


class Effects(Link):
    """Carries effects out and gives each machine its events."""

    now: float
    owned: frozenset[str]
    """Machines that only this model has; others are copied before they take an event."""
    work: dict[str, str]
    """What a node's worker is busy with: "capture" or "restore here" at the source, "restore" at the target."""
    worker_gone: bool
    """The source's worker ended after it had captured the object; the payload is in the supervisor."""
    reopening: tuple[str, ...] | None
    """The source has the object back and opens it with this, as soon as it stands in a worker again."""
    rebuilding: bool
    """The target's worker ended after relay-ready: the object is restored into another one (B6.6)."""
    rebuilt_in_vain: bool
    opening: tuple[str, ...] | None
    """The target owns the object and opens it with this, as soon as it stands in a worker again."""
    staged: frozenset[int]
    """Participants whose records are the temporary queue's."""
    installed: dict[str, bool]
    sealed: bool
    crossed: bool
    captured: int
    released: int
    outcomes: int
    ends: dict[str, str]
    records: tuple[str, ...]
    saved: tuple[str, ...]
    hops: dict[str, int]
    target_class: type[TargetHandoff]

    # machines

    def tell(self, who: str, event: Event) -> None:
        waiting = deque((event,))
        while waiting:
            if who not in self.owned:
                self.machines[who] = clone_machine(self.machines[who])
                self.owned |= {who}
            machine = self.machines[who]
            machine.__dict__.pop("_picture", None)
            for effect in machine.handle(waiting.popleft(), self.now):
                answer = None
                if not isinstance(effect, NOTHING):
                    answer = (self.source_effect if who == "S" else self.target_effect)(effect)
                if answer is not None:
                    waiting.append(answer)

    def source_effect(self, effect: Effect) -> Event | None:
        match effect:
            case fx.SealObject():
                self.open["S"] = False
                self.sealed = True
                self.work["S"] = "capture"
            case fx.SendRestore(connection, _, remaining):
                self.send("S", "restore", connection, remaining)
            case fx.SendChunks(connection):
                self.send("S", "chunk", connection)
            case fx.SendWithdrawn(connection):
                self.send("S", "withdrawn", connection)
            case fx.SendRelay(connection, records):
                for record in records:
                    self.send("S", "relay", connection, record)
            case fx.SendCutover(connection, count, checksum):
                self.crossed = True
                self.send("S", "cutover", connection, count, checksum)
                taken = self.link == connection  # else its end tells how much of it was handed over
                return ev.CutoverSubmitted(connection) if taken else None
            case fx.RestoreDispatch(records, _):
                if self.crossed:
                    raise Violation("restored past the boundary")
                return self.open_source((*self.saved, *records))
            case fx.ReleasePayload():
                self.released += 1
            case fx.WriteFence(others):
                self.call("S", "fence", IDENTITY.expected_version, others)
            case fx.MarkLost(version, others):
                self.call("S", "mark lost", version, others)
            case fx.FailTaken(_, applied, sends):
                if sends or applied == "unknown":
                    self.end_saved("S", applied)
            case fx.RemoveFollowRoute():
                self.installed["S"] = self.sealed = False
            case fx.ForgetHandoff():
                self.sealed = False
            case fx.ReportOutcome(outcome):
                self.outcomes += 1
                if outcome is not Outcome.IN_DOUBT and (outcome is Outcome.MOVED) != (
                    self.rows[0].owner == B
                ):
                    raise Violation(f"the caller is told {outcome}, and the row names {self.rows[0].owner}")
            case _:
                self.common_effect("S", effect)
        return None

    def target_effect(self, effect: Effect) -> Event | None:
        match effect:
            case fx.InstallTemporaryQueue():
                self.staged = frozenset((0,))
            case fx.StageParticipants(keys):
                self.staged |= {KEYS.index(key) for key in keys}
            case fx.VerifyAssembly():
                return ev.AssemblyVerified()
            case fx.RestoreObject():
                self.work["T"] = "restore"
            case fx.SendRelayReady(connection):
                self.send("T", "ready", connection)
            case fx.SendRelocationFailed(connection, code):
                self.send("T", "failed", connection, code)
            case fx.WriteOwner(version, _, others):
                self.call("T", "write owner", version, others)
            case fx.OpenDispatch(relay, queue):
                return self.open_target((*self.saved, *relay, *queue))
            case fx.DropTarget():
                self.drop(effect)
            case fx.ReadRow():
                call = self.calls.pop("T", None)  # of an attempt that was dropped before its answer came
                if call is not None and call.answer is None and call.kind != "read":
                    self.late = (*self.late, call)
                self.call("T", "read")
            case fx.MarkLost(version, others):
                self.call("T", "mark lost", version, others)
            case fx.EndWork(_, applied):
                self.end_saved("T", applied)
            case fx.RemoveFollowRoute():
                self.installed["T"] = False
            case fx.ForgetHandoff():
                self.echoes = tuple(each for each in self.echoes if each[0] == "T")
                self.cut_off = tuple(each for each in self.cut_off if each[0] == "T")
            case _:
                self.common_effect("T", effect)
        return None

    def common_effect(self, who: str, effect: Effect) -> None:
        match effect:
            case fx.ReadRow():
                self.call(who, "read")
            case fx.SendFollow(_, records):
                for record in records:
                    self.send(who, "follow", 0, record)
            case fx.DeliverRecords(records):
                for record in records:
                    self.take(who, record, None)
            case fx.FailHeld(records, _):
                for record in records:
                    self.end(record, "failed")
            case fx.InstallFollowRoute():
                self.installed[who] = True
            case _:
                raise Violation(f"unexpected {effect}")

    # opening and dropping

    def open_source(self, records: tuple[str, ...]) -> Event | None:
        """The object goes on: in its worker, or in another one first, if that has ended (B6.6)."""
        if self.worker_gone:
            self.reopening = records
            self.work["S"] = "restore here"
            return None
        self.open_at("S", records)
        return ev.DispatchRestored()

    def lose_at_source(self) -> Event:
        """It cannot be built again here either: everything ends, all rows are marked lost."""
        for record in self.reopening or ():
            self.end(record, "failed")
        self.reopening = None
        self.apply("mark lost", list(range(len(self.rows))))
        return ev.DispatchRestoreFailed("worker gone")

    def open_target(self, records: tuple[str, ...]) -> Event | None:
        """The commit is known: open, or wait until the object stands in a worker again."""
        if any(row.owner != B for row in self.rows):
            raise Violation("dispatch opens without owning")
        self.staged = frozenset()
        self.opening = records
        if self.rebuilt_in_vain:
            return self.lose_at_target()
        return None if self.rebuilding else self.open_now()

    def open_now(self) -> Event:
        records, self.opening = self.opening or (), None
        self.open_at("T", records)
        self.send("T", "told", 0)
        return ev.DispatchOpened()

    def lose_at_target(self) -> Event:
        """It owns the object and cannot build it any more: everything ends, all rows are marked lost (B6.8)."""
        for record in self.opening or ():
            self.end(record, "failed")
        self.opening = None
        self.apply("mark lost", list(range(len(self.rows))))
        return ev.DispatchOpenFailed("worker gone")

    def open_at(self, who: str, records: tuple[str, ...]) -> None:
        other = peer_of(who)
        if self.open[other]:
            raise Violation(f"{who} opens while {other} runs")
        if any(row.lost for row in self.rows):
            raise Violation(f"{who} opens what is marked lost")
        self.open[who] = True
        for record in records:
            self.handle(who, record)

    def drop(self, effect: fx.DropTarget) -> None:
        mine = any(row.owner == B and not row.lost for row in self.rows)
        if mine and self.now < self.target_ends_at:
            raise Violation(f"the target drops what it owns: {effect.reason}")
        self.staged = frozenset()
        self.work.pop("T", None)
        self.rebuilding = False
        if "T" in self.calls and self.calls["T"].kind == "read" and not effect.keep_work:
            del self.calls["T"]
        for record in effect.direct:
            if effect.disposal is DirectDisposal.FOLLOW_TO_SOURCE:
                self.send("T", "follow", 0, record)
            else:
                self.end(record, "failed")
        if effect.end_work:
            for record in (*self.saved, *effect.relay):
                self.end(record, "failed")

    def end_saved(self, who: str, applied: str) -> None:
        """The saved work, all of it sends, ends by name, and not at both nodes: only what a node that is dead by now
        had ended is not known to the other."""
        left = {record for record in self.saved if record not in self.ends}
        if applied == "unknown":
            self.lost |= left
            return
        for record in left if peer_of(who) in self.dead else self.saved:
            self.end(record, "failed")

    @property
    def target_ends_at(self) -> float:
        return float(self.machines["T"].plan.ends_at)

    # frames

    def deliver(self, who: str, frame: Frame) -> None:
        """A frame of this node reached the other."""
        kind, connection = frame[:2]
        to = peer_of(who)
        if kind == "lost":
            if to == "S":
                self.tell("S", self.lost_link(connection))
            elif not isinstance(self.machines["T"].state, Announced):
                self.tell("T", ev.LinkLost(connection))
        elif kind == "follow":
            self.lost -= {frame[2]}
            self.take(to, frame[2], who)
        elif to == "T":
            self.deliver_to_target(kind, connection, frame)
        elif kind == "ready":
            self.tell("S", ev.RelayReadyReceived(connection))
        elif kind == "failed":
            self.tell("S", ev.RelocationFailedReceived(frame[2], connection))
        else:
            self.tell("S", ev.CommitTold())

    def deliver_to_target(self, kind: str, connection: int, frame: Frame) -> None:
        state = self.machines["T"].state
        if isinstance(state, Announced) and kind != "restore":
            return
        if isinstance(state, TargetForgotten):
            if kind == "relay":
                self.lost |= {frame[2]}  # on its way for longer than the identity is remembered
            return
        if kind == "restore":
            if isinstance(state, Announced):
                plan = TargetPlan(IDENTITY, KEYS[0], B, self.now + frame[2])
                self.machines["T"] = self.target_class(plan, zlib.crc32, frozen, OPTIONS)
                self.owned |= {"T"}
            self.tell("T", ev.RestoreRequested(MANIFEST, connection))
        elif kind == "chunk":
            self.tell("T", ev.ChunkArrived(0, b"data", connection))
        elif kind == "relay":
            self.lost -= {frame[2]}
            self.tell("T", ev.RelayArrived(frame[2], connection))
        elif kind == "cutover":
            self.tell("T", ev.CutoverArrived(frame[2], frame[3], connection))
        else:
            self.tell("T", ev.WithdrawnReceived())

    def lost_link(self, connection: int) -> ev.LinkLost:
        """What the source still sent before it noticed was never handed to the connection."""
        unsent, self.unsent = self.unsent, ()
        batch = getattr(self.machines["S"].state, "batch", None)
        left = sum(1 for frame in unsent if frame[0] == "relay")
        back = tuple(frame[2] for frame in unsent if frame[0] == "follow")
        if isinstance(self.machines["S"].state, SourceClosed | SourceRestored):
            for record in back:
                self.end(record, "failed")
        return ev.LinkLost(connection, (0 if batch is None else len(batch.records)) - left, back)

    # records

    def take(self, who: str, record: str, sender: str | None) -> None:
        """A record is at a node: to the object, the staging, the handoff, the follow route, or its end."""
        if self.open[who]:
            self.handle(who, record)
        elif who == "T" and self.opening is not None:
            self.opening = (*self.opening, record)
        elif who == "S" and self.reopening is not None:
            self.reopening = (*self.reopening, record)
        elif who == "T" and participant(record) in self.staged:
            self.tell("T", ev.DirectArrived(record) if sender is None else ev.FollowArrived(record, 1))
        elif who == "S" and self.sealed and not self.installed["S"]:
            self.tell("S", ev.RecordArrived(record))
        elif self.installed[who] or (who == "T" and sender is None):
            self.hops[record] = self.hops.get(record, 0) + 1
            if self.hops[record] > 8:
                self.end(record, "failed")
            else:
                self.send(who, "follow", 0, record)
        else:
            self.end(record, "failed")

    def handle(self, who: str, record: str) -> None:
        row = self.rows[participant(record)]
        if row.owner != run_of(who):
            raise Violation(f"{who} runs {record} while the row names {row.owner}: two owners")
        if self.unbroken and not self.doomed:
            for earlier in self.before(record):
                if earlier not in self.ends:
                    raise Violation(f"{record} is handled before {earlier}")
        self.end(record, f"handled at {who}")

    def before(self, record: str) -> list[str]:
        """What has its turn first: the saved work, and what the same sender sent to the source before (R4.6, B9.4)."""
        first = [each for each in self.saved if participant(each) == participant(record) and each != record]
        if record in self.saved or record.startswith("direct"):
            return first
        sent = self.records[: self.records.index(record)]
        same = [each for each in sent if participant(each) == participant(record)]
        return first + [each for each in same if not each.startswith("direct")]

    def end(self, record: str, how: str) -> None:
        if record in self.ends:
            raise Violation(f"{record} is {how} after it was {self.ends[record]}")
        self.ends[record] = how
