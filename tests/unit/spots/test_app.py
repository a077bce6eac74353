"""Registration: what an application accepts, and what it says about mistakes."""

from __future__ import annotations

import pickle
from typing import Any, ClassVar

import pytest
import sojourn as sj
from sojourn.control import RegistryEntry
from sojourn.ids import ObjectKind

app = sj.App("registration", version=4)


@app.actor(type="player", policy="recreate")
class Player(sj.Actor):
    @sj.request
    async def hit(self, points: int) -> int:
        """Take points."""
        return points


@app.spot(mode="PerActor")
class Room(sj.UserSpot): ...


@app.spot
class Device(sj.InstanceSpot):
    @sj.request
    async def measure(self) -> float:
        return 1.0


@app.spot
class Entry(sj.EntrySpot): ...


def test_registry_entries() -> None:
    assert app.registry() == [
        RegistryEntry("player", ObjectKind.ACTOR, "recreate", 4),
        RegistryEntry("Room", ObjectKind.USER_SPOT, "preserve", 4),
        RegistryEntry("Device", ObjectKind.INSTANCE_SPOT, "preserve", 4),
        RegistryEntry("Entry", ObjectKind.ENTRY_SPOT, "disabled", 4),
    ]


def test_an_app_knows_where_it_is_found() -> None:
    assert app.module == __name__
    assert app.attribute == "app"
    assert sj.App("nameless").attribute is None


def test_declarations_are_methods_on_instances_and_keys_on_classes() -> None:
    assert Player.hit.name == "hit"
    assert Player.hit.__doc__ == "Take points."
    assert repr(Player.hit) == "<@request Player.hit>"
    assert app.find_type(ObjectKind.ACTOR, "player").cls is Player


def test_handlers_are_inherited_and_overridden() -> None:
    other = sj.App("other")

    @other.spot
    class Better(Device):
        @sj.request
        async def measure(self) -> float:
            return 2.0

    assert other.type_of(Better).handlers["measure"] is Better.measure
    assert other.type_of(Better).handlers["measure"] is not Device.measure


