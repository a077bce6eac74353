"""A whole cluster on virtual time: one seed, its faults, then healing, then the last judgement."""

from __future__ import annotations

from functools import partial
from itertools import count
from random import Random
from typing import Any

from sojourn.handoff.events import CancelRequested
from sojourn.handoff.machine import Log
from sojourn.handoff.path import Route, RouteLearned, SenderPath
from sojourn.handoff.relay import RelaySection
from sojourn.handoff.replies import ReplyRelay
from sojourn.handoff.source import SourceHandoff, SourcePlan
from sojourn.handoff.target import TargetHandoff, TargetPlan
from sojourn.handoff.terms import HandoffIdentity, Outcome, RowFacts
from sojourn.ids import NodeRun
from sojourn.session.contact import SessionContact
from sojourn.session.seal import SessionSeal

from tests.simulation.clock import Clock, LocalClock
from tests.simulation.driver import Driver, checksum, frozen
from tests.simulation.faults import Faults
from tests.simulation.history import LOST_ON_THE_WAY, History, Payload, Record, Violation
from tests.simulation.jobs import Permit
from tests.simulation.leases import SETTINGS
from tests.simulation.mix import Mix, draw_mix
from tests.simulation.network import Network
from tests.simulation.node import Node
from tests.simulation.objects import LocalObject
from tests.simulation.replies import Blobs
from tests.simulation.retained import StagingLane
from tests.simulation.sessions import ClientSession
from tests.simulation.source_driver import SourceDriver
from tests.simulation.store import Store
from tests.simulation.target_driver import TargetDriver

__all__ = ["World"]

STORY_LINES_MAX = 400
OVERLOAD_S = 0.5
"""A record that waits longer for credit shows overload: a marker that is followed waits so at each of its hops, and
its limit is 2 s."""
_IMPOSSIBLE = frozenset(("cutover_mismatch", "relay_before_ready", "cutover_before_ready"))
_DISTURBING = frozenset(
    ("session_unconfirmed", "cutover_timeout", "marker_timeout", "marker_lost", "marker_failed")
)


def random_part(clock: Clock) -> float:
    return clock.random.random() * 0.5


