"""Bindings in the rows of this node's Actors: written at bind and unbind, read when an Actor moves (B6.3).

Owns the write of a row's binding and its order against moves: the version that a move begins with is read
when no such write is under way, and from then on none begins until the move ends (B11.1). An unbind that comes
meanwhile travels with the Actor, as a record among its messages, and is written by whoever owns the Actor then.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec
from sojourn.errors import InvalidOperation, SojournError, Unavailable
from sojourn.frames import RecordHeader, parse_record_header
from sojourn.ids import ObjectKey, ObjectKind, describe_key
from sojourn.location import Applied
from sojourn.ownership import rewrite_object
from sojourn.rows import AuthorityRow, Binding
from sojourn.workers.objects import LocalObject, Place
from sojourn.workers.records import unbind_frame, unbind_payload

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["Bindings", "binding_fields", "binding_from"]

_ATTEMPTS = 3
"""How often a binding is written again after another write to the row."""
_PAUSES_S = (0.05, 0.2, 1.0)
"""How long an unbind that travelled waits before it is tried again while the store does not help."""
_MOVING = "moving"
"""Phase of the error of an Actor whose row nobody here may write now."""


def binding_fields(binding: Binding) -> list[Any]:
    """A binding as an operation's argument."""
    return list(msgspec.structs.astuple(binding))


def binding_from(fields: Any) -> Binding:
    """See `binding_fields`.

    Raises:
        InvalidOperation: not the six fields of a binding.
    """
    try:
        return msgspec.convert(dict(zip(Binding.__struct_fields__, fields, strict=True)), Binding)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise InvalidOperation(f"{fields!r:.200} is no binding: {error}") from None


