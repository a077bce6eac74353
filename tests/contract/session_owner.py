"""A session owner without gateways: a peer's real desk of seals, and a client that writes everything down.

The seals, their time and their commands are the product's (`SessionDesk`); only the socket is a list.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sojourn.frames import parse_record_header
from sojourn.ids import NodeRun, ObjectKey, ObjectKind, actor_key
from sojourn.ownership import create_object
from sojourn.rows import AuthorityRow, Binding, Membership
from sojourn.session.terms import CloseCode, SessionOptions, SessionPlan, SessionRoute
from sojourn.wire import SessionRelocationRoute, SessionRelocationSeal, fast_record
from sojourn.wire.commands import RouteCommit
from sojourn.workers.bindings import binding_fields
from sojourn.workers.link import Link
from sojourn.workers.local_node import LocalNode
from sojourn.workers.records import frozen_record, record_origin
from sojourn.workers.session_desk import SessionDesk
from sojourn.workers.sessions import route_command

from tests.contract.peer import Peer
from tests.contract.stand import fresh

__all__ = ["BoundClient", "SessionOwner"]

Held = Callable[[SessionRelocationSeal, int], bool]
"""Whether a 42, the first or the n-th, is to stay unanswered for now."""


@dataclass
class BoundClient:
    """One client bound to one Actor; also the desk's port. Its sends go to the Actor's owner as records."""

    owner: SessionOwner
    binding: Binding
    key: ObjectKey
    story: list[tuple[Any, ...]] = field(default_factory=list)

    def send(self, text: str) -> None:
        """The client tells its Actor something."""
        assert self.owner.desk.message(self.binding.session_rid, self.key, text)

    def texts(self) -> list[str]:
        """What has left for the Actor, in order."""
        return [entry[2] for entry in self.story if entry[0] == "submit"]

    def kinds(self) -> list[str]:
        """What happened, without repetitions of one kind in a row."""
        names: list[str] = []
        for entry in self.story:
            if not names or names[-1] != entry[0]:
                names.append(entry[0])
        return names

    # SessionPort

    def switch_route(self, route: SessionRoute) -> None:
        self.story.append(("switch", route.run.rid))

    def submit(self, route: SessionRoute, messages: tuple[Any, ...]) -> None:
        for text in messages:
            self.story.append(("submit", route.run.rid, text))
            self.owner.submit(route.run, self.key, text)

    def deliver(self, push: Any) -> None:
        self.story.append(("push", push))

    def drop_push(self, push: Any) -> None:
        self.story.append(("push dropped", push))

    def drop(self, messages: tuple[Any, ...]) -> None:
        self.story.append(("drop", messages))

    def close(self, code: CloseCode, resume_token: bytes) -> None:
        self.story.append(("close", code, resume_token, self.owner.loop.time()))


class SessionOwner:
    """The desk of a peer, and what arrived there."""

    def __init__(self, peer: Peer, seal_timeout_s: float = 3.0) -> None:
        self.peer = peer
        self.loop = asyncio.get_running_loop()
        self.desk = SessionDesk(self, SessionOptions(seal_timeout_s=seal_timeout_s))
        self.logged: list[tuple[str, str]] = []
        self.seals: list[tuple[float, SessionRelocationSeal]] = []
        self.routes: list[SessionRelocationRoute] = []
        self.holds: Held = lambda command, number: False
        self.on_seal: Callable[[SessionRelocationSeal, int], None] = lambda command, number: None
        """Called when a 42 was carried out, before anything else can happen."""
        self.told: list[str] = []
        """What came from the Actor's owners, in order: `seal`, `push <text>`, `commit`, `abort`."""
        self._unanswered: list[tuple[Link, SessionRelocationSeal]] = []
        self._screens: dict[ObjectKey, tuple[BoundClient, dict[NodeRun, int]]] = {}
        peer.on_command = self._arrived
        peer.on_message = self._pushed

    def log(self, event: str, level: str, **fields: object) -> None:
        """What the desk logs."""
        self.logged.append((event, level))

    def _arrived(self, link: Link, command: Any) -> None:
        if isinstance(command, SessionRelocationSeal):
            self.told.append("seal")
            self.seals.append((self.loop.time(), command))
            number = len(self.seals)
            if self.holds(command, number):
                self._unanswered.append((link, command))
            else:
                route_command(self.desk, link, command)
            self.on_seal(command, number)
        elif isinstance(command, SessionRelocationRoute):
            self.told.append("commit" if isinstance(command.route_update, RouteCommit) else "abort")
            self.routes.append(command)
            route_command(self.desk, link, command)

    async def screen(self, client: BoundClient, owners: Sequence[LocalNode]) -> str:
        """Where an Actor pushes to its client: an Actor of the peer, whose messages are given to the desk as pushes.
        `owners`: the nodes that own the client's Actor one after the other."""
        peer, name = self.peer, fresh("screen")
        row = AuthorityRow(
            kind=ObjectKind.ACTOR,
            object_id=name,
            stable_type="Member",
            object_generation=1,
            owner_generation=1,
            owner=peer.owner,
            membership=Membership(ObjectKind.ENTRY_SPOT, peer.name, 1),
        )
        await peer.write(create_object(row))
        runs = {peer.stand.run_of(node): number for number, node in enumerate(owners, 1)}
        self._screens[actor_key(name)] = client, runs
        return name

    def _pushed(self, body: bytes) -> None:
        header = parse_record_header(body)
        found = self._screens.get(header.key)
        if found is None:
            return
        client, generations = found
        payload = fast_record.read_record(frozen_record(body)).payload
        (text,) = msgspec.msgpack.decode(payload)
        self.told.append(f"push {text}")
        generation = generations[record_origin(body, header.record_at)]
        assert self.desk.push(client.binding.session_rid, client.key, text, generation)

    def answer(self) -> None:
        """Carry out what was left unanswered."""
        waiting, self._unanswered = self._unanswered, []
        for link, command in waiting:
            route_command(self.desk, link, command)

    async def client(
        self, node: LocalNode, key: ObjectKey, generation: int = 1, session: bytes = b""
    ) -> BoundClient:
        """Bind a client to an Actor of this node: in its row, and at the desk. A new one without `session`."""
        owner = self.peer.owner
        binding = Binding(
            owner.rid,
            owner.node_generation,
            owner.owner_id,
            owner.lease_generation,
            session or secrets.token_bytes(8),
            generation,
        )
        told = await node.call("bind_session", {"key": key, "binding": binding_fields(binding)})
        client = BoundClient(self, binding, key)
        route = SessionRoute(
            NodeRun(told["rid"], told["node_generation"]), told["owner_generation"], told["lease_generation"]
        )
        self.peer.generations[key] = told["object_generation"]
        plan = SessionPlan(binding, key, told["object_generation"], b"come back")
        self.desk.bind(plan, route, client)
        return client

    def submit(self, run: NodeRun, key: ObjectKey, text: str) -> None:
        """Send one message of a client to a node."""
        nodes = [node for node in self.peer.stand.cluster.nodes if self.peer.stand.run_of(node) == run]
        self.peer.submit(nodes[0], key, "note", text, request=False)
