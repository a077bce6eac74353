"""How a row becomes bytes: canonical JSON, and nothing that is not canonical comes back.

Owns the form of stored values: fields in declared order behind a leading `v`, whole numbers as decimal
strings (JSON numbers lose u64), byte strings as lower-case hex, enums by their value. Unknown fields,
other versions and second spellings of one value are refused. It must not know what any row means.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
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


class RowCodec(Generic[R]):
    """Encodes and decodes one type of row: a msgspec Struct of integers, bytes, text, flags, enums, nested
    Structs, tuples of those, and None where a field is optional."""

    def __init__(self, row_type: type[R]) -> None:
        self._name = row_type.__name__
        self._store, self._load = _converters(row_type)

    def encode(self, row: R) -> bytes:
        """The one stored form of this row."""
        return msgspec.json.encode({"v": str(ROW_VERSION), **self._store(row)})

    def decode(self, stored: bytes) -> R:
        """The row behind these bytes.

        Raises:
            ProtocolError: they are not the canonical form of a row of this type.
        """
        try:
            fields = msgspec.json.decode(stored)
            if not isinstance(fields, dict) or fields.pop("v", None) != str(ROW_VERSION):
                raise ValueError(f"its version `v` is not {ROW_VERSION}")
            row: R = self._load(fields)
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            raise ProtocolError(f"a stored {self._name} cannot be read: {error}") from error
        if self.encode(row) != stored:
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
