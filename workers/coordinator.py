"""The relocation coordinator of a node: starts moves, shares those under way and ends them with the node.

Owns what surrounds a handoff and is not its machine's: eligibility, budgets, the rows of its unit, who waits for it.
Which handoffs there are, and what arrives for them, is `Handoffs`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING
from weakref import WeakSet

from sojourn.errors import InvalidOperation, SojournError
from sojourn.handoff.source import SourcePlan
from sojourn.handoff.terms import HandoffIdentity, Outcome
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, describe_key
from sojourn.location import StoreUnavailable
from sojourn.ownership import VersionedRow
from sojourn.placement import PlacementQuery, choose_node
from sojourn.rows import NodeDescriptor
from sojourn.wire import TargetFence
from sojourn.workers.budget import Budget
from sojourn.workers.following import Following
from sojourn.workers.handoff_wire import HandoffWire
from sojourn.workers.handoffs import Handoffs
from sojourn.workers.host_move import STOPPING, MoveResult
from sojourn.workers.link import Link
from sojourn.workers.objects import LocalObject, Place
from sojourn.workers.refusals import Refusals
from sojourn.workers.session_wire import wires_of
from sojourn.workers.source_driver import SourceDriver
from sojourn.workers.unit_rows import UnitRows

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["NOT_HERE", "Coordinator"]

NOT_HERE = "not here"
"""Phase of the error that says that this node does not hold the object (any more)."""


class _UnitChanged(InvalidOperation):
    """The members of a Spot are not those its row lists, or not where it is."""


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
        """Handoffs until one ends as more than postponed, or refused by a target that need not have been it: each has
        an identity of its own (B8.12, B8.1)."""
        refusals = Refusals(deadline - self.options.seal_time_min_s, self._node.loop)
        while True:
            result = await self._attempt(held, to, version, deadline, refusals)
            self._begun.discard(self._moving[held.key])  # what follows prepares another attempt
            if result.outcome == str(Outcome.POSTPONED):
                if self._closing:
                    return STOPPING
            elif self._closing or to is not None or not await refusals.another():
                return refusals.named(result)

    async def _attempt(
        self, held: LocalObject, to: bytes | None, version: int | None, deadline: float, refusals: Refusals
    ) -> MoveResult:
        node = self._node
        if to == node.run.rid:
            return MoveResult("moved", target=to.decode("utf-8", "backslashreplace"))
        if held.policy == "disabled":
            return MoveResult(
                "failed", "RelocationDisabled", f"{held.stable_type} is declared with policy='disabled'"
            )
        try:
            target = self._choose(held, to, version, refusals.runs)
        except SojournError as error:
            refusals.nobody_left()
            return MoveResult("failed", "TargetUnavailable", str(error))
        result = await self._attempt_at(target, held, deadline)
        if result.reason == "TargetUnavailable":
            refusals.add(target.run, result.detail)
        return result

    async def _attempt_at(self, target: NodeDescriptor, held: LocalObject, deadline: float) -> MoveResult:
        node = self._node
        try:
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
            excluded=(node.run, *refused),
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
        self._add_source(driver)
        return driver

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


def _not_here(key: ObjectKey) -> InvalidOperation:
    """The answer that makes a caller look for the object's owner again."""
    name = describe_key(key)
    return InvalidOperation(f"{name} is not on this node", object_id=name, phase=NOT_HERE)
