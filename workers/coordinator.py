"""The relocation coordinator of a node: starts moves, takes them in, and gives each driver its news.

Owns which handoffs there are, by identity and by number, and everything around a handoff that is not the
machine's: eligibility, budgets, a second identity for one object, notices to senders, figures.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING
from weakref import WeakSet

from sojourn import mesh
from sojourn.errors import InvalidOperation, ProtocolError, SojournError
from sojourn.frames import parse_record_header
from sojourn.handoff import events
from sojourn.handoff.source import SourcePlan
from sojourn.handoff.target import TargetPlan
from sojourn.handoff.terms import FAILURE_REQUEST, HandoffIdentity, HandoffOptions, Outcome
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, describe_key
from sojourn.location import StoreUnavailable
from sojourn.ownership import VersionedRow
from sojourn.placement import PlacementQuery, choose_node
from sojourn.rows import NodeDescriptor
from sojourn.wire import (
    ActorIdentity,
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
    TargetFence,
    UserSpotIdentity,
    decode_command,
)
from sojourn.workers.budget import Budget
from sojourn.workers.following import Following
from sojourn.workers.handoff_times import HandoffTimes
from sojourn.workers.handoff_wire import HandoffWire, identity_of, manifest_of, object_key_of
from sojourn.workers.host_move import STOPPING, MoveResult
from sojourn.workers.intake import Intake
from sojourn.workers.link import Link
from sojourn.workers.objects import LocalObject, Place
from sojourn.workers.records import is_follow
from sojourn.workers.session_wire import wires_of
from sojourn.workers.source_driver import SourceDriver
from sojourn.workers.stream import Piece
from sojourn.workers.target_driver import TargetDriver
from sojourn.workers.unit_rows import UnitRows

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["NOT_HERE", "Coordinator"]

NOT_HERE = "not here"
"""Phase of the error that says that this node does not hold the object (any more)."""

_COMMAND_AT = 3
_KINDS = {
    ActorIdentity: ObjectKind.ACTOR,
    UserSpotIdentity: ObjectKind.USER_SPOT,
    InstanceSpotIdentity: ObjectKind.INSTANCE_SPOT,
}
_RELOCATION_AT = 5
"""Where the command id and the RelocationId stand in a frame (`docs/reference/wire.md`)."""


class _UnitChanged(InvalidOperation):
    """The members of a Spot are not those its row lists, or not where it is."""


class Coordinator:
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
        self.following = Following(node)
        self.budget = Budget(options.relocation_in_flight_bytes, options.relocation_node_in_flight_bytes)
        self.sources: dict[HandoffIdentity, SourceDriver] = {}
        self.targets: dict[HandoffIdentity, TargetDriver] = {}
        self._relays: dict[bytes, TargetDriver] = {}
        """Targets by the 16 bytes of their RelocationId."""
        self._asked: dict[bytes, SourceDriver] = {}
        """Sources likewise."""
        self._numbers: dict[int, SourceDriver] = {}
        self._next_number = 1
        self.times = HandoffTimes(node)
        self.intake = Intake(node)
        self._moving: dict[ObjectKey, asyncio.Task[MoveResult]] = {}
        self._begun: WeakSet[asyncio.Task[MoveResult]] = WeakSet()
        """Moves that have gone past their preparation: they end with their driver's outcome."""
        self._closing = False

    # starting a move ----------------------------------------------------------------------------

    async def move(self, key: ObjectKey, to: bytes | None, deadline_s: float) -> MoveResult:
        """Move one object of this node, to a named node or to the best one.

        A move of the object that is under way is shared when it goes to the same node (B10.4); a cancelled
        caller ends only its own wait.

        Raises:
            InvalidOperation: the object is not here, or is moving elsewhere.
        """
        held = self._node.router.objects.get(key)
        if held is None or held.place not in (Place.ACTIVE, Place.SOURCE):
            raise _not_here(key)
        if held.lead is not None:
            held = held.lead  # it moves with the Spot whose turn it shares
        return await self._share(held, to, None, self._node.loop.time() + deadline_s)

    async def move_unit(self, held: LocalObject, version: int, deadline: float) -> MoveResult:
        """Move one unit of a host move (B10.3); one that has left meanwhile has moved."""
        try:
            return await self._share(held, None, version, deadline)
        except SojournError as error:
            if error.phase == NOT_HERE and not self._is_here(held):
                return MoveResult("moved")
            return MoveResult("failed", "RelocationFailed", str(error))

    def _is_here(self, held: LocalObject) -> bool:
        return self._node.router.objects.get(held.key) is held and held.place is not Place.FOLLOW

    async def _share(
        self, held: LocalObject, to: bytes | None, version: int | None, deadline: float
    ) -> MoveResult:
        """Share the move under way if it goes where this caller wants; else start one when that is over."""
        while True:
            if self._closing:
                return STOPPING
            if self._node.router.objects.get(held.key) is not held or held.place is Place.FOLLOW:
                raise _not_here(held.key)
            under_way = self._moving.get(held.key)
            if under_way is None or under_way.done():
                break  # a task that is done is not awaited: that yields nothing, and this would loop for ever
            result = await self._result_of(under_way)
            if to is None or result.target.encode("utf-8", "surrogateescape") == to:
                return result
        task = self._node.loop.create_task(self._move(held, to, version, deadline))
        self._moving[held.key] = task
        task.add_done_callback(lambda _: self._moving.get(held.key) is task and self._moving.pop(held.key))
        return await self._result_of(task)

    async def _result_of(self, task: asyncio.Task[MoveResult]) -> MoveResult:
        """What a move ends in; who is cancelled ends only its own wait (B10.4)."""
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self._closing:
                return STOPPING
            raise

    async def _move(
        self, held: LocalObject, to: bytes | None, version: int | None, deadline: float
    ) -> MoveResult:
        """Handoffs until one ends as more than postponed: each has an identity of its own (B8.12)."""
        while True:
            result = await self._attempt(held, to, version, deadline)
            if result.outcome != str(Outcome.POSTPONED):
                return result

    async def _attempt(
        self, held: LocalObject, to: bytes | None, version: int | None, deadline: float
    ) -> MoveResult:
        node = self._node
        if to == node.run.rid:
            return MoveResult("moved", target=to.decode("utf-8", "backslashreplace"))
        if held.policy == "disabled":
            return MoveResult(
                "failed", "RelocationDisabled", f"{held.stable_type} is declared with policy='disabled'"
            )
        try:
            target = self._choose(held, to, version)
            link = await self._prepare(held, target, deadline)
            driver = await self._make_driver(held, target, deadline)
        except StoreUnavailable as error:
            return MoveResult("failed", "StoreUnavailable", str(error))
        except TimeoutError:
            return MoveResult(
                "failed", "DeadlineExceeded", "the deadline passed before the object was sealed"
            )
        except _UnitChanged as error:
            return MoveResult("failed", "RelocationFailed", str(error))
        except SojournError as error:
            return MoveResult("failed", "TargetUnavailable", str(error))
        if driver is None:
            if held.place is Place.SOURCE and self._is_here(held):
                return MoveResult("failed", "RelocationFailed", "an earlier move of it has not ended yet")
            raise _not_here(held.key)
        if link.closing or held.place is not Place.ACTIVE:
            self.source_forgotten(driver)
            return MoveResult("failed", "TargetUnavailable", f"the link to {target.run} broke")
        node.count("relocations_started")
        self._begun.add(self._moving[held.key])
        driver.begin(link)
        result = await driver.outcome
        node.count(f"relocations_{result.outcome}")
        return await self.times.added(driver, result)

    def _choose(self, held: LocalObject, to: bytes | None, version: int | None) -> NodeDescriptor:
        node = self._node
        query = PlacementQuery(
            held.key,
            ObjectKind(held.kind),
            held.stable_type,
            policy=held.policy,
            application_version=node.application_version if version is None else version,
            wave=node.config.wave,
            connected=node.connected_runs(),
            excluded=(node.run,),
        )
        return choose_node(query, node.roster.nodes(), to=to).require(query)

    async def _prepare(self, held: LocalObject, target: NodeDescriptor, deadline: float) -> Link:
        """Everything that may wait, while the object still works: link, budget, own marker (B9.4, R5.3)."""
        node = self._node
        async with asyncio.timeout_at(deadline - self.options.seal_time_min_s):
            await node.connect(target.run)
            await node.retention.room()
            await self.budget.wait_room(target.run)
            await self.following.own_marker_back(held)
        return node.links.for_move(target.run, node.options.max_frame_bytes)

    async def _make_driver(
        self, held: LocalObject, target: NodeDescriptor, deadline: float
    ) -> SourceDriver | None:
        async with self._node.bindings.quiet(held.key):
            return await self._read_and_make(held, target, deadline)

    async def _read_and_make(
        self, held: LocalObject, target: NodeDescriptor, deadline: float
    ) -> SourceDriver | None:
        node = self._node
        rows = UnitRows(node.directory, held.key, node.shares_turn)
        found = await rows.read()
        if not rows.others:
            return self._make(held, (), rows, found, target, deadline)
        async with AsyncExitStack() as quiet:
            for key in rows.others:
                await quiet.enter_async_context(node.bindings.quiet(key))
            rows = UnitRows(node.directory, held.key, node.shares_turn)
            found = await rows.read()
            members = self._members_here(held, rows)
            while any(node.senders.marker_out(member.key) for member in members):
                for member in members:
                    await self.following.own_marker_back(member)
            return self._make(held, members, rows, found, target, deadline)

    def _members_here(self, held: LocalObject, rows: UnitRows) -> tuple[LocalObject, ...]:
        """The members that move with a Spot: all that its row lists, in its own worker.

        Raises:
            _UnitChanged: one is not there, or is doing something else.
        """
        members = []
        for key, found in rows.others.items():
            member = self._node.router.objects.get(key)
            if (
                member is None
                or found is None
                or member.place is not Place.ACTIVE
                or member.worker != held.worker
                or member.object_generation != found.row.object_generation
                or member.owner_generation != found.row.owner_generation
                or found.row.owner != self._node.owner
            ):
                raise _UnitChanged(
                    f"{describe_key(key)}, a member of {describe_key(held.key)}, is not where its row says"
                )
            members.append(member)
        return tuple(members)

    def _make(
        self,
        held: LocalObject,
        members: tuple[LocalObject, ...],
        rows: UnitRows,
        found: VersionedRow | None,
        target: NodeDescriptor,
        deadline: float,
    ) -> SourceDriver | None:
        node = self._node
        if (
            found is None
            or found.row.owner != node.owner
            or found.row.object_generation != held.object_generation
            or held.place is not Place.ACTIVE
        ):
            return None
        identity = HandoffIdentity(
            (secrets.randbits(64) | 1, secrets.randbits(64)),
            1,
            node.owner_id,
            node.lease_generation,
            node.run,
            found.version,
        )
        row = found.row
        fence = TargetFence(target.rid, target.generation, target.owner_id, target.lease_generation)
        kind = ObjectKind(held.kind)
        wire = HandoffWire.of_source(
            identity, fence, held.key, kind, held.stable_type, row.object_generation, row.owner_generation
        )
        sessions = wires_of(identity, (each for each, _ in rows.present()))
        facts = rows.facts_of(found)
        assert facts is not None
        plan = SourcePlan(
            identity,
            target.run,
            row.object_generation,
            row.owner_generation,
            deadline,
            len(sessions),
            facts.others,
        )
        driver = SourceDriver(node, held, self._number(), rows, plan, wire, self.options, sessions, members)
        self.sources[identity] = driver
        self._asked[_relocation_bytes(identity)] = driver
        self._numbers[driver.number] = driver
        return driver

    def running_object_lost(self, held: LocalObject) -> None:
        """An object ended with its worker while it still ran; a handoff of it may have begun (B8.12)."""
        for source in list(self.sources.values()):
            if source.drives(held):
                source.lost_while_running()

    def moves(self, held: LocalObject) -> bool:
        """Whether a handoff of the object has begun here and is not over."""
        return any(source.drives(held) for source in self.sources.values())

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number

    def would_block(self, units: list[LocalObject], version: int) -> list[dict[str, str]]:
        """What a host move would leave here, and why, without moving anything (B10.6)."""
        blocked: list[dict[str, str]] = []
        for held in units:
            reason, detail = "", ""
            if held.policy == "disabled":
                reason, detail = "RelocationDisabled", f"{held.stable_type} never moves"
            else:
                try:
                    self._choose(held, None, version)
                except SojournError as error:
                    reason, detail = "TargetUnavailable", str(error)
            if reason:
                blocked.append({"object": describe_key(held.key), "reason": reason, "detail": detail})
        return blocked

    def safe_to_shutdown(self) -> bool:
        """No object, no follow route and no resend window is left here (B10.5)."""
        return not self.sources and not self._node.router.objects

    async def close(self, limit_s: float = 0.0) -> None:
        """The node stops: no new move begins, and what is sealed may end for `limit_s` seconds (section 9: the
        seal was first). Then nobody waits for a move any more; what the other nodes hold is theirs to settle."""
        self._closing = True
        for move in self._moving.values():
            if move not in self._begun:
                move.cancel()
        sealed = [source.outcome for source in self.sources.values() if source.sealed_ns]
        if sealed and limit_s > 0:
            await asyncio.wait(sealed, timeout=limit_s)
        for source in self.sources.values():
            source.shut_down()
        await asyncio.gather(*self._moving.values(), return_exceptions=True)
        for source in self.sources.values():
            source.close()
        for target in self.targets.values():
            target.close()

    # figures ------------------------------------------------------------------------------------

    def payload_octets(self) -> int:
        """Octets of captured payloads that this node keeps as a source (R4.4.3)."""
        return sum(driver.payload_octets for driver in self.sources.values())

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
            source.handle(events.RelocationFailedReceived(int(command.failure_code), link.connection_id))

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
        driver = TargetDriver(node, held, self._number(), plan, wire, self.options)
        self.targets[identity] = driver
        self._relays[_relocation_bytes(identity)] = driver
        self.intake.begin(driver, link, command, deadline_ms)

    def opened_there(self, message: mesh.HandoffTimes) -> None:
        """A target has opened an object, and sends its figures: the row can be read."""
        source = self._asked.get(_octets_of((message.relocation_high, message.relocation_low)))
        if source is not None:
            source.handle(events.CommitTold())
        self.times.arrived(message)

    def withdrawn(self, message: mesh.Withdrawn) -> None:
        """A source says that it fenced an attempt (B6.7)."""
        high, low = message.relocation_high, message.relocation_low
        driver = self._relays.get(_octets_of((high, low)))
        if driver is not None and driver.plan.identity.attempt == message.attempt:
            driver.handle(events.WithdrawnReceived())

    # news for drivers ---------------------------------------------------------------------------

    def bulk_arrived(self, number: int, last: bool, chunk: memoryview) -> None:
        """A piece of a captured payload came from a worker."""
        driver = self._numbers.get(number)
        if driver is not None:
            driver.bulk_arrived(last, chunk)

    def worker_lost(self, held: LocalObject) -> bool:
        """The worker of a moving object ended. True when the object is lost with it (B6.6)."""
        staging = held.staging
        if isinstance(staging, SourceDriver):
            return staging.worker_lost()
        if isinstance(staging, TargetDriver):
            staging.worker_lost()
        return False

    def authority_lost(self, held: LocalObject) -> None:
        """The row of a moving object shows that this run, whose lease had expired, lost it (B6.4)."""
        if isinstance(held.staging, SourceDriver):
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

    def source_forgotten(self, driver: SourceDriver) -> None:
        """A source has nothing left to do."""
        self.sources.pop(driver.plan.identity, None)
        self._asked.pop(_relocation_bytes(driver.plan.identity), None)
        self._numbers.pop(driver.number, None)

    def target_forgotten(self, driver: TargetDriver) -> None:
        """A target has nothing left to remember."""
        self.targets.pop(driver.plan.identity, None)
        self._relays.pop(_relocation_bytes(driver.plan.identity), None)


def _not_here(key: ObjectKey) -> InvalidOperation:
    """The answer that makes a caller look for the object's owner again."""
    name = describe_key(key)
    return InvalidOperation(f"{name} is not on this node", object_id=name, phase=NOT_HERE)


def _relocation_bytes(identity: HandoffIdentity) -> bytes:
    return _octets_of(identity.relocation_id)


def _octets_of(relocation: tuple[int, int]) -> bytes:
    high, low = relocation
    return high.to_bytes(8, "big") + low.to_bytes(8, "big")
