"""What user code raises beside its turns, and exceptions that misbehave themselves: nothing jams or ends a worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import sojourn as sj
from sojourn.control import Restored, SealRefused

from tests.unit.spots.worlds import World

app = sj.App("escapes")


class Odd(BaseException):
    """No `Exception`, as some libraries raise to get past `except Exception`."""


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Silent(Exception):
    def __str__(self) -> str:
        raise Odd("no text")


KINDS: dict[str, type[BaseException]] = {
    kind.__name__: kind for kind in (Odd, asyncio.CancelledError, GeneratorExit, Wordless, Silent, ValueError)
}


def _raise(kind: str) -> Any:
    raise KINDS[kind]("odd \ud800")


class Pickled:
    """Raises while it is pickled or unpickled."""

    def __init__(self, kind: str, out: bool) -> None:
        self.kind, self.out = kind, out

    def __reduce__(self) -> Any:
        return (_raise, (self.kind,)) if self.out else _raise(self.kind)


@app.actor
class Fragile(sj.Actor):
    def __init__(self, at: str = "", kind: str = "") -> None:
        self.at, self.kind = at, kind
        if at == "__init__":
            _raise(kind)

    @sj.request
    async def fail(self, kind: str) -> None:
        _raise(kind)

    @sj.send
    async def fail_unseen(self, kind: str) -> None:
        _raise(kind)

    @sj.request
    async def take(self, value: Any) -> None:
        raise AssertionError("it could not be decoded")

    @sj.request
    async def hold(self, kind: str, out: bool) -> None:
        self.held = Pickled(kind, out)

    @sj.request
    async def answer(self) -> str:
        return "here"


@app.actor
class Own(Fragile):
    def capture(self) -> bytes:
        if self.at == "capture":
            _raise(self.kind)
        return self.kind.encode()

    def restore(self, state: bytes) -> None:
        _raise(state.decode())


@pytest.fixture
async def world() -> AsyncIterator[World]:
    logging.disable()  # what pytest captures of these texts, pytest-xdist could not send
    try:
        world = World(app)
        yield world
        await world.close()
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("caller", ["a", "b"])
async def test_a_handler_may_raise_anything(world: World, kind: str, caller: str) -> None:
    """The caller gets a typed error and the object serves on (B3.3)."""
    hosts = {name: world.host(name) for name in "ab"}
    world.make(hosts["a"], Fragile, "f")
    fragile = hosts[caller].references.actor(Fragile, "f")
    with pytest.raises(sj.InternalFailure, match=r"Fragile\.fail") as caught:
        await fragile.request(Fragile.fail, kind)
    assert caught.value.remote_traceback
    await fragile.send(Fragile.fail_unseen, kind)
    assert await fragile.request(Fragile.answer) == "here"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_constructor_may_raise_anything(world: World, kind: str) -> None:
    error = world.make(world.host(), Fragile, "f", "__init__", kind).error
    assert error is not None
    assert error.kind == "InternalFailure"


@pytest.mark.parametrize("kind", KINDS)
async def test_an_argument_that_raises_anything_while_it_is_unpickled(world: World, kind: str) -> None:
    world.make(world.host("a"), Fragile, "f")
    fragile = world.host("b").references.actor(Fragile, "f")
    with pytest.raises((sj.ProtocolError, sj.InternalFailure)):
        await fragile.request(Fragile.take, Pickled(kind, out=True))
    with pytest.raises(sj.InvalidOperation, match="argument 'value' of type Pickled"):
        await fragile.request(Fragile.take, Pickled(kind, out=False))
    assert await fragile.request(Fragile.answer) == "here"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cls", [Fragile, Own])
async def test_a_capture_that_raises_anything_refuses_the_move(
    world: World, cls: type[Fragile], kind: str
) -> None:
    """The object serves on where it is (R4.2.8)."""
    host = world.host("a")
    world.make(host, cls, "f", "capture", kind)
    fragile = host.references.actor(cls, "f")
    await fragile.request(Fragile.hold, kind, False)
    world.seal(host, cls, "f")
    (refused,) = world.port("a").controls(SealRefused)
    assert refused.error.kind in ("InvalidOperation", "InternalFailure")
    assert await fragile.request(Fragile.answer) == "here"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cls", [Fragile, Own])
async def test_a_restore_that_raises_anything_fails_the_move(
    world: World, cls: type[Fragile], kind: str
) -> None:
    """The instance is discarded and the source is told (B1.9)."""
    host, target = world.host("a"), world.host("b")
    world.make(host, cls, "f", "restore", kind)
    await host.references.actor(cls, "f").request(Fragile.hold, kind, True)
    world.seal(host, cls, "f")
    world.restore(target, cls, "f", world.captured(host))
    (restored,) = world.port("b").controls(Restored)
    assert restored.error is not None
    assert not target.cells
