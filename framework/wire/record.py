"""Frozen records: one accepted message or event, exactly as it waits, is saved, relayed and stored.

Owns the fourteen kinds and the rules between kind, source, operation and body. Records travel inside
envelopes and command 31 as raw bytes; this is their meaning. The quick path for the kinds that
applications send all day is `fast_record`.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from sojourn.wire.blocks import ActorRef, OperationIdOrZero
from sojourn.wire.cursor import Buffer, Reader, Writer
from sojourn.wire.errors import Word
from sojourn.wire.payload import METADATA, Metadata, deadline_of
from sojourn.wire.primitives import NZ64, RID, TEXT8, U16, Codec, Enumeration, fail_json
from sojourn.wire.record_bodies import (
    ActorBody,
    ChannelBody,
    Completion,
    InnerOperation,
    InstanceActivation,
    MulticastBody,
    NodeBody,
    RelocationControl,
    SendReady,
    SpotBody,
    SpotControl,
)
from sojourn.wire.structure import Choice, Optional, Problem, Union, WireName, block

__all__ = [
    "FROZEN_RECORD",
    "SOURCE",
    "ActorSource",
    "BoundSessionSource",
    "FrozenRecord",
    "NodeSource",
    "OperationKind",
    "RawRecord",
    "RecordBody",
    "RecordKind",
    "RecordSource",
    "SpotSource",
    "decode_frozen_record",
    "encode_frozen_record",
]


class RecordKind(enum.IntEnum):
    """What a frozen record is."""

    NODE_SEND = 1
    NODE_REQUEST = 2
    CHANNEL_SEND = 3
    CHANNEL_REQUEST = 4
    SPOT_SEND = 5
    SPOT_REQUEST = 6
    SPOT_MULTICAST = 7
    SPOT_CONTROL = 8
    ACTOR_SEND = 9
    ACTOR_REQUEST = 10
    COMPLETION = 11
    SEND_READY = 12
    RELOCATION_CONTROL = 13
    INSTANCE_SPOT_ACTIVATION = 14


class OperationKind(enum.IntEnum):
    """What an operation asks for; u32 on the wire."""

    NONE = 0
    NODE_REQUEST = 1
    CHANNEL_REQUEST = 2
    SPOT_REQUEST = 3
    ACTOR_REQUEST = 4
    ACTOR_LOOKUP = 5
    ACTOR_DESTROY = 6
    ACTOR_JOIN = 7
    ACTOR_LEAVE = 8
    STREAM_BIND = 9
    STREAM_UNBIND = 10
    STREAM_CLOSE = 11
    INSTANCE_SPOT_REQUEST = 12
    USER_SPOT_CREATE = 13
    USER_SPOT_CLOSE = 14
    ACTOR_CREATE = 15


OPERATIONS_WITH_ROUTE = frozenset((1, 2, 3, 4, 12))
"""The operation kinds whose reply route is a number; every other kind has an empty one."""


class NodeSource(msgspec.Struct, frozen=True):
    """A node (or a client) outside of any object's turn."""

    node_rid: Annotated[bytes, RID]
    node_generation: Annotated[int, NZ64]
    owner_id: Annotated[str, TEXT8]
    owner_lease_generation: Annotated[int, NZ64]


class SpotSource(msgspec.Struct, frozen=True):
    """A Spot's turn."""

    node_rid: Annotated[bytes, RID]
    node_generation: Annotated[int, NZ64]
    owner_id: Annotated[str, TEXT8]
    owner_lease_generation: Annotated[int, NZ64]
    spot_id: Annotated[str, TEXT8]


class ActorSource(msgspec.Struct, frozen=True):
    """An Actor's turn."""

    node_rid: Annotated[bytes, RID]
    node_generation: Annotated[int, NZ64]
    owner_id: Annotated[str, TEXT8]
    owner_lease_generation: Annotated[int, NZ64]
    actor_ref: ActorRef


