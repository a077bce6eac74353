"""The cluster client: a mesh member without workers, inside the user's own process (B13.1).

Owns the user's references, the creation of Actors, and the requests that wait in this process. It survives
any node leaving.
"""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple, Self, TypeVar

from sojourn.control import Control, ForgetRequest
from sojourn.errors import InvalidOperation, NotConfigured, ShuttingDown
from sojourn.handshake_octets import PeerRole, RefusalReason
from sojourn.ids import actor_key
from sojourn.options import Options
from sojourn.rows import HostState
from sojourn.spots.app import App, check_creation
from sojourn.spots.objects import Actor, Spot
from sojourn.spots.origin import Origin
from sojourn.spots.outbox import Outbox
from sojourn.spots.ports import LoopClock
from sojourn.spots.references import ActorRef, NodeName, Reference, SpotRef, node_name
from sojourn.spots.settings import SpotSettings
from sojourn.workers.exchange import LEVELS
from sojourn.workers.member import Member
from sojourn.workers.node_operations import RemoteNode
from sojourn.workers.operations import MemberOperations
from sojourn.workers.program import refuse_in_worker
from sojourn.workers.waiters import Waiters

__all__ = ["Client", "Location"]

_A = TypeVar("_A", bound=Actor)
_S = TypeVar("_S", bound=Spot)

CONGESTED_OCTETS = 1024 * 1024
"""Octets this process may have on the way out before `send` and `request` wait (B3.1)."""


class Location(NamedTuple):
    """Where an object is: its node's RID and the worker's slot there."""

    node: str
    worker: int


class _ClientPort:
    """The outbox's way out: straight into the router (see `sojourn.spots.ports.Port`)."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._octets = 0
        self._waiters = Waiters()

    @property
    def congested(self) -> bool:
        """More is on the way out than may be."""
        return self._octets > CONGESTED_OCTETS

    def submit(self, frame_body: bytes) -> None:
        """Send one record."""
        self._octets += len(frame_body)
        self._client.router.from_local(frame_body, self)

    def give_back(self, records: int, octets: int) -> None:
        """Records left this process."""
        self._octets -= octets
        if self._waiters and not self.congested:
            self._waiters.wake()

    async def wait_uncongested(self) -> None:
        """Wait until `congested` is False."""
        while self.congested:
            await self._waiters.wait()

    def submit_control(self, message: Control) -> None:
        """The only control message a client's outbox has: a request that ended here first."""
        if isinstance(message, ForgetRequest):
            self._client.senders.outstanding.pop(message.reply_route, None)

    async def call_node(self, operation: str, arguments: dict[str, Any]) -> Any:
        """Operations on objects: this member passes them on to the node concerned."""
        return await self._client.calls.operations[operation](arguments)

    def grant(self, records: int, octets: int) -> None:
        """A client takes no records."""

    def fatal(self, error: BaseException) -> None:
        """A client runs no handlers."""
        raise error


