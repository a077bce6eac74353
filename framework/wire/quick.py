"""The quick twin of a codec: the same bytes and values, without the bookkeeping that errors need.

Owns reading and writing that stop at the first thing that is not as it should be, whatever it is: the
general codec is asked then, and its answer (word, offset, path) is the only one anybody sees. A twin is
built from the codec when it is first used. Knows no layout.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

from sojourn.pieces import join_small
from sojourn.wire.cursor import BY_REFERENCE_BYTES_MIN, Buffer, Reader, Writer
from sojourn.wire.errors import WireError
from sojourn.wire.primitives import Blob, Boolean, Codec, Enumeration, Number, Rid, Text
from sojourn.wire.structure import Block, Choice, ExtraPart, Field, Optional, Union, Vector, VersionedEnvelope

__all__ = ["read_quickly", "write_quickly"]

T = TypeVar("T")

_Read: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]
"""Takes a value at an offset; returns it and the offset behind it."""
_Write: TypeAlias = Callable[[Any, list[Buffer]], int]
"""Appends a value's pieces; returns how many bytes they have."""
_FORMATS = {1: "B", 2: "H", 4: "I", 8: "Q"}


class _Unusual(Exception):
    """Something the general codec must judge."""


_UNUSUAL = (_Unusual, WireError, struct.error, IndexError, KeyError, ValueError, TypeError, AttributeError)

_twins: dict[Codec[Any], tuple[_Read, _Write] | None] = {}


def read_quickly(codec: Codec[T], data: Buffer, at: int) -> T | None:
    """The value that fills `data` from `at` to its end; None where the general codec must judge."""
    twin = _twins[codec] if codec in _twins else _twin_of(codec)
    if twin is None:
        return None
    try:
        value: T
        value, end = twin[0](data, at)
    except _UNUSUAL:
        return None
    return value if end == len(data) else None


def write_quickly(codec: Codec[T], value: T, head: bytes = b"") -> list[Buffer] | None:
    """`head` and the value behind it, in the pieces `Writer.pieces` would give; None where the general codec
    must judge."""
    twin = _twins[codec] if codec in _twins else _twin_of(codec)
    if twin is None:
        return None
    parts: list[Buffer] = [head]
    try:
        twin[1](value, parts)
    except _UNUSUAL:
        return None
    return join_small(parts, BY_REFERENCE_BYTES_MIN)


def _twin_of(codec: Codec[Any]) -> tuple[_Read, _Write] | None:
    twin: tuple[_Read, _Write] | None
    try:
        twin = _build(codec)
    except _Unusual:
        twin = None
    _twins[codec] = twin
    return twin


def _build(codec: Codec[Any] | Choice) -> tuple[_Read, _Write]:
    """Make a twin; raises _Unusual for a codec whose meaning depends on more than its bytes."""
    if isinstance(codec, Choice | ExtraPart):
        raise _Unusual
    for kind, build in _BUILDERS.items():
        if isinstance(codec, kind):
            return build(codec)
    return _general(codec)


def _general(codec: Codec[Any]) -> tuple[_Read, _Write]:
    """A codec that has no twin: itself, inside a twin of what surrounds it."""

    def read(data: Buffer, at: int) -> tuple[Any, int]:
        reader = Reader(data)
        reader.offset = at
        return codec.read(reader), reader.offset

    def write(value: Any, parts: list[Buffer]) -> int:
        writer = Writer()
        codec.write(writer, value)
        parts += writer.pieces()
        return writer.offset

    return read, write


# fixed widths: a run of numbers, flags and enumerations is one struct


class _Run:
    """Neighbouring fields of fixed width."""

    def __init__(self, codecs: Sequence[Codec[Any]]) -> None:
        self._packer = struct.Struct(">" + "".join(_FORMATS[codec.minimum] for codec in codecs))
        self.size = self._packer.size
        self._ranges: list[tuple[int, int, int]] = []
        self._read_tables: list[tuple[int, dict[int, Any]]] = []
        for index, codec in enumerate(codecs):
            if isinstance(codec, Number):
                if (codec.low, codec.high) != (0, 2 ** (8 * codec.minimum) - 1):
                    self._ranges.append((index, codec.low, codec.high))
            elif isinstance(codec, Boolean):
                self._read_tables.append((index, {0: False, 1: True}))
            else:
                assert isinstance(codec, Enumeration)
                allowed = codec.members.values() if codec.allowed is None else codec.allowed
                self._read_tables.append((index, {int(member): member for member in allowed}))

    def read(self, data: Buffer, at: int) -> Sequence[Any]:
        values: Sequence[Any] = self._packer.unpack_from(data, at)
        for index, low, high in self._ranges:
            if not low <= values[index] <= high:
                raise _Unusual
        if self._read_tables:
            values = list(values)
            for index, table in self._read_tables:
                values[index] = table[values[index]]
        return values

    def write(self, values: tuple[Any, ...]) -> bytes:
        for index, low, high in self._ranges:
            if not low <= values[index] <= high:
                raise _Unusual
        for index, table in self._read_tables:
            if values[index] not in table:
                raise _Unusual
        return self._packer.pack(*values)


