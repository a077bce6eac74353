"""The application: its name, its version and the types it registered.

Owns the registry (per `App` object, never global) and the record of where other processes import the
application from. It must not know queues or messages.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args, overload

from sojourn.control import RegistryEntry
from sojourn.errors import InvalidOperation, NotConfigured
from sojourn.frames import ADMISSION_PACKET
from sojourn.ids import ObjectKind, SpotMode
from sojourn.spots.declarations import Declaration, Request, Send, Timer
from sojourn.spots.objects import Actor, EntrySpot, InstanceSpot, Resident, Spot
from sojourn.spots.shapes import Shape, shape_of

__all__ = ["App", "ObjectType", "Policy"]

Policy = Literal["preserve", "recreate", "disabled"]

_A = TypeVar("_A", bound=Actor)
_S = TypeVar("_S", bound=Spot)


class ObjectType:
    """One registered class: its stable type, policy, handlers and timers."""

    __slots__ = (
        "_attribute_shapes",
        "cls",
        "handlers",
        "kind",
        "made_without_arguments",
        "mode",
        "own_capture",
        "policy",
        "signature",
        "slots",
        "stable_type",
        "stable_type_bytes",
        "timers",
        "upgrade",
    )

    def __init__(self, cls: type[Resident], stable_type: str, policy: Policy, mode: SpotMode) -> None:
        self.cls = cls
        self.stable_type = stable_type
        self.stable_type_bytes = _check_name(stable_type, cls)
        self.kind = cls.object_kind
        self.policy: Policy = "disabled" if self.kind is ObjectKind.ENTRY_SPOT else policy
        self.mode = mode
        self.signature = _creation_signature(cls)
        self.made_without_arguments = _fits(self.signature)
        if self.policy == "recreate" and not self.made_without_arguments:
            raise NotConfigured(
                f"{cls.__name__}: with policy recreate the target makes it anew, so __init__ must work "
                "without arguments"
            )
        _refuse_shared_values(cls)
        self.own_capture = _own_capture(cls)
        self.upgrade: Callable[..., Any] | None = getattr(cls, "upgrade", None)
        self.slots = _state_slots(cls)
        self._attribute_shapes: dict[str, Shape] | None = None
        handlers: dict[str, Request[Any, ..., Any] | Send[Any, ...]] = {}
        timers: dict[str, Timer[Any]] = {}
        for name in dir(cls):
            found = inspect.getattr_static(cls, name, None)
            if isinstance(found, (Request, Send)):
                handlers[found.name] = found
            elif isinstance(found, Timer):
                timers[found.name] = found
        if issubclass(cls, EntrySpot):
            handlers[ADMISSION_PACKET] = Request(cls.on_create_actor)
        self.handlers = MappingProxyType(handlers)
        self.timers = MappingProxyType(timers)

    @property
    def attribute_shapes(self) -> dict[str, Shape]:
        """Shapes of the annotated attributes, for the state codec."""
        if self._attribute_shapes is None:
            shapes: dict[str, Shape] = {}
            for base in reversed(self.cls.__mro__):
                try:
                    hints = inspect.get_annotations(base, eval_str=True)
                except (NameError, AttributeError, TypeError, SyntaxError):
                    continue  # only the compact encoding is lost
                shapes.update((name, shape_of(hint)) for name, hint in hints.items())
            self._attribute_shapes = shapes
        return self._attribute_shapes

    def handler(self, name: str) -> Declaration:
        """The request or send handler of this name.

        Raises:
            NotConfigured: there is none.
        """
        found = self.handlers.get(name)
        if found is None:
            raise self.no_handler(name)
        return found

    def no_handler(self, name: str) -> NotConfigured:
        """The error of a message for a handler that the class does not have."""
        known = ", ".join(sorted(self.handlers.keys() - {ADMISSION_PACKET})) or "none"
        return NotConfigured(f"{self.stable_type} has no handler {name!r}; it has: {known}")


class App:
    """An application: the types that make up one program.

    Worker processes import the module that made it and find it again by attribute name; nothing is
    registered globally.

    Args:
        name: name of the application, 1 to 255 bytes.
        version: application version, 0 to 2^63-1; state carries it (B1.9).

    Raises:
        NotConfigured: a bad name or version.
    """

    def __init__(self, name: str, version: int = 1) -> None:
        if not isinstance(name, str) or not 1 <= len(name.encode()) <= 255:
            raise NotConfigured(f"an application name is text of 1 to 255 bytes, not {name!r}")
        if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version < 2**63:
            raise NotConfigured(f"an application version is a whole number from 0 to 2^63-1, not {version!r}")
        self.name = name
        self.version = version
        self.module: str = sys._getframe(1).f_globals.get("__name__", "__main__")
        self._by_class: dict[type, ObjectType] = {}
        self._by_type: dict[tuple[bool, str], ObjectType] = {}

    def __repr__(self) -> str:
        return f"<App {self.name!r} version {self.version} of {self.module}>"

    @property
    def attribute(self) -> str | None:
        """The module-level name this App is bound to in its module, None while there is none."""
        module = sys.modules.get(self.module)
        for name, value in vars(module).items() if module is not None else ():
            if value is self:
                return name
        return None

    @overload
    def actor(self, cls: type[_A], /) -> type[_A]: ...
    @overload
    def actor(
        self, *, type: str | None = None, policy: Policy = "preserve"
    ) -> Callable[[type[_A]], type[_A]]: ...
    def actor(self, cls: Any = None, *, type: str | None = None, policy: Policy = "preserve") -> Any:
        """Register an Actor class; bare or with arguments.

        Args:
            type: stable type, the language-neutral name (B1.2); the class name when left out.
            policy: `preserve`, `recreate` or `disabled` (B1.8).

        Raises:
            NotConfigured: not an Actor, a name or policy that is taken or unknown.
        """

        def register(decorated: Any) -> Any:
            return self._register(decorated, Actor, type, policy, SpotMode.SPOT_WIDE)

        return register if cls is None else register(cls)

    @overload
    def spot(self, cls: type[_S], /) -> type[_S]: ...
    @overload
    def spot(
        self,
        *,
        type: str | None = None,
        policy: Policy = "preserve",
        mode: Literal["SpotWide", "PerActor"] = "SpotWide",
    ) -> Callable[[type[_S]], type[_S]]: ...
    def spot(
        self,
        cls: Any = None,
        *,
        type: str | None = None,
        policy: Policy = "preserve",
        mode: Literal["SpotWide", "PerActor"] = "SpotWide",
    ) -> Any:
        """Register a Spot class; bare or with arguments.

        Args:
            type: stable type, the language-neutral name (B1.2); the class name when left out.
            policy: `preserve`, `recreate` or `disabled` (B1.8).
            mode: turns of a User Spot and its Actors, `SpotWide` or `PerActor` (B1.6).

        Raises:
            NotConfigured: not a Spot, a name, policy or mode that is taken or unknown.
        """
        if mode not in list(SpotMode):
            raise NotConfigured(f"mode is one of {', '.join(SpotMode)}, not {mode!r}")

        def register(decorated: Any) -> Any:
            return self._register(decorated, Spot, type, policy, SpotMode(mode))

        return register if cls is None else register(cls)

    def _register(
        self, cls: Any, base: type[Resident], stable_type: str | None, policy: Policy, mode: SpotMode
    ) -> Any:
        word = "actor" if base is Actor else "spot"
        if not (inspect.isclass(cls) and issubclass(cls, base)) or not hasattr(cls, "object_kind"):
            bases = "sj.Actor" if base is Actor else "sj.InstanceSpot, sj.EntrySpot or sj.UserSpot"
            raise NotConfigured(f"@app.{word}: {cls!r} must be a subclass of {bases}")
        if policy not in get_args(Policy):
            raise NotConfigured(
                f"{cls.__name__}: policy is one of {', '.join(get_args(Policy))}, not {policy!r}"
            )
        record = ObjectType(cls, stable_type or cls.__name__, policy, mode)
        place = (base is Actor, record.stable_type)
        taken = self._by_type.get(place)
        if taken is not None:
            raise NotConfigured(
                f"{word} type {record.stable_type!r} is registered twice, by {taken.cls.__qualname__} and "
                f"{cls.__qualname__}: give one of them another `type=`"
            )
        if issubclass(cls, EntrySpot) and any(known.kind is ObjectKind.ENTRY_SPOT for known in self.types()):
            raise NotConfigured(f"{cls.__name__}: an application has one Entry Spot class")
        self._by_type[place] = self._by_class[cls] = record
        return cls

    def types(self) -> list[ObjectType]:
        """Every registered type, in the order of registration."""
        return list(self._by_class.values())

    def type_of(self, cls: type) -> ObjectType:
        """The record of a registered class.

        Raises:
            NotConfigured: the class was not registered.
        """
        record = self._by_class.get(cls)
        if record is None:
            if not inspect.isclass(cls):
                raise NotConfigured(
                    f"{cls!r} is no class: name the registered class itself, like actor(Player, ...)"
                )
            word = "actor" if issubclass(cls, Actor) else "spot"
            raise NotConfigured(f"{cls.__name__} is not registered: write @app.{word} over the class")
        return record

    def find_type(self, kind: ObjectKind, stable_type: str) -> ObjectType:
        """The record of a stable type.

        Raises:
            NotConfigured: no such type of this kind.
        """
        record = self._by_type.get((kind is ObjectKind.ACTOR, stable_type))
        if record is None or record.kind is not kind:
            raise NotConfigured(f"application {self.name!r} has no {kind.name} type {stable_type!r}")
        return record

    def registry(self) -> list[RegistryEntry]:
        """What a worker tells its supervisor: every type it can host."""
        return [
            RegistryEntry(
                record.stable_type,
                int(record.kind),
                record.policy,
                self.version,
                record.kind is ObjectKind.ENTRY_SPOT and "on_create_actor" in _defined(record.cls, EntrySpot),
                record.kind is ObjectKind.USER_SPOT and record.mode is SpotMode.SPOT_WIDE,
            )
            for record in self.types()
        ]


def _defined(cls: type, stop: type) -> set[str]:
    names: set[str] = set()
    for base in cls.__mro__:
        if base is stop:
            break
        names.update(vars(base))
    return names


def _check_name(stable_type: str, cls: type) -> bytes:
    raw = stable_type.encode("utf-8", "surrogatepass")
    if not 1 <= len(raw) <= 255 or b"\x00" in raw:
        raise NotConfigured(
            f"{cls.__name__}: a stable type has 1 to 255 bytes without NUL, not {stable_type!r:.80}"
        )
    return raw


def _refuse_shared_values(cls: type) -> None:
    """A list as the default of an attribute is one list for all objects of a process, and stays when they move.
    What is annotated as a constant, or written like one (in capitals, without annotation), is meant to be shared."""
    values = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
    hints: dict[str, list[str]] = {}
    for base in cls.__mro__:
        for name, annotation in vars(base).get("__annotations__", {}).items():
            hints.setdefault(name, []).append(str(annotation))
    for name, value in values.items():
        words = " ".join(hints.get(name, ()))
        constant = "ClassVar" in words or "Final" in words or (not words and name == name.upper())
        special = name.startswith("__") and name.endswith("__")
        if not constant and not special and type(value).__hash__ is None:
            raise NotConfigured(
                f"{cls.__name__}.{name} = {value!r:.40} would be one {type(value).__name__} for every "
                f"{cls.__name__} in a process, and would not move: set self.{name} in __init__ "
                "(or annotate it as ClassVar if that is meant)"
            )


def _own_capture(cls: type) -> bool:
    has = [callable(getattr(cls, name, None)) for name in ("capture", "restore")]
    if has[0] != has[1]:
        missing = "restore(self, state)" if has[0] else "capture(self)"
        raise NotConfigured(f"{cls.__name__} brings its own state bytes and therefore needs {missing} too")
    return has[0]


def _state_slots(cls: type) -> tuple[str, ...]:
    own: list[str] = []
    for base in cls.__mro__:
        if base.__module__ == Resident.__module__ and issubclass(base, Resident):
            continue
        declared = vars(base).get("__slots__", ())
        for name in (declared,) if isinstance(declared, str) else declared:
            if name not in ("__dict__", "__weakref__"):
                private = name.startswith("__") and not name.endswith("__")
                own.append(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return tuple(own)


def _creation_signature(cls: type) -> inspect.Signature:
    initializer = inspect.getattr_static(cls, "__init__")
    signature = inspect.signature(initializer)
    if initializer is object.__init__:
        signature = inspect.Signature([inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)])
    if issubclass(cls, (InstanceSpot, EntrySpot)) and not _fits(signature):
        raise NotConfigured(f"{cls.__name__}.__init__ must work without arguments: it is made on demand")
    return signature


def _fits(signature: inspect.Signature) -> bool:
    """True if a call without arguments is right."""
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True


def check_creation(record: ObjectType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Check creation arguments against `__init__`.

    Raises:
        InvalidOperation: they do not fit.
    """
    try:
        record.signature.bind(None, *args, **kwargs)
    except TypeError as error:
        parameters = list(record.signature.parameters.values())[1:]
        shown = inspect.Signature(parameters)
        raise InvalidOperation(f"{record.cls.__name__}{shown}: {error}") from None
