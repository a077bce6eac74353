"""The relocation coordinator of a node: starts moves, shares those under way and ends them with the node.

Owns what surrounds a handoff and is not its machine's: eligibility, budgets, the rows of its unit, who waits for it.
Which handoffs there are, and what arrives for them, is `Handoffs`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from weakref import WeakSet

from sojourn.errors import InvalidOperation, SojournError, Unavailable
from sojourn.handoff.local import LocalPlan
from sojourn.handoff.source import SourcePlan
from sojourn.handoff.terms import HandoffIdentity, Outcome, ParticipantFacts
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, describe_key
from sojourn.location import StoreUnavailable
from sojourn.ownership import VersionedRow
from sojourn.placement import PlacementQuery, choose_node
from sojourn.rows import AuthorityRow, NodeDescriptor
from sojourn.wire import TargetFence
from sojourn.workers.budget import Budget
from sojourn.workers.following import Following
from sojourn.workers.handoff_wire import HandoffWire
from sojourn.workers.handoffs import Handoffs
from sojourn.workers.host_move import STOPPING, MoveResult
from sojourn.workers.link import Link
from sojourn.workers.local_driver import LocalDriver
from sojourn.workers.objects import LocalObject, Place
from sojourn.workers.refusals import Refusals
from sojourn.workers.session_wire import wires_of
from sojourn.workers.source_driver import SourceDriver
from sojourn.workers.unit_rows import UnitRows

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["NOT_HERE", "Coordinator"]

DriverT = TypeVar("DriverT")

NOT_HERE = "not here"
"""Phase of the error that says that this node does not hold the object (any more)."""


class _UnitChanged(InvalidOperation):
    """The members of a Spot are not those its row lists, or not where it is."""


class _Goal(NamedTuple):
    """Where a unit is to go: to a named node, to the best one of a version, or to a worker of this node."""

    to: bytes | None
    version: int | None = None
    worker: int | None = None

    @property
    def is_named(self) -> bool:
        """Whether the caller says where to, so that no other target will do."""
        return self.to is not None or self.worker is not None

    def reached_by(self, result: MoveResult) -> bool:
        """Whether a move that ended so was the one this caller wants (B10.4)."""
        if self.worker is not None or result.worker >= 0:
            return result.worker == self.worker  # one of the two stays on this node
        return self.to is None or result.target.encode("utf-8", "surrogateescape") == self.to


class _Unit(NamedTuple):
    """What a move begins with: a unit, and its rows as they stand (R3.4, R4.5.1)."""

    held: LocalObject
    members: tuple[LocalObject, ...]
    rows: UnitRows
    row: AuthorityRow
    identity: HandoffIdentity
    others: tuple[ParticipantFacts, ...]

    def wire(self, target: TargetFence) -> HandoffWire:
        held, row = self.held, self.row
        generations = row.object_generation, row.owner_generation
        kind = ObjectKind(held.kind)
        return HandoffWire.of_source(self.identity, target, held.key, kind, held.stable_type, *generations)


class Coordinator(Handoffs):
    """Starts the moves of one node, and ends them when it stops; knows its handoffs."""

    def __init__(self, node: Supervisor) -> None:
        super().__init__(node)
        options = node.options
        self.following = Following(node)
        self.budget = Budget(options.relocation_in_flight_bytes, options.relocation_node_in_flight_bytes)
        self._moving: dict[ObjectKey, asyncio.Task[MoveResult]] = {}
        self._begun: WeakSet[asyncio.Task[MoveResult]] = WeakSet()
        """Moves that have gone past their preparation: they end with their driver's outcome."""
        self._closing = False

    # starting a move ----------------------------------------------------------------------------

    async def move(
        self, key: ObjectKey, to: bytes | None, deadline_s: float, worker: int | None = None
    ) -> MoveResult:
        """Move one object of this node, to a named node, to the best one, or to a worker of this node (B8.7).

        A move of the object that is under way is shared when it goes to the same place (B10.4); a cancelled
        caller ends only its own wait. `worker` counts only where `to` is this node or None: at another node it
        is asked for when the object is there.

        Raises:
            InvalidOperation: the object is not here, or is moving elsewhere.
        """
        node = self._node
        if to not in (None, node.run.rid):
            worker = None
        held = self._node.router.objects.get(key)
        if held is None or held.place not in (Place.ACTIVE, Place.SOURCE):
            raise _not_here(key)
        if held.lead is not None:
            held = held.lead  # it moves with the Spot whose turn it shares
        return await self._share(held, _Goal(to, worker=worker), node.loop.time() + deadline_s)

    async def move_unit(self, held: LocalObject, version: int, deadline: float) -> MoveResult:
        """Move one unit of a host move (B10.3); one that has left meanwhile has moved."""
        try:
            return await self._share(held, _Goal(None, version), deadline)
        except SojournError as error:
            if error.phase == NOT_HERE and not self._is_here(held):
                return MoveResult("moved")
            return MoveResult("failed", "RelocationFailed", str(error))

    def _is_here(self, held: LocalObject) -> bool:
        return self._node.router.objects.get(held.key) is held and held.place is not Place.FOLLOW

    async def _share(self, held: LocalObject, goal: _Goal, deadline: float) -> MoveResult:
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
            if goal.reached_by(result):
                return result
        task = self._node.loop.create_task(self._move(held, goal, deadline))
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

    async def _move(self, held: LocalObject, goal: _Goal, deadline: float) -> MoveResult:
        """Handoffs until one ends as more than postponed, or refused by a target that need not have been it: each has
        an identity of its own (B8.12, B8.1)."""
        refusals = Refusals(deadline - self.options.seal_time_min_s, self._node.loop)
        while True:
            result = await self._attempt(held, goal, deadline, refusals)
            self._begun.discard(self._moving[held.key])  # what follows prepares another attempt
            if result.outcome == str(Outcome.POSTPONED):
                if self._closing:
                    return STOPPING
            elif self._closing or goal.is_named or not await refusals.another():
                result = refusals.named(result)
                return result if goal.worker is None else replace(result, worker=goal.worker)

    async def _attempt(
        self, held: LocalObject, goal: _Goal, deadline: float, refusals: Refusals
    ) -> MoveResult:
        node = self._node
        if goal.worker is None:
            here = goal.to == node.run.rid
        else:
            here = held.place is Place.ACTIVE and held.worker == goal.worker
        if here:
            return MoveResult("moved", target=node.run.rid.decode("utf-8", "backslashreplace"))
        if held.policy == "disabled":
            return MoveResult(
                "failed", "RelocationDisabled", f"{held.stable_type} is declared with policy='disabled'"
            )
        if goal.worker is not None:
            return await self._attempt_at(goal.worker, held, deadline)
        try:
            target = self._choose(held, goal.to, goal.version, refusals.runs)
        except SojournError as error:
            refusals.nobody_left()
            return MoveResult("failed", "TargetUnavailable", str(error))
        result = await self._attempt_at(target, held, deadline)
        if result.reason == "TargetUnavailable":
            refusals.add(target.run, result.detail)
        return result

    async def _attempt_at(
        self, target: NodeDescriptor | int, held: LocalObject, deadline: float
    ) -> MoveResult:
        """One handoff to a node, or to a worker of this one."""
        link: Link | None = None
        driver: SourceDriver | LocalDriver | None
        try:
            if isinstance(target, int):
                await self._prepare_worker(held, target, deadline)
                driver = await self._local_driver(held, target, deadline)
            else:
                link = await self._prepare(held, target, deadline)
                driver = await self._source_driver(held, target, deadline)
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
        return await self._carry_out(driver, link)

    async def _carry_out(self, driver: SourceDriver | LocalDriver, link: Link | None) -> MoveResult:
        node, held = self._node, driver.held
        if held.place is not Place.ACTIVE or (link is not None and link.closing):
            self.forgotten(driver)
            why = "it was given to another worker" if link is None else f"the link to {link.peer} broke"
            return MoveResult("failed", "TargetUnavailable", why)
        node.count("relocations_started")
        self._begun.add(self._moving[held.key])
        if isinstance(driver, LocalDriver):
            driver.begin()
        else:
            assert link is not None
            driver.begin(link)
        result = await driver.outcome
        node.count(f"relocations_{result.outcome}")
        return result if isinstance(driver, LocalDriver) else await self.times.added(driver, result)

    def _choose(
        self,
        held: LocalObject,
        to: bytes | None,
        version: int | None,
        refused: Collection[NodeRun] = (),
    ) -> NodeDescriptor:
        node = self._node
        query = PlacementQuery(
            held.key,
            ObjectKind(held.kind),
            held.stable_type,
            policy=held.policy,
            application_version=node.application_version if version is None else version,
            wave=node.config.wave,
            connected=node.connected_runs(),
            refused=node.refusals(),
            excluded=(node.run, *refused),
        )
        return choose_node(query, node.roster.nodes(), to=to).require(query)

    async def _prepare(self, held: LocalObject, target: NodeDescriptor, deadline: float) -> Link:
        """Everything that may wait, while the object still works: link, budget, own marker (B9.4, R5.3)."""
        node = self._node
        async with asyncio.timeout_at(deadline - self.options.seal_time_min_s):
            await node.connect(target.run)
            await self._room(held, target.run)
        return node.links.for_move(target.run, node.options.max_frame_bytes)

    async def _prepare_worker(self, held: LocalObject, worker: int, deadline: float) -> None:
        """Everything that may wait before a move within the node, while the object still works.

        Raises:
            Unavailable: the node takes nothing now, or no such worker came.
        """
        node = self._node
        async with asyncio.timeout_at(deadline - self.options.seal_time_min_s):
            if not node.takes_new_objects:
                raise Unavailable(f"node {node.run} is {node.state.value}", applied="no")
            if not await node.creation.wait_ready(lambda: worker in node.object_counts):
                raise Unavailable(f"worker {worker} of node {node.run} is not ready", applied="no")
            await self._room(held, None)

    async def _room(self, held: LocalObject, target: NodeRun | None) -> None:
        """Wait until a seal may come: the node keeps no more than its limit (B5.3), the budget towards another node has
        room (R5.4), and no marker is out. While the later of them are waited for, the node may have come above its
        limit again."""
        retention = self._node.retention
        while True:
            if target is not None:
                await self.budget.wait_room(target)
            await retention.room()
            await self.following.own_marker_back(held)
            if not retention.over:
                return

    async def _with_rows(self, held: LocalObject, make: Callable[[_Unit], DriverT]) -> DriverT | None:
        """Read the unit's rows at a moment at which nothing else writes them, and make its driver right then.

        None: the object is not this node's any more, or is not active.
        """
        async with self._node.bindings.quiet(held.key):
            return await self._read_and_make(held, make)

    async def _read_and_make(self, held: LocalObject, make: Callable[[_Unit], DriverT]) -> DriverT | None:
        node = self._node
        rows = UnitRows(node.directory, held.key, node.shares_turn)
        found = await rows.read()
        if not rows.others:
            unit = self._unit(held, (), rows, found)
            return None if unit is None else make(unit)
        async with AsyncExitStack() as quiet:
            for key in rows.others:
                await quiet.enter_async_context(node.bindings.quiet(key))
            rows = UnitRows(node.directory, held.key, node.shares_turn)
            found = await rows.read()
            members = self._members_here(held, rows)
            while any(node.senders.marker_out(member.key) for member in members):
                for member in members:
                    await self.following.own_marker_back(member)
            unit = self._unit(held, members, rows, found)
            return None if unit is None else make(unit)

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

    def _unit(
        self,
        held: LocalObject,
        members: tuple[LocalObject, ...],
        rows: UnitRows,
        found: VersionedRow | None,
    ) -> _Unit | None:
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
        facts = rows.facts_of(found)
        assert facts is not None
        return _Unit(held, members, rows, found.row, identity, facts.others)

    async def _source_driver(
        self, held: LocalObject, target: NodeDescriptor, deadline: float
    ) -> SourceDriver | None:
        fence = TargetFence(target.rid, target.generation, target.owner_id, target.lease_generation)

        def make(unit: _Unit) -> SourceDriver:
            identity, row = unit.identity, unit.row
            sessions = wires_of(identity, (each for each, _ in unit.rows.present()))
            plan = SourcePlan(
                identity,
                target.run,
                row.object_generation,
                row.owner_generation,
                deadline,
                len(sessions),
                unit.others,
            )
            driver = SourceDriver(
                self._node,
                held,
                self._number(),
                unit.rows,
                plan,
                unit.wire(fence),
                self.options,
                sessions,
                unit.members,
                target.application_version,
            )
            self._add_source(driver)
            return driver

        return await self._with_rows(held, make)

    async def _local_driver(self, held: LocalObject, worker: int, deadline: float) -> LocalDriver | None:
        node = self._node
        fence = TargetFence(node.run.rid, node.run.generation, node.owner_id, node.lease_generation)

        def make(unit: _Unit) -> LocalDriver:
            identity, row = unit.identity, unit.row
            plan = LocalPlan(identity, row.object_generation, row.owner_generation, deadline, unit.others)
            driver = LocalDriver(
                node,
                held,
                self._number(),
                unit.rows,
                plan,
                unit.wire(fence),
                self.options,
                worker,
                unit.members,
            )
            self._add_local(driver)
            return driver

        return await self._with_rows(held, make)

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
        return not self._movers() and not self._node.router.objects

    async def close(self, limit_s: float = 0.0) -> None:
        """The node stops: no new move begins, and what is sealed may end for `limit_s` seconds (section 9: the
        seal was first). Then nobody waits for a move any more; what the other nodes hold is theirs to settle."""
        self._closing = True
        for move in self._moving.values():
            if move not in self._begun:
                move.cancel()
        sealed = [driver.outcome for driver in self._movers() if driver.sealed_ns]
        if sealed and limit_s > 0:
            await asyncio.wait(sealed, timeout=limit_s)
        for driver in self._movers():
            driver.shut_down()
        await asyncio.gather(*self._moving.values(), return_exceptions=True)
        for driver in self._movers():
            driver.close()
        for target in self.targets.values():
            target.close()

    # figures ------------------------------------------------------------------------------------

    def payload_octets(self) -> int:
        """Octets of captured payloads that this node keeps as a source (R4.4.3)."""
        return sum(driver.payload_octets for driver in self._movers())


def _not_here(key: ObjectKey) -> InvalidOperation:
    """The answer that makes a caller look for the object's owner again."""
    name = describe_key(key)
    return InvalidOperation(f"{name} is not on this node", object_id=name, phase=NOT_HERE)