def _fixed(codec: Codec[Any]) -> tuple[_Read, _Write]:
    run = _Run([codec])

    def read(data: Buffer, at: int) -> tuple[Any, int]:
        return run.read(data, at)[0], at + run.size

    def write(value: Any, parts: list[Buffer]) -> int:
        parts.append(run.write((value,)))
        return run.size

    return read, write


# bytes behind their length


def _text(codec: Text) -> tuple[_Read, _Write]:
    prefix, low, high = codec.length.packer, codec.low, codec.high
    unpack, pack, size = prefix.unpack_from, prefix.pack, prefix.size

    def read(data: Buffer, at: int) -> tuple[str, int]:
        (length,) = unpack(data, at)
        end = at + size + length
        value = str(data[at + size : end], "utf-8")
        if not low <= length <= high or end > len(data) or "\0" in value:
            raise _Unusual
        return value, end

    def write(value: str, parts: list[Buffer]) -> int:
        raw = value.encode()
        if not low <= len(raw) <= high or b"\0" in raw:
            raise _Unusual
        parts.append(pack(len(raw)) + raw)
        return size + len(raw)

    return read, write


def _blob(codec: Blob | Rid) -> tuple[_Read, _Write]:
    blob = codec.blob if isinstance(codec, Rid) else codec
    prefix, low, high, by_reference = blob.length.packer, blob.low, blob.high, blob.by_reference
    unpack, pack, size = prefix.unpack_from, prefix.pack, prefix.size

    def read(data: Buffer, at: int) -> tuple[Buffer, int]:
        (length,) = unpack(data, at)
        end = at + size + length
        if not low <= length <= high or end > len(data):
            raise _Unusual
        return (memoryview(data)[at + size : end] if by_reference else bytes(data[at + size : end])), end

    def write(value: Buffer, parts: list[Buffer]) -> int:
        length = len(value)
        if not low <= length <= high:
            raise _Unusual
        parts += (pack(length), value)
        return size + length

    return read, write


# structures


def _runs(fields: tuple[Field, ...]) -> list[tuple[tuple[Field, ...], _Run | None]]:
    """The fields in groups: neighbours of fixed width together, every other field alone."""
    groups: list[tuple[tuple[Field, ...], _Run | None]] = []
    fixed: list[Field] = []
    for field in (*fields, None):
        if field is not None and isinstance(field.codec, Number | Boolean | Enumeration):
            fixed.append(field)
            continue
        if fixed:
            groups.append((tuple(fixed), _Run([each.codec for each in fixed])))  # type: ignore[misc]
            fixed = []
        if field is not None:
            groups.append(((field,), None))
    return groups


_Take: TypeAlias = Callable[[Buffer, int, list[Any]], int]
"""Appends the values of some fields; returns the offset behind them."""


def _block(codec: Block[Any]) -> tuple[_Read, _Write]:
    cls, check, make = codec.cls, codec.check, _maker(codec)
    steps = [_fixed_fields(fields, run) if run else _field(fields[0]) for fields, run in _runs(codec.fields)]
    takes = [take for take, _ in steps]
    puts = [put for _, put in steps]

    def read(data: Buffer, at: int) -> tuple[Any, int]:
        values: list[Any] = []
        for take in takes:
            at = take(data, at, values)
        value = make(values)
        if check is not None and check(value) is not None:
            raise _Unusual
        return value, at

    def write(value: Any, parts: list[Buffer]) -> int:
        if type(value) is not cls or (check is not None and check(value) is not None):
            raise _Unusual
        length = 0
        for put in puts:
            length += put(value, parts)
        return length

    return read, write


def _fixed_fields(fields: tuple[Field, ...], run: _Run) -> tuple[_Take, _Write]:
    get_all = attrgetter(*(field.attribute for field in fields))
    single = len(fields) == 1

    def take(data: Buffer, at: int, values: list[Any]) -> int:
        values += run.read(data, at)
        return at + run.size

    def put(value: Any, parts: list[Buffer]) -> int:
        found = get_all(value)
        parts.append(run.write((found,) if single else found))
        return run.size

    return take, put


