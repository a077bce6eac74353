"""The handoffs of a node: which there are, by identity and by number, and each one's news.

Frames of the contract come in here and go to the driver whose exact identity they carry, on a connection to that
very run (R3.4); so do broken links, dead workers and ended runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sojourn import mesh
from sojourn.control import short_text
from sojourn.errors import ProtocolError
from sojourn.frames import parse_record_header
from sojourn.handoff import events
from sojourn.handoff.target import TargetPlan
from sojourn.handoff.terms import FAILURE_REQUEST, HandoffIdentity, HandoffOptions, TargetFailure
from sojourn.ids import NodeRun, ObjectKey, ObjectKind
from sojourn.wire import (
    ActorIdentity,
    ActorJoinRequest,
    InstanceSpotIdentity,
    MessageFollow,
    RelocationCutover,
    RelocationData,
    RelocationFailed,
    RelocationPrepare,
    RelocationReady,
    RelocationState,
    SessionRelocationRoute,
    SessionRelocationSeal,
    SessionRelocationSealed,
    UserSpotIdentity,
    decode_command,
)
from sojourn.workers.handoff_times import HandoffTimes
from sojourn.workers.handoff_wire import HandoffWire, identity_of, manifest_of, object_key_of
from sojourn.workers.host_move import BLOCKED_REASONS
from sojourn.workers.intake import Intake
from sojourn.workers.joins import Joins
from sojourn.workers.link import Link
from sojourn.workers.local_driver import LocalDriver
from sojourn.workers.objects import LocalObject, Place
from sojourn.workers.records import is_follow
from sojourn.workers.source_driver import SourceDriver
from sojourn.workers.source_object import SourceObject
from sojourn.workers.stream import Piece
from sojourn.workers.target_driver import TargetDriver

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["Handoffs"]

_COMMAND_AT = 3
_KINDS = {
    ActorIdentity: ObjectKind.ACTOR,
    UserSpotIdentity: ObjectKind.USER_SPOT,
    InstanceSpotIdentity: ObjectKind.INSTANCE_SPOT,
}
_RELOCATION_AT = 5
"""Where the command id and the RelocationId stand in a frame (`docs/reference/wire.md`)."""


class Handoffs:
    """Every handoff of one node, as source and as target."""

    def __init__(self, node: Supervisor) -> None:
        self._node = node
        options = node.options
        self.options = HandoffOptions(
            cutover_wait_s=options.relocation_cutover_wait_ms / 1000,
            commit_reserve_s=options.relocation_commit_reserve_ms / 1000,
            seal_time_min_s=options.relocation_seal_reserve_ms / 1000,
            follow_duration_s=options.follow_duration_ms / 1000,
            ended_memory_s=options.ended_identity_keep_ms / 1000,
            session_answer_s=options.session_seal_timeout_ms / 2000,
            sealed_turn_s=options.session_seal_timeout_ms / 3000,
        )
        self.sources: dict[HandoffIdentity, SourceDriver] = {}
        self.targets: dict[HandoffIdentity, TargetDriver] = {}
        self._relays: dict[bytes, TargetDriver] = {}
        """Targets by the 16 bytes of their RelocationId."""
        self._asked: dict[bytes, SourceDriver] = {}
        """Sources likewise."""
        self._numbers: dict[int, SourceDriver | LocalDriver] = {}
        self.locals: dict[HandoffIdentity, LocalDriver] = {}
        """Moves between workers of this node (B8.7)."""
        self._next_number = 1
        self.times = HandoffTimes(node)
        self.intake = Intake(node)
        self.joins = Joins(node)

    # which there are ----------------------------------------------------------------------------

    def _add_source(self, driver: SourceDriver) -> None:
        self.sources[driver.plan.identity] = driver
        self._asked[_relocation_bytes(driver.plan.identity)] = driver
        self._numbers[driver.number] = driver

    def _add_local(self, driver: LocalDriver) -> None:
        self.locals[driver.plan.identity] = driver
        self._numbers[driver.number] = driver

    def _movers(self) -> list[SourceDriver | LocalDriver]:
        """Every handoff that takes an object out of a worker of this node."""
        return [*self.sources.values(), *self.locals.values()]

    @property
    def under_way(self) -> int:
        """How many there are, those included that only follow, or wait for the end of a resend window."""
        return len(self.sources) + len(self.locals)

    def running_object_lost(self, held: LocalObject) -> None:
        """An object ended with its worker while it still ran; a handoff of it may have begun (B8.12)."""
        for driver in self._movers():
            if driver.drives(held):
                driver.lost_while_running()

    def moves(self, held: LocalObject) -> bool:
        """Whether a handoff of the object has begun here and is not over."""
        return any(driver.drives(held) for driver in self._movers())

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number

    # frames from links --------------------------------------------------------------------------

    def contract_arrived(self, link: Link, parts: Sequence[Piece], deadline_ms: int) -> None:
        """One contract record; malformed ones end the link (ProtocolError)."""
        if len(parts) == 1 and self._recognised(link, parts[0]):
            return
        command = decode_command(parts[0], parts[1:])
        if isinstance(command, RelocationPrepare):
            self._restore_requested(link, command, deadline_ms)
        elif isinstance(command, RelocationReady | RelocationFailed):
            self._answered(link, command)
        elif isinstance(command, RelocationState | RelocationData | RelocationCutover):
            self._continued(link, command)
        elif isinstance(command, MessageFollow):
            self._node.follow_noticed(command.envelope)
        elif isinstance(command, SessionRelocationSeal | SessionRelocationSealed | SessionRelocationRoute):
            self._node.sessions.command_arrived(link, command)
        elif isinstance(command, ActorJoinRequest):
            self.joins.asked(link, command)
        else:
            raise ProtocolError(f"{type(command).__name__} is not expected on this link")

    def _recognised(self, link: Link, frame: Piece) -> bool:
        """Take a frame that begins as those of a known attempt do; False: it is to be decoded field by field."""
        relocation = bytes(frame[_RELOCATION_AT : _RELOCATION_AT + 16])
        source = self._asked.get(relocation)
        if source is not None and frame == source.frames.ready and source.plan.target == link.peer:
            source.handle(events.RelayReadyReceived(link.connection_id))
            return True
        target = self._relays.get(relocation)
        if target is None or target.plan.identity.source != link.peer:
            return False
        frames, connection = target.frames, link.connection_id
        if frame[_COMMAND_AT] == RelocationData.COMMAND:
            record = frames.record_of(bytes(frame))
            if record is not None:
                target.relay_arrived(record, link)
            return record is not None
        chunk = frames.chunk_of(frame)
        if chunk is not None:
            target.handle(events.ChunkArrived(*chunk, connection))
            return True
        cutover = frames.cutover_of(frame)
        if cutover is not None:
            target.handle(events.CutoverArrived(*cutover, connection))
        return cutover is not None

    def _answered(self, link: Link, command: RelocationReady | RelocationFailed) -> None:
        """A target's answer counts only on a connection to that target (R3.4)."""
        source = self.sources.get(identity_of(command.identity))
        if source is None or source.plan.target != link.peer:
            return
        if isinstance(command, RelocationReady):
            source.handle(events.RelayReadyReceived(link.connection_id))
        else:
            code = int(command.failure_code)
            source.handle(events.RelocationFailedReceived(code, link.connection_id, source.told))

    def _continued(self, link: Link, command: RelocationState | RelocationData | RelocationCutover) -> None:
        """What a source sends behind its Restore request counts only on a connection to that source (R3.4)."""
        identity = identity_of(command.identity)
        driver = self.targets.get(identity)
        if driver is None or identity.source != link.peer:
            return
        connection = link.connection_id
        if isinstance(command, RelocationState):
            driver.handle(events.ChunkArrived(command.chunk_ordinal, command.chunk_data, connection))
        elif isinstance(command, RelocationData):
            driver.relay_arrived(bytes(command.record), link)
        else:
            count, checksum = command.boundary_record_count, command.boundary_checksum_crc32c
            driver.handle(events.CutoverArrived(count, checksum, connection))

    # taking a move in ---------------------------------------------------------------------------

    def _restore_requested(self, link: Link, command: RelocationPrepare, deadline_ms: int) -> None:
        identity = identity_of(command.identity)
        if identity.source != link.peer:  # not kept: the identity is another node's, and may yet come from it
            stranger = HandoffWire(command.identity, command.target, command.object)
            if not link.closing:
                link.send_contract(stranger.failed(FAILURE_REQUEST))
            return
        event = events.RestoreRequested(manifest_of(command), link.connection_id)
        known = self.targets.get(identity)
        if known is not None:
            known.repeated(event, link)
            return
        node = self._node
        key = object_key_of(command.object)
        wire = HandoffWire(command.identity, command.target, command.object)
        ends_at = node.loop.time() + deadline_ms / 1000
        plan = TargetPlan(identity, key, node.run, ends_at)
        kind = _KINDS[type(command.object)]
        stable_type = command.object.instance_type if isinstance(command.object, InstanceSpotIdentity) else ""
        held = LocalObject(key, kind, stable_type, Place.TARGET)
        held.object_generation = command.object.object_generation
        joined = None
        if isinstance(command.object, ActorIdentity):
            joined = self.joins.spot_of(command.object, identity.source)
        driver = TargetDriver(node, held, self._number(), plan, wire, self.options, joined)
        self.targets[identity] = driver
        self._relays[_relocation_bytes(identity)] = driver
        self.intake.begin(driver, link, command, deadline_ms)

    def opened_there(self, link: Link, message: mesh.HandoffTimes) -> None:
        """A target has opened an object, and sends its figures: the row can be read."""
        source = self._asked.get(_octets_of((message.relocation_high, message.relocation_low)))
        if source is not None and source.plan.target == link.peer:
            source.handle(events.CommitTold())
        self.times.arrived(message)

    def withdrawn(self, link: Link, message: mesh.Withdrawn) -> None:
        """A source says that it fenced an attempt (B6.7); nobody else may say so for it (R3.4)."""
        high, low = message.relocation_high, message.relocation_low
        driver = self._relays.get(_octets_of((high, low)))
        if driver is None or driver.plan.identity.source != link.peer:
            return
        if driver.plan.identity.attempt == message.attempt:
            driver.handle(events.WithdrawnReceived())

    def failure_told(self, link: Link, message: mesh.FailureTold) -> None:
        """A target says why it ends an attempt: kept for the 53 that follows."""
        source = self._asked.get(_octets_of((message.relocation_high, message.relocation_low)))
        if (
            source is None
            or source.plan.target != link.peer
            or source.plan.identity.attempt != message.attempt
        ):
            return
        reason = message.reason if message.reason in BLOCKED_REASONS else "RelocationFailed"
        source.told = TargetFailure(reason, short_text(message.detail))

    # news for drivers ---------------------------------------------------------------------------

    def bulk_arrived(self, number: int, last: bool, chunk: memoryview) -> None:
        """A piece of a captured payload came from a worker."""
        driver = self._numbers.get(number)
        if driver is not None:
            driver.bulk_arrived(last, chunk)

    def worker_lost(self, held: LocalObject) -> bool:
        """The worker of a moving object ended. True when the object is lost with it (B6.6)."""
        staging = held.staging
        if isinstance(staging, SourceObject):
            return staging.worker_lost()
        if isinstance(staging, TargetDriver):
            staging.worker_lost()
        return False

    @staticmethod
    def messages_kept(moving: Iterable[LocalObject]) -> dict[ObjectKey, int]:
        """How many messages the worker of each moving unit holds whose payload is kept whole here, by the key of the
        object that leads it."""
        stagings = {id(held.staging): held.staging for held in moving}.values()
        return {
            staging.held.key: staging.messages
            for staging in stagings
            if isinstance(staging, SourceObject | TargetDriver)
        }

    def authority_lost(self, held: LocalObject) -> None:
        """The row of a moving object shows that this run, whose lease had expired, lost it (B6.4)."""
        if isinstance(held.staging, SourceObject):
            held.staging.authority_lost()

    def link_up(self, link: Link) -> None:
        """A new connection to a run stands."""
        for source in list(self.sources.values()):
            if source.plan.target == link.peer:
                source.link_up(link)

    def link_down(self, link: Link) -> list[bytes]:
        """A connection broke. Returns the unsent records that are not follow frames of a handoff."""
        rest: list[bytes] = []
        followed: dict[HandoffIdentity, list[bytes]] = {}
        for body in link.unsent:
            source = self._follows(parse_record_header(body).key, link) if is_follow(body) else None
            if source is None:
                rest.append(body)
            else:
                followed.setdefault(source.plan.identity, []).append(body)
        for source in list(self.sources.values()):
            if source.plan.target == link.peer:
                source.link_down(link, tuple(followed.get(source.plan.identity, ())))
        for target in list(self.targets.values()):
            if target.plan.identity.source == link.peer:
                target.link_down(link)
        return rest

    def _follows(self, key: ObjectKey, link: Link) -> SourceDriver | None:
        """The one handoff that takes back follow frames of a moving object which this link never handed over: the
        newest past its boundary towards that peer. An object that came back and left again has several."""
        held = self._node.router.objects.get(key)
        if held is None or not isinstance(held.staging, SourceDriver):
            return None
        mine = [source for source in self.sources.values() if source.takes(key) and source.follows_over(link)]
        return mine[-1] if mine else None

    def run_gone(self, run: NodeRun) -> None:
        """A run ended for certain: its lease is over, or another run of its RID stands."""
        for source in list(self.sources.values()):
            if source.plan.target == run:
                source.handle(events.TargetRunGone())

    def forgotten(self, driver: SourceDriver | LocalDriver) -> None:
        """A source, or a move within the node, has nothing left to do."""
        self.sources.pop(driver.plan.identity, None)
        self.locals.pop(driver.plan.identity, None)
        self._asked.pop(_relocation_bytes(driver.plan.identity), None)
        self._numbers.pop(driver.number, None)
        self._node.bindings.look_again()

    def target_forgotten(self, driver: TargetDriver) -> None:
        """A target has nothing left to remember."""
        self.targets.pop(driver.plan.identity, None)
        self._relays.pop(_relocation_bytes(driver.plan.identity), None)


def _relocation_bytes(identity: HandoffIdentity) -> bytes:
    return _octets_of(identity.relocation_id)


def _octets_of(relocation: tuple[int, int]) -> bytes:
    high, low = relocation
    return high.to_bytes(8, "big") + low.to_bytes(8, "big")
