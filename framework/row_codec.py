"""How a row becomes bytes: canonical JSON, and nothing that is not canonical comes back.

Owns the form of stored values: fields in declared order behind a leading `v`, whole numbers as decimal
strings (JSON numbers lose u64), byte strings as lower-case hex, enums by their value. Unknown fields,
other versions and second spellings of one value are refused. It must not know what any row means.
"""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from sojourn.errors import ProtocolError

__all__ = ["ROW_VERSION", "RowCodec"]

ROW_VERSION = 1
"""Version of the stored form, the field `v` of every row."""

R = TypeVar("R", bound=msgspec.Struct)

_Convert = Callable[[Any], Any]
_DIGITS_MAX = 20
_U64_MAX = 2**64 - 1
_UNUSUAL = (ValueError, TypeError, KeyError, AttributeError, msgspec.MsgspecError)
"""What makes the quick way leave a row to the general one, whose answer is the only one anybody sees."""


class RowCodec(Generic[R]):
    """Encodes and decodes one type of row: a msgspec Struct of integers, bytes, text, flags, enums, nested
    Structs, tuples of those, and None where a field is optional."""

    def __init__(self, row_type: type[R]) -> None:
        self._row_type = row_type
        self._name = row_type.__name__

    @functools.cached_property
    def _general(self) -> tuple[_Convert, _Convert]:
        return _converters(self._row_type)

    @functools.cached_property
    def _quick(self) -> _Quick:
        return _Quick(self._row_type)

    def encode(self, row: R) -> bytes:
        """The one stored form of this row."""
        quick = self._quick
        try:
            return quick.encode(row)
        except _UNUSUAL:
            return msgspec.json.encode({"v": str(ROW_VERSION), **self._general[0](row)})

    def decode(self, stored: bytes) -> R:
        """The row behind these bytes.

        Raises:
            ProtocolError: they are not the canonical form of a row of this type.
        """
        quick = self._quick
        try:
            row: R = quick.decode(stored)
            return row
        except _UNUSUAL:
            return self._decode(stored)

    def _decode(self, stored: bytes) -> R:
        """Field by field: what is wrong is named."""
        store, load = self._general
        try:
            fields = msgspec.json.decode(stored)
            if not isinstance(fields, dict) or fields.pop("v", None) != str(ROW_VERSION):
                raise ValueError(f"its version `v` is not {ROW_VERSION}")
            row: R = load(fields)
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            raise ProtocolError(f"a stored {self._name} cannot be read: {error}") from error
        if msgspec.json.encode({"v": str(ROW_VERSION), **store(row)}) != stored:
            raise ProtocolError(f"a stored {self._name} is not in canonical form")
        return row


def _converters(kind: Any) -> tuple[_Convert, _Convert]:
    """The two functions (to JSON value, from JSON value) for one annotated type."""
    origin = get_origin(kind)
    if origin in (types.UnionType, Union):
        (inner,) = [item for item in get_args(kind) if item is not type(None)]
        return _optional(*_converters(inner))
    if origin is tuple:
        return _vector(*_converters(get_args(kind)[0]))
    if kind in _SCALARS:
        return _SCALARS[kind]
    if issubclass(kind, enum.Enum):
        return _enumeration(kind)
    assert issubclass(kind, msgspec.Struct), kind
    return _structure(kind)


def _optional(store: _Convert, load: _Convert) -> tuple[_Convert, _Convert]:
    return (
        lambda value: None if value is None else store(value),
        lambda value: None if value is None else load(value),
    )


