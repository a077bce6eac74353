"""Drives one `SourceHandoff`: the source's half of one move, over IPC, the link and the store.

Owns the connection the machine speaks of; what happens to the object itself is `SourceObject`'s. Every rule of
order and recovery is the machine's (`sojourn.handoff`); this file only carries effects out.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

from sojourn import mesh
from sojourn.control import (
    AwaitBoundary,
)
from sojourn.errors import (
    SojournError,
    Unavailable,
)
from sojourn.frames import RecordHeader
from sojourn.handoff import effects, events
from sojourn.handoff.machine import Event, Log
from sojourn.handoff.source import SourceHandoff, SourcePlan
from sojourn.handoff.source_states import Abandoning, FollowOnly
from sojourn.handoff.terms import HandoffOptions, Outcome, Phase
from sojourn.ids import NodeRun, describe_key
from sojourn.wire.checksum import checksum
from sojourn.workers.debt import Debt
from sojourn.workers.handoff_store import lose_unit, write_fence
from sojourn.workers.handoff_wire import HandoffWire
from sojourn.workers.host_move import MoveResult
from sojourn.workers.link import Link
from sojourn.workers.objects import LocalObject
from sojourn.workers.records import frozen_record
from sojourn.workers.session_wire import SessionWire
from sojourn.workers.source_object import SourceObject
from sojourn.workers.source_sessions import SourceSessions
from sojourn.workers.stream import HandedMark
from sojourn.workers.unit_rows import UnitRows

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["SourceDriver"]

INTERRUPTION_WARNING_S = 1.0
"""From seal to cutover submitted: longer than this is worth a warning (B10.7)."""


LATE_EFFECTS = (
    effects.SendFollow,
    effects.FailHeld,
    effects.FailTaken,
    effects.RemoveFollowRoute,
    effects.ForgetHandoff,
    Log,
)
"""What a source does once its target has committed and the batch was let go of: it follows."""


class SourceDriver(SourceObject[SourceHandoff]):
    """One handoff to another node, at its source."""

    __slots__ = (
        "_bound",
        "_debt",
        "_past_boundary",
        "_relay_marks",
        "_relayed",
        "_sessions",
        "_target_version",
        "plan",
    )

    def __init__(
        self,
        node: Supervisor,
        held: LocalObject,
        number: int,
        rows: UnitRows,
        plan: SourcePlan,
        wire: HandoffWire,
        options: HandoffOptions,
        sessions: Sequence[SessionWire] = (),
        members: Sequence[LocalObject] = (),
        application_version: int | None = None,
    ) -> None:
        """`rows` were read before the handoff began; `members` are the Actors that move with the Spot `held`;
        `application_version` is what the target runs, None = the same as this node (B8.1)."""
        machine = SourceHandoff(plan, checksum, frozen_record, options)
        generations = plan.object_generation, plan.owner_generation
        super().__init__(node, held, number, rows, plan.identity, generations, wire, machine, members)
        self._target_version = application_version
        self.plan = plan
        self._bound = bool(sessions)
        self._relay_marks: list[HandedMark] = []
        """One per relay record of the last `SendRelay`: what may have arrived must not be followed as well."""
        self._past_boundary = False
        self._relayed = False
        self._debt: Debt | None = None
        self._sessions = SourceSessions(node, sessions, self.handle)
        self._steps = {
            effects.AwaitTurnBoundary: self._await_boundary,
            effects.AskSessionSeal: lambda effect: self._sessions.ask(effect.session),
            effects.AbortSessions: lambda _: self._sessions.abort(),
            effects.SealObject: self._seal,
            effects.SendRestore: self._send_restore,
            effects.SendChunks: self._send_chunks,
            effects.WriteFence: self._write_fence,
            effects.SendWithdrawn: self._send_withdrawn,
            effects.SendRelay: self._send_relay,
            effects.SendCutover: self._send_cutover,
            effects.SendFollow: self._send_follow,
            effects.RestoreDispatch: self._restore_dispatch,
            effects.DeliverRecords: self._deliver,
            effects.EndDispatch: self._end_dispatch,
            effects.ReleasePayload: self._release_payload,
            effects.DropObject: self._drop_object,
            effects.InstallFollowRoute: self._install_follow,
            effects.RemoveFollowRoute: self._remove_follow,
            effects.MarkLost: self._mark_lost,
            effects.FailHeld: self._fail_held,
            effects.FailTaken: self._fail_taken,
            effects.ReportOutcome: self._report,
            effects.ReadRow: self._read_row,
            effects.ForgetHandoff: self._forget,
            Log: self._log,
        }

    # machine ------------------------------------------------------------------------------------

    def begin(self, link: Link) -> None:
        """Everything was checked: start the machine on this connection."""
        self._link = link
        self._chunk_limit = min(
            self._node.options.relocation_chunk_bytes, link.peer_receive_chunk_limit or 32 * 1024
        )
        options = self._node.options
        for budget in (options.relocation_in_flight_bytes, options.relocation_node_in_flight_bytes):
            if budget:
                self._chunk_limit = min(self._chunk_limit, budget)
        self.handle(events.RelocationStarted(link.connection_id))

    @property
    def _target(self) -> str:
        return self.plan.target.rid.decode("utf-8", "backslashreplace")

    @property
    def _destination(self) -> str:
        return f"node {self.plan.target}"

    def shut_down(self) -> None:
        """The node stops and waits no longer. What the target was asked for it may still carry out."""
        self._fail_records(self.machine.unsent, "ShuttingDown", "its node stopped while it moved")
        if not self.outcome.done():
            name = describe_key(self.held.key)
            error = Unavailable(
                f"{name} was on its way to {self._destination} when its node stopped",
                object_id=name,
                phase=self.machine.phase,
                applied="unknown",
            )
            self._end_requests(self._taken.requests, error)
            word = "failed" if self.machine.phase is Phase.SOURCE_RUNNING else "in_doubt"
            detail = "the node stopped while it moved"
            self.outcome.set_result(MoveResult(word, "ShutdownRequested", detail, self._target))

    def _stepped(self) -> None:
        state = self.machine.state
        if isinstance(state, Abandoning) and not self.outcome.done():
            # It can only fail now, and the turn that is awaited may take any time: nobody waits for that.
            self._report(effects.ReportOutcome(Outcome.FAILED, state.reason))
        elif type(state) is FollowOnly and state.batch is None and not self.is_over:
            self._over(LATE_EFFECTS)

    # records ------------------------------------------------------------------------------------

    def record_arrived(
        self, body: bytes, header: RecordHeader, from_run: NodeRun | None, debt: Debt | None
    ) -> None:
        """See `Staging`. Before the boundary the hold owes the debt, after it the link to the target does."""
        if self._past_boundary:
            self._debt = debt
        else:
            self.held.owe(debt, len(body), self._node.retention)
        self.handle(events.RecordArrived(body))
        debt, self._debt = self._debt, None
        if debt is not None:
            debt.settle()

    # links --------------------------------------------------------------------------------------

    def follows_over(self, link: Link) -> bool:
        """Whether what comes for the object is followed on this connection: past the boundary, to the target."""
        return (
            self._past_boundary and self._link is not None and self._link.connection_id == link.connection_id
        )

    def link_down(self, link: Link, follow_unsent: tuple[bytes, ...]) -> None:
        """The connection to the target broke."""
        if self._link is not None and self._link.connection_id == link.connection_id:
            self._link = None
            handed = sum(mark.handed for mark in self._relay_marks)
            self.handle(events.LinkLost(link.connection_id, handed, follow_unsent))

    def link_up(self, link: Link) -> None:
        """A new connection to the target's run stands."""
        if self._link is None:
            self._link = link
            self.handle(events.LinkRestored(link.connection_id))

    # seal and capture ---------------------------------------------------------------------------

    def _await_boundary(self, effect: effects.AwaitTurnBoundary) -> None:
        answer = self._node.pool.call(self._worker, lambda call: AwaitBoundary(call, self.held.key))
        self._ask(self._boundary(answer))

    async def _boundary(self, answer: Awaitable[Any]) -> Event:
        try:
            await answer
        except SojournError:
            return events.WorkerLost()
        return events.TurnBoundaryReached()

    # towards the target -------------------------------------------------------------------------

    def _send_restore(self, effect: effects.SendRestore) -> None:
        link = self._link_of(effect.connection)
        if link is not None:
            link.send_contract(
                self._wire.prepare(self._node.run, effect.manifest), int(effect.remaining_s * 1000)
            )

    def _send_chunks(self, effect: effects.SendChunks) -> None:
        link = self._link_of(effect.connection)
        if link is None:
            return
        if self.payload.send_at_once(link):
            self.handle(events.ChunksSent(effect.connection))
        else:
            sent = self.payload.send(link, lambda: self._link_of(effect.connection) is not None)
            self._node.start(self._chunks_sent(effect.connection, sent))

    async def _chunks_sent(self, connection: int, sent: Awaitable[bool]) -> None:
        if await sent:
            self.handle(events.ChunksSent(connection))

    def _send_relay(self, effect: effects.SendRelay) -> None:
        self._relay_marks = []
        link = self._link_of(effect.connection)
        if link is None:
            return
        first = not self._relayed
        self._relayed = True
        for body in effect.records:
            if first:
                self._taken.add(body)
            mark = HandedMark()
            self._relay_marks.append(mark)
            link.send_contract([[self.frames.relay_head, frozen_record(body)]], 0, mark)

    def _send_cutover(self, effect: effects.SendCutover) -> None:
        self._past_boundary = True
        self._sessions.release()
        self.held.settle_debts(self._node.retention)
        link = self._link_of(effect.connection)
        if link is not None:
            link.send_contract(
                (self.frames.cutover(effect.count, effect.checksum),),
                0,
                functools.partial(self._cutover_written, effect.connection),
            )

    def _cutover_written(self, connection: int, handed: bool) -> None:
        if not handed:
            return
        paused_s = (time.monotonic_ns() - self._sealed_ns) / 1e9
        if paused_s > INTERRUPTION_WARNING_S:
            self._log(Log("interruption", "warning", {"seconds": round(paused_s, 3)}))
        self.handle(events.CutoverSubmitted(connection))

    def _send_follow(self, effect: effects.SendFollow) -> None:
        for body in effect.records:
            debt, self._debt = self._debt, None
            self._node.coordinator.following.send_followed(self.held, body, effect.run, debt)

    # store --------------------------------------------------------------------------------------

    def _write_fence(self, effect: effects.WriteFence) -> None:
        self._ask(write_fence(self._rows, effect.others, self.plan.identity.relocation_id))

    def _mark_lost(self, effect: effects.MarkLost) -> None:
        self._ask(lose_unit(self._rows, effect.version, effect.others))

    # back, or gone ------------------------------------------------------------------------------

    def _install_follow(self, effect: effects.InstallFollowRoute) -> None:
        self.held.settle_debts(self._node.retention)
        moves = effect.owner_generation - self.plan.owner_generation  # of the whole unit, this one included
        for each in self._unit:
            generation = each.owner_generation + moves
            self._node.coordinator.following.install(each, effect.run, generation, self.plan.target)

    def _send_withdrawn(self, effect: effects.SendWithdrawn) -> None:
        link = self._link_of(effect.connection)
        if link is not None:
            high, low = self.plan.identity.relocation_id
            link.send_control(mesh.Withdrawn(high, low, self.plan.identity.attempt))

    def _release_payload(self, effect: effects.ReleasePayload) -> None:
        self._relay_marks = []
        super()._release_payload(effect)

    def _forget(self, effect: effects.ForgetHandoff) -> None:
        self.forgotten = True
        self._release_payload(effects.ReleasePayload())  # what a worker that ended had captured in part
        self._arm()
        self._sessions.release()
        self._node.coordinator.forgotten(self)