class Client(Member):
    """The user's way into a cluster; an async context manager.

    Args:
        app: the application whose types the references name.
        options: cluster name, secret and store address must be those of the nodes.
        rid: the member's RID; a random one when left out.
    """

    role = PeerRole.CLIENT

    def __init__(self, app: App, options: Options, rid: str = "") -> None:
        refuse_in_worker("Client(...)")
        super().__init__((rid or f"client-{secrets.token_hex(6)}").encode(), options, None, 0)
        self._app = app
        self._outbox: Outbox | None = None

    def log(self, event: str, level: str, **fields: object) -> None:
        """As for nodes, but with the fields in the text too: the log of a user's program shows nothing else."""
        number = LEVELS[level]
        if self.logger.isEnabledFor(number):
            shown = " ".join(f"{name}={value}" for name, value in fields.items())
            self.logger.log(
                number, "%s %s", event, shown, extra={"sojourn": {"node": str(self.run), **fields}}
            )

    async def connect_cluster(self) -> Self:
        """Join the mesh: links to every live node.

        Raises:
            NotConfigured: a setting is wrong, the nodes have another secret, or the store is `memory://` and they
                are in other processes.
            StoreUnavailable: the store cannot be reached.
        """
        self.calls.operations = MemberOperations(self).table
        try:
            await self.join()
            if self.options.store_url.startswith("memory:") and not self.roster.nodes():
                raise NotConfigured(
                    "memory:// lives in one process, and no node of this cluster is in this one: give the client the "
                    "store of its nodes, sqlite:///absolute/path or redis://host:port/db"
                )
            self._check_secret()
        except BaseException:
            await self.leave(1.0)
            raise
        origin = Origin(self.run.rid, self.run.generation, self.owner_id, self.lease_generation)
        settings = SpotSettings.from_options(self.options.to_mapping(with_secret=False))
        self._outbox = Outbox(self._app, _ClientPort(self), LoopClock(self.loop), origin, 0, settings)
        self.state = HostState.SERVING
        return self

    def _check_secret(self) -> None:
        refusals = self.links.refusals()
        strangers = [run for run, error in refusals.items() if error.reason == RefusalReason.WRONG_SECRET]
        if strangers and not self.links.all():
            raise NotConfigured(
                f"the nodes of this cluster have another secret (option `secret`): {', '.join(map(str, strangers))} "
                "refused this client"
            )

    async def close(self, timeout_s: float = 2.0) -> None:
        """Leave the mesh; open requests end as ShuttingDown."""
        if self._outbox is not None:
            self._outbox.close(ShuttingDown("the client is closed"))
            self._outbox = None
        await self.leave(timeout_s)

    async def __aenter__(self) -> Self:
        return await self.connect_cluster()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    @property
    def outbox(self) -> Outbox:
        """The open outbox."""
        if self._outbox is None:
            raise InvalidOperation("the client is not connected: use `async with`, or connect_cluster()")
        return self._outbox

    # objects ------------------------------------------------------------------------------------

    def actor(self, actor_class: type[_A], actor_id: str) -> ActorRef[_A]:
        """A reference to an Actor. It need not exist: requests to a missing one end as NotFound."""
        return self.outbox.references.actor(actor_class, actor_id)

    def spot(self, spot_class: type[_S], spot_id: str) -> SpotRef[_S]:
        """A reference to a Spot. An Instance Spot is made by its first message (B1.4)."""
        return self.outbox.references.spot(spot_class, spot_id)

    async def create(
        self,
        actor_class: type[_A],
        actor_id: str,
        /,
        *arguments: Any,
        at: NodeName | None = None,
        **named: Any,
    ) -> ActorRef[_A]:
        """Make an Actor in the Entry Spot of a node, and return a reference to it (B2.2, B13.2).

        Args:
            arguments, named: for the Actor's `__init__`.
            at: the node; the placement chooses one when left out.

        Raises:
            AlreadyExists: an Actor of this id lives.
            InvalidOperation: the arguments do not fit `__init__`, or cannot be sent.
            Rejected: the Entry Spot's `on_create_actor` said no.
            InternalFailure: `__init__` or `on_initialize` raised.
            NotConfigured: no node has the RID `at`; names those that run.
            Unavailable: no node can take it, or the one asked for has ended.
        """
        reference = self.actor(actor_class, actor_id)
        check_creation(reference.type, arguments, named)
        content_type, encoded = self.outbox.codec.encode_creation(
            reference.type.stable_type, arguments, named
        )
        await self.outbox.call_node(
            "create_actor",
            {
                "key": actor_key(actor_id),
                "stable_type": reference.type.stable_type,
                "content_type": content_type,
                "arguments": encoded,
                "at": None if at is None else node_name(at),
            },
        )
        return reference

    async def locate(self, reference: Reference[Any]) -> Location:
        """Where an object is now.

        Raises:
            NotFound: it does not exist.
        """
        answer = await self.outbox.call_node("locate", {"key": reference.key})
        return Location(answer["node"], answer["worker"])

    def node(self, node: NodeName) -> RemoteNode:
        """A node of the cluster, for `relocate`, `cordon`, `uncordon` and `status` over the mesh (B10.6)."""
        return RemoteNode(self, node_name(node))

    async def call_node_named(
        self, rid: str, operation: str, arguments: dict[str, Any], timeout_s: float
    ) -> Any:
        """Ask a node for an operation; see `RemoteNode.call`."""
        self.outbox.check_open()
        found = self.find_node(rid.encode("utf-8", "surrogateescape"))
        await self.connect(found.run)
        return await self.calls.call(found.run, operation, arguments, timeout_s)

    def nodes(self) -> list[str]:
        """RIDs of the nodes this client knows, sorted."""
        return sorted(node.rid.decode("utf-8", "backslashreplace") for node in self.roster.nodes())

    # member -------------------------------------------------------------------------------------

    def deliver_reply(self, reply_route: int, body: bytes) -> None:
        """A reply to a request of this process; late ones are dropped."""
        if self._outbox is not None:
            self._outbox.receive_reply(body)
