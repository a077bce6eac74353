"""Structures made of fields: blocks, vectors, optional fields, tagged unions, versioned envelopes.

A block is a frozen msgspec structure whose annotations name the codec of each field, in wire order:
``owner_id: Annotated[str, TEXT8]``. The name on the wire, in paths and in JSON is the attribute's in
camel case, or a `WireName`. Owns that reading of classes; knows no particular block.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Generic, NamedTuple, Protocol, TypeVar, get_origin, get_type_hints

from sojourn.wire.cursor import Reader, Writer
from sojourn.wire.errors import Word
from sojourn.wire.primitives import BOOL8, U8, U16, U32, Codec, Number, fail_json

__all__ = [
    "Block",
    "Choice",
    "ExtraPart",
    "Optional",
    "Problem",
    "Union",
    "Vector",
    "VersionedEnvelope",
    "WireName",
    "block",
    "camel_case",
    "rising",
]

T = TypeVar("T")


class WireName(str):
    """The wire name of a field whose attribute is called otherwise."""

    __slots__ = ()


class Problem(NamedTuple):
    """A rule between fields of one block that does not hold: what its `wire_problem` method answers."""

    word: Word
    attribute: str
    detail: str


class Choice(NamedTuple):
    """A field whose codec follows from the fields before it."""

    choose: Callable[[Mapping[str, Any]], Codec[Any]]
    minimum: int
    """Bytes of the shortest value of any of the codecs."""


class Field(NamedTuple):
    """One field of a block."""

    attribute: str
    name: str
    codec: Codec[Any] | Choice

    def resolve(self, values: Mapping[str, Any]) -> Codec[Any]:
        """The codec, given the values of the fields before."""
        return self.codec.choose(values) if isinstance(self.codec, Choice) else self.codec


def camel_case(attribute: str) -> str:
    """`node_rid` → `nodeRid`."""
    first, *rest = attribute.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _fields_of(cls: type[Any]) -> tuple[Field, ...]:
    hints = get_type_hints(cls, include_extras=True)
    fields = []
    for attribute in cls.__struct_fields__:
        hint = hints[attribute]
        name = camel_case(attribute)
        codec: Codec[Any] | Choice | None = None
        if get_origin(hint) is Annotated:
            for extra in hint.__metadata__:
                if isinstance(extra, WireName):
                    name = str(extra)
                else:
                    codec = extra
            hint = hint.__origin__
        fields.append(Field(attribute, name, block(hint) if codec is None else codec))
    return tuple(fields)


class Block(Codec[T]):
    """The codec of a structure: its fields in order, without padding or tags.

    When the class has a method `wire_problem() -> Problem | None`, it is asked after the last field.
    """

    def __init__(self, cls: type[T]) -> None:
        self.cls = cls
        self.check: Callable[[T], Problem | None] | None = getattr(cls, "wire_problem", None)

    @functools.cached_property
    def fields(self) -> tuple[Field, ...]:
        """The fields in wire order."""
        return _fields_of(self.cls)

    @functools.cached_property
    def minimum(self) -> int:  # type: ignore[override]
        return sum(field.codec.minimum for field in self.fields)

    def read(self, reader: Reader) -> T:
        values: dict[str, Any] = {}
        starts: dict[str, int] = {}
        for field in self.fields:
            starts[field.attribute] = reader.offset
            reader.enter(field.name)
            values[field.attribute] = field.resolve(values).read(reader)
            reader.leave()
        value = self.cls(**values)
        self._check(reader, value, starts)
        return value

    def write(self, writer: Writer, value: T) -> None:
        if type(value) is not self.cls:
            writer.fail(Word.INVALID_FIELD, f"{self.cls.__name__} is needed, not {type(value).__name__}")
        values: dict[str, Any] = {}
        starts: dict[str, int] = {}
        for field in self.fields:
            starts[field.attribute] = writer.offset
            writer.enter(field.name)
            content = getattr(value, field.attribute)
            field.resolve(values).write(writer, content)
            values[field.attribute] = content
            writer.leave()
        self._check(writer, value, starts)

    def _check(self, cursor: Reader | Writer, value: T, starts: dict[str, int]) -> None:
        problem = self.check(value) if self.check is not None else None
        if problem is not None:
            word, attribute, detail = problem
            name = next(field.name for field in self.fields if field.attribute == attribute)
            cursor.fail(word, detail, offset=starts[attribute], name=name)

    def to_json(self, value: T) -> dict[str, Any]:
        values: dict[str, Any] = {}
        result: dict[str, Any] = {}
        for field in self.fields:
            content = getattr(value, field.attribute)
            codec = field.resolve(values)
            if isinstance(codec, Optional) and codec.flag is not None:
                result[codec.flag] = content is not None
            result[field.name] = codec.to_json(content)
            values[field.attribute] = content
        return result

    def from_json(self, value: Any, path: list[str]) -> T:
        given = _json_object(value, path)
        values: dict[str, Any] = {}
        for field in self.fields:
            codec = field.resolve(values)
            flag = codec.flag if isinstance(codec, Optional) else None
            if flag is not None and given.pop(flag, None) not in (None, given.get(field.name) is not None):
                raise fail_json([*path, flag], f"disagrees with {field.name}")
            if field.name not in given and not isinstance(codec, Optional | ExtraPart):
                raise fail_json([*path, field.name], "missing")
            values[field.attribute] = codec.from_json(given.pop(field.name, None), [*path, field.name])
        _refuse_rest(given, path)
        return self.cls(**values)


_BLOCKS: dict[type[Any], Block[Any]] = {}


def block(cls: type[T]) -> Block[T]:
    """The one codec of a structure."""
    known = _BLOCKS.get(cls)
    if known is None:
        known = _BLOCKS[cls] = Block(cls)
    return known


def _json_object(value: Any, path: list[str]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise fail_json(path, "an object is needed")
    return dict(value)


def _refuse_rest(given: dict[str, Any], path: list[str]) -> None:
    if given:
        raise fail_json([*path, sorted(given)[0]], "no such field")


class KeyOrder(Protocol):
    """Checks the key of an item against the keys before it; answers what is wrong with it."""

    def __call__(self, earlier: list[Any], key: Any) -> Word | None: ...


def rising(earlier: list[Any], key: Any) -> Word | None:
    """Keys must strictly rise."""
    if earlier and key <= earlier[-1]:
        return Word.DUPLICATE_ITEM if key == earlier[-1] else Word.UNSORTED_VECTOR
    return None


class Vector(Codec[tuple[T, ...]]):
    """A count and that many items, with an order over the items' keys.

    A count that the remaining bytes cannot hold is refused before anything is allocated.
    """

    def __init__(
        self,
        item: Codec[T],
        *,
        count: Number = U32,
        key: Callable[[T], Any],
        order: KeyOrder = rising,
    ) -> None:
        self.item = item
        self.count = count
        self.key = key
        self.order = order
        self.minimum = count.minimum

    def read(self, reader: Reader) -> tuple[T, ...]:
        start = reader.offset
        count = self.count.read(reader)
        if count * self.item.minimum > reader.remaining:
            word = Word.INVALID_BODY_LENGTH if reader.depth else Word.TRUNCATED_FIELD
            reader.fail(word, f"{count} items do not fit into {reader.remaining} bytes", offset=start)
        items: list[T] = []
        keys: list[Any] = []
        for index in range(count):
            reader.enter(f"[{index}]")
            start = reader.offset
            items.append(self.item.read(reader))
            self._check(reader, keys, items[-1], start)
            reader.leave()
        return tuple(items)

    def write(self, writer: Writer, value: tuple[T, ...]) -> None:
        self.count.write(writer, len(value))
        keys: list[Any] = []
        for index, item in enumerate(value):
            writer.enter(f"[{index}]")
            start = writer.offset
            self.item.write(writer, item)
            self._check(writer, keys, item, start)
            writer.leave()

    def _check(self, cursor: Reader | Writer, keys: list[Any], item: T, start: int) -> None:
        key = self.key(item)
        word = self.order(keys, key)
        if word is not None:
            cursor.fail(word, f"key {key!r} after {keys[-1]!r}", offset=start)
        keys.append(key)

    def to_json(self, value: tuple[T, ...]) -> list[Any]:
        return [self.item.to_json(item) for item in value]

    def from_json(self, value: Any, path: list[str]) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise fail_json(path, "a list is needed")
        return tuple(self.item.from_json(item, [*path, f"[{index}]"]) for index, item in enumerate(value))


class Optional(Codec[T | None]):
    """bool8, then perhaps a length, then the value when the flag is 1.

    In JSON the flag stands beside the field, under its own name, when it has one; input may leave it out.
    """

    def __init__(self, inner: Codec[T], *, flag: str | None = None, length: Number | None = None) -> None:
        self.inner = inner
        self.flag = flag
        self.length = length
        self.minimum = 1 + (0 if length is None else length.minimum)

    def read(self, reader: Reader) -> T | None:
        present = self._read_flag(reader)
        if self.length is None:
            return self.inner.read(reader) if present else None
        start = reader.offset
        length = self.length.read(reader)
        if not present:
            if length:
                reader.fail(Word.INVALID_BODY_LENGTH, f"length {length} of an absent field", offset=start)
            return None
        outer = reader.open_region(length)
        value = self.inner.read(reader)
        reader.close_region(outer)
        return value

    def _read_flag(self, reader: Reader) -> bool:
        if self.flag is None:
            return BOOL8.read(reader)
        name = reader.path.pop()
        reader.enter(self.flag)
        present = BOOL8.read(reader)
        reader.leave()
        reader.enter(name)
        return present

    def write(self, writer: Writer, value: T | None) -> None:
        BOOL8.write(writer, value is not None)
        if self.length is None:
            if value is not None:
                self.inner.write(writer, value)
            return
        body = writer.nested(self.length.minimum)
        if value is not None:
            self.inner.write(body, value)
        self.length.write(writer, body.offset - writer.offset - self.length.minimum)
        writer.splice(body)

    def to_json(self, value: T | None) -> Any:
        return None if value is None else self.inner.to_json(value)

    def from_json(self, value: Any, path: list[str]) -> T | None:
        return None if value is None else self.inner.from_json(value, path)


class ExtraPart(Codec[T | None]):
    """A field that is a part of its own behind frame 0 of a multi-part record; None = the part is not there.

    Offsets inside it count from the start of that part.
    """

    minimum = 0

    def __init__(self, inner: Codec[T]) -> None:
        self.inner = inner

    def read(self, reader: Reader) -> T | None:
        if not reader.waiting:
            return None
        part = Reader(reader.waiting.pop(0), reader.trace, reader.path)
        value = self.inner.read(part)
        part.finish()
        return value

    def write(self, writer: Writer, value: T | None) -> None:
        if value is not None:
            part = Writer(0, writer.path, writer.trace)
            self.inner.write(part, value)
            writer.further.append(part.joined())

    def to_json(self, value: T | None) -> Any:
        return None if value is None else self.inner.to_json(value)

    def from_json(self, value: Any, path: list[str]) -> T | None:
        return None if value is None else self.inner.from_json(value, path)


class Case(NamedTuple):
    """One case of a union."""

    tag: int
    kind: str
    codec: Codec[Any]


class Union(Codec[T], Generic[T]):
    """Tag, length of the body, then the fields of the case with that tag.

    In JSON the fields stand beside `tag` and `kind`; input may give either.
    """

    def __init__(self, cases: Mapping[tuple[int, str], type[Any]], *, tag: Number = U8, length: Number = U16):
        self.tag = tag
        self.length = length
        self.classes = {cls: Case(number, kind, block(cls)) for (number, kind), cls in cases.items()}
        self.tags = {case.tag: case for case in self.classes.values()}

    @functools.cached_property
    def minimum(self) -> int:  # type: ignore[override]
        shortest = min(case.codec.minimum for case in self.tags.values())
        return self.tag.minimum + self.length.minimum + shortest

    def read(self, reader: Reader) -> T:
        start = reader.offset
        reader.enter("tag")
        case = self.tags.get(self.tag.read(reader))
        if case is None:
            reader.fail(Word.INVALID_FIELD, "unknown tag", offset=start)
        reader.leave()
        outer = reader.open_region(self.length.read(reader))
        value: T = case.codec.read(reader)
        reader.close_region(outer)
        return value

    def write(self, writer: Writer, value: T) -> None:
        case = self.classes.get(type(value))
        if case is None:
            writer.fail(Word.INVALID_FIELD, f"{type(value).__name__} is no case of this union")
        body = writer.nested(self.tag.minimum + self.length.minimum)
        case.codec.write(body, value)
        length = body.offset - writer.offset - self.tag.minimum - self.length.minimum
        self.tag.write(writer, case.tag)
        self.length.write(writer, length)
        writer.splice(body)

    def to_json(self, value: T) -> dict[str, Any]:
        case = self.classes[type(value)]
        return {"tag": case.tag, "kind": case.kind, **case.codec.to_json(value)}

    def from_json(self, value: Any, path: list[str]) -> T:
        given = _json_object(value, path)
        tag, kind = given.pop("tag", None), given.pop("kind", None)
        for case in self.tags.values():
            if tag in (None, case.tag) and kind in (None, case.kind) and (tag, kind) != (None, None):
                result: T = case.codec.from_json(given, path)
                return result
        raise fail_json([*path, "tag"], "unknown, missing, or not that of the kind")


class VersionedEnvelope(Codec[T]):
    """u8 version 1, a u32 length, a body of exactly that length."""

    def __init__(self, inner: Codec[T], *, length: Number = U32) -> None:
        self.inner = inner
        self.length = length
        self.version = Number(1, 1, 1)

    @functools.cached_property
    def minimum(self) -> int:  # type: ignore[override]
        return 1 + self.length.minimum + self.inner.minimum

    def read(self, reader: Reader) -> T:
        reader.enter("version")
        self.version.read(reader)
        reader.leave()
        outer = reader.open_region(self._read_length(reader))
        value = self.inner.read(reader)
        reader.close_region(outer)
        return value

    def _read_length(self, reader: Reader) -> int:
        reader.enter("length")
        length = self.length.read(reader)
        reader.leave()
        return length

    def write(self, writer: Writer, value: T) -> None:
        body = writer.nested(1 + self.length.minimum)
        self.inner.write(body, value)
        length = body.offset - writer.offset - 1 - self.length.minimum
        self.version.write(writer, 1)
        self.length.write(writer, length)
        writer.splice(body)

    def to_json(self, value: T) -> Any:
        return self.inner.to_json(value)

    def from_json(self, value: Any, path: list[str]) -> T:
        return self.inner.from_json(value, path)