class World:
    """One run of the simulation. `play` raises `Violation` or `IllegalTransition` when a promise breaks."""

    source_class: type[SourceHandoff] = SourceHandoff
    target_class: type[TargetHandoff] = TargetHandoff
    path_class: type[SenderPath] = SenderPath
    relay_class: type[RelaySection] = RelaySection
    seal_class: type[SessionSeal] = SessionSeal
    contact_class: type[SessionContact] = SessionContact
    reply_class: type[ReplyRelay] = ReplyRelay
    lane_class: type[StagingLane] = StagingLane
    source_driver: type[SourceDriver] = SourceDriver
    target_driver: type[TargetDriver] = TargetDriver
    lease_settings = SETTINGS
    # switches of the drills, all off in a true run
    newest_identity_wins = False
    divert_at_commit = False
    seal_with_marker_out = False
    answer_staged = True
    sweeps = True
    straight_follow = False
    old_handoffs_install = False
    takes_note_of_markers = True
    ignores_admission = False
    takes_over_blindly = False
    suspects_unreachable = False
    late_replies_count = False
    whole_backlog = False
    forgets_queued = False
    blind_leases = False
    rechecks = True
    deadline_from_answer = False
    writes_unadmitted = False
    forgets_replies = False
    keeps_credit = False
    shares_follow_frames = False
    forgets_later_owner = False
    acknowledges_unknown = True
    acknowledges_any = False
    drops_stored = False
    never_looks = False
    flush_keeps = False
    credit_when_full = False
    moves_when_full = False

    def __init__(self, seed: int, mix: Mix | None = None, *, tell: bool = False) -> None:
        self.clock = Clock(seed)
        self.mix = mix or draw_mix(Random(seed ^ 0x5EED))
        self.history = History()
        self.history.ends_taken = bool(self.mix.kept_replies)
        self.store = Store(self.clock, self.mix.store)
        self.blobs = Blobs(self.store, self.mix.reply_retention_s)
        self.store.on_lost = self.lost
        self.store.on_taken_over = self.history.taken_over
        self.network = Network(self.clock, self.mix.link_delay_s, self.mix.hand_delay_s, self.mix.credit)
        self.network.corrupt = self.mix.corrupt
        self.nodes: list[Node] = []
        self.dead: set[NodeRun] = set()
        self.payloads: dict[HandoffIdentity, Payload] = {}
        self.crossings: set[HandoffIdentity] = set()
        self._fallbacks: set[Any] = set()
        """Relocation ids of targets whose cutover wait was over."""
        self.handoffs = 0
        self._numbers = count(1)
        self._operations = count(1)
        self._sequences: dict[tuple[int, bytes], int] = {}
        self._told: list[tuple[float, NodeRun, bytes, object]] | None = [] if tell else None
        self.telling = tell
        mix = self.mix
        faults = mix.store
        self.store_trouble = bool(faults.unavailable or faults.lost_before or faults.lost_after)
        self.calm = not (
            self.store_trouble
            or mix.cuts
            or mix.stalls
            or mix.pauses
            or mix.kills
            or mix.store_outages
            or mix.lease_cuts
            or mix.conflicts
            or mix.cancels
            or mix.capture_fails
            or mix.restore_fails
            or mix.corrupt
            or mix.long_turns
        )
        self.steady = not (
            self.store_trouble
            or faults.slow
            or mix.cuts
            or mix.stalls
            or mix.pauses
            or mix.kills
            or mix.store_outages
            or mix.lease_cuts
            or mix.corrupt
            or mix.conflicts
            or mix.long_turns
        )
        """Moves may fail, but nothing holds anybody up: every request is answered in time."""
        self.chaos = True
        self.sessions: dict[bytes, ClientSession] = {}
        self.aborted: dict[tuple[int, int], float] = {}
        """When a source gave the seal of a relocation back."""
        self.keys = [b"s%d" % number for number in range(self.mix.keys)]
        self._units: dict[bytes, bytes] = {}
        if self.mix.members:
            letters = (b"a", b"b", b"c")[: self.mix.members]
            self.store.members = {key: tuple(key + letter for letter in letters) for key in self.keys}
            self._units = {member: key for key, unit in self.store.members.items() for member in unit}
        self.participants = [*self.keys, *self._units]

    # the run

    def play(self) -> History:
        mix, clock = self.mix, self.clock
        self.nodes = [Node(self, NodeRun(b"n%d" % number, 1)) for number in range(mix.nodes)]
        for node in self.nodes:
            node.lease.start_held()
        for index, node in enumerate(self.nodes):
            clock.after(random_part(clock), node.step, node.watch)
            for other in self.nodes[:index]:
                self.network.connect(node, other)
        for key in self.keys:
            self._create(key)
        for number, key in enumerate(self.keys[: mix.sessions]):
            self._bind(number, key)
        for sender in range(mix.nodes):
            self._send_later(sender)
        for key in self.keys:
            self._move_later(key)
        Faults(self).start()
        clock.run_until(mix.chaos_s)
        self._heal()
        clock.run_until(clock.now + 2.0)
        self.senders_stop = True
        clock.run_until(clock.now + 60.0)
        self._probe()
        return self.history

    senders_stop = False

    def _create(self, key: bytes) -> None:
        node = self.clock.random.choice(self.nodes)
        row = self.store.create(key, node.run)
        item = LocalObject(node, key, row.object_generation, {}, ())
        for each in item.keys:
            node.objects[each] = item
            node.path(each).deliver(RouteLearned(Route(node.run, row.object_generation, 1)))
        item.open()

    def _bind(self, number: int, key: bytes) -> None:
        """A client somewhere is bound to the object: its row says so until it is made anew (B6.3)."""
        row = self.store.rows[key] = self.store.rows[key]._replace(bound=True)
        session = ClientSession(self.clock.random.choice(self.nodes), key, number, row)
        self.sessions[key] = session
        session.send_later()

    # senders

    def _send_later(self, sender: int) -> None:
        self.clock.after(self.clock.random.expovariate(1.0 / self.mix.send_every_s), self._send_from, sender)

    def _send_from(self, sender: int) -> None:
        if self.senders_stop:
            return
        node = self.nodes[sender]
        node.step(self.send, node, sender, self.clock.random.choice(self.participants))
        self._send_later(sender)

    def send(self, node: Node, sender: int, key: bytes) -> Record:
        sequence = self._sequences.get((sender, key), 0)
        self._sequences[sender, key] = sequence + 1
        record = Record(next(self._operations), node.run, key, sender, sequence, self.clock.now)
        record.unit = self.unit_of(key)
        record.request = self.clock.random.random() < self.mix.requests
        self.history.accepted(record)
        if record.request:
            node.requests.made(record)
        node.submit(record)
        return record

    # moves

    def _move_later(self, key: bytes) -> None:
        self.clock.after(
            self.clock.random.expovariate(1.0 / self.mix.move_every_s), self._move_and_repeat, key
        )

    def _move_and_repeat(self, key: bytes) -> None:
        if self.chaos:
            self.move(key)
            self._move_later(key)

    def move(self, key: bytes) -> None:
        """Move the object from wherever it runs to some other node."""
        for node in self.nodes:
            item = node.objects.get(key)
            if node.alive and item is not None and item.status == "open":
                node.step(self._begin_move, node, item)
                return

    def _begin_move(self, node: Node, item: LocalObject) -> None:
        targets = [other for other in self.nodes if other is not node and other.run in node.links]
        if targets:
            target = self.clock.random.choice(targets)
            reply = partial(node.step, self._row_for_move, node, item, target)
            self.store.read(item.key, reply)

    def _row_for_move(
        self, node: Node, item: LocalObject, target: Node, known: bool, row: RowFacts | None
    ) -> None:
        key = item.key
        if not known or row is None or row.owner != node.run or row.lost:
            return
        if node.objects.get(key) is not item or item.status != "open" or target.run not in node.links:
            return
        if row.object_generation != item.generation or key in node.sealing:
            return
        markers = any(node.path(each).machine.marker_out for each in item.keys)
        if markers and not self.seal_with_marker_out:
            return
        if node.retained.over and not self.moves_when_full:  # it is asked for again later (B5.3)
            self.history.counts["moves without room"] += 1
            return
        random = self.clock.random
        if random.random() < self.mix.burst:
            for sender, other in enumerate(self.nodes):
                for _ in range(random.randint(0, 3)):
                    each = key if len(item.keys) == 1 else random.choice(item.keys)
                    self.clock.after(random.random() * 0.02, other.step, self.send, other, sender, each)
        gives_up_at = node.local.now() + random.uniform(*self.mix.gives_up_s)
        driver = self.source_driver(node, target, item, row, gives_up_at)
        self.handoffs += 1
        driver.start(node.links[target.run].number)
        if self.chance(self.mix.cancels):
            delay = random.random() * random.choice((0.005, 0.05, 1.0))
            self.clock.after(delay, node.step, self._cancel, driver)

    def _cancel(self, driver: SourceDriver) -> None:
        if driver.begun:
            driver.deliver(CancelRequested())

    def reconnect(self, first: Node, second: Node) -> None:
        """A new connection, once both ends have noticed the loss of the old one (B8.13)."""
        if not (first.alive and second.alive) or first not in self.nodes or second not in self.nodes:
            return
        if second.run in first.links or first.run in second.links:
            self.clock.after(0.05, self.reconnect, first, second)
        else:
            self.network.connect(first, second)

    def _heal(self) -> None:
        self.chaos = False
        self.history.disturb(self.clock.now)
        self.store.down = False
        self.store.faults = self.store.faults._replace(unavailable=0, lost_before=0, lost_after=0, slow=0)
        self.network.corrupt = 0.0
        for node in self.nodes:
            node.lease.cut_until = 0.0
        for node in self.nodes:
            if node.paused:
                node.resume()

    def _probe(self) -> None:
        """Whatever happened, every object answers every node again."""
        self._check_settled()
        for attempt in range(2):
            probes = [
                self.send(node, index, key)
                for key in self.participants
                for index, node in enumerate(self.nodes)
            ]
            self.clock.run_until(self.clock.now + 10.0)
            if attempt == 1:
                for probe in probes:
                    if probe.fate != "handled":
                        raise Violation(f"after healing {probe} ended as {probe.fate}")
        self.history.finish(self.dead)
        self._check_calm()

    def _check_calm(self) -> None:
        """Without a fault nothing fails. A marker goes behind the records that wait for credit (B9.4), so that its
        limit may pass on connections that are asked for more than they take."""
        counts = self.history.counts
        disturbing = set(_DISTURBING)
        if self.network.waited_max_s > OVERLOAD_S:
            disturbing.remove("marker_timeout")
        markers = sum(counts["log: " + name] for name in disturbing)
        if self.calm and (markers or counts["failed"] or counts["outcome: failed"]):
            raise Violation("something failed although there was no fault")

    def _check_settled(self) -> None:
        self.blobs.check_settled(self.dead)
        for session in self.sessions.values():
            if session.node.alive and session.node in self.nodes:
                session.check_settled()
        for node in self.nodes:
            if not node.alive:
                raise Violation(f"{node.run} never came back")
            pool = node.pool
            if pool.in_use or pool.waiting:
                raise Violation(f"{node.run}: {pool.in_use} permits are out, {len(pool.waiting)} wait")
            if node.replies.kept:
                raise Violation(f"{node.run} still keeps {len(node.replies.kept)} replies")
            staging = node.staging
            if staging.in_use or staging.waiting:
                raise Violation(f"{node.run}: {staging.in_use} staging permits are out")
            for driver in (*node.handoffs.values(), *node.targets.values()):
                raise Violation(
                    f"{node.run}: {type(driver.machine).__name__} is still {driver.machine.state}"
                )
            if node.retained.octets:
                raise Violation(f"{node.run} still keeps {node.retained.octets} octets")
            for key, path in node.paths.items():
                if path.machine.marker_out:
                    raise Violation(f"{node.run}: a marker for {key.decode()} is still out")

    # what drivers ask

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.clock.random.random() < probability

    def local_clock(self, offset_s: float) -> LocalClock:
        """The clock of a new run, by which all its machines live."""
        if not self.mix.drift:
            return LocalClock(self.clock)
        rate = 1.0 + self.clock.random.uniform(-self.mix.drift, self.mix.drift)
        return LocalClock(self.clock, offset_s, rate)

    def random_bytes(self) -> bytes:
        return self.clock.random.randbytes(self.clock.random.randint(1, 14))

    def next_number(self) -> int:
        return next(self._numbers)

    def unit_of(self, key: bytes) -> bytes:
        """The key of the unit's own row for any of its participants."""
        return self._units.get(key, key)

    def permits_for_backlog(self, item: LocalObject) -> int:
        """One for each turn, never the whole backlog's (R4.6.3)."""
        return item.backlog if self.whole_backlog else 1

    def staging_done(self, permit: Permit) -> None:
        """A relayed record was handed to its staging."""
        permit.give_back()

    def turn_started(self, item: LocalObject, record: Record) -> None:
        store, run = self.store, item.node.run
        row = store.rows.get(record.key)
        self.history.turn_started(record, run, None if row is None else row.owner, store.leased(run))

    def new_source(self, plan: SourcePlan) -> SourceHandoff:
        return self.source_class(plan, checksum, frozen, self.mix.options)

    def source_plan(
        self, identity: HandoffIdentity, target: NodeRun, row: RowFacts, gives_up_at: float
    ) -> SourcePlan:
        generations = row.object_generation, row.owner_generation
        sessions = 1 if row.bound else 0
        return SourcePlan(identity, target, *generations, gives_up_at, sessions, others=row.others)

    def new_target(
        self, identity: HandoffIdentity, key: bytes, run: NodeRun, ends_at: float
    ) -> TargetHandoff:
        target = self.target_class(
            TargetPlan(identity, key, run, ends_at), checksum, frozen, self.mix.options
        )
        if self.relay_class is not RelaySection:
            target._new_relay = lambda: self.relay_class(checksum, frozen)  # type: ignore[method-assign]
        return target

    def new_path(self) -> SenderPath:
        return self.path_class(self.next_number, path_kept_s=self.mix.options.follow_duration_s)

    def new_incarnation(self, run: NodeRun) -> RowFacts:
        self.store.object_generations += 1
        return RowFacts("", run, self.store.object_generations, 1)

    def reborn(self, key: bytes) -> None:
        self.history.counts["reborn"] += 1

    # what drivers tell

    def trace(self, node: Node, key: bytes, what: object) -> None:
        if self._told is not None:
            self._told.append((self.clock.now, node.run, key, what))

    def logged(self, node: Node, key: bytes, log: Log) -> None:
        self.history.counts["log: " + log.name] += 1
        if log.name == "cutover_timeout":
            self._fallbacks.add(log.fields["relocation_id"])
        if log.name in _IMPOSSIBLE or self._too_early(log):
            raise Violation(f"{node.run}: {log.name} {dict(log.fields)}")
        if log.name in _DISTURBING:
            unit = self.unit_of(key)
            for each in (unit, *self.store.members.get(unit, ())):
                self.history.disturb(self.clock.now, each)

    def _too_early(self, log: Log) -> bool:
        """A request with another checksum follows the first on its connection: only a target that waited in vain for
        the cutover, because it or the connection stood still, can have issued its write before it reads it."""
        return log.name == "late_conflict" and log.fields["relocation_id"] not in self._fallbacks

    def crossed(self, source: SourceDriver) -> None:
        self.crossings.add(source.identity)
        permits = () if source.payload is None or source.ended_dispatch else source.payload.permits
        if any(permit.returned for permit in permits):
            raise Violation("permits of captured records went back before the cutover")

    def restored(self, source: SourceDriver) -> None:
        if source.identity in self.crossings:
            raise Violation(f"{source.node.run} restores {source.key.decode()} past the boundary")
        self._check_alone(source)

    def dropped(self, target: TargetDriver, reason: str) -> None:
        """A target may not drop what it owns, unless its time is over (R4.5.3)."""
        row = self.store.rows[target.key]
        mine = row.owner == target.node.run and row.relocation_id == target.identity.relocation_id
        if mine and not row.lost and not row.fenced and target.node.local.now() < target.ends_at:
            raise Violation(f"{target.node.run} drops {target.key.decode()}, which it owns: {reason}")

    def lost(self, key: bytes) -> None:
        """An object may get lost only by a death, or because the store or the links held a move up."""
        self.history.counts["lost"] += 1
        if not (
            self.mix.kills
            or self.mix.lease_cuts
            or self.mix.cuts
            or self.mix.pauses
            or self.mix.store_outages
            or self.store_trouble
        ):
            raise Violation(f"{key.decode()} was lost without a fault that could explain it")

    def opened(self, target: TargetDriver) -> None:
        row = self.store.rows[target.key]
        if target.node.admits() and (
            row.owner != target.node.run or row.relocation_id != target.identity.relocation_id
        ):
            raise Violation(f"{target.node.run} opens {target.key.decode()} while the store says {row}")
        self._check_alone(target)

    def _check_alone(self, driver: Driver) -> None:
        if not driver.node.admits():
            return  # nothing runs before its row was read again
        for node in self.nodes:
            item = node.objects.get(driver.key)
            if (
                node is not driver.node
                and node.alive
                and self.store.leased(node.run)
                and node.admits()
                and item is not None
                and item.status in ("open", "sealing")
            ):
                raise Violation(
                    f"{driver.key.decode()} opens at {driver.node.run} while it runs at {node.run}"
                )

    def reported(self, source: SourceDriver, outcome: Outcome) -> None:
        self.history.counts[f"outcome: {outcome.value}"] += 1
        row = self.store.rows[source.key]
        if (
            outcome is Outcome.MOVED
            and row.owner == source.node.run
            and row.version == source.identity.expected_version
        ):
            raise Violation("a move was reported that did not happen")
        moved = row.object_generation == source.item.generation and not row.lost
        if outcome is Outcome.FAILED and moved and row.owner_generation > source.owner_generation:
            raise Violation("a move was reported as failed that happened")

    def source_forgotten(self, source: SourceDriver) -> None:
        if source.postponed:  # the coordinator goes on by itself, at the turn's end (B8.12)
            self.clock.after(0.0, source.node.step, self._begin_move, source.node, source.item)
        if source.outcomes != 1:
            raise Violation(f"a move ended with {source.outcomes} outcomes")
        if source.permits:
            raise Violation("a handoff ended with permits in its hands")
        if self.mix.move_every_s and self.chaos and self.chance(self.mix.chain):
            self.clock.after(0.0, self.move, source.key)

    def frames_lost(self, frames: list[tuple[Any, ...]]) -> None:
        for frame in frames:
            if frame[0] == "reply":
                if not frame[1].kept:
                    frame[1].reply_excuse = LOST_ON_THE_WAY
            elif frame[0] == "record":
                self.history.excuse((frame[1],), LOST_ON_THE_WAY)
            elif frame[0] == "relay":
                self.history.excuse((frame[2],), LOST_ON_THE_WAY)

    def story(self, about: str = "") -> str:
        """The last lines, or the last of those that contain `about` (a record's number, a key, a run)."""
        lines = (f"{at:10.5f} {run} {key.decode():4} {what}" for at, run, key, what in self._told or ())
        return "\n".join([line for line in lines if about in line][-STORY_LINES_MAX:])
