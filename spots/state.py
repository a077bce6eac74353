"""State codec: an object's own attributes as one blob of pieces, large binary values never copied (B1.9).

Owns the layout of the state part of an application state blob:
`u32 length + MessagePack head + values`. The head is `{"own": bool, "attributes": [[name, encoding, bytes,
[buffer bytes ...]] ...]}`; each value stands in that order, followed by its out-of-band buffers. With
`own` there is one unnamed value: the bytes that the class's own `capture()` gave. It must not know queues or
timers.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from sojourn.errors import InvalidOperation, NotConfigured, ProtocolError, SojournError
from sojourn.spots.codec import dump_pickle
from sojourn.spots.failures import contained
from sojourn.spots.references import references_bind_to
from sojourn.spots.shapes import ANY_SHAPE

if TYPE_CHECKING:
    from sojourn.spots.app import ObjectType
    from sojourn.spots.failures import contained
    from sojourn.spots.objects import Resident
from sojourn.spots.references import Sender

__all__ = ["Buffer", "LargeValue", "capture_state", "large_values", "restore_state"]

Buffer = bytes | memoryview

_MSGPACK: Final = 0
_PICKLE: Final = 1
_BYTES: Final = 2
_BYTEARRAY: Final = 3
_PLAIN: Final = 4
"""MessagePack without annotation; `_MSGPACK` is decoded by the attribute's annotation."""
_BY_REFERENCE_MIN: Final = 4096
"""Shorter binary values are cheaper to copy than to pass on as a piece of their own."""

_NONE_APART: Final[Mapping[int, bytes | bytearray]] = MappingProxyType({})
_LENGTH = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder()


class _Head(msgspec.Struct):
    own: bool
    attributes: list[tuple[str, int, int, list[int]]]


_head_decoder = msgspec.msgpack.Decoder(_Head)


def own_attributes(record: ObjectType, instance: Resident) -> dict[str, Any]:
    """The attributes set on the instance itself; class defaults are not among them."""
    found = dict(instance.__dict__)
    for name in record.slots:
        if hasattr(instance, name):
            found[name] = getattr(instance, name)
    return found


def capture_state(record: ObjectType, instance: Resident, allow_pickle: bool) -> list[Buffer]:
    """The state part as pieces; large binary values are the objects themselves.

    Raises:
        InvalidOperation: something cannot be captured; the text names the attribute.
        NotConfigured: it would need pickle, which is switched off.
    """
    if record.own_capture:
        return _capture_own(record, instance)
    described: list[tuple[str, int, int, list[int]]] = []
    pieces: list[Buffer] = []
    for name, value in own_attributes(record, instance).items():
        where = f"attribute {record.cls.__name__}.{name}"
        encoding, encoded, buffers = _encode(record, name, value, where, allow_pickle)
        described.append((name, encoding, len(encoded), [len(buffer) for buffer in buffers]))
        pieces += [encoded, *buffers]
    return _with_head(_Head(False, described), pieces)