def _field(field: Field) -> tuple[_Take, _Write]:
    read, write = _build(field.codec)
    get = attrgetter(field.attribute)

    def take(data: Buffer, at: int, values: list[Any]) -> int:
        value, at = read(data, at)
        values.append(value)
        return at

    return take, lambda value, parts: write(get(value), parts)


def _maker(codec: Block[Any]) -> Callable[[list[Any]], Any]:
    """Makes the value of a block from its fields in wire order."""
    cls, names = codec.cls, [field.attribute for field in codec.fields]
    if len(cls.__match_args__) < len(names):  # some are taken by name only
        return lambda values: cls(**dict(zip(names, values, strict=True)))
    return lambda values: cls(*values)


def _union(codec: Union[Any]) -> tuple[_Read, _Write]:
    head = struct.Struct(">" + _FORMATS[codec.tag.minimum] + _FORMATS[codec.length.minimum])
    twins = {case.tag: _build(case.codec) for case in codec.tags.values()}
    readers = {tag: twin[0] for tag, twin in twins.items()}
    writers = {cls: (case.tag, twins[case.tag][1]) for cls, case in codec.classes.items()}

    def read(data: Buffer, at: int) -> tuple[Any, int]:
        tag, length = head.unpack_from(data, at)
        at += head.size
        value, end = readers[tag](data, at)
        if end != at + length:
            raise _Unusual
        return value, end

    def write(value: Any, parts: list[Buffer]) -> int:
        tag, inner = writers[type(value)]
        place = len(parts)
        parts.append(b"")
        length = inner(value, parts)
        parts[place] = head.pack(tag, length)
        return head.size + length

    return read, write


def _optional(codec: Optional[Any]) -> tuple[_Read, _Write]:
    inner_read, inner_write = _build(codec.inner)
    length_of = codec.length
    head = struct.Struct(">B" if length_of is None else ">B" + _FORMATS[length_of.minimum])

    def read(data: Buffer, at: int) -> tuple[Any, int]:
        present, *length = head.unpack_from(data, at)
        at += head.size
        value, end = inner_read(data, at) if present == 1 else (None, at)
        if present > 1 or (length and end != at + length[0]):
            raise _Unusual
        return value, end

    def write(value: Any, parts: list[Buffer]) -> int:
        place = len(parts)
        parts.append(b"")
        length = 0 if value is None else inner_write(value, parts)
        present = value is not None
        parts[place] = head.pack(present) if length_of is None else head.pack(present, length)
        return head.size + length

    return read, write


def _vector(codec: Vector[Any]) -> tuple[_Read, _Write]:
    inner_read, inner_write = _build(codec.item)
    count_packer, key_of, order = codec.count.packer, codec.key, codec.order

    def check(items: Sequence[Any]) -> None:
        keys: list[Any] = []
        for item in items:
            key = key_of(item)
            if order(keys, key) is not None:
                raise _Unusual
            keys.append(key)

    def read(data: Buffer, at: int) -> tuple[tuple[Any, ...], int]:
        (count,) = count_packer.unpack_from(data, at)
        at += count_packer.size
        items = []
        for _ in range(count):
            item, at = inner_read(data, at)
            items.append(item)
        if len(items) > 1:
            check(items)
        return tuple(items), at

    def write(value: tuple[Any, ...], parts: list[Buffer]) -> int:
        parts.append(count_packer.pack(len(value)))
        length = count_packer.size
        for item in value:
            length += inner_write(item, parts)
        if len(value) > 1:
            check(value)
        return length

    return read, write


def _versioned(codec: VersionedEnvelope[Any]) -> tuple[_Read, _Write]:
    inner_read, inner_write = _build(codec.inner)
    head = struct.Struct(">B" + _FORMATS[codec.length.minimum])

    def read(data: Buffer, at: int) -> tuple[Any, int]:
        version, length = head.unpack_from(data, at)
        at += head.size
        value, end = inner_read(data, at)
        if version != 1 or end != at + length or length > codec.length.high:
            raise _Unusual
        return value, end

    def write(value: Any, parts: list[Buffer]) -> int:
        place = len(parts)
        parts.append(b"")
        length = inner_write(value, parts)
        if length > codec.length.high:
            raise _Unusual
        parts[place] = head.pack(1, length)
        return head.size + length

    return read, write


_BUILDERS: dict[type[Any], Callable[[Any], tuple[_Read, _Write]]] = {
    Number: _fixed,
    Boolean: _fixed,
    Enumeration: _fixed,
    Text: _text,
    Blob: _blob,
    Rid: _blob,
    Block: _block,
    Union: _union,
    Optional: _optional,
    Vector: _vector,
    VersionedEnvelope: _versioned,
}
