"""Hypothesis strategies for everything the wire codec can carry, drawn from the codecs' own declarations.

The declarations themselves are checked against bytes written by hand in tests/golden.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from hypothesis import strategies as st
from sojourn.wire import (
    blocks,
    commands,
    companion_commands,
    envelope,
    payload,
    record,
    record_bodies,
    results,
)
from sojourn.wire.primitives import Blob, Boolean, Codec, Enumeration, FixedBlob, Number, Rid, Text
from sojourn.wire.record import (
    OPERATIONS_WITH_ROUTE,
    FrozenRecord,
    RawRecord,
    RecordKind,
    encode_frozen_record,
)
from sojourn.wire.structure import Block, ExtraPart, Optional, Union, Vector, VersionedEnvelope, block

__all__ = ["command_values", "envelope_values", "record_values", "values"]


def _numbers(codec: Number) -> st.SearchStrategy[int]:
    near_low = st.integers(codec.low, min(codec.high, codec.low + 9))
    return st.one_of(near_low, st.integers(codec.low, codec.high), st.just(codec.high))


@functools.cache
def _texts(low: int, high: int) -> st.SearchStrategy[str]:
    alphabet = st.characters(codec="utf-8", exclude_characters="\0")
    short = st.text(alphabet, min_size=low, max_size=12).filter(lambda text: len(text.encode()) <= high)
    return st.one_of(
        st.sampled_from(["a", "player-17", "é", "e\u0301", "\ufeffx", "x" * min(high, 255)]), short
    )


def _pair(draw: st.DrawFn) -> tuple[results.TerminalResult, results.FailureCode]:
    result = draw(st.sampled_from(results.TerminalResult))
    codes = [code for code, owner in results.RESULT_OF_FAILURE.items() if owner == result]
    return result, draw(st.sampled_from(codes or [results.FailureCode.NONE]))


@st.composite
def _with_result(draw: st.DrawFn, cls: type[Any]) -> Any:
    """A block that holds a result, a failure code and perhaps a payload that belong together."""
    fields = {field.attribute: field.codec for field in block(cls).fields}
    drawn = {name: draw(values(codec)) for name, codec in fields.items() if isinstance(codec, Codec)}
    drawn["terminal_result"], drawn["failure_code"] = _pair(draw)
    if "payload" in drawn and drawn["terminal_result"] != results.TerminalResult.OK:
        drawn["payload"] = None
    return cls(**drawn)


@st.composite
def _follow(draw: st.DrawFn) -> Any:
    drawn = {
        field.attribute: draw(values(field.codec))
        for field in block(companion_commands.MessageFollowEnvelope).fields
    }  # type: ignore[arg-type]
    source = drawn["source_route"]
    route = draw(values(block(type(source))))
    same = "actor_ref" if isinstance(source, blocks.ActorRouteFence) else "spot_ref"
    drawn["target_route"] = msgspec.structs.replace(route, **{same: getattr(source, same)})
    return companion_commands.MessageFollowEnvelope(**drawn)


@st.composite
def _route(draw: st.DrawFn) -> Any:
    codec = block(commands.SessionRelocationRoute)
    drawn = {field.attribute: draw(values(field.codec)) for field in codec.fields}  # type: ignore[arg-type]
    commit = isinstance(drawn["route_update"], commands.RouteCommit)
    drawn["sender_role"] = blocks.Role.TARGET if commit else blocks.Role.SOURCE
    return commands.SessionRelocationRoute(**drawn)


@functools.cache
@st.composite
def _metadata(draw: st.DrawFn) -> payload.Metadata:
    keys = draw(st.lists(_texts(1, 60), max_size=3, unique=True))
    entries = [payload.MetadataEntry(key, draw(_texts(0, 100))) for key in keys]
    if draw(st.booleans()):
        instant = draw(st.one_of(st.integers(1, 2**63 - 1), st.just(1_764_580_000_000)))
        entries.append(payload.MetadataEntry(payload.DEADLINE_KEY, str(instant)))
    return tuple(entry for entry in entries if len(entry.key.encode()) < 100)


@functools.cache
@st.composite
def record_values(draw: st.DrawFn, kinds: tuple[int, ...] = tuple(RecordKind)) -> FrozenRecord:
    """A frozen record of one of these kinds."""
    kind = RecordKind(draw(st.sampled_from(kinds)))
    rule = record._RULES[kind]
    operation = record.OperationKind(draw(st.sampled_from(sorted(rule.operation_kinds))))
    needs_id = operation != 0 if rule.operation_id is None else rule.operation_id
    identity = draw(values(block(blocks.OperationId))) if needs_id else blocks.OperationId(0, 0)
    body = draw(values(block(rule.body)))
    if isinstance(body, record_bodies.InstanceActivation):
        body = msgspec.structs.replace(
            body, inner_operation=record_bodies.InnerOperation(2 if operation else 1)
        )
    return FrozenRecord(
        kind,
        draw(values(block(record.NodeSource) if rule.node_only else record.SOURCE)),
        draw(st.one_of(st.none(), _metadata())) if rule.takes_metadata else None,
        blocks.OperationIdOrZero(identity.high, identity.low),
        operation,
        draw(st.integers(1, 2**63 - 1)) if operation in OPERATIONS_WITH_ROUTE else None,
        body,
    )


_SPECIAL: dict[type[Any], Any] = {
    record_bodies.Completion: _with_result(record_bodies.Completion),
    record_bodies.RelocationControl: _with_result(record_bodies.RelocationControl),
    companion_commands.ActorJoinReply: _with_result(companion_commands.ActorJoinReply),
    companion_commands.ReplyRelay: _with_result(companion_commands.ReplyRelay),
    companion_commands.MessageFollowEnvelope: _follow(),
    commands.SessionRelocationRoute: _route(),
    FrozenRecord: record_values(),
}


def _block_values(codec: Block[Any]) -> st.SearchStrategy[Any]:
    special = _SPECIAL.get(codec.cls)
    if special is not None:
        return special
    fields = {field.attribute: values(field.codec) for field in codec.fields}  # type: ignore[arg-type]
    return st.builds(codec.cls, **fields).filter(
        lambda value: codec.check is None or codec.check(value) is None
    )


def _vector_values(codec: Vector[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    items = st.lists(values(codec.item), max_size=3, unique_by=codec.key)
    return items.map(lambda found: tuple(sorted(found, key=codec.key)))


@functools.cache
def values(codec: Codec[Any]) -> st.SearchStrategy[Any]:
    """Values that the codec can carry."""
    match codec:
        case Number():
            return _numbers(codec)
        case Boolean():
            return st.booleans()
        case Enumeration():
            return st.sampled_from(sorted(codec.allowed or codec.members.values()))
        case Text():
            return _texts(codec.low, codec.high)
        case FixedBlob():
            return st.binary(min_size=codec.minimum - 1, max_size=codec.minimum - 1)
        case Rid():
            return st.binary(min_size=1, max_size=12)
        case Blob():
            return st.binary(min_size=codec.low, max_size=24)
        case RawRecord():
            return record_values().map(encode_frozen_record)
        case Optional() | ExtraPart():
            return st.one_of(st.none(), values(codec.inner))
        case VersionedEnvelope():
            return values(codec.inner)
        case Union():
            return st.one_of([values(case.codec) for case in codec.tags.values()])
        case Vector():
            return _vector_values(codec)
        case Block():
            return st.deferred(lambda: _block_values(codec))
        case _:
            return _metadata()


def command_values(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Commands of one class."""
    return values(block(cls))


def envelope_values() -> st.SearchStrategy[envelope.Envelope]:
    """Envelopes that obey the order inside each vector; not always the rules across vectors."""
    return values(envelope.ENVELOPE)
