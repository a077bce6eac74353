"""Payload codec: arguments and results as bytes, and the rule that nothing aliases (B1.7, B1.9).

Owns the two content types and the choice between them per value: MessagePack where the annotation says that
the value comes back equal and of the same type, else pickle. It must not know records, queues or state.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import functools
import io
import pickle
import types
import uuid
from collections import ChainMap
from typing import TYPE_CHECKING, Any, Final

import msgspec
from sojourn.errors import InvalidOperation, NotConfigured, ProtocolError
from sojourn.spots.failures import contained
from sojourn.spots.references import ActorRef, SpotRef, references_bind_to
from sojourn.spots.shapes import plain

if TYPE_CHECKING:
    from sojourn.spots.declarations import Arguments, Declaration
    from sojourn.spots.failures import contained
from sojourn.spots.references import Sender

__all__ = ["MSGPACK", "PICKLE", "PayloadCodec", "dump_pickle", "immutable"]

MSGPACK: Final = "application/x-sojourn+msgpack"
"""Arguments: an array of the positional arguments. Result: the value."""

PICKLE: Final = "application/x-sojourn+pickle"
"""Arguments: a pickle of `(args, kwargs)`. Result: a pickle of the value."""

_ATOMS = frozenset(
    {
        str,
        bytes,
        int,
        float,
        bool,
        type(None),
        complex,
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        datetime.timezone,
        decimal.Decimal,
        uuid.UUID,
        ActorRef,
        SpotRef,
        types.EllipsisType,
        range,
    }
)

_encoder = msgspec.msgpack.Encoder()
_untyped = msgspec.msgpack.Decoder()


def immutable(value: Any) -> bool:
    """True for a value that two objects may share: nothing reachable from it can change."""
    try:
        return _immutable(value)
    except RecursionError:  # nested too deep to be sure
        return False


def _immutable(value: Any) -> bool:
    kind: type = type(value)
    if kind in _ATOMS:
        return True
    if kind is tuple or kind is frozenset:
        return all(map(_immutable, value))
    names = _frozen_fields(kind)
    return names is not None and all(_immutable(getattr(value, name, None)) for name in names)


@functools.lru_cache(maxsize=4096)
def _frozen_fields(kind: type) -> tuple[str, ...] | None:
    """Names of the fields of a frozen class, None for a class that can change."""
    if issubclass(kind, enum.Enum):
        return ()
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__ if kind.__struct_config__.frozen else None
    if dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return tuple(field.name for field in dataclasses.fields(kind))
    return None


def dump_pickle(value: Any, buffers: list[pickle.PickleBuffer] | None = None) -> bytes:
    """Pickle protocol 5, by cloudpickle where the standard pickler gives up.

    Args:
        buffers: when given, large binary values go here instead of into the pickle.
    """
    callback = None if buffers is None else buffers.append
    try:
        with contained():
            return pickle.dumps(value, protocol=5, buffer_callback=callback)
    except Exception as first:
        if buffers is not None:
            buffers.clear()
        file = io.BytesIO()
        try:
            with contained():
                _cloud_pickler()(file, protocol=5, buffer_callback=callback).dump(value)
        except Exception:
            raise first from None
        return file.getvalue()


@functools.cache
def _cloud_pickler() -> Any:
    import cloudpickle  # here: most programs never need it, and it costs start-up time

    # Left to itself it turns an open file into a text buffer: another type, and cut off from the file.
    table = ChainMap({io.TextIOWrapper: _no_file}, cloudpickle.Pickler.dispatch_table)

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table = table

    return Pickler


def _no_file(value: Any) -> Any:
    raise TypeError(f"cannot pickle {type(value).__qualname__!r} object")


class PayloadCodec:
    """Encodes and decodes the arguments and results of declared handlers.

    Args:
        sender: what decoded references are bound to.
        allow_pickle: False refuses values that need pickle, in both directions.
    """

    __slots__ = ("_allow_pickle", "_sender")

    def __init__(self, sender: Sender | None, allow_pickle: bool = True) -> None:
        self._sender = sender
        self._allow_pickle = allow_pickle

    def encode_arguments(
        self, handler: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[str, bytes]:
        """Content type and payload of bound arguments.

        Raises:
            InvalidOperation: an argument cannot be encoded; the text names it.
        """
        shapes = None if kwargs else handler.argument_shapes(len(args))
        if shapes is not None:
            try:
                for shape, value in zip(shapes, args, strict=True):
                    if not shape.conforms(value):
                        break
                else:
                    return MSGPACK, _encoder.encode(args)
            except (UnicodeEncodeError, OverflowError, RecursionError):
                pass  # text that is no valid Unicode, a value that holds itself: pickle keeps them
        self._check_pickle(f"the arguments of {handler.owner_name}.{handler.name}")
        try:
            return PICKLE, dump_pickle((args, kwargs))
        except Exception as error:
            raise InvalidOperation(self._blame(handler, args, kwargs, error)) from error

    def _blame(
        self, handler: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
    ) -> str:
        bound = handler.signature.bind_partial(None, *args, **kwargs).arguments
        for name, value in list(bound.items())[1:]:
            try:
                dump_pickle(value)
            except Exception as found:
                return (
                    f"{handler.owner_name}.{handler.name}: argument {name!r} of type "
                    f"{type(value).__name__} cannot be sent: {found}"
                )
        return f"{handler.owner_name}.{handler.name}: the arguments cannot be sent: {error}"

    def decode_arguments(
        self, handler: Declaration, content_type: str, payload: bytes | memoryview
    ) -> Arguments:
        """Arguments out of a payload.

        Raises:
            ProtocolError: the payload cannot be decoded.
            InvalidOperation: it decodes to arguments that do not fit the handler.
            NotConfigured: it needs pickle and pickle is switched off.
        """
        kwargs: dict[str, Any] = {}
        try:
            if content_type == MSGPACK:
                args = self._decode_positional(handler, payload)
                if handler.fits(len(args)):
                    return args, kwargs
            else:
                where = f"the arguments of {handler.owner_name}.{handler.name}"
                args, kwargs = self._load(content_type, payload, where)
        except (NotConfigured, ProtocolError):
            raise
        except Exception as error:
            where = f"the arguments of {handler.owner_name}.{handler.name}"
            raise ProtocolError(f"{where} cannot be decoded: {error}") from error
        return handler.bind(args, kwargs)

    @staticmethod
    def _decode_positional(handler: Declaration, payload: bytes | memoryview) -> tuple[Any, ...]:
        if payload and payload[0] & 0xF0 == _SHORT_ARRAY:
            decoder = handler.arguments_decoder(payload[0] & 0x0F)
            if decoder is not None:
                return decoder.decode(payload)
        parts: list[msgspec.Raw] = _raw_items.decode(payload)
        shapes = handler.argument_shapes(len(parts)) or ()
        if len(shapes) < len(parts):
            return tuple(_untyped.decode(payload))  # too many: binding says so
        return tuple(shape.decoder.decode(part) for shape, part in zip(shapes, parts, strict=True))

    def encode_result(self, handler: Declaration, value: Any) -> tuple[str, bytes]:
        """Content type and payload of a result.

        Raises:
            InvalidOperation: it cannot be encoded.
        """
        if handler.shapes()[2].conforms(value):
            try:
                return MSGPACK, _encoder.encode(value)
            except (UnicodeEncodeError, OverflowError):
                pass  # as above
        where = f"the result of {handler.owner_name}.{handler.name}"
        self._check_pickle(where)
        try:
            return PICKLE, dump_pickle(value)
        except Exception as error:
            raise InvalidOperation(f"{where}, a {type(value).__name__}, cannot be sent: {error}") from error

    def decode_result(self, handler: Declaration, content_type: str, payload: bytes | memoryview) -> Any:
        """The result out of a reply; errors as for arguments."""
        try:
            if content_type == MSGPACK:
                return handler.shapes()[2].decoder.decode(payload)
            return self._load(content_type, payload, f"the result of {handler.owner_name}.{handler.name}")
        except (NotConfigured, ProtocolError):
            raise
        except Exception as error:
            where = f"the result of {handler.owner_name}.{handler.name}"
            raise ProtocolError(f"{where} cannot be decoded: {error}") from error

    def isolate_arguments(
        self, handler: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Arguments:
        """The same arguments for an object in this process: shared where nothing can change, else copied."""
        if not kwargs:
            for value in args:
                if type(value) not in _ATOMS and not immutable(value):
                    break
            else:
                return args, kwargs
        content_type, payload = self.encode_arguments(handler, args, kwargs)
        return self.decode_arguments(handler, content_type, payload)

    def isolate_result(self, handler: Declaration, value: Any) -> Any:
        """The same result for a caller in this process."""
        if type(value) in _ATOMS or immutable(value):
            return value
        content_type, payload = self.encode_result(handler, value)
        return self.decode_result(handler, content_type, payload)

    def encode_value(self, value: Any, where: str) -> tuple[str, bytes]:
        """Content type and payload of a value without annotation.

        Raises:
            InvalidOperation: it cannot be encoded.
        """
        if plain(value):
            try:
                return MSGPACK, _encoder.encode(value)
            except (UnicodeEncodeError, OverflowError):
                pass  # as above
        self._check_pickle(where)
        try:
            return PICKLE, dump_pickle(value)
        except Exception as error:
            raise InvalidOperation(f"{where}, a {type(value).__name__}, cannot be sent: {error}") from error

    def decode_value(self, content_type: str, payload: bytes | memoryview, where: str) -> Any:
        """A value without annotation; errors as for arguments."""
        try:
            if content_type == MSGPACK:
                return _untyped.decode(payload)
            return self._load(content_type, payload, where)
        except (NotConfigured, ProtocolError):
            raise
        except Exception as error:
            raise ProtocolError(f"{where} cannot be decoded: {error}") from error

    def encode_creation(
        self, type_name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[str, bytes]:
        """Content type and payload of creation arguments; empty for none.

        Raises:
            InvalidOperation: they cannot be encoded.
        """
        if not args and not kwargs:
            return "", b""
        where = f"the creation arguments of {type_name}"
        if all(map(plain, args)) and plain(kwargs):
            return self.encode_value([list(args), kwargs], where)
        self._check_pickle(where)
        try:
            return PICKLE, dump_pickle((args, kwargs))
        except Exception as error:
            raise InvalidOperation(f"{where} cannot be sent: {error}") from error

    def decode_creation(self, type_name: str, content_type: str, payload: bytes) -> Arguments:
        """Creation arguments out of a payload; errors as for arguments."""
        if not content_type:
            return (), {}
        where = f"the creation arguments of {type_name}"
        args, kwargs = self.decode_value(content_type, payload, where)
        return tuple(args), kwargs

    def isolate_value(self, value: Any, where: str) -> Any:
        """The same value, copied where it could change."""
        if immutable(value):
            return value
        return self.decode_value(*self.encode_value(value, where), where)

    def _check_pickle(self, where: str) -> None:
        if not self._allow_pickle:
            raise NotConfigured(
                f"{where} would need pickle, which is switched off: annotate with types that MessagePack keeps "
                "(builtins, dataclasses, msgspec Structs) or set allow_pickle"
            )

    def _load(self, content_type: str, payload: bytes | memoryview, where: str) -> Any:
        if content_type != PICKLE:
            raise ProtocolError(f"{where}: unknown content type {content_type!r:.80}")
        self._check_pickle(where)
        with references_bind_to(self._sender), contained():
            return pickle.loads(payload)


_SHORT_ARRAY = 0x90
_raw_items = msgspec.msgpack.Decoder(list[msgspec.Raw])
