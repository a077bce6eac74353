"""Shapes: which values of an annotated type come back equal and of the same type from MessagePack.

Owns the check that decides, per value, between the compact schema-aware encoding and pickle (B1.9).
MessagePack alone turns tuples and sets into lists; with the annotation at hand the decoder restores them,
but only if the value really is what the annotation says. It must not know messages or objects.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import functools
import types
import typing
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

__all__ = ["ANY_SHAPE", "Shape", "plain", "shape_of"]

Conforms = Callable[[Any], bool]

_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_EXACT = (bool, str, bytes, float, type(None))
_KEYS = (str, bytes)


def _is_int(value: Any) -> bool:
    return type(value) is int and _INT_MIN <= value <= _INT_MAX


def plain(value: Any) -> bool:
    """True for a value that MessagePack gives back equal and of the same type without any schema; False for one
    that holds itself or is nested too deep."""
    try:
        return _plain(value)
    except RecursionError:
        return False


def _plain(value: Any) -> bool:
    kind = type(value)
    if kind in _EXACT:
        return True
    if kind is int:
        return bool(_INT_MIN <= value <= _INT_MAX)
    if kind is list:
        return all(map(_plain, value))
    if kind is dict:
        return all(type(key) is str for key in value) and all(map(_plain, value.values()))
    return False


class Shape:
    """One annotated type.

    Attributes:
        annotation: what the decoder is built with.
        conforms: True for a value that arrives equal and of the same type through that decoder.
    """

    __slots__ = ("_decoder", "annotation", "conforms")

    def __init__(self, annotation: Any, conforms: Conforms) -> None:
        self.annotation = annotation
        self.conforms = conforms
        self._decoder: msgspec.msgpack.Decoder[Any] | None = None

    @property
    def decoder(self) -> msgspec.msgpack.Decoder[Any]:
        """The decoder of this shape, made once."""
        if self._decoder is None:
            self._decoder = msgspec.msgpack.Decoder(self.annotation)
        return self._decoder


ANY_SHAPE = Shape(Any, plain)
"""No usable annotation: only plain values are compact."""


def shape_of(annotation: Any) -> Shape:
    """The shape of an annotation; whatever is not understood is `ANY_SHAPE`."""
    try:
        return _cached_shape(annotation)
    except TypeError:  # an unhashable annotation
        return ANY_SHAPE


@functools.lru_cache(maxsize=4096)
def _cached_shape(annotation: Any) -> Shape:
    conforms = _conforms(annotation, ())
    if conforms is None or conforms is plain:
        return ANY_SHAPE
    shape = Shape(annotation, conforms)
    try:
        _ = shape.decoder
    except (TypeError, ValueError):  # msgspec cannot build a decoder for it (a union of two Structs, ...)
        return ANY_SHAPE
    return shape


def _all_of(kind: Any, item: Conforms) -> Conforms:
    def conforms(value: Any) -> bool:
        return type(value) is kind and all(map(item, value))

    return conforms


def _exactly(kind: type) -> Conforms:
    return lambda value: type(value) is kind


def _conforms(annotation: Any, seen: tuple[Any, ...]) -> Conforms | None:
    """A check for values of this annotation, or None when it cannot be judged."""
    if annotation is Any:
        return plain
    if annotation is None or annotation is type(None):
        return _exactly(type(None))
    if annotation is int:
        return _is_int
    if annotation in (bool, str, bytes, float, uuid.UUID, decimal.Decimal, datetime.date):
        return _exactly(annotation)
    origin = typing.get_origin(annotation)
    if origin is not None:
        return _generic(origin, typing.get_args(annotation), seen)
    if isinstance(annotation, type):
        return _class(annotation, seen)
    return None


def _generic(origin: Any, arguments: tuple[Any, ...], seen: tuple[Any, ...]) -> Conforms | None:
    if origin in (typing.Union, types.UnionType):
        parts = [_conforms(argument, seen) for argument in arguments]
        known = [part for part in parts if part is not None]
        # In a union the decoder picks by the wire type; a choice between two containers would be ambiguous.
        simple = sum(argument not in (None, type(None), bool, int, str, float) for argument in arguments)
        if len(known) < len(parts) or simple > 1 or {int, float} <= set(arguments):
            return None
        return lambda value: any(part(value) for part in known)
    if origin is tuple:
        return _tuple(arguments, seen)
    if origin in (list, set, frozenset):
        item = _conforms(arguments[0], seen)
        return None if item is None else _all_of(origin, item)
    if origin is dict:
        key: Conforms | None = (
            _is_int if arguments[0] is int else _exactly(arguments[0]) if arguments[0] in _KEYS else None
        )
        item = _conforms(arguments[1], seen)
        if key is None or item is None:
            return None
        key_fits: Conforms = key
        return lambda value: (
            type(value) is dict and all(map(key_fits, value)) and all(map(item, value.values()))
        )
    return None


def _tuple(arguments: tuple[Any, ...], seen: tuple[Any, ...]) -> Conforms | None:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        item = _conforms(arguments[0], seen)
        return None if item is None else _all_of(tuple, item)
    items = [_conforms(argument, seen) for argument in arguments]
    checks = [item for item in items if item is not None]
    if len(checks) < len(items):
        return None
    return lambda value: (
        type(value) is tuple
        and len(value) == len(checks)
        and all(check(part) for check, part in zip(checks, value, strict=True))
    )


def _class(annotation: type, seen: tuple[Any, ...]) -> Conforms | None:
    if issubclass(annotation, enum.Enum):
        values = [member.value for member in annotation]
        if all(type(value) in (int, str) for value in values) and len({type(value) for value in values}) == 1:
            return _exactly(annotation)
        return None
    if annotation in seen:  # a recursive type: pickle keeps it
        return None
    if issubclass(annotation, msgspec.Struct):
        # Renamed, tagged or defaulted fields all come back equal: only the field values must conform.
        names = {field.name: field.type for field in msgspec.structs.fields(annotation)}
        if "__post_init__" in vars(annotation):
            return None
        return _fields(annotation, names, seen)
    if dataclasses.is_dataclass(annotation):
        return _dataclass(annotation, seen)
    return None


def _dataclass(annotation: type, seen: tuple[Any, ...]) -> Conforms | None:
    fields = dataclasses.fields(annotation)
    if hasattr(annotation, "__post_init__") or not all(field.init for field in fields):
        return None
    try:
        hints = typing.get_type_hints(annotation)
    except (NameError, AttributeError, TypeError):
        return None
    names = {field.name: hints.get(field.name, Any) for field in fields}
    inner = _fields(annotation, names, seen)
    if inner is None:
        return None
    # Attributes added beside the fields would be lost.
    return lambda value: inner(value) and len(getattr(value, "__dict__", names)) == len(names)


def _fields(annotation: type, names: dict[str, Any], seen: tuple[Any, ...]) -> Conforms | None:
    checks: list[tuple[str, Conforms]] = []
    for name, hint in names.items():
        check = _conforms(hint, (*seen, annotation))
        if check is None:
            return None
        checks.append((name, check))
    return lambda value: (
        type(value) is annotation and all(check(getattr(value, name, _UNSET)) for name, check in checks)
    )


_UNSET = object()
