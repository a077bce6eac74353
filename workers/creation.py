"""Making objects: Instance Spots by their first message, Actors by an explicit call (B2.1, B2.2).

Owns the way from "nobody has this object" to an open object in a worker, and what the records that
came meanwhile get when it does not work out. Store rows are the directory's business, dispatch the
worker's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from sojourn.control import CreateObject, DropObject, OpenObject, RegistryEntry
from sojourn.errors import (
    AlreadyExists,
    NotConfigured,
    NotFound,
    Rejected,
    SojournError,
    Unavailable,
)
from sojourn.frames import FLAG_INTENT, RecordHeader
from sojourn.ids import ObjectKey, ObjectKind, describe_key
from sojourn.workers.cold import ColdActivation
from sojourn.workers.debt import Debt
from sojourn.workers.directory import CreatedRow, OwnedElsewhere
from sojourn.workers.entry_spot import NodeEntrySpot, creation_failure
from sojourn.workers.objects import LocalObject, Place
from sojourn.workers.router import lost_error
from sojourn.workers.waiters import Waiters

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["WORKER_WAIT_S", "Creation"]

WORKER_WAIT_S = 10.0
"""How long a new object waits for a worker while none is ready: all have ended and are being replaced."""


class Creation:
    """Every creation under way on one node."""

    def __init__(self, node: Supervisor) -> None:
        self._node = node
        self._next_worker = 0
        self.entry_spot = NodeEntrySpot(node)
        self._waiters = Waiters()
        self._outcomes: dict[LocalObject, Waiters] = {}
        """Who waits for the end of what makes, or looks for, an object."""

    # workers ------------------------------------------------------------------------------------

    def worker_ready(self, worker: int) -> None:
        """A worker was welcomed. One in the place of the Entry Spot's makes it anew (B1.4)."""
        self._waiters.wake()
        self.entry_spot.worker_ready(worker)

    async def wait_ready(self, ready: Callable[[], bool]) -> bool:
        """Wait until `ready()`, asked whenever a worker came, for `WORKER_WAIT_S`. False: it did not come."""
        if ready():
            return True
        try:
            async with asyncio.timeout(WORKER_WAIT_S):
                while not ready():
                    await self._waiters.wait()
        except TimeoutError:
            return False
        return True

    async def worker_for_new(self) -> int:
        """The slot for a new object, as `pick_worker`; while no worker is ready, that of the first to come.

        Raises:
            Unavailable: none was ready within `WORKER_WAIT_S`.
        """
        await self.wait_ready(lambda: bool(self._node.object_counts))
        return self.pick_worker()

    def pick_worker(self) -> int:
        """The slot for a new object: the ready worker that holds the fewest.

        Raises:
            Unavailable: no worker is ready.
        """
        counts = self._node.object_counts
        ready = [slot for slot in self._node.lanes if slot in counts]
        if not ready:
            raise Unavailable("no worker of this node is ready", applied="no")
        self._next_worker += 1
        start = self._next_worker % len(ready)
        return min(ready[start:] + ready[:start], key=counts.__getitem__)

    def registered(self, stable_type: str, kind: int) -> RegistryEntry:
        """What the application registered under a stable type.

        Raises:
            NotConfigured: nothing, or something of another kind.
        """
        entry = self._node.registry.get(stable_type)
        if entry is None or entry.kind != kind:
            known = ", ".join(sorted(self._node.registry)) or "none"
            raise NotConfigured(
                f"this node's application has no {ObjectKind(kind).name.lower()} type {stable_type!r} "
                f"(registered: {known})"
            )
        return entry

    # first message ------------------------------------------------------------------------------

    def first_record(self, body: bytes, header: RecordHeader, debt: Debt | None) -> None:
        """A record for an object this node does not hold: make it, or find out who has it."""
        held = LocalObject(header.key, header.object_kind, header.stable_type.decode(), Place.CREATING)
        held.waiting = [(body, header, debt)]
        self._node.router.objects[header.key] = held
        self._node.start(self._settle(held, header))

    async def _settle(self, held: LocalObject, header: RecordHeader) -> None:
        """Find out what the object is, and act on it; a move to this node may have taken its place meanwhile."""
        try:
            await self._find_out(held, header)
        finally:
            self._outcome_known(held)

    async def _find_out(self, held: LocalObject, header: RecordHeader) -> None:
        node = self._node
        wanted = bool(header.flags & FLAG_INTENT)
        cold: ColdActivation | None = None
        try:
            entry = self.registered(held.stable_type, held.kind) if wanted else None
            outcome: CreatedRow | OwnedElsewhere | None
            if entry is not None and node.takes_new_objects:
                cold = ColdActivation(node.cold, held)
                outcome = await self._create(held, entry, cold)
            else:
                found = await node.directory.owner_of(held.key)
                again = wanted and (found is None or found.lost)
                outcome = await self._elsewhere(held, header) if again else found
        except SojournError as error:
            if self._present(held):
                self._give_up(held, error)
            return
        if not self._present(held):
            return
        if isinstance(outcome, CreatedRow):
            assert entry is not None
            assert cold is not None
            cold.queue(held)
            await self._make(held, entry, outcome)
        elif outcome is None:
            name = describe_key(held.key)
            self._give_up(held, NotFound(f"{name} does not exist", object_id=name))
        elif outcome.lost or outcome.run == node.run:
            self._give_up(held, await self._lost_here(held, outcome))
        else:
            await self._pass_on(held, outcome)

    def _present(self, held: LocalObject) -> bool:
        return self._node.router.objects.get(held.key) is held

    async def _create(
        self, held: LocalObject, entry: RegistryEntry, cold: ColdActivation | None = None
    ) -> CreatedRow | OwnedElsewhere:
        """Become the owner; a row that names this run although the object is not here is lost first (B6.8)."""
        directory = self._node.directory
        beside = None if cold is None else cold.beside
        outcome = await directory.create(held.key, entry, beside)
        if isinstance(outcome, OwnedElsewhere) and outcome.run == self._node.run and self._present(held):
            found = await directory.read(held.key)
            if found is None or found.row.owner == self._node.owner:
                if found is not None and await directory.lose(found):
                    self._node.log("object_lost", "error", object_id=describe_key(held.key))
                outcome = await directory.create(held.key, entry, beside)
        return outcome

    async def _elsewhere(self, held: LocalObject, header: RecordHeader) -> OwnedElsewhere:
        """This node takes nothing new: choose another for the object, as its sender would have."""
        route = await self._node.resolve(held.key, header)
        return OwnedElsewhere(route.run, held.kind, 0, 0, b"", lost=False)

    async def _lost_here(self, held: LocalObject, owner: OwnedElsewhere) -> SojournError:
        """The row is lost, or names this run for an object that is not here (B6.8). What to say of it: a store
        that does not help now leaves the mark to the next message."""
        try:
            if not owner.lost:
                found = await self._node.directory.read(held.key)
                if found is not None and found.row.owner == self._node.owner and self._present(held):
                    await self._node.directory.lose(found)
        except SojournError as error:
            return error
        return lost_error(held.key)

    async def _make(self, held: LocalObject, entry: RegistryEntry, row: CreatedRow) -> None:
        node = self._node
        try:
            held.worker = await self.worker_for_new()
        except SojournError as none_ready:
            try:  # the row first: whoever asks next finds nothing that names this node
                await node.directory.remove(held.key, row.version)
            finally:
                held.object_generation = row.object_generation
                node.cold.forget(held)
                if self._present(held):
                    self._give_up(held, none_ready)
            return
        if not self._present(held):
            return
        held.policy = entry.policy
        held.stable_type = entry.stable_type  # one text for all objects of a type
        held.settle(row.object_generation, row.owner_generation, node.run, node.lease_generation)
        answer = node.pool.call(
            held.worker,
            lambda call: CreateObject(
                call,
                held.key,
                held.kind,
                held.stable_type,
                row.object_generation,
                row.owner_generation,
                opened=True,
            ),
        )
        # The IPC keeps order: records may follow at once and wait in the mailbox until the instance stands.
        self._open(held)
        error = await creation_failure(answer)
        if error is not None:
            await self._unmake(held, row, error)

    async def _unmake(self, held: LocalObject, row: CreatedRow, error: SojournError) -> None:
        """It did not come to be: what comes for it before its row is gone ends with the same error."""
        node = self._node
        if self._present(held):  # else its worker ended, and took it out
            node.count_object(held.worker, -1)
            node.lanes[held.worker].deliver_ordered(node.pool.encode(DropObject(held.key, "")))
            held.place = Place.CREATING
            held.waiting = []
        keep_first = held.cold is not None and not self._present(held)
        try:
            if keep_first:  # its worker ended with a first message: a lost row leads to its record (B7.1)
                found = await node.directory.read(held.key)
                if found is not None and found.version == row.version:
                    await node.directory.lose(found)
                return
            await node.directory.remove(held.key, row.version)
        except SojournError as failure:
            node.log("row_left_behind", "warning", object_id=describe_key(held.key), error=str(failure))
        node.cold.forget(held)
        if self._present(held):
            self._give_up(held, error)

    def _open(self, held: LocalObject) -> None:
        held.place = Place.ACTIVE
        self._node.count_object(held.worker, +1)
        self._drain(held)

    def _drain(self, held: LocalObject, into: LocalObject | None = None) -> None:
        waiting, held.waiting = held.waiting or [], None
        for body, header, debt in waiting:
            self._node.router.to_object(into or held, body, header, debt, None)

    async def _pass_on(self, held: LocalObject, owner: OwnedElsewhere) -> None:
        """Another node has it: what came here is followed there, in order; the entry stays for a while."""
        try:
            await self._node.connect(owner.run)
        except SojournError as error:
            if self._present(held):
                self._give_up(held, error)
            return
        if not self._present(held):
            return
        held.object_generation = owner.object_generation
        held.owner_generation = owner.owner_generation
        held.fence = owner.fence
        self._node.install_follow(held, owner.run)
        self._drain(held)

    def _give_up(self, held: LocalObject, error: SojournError) -> None:
        node = self._node
        if self._present(held):  # else a move to this node took its place
            del node.router.objects[held.key]
        waiting, held.waiting = held.waiting or [], None
        for body, header, debt in waiting:
            if debt is not None:
                debt.settle()
            node.fail_record(body, header, error)

    # explicit creation --------------------------------------------------------------------------

    async def create_actor(
        self, key: ObjectKey, stable_type: str, content_type: str, arguments: bytes
    ) -> dict[str, int]:
        """Make an Actor in this node's Entry Spot (B2.2): factory, admission, then the row.

        While the same id is being made or looked for here already, that is waited for: what it comes to decides.

        Raises:
            AlreadyExists: an object with this id is alive.
            Rejected: the Entry Spot said no.
            Unavailable: the owner of the id died and its lease is not over, or this node takes nothing new.
            NotConfigured: the type is not registered here.
        """
        node = self._node
        entry = self.registered(stable_type, ObjectKind.ACTOR)
        await self._until_free(key)
        held = LocalObject(key, ObjectKind.ACTOR, stable_type, Place.CREATING)
        held.waiting = []
        held.policy = entry.policy
        previous = node.router.objects.get(key)
        node.router.objects[key] = held
        try:
            return await self._create_in_place(held, entry, previous, content_type, arguments)
        finally:
            self._outcome_known(held)

    async def _until_free(self, key: ObjectKey) -> None:
        """Return when the id may be made here; nothing else comes between this and the caller's next step.

        An answer that is given before the other creation has one could be wrong: it may still fail, and until its
        row is written nobody finds the object.
        """
        node = self._node
        while True:
            if not node.takes_new_objects:
                raise Unavailable(f"node {node.run} takes no new objects now ({node.state})", applied="no")
            held = node.router.objects.get(key)
            if held is None or held.place is Place.FOLLOW:
                return
            if held.place is not Place.CREATING or held.staging is not None:
                raise AlreadyExists(f"{describe_key(key)} exists", object_id=describe_key(key))
            await self._outcomes.setdefault(held, Waiters()).wait()

    def _outcome_known(self, held: LocalObject) -> None:
        waiting = self._outcomes.pop(held, None)
        if waiting is not None:
            waiting.wake()

    async def _create_in_place(
        self,
        held: LocalObject,
        entry: RegistryEntry,
        previous: LocalObject | None,
        content_type: str,
        arguments: bytes,
    ) -> dict[str, int]:
        """Factory, admission and row of an Actor whose id `held` stands for; `previous` stood there before."""
        node, key = self._node, held.key
        try:
            held.worker = await self.worker_for_new()
            lane = node.lanes[held.worker]
            error = await creation_failure(
                node.pool.call(
                    held.worker,
                    lambda call: CreateObject(
                        call, key, ObjectKind.ACTOR, held.stable_type, 0, 0, False, content_type, arguments
                    ),
                )
            )
            if error is not None:
                raise error
            row = await self._commit(held, entry, fresh=previous is None)
            if node.lanes.get(held.worker) is not lane or held.worker not in node.object_counts:
                await node.directory.remove(key, row.version)
                raise Unavailable(f"the worker that made {describe_key(key)} ended", applied="no")
        except BaseException as error:
            if held.worker >= 0:
                node.pool.control(held.worker, DropObject(key, ""))
            self._withdraw(held, previous, error)
            raise
        held.settle(row.object_generation, row.owner_generation, node.run, node.lease_generation)
        node.lanes[held.worker].deliver_ordered(
            node.pool.encode(OpenObject(0, key, row.owner_generation, 0, row.object_generation))
        )
        self._open(held)
        return {"object_generation": row.object_generation, "owner_generation": row.owner_generation}

    def _withdraw(self, held: LocalObject, previous: LocalObject | None, error: BaseException) -> None:
        """Nothing came of it: what waited goes where this node followed the object before, or ends."""
        node = self._node
        if not self._present(held):
            return  # a move brought the object here meanwhile, and took over what waited
        if previous is not None and previous.follow_run is not None:
            node.router.objects[held.key] = previous
            node.install_follow(previous, previous.follow_run)
            self._drain(held, previous)
            return
        typed = error if isinstance(error, SojournError) else None
        self._give_up(
            held, typed or Unavailable(f"making {describe_key(held.key)} was broken off", applied="no")
        )

    async def _commit(self, held: LocalObject, entry: RegistryEntry, *, fresh: bool) -> CreatedRow:
        """Admission, then the row; `fresh`: no former move of the object is remembered here."""
        node = self._node
        name = describe_key(held.key)
        try:
            admitted = await self.entry_spot.admits(held.key, entry.stable_type)
            why = ": on_create_actor returned None, and only True admits" if admitted is None else ""
        except Rejected as rejected:
            admitted, why = False, f": {rejected.message}"
        if not admitted:
            raise Rejected(f"the Entry Spot of {node.run} rejected {name}{why}", object_id=name)
        create = self._create(held, entry) if fresh else node.directory.create(held.key, entry)
        outcome = await create
        if isinstance(outcome, OwnedElsewhere):
            raise AlreadyExists(f"{name} exists on node {outcome.run}", object_id=name)
        assert isinstance(outcome, CreatedRow)
        return outcome
