"""Making and ending objects: instances, lifecycle callbacks, opening of dispatch (B2.1, B2.6).

Owns what happens around an object's life in this process. It must not know envelopes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sojourn.control import Created, CreateObject, DropObject, ErrorBody, Opened, OpenObject
from sojourn.errors import AlreadyExists, InternalFailure, NotFound, ShuttingDown, SojournError, Unavailable
from sojourn.ids import ObjectKey, ObjectKind, describe_key
from sojourn.spots.cell import Cell, Phase
from sojourn.spots.failures import contained, failure_of
from sojourn.spots.groups import dissolve, in_unit_order, lead_of
from sojourn.spots.jobs import HookCall, LocalCall, RecordCall
from sojourn.spots.objects import Spot

if TYPE_CHECKING:
    from sojourn.spots.app import ObjectType
    from sojourn.spots.host import ObjectHost
    from sojourn.spots.turns import Job

__all__ = ["Making"]


class Making:
    """Makes, opens and ends the objects of one host."""

    def __init__(self, host: ObjectHost) -> None:
        self._host = host
        self._failed: dict[ObjectKey, SojournError] = {}
        """What could not be made, until the supervisor drops it: records for it may already be on their way."""

    # made

    def create(self, message: CreateObject) -> None:
        """Make an object; answered by `Created`."""

        def done(error: SojournError | None) -> None:
            self._host.port.submit_control(
                Created(message.call, None if error is None else ErrorBody.of(error))
            )

        try:
            record = self._host.app.find_type(ObjectKind(message.kind), message.stable_type)
            cell = self.new_cell(record, message.key, message.object_generation, message.owner_generation)
        except SojournError as error:
            done(error)
            return
        try:
            args, kwargs = self._host.outbox.codec.decode_creation(
                record.stable_type, message.content_type, message.arguments
            )
            self.make_instance(cell, args, kwargs)
        except SojournError as error:
            self._not_made(cell, message.opened, error)
            done(error)
            return
        self.initialize(cell, lambda error: self._created(cell, message.opened, error, done))

    def new_cell(
        self, record: ObjectType, key: ObjectKey, object_generation: int, owner_generation: int
    ) -> Cell:
        """A cell that takes messages and runs nothing yet.

        Raises:
            AlreadyExists: there is one.
        """
        host = self._host
        if key in host.cells:
            raise AlreadyExists(f"{describe_key(key)} is already in this worker", object_id=describe_key(key))
        cell = Cell(host, record, key, object_generation, owner_generation)
        host.cells[key] = cell
        return cell

    def make_instance(
        self, cell: Cell, args: tuple[Any, ...], kwargs: dict[str, Any], arriving: bool = False
    ) -> None:
        """Run the class's `__new__` and `__init__`.

        An `arriving` object whose `__init__` needs arguments gets everything from its state instead, as with
        pickle.

        Raises:
            InternalFailure: they raised.
        """
        cls = cell.type.cls
        try:
            with contained():
                instance = cls.__new__(cls)
                instance._cell = cell
                cell.instance = instance
                if not arriving or cell.type.made_without_arguments:
                    instance.__init__(*args, **kwargs)  # type: ignore[misc]
        except Exception as error:
            raise failure_of(error, f"{cls.__name__}.__init__", describe_key(cell.key)) from error

    def initialize(self, cell: Cell, done: Callable[[SojournError | None], None]) -> None:
        """Run `on_initialize` of a Spot and call `done` with its failure or None."""
        instance = cell.instance
        if not isinstance(instance, Spot) or type(instance).on_initialize is Spot.on_initialize:
            done(None)
            return
        limit_s = self._host.settings.hook_deadline_ms / 1000
        self._host.scheduler.run(HookCall(cell, "on_initialize", instance.on_initialize(), limit_s, done))

    def _created(
        self,
        cell: Cell,
        opened: bool,
        error: SojournError | None,
        done: Callable[[SojournError | None], None],
    ) -> None:
        if error is None and cell.phase is Phase.GONE:
            error = Unavailable(f"{describe_key(cell.key)} was dropped while it was made", applied="no")
        if error is not None:
            self._not_made(cell, opened, error)
            done(error)
            return
        cell.phase = Phase.CLOSED
        self._host.timers.start_declared(cell)
        done(None)
        if opened:
            self.open_dispatch(cell)

    def open(self, message: OpenObject) -> None:
        """Open dispatch; answered by `Opened` when asked for, with an error when there is nothing to open."""
        host = self._host
        cell = host.cells.get(message.key)
        if cell is None or cell.phase is not Phase.CLOSED:
            host.log_warning("open_refused", object=describe_key(message.key), state=_phase_name(cell))
            if message.call:
                name = describe_key(message.key)
                error = InternalFailure(
                    f"{name} could not be opened in its worker: it is {_phase_name(cell)}", object_id=name
                )
                host.port.submit_control(Opened(message.call, message.handoff, 0, ErrorBody.of(error)))
            return
        cell.owner_generation = message.owner_generation
        if message.object_generation:
            cell.object_generation = message.object_generation
            cell.source = None
        had_work = cell.queue is not None
        first_turn_ns = host.clock.monotonic_ns()
        self.open_dispatch(cell)
        host.scheduler.run_now()
        if message.call:
            host.port.submit_control(Opened(message.call, message.handoff, first_turn_ns if had_work else 0))

    def open_dispatch(self, cell: Cell) -> None:
        """Let a cell take turns."""
        cell.phase = Phase.OPEN
        for each in in_unit_order(cell):
            self._host.timers.resume(each)
        self._host.scheduler.ready(cell)

    # ended

    def drop(self, message: DropObject) -> None:
        """Forget an object, after its closing callback where the reason calls for one (B2.6)."""
        self._failed.pop(message.key, None)
        cell = self._host.cells.get(message.key)
        if cell is None or cell.phase >= Phase.ENDING:
            return
        if lead_of(cell) is not cell:  # it ends with the Spot whose turn it shares
            self._host.log_warning("drop_refused", object=describe_key(cell.key), state="in a group")
            return
        if cell.running is not None and cell.phase is not Phase.MAKING:
            cell.closing = message  # after the running turn
            cell.phase = Phase.SEALING
            return
        self.end(cell, message.reason, end_work=message.end_work)

    def end(self, cell: Cell, reason: str, *, end_work: bool = False) -> None:
        """End an object between two turns: closing callback, then nothing of it is left here."""
        unborn = cell.phase is Phase.MAKING or not reason
        if cell.arrived and cell.phase < Phase.OPEN and not end_work:
            self._let_go(cell)
        cell.phase = Phase.ENDING
        if unborn:
            if cell.running is not None:
                cell.running.stop(_dropped(cell, reason))
            self.forget(cell, reason)
            return
        self.close_instance(cell, reason, lambda: self.forget(cell, reason))

    def close_instance(self, cell: Cell, reason: str, done: Callable[[], None]) -> None:
        """Run `on_closing` of a Spot; a failure is logged and changes nothing."""
        instance = cell.instance
        if not isinstance(instance, Spot) or type(instance).on_closing is Spot.on_closing:
            done()
            return
        host = self._host
        limit_s = host.settings.hook_deadline_ms / 1000

        def over(error: SojournError | None) -> None:
            if error is not None:
                host.log_warning("on_closing_failed", object=describe_key(cell.key), error=str(error))
            done()

        coroutine = instance.on_closing(reason, host.clock.monotonic() + limit_s)
        host.scheduler.run(HookCall(cell, "on_closing", coroutine, limit_s, over))

    def forget(self, cell: Cell, reason: str) -> None:
        """Take a cell out of the host and end what still waits in it."""
        self._gone(cell)
        error = _dropped(cell, reason)
        captured, cell.captured = cell.captured, None
        for job in captured or ():
            if isinstance(job, RecordCall):
                job.give_back()
            elif isinstance(job, LocalCall) and reason != "RelocationOut":
                job.refuse(type(error)(**error.fields()))  # the node counts what was captured (B3.5)
        for job in cell.take_all():
            self._refuse(job, error)

    def _let_go(self, cell: Cell) -> None:
        """An arrival that never opened: its saved work belongs to the source, which may run it (B8.15)."""
        jobs = cell.take_all()
        self._host.acceptance.forget(jobs)
        for job in jobs:
            if isinstance(job, RecordCall):
                job.give_back()
            else:
                cell.put(job)

    def _gone(self, cell: Cell) -> None:
        """Take an object, and the members that share its turn, out of the host."""
        cell.phase = Phase.GONE
        for each in (cell, *dissolve(cell)):
            self._host.forgotten(each)
            self._end_timers(each)

    def _end_timers(self, cell: Cell) -> None:
        for timer in list((cell.timers or {}).values()):
            self._host.timers.end(timer)

    def _not_made(self, cell: Cell, opened: bool, error: SojournError) -> None:
        if opened:
            self._failed[cell.key] = error
        self.abandon(cell, error)

    def missing(self, key: ObjectKey) -> SojournError:
        """Why an object is not here: it could not be made, or nobody knows it."""
        name = describe_key(key)
        error = self._failed.get(key)
        if error is None:
            return NotFound(f"{name} is not in this worker", object_id=name)
        return type(error)(**error.fields())

    def abandon(self, cell: Cell, error: SojournError) -> None:
        """Drop an object that could not be made; what waits for it gets the same error."""
        if cell.arrived:
            self._let_go(cell)
        self._gone(cell)
        for job in cell.take_all():
            self._refuse(job, error)

    def _refuse(self, job: Job, error: SojournError) -> None:
        if isinstance(job, RecordCall):
            job.give_back()
            job.answer_error(error)
            self._host.dead_letter(job.cell.key, job.name, error.kind)
        elif isinstance(job, LocalCall):
            self._host.dead_letter(job.cell.key, job.name, error.kind)
            job.refuse(type(error)(**error.fields()))


def _dropped(cell: Cell, reason: str) -> SojournError:
    name = describe_key(cell.key)
    if reason == "HostShutdown":
        return ShuttingDown(f"{name} was closed with its node before this message ran", object_id=name)
    if not reason:
        return Unavailable(f"{name} was given up here before this message ran", object_id=name, applied="no")
    return NotFound(f"{name} was closed before this message ran", object_id=name)


def _phase_name(cell: Cell | None) -> str:
    return "missing" if cell is None else cell.phase.name
