"""A node that holds sessions without gateways: everything is the product's but the client's socket, which is a list.

Run as a process of its own; the test plays the client through operations of the node.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import msgspec
from sojourn import frames
from sojourn.ids import NodeRun, ObjectKey, ObjectKind
from sojourn.rows import Binding
from sojourn.session.terms import CloseCode, SessionPlan, SessionRoute
from sojourn.spots.codec import MSGPACK
from sojourn.wire import fast_record
from sojourn.workers import node
from sojourn.workers.bindings import binding_fields
from sojourn.workers.node import NodeConfig
from sojourn.workers.supervisor import Supervisor

__all__ = ["PROGRAM", "SessionNode", "main"]

PROGRAM = (
    "import os, sys; log = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_APPEND | os.O_CREAT); "
    f"os.dup2(log, 2); os.close(log); sys.path.insert(0, {str(Path(__file__).parents[2])!r}); "
    "from tests.faults.session_node import main; sys.exit(main())"
)
"""What the interpreter of such a node runs; its standard error goes into a file."""


class Port:
    """One client bound to one Actor; see `SessionPort`."""

    def __init__(self, holder: SessionNode, key: ObjectKey) -> None:
        self._holder = holder
        self._key = key
        self.story: list[list[Any]] = []

    def switch_route(self, route: SessionRoute) -> None:
        self.story.append(["switch", route.run.rid.decode()])

    def submit(self, route: SessionRoute, messages: tuple[Any, ...]) -> None:
        for text in messages:
            self.story.append(["submit", text])
            self._holder.tell(self._key, text)

    def deliver(self, push: Any) -> None:
        self.story.append(["push", push])

    def drop_push(self, push: Any) -> None:
        self.story.append(["push dropped", push])

    def drop(self, messages: tuple[Any, ...]) -> None:
        self.story.append(["drop", *messages])

    def close(self, code: CloseCode, resume_token: bytes) -> None:
        self.story.append(["close", int(code)])


class SessionNode(Supervisor):
    """See the module text."""

    def __init__(self, config: NodeConfig) -> None:
        super().__init__(config)
        self._ports: dict[bytes, Port] = {}
        self.operations.table |= {
            "client_binds": self._client_binds,
            "client_sends": self._client_sends,
            "client_story": self._client_story,
        }

    async def _client_binds(self, arguments: dict[str, Any]) -> bytes:
        """A new client for the Actor `key`; answers with its session."""
        key, owner, session = arguments["key"], self.owner, secrets.token_bytes(8)
        binding = Binding(
            owner.rid, owner.node_generation, owner.owner_id, owner.lease_generation, session, 1
        )
        told = await self.operations.bind_session({"key": key, "binding": binding_fields(binding)})
        run = NodeRun(told["rid"], told["node_generation"])
        route = SessionRoute(run, told["owner_generation"], told["lease_generation"])
        port = self._ports[session] = Port(self, key)
        plan = SessionPlan(binding, key, told["object_generation"], b"again")
        self.sessions.desk.bind(plan, route, port)
        return session

    async def _client_sends(self, arguments: dict[str, Any]) -> bool:
        """The client of `session` sends `text` to the Actor `key`; False: there is no binding."""
        return self.sessions.desk.message(arguments["session"], arguments["key"], arguments["text"])

    async def _client_story(self, arguments: dict[str, Any]) -> list[list[Any]]:
        """Everything that happened to the client of `session`."""
        return self._ports[arguments["session"]].story

    def tell(self, key: ObjectKey, text: str) -> None:
        """One message of a client to an Actor, by this node's own path."""
        operation = secrets.randbits(62) | 1, secrets.randbits(62) | 1
        head = fast_record.encode_record_head(self.source_prefix, None, *operation, 9, 0)
        payload = fast_record.encode_payload("note", MSGPACK, msgspec.msgpack.encode([text]))
        kind = ObjectKind.ACTOR
        body = frames.record_frame(0, 0, kind, 0, 0, *operation, len(head), key, b"", head + payload)
        self.router.from_local(body, self.creditors[0])


def main() -> int:
    """The process."""
    return node.main(make_supervisor=SessionNode)
