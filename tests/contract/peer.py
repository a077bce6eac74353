"""A member of the mesh that a test plays by hand: it speaks as a node and does only what it is told.

Owns its run, its rows in the store, its links, and everything that arrived. Moves are in `hands`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from sojourn import frames, mesh
from sojourn.control import decode_error
from sojourn.ids import NodeRun, ObjectKey, ObjectKind
from sojourn.location import Applied, Delete, StoreWrite
from sojourn.ownership import put_lease
from sojourn.rows import (
    HostState,
    NodeDescriptor,
    Owner,
    OwnerLease,
    TypeSupport,
    descriptor_row_key,
    encode_descriptor,
    lease_row_key,
)
from sojourn.spots.codec import MSGPACK
from sojourn.spots.results import read_result
from sojourn.wire import NodeSource, decode_command, fast_record
from sojourn.workers.exchange import new_generation
from sojourn.workers.link import Link, LinkOptions
from sojourn.workers.links import Links
from sojourn.workers.local_node import LocalNode
from sojourn.workers.objects import route_fence
from sojourn.workers.stream import Piece

from tests.contract.app import app
from tests.contract.stand import LIMIT_S, Stand, fresh

__all__ = ["Answer", "Arrival", "Peer", "joined"]

LEASE_MS = 600_000
_T = TypeVar("_T")


@dataclass(frozen=True)
class Arrival:
    """One contract record that came in."""

    node: NodeRun
    connection: int
    deadline_ms: int
    command: Any
    octets: bytes


@dataclass(frozen=True)
class Answer:
    """A reply: `error` is the kind of the typed error, empty when it is a result."""

    operation: tuple[int, int]
    value: Any
    error: str = ""
    applied: str = ""


class Peer:
    """See the module text. It is a `MeshReceiver` that keeps everything."""

    def __init__(
        self, stand: Stand, name: str, receive_chunk_limit: int, credit_records: int = 100_000
    ) -> None:
        self.stand = stand
        self.name = name
        self.run = NodeRun(name.encode(), new_generation())
        self.owner = Owner(self.run.rid, self.run.generation, f"{name}@hand", self.run.generation)
        self.arrivals: list[Arrival] = []
        self.records: list[bytes] = []
        self.answers: dict[int, list[Answer]] = {}
        self.controls: list[mesh.MeshControl] = []
        self.downs: list[int] = []
        self.weight = 0
        """Of the descriptor: 0 = only moves that name the peer come here."""
        self.generations: dict[ObjectKey, int] = {}
        """ObjectGenerations for route fences, of objects whose row the peer has read."""
        self.on_command: Callable[[Link, Any], None] | None = None
        """Called for each contract command as it arrives, after it was kept."""
        self.on_message: Callable[[bytes], None] | None = None
        """Called for each record likewise."""
        self.thrifty = False
        """Give no credit back, until `spend`."""
        self._kept: list[tuple[Link, int]] = []
        self._changed = asyncio.Event()
        self._next_route = 1
        options = stand.cluster.options
        self.links = Links(
            self.run,
            options.cluster,
            options.secret.encode(),
            self,
            options=LinkOptions(receive_chunk_limit=receive_chunk_limit, credit_records=credit_records),
        )
        self._source = fast_record.encode_source_prefix(
            NodeSource(self.run.rid, self.run.generation, self.owner.owner_id, self.owner.lease_generation)
        )

    # life

    async def start(self) -> None:
        """Listen, take a lease, and link up with every node of the cluster."""
        await self.links.start()
        for node in self.stand.cluster.nodes:
            await self.link_to(node)
        lease = OwnerLease(
            self.owner.rid, self.owner.node_generation, self.owner.owner_id, self.owner.lease_generation
        )
        await self.write(put_lease(lease, self.descriptor(), LEASE_MS))

    async def stop(self) -> None:
        """Leave without a trace."""
        await self.links.stop(2.0)
        lease = lease_row_key(self.owner.owner_id, self.owner.lease_generation)
        await self.stand.store.write([], [Delete(lease), Delete(descriptor_row_key(self.run))])

    async def write(self, write: StoreWrite) -> Applied:
        """Carry out a write that must succeed."""
        result = await self.stand.store.write(write.conditions, write.mutations)
        assert isinstance(result, Applied), result
        return result

    def descriptor(self) -> NodeDescriptor:
        """What the peer tells nodes: a serving node of the same application that can host everything."""
        return NodeDescriptor(
            rid=self.run.rid,
            generation=self.run.generation,
            owner_id=self.owner.owner_id,
            lease_generation=self.owner.lease_generation,
            application=app.name,
            application_version=app.version,
            endpoints=(self.links.endpoint,),
            types=(
                TypeSupport(ObjectKind.INSTANCE_SPOT, "Ledger", "preserve"),
                TypeSupport(ObjectKind.ACTOR, "Member", "preserve"),
                TypeSupport(ObjectKind.USER_SPOT, "Hall", "preserve"),
            ),
            state=HostState.SERVING,
            weight=self.weight,
            workers=1,
        )

    # links

    async def link_to(self, node: LocalNode) -> Link:
        """The link to a node; when this returns, the node knows the peer."""
        link = await self.links.ensure(self.stand.run_of(node), node.endpoint)
        assert await link.probe()
        return link

    async def cut(self, node: LocalNode) -> None:
        """Break the connection to a node."""
        link = self.links.get(self.stand.run_of(node))
        assert link is not None
        link.abort("cut by the test")
        await link.wait_closed()

    async def settle(self, node: LocalNode) -> None:
        """Everything the node had sent here before it read our last frame has arrived when this returns."""
        link = self.links.get(self.stand.run_of(node))
        assert link is not None
        assert await link.probe()

    # MeshReceiver

    def on_up(self, link: Link) -> None:
        link.send_control(mesh.Announce(encode_descriptor(self.descriptor())))
        self._changed.set()

    def on_down(self, link: Link, reason: str) -> None:
        self.downs.append(link.connection_id)
        self._changed.set()

    def on_record(self, link: Link, body: bytes) -> None:
        self.records.append(body)
        if self.on_message is not None:
            self.on_message(body)
        if self.thrifty:
            self._kept.append((link, len(body)))
        else:
            link.give_back(1, len(body))
        self._changed.set()

    def spend(self) -> None:
        """Give back all the credit that was kept."""
        self.thrifty = False
        kept, self._kept = self._kept, []
        for link, octets in kept:
            link.give_back(1, octets)

    def on_reply(self, link: Link, body: bytes) -> None:
        header = frames.parse_reply_header(body)
        operation = (header.operation_high, header.operation_low)
        result = memoryview(body)[header.body_at :]
        if header.flags & frames.FLAG_ERROR:
            error = decode_error(result)
            answer = Answer(operation, None, error.kind, str(error.fields.get("applied", "")))
        else:
            _, at = read_result(body, header.body_at)
            answer = Answer(operation, msgspec.msgpack.decode(memoryview(body)[at:]))
        self.answers.setdefault(header.reply_route, []).append(answer)
        self._changed.set()

    def on_contract(self, link: Link, parts: Sequence[Piece], deadline_ms: int) -> None:
        octets = bytes(parts[0])
        command = decode_command(octets, [bytes(part) for part in parts[1:]])
        self.arrivals.append(Arrival(link.peer, link.connection_id, deadline_ms, command, octets))
        if self.on_command is not None:
            self.on_command(link, command)
        self._changed.set()

    def on_control(self, link: Link, message: mesh.MeshControl) -> None:
        if not isinstance(message, mesh.Announce):  # a node says what it is at times of its own
            self.controls.append(message)
        self._changed.set()

    # waiting

    async def until(self, ask: Callable[[], _T]) -> _T:
        """What `ask` answers once it is true; it is asked again after everything that arrives."""
        async with asyncio.timeout(LIMIT_S):
            while not (answer := ask()):
                self._changed.clear()
                await self._changed.wait()
        return answer

    async def nothing_for(self, seconds: float, ask: Callable[[], object]) -> None:
        """`ask` stays false for so long."""
        try:
            async with asyncio.timeout(seconds):
                found = await self.until(ask)
        except TimeoutError:
            return
        raise AssertionError(f"came although it must not: {found}")

    # messages

    def record(
        self,
        key: ObjectKey,
        packet: str,
        *arguments: Any,
        route: int = 0,
        deadline_ms: int | None = None,
        operation: tuple[int, int] | None = None,
    ) -> tuple[bytes, int, tuple[int, int]]:
        """A frozen record for an object, the offset of its route fence, its operation id."""
        actor = key[:1] == b"a"
        high, low = operation or (secrets.randbits(62) | 1, secrets.randbits(62) | 1)
        kind = (10 if actor else 6) if route else (9 if actor else 5)
        head = fast_record.encode_record_head(self._source, deadline_ms, high, low, kind, route)
        object_kind = ObjectKind.ACTOR if actor else ObjectKind.INSTANCE_SPOT
        body = route_fence(key, object_kind, self.generations.get(key, 1), self.run, 1, 1)
        payload = fast_record.encode_payload(packet, MSGPACK, msgspec.msgpack.encode(arguments))
        return head + body + payload, len(head), (high, low)

    def saved(self, key: ObjectKey, packet: str, *arguments: Any, **more: Any) -> bytes:
        """A frozen record alone, for saved work and relay."""
        return self.record(key, packet, *arguments, **more)[0]

    def new_route(self) -> int:
        """A reply route that no other request has."""
        self._next_route += 1
        return self._next_route

    def submit(
        self,
        node: LocalNode,
        key: ObjectKey,
        packet: str,
        *arguments: Any,
        request: bool = True,
        create: str = "",
        hops: int = 0,
        deadline_ms: int | None = None,
        operation: tuple[int, int] | None = None,
    ) -> int:
        """Send a message straight to a node; returns the reply route of a request. `create` is the stable type
        of an Instance Spot that the node is to make."""
        route = self.new_route() if request else 0
        record, fence_at, (high, low) = self.record(
            key, packet, *arguments, route=route, deadline_ms=deadline_ms, operation=operation
        )
        flags = frames.FLAG_COMPLETE | (frames.FLAG_REQUEST if request else 0)
        flags |= frames.FLAG_FOLLOW if hops else 0
        if create:
            flags |= frames.FLAG_INTENT | frames.FLAG_ACTIVATE
        kind = ObjectKind.ACTOR if key[:1] == b"a" else ObjectKind.INSTANCE_SPOT
        link = self.links.get(self.stand.run_of(node))
        assert link is not None
        link.send_record(
            frames.record_frame(
                flags, hops, kind, 0, route, high, low, fence_at, key, create.encode(), record
            )
        )
        return route

    async def answer(self, route: int) -> Answer:
        """The reply to a request; exactly one came."""
        await self.until(lambda: self.answers.get(route))
        (answer,) = self.answers[route]
        return answer

    async def ask(self, node: LocalNode, key: ObjectKey, packet: str, *arguments: Any, **more: Any) -> Any:
        """Send a request straight to a node and return its result."""
        answer = await self.answer(self.submit(node, key, packet, *arguments, **more))
        assert not answer.error, answer
        return answer.value

    def commands(self, kind: type[_T], since: int = 0) -> list[_T]:
        """Contract commands of one kind that have arrived, in order."""
        return [each.command for each in self.arrivals[since:] if isinstance(each.command, kind)]


@asynccontextmanager
async def joined(
    stand: Stand, name: str = "hand", receive_chunk_limit: int = 256 * 1024, credit_records: int = 100_000
) -> AsyncIterator[Peer]:
    """A peer with a RID of its own that has joined the cluster; each node may have `credit_records` records under way
    to it."""
    peer = Peer(stand, fresh(name), receive_chunk_limit, credit_records)
    await peer.start()
    try:
        yield peer
    finally:
        await peer.stop()