def _vector(store: _Convert, load: _Convert) -> tuple[_Convert, _Convert]:
    def load_vector(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ValueError(f"expected a list, found {value!r:.60}")
        return tuple([load(item) for item in value])

    return (lambda value: [store(item) for item in value]), load_vector


def _enumeration(kind: type[enum.Enum]) -> tuple[_Convert, _Convert]:
    if issubclass(kind, enum.IntEnum):
        names = {member: _camel(member.name) for member in kind}
        members = {name: member for member, name in names.items()}

        def load_name(value: Any) -> Any:
            if value not in members:
                raise ValueError(f"expected one of {', '.join(members)}, found {value!r:.60}")
            return members[value]

        return names.__getitem__, load_name
    return (lambda value: value.value), kind


def _structure(kind: type[msgspec.Struct]) -> tuple[_Convert, _Convert]:
    hints = get_type_hints(kind)
    table = [(name, *_converters(hints[name])) for name in kind.__struct_fields__]
    names = set(kind.__struct_fields__)

    def store_fields(value: Any) -> dict[str, Any]:
        return {name: store(getattr(value, name)) for name, store, _ in table}

    def load_fields(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"expected an object, found {value!r:.60}")
        if value.keys() != names:
            odd = ", ".join(sorted(value.keys() ^ names))
            raise ValueError(f"fields of {kind.__name__} missing or unknown: {odd}")
        return kind(**{name: load(value[name]) for name, _, load in table})

    return store_fields, load_fields


def _camel(name: str) -> str:
    head, *rest = name.lower().split("_")
    return head + "".join(part.capitalize() for part in rest)


def _load_int(value: Any) -> int:
    if not isinstance(value, str) or len(value) > _DIGITS_MAX or not value.isascii() or not value.isdigit():
        raise ValueError(f"expected a number as a decimal string, found {value!r:.60}")
    number = int(value)
    if number > _U64_MAX:
        raise ValueError(f"{value} does not fit 64 bits")
    return number


def _store_int(value: int) -> str:
    if not 0 <= value <= _U64_MAX:
        raise ValueError(f"{value} does not fit 64 bits")
    return str(value)


def _load_bytes(value: Any) -> bytes:
    return bytes.fromhex(_load_text(value))


def _load_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, found {value!r:.60}")
    return value


def _load_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, found {value!r:.60}")
    return value


def _same(value: Any) -> Any:
    return value


_SCALARS: dict[Any, tuple[_Convert, _Convert]] = {
    int: (_store_int, _load_int),
    bytes: (bytes.hex, _load_bytes),
    str: (_same, _load_text),
    bool: (_same, _load_bool),
}


# the quick way: rows as structures of texts, which msgspec reads and writes whole


class _Quick:
    """Reads and writes the rows of one type by way of a structure that holds the stored texts as they are.

    Canonical is a row whose structure encodes to the same bytes and whose texts have one spelling each.
    """

    def __init__(self, row_type: type[msgspec.Struct]) -> None:
        self._raw = _raw_type(row_type, [("v", str)])
        self._store, self._load = _quick_structure(row_type, self._raw)
        self._decoder = msgspec.json.Decoder(self._raw)
        self._encoder = msgspec.json.Encoder()

    def encode(self, row: msgspec.Struct) -> bytes:
        return self._encoder.encode(self._store(row))

    def decode(self, stored: bytes) -> Any:
        raw: Any = self._decoder.decode(stored)
        if raw.v != str(ROW_VERSION) or self._encoder.encode(raw) != stored:
            raise ValueError
        return self._load(raw)


def _raw_type(kind: type[msgspec.Struct], first: list[tuple[str, Any]]) -> type[msgspec.Struct]:
    hints = get_type_hints(kind)
    fields = [*first, *((name, _raw_hint(hints[name])) for name in kind.__struct_fields__)]
    return msgspec.defstruct(f"_Raw{kind.__name__}", fields, forbid_unknown_fields=True, gc=False)


@functools.cache
def _nested_raw_type(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    return _raw_type(kind, [])


def _raw_hint(kind: Any) -> Any:
    origin = get_origin(kind)
    if origin in (types.UnionType, Union):
        (inner,) = [item for item in get_args(kind) if item is not type(None)]
        return _raw_hint(inner) | None
    if origin is tuple:
        return types.GenericAlias(tuple, (_raw_hint(get_args(kind)[0]), ...))
    if kind is bool:
        return bool
    return _nested_raw_type(kind) if issubclass(kind, msgspec.Struct) else str


def _quick_converters(kind: Any) -> tuple[_Convert | None, _Convert | None]:
    """As `_converters`, from and to the raw form; None where both are the same."""
    origin = get_origin(kind)
    if origin in (types.UnionType, Union):
        (inner,) = [item for item in get_args(kind) if item is not type(None)]
        store, load = _quick_converters(inner)
        return store and _optional(store, store)[0], load and _optional(load, load)[0]
    if origin is tuple:
        store, load = _quick_converters(get_args(kind)[0])
        return store and _each(store), load and _each(load)
    if kind in (str, bool):
        return None, None
    if kind is int:
        return _store_int, _load_number
    if kind is bytes:
        return bytes.hex, _load_hex
    if issubclass(kind, enum.Enum):
        store, load = _enumeration(kind)
        return store, ({store(member): member for member in kind}).__getitem__
    return _quick_structure(kind, _nested_raw_type(kind))


def _each(convert: _Convert) -> _Convert:
    return lambda value: tuple([convert(item) for item in value])


def _quick_structure(kind: type[msgspec.Struct], raw: type[msgspec.Struct]) -> tuple[_Convert, _Convert]:
    hints, names = get_type_hints(kind), kind.__struct_fields__
    get_all: Callable[[Any], tuple[Any, ...]] = (
        attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)
    )
    pairs = [_quick_converters(hints[name]) for name in names]
    stores = [(index, store) for index, (store, _) in enumerate(pairs) if store is not None]
    loads = [(index, load) for index, (_, load) in enumerate(pairs) if load is not None]
    versioned = raw.__struct_fields__[0] == "v"

    def store_fields(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError
        fields = list(get_all(value))
        for index, convert in stores:
            fields[index] = convert(fields[index])
        return raw(str(ROW_VERSION), *fields) if versioned else raw(*fields)

    def load_fields(value: Any) -> Any:
        fields = list(get_all(value))
        for index, convert in loads:
            fields[index] = convert(fields[index])
        return kind(**dict(zip(names, fields, strict=True)))

    return store_fields, load_fields


def _load_number(value: str) -> int:
    number = int(value)
    if str(number) != value or not 0 <= number <= _U64_MAX:
        raise ValueError
    return number


def _load_hex(value: str) -> bytes:
    octets = bytes.fromhex(value)
    if octets.hex() != value:
        raise ValueError
    return octets
