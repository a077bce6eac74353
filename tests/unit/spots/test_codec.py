"""Values on their way: equal and of the same type, or refused; nothing aliases (B1.7, B1.9)."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import threading
import uuid
from typing import Any, ClassVar

import msgspec
import pytest
import sojourn as sj
from hypothesis import given
from hypothesis import strategies as st
from sojourn.spots.app import ObjectType
from sojourn.spots.codec import MSGPACK, PICKLE, PayloadCodec, immutable
from sojourn.spots.declarations import Request
from sojourn.spots.shapes import ANY_SHAPE, shape_of

app = sj.App("codec")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct, frozen=True):
    x: int
    y: float


class Path(msgspec.Struct):
    points: list[Point]
    name: str | None = None


@dataclasses.dataclass
class Order:
    number: int
    lines: dict[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Frozen:
    text: str


class Chatty(str):
    """A subclass that the codec must not turn into a plain str."""

    __slots__ = ("more",)


@app.actor
class Typed(sj.Actor):
    kinds: ClassVar[int] = 1

    @sj.request
    async def order(self, order: Order, colour: Colour = Colour.RED, *more: int) -> Path:
        return Path([])

    @sj.request
    async def loose(self, value): ...  # type: ignore[no-untyped-def]

    @sj.request
    async def keyword(self, *, value: int) -> None: ...


codec = PayloadCodec(None)
order: Request[Any, Any, Any] = Typed.order
loose: Request[Any, Any, Any] = Typed.loose


def round_trip(handler: Request[Any, Any, Any], *args: Any, **kwargs: Any) -> tuple[str, Any]:
    content_type, payload = codec.encode_arguments(handler, *handler.bind(args, kwargs))
    return content_type, codec.decode_arguments(handler, content_type, payload)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same type all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            same(key, found) and same(value, other[found])
            for (key, value), found in zip(one.items(), other, strict=True)
        )
    return bool(one == other)


ATOMS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(max_size=20)
)
HASHABLE = st.recursive(ATOMS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3))
VALUES = st.recursive(
    HASHABLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(HASHABLE, inner, max_size=4),
        st.sets(HASHABLE, max_size=4),
    ),
    max_leaves=12,
)


@given(VALUES)
def test_any_value_arrives_equal_and_of_the_same_type(value: Any) -> None:
    _, (args, kwargs) = round_trip(loose, value)
    assert same(args, (value,))
    assert kwargs == {}
    isolated = codec.isolate_value(value, "a value")
    assert same(isolated, value)
    assert isolated is not value or immutable(value)


def test_annotated_values_are_compact_and_come_back() -> None:
    given_order = Order(7, {"a": (1, 2)})
    content_type, (args, _) = round_trip(order, given_order, Colour.BLUE, 3, 4)
    assert content_type == MSGPACK
    assert args == (given_order, Colour.BLUE, 3, 4)
    path = Path([Point(1, 2.0)], "p")
    content_type, payload = codec.encode_result(order, path)
    assert content_type == MSGPACK
    assert codec.decode_result(order, content_type, payload) == path


@pytest.mark.parametrize(
    "wrong",
    [
        Order(7.0, {}),  # type: ignore[arg-type]
        Order(True, {}),
        Order(7, {"a": [1]}),  # type: ignore[dict-item]
        Order(7, {Chatty("a"): (1,)}),
        {"number": 7},
    ],
)
def test_what_the_annotation_would_change_is_pickled(wrong: Any) -> None:
    content_type, (args, _) = round_trip(order, wrong)
    assert content_type == PICKLE
    assert args == (wrong,)
    assert type(args[0]) is type(wrong)


def test_attributes_beside_the_fields_survive() -> None:
    extended = Order(1, {})
    extended.more = 5  # type: ignore[attr-defined]
    content_type, (args, _) = round_trip(order, extended)
    assert content_type == PICKLE
    assert args[0].more == 5


def test_text_that_is_no_unicode() -> None:
    assert round_trip(loose, "\ud800")[1] == (("\ud800",), {})


def test_a_value_that_holds_itself_arrives_so() -> None:
    circle: list[Any] = []
    circle.append(circle)
    content_type, (args, _) = round_trip(loose, circle)
    assert content_type == PICKLE
    assert args[0][0] is args[0]
    isolated = codec.isolate_value(circle, "a value")
    assert isolated is not circle
    assert isolated[0] is isolated


def test_a_value_that_is_nested_too_deep_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(sj.InvalidOperation, match="argument 'value' of type list cannot be sent"):
        codec.encode_arguments(loose, (deep,), {})
    with pytest.raises(sj.InvalidOperation, match="a value, a list, cannot be sent"):
        codec.isolate_value(deep, "a value")


def test_keywords() -> None:
    keyword: Request[Any, Any, Any] = Typed.keyword
    assert round_trip(keyword, value=3) == (PICKLE, ((), {"value": 3}))
    assert round_trip(order, colour=Colour.RED, order=Order(1, {}))[0] == MSGPACK


@pytest.mark.parametrize(
    ("annotation", "fits", "does_not"),
    [
        (int, 5, True),
        (int, 2**64 - 1, 2**64),
        (float, 1.0, 1),
        (int | None, None, "1"),
        (tuple[int, str], (1, "a"), (1, 2)),
        (tuple[int, ...], (1, 2), [1, 2]),
        (set[str], {"a"}, frozenset({"a"})),
        (dict[int, list[str]], {1: ["a"]}, {"1": ["a"]}),
        (Point, Point(1, 2.0), Point(1, 2)),
        (uuid.UUID, uuid.UUID(int=5), "5"),
        (datetime.date, datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1)),
        (decimal.Decimal, decimal.Decimal("1.10"), 1.1),
        (Colour, Colour.RED, "red"),
        (Any, [1, {"a": None}], (1,)),
    ],
)
def test_shapes(annotation: Any, fits: Any, does_not: Any) -> None:
    shape = shape_of(annotation)
    assert shape.conforms(fits)
    assert not shape.conforms(does_not)
    assert same(shape.decoder.decode(msgspec.msgpack.encode(fits)), fits)


@pytest.mark.parametrize(
    ("value", "shared"),
    [
        ("text", True),
        ((1, (2, b"")), True),
        (frozenset({1}), True),
        (Point(1, 2.0), True),
        (Frozen("a"), True),
        (Frozen([]), False),  # type: ignore[arg-type]
        (Colour.RED, True),
        ([1], False),
        ((1, [2]), False),
        (Path([]), False),
        (bytearray(b"x"), False),
        (Chatty("a"), False),
        (object(), False),
    ],
)
def test_what_may_be_shared(value: Any, shared: bool) -> None:
    assert immutable(value) is shared


def test_bad_payloads() -> None:
    with pytest.raises(sj.ProtocolError, match=r"arguments of Typed\.order cannot be decoded"):
        codec.decode_arguments(order, MSGPACK, b"\xc1")
    with pytest.raises(sj.ProtocolError, match="cannot be decoded"):
        codec.decode_arguments(order, PICKLE, b"nonsense")
    with pytest.raises(sj.ProtocolError, match="unknown content type"):
        codec.decode_arguments(order, "text/plain", b"")
    with pytest.raises(sj.InvalidOperation, match="missing a required argument"):
        codec.decode_arguments(order, MSGPACK, msgspec.msgpack.encode([]))


def test_creation_arguments() -> None:
    for args, kwargs in (((), {}), (("a", 1), {"b": None}), (((1,),), {"c": {2}})):
        encoded = codec.encode_creation("Typed", args, kwargs)
        assert same(codec.decode_creation("Typed", *encoded), (args, kwargs))


def test_record_of_a_type() -> None:
    record: ObjectType = app.type_of(Typed)
    assert set(record.handlers) == {"order", "loose", "keyword"}


# what is refused, and how damage is told

strict = PayloadCodec(None, allow_pickle=False)


@pytest.mark.parametrize(
    "encode",
    [
        lambda: strict.encode_arguments(loose, ((1,),), {}),
        lambda: strict.encode_result(order, (1,)),
        lambda: strict.encode_value((1,), "a value"),
        lambda: strict.encode_creation("Typed", ((1,),), {}),
        lambda: strict.decode_arguments(loose, PICKLE, b""),
        lambda: strict.decode_result(loose, PICKLE, b""),
        lambda: strict.decode_value(PICKLE, b"", "a value"),
    ],
)
def test_without_pickle_what_needs_it_is_refused_both_ways(encode: Any) -> None:
    with pytest.raises(sj.NotConfigured, match="would need pickle, which is switched off"):
        encode()


@pytest.mark.parametrize(
    ("encode", "named"),
    [
        (
            lambda lock: codec.encode_arguments(loose, (lock,), {}),
            "Typed.loose: argument 'value' of type lock",
        ),
        (lambda lock: codec.encode_result(order, lock), "the result of Typed.order, a lock"),
        (lambda lock: codec.encode_value(lock, "the payload"), "the payload, a lock"),
        (lambda lock: codec.encode_creation("Typed", (lock,), {}), "the creation arguments of Typed"),
    ],
)
def test_what_cannot_be_sent_is_named(encode: Any, named: str) -> None:
    with pytest.raises(sj.InvalidOperation, match="cannot be sent: cannot pickle") as caught:
        encode(threading.Lock())
    assert caught.value.message.startswith(named)


def test_an_open_file_is_refused_even_where_only_cloudpickle_can_help() -> None:
    """Cloudpickle alone would send a file as a text buffer of its contents."""
    with open(__file__, encoding="utf-8") as file:
        for value in (file, [lambda: 1, file]):
            with pytest.raises(sj.InvalidOperation, match=r"a (TextIOWrapper|list), cannot be sent: "):
                codec.encode_value(value, "the payload")


@pytest.mark.parametrize(
    ("content_type", "says"),
    [("text/plain", "unknown content type"), (MSGPACK, "cannot be decoded"), (PICKLE, "cannot be decoded")],
)
@pytest.mark.parametrize(
    "decode",
    [
        lambda kind: codec.decode_arguments(order, kind, b"\xc1"),
        lambda kind: codec.decode_result(order, kind, b"\xc1"),
        lambda kind: codec.decode_value(kind, b"\xc1", "a value"),
        lambda kind: codec.decode_creation("Typed", kind, b"\xc1"),
    ],
)
def test_damaged_payloads_are_told_of(decode: Any, content_type: str, says: str) -> None:
    with pytest.raises(sj.ProtocolError, match=says):
        decode(content_type)


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, "a"), {"b": None}), (((1,),), {}), ((), {"c": {2}})]
)
def test_creation_arguments_come_back(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert codec.decode_creation("Typed", *codec.encode_creation("Typed", args, kwargs)) == (args, kwargs)


def test_more_arguments_than_the_handler_takes_are_refused_by_name() -> None:
    payload = msgspec.msgpack.encode([1, 2, 3])
    with pytest.raises(sj.InvalidOperation, match=r"Typed\.loose\(value\): too many positional arguments"):
        codec.decode_arguments(loose, MSGPACK, payload)


class Tree(msgspec.Struct):
    children: list[Tree]


class Checked(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        self.number += 1


@dataclasses.dataclass
class Derived:
    number: int
    double: int = dataclasses.field(init=False, default=0)


@dataclasses.dataclass
class Unresolved:
    other: NotThere  # type: ignore[name-defined]  # noqa: F821


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


@pytest.mark.parametrize(
    "annotation",
    [
        Order | Path,
        list[int] | set[int],
        int | float,
        list[object],
        tuple[object, ...],
        tuple[int, object],
        dict[tuple[int, ...], int],
        dict[str, object],
        Tree,
        Checked,
        Derived,
        Unresolved,
        Mixed,
        object,
        type("Opaque", (), {}),
        [],
        "not a type",
    ],
)
def test_annotations_that_msgpack_would_not_keep_promise_nothing(annotation: Any) -> None:
    """Their values go by pickle, or as plain values, and arrive as they were."""
    assert shape_of(annotation) is ANY_SHAPE
