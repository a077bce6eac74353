"""The Entry Spot of a node: made at start, made anew with its worker, asked about every new Actor (B1.4, B2.2).

Owns which worker has it and what waits for its answer. What it says is user code in that worker.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sojourn.control import Created, CreateObject
from sojourn.errors import DeadlineExceeded, SojournError, Unavailable, error_from_fields
from sojourn.frames import parse_record_header
from sojourn.ids import ObjectKey, ObjectKind, describe_key, key_id, spot_key
from sojourn.workers.admission import admission_frame, read_admission
from sojourn.workers.objects import LocalObject, Place

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["NodeEntrySpot", "creation_failure"]

_WORKER = 0
"""The slot that hosts the Entry Spot."""


async def creation_failure(answer: asyncio.Future[Any]) -> SojournError | None:
    """Why a worker could not make an object, None when it did."""
    try:
        created = await answer
    except SojournError as error:
        return error
    assert isinstance(created, Created)
    return None if created.error is None else error_from_fields(created.error.kind, created.error.fields)


class NodeEntrySpot:
    """See the module text. A node whose application declares none admits every Actor."""

    def __init__(self, node: Supervisor) -> None:
        self._node = node
        self._held: LocalObject | None = None
        self._is_asked = False

    async def create(self) -> None:
        """Make it, if the application declares one.

        Raises:
            SojournError: what its `__init__` or `on_initialize` ended in.
        """
        node = self._node
        entry = next((e for e in node.registry.values() if e.kind == ObjectKind.ENTRY_SPOT), None)
        if entry is None:
            return
        key = spot_key(f"entry:{node.run}"[:200])
        held = LocalObject(key, ObjectKind.ENTRY_SPOT, entry.stable_type, Place.ACTIVE)
        held.policy = "disabled"
        held.worker = _WORKER
        error = await creation_failure(self._make(held, 1))
        if error is not None:
            raise error
        self._held = held
        self._is_asked = entry.has_admission

    def worker_ready(self, worker: int) -> None:
        """A worker was welcomed: in the place of the one that had the Entry Spot it gets a new one."""
        held = self._held
        if worker == _WORKER and held is not None:
            self._node.start(self._made_anew(self._make(held, held.object_generation + 1)))

    def _make(self, held: LocalObject, generation: int) -> asyncio.Future[Any]:
        node = self._node
        held.settle(generation, generation, node.run, node.lease_generation)
        return node.pool.call(
            held.worker,
            lambda call: CreateObject(
                call, held.key, held.kind, held.stable_type, generation, generation, True
            ),
        )

    async def _made_anew(self, answer: asyncio.Future[Any]) -> None:
        """Who asks it meanwhile waits in its mailbox; who asks one that failed gets its error."""
        error = await creation_failure(answer)
        if error is not None:
            self._node.log("entry_spot_failed", "error", error=str(error))

    async def admits(self, key: ObjectKey, stable_type: str) -> bool | None:
        """The answer of its `on_create_actor` (B2.2).

        Raises:
            Rejected: the callback said why it rejects.
            Unavailable: its worker ended, and no other has come.
            DeadlineExceeded: no answer within option `hook_deadline_ms`.
        """
        held = self._held
        if held is None or not self._is_asked:
            return True
        node = self._node
        if not await node.creation.wait_ready(lambda: held.worker in node.object_counts):
            raise Unavailable(
                "the Entry Spot of this node was lost with its worker, and no other worker has come",
                applied="no",
            )
        route, reply = node.own_request()
        body = admission_frame(node.source_prefix, held, route, key_id(key), stable_type)
        node.lanes[held.worker].deliver(body, parse_record_header(body), None)
        try:
            async with asyncio.timeout(node.options.hook_deadline_ms / 1000):
                return read_admission(await reply)
        except TimeoutError:
            raise DeadlineExceeded(
                f"on_create_actor of {node.run} did not answer within {node.options.hook_deadline_ms} ms",
                object_id=describe_key(key),
                phase="on_create_actor",
                applied="no",
            ) from None
        finally:
            node.forget_own_request(route)
