"""What a node can be asked for: by its workers, by other nodes, by its launcher (B10, B13.2).

Owns the table of operations, their arguments and the shape of their answers (builtins only). Operations on
an object are carried out where the object is: elsewhere they are passed on to its owner.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, cast

import msgspec
from sojourn.control import AskFigures
from sojourn.errors import InvalidOperation, NotFound, SojournError, Unavailable
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, describe_key
from sojourn.placement import PlacementQuery, choose_node
from sojourn.rows import HostState, NodeDescriptor
from sojourn.workers.bindings import binding_from
from sojourn.workers.host_move import MoveResult, check_mode
from sojourn.workers.objects import Place
from sojourn.workers.peer_calls import Operation

if TYPE_CHECKING:
    from sojourn.workers.member import Member
    from sojourn.workers.supervisor import Supervisor

__all__ = ["MemberOperations", "Operations"]

FIGURES_WAIT_S = 1.0
"""How long `status` waits for a busy worker's counters."""
_STEPS_MAX = 4
"""Moves in which one object comes to a worker of another node: two, and two more if somebody else moves it as well."""
CALL_MARGIN_S = 5.0
"""How much longer a caller waits for a node's answer than the node has for the operation."""


class MemberOperations:
    """Operations every member can start: it finds the right node and passes the call on."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self.table: dict[str, Operation] = {
            "relocate": self.relocate,
            "create_actor": self.create_actor,
            "locate": self.locate,
            "bind_session": self.bind_session,
            "unbind_session": self.unbind_session,
        }

    async def relocate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Move one object: `key`, `to` (RID text), `worker` (slot) or both, optional `deadline_s`.

        A move to a worker of another node is one to that node and then one within it (B8.7).
        """
        key: ObjectKey = arguments["key"]
        member = self._member
        deadline_s = float(arguments.get("deadline_s") or member.options.move_deadline_ms / 1000)
        worker, to = arguments.get("worker"), None
        if arguments.get("to") is not None:
            to = str(arguments["to"]).encode("utf-8", "surrogateescape")
            with contextlib.suppress(Unavailable):  # it has ended: the move fails as TargetUnavailable
                node = await self._named(to)
                if worker is not None:
                    check_worker(node.run, node.workers, worker)
        passed = {"key": key, "to": to, "deadline_s": deadline_s, "worker": worker}
        interruption_ns = 0
        for _ in range(_STEPS_MAX):
            result = await self._at_owner(key, "relocate_here", passed, deadline_s)
            interruption_ns += result["interruption_ns"]
            if worker is None or result["outcome"] != "moved" or result["worker"] == worker:
                break
        outcome = "in doubt" if result["outcome"] == "in_doubt" else result["outcome"]
        detail = ": ".join(part for part in (result["reason"], result["detail"]) if part)
        return {
            "outcome": outcome,
            "reason": detail,
            "node": result["target"] if outcome == "moved" else result.get("here", ""),
            "interruption_ns": interruption_ns,
        }

    async def locate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Where an object is: `node` (RID text) and `worker` (slot)."""
        answer: dict[str, Any] = await self._at_owner(
            arguments["key"], "locate_here", {"key": arguments["key"]}, 10.0
        )
        return answer

    async def create_actor(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Make an Actor: `key`, `stable_type`, `content_type`, `arguments`, optional `at` (RID text)."""
        member = self._member
        key: ObjectKey = arguments["key"]
        at = arguments.get("at")
        to = None if at is None else str(at).encode("utf-8", "surrogateescape")
        if to is not None:
            await self._named(to)
        query = PlacementQuery(
            key,
            ObjectKind.ACTOR,
            arguments["stable_type"],
            connected=member.connected_runs(),
            refused=member.refusals(),
        )
        node = choose_node(query, member.roster.nodes(), to=to).require(query)
        timeout_s = member.options.request_timeout_ms / 1000
        answer: dict[str, Any] = await self._at(node.run, "create_actor_here", arguments, timeout_s)
        generation = answer["object_generation"]
        member.senders.made(key, ObjectKind.ACTOR, node.run, generation, node.lease_generation)
        return answer

    async def bind_session(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Bind an Actor to a session in its row: `key`, `binding` (the six session fields of command 42, B6.3)."""
        answer: dict[str, Any] = await self._at_owner(arguments["key"], "bind_session_here", arguments, 10.0)
        return answer

    async def unbind_session(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Take a binding out of an Actor's row: `key`, `binding`."""
        answer: dict[str, Any] = await self._at_owner(
            arguments["key"], "unbind_session_here", arguments, 10.0
        )
        return answer

    async def _named(self, rid: bytes) -> NodeDescriptor:
        """The node that an operation is to go to.

        Raises:
            NotConfigured: no node has or had it.
            Unavailable: the node has ended.
        """
        member = self._member
        if rid not in {run.rid for run in member.connected_runs()}:
            await member.refresh()  # it may have started just now
        return member.find_node(rid)

    async def _at(self, run: NodeRun, operation: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        member = self._member
        if run == member.run:
            return await member.calls.operations[operation](arguments)
        await member.connect(run)
        return await member.calls.call(run, operation, arguments, timeout_s + CALL_MARGIN_S)

    async def _at_owner(
        self, key: ObjectKey, operation: str, arguments: dict[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        """Call the owner, and its successor when the object moved on meanwhile."""
        refused: SojournError | None = None
        for _ in range(4):
            found = await self._member.directory.owner_of(key)
            if found is None or found.lost:
                raise NotFound(f"{describe_key(key)} does not exist", object_id=describe_key(key))
            try:
                answer: dict[str, Any] = await self._at(found.run, operation, arguments, timeout_s)
            except InvalidOperation as error:
                if error.phase != "not here":
                    raise
                refused = error
                continue
            return answer
        raise refused or Unavailable(f"{describe_key(key)} cannot be reached", applied="no")


class Operations(MemberOperations):
    """Operations of a node itself."""

    def __init__(self, node: Supervisor) -> None:
        super().__init__(node)
        self._node = node
        self.table |= {
            "relocate_here": self.relocate_here,
            "locate_here": self.locate_here,
            "create_actor_here": self.create_actor_here,
            "bind_session_here": self.bind_session_here,
            "unbind_session_here": self.unbind_session_here,
            "relocate_node": self.relocate_node,
            "cordon": self.cordon,
            "uncordon": self.uncordon,
            "status": self.status,
            "worker_pids": self.worker_pids,
        }

    async def relocate_here(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Move an object of this node."""
        key: ObjectKey = arguments["key"]
        self._must_hold(key)
        node, worker = self._node, arguments.get("worker")
        if worker is not None and arguments["to"] in (None, node.run.rid):
            check_worker(node.run, node.workers, worker)
        result = await node.coordinator.move(key, arguments["to"], arguments["deadline_s"], worker)
        # Within the node it is here in any case, also where it is not known yet which worker has it.
        here = "" if result.outcome == "in_doubt" and result.worker < 0 else self._name
        return _move_fields(result) | {"here": here}

    def _must_hold(self, key: ObjectKey) -> None:
        held = self._node.router.objects.get(key)
        if held is None or held.place not in (Place.ACTIVE, Place.SOURCE) or held.follow_run is not None:
            name = describe_key(key)
            raise InvalidOperation(f"{name} is not on this node", object_id=name, phase="not here")

    @property
    def _name(self) -> str:
        return self._node.run.rid.decode("utf-8", "backslashreplace")

    async def locate_here(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Which worker of this node holds an object."""
        self._must_hold(arguments["key"])
        return {"node": self._name, "worker": self._node.router.objects[arguments["key"]].worker}

    async def create_actor_here(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Make an Actor on this node."""
        made = await self._node.creation.create_actor(
            arguments["key"], arguments["stable_type"], arguments["content_type"], arguments["arguments"]
        )
        return {"node": self._name, **made}

    async def bind_session_here(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Write the binding of an Actor of this node."""
        return await self._node.bindings.bind(arguments["key"], binding_from(arguments["binding"]))

    async def unbind_session_here(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Take a binding out of the row of an Actor of this node."""
        return await self._node.bindings.unbind(arguments["key"], binding_from(arguments["binding"]))

    async def relocate_node(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Empty this node (B10): `mode`, `target_version`, `deadline_s`, `dry_run`."""
        node = self._node
        version = check_mode(
            arguments.get("mode", "PlannedMaintenance"),
            arguments.get("target_version"),
            node.application_version,
        )
        deadline_s = float(arguments.get("deadline_s") or node.options.host_move_deadline_ms / 1000)
        if arguments.get("dry_run"):
            return {"blocked": node.coordinator.would_block(node.host_move.units(), version)}
        deadline = node.loop.time() + deadline_s
        result = await node.host_move.relocate(node.state, arguments.get("mode", ""), version, deadline)
        return cast(dict[str, Any], msgspec.to_builtins(result))

    async def cordon(self, arguments: dict[str, Any]) -> None:
        """Exclude this node from placement (B10.6)."""
        self._node.set_cordoned(True)

    async def uncordon(self, arguments: dict[str, Any]) -> None:
        """Include this node again; a Relocated node serves again."""
        self._node.set_cordoned(False)

    async def status(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """State, objects and counters of this node (B12.2)."""
        node = self._node
        return {
            "rid": self._name,
            "generation": node.run.generation,
            "endpoint": node.links.endpoint,
            "listening": node.links.listening,
            "state": node.state.value,
            "ready": node.state is HostState.SERVING and node.admission_open(),
            "cordoned": node.cordoned,
            "lease_confirmed": node.admission_open(),
            "objects": sum(node.object_counts.values()),
            "objects_by_worker": {str(worker): count for worker, count in node.object_counts.items()},
            "handoffs": node.coordinator.under_way,
            "payload_octets": node.coordinator.payload_octets(),
            "payload_octets_in_flight": node.coordinator.budget.total,
            "bound_sessions": len(node.sessions.desk),
            "sealed_sessions": node.sessions.desk.sealed(),
            "safe_to_shutdown": node.coordinator.safe_to_shutdown(),
            "store": node.store_health.figures(),
            "links": sorted(str(link.peer) for link in node.links.all()),
            "counters": dict(node.counters),
            "messages": await self._messages(),
        }

    async def _messages(self) -> dict[str, int]:
        """What became of the messages that came to this node's objects, over the lives of all workers (B3.5)."""
        node = self._node
        answers = [(worker, node.pool.call(worker, AskFigures)) for worker in node.pool.running()]
        for worker, answer in answers:
            try:
                async with asyncio.timeout(FIGURES_WAIT_S):
                    figures = await answer
            except (SojournError, TimeoutError):
                continue
            if worker in node.pool.running():
                node.ledger.told(worker, figures.values)
        return node.ledger.total(node.counters)

    async def worker_pids(self, arguments: dict[str, Any]) -> list[int]:
        """Process ids of this node's workers."""
        return node_pids(self._node)


def check_worker(run: NodeRun, workers: int, worker: Any) -> None:
    """Refuse the number of a worker that the node does not have.

    Raises:
        InvalidOperation: it is not one of 0 to `workers` - 1.
    """
    if not isinstance(worker, int) or not 0 <= worker < workers:
        raise InvalidOperation(f"node {run} has workers 0 to {workers - 1}, not {worker!r}")


def node_pids(node: Supervisor) -> list[int]:
    """Process ids of a node's workers, by slot."""
    return list(node.pool.pids())


def _move_fields(result: MoveResult) -> dict[str, Any]:
    return {
        "outcome": result.outcome,
        "reason": result.reason,
        "detail": result.detail,
        "target": result.target,
        "interruption_ns": result.interruption_ns,
        "worker": result.worker,
    }