def _capture_own(record: ObjectType, instance: Any) -> list[Buffer]:
    try:
        with contained():
            captured = instance.capture()
    except Exception as error:
        raise InvalidOperation(
            f"{record.cls.__name__}.capture() raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(captured, (bytes, bytearray, memoryview)):
        raise InvalidOperation(
            f"{record.cls.__name__}.capture() must return bytes, not {type(captured).__name__}"
        )
    flat = captured if isinstance(captured, bytes) else memoryview(captured).cast("B")
    return _with_head(_Head(True, [("", _BYTES, len(flat), [])]), [flat])


def _with_head(head: _Head, pieces: list[Buffer]) -> list[Buffer]:
    encoded = _encoder.encode(head)
    return [_LENGTH.pack(len(encoded)), encoded, *pieces]


def _encode(
    record: ObjectType, name: str, value: Any, where: str, allow_pickle: bool
) -> tuple[int, Buffer, list[Buffer]]:
    if type(value) is bytes:
        return _BYTES, value, []
    if type(value) is bytearray:
        # Closed until it is dropped or opened again, so nothing changes it meanwhile.
        return _BYTEARRAY, memoryview(value) if len(value) >= _BY_REFERENCE_MIN else bytes(value), []
    for encoding, shape in ((_MSGPACK, record.attribute_shapes.get(name, ANY_SHAPE)), (_PLAIN, ANY_SHAPE)):
        if shape.conforms(value):
            try:
                return encoding, _encoder.encode(value), []
            except (UnicodeEncodeError, OverflowError):
                break  # text that is no valid Unicode: pickle keeps it
    if not allow_pickle:
        raise NotConfigured(
            f"{where}, a {type(value).__name__}, would need pickle, which is switched off: annotate it with "
            "a type that MessagePack keeps, or bring your own capture() and restore()"
        )
    buffers: list[pickle.PickleBuffer] = []
    try:
        encoded = dump_pickle(value, buffers)
    except Exception as error:
        raise InvalidOperation(
            f"{where}, a {type(value).__name__}, cannot be captured: {error}. Keep it out of the instance "
            "(make it when needed), or bring your own capture() and restore()"
        ) from error
    return _PICKLE, encoded, [buffer.raw() for buffer in buffers]


class LargeValue(NamedTuple):
    """A binary value of a state part: the number of its attribute, where it lies, what it is."""

    number: int
    start: int
    octets: int
    mutable: bool


def large_values(beginning: memoryview, octets: int, least: int) -> list[LargeValue]:
    """The binary values of at least `least` octets in a state part of `octets`, from its beginning.

    Raises:
        ProtocolError: the beginning does not tell.
    """
    head, at = _head(beginning)
    found: list[LargeValue] = []
    for number, (_, encoding, size, buffers) in enumerate(head.attributes):
        if size >= least and encoding in (_BYTES, _BYTEARRAY) and not buffers:
            found.append(LargeValue(number, at, size, encoding == _BYTEARRAY))
        at += size + sum(buffers)
    if at != octets:
        raise _other_length(octets, at)
    return found


def restore_state(
    record: ObjectType,
    instance: Any,
    data: memoryview,
    old_version: int,
    app_version: int,
    sender: Sender,
    apart: Mapping[int, bytes | bytearray] = _NONE_APART,
) -> None:
    """Put captured state into a fresh instance. The values in `apart`, by attribute number, are not in `data`.

    Raises:
        ProtocolError: the blob is malformed.
        InvalidOperation: it is of another application version and the class has no `upgrade`, or a hook
            raised.
    """
    head, values = _split(data, apart)
    state: Any
    if head.own:
        state = apart.get(0) or (bytes(values[0][0]) if values else b"")
    else:
        state = {}
        with references_bind_to(sender):
            for number, (name, encoding, _, _) in enumerate(head.attributes):
                whole = apart.get(number)
                state[name] = _decode(record, name, encoding, values[number]) if whole is None else whole
    if old_version != app_version:
        state = _upgrade(record, instance, old_version, app_version, state)
    if head.own != record.own_capture:
        raise InvalidOperation(
            f"{record.cls.__name__}: the state was captured {'with' if head.own else 'without'} capture(), "
            f"the class here is {'with' if record.own_capture else 'without'} restore()",
            phase="restore",
        )
    if head.own:
        _call(record, "restore", instance.restore, state)
        return
    for name, value in state.items():
        setattr(instance, name, value)


def _upgrade(record: ObjectType, instance: Any, old_version: int, app_version: int, state: Any) -> Any:
    if record.upgrade is None or old_version > app_version:
        raise InvalidOperation(
            f"the state of {record.cls.__name__} was captured by application version {old_version}, this is "
            f"version {app_version}: "
            + (
                "write upgrade(self, old_version, state)"
                if record.upgrade is None
                else "a newer state cannot be taken back"
            ),
            phase="StateIncompatible",
        )
    return _call(record, "upgrade", instance.upgrade, old_version, state)


def _call(record: ObjectType, name: str, hook: Any, *args: Any) -> Any:
    try:
        with contained():
            return hook(*args)
    except SojournError:
        raise
    except Exception as error:
        raise InvalidOperation(
            f"{record.cls.__name__}.{name}() raised {type(error).__name__}: {error}", phase="restore"
        ) from error


def _head(data: memoryview) -> tuple[_Head, int]:
    """The head, and where the values begin."""
    try:
        (length,) = _LENGTH.unpack_from(data)
        return _head_decoder.decode(data[4 : 4 + length]), 4 + length
    except (struct.error, msgspec.MsgspecError) as error:
        raise ProtocolError(f"a state blob is malformed: {error}") from None


def _other_length(octets: int, told: int) -> ProtocolError:
    return ProtocolError(f"a state blob has {octets} bytes, its head says {told}")


def _split(data: memoryview, apart: Mapping[int, object]) -> tuple[_Head, list[list[memoryview]]]:
    """The head, and for each value its bytes and buffers; none for those that are kept apart."""
    head, at = _head(data)
    values: list[list[memoryview]] = []
    for number, (_, _, size, buffers) in enumerate(head.attributes):
        parts: list[memoryview] = []
        for part in () if number in apart else (size, *buffers):
            parts.append(data[at : at + part])
            at += part
        values.append(parts)
    if at != len(data):
        raise _other_length(len(data), at)
    return head, values


def _decode(record: ObjectType, name: str, encoding: int, parts: list[memoryview]) -> Any:
    encoded, *buffers = parts
    try:
        if encoding == _BYTES:
            return bytes(encoded)
        if encoding == _BYTEARRAY:
            return bytearray(encoded)
        if encoding == _MSGPACK:
            return record.attribute_shapes.get(name, ANY_SHAPE).decoder.decode(encoded)
        if encoding == _PLAIN:
            return ANY_SHAPE.decoder.decode(encoded)
        with contained():
            return pickle.loads(encoded, buffers=buffers)
    except Exception as error:
        raise ProtocolError(
            f"attribute {record.cls.__name__}.{name} cannot be restored: {error}", phase="restore"
        ) from error
