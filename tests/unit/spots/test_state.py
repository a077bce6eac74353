"""State of an object as bytes: what is kept, what is refused by name, what a damaged blob says (B1.9)."""

from __future__ import annotations

import array
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import sojourn as sj
from sojourn.spots import state
from sojourn.spots.state import capture_state, own_attributes, restore_state

app = sj.App("state", version=2)


@app.actor
class Plain(sj.Actor):
    limit = 7
    numbers: list[int]

    def __init__(self) -> None:
        self.numbers = [1, 2]
        self.name: Any = "n"


@app.actor
class Slotted(sj.Actor):
    __slots__ = ("kept", "unset")

    def __init__(self) -> None:
        self.kept = 5


@app.actor
class Own(sj.Actor):
    """Brings its own bytes; tests change what its hooks do."""

    def __init__(self) -> None:
        self.blob: Any = b"mine"
        self.before: Callable[[], None] = lambda: None

    def capture(self) -> bytes:
        self.before()
        return self.blob  # type: ignore[no-any-return]

    def restore(self, state: bytes) -> None:
        if state == b"bad":
            raise ValueError("cannot read it")
        if state == b"rejected":
            raise sj.Rejected("not this one")
        self.blob = state


@app.actor
class Upgraded(sj.Actor):
    def __init__(self) -> None:
        self.total = 1

    def upgrade(self, old_version: int, state: dict[str, Any]) -> dict[str, Any]:
        return {"total": state["total"] * 100 + old_version}


def new(cls: Any) -> Any:
    return cls()


def captured(instance: Any, *, allow_pickle: bool = True) -> bytes:
    return b"".join(
        bytes(piece) for piece in capture_state(app.type_of(type(instance)), instance, allow_pickle)
    )


def restored(cls: Any, data: bytes, version: int = 2) -> Any:
    instance = cls.__new__(cls)
    restore_state(app.type_of(cls), instance, memoryview(data), version, 2, None)  # type: ignore[arg-type]
    return instance


VALUES: list[Any] = [
    "text",
    "\ud800",
    b"bytes",
    b"x" * 100_000,
    bytearray(b"small"),
    bytearray(100_000),
    [1, (2, {"a"})],
    {1: None},
    2**70,
    array.array("d", [1.0, 2.0]),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}-{len(str(value))}")
def test_an_attribute_comes_back_equal_and_of_its_type(value: Any) -> None:
    here = new(Plain)
    here.name = value
    there = restored(Plain, captured(here))
    assert there.name == value
    assert type(there.name) is type(value)
    assert there.numbers == [1, 2]
    assert "limit" not in vars(there)  # what the class has is no state


def test_slots_are_state_and_unset_ones_are_not() -> None:
    here = new(Slotted)
    here.added = "in the dict"
    assert own_attributes(app.type_of(Slotted), here) == {"added": "in the dict", "kept": 5}
    there = restored(Slotted, captured(here))
    assert (there.kept, there.added, hasattr(there, "unset")) == (5, "in the dict", False)


def test_what_cannot_be_captured_is_named_with_the_way_out() -> None:
    here = new(Plain)
    here.name = threading.Lock()
    with pytest.raises(
        sj.InvalidOperation, match=r"attribute Plain\.name, a lock, .* Keep it out of the instance"
    ):
        captured(here)
    here.name = (1, 2)
    with pytest.raises(sj.NotConfigured, match=r"attribute Plain\.name, a tuple, would need pickle"):
        captured(here, allow_pickle=False)


@pytest.mark.parametrize("blob", [b"mine", bytearray(b"mine"), memoryview(b"mine")])
def test_own_bytes_go_as_they_are(blob: Any) -> None:
    here = new(Own)
    here.blob = blob
    assert restored(Own, captured(here)).blob == b"mine"


def test_own_hooks_that_fail_are_named() -> None:
    here = new(Own)
    here.blob = "text"
    with pytest.raises(sj.InvalidOperation, match=r"Own\.capture\(\) must return bytes, not str"):
        captured(here)

    def fails() -> None:
        raise ValueError("not now")

    here.before = fails
    with pytest.raises(sj.InvalidOperation, match=r"Own\.capture\(\) raised ValueError: not now"):
        captured(here)
    here = new(Own)
    here.blob = b"bad"
    with pytest.raises(
        sj.InvalidOperation, match=r"Own\.restore\(\) raised ValueError: cannot read it"
    ) as caught:
        restored(Own, captured(here))
    assert caught.value.phase == "restore"
    here.blob = b"rejected"
    with pytest.raises(sj.Rejected, match="not this one"):
        restored(Own, captured(here))


def test_state_of_a_class_that_captures_in_another_way() -> None:
    with pytest.raises(sj.InvalidOperation, match=r"captured without capture\(\), the class here is with"):
        restored(Own, captured(new(Plain)))
    with pytest.raises(sj.InvalidOperation, match=r"captured with capture\(\), the class here is without"):
        restored(Plain, captured(new(Own)))


def test_state_of_an_older_version_is_upgraded() -> None:
    assert restored(Upgraded, captured(new(Upgraded)), 1).total == 101
    with pytest.raises(sj.InvalidOperation, match="a newer state cannot be taken back") as newer:
        restored(Upgraded, captured(new(Upgraded)), 3)
    with pytest.raises(sj.InvalidOperation, match=r"write upgrade\(self, old_version, state\)") as missing:
        restored(Plain, captured(new(Plain)), 1)
    assert newer.value.phase == missing.value.phase == "StateIncompatible"


def test_a_damaged_blob_is_told_of() -> None:
    whole = captured(new(Plain))
    for damaged in (b"", whole[:3], whole[:10], b"\x00\x00\x00\x01\xc1" + whole):
        with pytest.raises(sj.ProtocolError, match="a state blob is malformed"):
            restored(Plain, damaged)
    for damaged in (whole[:-1], whole + b"x"):
        with pytest.raises(sj.ProtocolError, match="its head says"):
            restored(Plain, damaged)


def test_an_attribute_that_cannot_be_read_is_named() -> None:
    head = msgspec.msgpack.encode({"own": False, "attributes": [["numbers", state._MSGPACK, 3, []]]})
    blob = len(head).to_bytes(4, "big") + head + b"\xc1\xc1\xc1"
    with pytest.raises(sj.ProtocolError, match=r"attribute Plain\.numbers cannot be restored") as caught:
        restored(Plain, blob)
    assert caught.value.phase == "restore"
