"""Emptying a node: `relocate(mode, target_version, deadline)` over everything it holds (B10).

Owns the host operation: who shares it, the order of its batches, what stops it and what its result names.
One unit's move is the coordinator's business; where a unit goes is the placement's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile

from sojourn.control import RegistryEntry
from sojourn.errors import InvalidOperation, SojournError
from sojourn.handoff.terms import TargetFailure
from sojourn.ids import ObjectKey, ObjectKind, describe_key
from sojourn.rows import HostState
from sojourn.workers.host_result import HostRelocation, StayedUnit
from sojourn.workers.objects import LocalObject, Place

__all__ = ["BLOCKED_REASONS", "STOPPING", "HostMove", "MoveResult", "check_mode", "failure_reason"]

BLOCKED_REASONS = (
    "TargetUnavailable",
    "StoreUnavailable",
    "RelocationDisabled",
    "StateIncompatible",
    "DeadlineExceeded",
    "RelocationFailed",
    "RuntimeNotReady",
    "ShutdownRequested",
    "OperationInProgress",
)
"""Every reason a `Blocked` result can have (B10.2)."""

_STOPS = ("TargetUnavailable", "StoreUnavailable", "ShutdownRequested", "DeadlineExceeded")
"""What stops later batches (B10.3)."""

_SHELLS, _ACTORS, _SPOTS = range(3)
"""The batches, in their order: PerActor shells; Actors, members of PerActor Spots among them; SpotWide and Instance
units (B10.3)."""

_STATE_PHASES = ("capture", "restore", "StateIncompatible")
"""Phases of errors that say that a state does not fit the code that is to have it."""

LANDING_PAUSE_S = 0.01
"""How often an emptying node looks whether what was on its way here has arrived."""
CONCURRENT_UNITS = 16
"""Units of a batch moved at a time. It paces the work; the in-flight budgets pace the bytes (R5.4)."""


@dataclass(frozen=True, slots=True)
class MoveResult:
    """How one unit's move ended.

    Attributes:
        outcome: `moved`, `failed` or `in_doubt` (B8.10).
        reason: one of `BLOCKED_REASONS` when it failed, with what happened in `detail`.
        target: RID of the node it went to, or was meant to.
        interruption_ns: seal to first turn on the target, 0 when unknown (B10.7).
        worker: slot that a move within the node went to, or was meant to (B8.7); -1 for one to another node.
    """

    outcome: str
    reason: str = ""
    detail: str = ""
    target: str = ""
    interruption_ns: int = 0
    worker: int = -1


STOPPING = MoveResult("failed", "ShutdownRequested", "the node is shutting down")
"""The end of a move that had not begun when its node began to stop."""


def check_mode(mode: str, target_version: int | None, own_version: int) -> int:
    """The application version targets must run, or refuse the combination before anything changes (B10.1).

    Raises:
        InvalidOperation: an unknown mode, or a version that does not fit it.
    """
    if mode == "PlannedMaintenance":
        if target_version not in (None, own_version):
            raise InvalidOperation(
                f"PlannedMaintenance moves to nodes of this node's version {own_version}; "
                f"for version {target_version} use mode='RollingUpdate'"
            )
        return own_version
    if mode == "RollingUpdate":
        if target_version is None or target_version <= own_version:
            raise InvalidOperation(
                f"RollingUpdate needs target_version greater than {own_version}, not {target_version}"
            )
        return target_version
    raise InvalidOperation(f"unknown mode {mode!r}: use 'PlannedMaintenance' or 'RollingUpdate'")


MoveUnit = Callable[[LocalObject, int, float], Awaitable[MoveResult]]


class HostMove:
    """The one host operation a node can run at a time."""

    def __init__(
        self,
        objects: dict[ObjectKey, LocalObject],
        move: MoveUnit,
        set_state: Callable[[HostState], None],
        registry: Mapping[str, RegistryEntry],
    ) -> None:
        """`registry`: the registered types, which say whether a User Spot shares its turn with its members."""
        self._objects = objects
        self._move = move
        self._set_state = set_state
        self._registry = registry
        self._running: asyncio.Task[HostRelocation] | None = None
        self._what: tuple[str, int] | None = None
        self.shutting_down = False

    async def relocate(self, state: HostState, mode: str, version: int, deadline: float) -> HostRelocation:
        """Empty the node, or share the operation that already does (B10.4).

        A cancelled caller ends only its own wait.
        """
        if self._running is not None and not self._running.done():
            if self._what != (mode, version):
                return HostRelocation("Blocked", "OperationInProgress")
        else:
            if state not in (HostState.SERVING, HostState.RELOCATED):
                return HostRelocation("Blocked", "RuntimeNotReady")
            self._what = (mode, version)
            self._running = asyncio.create_task(self._run(version, deadline))
        return await asyncio.shield(self._running)

    def units(self) -> list[LocalObject]:
        """Everything here that a host move has to move, in the order of its batches (B10.3)."""
        held = [unit for unit in self._objects.values() if unit.lead is None and self._is_here(unit)]
        return sorted(held, key=self._rank)

    def _rank(self, unit: LocalObject) -> int:
        """Which batch a unit is of; a guest of a SpotWide Spot is no unit."""
        if unit.kind == ObjectKind.ACTOR:
            return _ACTORS
        entry = self._registry.get(unit.stable_type)
        shell = unit.kind == ObjectKind.USER_SPOT and entry is not None and not entry.shares_turn
        return _SHELLS if shell else _SPOTS

    def _is_here(self, unit: LocalObject) -> bool:
        """Not moved away: neither by this operation nor, meanwhile, by a move of its own."""
        return (
            unit.place in (Place.ACTIVE, Place.SOURCE)
            and unit.follow_run is None
            and self._objects.get(unit.key) is unit
        )

    def _landing(self) -> list[LocalObject]:
        """What was on its way here when the operation began: being made, or staged by an earlier move."""
        return [unit for unit in self._objects.values() if unit.place in (Place.CREATING, Place.TARGET)]

    async def _run(self, version: int, deadline: float) -> HostRelocation:
        self._set_state(HostState.RELOCATING)
        result = HostRelocation("Relocated")
        stays: set[ObjectKey] = set()
        emptied = False
        try:
            # Once something stopped the operation, the units of later batches are only named (B10.2).
            while True:
                batch = self._next_batch(stays)
                if batch:
                    await self._move_batch(batch, version, deadline, result, stays)
                elif (
                    self._landing()
                    and not self.shutting_down
                    and asyncio.get_running_loop().time() < deadline
                ):
                    await asyncio.sleep(LANDING_PAUSE_S)
                else:
                    break
            why = "ShutdownRequested" if self.shutting_down else "DeadlineExceeded"
            for unit in self._landing():
                self._note(unit, MoveResult("failed", why, "it had not arrived"), result, stays)
            emptied = not result.stayed
        finally:
            if not self.shutting_down:
                self._set_state(HostState.RELOCATED if emptied else HostState.SERVING)
        if not emptied:
            result.outcome = "Blocked"
        return result

    def shut_down(self) -> None:
        """The node stops: no further unit is moved, and who waits gets `Blocked` with `ShutdownRequested` and the
        units that stayed (B10.2, B10.4)."""
        self.shutting_down = True

    async def close(self) -> None:
        """Return when the operation has told everybody; the moves under way have ended before."""
        self.shutting_down = True
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)

    def _next_batch(self, stays: Iterable[ObjectKey]) -> list[LocalObject]:
        left = [unit for unit in self.units() if unit.key not in stays]
        return list(takewhile(lambda unit: self._rank(unit) == self._rank(left[0]), left))

    async def _move_batch(
        self,
        batch: list[LocalObject],
        version: int,
        deadline: float,
        result: HostRelocation,
        stays: set[ObjectKey],
    ) -> None:
        units = iter(batch)

        async def mover() -> None:
            for unit in units:
                if not self._is_here(unit):
                    continue
                if result.reason in _STOPS:
                    outcome = MoveResult("failed", result.reason, "the operation was stopped")
                elif self.shutting_down:
                    outcome = MoveResult("failed", "ShutdownRequested", "the node is shutting down")
                else:
                    outcome = await self._move(unit, version, deadline)
                self._note(unit, outcome, result, stays)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(CONCURRENT_UNITS, len(batch))):
                group.create_task(mover())

    def _note(
        self, unit: LocalObject, outcome: MoveResult, result: HostRelocation, stays: set[ObjectKey]
    ) -> None:
        if outcome.outcome == "moved":
            result.moved += 1
            if outcome.interruption_ns:
                result.interruptions_ns.append(outcome.interruption_ns)
            return
        if not self._is_here(unit) and unit.place not in (Place.CREATING, Place.TARGET):
            return
        stays.add(unit.key)
        ended = "in doubt" if outcome.outcome == "in_doubt" else outcome.outcome
        result.stayed.append(StayedUnit(describe_key(unit.key), ended, outcome.reason, outcome.detail))
        if not result.reason or outcome.reason in _STOPS:
            result.reason = outcome.reason or "RelocationFailed"


def failure_reason(reason: object) -> str:
    """The B10.2 reason a failed move counts as."""
    if isinstance(reason, TargetFailure):
        return reason.reason
    if isinstance(reason, SojournError):
        if reason.phase == "RelocationDisabled":
            return "RelocationDisabled"
        if reason.phase in _STATE_PHASES or reason.kind in ("NotConfigured", "TypeMismatch"):
            return "StateIncompatible"
        if reason.kind == "DeadlineExceeded":
            return "DeadlineExceeded"
        return "StoreUnavailable" if reason.kind == "StoreUnavailable" else "RelocationFailed"
    if "the store" in str(reason):
        return "StoreUnavailable"
    return "DeadlineExceeded" if "deadline" in str(reason) else "RelocationFailed"
