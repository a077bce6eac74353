"""What an operator asks of a node, however the node is reached (B10).

Owns the calls, their defaults and the typed results. How a call travels is the business of who inherits this:
`LocalNode` uses the launcher's connection, `RemoteNode` the mesh.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from sojourn.errors import InvalidOperation
from sojourn.workers.host_result import HostRelocation, StayedUnit

if TYPE_CHECKING:
    from sojourn.workers.client import Client

__all__ = ["CALL_MARGIN_S", "NodeOperations", "RelocationMode", "RemoteNode"]

CALL_MARGIN_S = 15.0
"""How much longer a caller waits for a node's answer than the node has for the operation: a move past its boundary
is settled up to the commit reserve (10 s) after its deadline (B8.2)."""

RelocationMode = Literal["PlannedMaintenance", "RollingUpdate"]


class NodeOperations(ABC):
    """Operations of one node. A subclass says how a call reaches it."""

    @abstractmethod
    async def call(
        self, operation: str, arguments: dict[str, Any] | None = None, *, timeout_s: float = 30.0
    ) -> Any:
        """Ask the node for an operation by name; the named methods are made of this."""

    async def relocate(
        self,
        mode: RelocationMode = "PlannedMaintenance",
        *,
        target_version: int | None = None,
        deadline: float = 30.0,
        dry_run: bool = False,
    ) -> HostRelocation:
        """Move every object of this node away (B10.1).

        Args:
            mode: `PlannedMaintenance` or `RollingUpdate`; the latter needs a greater `target_version`.
            deadline: seconds for the whole operation.
            dry_run: only list what would block.

        Returns:
            The outcome `Relocated` or `Blocked` with its reason, and each unit that stayed. After `Relocated`
            the node is passed over by placement until `uncordon`. A dry run says what the outcome would be.

        Raises:
            InvalidOperation: a deadline that is no number of seconds above 0, an unknown mode, or a version that
                does not fit it.
        """
        if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not 0 < deadline < math.inf:
            raise InvalidOperation(f"relocate takes a deadline in seconds above 0, not {deadline!r}")
        arguments = {
            "mode": mode,
            "target_version": target_version,
            "deadline_s": deadline,
            "dry_run": dry_run,
        }
        answer = await self.call("relocate_node", arguments, timeout_s=deadline + CALL_MARGIN_S)
        if dry_run:
            stay = [StayedUnit(outcome="would stay", **unit) for unit in answer["blocked"]]
            if stay:
                return HostRelocation("Blocked", stay[0].reason, stayed=stay)
            return HostRelocation("Relocated")
        return msgspec.convert(answer, HostRelocation)

    async def cordon(self) -> None:
        """Place no new objects here (B10.6)."""
        await self.call("cordon")

    async def uncordon(self) -> None:
        """Place objects here again; a Relocated node serves again."""
        await self.call("uncordon")

    async def status(self) -> dict[str, Any]:
        """State, objects and counters of the node."""
        answer: dict[str, Any] = await self.call("status")
        return answer

    async def worker_pids(self) -> list[int]:
        """Process ids of the node's workers, by slot."""
        answer: list[int] = await self.call("worker_pids")
        return answer


class RemoteNode(NodeOperations):
    """A node of the cluster, asked over the mesh; see `Client.node`."""

    def __init__(self, client: Client, rid: str) -> None:
        self._client = client
        self.rid = rid

    async def call(
        self, operation: str, arguments: dict[str, Any] | None = None, *, timeout_s: float = 30.0
    ) -> Any:
        """Ask the node for an operation by name.

        Raises:
            NotConfigured: no live node has this RID.
            SojournError: the node's own answer.
            Unavailable: it cannot be reached, or the connection broke (`applied` says which).
            DeadlineExceeded: no answer within `timeout_s`.
        """
        return await self._client.call_node_named(self.rid, operation, arguments or {}, timeout_s)

    def __repr__(self) -> str:
        return f"<RemoteNode {self.rid}>"
