"""The worker's part of a move: seal and capture at the source, assembly and restore at the target.

Owns the answers to `Seal`, `Unseal`, `Restore` and the bulk frames around them. Everything that decides a
move happens elsewhere; here an object only stops, is encoded, is decoded, and goes on where it is told to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sojourn.control import (
    AwaitBoundary,
    BoundaryReached,
    Captured,
    DropObject,
    ErrorBody,
    Restore,
    Restored,
    SavedRequest,
    Seal,
    SealRefused,
    UnitMember,
    Unseal,
)
from sojourn.errors import (
    DeadlineExceeded,
    InvalidOperation,
    NotFound,
    ProtocolError,
    SojournError,
    Unavailable,
)
from sojourn.ids import ObjectKind, describe_key
from sojourn.spots.arrival import Arrival
from sojourn.spots.capture import CapturedObject, capture, restore, saved_messages
from sojourn.spots.cell import Cell, Phase
from sojourn.spots.failures import failure_of
from sojourn.spots.groups import in_unit_order, join_turn
from sojourn.spots.state import Buffer
from sojourn.wire.checksum import checksum

if TYPE_CHECKING:
    from sojourn.ids import ObjectKey
    from sojourn.spots.host import ObjectHost

__all__ = ["CHECKED_OCTETS", "Moving"]

CHECKED_OCTETS = 4 * 1024 * 1024
"""What is checked in one turn of the loop, some 500 µs."""


class _Assembly(NamedTuple):
    """An envelope on its way in (R4.3.2)."""

    message: Restore
    cell: Cell
    arrival: Arrival


class Moving:
    """Seals, captures and restores the objects of one host."""

    def __init__(self, host: ObjectHost) -> None:
        self._host = host
        self._assemblies: dict[int, _Assembly] = {}
        self._reopening: dict[ObjectKey, Seal | None] = {}
        """Objects that came back from a move and wait for their state to have left, with the next move's seal."""

    # source

    def await_boundary(self, message: AwaitBoundary) -> None:
        """Answer as soon as no turn of the object runs (B8.12)."""
        cell = self._host.cells.get(message.key)
        if cell is None or cell.running is None:
            self._host.port.submit_control(BoundaryReached(message.call))
        elif cell.boundary is None:
            cell.boundary = [message.call]
        else:
            cell.boundary.append(message.call)

    def boundary_reached(self, cell: Cell) -> None:
        """The turn that was waited for has ended."""
        calls, cell.boundary = cell.boundary or [], None
        for call in calls:
            self._host.port.submit_control(BoundaryReached(call))

    def seal(self, message: Seal) -> None:
        """Stop an object at its next turn boundary and capture it."""
        if message.key in self._reopening:
            # The move before failed a moment ago and its source tries the next target.
            self._reopening[message.key] = message
            return
        cell = self._host.cells.get(message.key)
        try:
            self._check_seal(cell, message)
        except SojournError as error:
            self._refuse(message, error)
            return
        assert cell is not None
        cell.seal = message
        cell.phase = Phase.SEALING
        if cell.running is None:
            self.capture(cell)
        elif message.wait_ms:
            clock = self._host.clock
            clock.call_at(clock.monotonic() + message.wait_ms / 1000, lambda: self._give_up(cell, message))

    def _give_up(self, cell: Cell, message: Seal) -> None:
        """The running turn outlasts the move: the object serves on, whoever asked for the move is told (B8.2)."""
        if cell.seal is not message or cell.phase is not Phase.SEALING:
            return
        cell.seal = None
        cell.phase = Phase.OPEN
        running = "a turn" if cell.running is None else cell.running.name
        self._refuse(
            message,
            DeadlineExceeded(
                f"{running} of {describe_key(cell.key)} did not end before the deadline of the move",
                object_id=describe_key(cell.key),
            ),
        )

    @staticmethod
    def _check_seal(cell: Cell | None, message: Seal) -> None:
        name = describe_key(message.key)
        if cell is None:
            raise NotFound(f"{name} is not in this worker", object_id=name)
        if cell.phase is not Phase.OPEN:
            raise InvalidOperation(f"{name} cannot be sealed: it is {cell.phase.name}", object_id=name)
        if cell.type.policy == "disabled":
            raise InvalidOperation(
                f"{name}: objects of type {cell.type.stable_type} never move", phase="RelocationDisabled"
            )
        if message.object_generation != cell.object_generation:
            raise InvalidOperation(f"{name} is another incarnation", object_id=name)
        group = cell.group
        if group is None and not message.members:
            return
        if group is not None and group.lead is not cell:
            raise InvalidOperation(
                f"{name} moves with {describe_key(group.lead.key)}, whose turn it shares", object_id=name
            )
        members = {} if group is None else group.members
        named = {member.key: member.object_generation for member in message.members}
        if named != {member.key: member.object_generation for member in members.values()}:
            raise InvalidOperation(f"the members of {name} changed since its row was read", object_id=name)
        disabled = [each for each in members.values() if each.type.policy == "disabled"]
        if disabled:
            raise InvalidOperation(
                f"{name} cannot move: {describe_key(disabled[0].key)} never moves", phase="RelocationDisabled"
            )

    def capture(self, cell: Cell) -> None:
        """Capture a sealed object between two turns and hand the envelope on."""
        message = cell.seal
        assert message is not None
        host = self._host
        sealed_ns = host.clock.monotonic_ns()
        jobs = cell.take_all()
        try:
            captured = capture(cell, message, jobs)
        except Exception as error:
            for job in jobs:
                cell.put(job)
            cell.seal = None
            host.making.open_dispatch(cell)
            typed = (
                error
                if isinstance(error, SojournError)
                else failure_of(error, "capture", describe_key(cell.key))
            )
            typed.phase = typed.phase or "capture"
            self._refuse(message, typed)
            return
        cell.phase = Phase.CAPTURED
        cell.captured = jobs
        host.acceptance.forget(jobs)
        if captured.length <= CHECKED_OCTETS:
            total = 0
            for piece in captured.pieces:
                total = checksum(piece, total)
            self._send_captured(cell, message, captured, sealed_ns, total)
        else:
            host.start_task(self._check_and_send(cell, message, captured, sealed_ns))

    async def _check_and_send(
        self, cell: Cell, message: Seal, captured: CapturedObject, sealed_ns: int
    ) -> None:
        """The checksum of much, in steps between which others have their turn. Nothing changes it any more."""
        total, room = 0, CHECKED_OCTETS
        for piece in captured.pieces:
            at = 0
            while at < len(piece):
                part = memoryview(piece)[at : at + room]
                total = checksum(part, total)
                at += len(part)
                room -= len(part)
                if not room:
                    room = CHECKED_OCTETS
                    await asyncio.sleep(0)
        self._send_captured(cell, message, captured, sealed_ns, total)

    def _send_captured(
        self, cell: Cell, message: Seal, captured: CapturedObject, sealed_ns: int, total: int
    ) -> None:
        self._host.port.submit_control(
            Captured(
                message.call,
                message.handoff,
                captured.length,
                total,
                sealed_ns,
                captured.records,
                captured.requests,
                captured.sends,
            )
        )
        self._send_bulk(cell, message, captured)

    def _send_bulk(self, cell: Cell, message: Seal, captured: CapturedObject) -> None:
        chunks = _chunks(captured.pieces, message.chunk_limit, captured.length)
        for last, chunk in chunks:
            self._host.port.submit_bulk(message.handoff, last, chunk)
            if not last and not self._host.port.bulk_room:
                self._host.start_task(self._send_rest(cell, message, chunks))
                return

    async def _send_rest(self, cell: Cell, message: Seal, chunks: Iterator[tuple[bool, Buffer]]) -> None:
        """What there is room for in each turn of the loop: messages of others get in between."""
        port = self._host.port
        for last, chunk in chunks:
            if not port.bulk_room:
                await port.wait_bulk_room()
            if cell.seal is not message:
                return  # the handoff ended, nobody waits for the rest
            port.submit_bulk(message.handoff, last, chunk)

    def _refuse(self, message: Seal, error: SojournError) -> None:
        self._host.port.submit_control(SealRefused(message.call, message.handoff, ErrorBody.of(error)))

    def unseal(self, message: Unseal) -> None:
        """Go on from the captured queue, in its order (R4.2.8)."""
        waiting = self._reopening.get(message.key)
        if waiting is not None and waiting.handoff == message.handoff:
            self._reopening[message.key] = None
            return
        cell = self._host.cells.get(message.key)
        if cell is None or cell.seal is None or cell.seal.handoff != message.handoff:
            return
        cell.seal = None
        if cell.phase is Phase.SEALING:
            cell.phase = Phase.OPEN  # it still waited for the running turn
            return
        for each in in_unit_order(cell):
            each.owner_generation += message.moved
        jobs, cell.captured = cell.captured or [], None
        for job in jobs + cell.take_all():
            cell.put(job)
        self._host.acceptance.remember(jobs)
        # Parts of the state may still be on their way out by reference: they must not change before they left.
        cell.phase = Phase.CLOSED
        self._reopening[cell.key] = None
        self._host.start_task(self._reopen(cell))

    async def _reopen(self, cell: Cell) -> None:
        try:
            await self._host.port.wait_written()
        finally:
            waiting = self._reopening.pop(cell.key)
        if cell.phase is Phase.CLOSED:
            self._host.making.open_dispatch(cell)
        if waiting is not None:
            self.seal(waiting)

    # target

    def restore(self, message: Restore) -> None:
        """Make room for an object that arrives; its bytes follow."""
        host = self._host
        try:
            record = host.app.find_type(ObjectKind(message.kind), message.stable_type)
            cell = host.making.new_cell(
                record, message.key, message.object_generation, message.owner_generation
            )
            cell.arrived = True
        except SojournError as error:
            self._restored(message, error)
            return
        for member in message.members:
            try:
                self._new_member(cell, member)
            except SojournError as error:
                host.making.abandon(cell, error)
                self._restored(message, error)
                return
        self._assemblies[message.handoff] = _Assembly(message, cell, Arrival(message.length))

    def _new_member(self, lead: Cell, member: UnitMember) -> None:
        making = self._host.making
        record = self._host.app.find_type(ObjectKind.ACTOR, member.stable_type)
        cell = making.new_cell(record, member.key, member.object_generation, member.owner_generation)
        cell.arrived = True
        join_turn(lead, cell)

    def bulk(self, handoff: int, last: bool, chunk: memoryview) -> None:
        """Take a part of an envelope; the last one says that the whole is right (R4.3.2)."""
        assembly = self._assemblies.get(handoff)
        if assembly is None:
            return  # dropped meanwhile
        try:
            assembly.arrival.take(chunk)
        except (
            OSError,
            MemoryError,
        ):  # its memory is taken with the first chunk, for the length that was announced
            del self._assemblies[handoff]
            name, octets = describe_key(assembly.cell.key), assembly.message.length
            error = Unavailable(f"worker {self._host.worker} has no memory for the {octets} bytes of {name}")
            self._fail(assembly.cell, assembly.message, error)
            return
        if last:
            del self._assemblies[handoff]
            self._build(assembly)

    def _build(self, assembly: _Assembly) -> None:
        cell, message, host = assembly.cell, assembly.message, self._host
        if assembly.arrival.filled != message.length:
            error = ProtocolError(
                f"{describe_key(cell.key)}: {assembly.arrival.filled} bytes arrived, {message.length} were announced"
            )
            self._fail(cell, message, error)
            return
        try:
            for each in in_unit_order(cell):
                host.making.make_instance(each, (), {}, arriving=True)
        except SojournError as error:
            self._fail(cell, message, error)
            return
        host.making.initialize(cell, lambda error: self._fill(assembly, error))

    def _fill(self, assembly: _Assembly, error: SojournError | None) -> None:
        cell, message, host = assembly.cell, assembly.message, self._host
        if cell.phase is Phase.GONE:
            self._restored(message, _dropped(message))
            return
        try:
            if error is not None:
                raise error
            for each in in_unit_order(cell):
                for timer in list((each.timers or {}).values()):
                    host.timers.end(timer)  # what `__init__` started came with the object already
            restore(cell, message, *assembly.arrival.finish())
        except Exception as failure:
            typed = (
                failure
                if isinstance(failure, SojournError)
                else failure_of(failure, "restore", describe_key(cell.key))
            )
            self._fail(cell, message, typed)
            return
        host.acceptance.remember(cell.queue or ())
        cell.phase = Phase.CLOSED
        self._restored(message, None, *saved_messages(cell))

    def _fail(self, cell: Cell, message: Restore, error: SojournError) -> None:
        self._host.making.abandon(cell, error)
        self._restored(message, error)

    def _restored(
        self,
        message: Restore,
        error: SojournError | None,
        requests: Sequence[SavedRequest] = (),
        sends: int = 0,
    ) -> None:
        told = None if error is None else ErrorBody.of(error)
        self._host.port.submit_control(Restored(message.call, message.handoff, told, list(requests), sends))

    def drop_assembly(self, message: DropObject) -> None:
        """Forget an arrival that will not be completed; who waits for it is told."""
        for handoff, assembly in list(self._assemblies.items()):
            if assembly.message.key == message.key and message.handoff in (0, handoff):
                del self._assemblies[handoff]
                self._restored(assembly.message, _dropped(assembly.message))


def _dropped(message: Restore) -> Unavailable:
    name = describe_key(message.key)
    return Unavailable(f"the arrival of {name} was given up", object_id=name, applied="no")


def _chunks(pieces: list[Buffer], limit: int, length: int) -> Iterator[tuple[bool, Buffer]]:
    """Cut pieces into chunks of exactly `limit` bytes, the last shorter; each with its last flag."""
    sent = 0
    parts: list[Buffer] = []
    room = limit
    for piece in pieces:
        view = memoryview(piece)
        at = 0
        while at < len(view):
            part = view[at : at + room]
            at += len(part)
            room -= len(part)
            parts.append(part)
            if room == 0:
                sent += limit
                yield sent == length, parts[0] if len(parts) == 1 else b"".join(parts)
                parts, room = [], limit
    if parts:
        yield True, b"".join(parts)