def make(text: str) -> Any:
    """Run a registration that must be refused."""
    names: dict[str, Any] = {"sj": sj, "app": sj.App("a"), "Device": Device}
    exec(text, names)
    return names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@app.actor\nclass A(sj.InstanceSpot): ...", "must be a subclass of sj.Actor"),
        ("@app.spot\nclass A(sj.Actor): ...", "must be a subclass of sj.InstanceSpot"),
        ("@app.spot\ndef a(): ...", "must be a subclass"),
        (
            "class A(sj.Actor):\n  @sj.request\n  async def a(): ...",
            r"A.a has no parameter `self`: write `async def a\(",
        ),
        ("app.type_of('Player')", "'Player' is no class: name the registered class itself"),
        ("app.type_of(sj.Actor)", "Actor is not registered: write @app.actor over the class"),
        ("@app.spot(policy='sometimes')\nclass A(sj.InstanceSpot): ...", "policy is one of preserve"),
        ("app.spot(mode='Wide')", "mode is one of SpotWide, PerActor"),
        (
            "@app.spot(type='')\nclass A(sj.InstanceSpot): ...\n@app.spot\nclass B(A): ...\n@app.spot(type='B')\nclass C(A): ...",
            "registered twice, by B and C",
        ),
        ("@app.spot(type='x' * 256)\nclass A(sj.InstanceSpot): ...", "1 to 255 bytes"),
        (
            "@app.spot\nclass A(sj.EntrySpot): ...\n@app.spot\nclass B(sj.EntrySpot): ...",
            "one Entry Spot class",
        ),
        ("@app.spot\nclass A(sj.InstanceSpot):\n    def __init__(self, name): ...", "made on demand"),
        (
            "@app.actor(policy='recreate')\nclass A(sj.Actor):\n    def __init__(self, name): ...",
            "makes it anew",
        ),
        ("@app.spot\nclass A(sj.InstanceSpot):\n    def capture(self): ...", r"needs restore\(self, state\)"),
        ("class A(sj.Actor):\n    @sj.request\n    def f(self): ...", "not `async def`"),
        (
            "class A(sj.Actor):\n    @sj.send\n    @staticmethod\n    async def f(): ...",
            "belongs on a method",
        ),
        (
            "class A(sj.Actor):\n    @sj.request(timeout=3)\n    async def f(self): ...",
            r"@request takes no settings, not timeout: .*ref.with_timeout\(seconds\)",
        ),
        (
            "class A(sj.Actor):\n    @sj.send(x=3)\n    async def f(self): ...",
            "@send takes no settings, not x",
        ),
        (
            "class A(sj.Actor):\n    @sj.request(3)\n    async def f(self): ...",
            "belongs on a method .* not on 3",
        ),
        (
            "class A(sj.Actor):\n    @sj.timer(1.0)\n    async def f(self, tick): ...",
            r"@timer takes named settings, not 1.0: write @timer\(every=1.0\)",
        ),
        (
            "class A(sj.Actor):\n    @sj.timer(evry=1)\n    async def f(self, tick): ...",
            "@timer takes no setting 'evry'.* known are every, after",
        ),
        (
            "@app.actor\nclass A(sj.Actor):\n    names: list[str] = []",
            r"A.names = \[\] would be one list for every A .* set self.names in __init__",
        ),
        (
            "class Base:\n    seen: set[str] = set()\n@app.spot\nclass A(Base, sj.InstanceSpot): ...",
            r"A.seen = set\(\) would be one set for every A",
        ),
        (
            "@app.actor\nclass A(sj.Actor):\n    items = []",
            r"A.items = \[\] would be one list for every A .* set self.items in __init__",
        ),
        (
            "class Base:\n    _seen = {}\n@app.spot\nclass A(Base, sj.InstanceSpot):\n    items = ()",
            r"A._seen = \{\} would be one dict for every A",
        ),
        ("class A(sj.Actor):\n    @sj.timer(every=0)\n    async def f(self, tick): ...", "at least 0.001 s"),
        ("class A(sj.Actor):\n    @sj.timer\n    async def f(self): ...", "a timer callback is"),
        (
            "class A(sj.Actor):\n    @sj.timer(every=1, repeat=0)\n    async def f(self, tick): ...",
            "repeat is 1 or more",
        ),
        ("sj.App('')", "1 to 255 bytes"),
        ("sj.App('a', version=-1)", "from 0 to 2"),
        ("sj.App('a', version=True)", "from 0 to 2"),
        ("app.type_of(Device)", "Device is not registered: write @app.spot over the class"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(sj.NotConfigured, match=message):
        make(text)


def test_handlers_may_be_declared_with_empty_parentheses() -> None:
    other = sj.App("parentheses")

    class Told:
        words: ClassVar[list[str]]
        items: list[int] = []  # noqa: RUF012  replaced below

    @other.spot
    class Lamp(Told, sj.InstanceSpot):
        words = ["on", "off"]  # noqa: RUF012  as its annotation says
        steps: ClassVar[list[int]] = [1, 2]  # said to be shared
        COLOURS = {"red": 1}  # noqa: RUF012  written like a constant
        items = None  # type: ignore[assignment]

        @sj.request()
        async def read(self, step: int) -> int:
            return step

        @sj.send()
        async def dim(self) -> None: ...

    assert set(other.type_of(Lamp).handlers) == {"read", "dim"}
    assert (repr(Lamp.read), repr(Lamp.dim)) == ("<@request Lamp.read>", "<@send Lamp.dim>")


@pytest.mark.parametrize("call", ["Player.hit(3)", "Player.hit(None, 3)", "Player.hit(points=3)"])
def test_a_handler_called_on_its_class_says_how_to_call_it(call: str) -> None:
    with pytest.raises(
        sj.InvalidOperation, match=r"key of a call.* ref.request\(Player.hit, ...\), or self.hit"
    ):
        eval(call)


def test_face() -> None:
    assert sorted(sj.__all__) == dir(sj)
    for name in sj.__all__:
        assert getattr(sj, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = sj.Nothing  # type: ignore[attr-defined]


def test_a_reference_outside_a_message_cannot_be_unpickled() -> None:
    from sojourn.spots.references import ActorRef

    reference: sj.ActorRef[Player] = ActorRef(None, app.type_of(Player), b"ap")  # type: ignore[arg-type]
    with pytest.raises(sj.InvalidOperation, match="outside a message"):
        pickle.loads(pickle.dumps(reference))
