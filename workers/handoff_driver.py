"""What the drivers of both sides of a handoff share: the machine, its timer, its waiting tasks, its log.

Owns how effects are carried out, in order and without an `await` between `handle` and its effects. It must
not know which side it drives; every rule of order and recovery is the machine's (`sojourn.handoff`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sojourn.control import OpenRequest, Restore, Restored, SavedRequest, UnitMember
from sojourn.errors import ERROR_KINDS, InternalFailure, SojournError, Unavailable, error_from_fields
from sojourn.frames import parse_record_header
from sojourn.handoff.machine import NO_STORY, DeadlineReached, Effect, Event, IllegalTransition, Log, Machine
from sojourn.handoff.terms import HandoffIdentity
from sojourn.ids import describe_key
from sojourn.workers.bulk_out import BulkOut
from sojourn.workers.handoff_wire import HandoffWire
from sojourn.workers.link import Link
from sojourn.workers.named_work import end_requests
from sojourn.workers.objects import Arrival, LocalObject, Place

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["HandoffDriver", "relocation_name"]


RESTORES_MAX = 3
"""So many workers may end while they restore an object before it is given up: perhaps it ends them."""
MachineT = TypeVar("MachineT", bound=Machine)


class HandoffDriver(Generic[MachineT]):
    """One handoff at one of its two nodes. A subclass says in `_steps` what carries out each effect.

    Attributes:
        machine: decides; never touched by anything but `handle`.
        held: the object, as this node knows it.
        number: the handoff's number between this supervisor and its workers.
        frames: the attempt's frames on the link, as far as they are the same every time.
        forgotten: nothing is left to do; whatever still comes is not heard.
        is_over: only its identity is remembered, and a route may be left.
    """

    __slots__ = (
        "_identity",
        "_link",
        "_node",
        "_steps",
        "_timer",
        "_timer_at",
        "_unit",
        "_wire",
        "_worker",
        "_worker_gone",
        "forgotten",
        "frames",
        "held",
        "is_over",
        "machine",
        "number",
    )

    def __init__(
        self,
        node: Supervisor,
        held: LocalObject,
        number: int,
        identity: HandoffIdentity,
        wire: HandoffWire,
        machine: MachineT,
    ) -> None:
        self._node = node
        self.machine = machine
        self.held = held
        self.number = number
        self.forgotten = False
        self.is_over = False
        self._unit: list[LocalObject] = [held]
        """The participants, the unit's own object first."""
        self._identity = identity
        self._wire = wire
        self.frames = wire.frames
        self._link: Link | None = None
        self._worker = held.worker
        self._worker_gone = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._steps: Mapping[type[Effect], Callable[[Any], None]] = {}

    # machine ------------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Give the machine one event and carry out what it says, in order."""
        if self.forgotten:
            return
        machine, carriers = self.machine, self._steps
        phase = machine.phase
        try:
            steps = machine.handle(event, self._node.loop.time())
        except IllegalTransition as bug:  # a bug of ours: told with its story, and nobody waits for its end
            self._node.log("illegal_transition", "error", story=bug.message)
            self._broken(bug)
            return
        try:
            for effect in steps:
                carriers[type(effect)](effect)
        finally:
            self._arm()  # whatever one of them met: without its timer a handoff would never end
        if machine.phase != phase and self._node.logger.isEnabledFor(logging.DEBUG):
            self._log(Log("relocation_phase", "debug", {"phase": str(machine.phase)}))
        self._stepped()

    def _broken(self, bug: IllegalTransition) -> None:
        """The machine met what its table does not list; it is given nothing that depends on this event."""

    def _stepped(self) -> None:
        """Every effect of one event was carried out."""

    def _over(self, late: Iterable[type[Effect]]) -> None:
        """Only news of an identity that is over still come, for a minute and more: keep what those need, the effects
        named in `late` and the machine's state (B8.4, B8.6). Thousands of moves may have ended within that time."""
        self._steps = {kind: self._steps[kind] for kind in late}
        self.machine.story = NO_STORY
        self.is_over = True

    def _arm(self) -> None:
        deadline = None if self.forgotten else self.machine.deadline
        if self._timer is not None:
            if deadline == self._timer_at:
                return
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            self._timer_at = deadline
            self._timer = self._node.loop.call_at(deadline, self._deadline)

    def _deadline(self) -> None:
        self._timer = None
        self.handle(DeadlineReached())

    def close(self) -> None:
        """The node stops: hear and do nothing more."""
        self.forgotten = True
        self._arm()

    def _ask(self, work: Awaitable[Event]) -> None:
        """Run what waits as one task that reports exactly one event."""

        async def report() -> None:
            self.handle(await work)

        self._node.start(report())

    # shared steps -------------------------------------------------------------------------------

    def _link_of(self, connection: int) -> Link | None:
        """The link the machine means, if it still stands."""
        link = self._link
        return link if link is not None and link.connection_id == connection and not link.closing else None

    def _begin_restore(
        self,
        worker: int,
        object_generation: int,
        owner_generation: int,
        octets: int,
        members: tuple[UnitMember, ...],
    ) -> asyncio.Future[Any]:
        """Have a worker build the object, and the members that share its turn, from the payload that follows;
        ends as `Restored`."""
        held = self.held
        return self._node.pool.call(
            worker,
            lambda call: Restore(
                call,
                held.key,
                self.number,
                held.kind,
                held.stable_type,
                object_generation,
                owner_generation,
                octets,
                members,
            ),
        )

    async def _restore_elsewhere(
        self,
        object_generation: int,
        owner_generation: int,
        chunks: Callable[[], Iterable[bytes | memoryview]],
        wanted: Callable[[], bool],
        members: tuple[UnitMember, ...],
    ) -> tuple[int, Restored]:
        """Build the object in another worker of this node: its own ended, the payload is still whole here (B6.6).

        Returns:
            The worker and its answer, at a moment at which the worker is alive.

        Raises:
            Unavailable: no worker became ready in time, or the object is not `wanted` any more.
            SojournError: what the restore ended in.
        """
        node = self._node
        for _ in range(RESTORES_MAX):
            worker = await node.creation.worker_for_new()
            if not wanted():
                raise Unavailable("it is not needed any more", applied="no")
            lane = node.lanes[worker]
            octets = sum(map(len, chunks()))
            answer = self._begin_restore(worker, object_generation, owner_generation, octets, members)
            out = BulkOut(node.pool, worker, self.number, node.start)
            for chunk in chunks():
                out.put(chunk)
            out.end()
            try:
                result = await answer
            except Unavailable:
                out.stop()
                continue  # that worker ended too
            assert isinstance(result, Restored)
            if result.error is not None:
                raise error_from_fields(result.error.kind, result.error.fields)
            if node.lanes.get(worker) is lane and worker in node.object_counts:
                node.ledger.arrived(worker, result.messages)
                return worker, result
        raise InternalFailure(f"{RESTORES_MAX} workers ended while they restored it")

    def _wait_as_new(self) -> None:
        """Records for the unit wait until it stands in a worker again, as for one that is being made."""
        for each in self._unit:
            each.place = Place.CREATING
            each.waiting = []

    def _take_again(self) -> list[tuple[LocalObject, Arrival]]:
        """The unit takes records again. Returns what waited, to be delivered behind what comes first."""
        waited: list[tuple[LocalObject, Arrival]] = []
        for each in self._unit:
            each.place = Place.ACTIVE
            each.staging = None
            waiting, each.waiting = each.waiting, None
            waited += [(each, arrival) for arrival in waiting or ()]
        return waited

    def _deliver_waited(self, waited: Iterable[tuple[LocalObject, Arrival]]) -> None:
        for each, (body, header, debt) in waited:
            self._node.router.to_object(each, body, header, debt, None)

    def _fail_waiting(self, error: SojournError) -> None:
        """The unit does not come back: what waited for it ends."""
        for each in self._unit:
            waiting, each.waiting = each.waiting, None
            for body, header, debt in waiting or ():
                if debt is not None:
                    debt.settle()
                self._node.fail_record(body, header, error)

    def _fail_records(self, records: Iterable[bytes], kind: str, why: str) -> None:
        """Answer what nobody handled with a typed error; `why` says what became of the relocation."""
        name = describe_key(self.held.key)
        for body in records:
            error = ERROR_KINDS.get(kind, InternalFailure)(
                f"{name} could not take the message: {why}",
                object_id=name,
                phase=self.machine.phase,
                applied="no",
            )
            self._node.fail_record(body, parse_record_header(body), error)

    def _end_requests(self, requests: Iterable[OpenRequest | SavedRequest], error: SojournError) -> None:
        """Answer requests that nobody will run any more; who has its reply already drops this one."""
        end_requests(self._node, requests, error)

    def _log(self, effect: Log) -> None:
        fields = {name: value for name, value in effect.fields.items() if name != "relocation_id"}
        self._node.log(
            effect.name,
            effect.level,
            object_id=describe_key(self.held.key),
            relocation_id=relocation_name(self._identity.relocation_id),
            **fields,
        )


def relocation_name(relocation: tuple[int, int]) -> str:
    """A RelocationId as logs show it."""
    return f"{relocation[0]:016x}{relocation[1]:016x}"