class Bindings:
    """Writes the bindings of this node's Actors, one write at a time for each."""

    def __init__(self, node: Supervisor) -> None:
        self._node = node
        self._locks: WeakValueDictionary[ObjectKey, asyncio.Lock] = WeakValueDictionary()
        self._doubtful: set[ObjectKey] = set()
        self._waiting: list[asyncio.Future[None]] = []

    @asynccontextmanager
    async def quiet(self, key: ObjectKey) -> AsyncIterator[None]:
        """Hold this to read the row that a move begins with: no binding is being written to it, and no write
        whose outcome is unknown can still change it."""
        async with self._lock(key):
            if key in self._doubtful:
                await self._settle(key)
            yield

    def _lock(self, key: ObjectKey) -> asyncio.Lock:
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    async def _settle(self, key: ObjectKey) -> None:
        """A write may still be under way to the store: another version in the row makes it fail for good."""
        found = await self._node.directory.read(key)
        if found is not None and found.row.owner == self._node.owner:
            await self._node.directory.write(rewrite_object(found, found.row))
        self._doubtful.discard(key)

    async def bind(self, key: ObjectKey, binding: Binding) -> dict[str, Any]:
        """Bind an Actor of this node to a session; the newest binding wins (B11.1).

        Returns what the session owner needs for its route.

        Raises:
            Unavailable: the Actor is moving; bind again at its owner (B11.1).
            InvalidOperation: it is no Actor, is not here, or a newer binding stands.
        """
        row = await self._write(key, binding, binding)
        return {
            "object_generation": row.object_generation,
            "owner_generation": row.owner_generation,
            "rid": row.owner.rid,
            "node_generation": row.owner.node_generation,
            "lease_generation": row.owner.lease_generation,
        }

    async def unbind(self, key: ObjectKey, binding: Binding) -> dict[str, Any]:
        """Take a binding out of the row if it is the one that stands there. That of an Actor that is moving travels with
        it, and this returns at once (B11.1).

        Raises:
            Unavailable: the row keeps changing, or the store does not answer.
            InvalidOperation: it is no Actor, or is not here.
        """
        held = self._node.router.objects.get(key)
        if held is None or held.kind != ObjectKind.ACTOR or not self._is_moving(held):
            try:
                row = await self._write(key, None, binding)
            except Unavailable as error:
                held = self._node.router.objects.get(key)
                if error.phase != _MOVING or held is None:
                    raise
            else:
                return {"object_generation": row.object_generation}
        self._send_along(held, binding)
        return {"object_generation": held.object_generation}

    # an unbind that travels ---------------------------------------------------------------------

    def _is_moving(self, held: LocalObject) -> bool:
        return held.place in (Place.SOURCE, Place.TARGET) or self._node.coordinator.moves(held)

    def _send_along(self, held: LocalObject, binding: Binding) -> None:
        """Put the unbind among the Actor's messages: held, relayed and followed as they are."""
        operation = secrets.randbits(64) | 1, secrets.randbits(64)
        fields = msgspec.msgpack.encode(binding_fields(binding))
        body = unbind_frame(self._node.source_prefix, held.key, fields, operation)
        self._node.router.to_object(held, body, parse_record_header(body), None, None)

    async def carry_out(self, held: LocalObject, body: bytes, header: RecordHeader) -> None:
        """An unbind has come to an Actor that is open here. What of a move has begun and not sealed it yet is waited
        for: then the record goes along."""
        payload = unbind_payload(body, header)
        assert payload is not None
        try:
            binding = binding_from(msgspec.msgpack.decode(payload))
            while self._node.router.objects.get(held.key) is held and held.place is Place.ACTIVE:
                if self._node.coordinator.moves(held):
                    await self._next_change()
                elif await self._taken_out(held, binding):
                    return
        except (SojournError, msgspec.DecodeError, UnicodeDecodeError) as error:
            failure = error if isinstance(error, SojournError) else InvalidOperation(f"no binding: {error}")
            self._node.unbind_failed(held.key, failure)
            return
        current = self._node.router.objects.get(held.key)
        if current is None:
            self._node.senders.submit(body, header, None)
        else:
            self._node.router.to_object(current, body, header, None, None)

    async def _taken_out(self, held: LocalObject, binding: Binding) -> bool:
        """Write it. False: a move of the Actor has begun first.

        Raises:
            SojournError: the row could not be written.
        """
        for pause_s in (*_PAUSES_S, None):
            try:
                row = await self._write(held.key, None, binding)
                break
            except Unavailable as error:
                if error.phase == _MOVING:
                    return False
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)
        self._node.log(
            "session_unbound",
            "info",
            object_id=describe_key(held.key),
            session=binding.session_rid.hex(),
            newer_binding=row.binding is not None,
        )
        return True

    async def _next_change(self) -> None:
        waiter: asyncio.Future[None] = self._node.loop.create_future()
        self._waiting.append(waiter)
        await waiter

    def look_again(self) -> None:
        """A handoff has sealed its object, or is over."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    # writing ------------------------------------------------------------------------------------

    async def _write(self, key: ObjectKey, new: Binding | None, named: Binding) -> AuthorityRow:
        name = describe_key(key)
        for _ in range(_ATTEMPTS):
            async with self.quiet(key):
                held = self._held(key)
                found = await self._node.directory.read(key)
                if found is None or found.row.owner != self._node.owner or self._held(key) is not held:
                    raise _not_here(key)
                stands = found.row.binding
                if new is None and stands != named:
                    return found.row
                if new is not None and stands is not None and _newer(stands, new):
                    raise InvalidOperation(f"{name} has a newer binding", object_id=name)
                row = msgspec.structs.replace(found.row, binding=new)
                self._doubtful.add(key)
                result = await self._node.directory.write(rewrite_object(found, row))
                self._doubtful.discard(key)
                if isinstance(result, Applied):
                    return row
        raise Unavailable(f"the row of {name} keeps changing", object_id=name, applied="no")

    def _held(self, key: ObjectKey) -> LocalObject:
        held = self._node.router.objects.get(key)
        moving = held is not None and self._is_moving(held)
        if held is None or held.kind != ObjectKind.ACTOR or not (held.place is Place.ACTIVE or moving):
            raise _not_here(key)
        if moving:
            name = describe_key(key)
            text = f"{name} is moving: bind again when it has"
            raise Unavailable(text, object_id=name, phase=_MOVING, applied="no")
        return held


def _newer(stands: Binding, new: Binding) -> bool:
    """Generations order the bindings of one session owner's run; between owners the one that comes last wins."""
    same = stands.session_owner_rid == new.session_owner_rid
    same = same and stands.session_owner_generation == new.session_owner_generation
    return same and stands.binding_generation > new.binding_generation


def _not_here(key: ObjectKey) -> InvalidOperation:
    name = describe_key(key)
    return InvalidOperation(f"{name} is no Actor of this node", object_id=name, phase="not here")
