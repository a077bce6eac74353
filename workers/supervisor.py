"""The supervisor of a node: a mesh member with workers (B1.1).

Owns what a node is doing: its workers and their lanes, the objects in them, creation, moves and host
operations. It never runs user code.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import msgspec
from sojourn import frames, mesh
from sojourn.control import (
    Admission,
    CallNode,
    CallNodeResult,
    Control,
    DropObject,
    FirstHandled,
    ForgetRequest,
    Grant,
    ObjectGone,
    Pong,
    RegistryEntry,
    Welcome,
    WorkerReady,
)
from sojourn.errors import ShuttingDown, SojournError, error_from_fields
from sojourn.frames import RecordHeader, ReplyHeader
from sojourn.handshake_octets import PeerRole
from sojourn.ids import NodeRun, ObjectKind, describe_key
from sojourn.rows import AuthorityRow, HostState, NodeDescriptor, RowState, TypeSupport
from sojourn.wire import ReplyRelay, ReplyRelayAck, decode_command
from sojourn.workers.bindings import Bindings
from sojourn.workers.cold import ColdRecords, is_first
from sojourn.workers.coordinator import Coordinator
from sojourn.workers.creation import Creation
from sojourn.workers.debt import Debt, Retention
from sojourn.workers.host_move import HostMove
from sojourn.workers.lanes import RunningRequest, WorkerLane
from sojourn.workers.lease_keeper import boot_ns
from sojourn.workers.ledger import Ledger
from sojourn.workers.link import Link
from sojourn.workers.losses import Losses
from sojourn.workers.member import Member
from sojourn.workers.objects import LocalObject, Place
from sojourn.workers.operations import Operations
from sojourn.workers.pool import PoolEvents, WorkerPool
from sojourn.workers.replies import MovedReplies
from sojourn.workers.sessions import Sessions
from sojourn.workers.stream import Piece
from sojourn.workers.supervisor_config import SupervisorConfig
from sojourn.workers.worker_credit import WorkerCreditor
from sojourn.workers.worker_run import WorkerPlan

__all__ = ["Supervisor"]

_COMMAND_AT = 3
"""Where the command id stands in a contract frame."""


class Supervisor(Member):
    """See the module text. `failed` ends with an error when the node cannot go on by itself."""

    def __init__(self, config: SupervisorConfig) -> None:
        super().__init__(config.rid.encode(), config.options, config.host, config.port, config.advertise)
        self.config = config
        self.workers = config.workers
        self.registry: dict[str, RegistryEntry] = {}
        self.application = ""
        self.application_version = 0
        self.object_counts: dict[int, int] = {}
        self.creditors = [WorkerCreditor(self, worker) for worker in range(self.workers)]
        self.retention = Retention(self.options.max_retained_bytes)
        self.creation = Creation(self)
        self.losses = Losses(self)
        self.sessions = Sessions(self)
        self.bindings = Bindings(self)
        self.ledger = Ledger()
        self.coordinator = Coordinator(self)
        self.replies = MovedReplies(self)
        self.cold = ColdRecords(self)
        self.operations = Operations(self)
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pool: WorkerPool
        self._own_requests: dict[int, asyncio.Future[bytes]] = {}
        self._next_request = 1
        self._refusing = False
        """The workers are asked to stop: whatever comes for an object is told so."""

    # life ---------------------------------------------------------------------------------------

    async def start_node(self) -> None:
        """Start workers and join the mesh; Serving when this returns.

        Raises:
            SojournError: what stood in the way; nothing is left running.
        """
        self.loop = asyncio.get_running_loop()
        plan = WorkerPlan(
            self.config.program,
            node=self.config.rid,
            silent_s=self.options.worker_silent_ms / 1000,
            unresponsive_s=self.options.worker_unresponsive_s,
        )
        told = PoolEvents(
            frame=self._on_worker_frame,
            control=self._on_worker_control,
            bulk=lambda worker, handoff, last, chunk: self.coordinator.bulk_arrived(handoff, last, chunk),
            ready=self._on_worker_ready,
            lost=self.losses.worker_lost,
        )
        self.pool = WorkerPool(plan, self.workers, told)
        try:
            async with asyncio.TaskGroup() as group:
                starting = group.create_task(self.pool.start())
                group.create_task(self.join())
        except BaseExceptionGroup as failures:
            await self.stop(2.0)
            raise _first(failures) from None
        application = starting.result()
        self.registry = {entry.stable_type: entry for entry in application.registry}
        self.application, self.application_version = application.name, application.version
        self.host_move = HostMove(
            self.router.objects, self.coordinator.move_unit, self._set_state, self.registry
        )
        self.calls.operations = self.operations.table
        self.pool.welcome(self._welcome)
        await self.creation.entry_spot.create()
        self._set_state(HostState.SERVING)

    async def stop(self, timeout_s: float) -> bool:
        """Stop workers, then leave the mesh; bounded by `timeout_s` seconds. False: running work was cut off."""
        began = self.loop.time()
        if self.state is HostState.PREPARING:
            self.state = HostState.DRAINING
        elif self.state is not HostState.STOPPED:
            self._set_state(HostState.DRAINING)  # told to all: nothing is placed here any more
        if hasattr(self, "host_move"):
            self.host_move.shut_down()
        await self.coordinator.close(timeout_s / 2)
        if hasattr(self, "host_move"):
            await self.host_move.close()
        self.replies.close()
        self.sessions.close()
        self._refusing = True
        for lane in self.lanes.values():
            lane.shut(self._refuse)
        graceful = await self.pool.stop(max(0.0, timeout_s - (self.loop.time() - began)))
        await self.cold.close()
        await self.leave(max(0.5, timeout_s - (self.loop.time() - began)))
        return graceful

    def _refuse(self, body: bytes, header: RecordHeader, debt: Debt | None) -> None:
        """End a record that came behind the stop of the workers: nothing has run of it, and nothing will here."""
        if debt is not None:
            debt.settle()
        if is_first(header):
            return  # it is kept, and runs when the object is made again (B7.1)
        name = describe_key(header.key)
        text = f"node {self.run} is stopping and takes nothing more for {name}"
        self.fail_record(body, header, ShuttingDown(text, object_id=name, applied="no"))

    @property
    def endpoint(self) -> str:
        """`host:port` where peers reach this node."""
        return self.links.endpoint

    @property
    def takes_new_objects(self) -> bool:
        """Whether objects may be made here, or arrive by a move."""
        return self.state is HostState.SERVING

    def _set_state(self, state: HostState) -> None:
        self.state = state
        self.log("host_state", "info", state=state.value)
        self.roster.heard(self.descriptor())
        self.announce()

    def set_cordoned(self, cordoned: bool) -> None:
        """Exclude the node from placement, or include it again (B10.6)."""
        self.cordoned = cordoned
        if not cordoned and self.state is HostState.RELOCATED:
            self.state = HostState.SERVING
        self._set_state(self.state)

    def descriptor(self) -> NodeDescriptor:
        """What this node tells the others about itself."""
        return NodeDescriptor(
            rid=self.run.rid,
            generation=self.run.generation,
            owner_id=self.owner_id,
            lease_generation=self.lease_generation,
            application=self.application,
            application_version=self.application_version,
            endpoints=(self.links.endpoint,) if self.links.endpoint else (),
            types=tuple(
                TypeSupport(ObjectKind(entry.kind), entry.stable_type, entry.policy)
                for entry in self.registry.values()
            ),
            state=self.state,
            cordoned=self.cordoned,
            weight=self.config.weight,
            wave=self.config.wave,
            object_count=sum(self.object_counts.values()),
            workers=self.workers,
            client=self.role is PeerRole.CLIENT,
        )

    # lease --------------------------------------------------------------------------------------

    def lease_moved(self, deadline_ms: int) -> None:
        """Push the admission deadline to every worker (B6.4)."""
        for worker in self.object_counts:
            self.pool.control(worker, Admission(deadline_ms * 1_000_000))

    async def recheck_objects(self) -> None:
        """The lease had expired: objects whose row changed meanwhile are dropped (B6.4), and nobody believes the
        bindings held here any more (B11.2)."""
        self.sessions.desk.lease_over()
        here = [
            held
            for held in self.router.objects.values()
            if held.place in (Place.ACTIVE, Place.SOURCE)
            or (held.place is Place.CREATING and held.staging is not None)
        ]
        rows = await self.directory.read_most([held.key for held in here])
        for held in here:
            if self.router.objects.get(held.key) is not held:
                continue  # it ended meanwhile
            found = rows[held.key]
            row = None if found is None else found.row
            gone = (
                row is None or row.object_generation != held.object_generation or row.state is RowState.LOST
            )
            if held.staging is not None:
                if gone:
                    self.coordinator.authority_lost(held)
            elif held.place is Place.ACTIVE and (row is None or gone or row.owner != self.owner):
                self.log("object_lost", "error", object_id=describe_key(held.key), reason="lease expired")
                self.drop(held, "")
                self.coordinator.running_object_lost(held)  # its session may be being sealed

    # workers ------------------------------------------------------------------------------------

    def _welcome(self, worker: int) -> Welcome:
        """What a worker is told first, also one that replaces another."""
        return Welcome(
            self.run.rid,
            self.run.generation,
            self.owner_id,
            self.lease_generation,
            worker,
            self._permits(),
            self.keeper.clock.admission_deadline_ms * 1_000_000,
            self.options.to_mapping(with_secret=False),
        )

    def _permits(self) -> int:
        jobs = self.options.queued_jobs(_processors())
        return max(1, jobs // self.workers)

    def _on_worker_ready(self, worker: int, ready: WorkerReady) -> None:
        """A worker was welcomed: its lane is open."""
        self.lanes[worker] = WorkerLane(self.pool.sender(worker), self._permits(), self.retention, self.run)
        self.object_counts[worker] = 0
        self.creation.worker_ready(worker)

    def _on_worker_frame(self, worker: int, body: bytes) -> None:
        kind = body[0]
        if kind == frames.KIND_RECORD:
            self.router.from_local(body, self.creditors[worker])
        else:
            self.router.reply_from_worker(self.lanes[worker], body)

    def _on_worker_control(self, worker: int, message: Control) -> None:
        if isinstance(message, Grant):
            self.lanes[worker].grant(message.records)
        elif isinstance(message, Pong):
            self.ledger.told(worker, message.figures)
        elif isinstance(message, ForgetRequest):
            self.senders.outstanding.pop(message.reply_route, None)
        elif isinstance(message, CallNode):
            self.start(self._serve_worker(worker, message))
        elif isinstance(message, FirstHandled):
            operation = (message.operation_high, message.operation_low)
            self.cold.handled(self.router.objects.get(message.key), operation)
        elif isinstance(message, ObjectGone):
            held = self.router.objects.get(message.key)
            if held is not None and held.worker == worker and held.place is Place.ACTIVE:
                self.start(self._object_gone(held, message.reason))

    async def _serve_worker(self, worker: int, call: CallNode) -> None:
        lane = self.lanes.get(worker)
        result = await self.calls.perform(call.call, call.operation, call.arguments)
        if self.lanes.get(worker) is lane:  # else another worker is in the slot, with call numbers of its own
            self.pool.control(worker, CallNodeResult(call.call, result.value, result.error))

    async def _object_gone(self, held: LocalObject, reason: str) -> None:
        """The worker let an object go by itself (a failed start): its row goes too."""
        self.forget(held)
        found = await self.directory.read(held.key)
        row = None if found is None else found.row
        if found is None or row is None or row.owner != self.owner:
            return
        if row.object_generation == held.object_generation:
            await self.directory.remove(held.key, found.version)

    # objects ------------------------------------------------------------------------------------

    def shares_turn(self, row: AuthorityRow) -> bool:
        """Whether the members of a User Spot move with it, as its type is registered here (R3.3)."""
        entry = self.registry.get(row.stable_type)
        return entry is not None and entry.shares_turn

    def count_object(self, worker: int, change: int) -> None:
        """Keep the number of objects per worker."""
        if worker in self.object_counts:
            self.object_counts[worker] += change

    def forget(self, held: LocalObject) -> None:
        """The object is not here any more."""
        if self.router.objects.get(held.key) is held:
            del self.router.objects[held.key]
            self.count_object(held.worker, -1)

    def drop(self, held: LocalObject, reason: str) -> None:
        """Forget the object here and in its worker."""
        self.forget(held)
        self.pool.control(held.worker, DropObject(held.key, reason))

    def install_follow(self, held: LocalObject, run: NodeRun) -> None:
        """Follow what comes for an object that turned out to be at `run`, for the follow duration."""
        held.place = Place.FOLLOW
        held.follow_run = run
        self.loop.call_later(self.options.follow_duration_ms / 1000, self._end_follow, held)

    def _end_follow(self, held: LocalObject) -> None:
        if held.place is Place.FOLLOW and self.router.objects.get(held.key) is held:
            del self.router.objects[held.key]

    # RouterHost ---------------------------------------------------------------------------------

    def reply_moved(self, request: RunningRequest, header: ReplyHeader, body: bytes) -> None:
        """Keep and repeat the reply to a request that came with a move (B7.1)."""
        self.replies.ended(self.router.objects.get(request.key), request, header, body)

    def request_followed(self, held: LocalObject, body: bytes, header: RecordHeader) -> None:
        """Tell the requester's node that the end comes from here, and is kept until it has it (B7.1)."""
        self.replies.followed(held, body, header)

    def deliver_reply(self, reply_route: int, body: bytes) -> None:
        """Give a reply to the worker that asked, or to the supervisor itself."""
        slot = (reply_route >> 48) - 1
        if slot >= 0:
            if slot in self.object_counts:
                self.pool.send(slot, body)
            return
        future = self._own_requests.pop(reply_route, None)
        if future is not None and not future.done():
            future.set_result(body)

    def own_request(self) -> tuple[int, asyncio.Future[bytes]]:
        """A reply route of the supervisor itself, and what its reply arrives in."""
        route = self._next_request
        self._next_request += 1
        future: asyncio.Future[bytes] = self.loop.create_future()
        self._own_requests[route] = future
        return route, future

    def forget_own_request(self, route: int) -> None:
        """Nobody waits for this reply any more."""
        self._own_requests.pop(route, None)

    def activate(self, body: bytes, header: RecordHeader, debt: Debt | None) -> None:
        """A record for an object this node does not hold."""
        if self._refusing:
            self._refuse(body, header, debt)
        else:
            self.creation.first_record(body, header, debt)

    def deliver_here(self, body: bytes, header: RecordHeader, debt: Debt | None) -> bool:
        """Give a record to the object on this node, making it if need be."""
        if not super().deliver_here(body, header, debt):
            self.activate(body, header, debt)
        return True

    def unbind_arrived(self, held: LocalObject, body: bytes, header: RecordHeader) -> None:
        """An unbind has come to an Actor of this node, perhaps with a move (B11.1)."""
        self.start(self.bindings.carry_out(held, body, header))

    def notice_follow(self, to: NodeRun, held: LocalObject, header: RecordHeader) -> None:
        """Tell a sender where its record was followed to (command 50, B9.2)."""
        self.coordinator.following.notice_passed_on(to, held, header)

    def broken(self, error: Exception) -> None:
        """The node ends with an error: whoever runs it sees `failed`."""
        if not self.failed.done():
            self.failed.set_exception(error)

    def roster_read(self) -> None:
        """The roster is as the store has it: nobody waits for replies any more in runs that ended."""
        super().roster_read()
        self.replies.look_around()

    def run_ended(self, run: NodeRun) -> None:
        """A run ended for certain: moves to it end too."""
        super().run_ended(run)
        for held in list(self.router.objects.values()):
            if held.place is Place.FOLLOW and held.follow_run == run:
                del self.router.objects[held.key]  # what still comes is looked up anew (B9.1)
        self.coordinator.run_gone(run)
        self.sessions.run_gone(run)

    def marker_ended(self) -> None:
        """A marker of this node's senders ended."""
        self.coordinator.following.marker_back()

    # links --------------------------------------------------------------------------------------

    def on_up(self, link: Link) -> None:
        """A link stands: moves over the former one go on."""
        super().on_up(link)
        self.coordinator.link_up(link)
        self.replies.link_up(link)
        self.sessions.link_up(link)

    def on_down(self, link: Link, reason: str) -> None:
        """A link is over."""
        self.replies.link_down(link)
        self.sessions.link_down(link)
        self.link_lost(link, reason, self.coordinator.link_down(link))

    def on_contract(self, link: Link, parts: Sequence[Piece], deadline_ms: int) -> None:
        """A contract record from a peer."""
        number = parts[0][_COMMAND_AT] if len(parts[0]) > _COMMAND_AT else 0
        if number in (ReplyRelay.COMMAND, ReplyRelayAck.COMMAND):
            self._reply_command(link, parts)
        else:
            self.coordinator.contract_arrived(link, parts, deadline_ms)

    def _reply_command(self, link: Link, parts: Sequence[Piece]) -> None:
        """33, or the 46 that answers one of this node."""
        command = decode_command(parts[0], parts[1:])
        if isinstance(command, ReplyRelayAck):
            self.replies.acknowledged(link, command)
        elif isinstance(command, ReplyRelay):
            self.relayed.relay_arrived(link, command, parts)

    def on_control(self, link: Link, message: mesh.MeshControl) -> None:
        """A control message from a peer."""
        if isinstance(message, mesh.HandoffTimes):
            self.coordinator.opened_there(link, message)
        elif isinstance(message, mesh.Withdrawn):
            self.coordinator.withdrawn(link, message)
        elif isinstance(message, mesh.FailureTold):
            self.coordinator.failure_told(link, message)
        elif isinstance(message, mesh.SealRefused):
            self.sessions.refused(link.peer, link.connection_id, message)
        else:
            super().on_control(link, message)

    # the launcher -------------------------------------------------------------------------------

    async def call(self, operation: str, arguments: dict[str, Any]) -> Any:
        """Carry out an operation for the launcher of this node; raises the typed error it ends in."""
        result = await self.calls.perform(0, operation, msgspec.msgpack.encode(arguments))
        if result.error is not None:
            raise error_from_fields(result.error.kind, result.error.fields)
        return msgspec.msgpack.decode(result.value)

    def admission_open(self) -> bool:
        """Whether this run's lease allows a move now (B6.4)."""
        return boot_ns() < self.keeper.clock.admission_deadline_ms * 1_000_000


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to show of a start in which several things failed: a typed one, if any."""
    leaves: list[BaseException] = []
    pending: list[BaseException] = [failures]
    while pending:
        error = pending.pop(0)
        if isinstance(error, BaseExceptionGroup):
            pending.extend(error.exceptions)
        else:
            leaves.append(error)
    return next((error for error in leaves if isinstance(error, SojournError)), leaves[0])


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
