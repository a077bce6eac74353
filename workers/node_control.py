"""Messages between a node's supervisor process and the program that launched it (one machine, one socketpair).

Owns their fields and form: MessagePack in the frames of `FrameChannel`. The configuration travels here, so that
no secret stands in a command line or environment. The end of the connection means: the other side is gone.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from sojourn.control import ErrorBody
from sojourn.options import Options
from sojourn.workers.program import ProgramReference

__all__ = [
    "Configure",
    "NodeAnswer",
    "NodeCall",
    "NodeConfig",
    "NodeFailed",
    "NodeMessage",
    "NodeReady",
    "NodeStopped",
    "StopNode",
    "decode_node_message",
    "encode_node_message",
]


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is started with.

    Attributes:
        rid: the node's RID, 1 to 255 bytes as UTF-8 (B1.1).
        program: where its workers find the application.
        options: settings, with cluster name, secret and store address.
        host, port: where it listens; port 0 = any free one.
        advertise: `host:port` that its descriptor names and others dial, where that differs from where it
            listens (address translation, containers, a proxy); port 0 = the port it listens on, empty = where
            it listens.
        weight: share of placements, 0 to 1000000; 0 = none.
        wave: maintenance wave, empty = unset (B8.1).
        log_level: least severe level that is logged, for its workers too.
    """

    rid: str
    program: ProgramReference
    options: Options
    host: str = "127.0.0.1"
    port: int = 0
    advertise: str = ""
    weight: int = 100
    wave: str = ""
    log_level: str = "WARNING"

    @property
    def workers(self) -> int:
        """Number of worker processes."""
        return self.options.workers


class _NodeMessage(msgspec.Struct, tag=True, array_like=True):
    pass


class Configure(_NodeMessage):
    """First message to a node. `directory` is removed by the node if its launcher dies without doing so."""

    config: NodeConfig
    launcher: int
    directory: str = ""


class StopNode(_NodeMessage):
    """Stop within `timeout_s` seconds; a second one stops at once."""

    timeout_s: float


class NodeCall(_NodeMessage):
    """An operation of the node (`relocate_node`, `cordon`, `status`, ...), answered by `NodeAnswer`."""

    call: int
    operation: str
    arguments: dict[str, Any]


class NodeReady(_NodeMessage):
    """The node serves."""

    rid: str
    generation: int
    endpoint: str
    pid: int


class NodeFailed(_NodeMessage):
    """The node could not start, or cannot go on; its process ends."""

    error: ErrorBody


class NodeAnswer(_NodeMessage):
    """Outcome of a `NodeCall`."""

    call: int
    value: Any = None
    error: ErrorBody | None = None


class NodeStopped(_NodeMessage):
    """The node has stopped as asked; its process ends. `forced`: some work was cut off."""

    forced: bool


NodeMessage: TypeAlias = Configure | StopNode | NodeCall | NodeReady | NodeFailed | NodeAnswer | NodeStopped

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[NodeMessage] = msgspec.msgpack.Decoder(NodeMessage)


def encode_node_message(message: NodeMessage) -> bytes:
    """MessagePack form of a message."""
    return _encoder.encode(message)


def decode_node_message(body: bytes) -> NodeMessage:
    """Read a message; raises msgspec.DecodeError on anything malformed."""
    return _decoder.decode(body)