class BoundSessionSource(msgspec.Struct, frozen=True):
    """An Actor's session."""

    node_rid: Annotated[bytes, RID]
    node_generation: Annotated[int, NZ64]
    owner_id: Annotated[str, TEXT8]
    owner_lease_generation: Annotated[int, NZ64]
    actor_ref: ActorRef
    session_rid: Annotated[bytes, RID]
    binding_generation: Annotated[int, NZ64]
    session_sequence: Annotated[int, NZ64]


RecordSource = NodeSource | SpotSource | ActorSource | BoundSessionSource
SOURCE: Union[RecordSource] = Union(
    {
        (1, "node"): NodeSource,
        (2, "spot"): SpotSource,
        (3, "actor"): ActorSource,
        (4, "boundSession"): BoundSessionSource,
    }
)

RecordBody = (
    NodeBody
    | ChannelBody
    | SpotBody
    | MulticastBody
    | SpotControl
    | ActorBody
    | Completion
    | SendReady
    | RelocationControl
    | InstanceActivation
)


class _Rule(NamedTuple):
    """What one kind of record demands of its other fields."""

    body: type[Any]
    operation_kinds: frozenset[int]
    operation_id: bool | None
    """True = nonzero, False = zero, None = nonzero exactly when there is an operation kind."""
    takes_metadata: bool = True
    node_only: bool = False


_ANY_OPERATION = frozenset(range(1, 16))
_RULES: dict[int, _Rule] = {
    1: _Rule(NodeBody, frozenset((0,)), False),
    2: _Rule(NodeBody, frozenset((1,)), True),
    3: _Rule(ChannelBody, frozenset((0,)), False),
    4: _Rule(ChannelBody, frozenset((2,)), True),
    5: _Rule(SpotBody, frozenset((0,)), True),
    6: _Rule(SpotBody, frozenset((3,)), True),
    7: _Rule(MulticastBody, frozenset((0,)), False),
    8: _Rule(SpotControl, frozenset((0, 6, 7, 8)), None, takes_metadata=False, node_only=True),
    9: _Rule(ActorBody, frozenset((0,)), True),
    10: _Rule(ActorBody, frozenset((4,)), True),
    11: _Rule(Completion, _ANY_OPERATION, True, takes_metadata=False, node_only=True),
    12: _Rule(SendReady, frozenset((0,)), False, takes_metadata=False, node_only=True),
    13: _Rule(RelocationControl, frozenset((0,)), False, takes_metadata=False, node_only=True),
    14: _Rule(InstanceActivation, frozenset((0, 12)), None),
}


