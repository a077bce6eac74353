"""Drives one `TargetHandoff`: the target's half of one move, over the link, IPC and the store.

Owns the assembly buffer, the worker that is to host the object, and this node's routing of the object while
it is staged. Every rule of order and recovery is the machine's (`sojourn.handoff`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

from sojourn import mesh
from sojourn.control import (
    DropObject,
    Opened,
    OpenObject,
    short_text,
)
from sojourn.errors import ERROR_KINDS, ProtocolError, ShuttingDown, SojournError, error_from_fields
from sojourn.frames import FLAG_FOLLOW, FLAG_MARKER, RecordHeader, parse_record_header
from sojourn.handoff import effects, events
from sojourn.handoff.machine import Event, Log
from sojourn.handoff.target import TargetHandoff, TargetPlan
from sojourn.handoff.target_states import TargetOpen, TargetRemoved
from sojourn.handoff.terms import DirectDisposal, HandoffOptions
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, describe_key
from sojourn.rows import AuthorityRow, Membership
from sojourn.wire.checksum import checksum
from sojourn.workers.debt import Debt
from sojourn.workers.handoff_store import lose_unit, write_owner
from sojourn.workers.handoff_wire import HandoffWire
from sojourn.workers.host_move import failure_reason
from sojourn.workers.lanes import STAGED
from sojourn.workers.link import Link
from sojourn.workers.named_work import NamedWork
from sojourn.workers.objects import LocalObject, Place, route_fence
from sojourn.workers.records import (
    frame_of_record,
    frozen_record,
    key_of_record,
    marker_number,
    record_origin,
)
from sojourn.workers.replies import TakenRequests
from sojourn.workers.router import lost_error
from sojourn.workers.session_wire import wires_of
from sojourn.workers.source_driver import SourceDriver
from sojourn.workers.target_restoring import TargetRestoring

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["TargetDriver"]


LATE_EFFECTS = (
    effects.SendRelayReady,
    effects.SendRelocationFailed,
    effects.DeliverRecords,
    effects.SendFollow,
    effects.FailHeld,
    effects.RemoveFollowRoute,
    effects.ForgetHandoff,
    Log,
)
"""What a target does once its object is open, or was dropped with nothing in doubt: it answers repeats and takes late
relay."""


class TargetDriver(TargetRestoring):
    """One handoff at its target."""

    __slots__ = (
        "_early",
        "_early_markers",
        "_let_go",
        "_previous",
        "_work",
        "heir",
        "plan",
    )

    def __init__(
        self,
        node: Supervisor,
        held: LocalObject,
        number: int,
        plan: TargetPlan,
        wire: HandoffWire,
        options: HandoffOptions,
        joined: ObjectKey | None = None,
    ) -> None:
        """`joined`: the User Spot of this node that an Actor enters with this move."""
        machine = TargetHandoff(plan, checksum, frozen_record, options)
        super().__init__(node, held, number, plan.identity, wire, machine, joined)
        self.plan = plan
        self._work = NamedWork(node, wire.identity, self._log)
        """The saved work of the dropped object while it is in doubt who ends it (B8.15)."""
        self._previous: dict[ObjectKey, LocalObject] = {}
        """What this node had of each participant before it was staged."""
        self._early_markers: list[bytes] = []
        self._early: list[Event] | None = []
        """What came before it was decided whether the attempt may start (B8.16)."""
        self._let_go = False
        """What was held is settled: what still comes is passed on, and not counted as kept (B5.3)."""
        self.heir: TargetDriver | None = None
        """The driver of the identity that takes this one's place (B8.16)."""
        self._steps = {
            effects.InstallTemporaryQueue: self._install_queue,
            effects.StageParticipants: self._stage_participants,
            effects.ReadRow: self._read_row,
            effects.StoreChunk: self._store_chunk,
            effects.CompareChunk: self._compare_chunk,
            effects.VerifyAssembly: self._verify,
            effects.RestoreObject: self._restore_object,
            effects.SendRelayReady: self._send_ready,
            effects.SendRelocationFailed: self._send_failed,
            effects.WriteOwner: self._write_owner,
            effects.OpenDispatch: self._open_dispatch,
            effects.DropTarget: self._drop,
            effects.EndWork: self._end_work,
            effects.ForgetWork: lambda _: self._work.forget(),
            effects.MarkLost: self._mark_lost,
            effects.DeliverRecords: self._deliver,
            effects.SendFollow: self._send_follow,
            effects.InstallFollowRoute: self._install_follow,
            effects.RemoveFollowRoute: self._remove_follow,
            effects.FailHeld: self._fail_held,
            effects.CommitSessions: self._commit_sessions,
            effects.ForgetHandoff: self._forget,
            Log: self._log,
        }

    # machine ------------------------------------------------------------------------------------

    def begin(self, link: Link, event: Event, length: int) -> None:
        """The first event of a new identity (`RestoreRequested` or `RestoreRefused`)."""
        self._link = None if link.closing else link
        self._length = length
        early, self._early = self._early, None
        self.handle(event)
        for waiting in early or ():
            self.handle(waiting)

    def handle(self, event: Event) -> None:
        """See `HandoffDriver`; what comes before `begin` waits for it."""
        if self._early is not None and not self.forgotten:
            self._early.append(event)
            return
        super().handle(event)

    def _stepped(self) -> None:
        if type(self.machine.state) in (TargetOpen, TargetRemoved) and not self.is_over:
            self._over(LATE_EFFECTS)
            self._out = self._opening = None
            self._answer = None
            self._requests = []
            if isinstance(self.machine.state, TargetOpen):  # else an heir may ask for it (B8.16)
                self._previous = {}

    # records ------------------------------------------------------------------------------------

    def record_arrived(
        self, body: bytes, header: RecordHeader, from_run: NodeRun | None, debt: Debt | None
    ) -> None:
        """See `Staging`. Markers are answered as they are taken in (B9.4), and not kept."""
        self.held.owe(debt, len(body), self._node.retention)
        if header.flags & FLAG_MARKER:
            self.marker_arrived(body, header)
            return
        link = self._link
        if header.flags & FLAG_FOLLOW and link is not None and from_run == link.peer:
            self.handle(events.FollowArrived(body, link.connection_id))
        else:
            self.handle(events.DirectArrived(body))

    def marker_arrived(self, body: bytes, header: RecordHeader) -> None:
        """Answer a marker; before the rows were read nobody here knows the owner generation the answer names."""
        if self._rows.first is None or self._find(header.key) is None:
            self._early_markers.append(body)
            return
        origin = record_origin(body, header.record_at)
        self._node.answer_marker(origin, marker_number(body), self._participant(header.key))

    def will_stage(self, key: ObjectKey) -> bool:
        """Whether the object is in the unit, as far as the rows have told by now."""
        return key == self.plan.key or key in self._rows.others

    def _find(self, key: ObjectKey) -> LocalObject | None:
        """The staged object of this key."""
        for each in self._unit:
            if each.key == key:
                return each
        return None

    def _participant(self, key: ObjectKey) -> LocalObject:
        """The staged object that a record is for.

        Raises:
            ProtocolError: it is for no participant of the unit.
        """
        each = self._find(key)
        if each is not None:
            return each
        raise ProtocolError(f"{describe_key(key)} is not in the unit of {describe_key(self.held.key)}")

    def relay_arrived(self, record: bytes, link: Link) -> None:
        """Command 31 of this identity."""
        kind, key = self.held.kind, self.held.key
        if len(self._unit) > 1:  # the record names the participant it is for
            kind, key = key_of_record(record)
            self._participant(key)
        body = frame_of_record(record, kind, key)
        header = parse_record_header(body)
        if header.flags & FLAG_MARKER:
            self.marker_arrived(body, header)
        if self.held.staging is self and not self._let_go:  # a late one is delivered, not kept
            self.held.owe(None, len(body), self._node.retention)
        self.handle(events.RelayArrived(body, link.connection_id))

    # links --------------------------------------------------------------------------------------

    def link_down(self, link: Link) -> None:
        """A connection to the source's node broke."""
        if self._link is not None and self._link.connection_id == link.connection_id:
            self._link = None
        self.handle(events.LinkLost(link.connection_id))

    def repeated(self, event: Event, link: Link) -> None:
        """A Restore request of this identity again, perhaps on a new connection."""
        self._link = link
        self.handle(event)

    def _send_ready(self, effect: effects.SendRelayReady) -> None:
        link = self._link_of(effect.connection)
        if link is not None:
            link.send_contract((self.frames.ready,))

    def _send_failed(self, effect: effects.SendRelocationFailed) -> None:
        link = self._link_of(effect.connection)
        if link is None:
            return
        state = self.machine.state
        if isinstance(state, TargetRemoved) and state.why is not None:
            self._tell_failure(link, state.why)
        link.send_contract(self._wire.failed(effect.failure_code))

    def _tell_failure(self, link: Link, why: object) -> None:
        """What the failure code does not say, for whoever asked for the move."""
        text = str(why)
        if isinstance(why, SojournError):
            text = f"node {self._node.run} could not restore it: {text}"
        identity = self.plan.identity
        link.send_control(
            mesh.FailureTold(*identity.relocation_id, identity.attempt, failure_reason(why), short_text(text))
        )

    # staging ------------------------------------------------------------------------------------

    def _install_queue(self, effect: effects.InstallTemporaryQueue) -> None:
        """Register the temporary queue; this node's own senders and what it followed come into it (B8.14)."""
        self._stage(self.held)

    def _stage_participants(self, effect: effects.StageParticipants) -> None:
        """The members' records come into the same temporary queue, in one order with the Spot's."""
        for key in effect.keys:
            found = self._rows.others[key]
            assert found is not None
            member = LocalObject(key, ObjectKind.ACTOR, found.row.stable_type, Place.TARGET)
            member.lead = self.held
            self._learn(member, found.row)
            self._unit.append(member)
            self._stage(member)
        self._take_early_markers()

    def _take_early_markers(self) -> None:
        markers, self._early_markers = self._early_markers, []
        for body in markers:
            self.marker_arrived(body, parse_record_header(body))

    def _stage(self, held: LocalObject) -> None:
        node = self._node
        previous = node.router.objects.get(held.key)
        if previous is not None:
            before = previous.staging
            found = before._previous.get(held.key) if isinstance(before, TargetDriver) else previous
            if found is not None:  # behind an attempt whose place this one takes: what that one had found
                self._previous[held.key] = found
            if previous.place is Place.ACTIVE:
                # The row names the source: what runs here is left from a lease that was over, and of an owner since
                # replaced (B6.4).
                node.drop(previous, "")
        node.router.objects[held.key] = held
        held.place = Place.TARGET
        held.staging = self
        source = self.plan.identity.source
        followed = None
        if previous is not None and isinstance(previous.staging, SourceDriver):
            followed = previous.staging.plan.target
        node.senders.staging_begun(held, source, followed, self._queued_towards(source))
        if previous is not None and previous.place is Place.CREATING and previous.waiting:
            waiting, previous.waiting = previous.waiting, None
            for body, header, debt in waiting:
                node.router.to_object(held, body, header, debt, None)

    def _queued_towards(self, source: NodeRun) -> bool:
        """Records still wait for credit towards the source: its relay-ready would overtake them."""
        link = self._node.links.get(source)
        return link is not None and link.outbound_records > 0

    def _read_row(self, effect: effects.ReadRow) -> None:
        self._ask(self._row())

    async def _row(self) -> Event:
        try:
            first = self._rows.first
            found = await self._rows.read()
        except SojournError:
            return events.RowReadFailed()
        if first is None and found is not None:
            self._learn(self.held, found.row)
            self._take_early_markers()
        facts = self._rows.facts_of(found)
        if not self._row_told and facts is not None and facts.movable(self.plan.identity.expected_version):
            try:
                if not await self._node.coordinator.intake.members_free(self, facts):
                    return events.RivalKept()
            except SojournError:
                return events.RowReadFailed()
        self._row_told = True
        return events.RowRead(facts)

    def _learn(self, held: LocalObject, row: AuthorityRow) -> None:
        """What the row tells about an object that is staged here."""
        held.stable_type = row.stable_type
        held.kind = int(row.kind)
        entry = self._node.registry.get(row.stable_type)
        if entry is not None:
            held.policy = entry.policy
        held.object_generation = row.object_generation
        held.owner_generation = row.owner_generation
        held.fence = route_fence(
            held.key,
            held.kind,
            row.object_generation,
            row.owner.run,
            row.owner_generation,
            row.owner.lease_generation,
        )

    # the owner ----------------------------------------------------------------------------------

    def _write_owner(self, effect: effects.WriteOwner) -> None:
        assert self._rows.first is not None
        node, row = self._node, self._rows.first.row
        memberships: dict[str, Membership] = {}
        if row.membership is not None and row.membership.kind is ObjectKind.ENTRY_SPOT:
            # An Actor of an Entry Spot goes to the target's; one of a User Spot stays in it (section 8, R3.1). Where
            # one joins a Spot, the rows' own write says so instead.
            rid = node.run.rid.decode("utf-8", "backslashreplace")
            memberships[row.object_id] = Membership(ObjectKind.ENTRY_SPOT, rid, 1)
        self._ask(
            write_owner(
                self._rows,
                effect.expected_version,
                effect.others,
                node.owner,
                self.plan.identity.relocation_id,
                memberships,
            )
        )

    def _open_dispatch(self, effect: effects.OpenDispatch) -> None:
        node = self._node
        for each in self._unit:
            each.settle(each.object_generation, each.owner_generation + 1, node.run, node.lease_generation)
            each.noticed = None
        self._settle()
        if not self._worker_gone:
            self._open(effect)
        elif self._lost is None:
            self._opening = effect
            self._wait_as_new()
        else:
            self._lost_with_worker(effect)

    def _open(self, effect: effects.OpenDispatch) -> None:
        node, held = self._node, self.held
        waited = self._take_again()
        taken = TakenRequests(node, self._unit, self._wire.identity, self._worker, self._requests)
        answer = node.pool.call(
            self._worker,
            lambda call: OpenObject(call, held.key, held.owner_generation, self.number),
        )
        for body in effect.relay:
            header = parse_record_header(body)
            if not header.flags & FLAG_MARKER:
                taken.add(body, header)
                staged = header._replace(flags=header.flags | STAGED)
                node.router.into(self._participant(header.key), body, staged, None, None)
        for body in effect.queue:
            header = parse_record_header(body)
            found = self._find(header.key)
            if found is None:  # inherited from an attempt whose unit had more (B8.16)
                self._deliver(effects.DeliverRecords((body,)))
            elif not header.flags & FLAG_MARKER:
                if header.flags & FLAG_FOLLOW:
                    taken.add(body, header)
                node.router.into(found, body, header, None, None)
        taken.tell()
        self._deliver_waited(waited)
        self._ask(self._opened(answer))

    def _lost_with_worker(self, effect: effects.OpenDispatch) -> None:
        """This node owns the object, its worker has ended, and it cannot be restored: it is lost (B6.6, B6.8)."""
        node = self._node
        for each in self._unit:
            if node.router.objects.get(each.key) is each:
                del node.router.objects[each.key]
            node.senders.left_here(each.key)
        error = lost_error(self.held.key)
        self._assembly.clear()
        self._work.take(self._requests, self._sends)
        self._work.fail(error)
        for body in (*effect.relay, *effect.queue):
            node.fail_record(body, parse_record_header(body), error)
        self._fail_waiting(error)
        node.count("objects_lost")
        self._ask(self._marked_lost(error))

    async def _marked_lost(self, error: SojournError) -> Event:
        await self._node.losses.mark_lost(self._unit)
        return events.DispatchOpenFailed(error)

    async def _opened(self, answer: Awaitable[Any]) -> Event:
        try:
            opened = await answer
            assert isinstance(opened, Opened)
            if opened.error is not None:
                raise error_from_fields(opened.error.kind, opened.error.fields)
        except SojournError as error:
            return events.DispatchOpenFailed(error)
        finally:
            self._assembly.clear()
        self._node.coordinator.times.tell(self, opened)
        return events.DispatchOpened()

    def _settle(self) -> None:
        """What was taken in here is the object's now, or nobody's."""
        self._let_go = True
        self.held.settle_debts(self._node.retention)

    def _commit_sessions(self, effect: effects.CommitSessions) -> None:
        """Command 44 to the owner of every session of the unit, as the rows name it (R4.6.4)."""
        for wire in wires_of(self.plan.identity, (row for row, _ in self._rows.present())):
            self._node.sessions.contact(wire, lambda _: None).commit()

    # removal ------------------------------------------------------------------------------------

    def _drop(self, effect: effects.DropTarget) -> None:
        node, held = self._node, self.held
        self._dropped = True
        if self._out is not None:
            self._out.stop()
        if (self._out is not None or self._counted) and not self._worker_gone:
            node.pool.control(self._worker, DropObject(held.key, "", self.number, effect.end_work))
        elif effect.end_work:
            self._work.take(self._requests, self._sends)
            self._end_work(effects.EndWork("Unavailable", "no"))
        if effect.keep_work:
            self._work.take(self._requests, self._sends)
            self._work.retain()
        if self._counted:
            self._counted = False
            if not effect.end_work and not self._worker_gone:
                node.ledger.left(self._worker, self.messages)
            node.count_object(self._worker, -len(self._unit))
        self._assembly.clear()
        self._settle()
        direct = list(effect.direct)
        if effect.end_work:
            self._fail_held(effects.FailHeld(effect.relay, "Unavailable"))
        self._dispose(direct, effect.disposal)

    def _end_work(self, effect: effects.EndWork) -> None:
        name = describe_key(self.held.key)
        error = ERROR_KINDS[effect.kind](
            f"{name} took the message along in its relocation to this node, which did not end well",
            object_id=name,
            phase=self.machine.phase,
            applied=effect.applied,
        )
        if effect.applied == "unknown":
            self._work.doubt(error)
        else:
            self._work.fail(error, requests=effect.requests)

    def _mark_lost(self, effect: effects.MarkLost) -> None:
        """The row turned out to name this run, and nothing of the object is here (B6.8)."""
        self._node.count("objects_lost", len(self._unit))
        self._ask(lose_unit(self._rows, effect.version, effect.others))

    def close(self) -> None:
        """See `HandoffDriver`. Nobody will read the row any more: what was in doubt stays so."""
        name = describe_key(self.held.key)
        text = f"the node of {name} stopped before it was known whether the object had moved to it"
        self._work.fail(ShuttingDown(text, object_id=name, applied="unknown"), sends=False)
        super().close()

    def _dispose(self, direct: list[bytes], disposal: DirectDisposal) -> None:
        """What came here directly: followed to the source in order and before the local route goes back,
        handed over, or ended (B8.15, B8.16)."""
        node, held = self._node, self.held
        markers, self._early_markers = self._early_markers, []
        if disposal is DirectDisposal.HAND_OVER and self.heir is not None:
            self._unstage([each for each in self._unit if not self.heir.will_stage(each.key)])
            whole = self.heir.will_stage(held.key)
            for body in (*direct, *markers):
                header = parse_record_header(body)
                if not whole and not self.heir.will_stage(header.key):
                    node.coordinator.following.send_followed(held, body, self.plan.identity.source)
                elif header.flags & FLAG_MARKER:
                    self.heir.marker_arrived(body, header)
                else:
                    self.heir.handle(events.DirectArrived(body))
            return
        if disposal is DirectDisposal.FOLLOW_TO_SOURCE:
            for body in (*direct, *markers):
                node.coordinator.following.send_followed(held, body, self.plan.identity.source)
            return  # `InstallFollowRoute` comes next
        self._fail_held(effects.FailHeld((*direct, *markers), "Unavailable"))
        self._unstage(self._unit)

    def _unstage(self, objects: Sequence[LocalObject]) -> None:
        node = self._node
        for each in objects:
            node.senders.left_here(each.key)
            if node.router.objects.get(each.key) is each:
                del node.router.objects[each.key]
                self._put_back(each.key)

    def _put_back(self, key: ObjectKey) -> None:
        """What this node followed before the staging it follows again, if its time is not over.

        What was being made here is not put back: its records came into the staging and ended with it, and its creation
        finds that it is not wanted any more. Nor is what ran here: it has been dropped.
        """
        node, previous = self._node, self._previous.get(key)
        if previous is None:
            return
        if previous.place is Place.SOURCE and not getattr(previous.staging, "forgotten", True):
            node.router.objects[previous.key] = previous
        elif previous.place is Place.FOLLOW and previous.follow_run is not None:
            node.router.objects[previous.key] = previous
            node.install_follow(previous, previous.follow_run)

    def _send_follow(self, effect: effects.SendFollow) -> None:
        for body in effect.records:
            self._node.coordinator.following.send_followed(self.held, body, effect.run)

    def _install_follow(self, effect: effects.InstallFollowRoute) -> None:
        for each in self._unit:
            # A target that gave up follows to the source, whose generation it need not know.
            self._node.coordinator.following.install(each, effect.run, effect.owner_generation, effect.run)

    def _remove_follow(self, effect: effects.RemoveFollowRoute) -> None:
        objects = self._node.router.objects
        for each in self._unit:
            if objects.get(each.key) is each and each.place is Place.FOLLOW:
                del objects[each.key]

    def _deliver(self, effect: effects.DeliverRecords) -> None:
        for body in effect.records:
            header = parse_record_header(body)
            if header.flags & FLAG_MARKER:
                continue
            current = self._node.router.objects.get(header.key)
            if current is None:
                self._node.senders.submit(body, header, None)
            else:
                self._node.router.to_object(current, body, header, None, self.plan.identity.source)

    def _fail_held(self, effect: effects.FailHeld) -> None:
        self._fail_records(effect.records, effect.kind, "its relocation to this node ended")

    def _forget(self, effect: effects.ForgetHandoff) -> None:
        self.forgotten = True
        self._arm()
        self._node.coordinator.target_forgotten(self)