class _ReplyRoute(Codec[int | None]):
    """u16 length and, for the operation kinds with a route, a number. The length must be that of the kind."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.minimum = 2 + width

    def read(self, reader: Reader) -> int | None:
        start = reader.offset
        length = U16.read(reader)
        if length != self.width:
            detail = f"the reply route of this operation kind has {self.width} bytes, not {length}"
            reader.fail(Word.INVALID_BODY_LENGTH, detail, offset=start)
        if not length:
            return None
        reader.enter("replyRouteId")
        route = NZ64.read(reader)
        reader.leave()
        return route

    def write(self, writer: Writer, value: int | None) -> None:
        if (value is not None) != bool(self.width):
            there = "a" if self.width else "no"
            writer.fail(Word.INVALID_FIELD, f"this operation kind has {there} reply route")
        U16.write(writer, self.width)
        if value is not None:
            NZ64.write(writer, value)

    def to_json(self, value: int | None) -> dict[str, str]:
        return {} if value is None else {"replyRouteId": str(value)}

    def from_json(self, value: Any, path: list[str]) -> int | None:
        if value == {}:
            return None
        if isinstance(value, dict) and list(value) == ["replyRouteId"]:
            return NZ64.from_json(value["replyRouteId"], [*path, "replyRouteId"])
        raise fail_json(path, "an empty object, or one with replyRouteId, is needed")


_ROUTE = _ReplyRoute(8)
_NO_ROUTE = _ReplyRoute(0)


def _reply_route(values: Mapping[str, Any]) -> Codec[Any]:
    return _ROUTE if values["operation_kind"] in OPERATIONS_WITH_ROUTE else _NO_ROUTE


def _body(values: Mapping[str, Any]) -> Codec[Any]:
    return block(_RULES[values["record_kind"]].body)


class FrozenRecord(msgspec.Struct, frozen=True):
    """One message or event with everything it needs to run later and elsewhere."""

    record_kind: Annotated[RecordKind, Enumeration(RecordKind)]
    source: Annotated[RecordSource, SOURCE]
    metadata: Annotated[Metadata | None, Optional(METADATA, flag="hasMetadata")]
    operation_id: OperationIdOrZero
    operation_kind: Annotated[OperationKind, Enumeration(OperationKind, 4)]
    reply_route_id: Annotated[int | None, Choice(_reply_route, 2), WireName("replyRoute")]
    """Where the reply goes; None for the operation kinds that have no reply route."""
    body: Annotated[RecordBody, Choice(_body, 5)]

    @property
    def deadline_ms(self) -> int | None:
        """The request's deadline in milliseconds since the Unix epoch; None = none (B8.2).

        Raises:
            WireError: the metadata hold a deadline that is no number.
        """
        return None if self.metadata is None else deadline_of(self.metadata)

    def wire_problem(self) -> Problem | None:
        """The first rule of the record's kind that does not hold."""
        rule = _RULES[self.record_kind]
        kind, operation = self.record_kind.name, self.operation_kind
        problem: tuple[str, str] | None = None
        if rule.node_only and not isinstance(self.source, NodeSource):
            problem = "source", f"{kind} comes from a node only"
        elif self.metadata is not None and not rule.takes_metadata:
            problem = "metadata", f"{kind} has no metadata"
        elif operation not in rule.operation_kinds:
            problem = "operation_kind", f"{operation} does not go with {kind}"
        else:
            needs_id = operation != 0 if rule.operation_id is None else rule.operation_id
            if bool(self.operation_id) != needs_id:
                problem = "operation_id", f"must be {'nonzero' if needs_id else 'zero'} for {kind}"
            elif isinstance(self.body, InstanceActivation):
                asks = self.body.inner_operation == InnerOperation.REQUEST
                if asks != (operation == OperationKind.INSTANCE_SPOT_REQUEST):
                    problem = "body", "the inner operation contradicts the operation kind"
        return None if problem is None else Problem(Word.INVALID_FIELD, *problem)


FROZEN_RECORD = block(FrozenRecord)


class RawRecord(Codec[Buffer]):
    """A frozen record that stays bytes: checked when read, passed on unchanged, shown decoded."""

    @functools.cached_property
    def minimum(self) -> int:  # type: ignore[override]
        return FROZEN_RECORD.minimum

    def read(self, reader: Reader) -> bytes:
        start = reader.offset
        if reader.trace is None:
            from sojourn.wire.fast_record import take_record  # it is built on this module

            record = take_record(reader.data, start)
            if record is not None and len(record) <= reader.remaining:
                reader.advance(len(record))
                return record
        FROZEN_RECORD.read(reader)
        return bytes(reader.data[start : reader.offset])

    def write(self, writer: Writer, value: Buffer) -> None:
        if writer.trace is not None:
            FROZEN_RECORD.write(writer, decode_frozen_record(value))
            return
        writer.put_blob(value)

    def to_json(self, value: Buffer) -> dict[str, Any]:
        return FROZEN_RECORD.to_json(decode_frozen_record(value))

    def from_json(self, value: Any, path: list[str]) -> bytes:
        return encode_frozen_record(FROZEN_RECORD.from_json(value, path))


def decode_frozen_record(data: bytes | memoryview) -> FrozenRecord:
    """Decode one whole frozen record of any kind.

    Raises:
        WireError: malformed, or a rule of its kind is broken.
    """
    reader = Reader(data)
    record = FROZEN_RECORD.read(reader)
    reader.finish()
    return record


def encode_frozen_record(record: FrozenRecord) -> bytes:
    """Encode a frozen record of any kind.

    Raises:
        WireError: a value out of range, or a rule of its kind is broken.
    """
    writer = Writer()
    FROZEN_RECORD.write(writer, record)
    return writer.joined()
