"""Handler declarations: `@request`, `@send` and `@timer`, as typed descriptors.

Owns what a handler looks like from the outside: its name, its signature and how arguments are bound to
it. On the class a declaration is the typed key of a reference call (`ref.request(Room.say, "hello")`), on
an instance it is a plain method. It must not know how calls travel or how turns run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    NoReturn,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    overload,
)

import msgspec
from sojourn.errors import InvalidOperation, NotConfigured
from sojourn.spots.shapes import ANY_SHAPE, Shape, shape_of
from sojourn.spots.ticks import DEFAULT_CATCH_UP_MAX, OverrunPolicy, Tick, check_overrun, milliseconds

__all__ = ["Declaration", "Request", "Send", "Timer", "request", "send", "timer"]

Owner = TypeVar("Owner", contravariant=True)
P = ParamSpec("P")
R = TypeVar("R", covariant=True)
_O = TypeVar("_O")
_R = TypeVar("_R")

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

_CACHED_ARGUMENTS_MAX = 15
"""What fits the short MessagePack array; longer argument lists are rare enough to be looked up anew."""


class Declaration:
    """What every declared handler has: its function, its name on the wire and its bound signature.

    Attributes:
        name: the attribute it was declared under; the packet name of its messages.
        function: the coroutine function, unbound.
        word: the decorator's name, for error texts.
    """

    word: str = "request"

    def __init__(self, function: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        if isinstance(function, (staticmethod, classmethod)) or not callable(function):
            raise NotConfigured(
                f"@{self.word} belongs on a method written `async def name(self, ...)`, not on {function!r}"
            )
        if not inspect.iscoroutinefunction(function):
            raise NotConfigured(
                f"{function.__qualname__} is declared with @{self.word} but is not `async def`: "
                "handlers are coroutine functions"
            )
        self.function = function
        self.name = function.__name__
        self.owner_name = function.__qualname__.rpartition(".")[0] or "?"
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__wrapped__ = function
        self.signature = inspect.signature(function)
        if not self.signature.parameters:
            raise NotConfigured(
                f"{function.__qualname__} has no parameter `self`: write `async def {function.__name__}(self, ...)`"
            )
        self._count_positional()
        self._shapes: tuple[tuple[Shape, ...], Shape | None, Shape] | None = None
        self._by_count: dict[int, tuple[Shape, ...]] = {}
        self._decoders: dict[int, msgspec.msgpack.Decoder[tuple[Any, ...]]] = {}

    def _count_positional(self) -> None:
        least = most = 0
        self._rest = False
        self._simple = True
        for parameter in list(self.signature.parameters.values())[1:]:
            if parameter.kind is parameter.VAR_POSITIONAL:
                self._rest = True
            elif parameter.kind is parameter.KEYWORD_ONLY:
                self._simple = self._simple and parameter.default is not parameter.empty
            elif parameter.kind is not parameter.VAR_KEYWORD:
                most += 1
                if parameter.default is parameter.empty:
                    least += 1
        self._least, self._most = least, most

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.owner_name = owner.__name__

    def __repr__(self) -> str:
        return f"<@{self.word} {self.owner_name}.{self.name}>"

    if not TYPE_CHECKING:  # type checkers refuse the call by themselves

        def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
            raise InvalidOperation(
                f"{self.owner_name}.{self.name} is the key of a call, not the call: write "
                f"ref.{self.word}({self.owner_name}.{self.name}, ...), or self.{self.name}(...) inside the object"
            )

    def fits(self, count: int) -> bool:
        """Whether `count` positional arguments and nothing else are what the signature wants."""
        return self._simple and self._least <= count and (count <= self._most or self._rest)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """Check arguments against the signature, at the sender, and put named ones in their place.

        Raises:
            InvalidOperation: too many, too few or unknown arguments; the text names the handler.
        """
        if not kwargs and self.fits(len(args)):
            return args, kwargs
        try:
            bound = self.signature.bind(None, *args, **kwargs)
        except TypeError as error:
            raise InvalidOperation(f"{self.owner_name}.{self.name}{self._shown()}: {error}") from None
        return bound.args[1:], bound.kwargs

    def _shown(self) -> str:
        shown = list(self.signature.parameters.values())[1:]
        return str(self.signature.replace(parameters=shown))

    def argument_shapes(self, count: int) -> tuple[Shape, ...] | None:
        """Shapes of `count` positional arguments; None for more than the handler takes."""
        shapes = self._by_count.get(count)
        if shapes is None:
            positional, rest, _ = self.shapes()
            if count > len(positional) and rest is None:
                return None
            shapes = positional[:count] + (rest or ANY_SHAPE,) * (count - len(positional))
            if count <= _CACHED_ARGUMENTS_MAX:
                self._by_count[count] = shapes
        return shapes

    def arguments_decoder(self, count: int) -> msgspec.msgpack.Decoder[tuple[Any, ...]] | None:
        """Decoder of an array of `count` arguments; None for more than the handler takes."""
        decoder = self._decoders.get(count)
        if decoder is None:
            shapes = self.argument_shapes(count)
            if shapes is None:
                return None
            hints = tuple(shape.annotation for shape in shapes)
            decoder = msgspec.msgpack.Decoder(tuple.__class_getitem__(hints) if hints else tuple[()])
            if count <= _CACHED_ARGUMENTS_MAX:
                self._decoders[count] = decoder
        return decoder

    def shapes(self) -> tuple[tuple[Shape, ...], Shape | None, Shape]:
        """Shapes of the positional arguments, of `*args` (None without), and of the result."""
        if self._shapes is None:
            hints = _hints(self.function)
            positional: list[Shape] = []
            rest: Shape | None = None
            for parameter in list(self.signature.parameters.values())[1:]:
                shape = shape_of(hints.get(parameter.name, Any))
                if parameter.kind is parameter.VAR_POSITIONAL:
                    rest = shape
                elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                    positional.append(shape)
            self._shapes = (tuple(positional), rest, shape_of(hints.get("return", Any)))
        return self._shapes


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    # An annotation that cannot be resolved (a name behind TYPE_CHECKING) only costs the compact encoding.
    try:
        return inspect.get_annotations(function, eval_str=True)
    except (NameError, AttributeError, TypeError, SyntaxError):
        return {}


class Request(Declaration, Generic[Owner, P, R]):
    """A handler whose caller awaits a result: the type of `Room.say` for `@request async def say(...)`."""

    word = "request"

    def __init__(self, function: Callable[Concatenate[Owner, P], Coroutine[Any, Any, R]]) -> None:
        super().__init__(function)

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: Request[_O, P, _R], instance: _O, owner: type
    ) -> Callable[P, Coroutine[Any, Any, _R]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else self.function.__get__(instance, owner)


class Send(Declaration, Generic[Owner, P]):
    """A handler without a result: the type of `Device.ping` for `@send async def ping(...) -> None`."""

    word = "send"

    def __init__(self, function: Callable[Concatenate[Owner, P], Coroutine[Any, Any, None]]) -> None:
        super().__init__(function)

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self: Send[_O, P], instance: _O, owner: type) -> Callable[P, Coroutine[Any, Any, None]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else self.function.__get__(instance, owner)


class Timer(Declaration, Generic[Owner]):
    """A timer callback, `async def tick(self, tick: Tick) -> None`.

    With a period it starts by itself when the object is made; without one `start_timer` starts it.
    """

    word = "timer"

    def __init__(
        self,
        function: Callable[[Owner, Tick], Coroutine[Any, Any, None]],
        every: float | None = None,
        after: float | None = None,
        overrun: OverrunPolicy = "skip_late",
        max_catch_up: int = DEFAULT_CATCH_UP_MAX,
        stop_on_error: bool = False,
        repeat: int | None = None,
    ) -> None:
        super().__init__(function)
        if not (self._least <= 1 <= self._most or self._rest):
            raise NotConfigured(f"{function.__qualname__}: a timer callback is `async def name(self, tick)`")
        where = f"@timer of {function.__qualname__}"
        self.every_ms = None if every is None else milliseconds(every, where, "every")
        self.after_ms = None if after is None else milliseconds(after, where, "after", least=0)
        self.overrun = check_overrun(overrun, max_catch_up, repeat, where)
        self.max_catch_up = max_catch_up
        self.stop_on_error = stop_on_error
        self.repeat = repeat

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: Timer[_O], instance: _O, owner: type
    ) -> Callable[[Tick], Coroutine[Any, Any, None]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else self.function.__get__(instance, owner)


class _DeclareRequest(Protocol):
    def __call__(
        self, function: Callable[Concatenate[_O, P], Coroutine[Any, Any, _R]], /
    ) -> Request[_O, P, _R]: ...


class _DeclareSend(Protocol):
    def __call__(
        self, function: Callable[Concatenate[_O, P], Coroutine[Any, Any, None]], /
    ) -> Send[_O, P]: ...


@overload
def request(function: Callable[Concatenate[_O, P], Coroutine[Any, Any, _R]], /) -> Request[_O, P, _R]: ...
@overload
def request() -> _DeclareRequest: ...
def request(function: Any = None, /, **unknown: Any) -> Any:
    """Declare a handler that answers: called by `await ref.request(Class.name, ...)`.

    Written `@request` or `@request()`; there are no settings.

    Raises:
        NotConfigured: the function is not `async def`, or settings are given.
    """
    _no_settings("request", unknown)
    return Request if function is None else Request(function)


@overload
def send(function: Callable[Concatenate[_O, P], Coroutine[Any, Any, None]], /) -> Send[_O, P]: ...
@overload
def send() -> _DeclareSend: ...
def send(function: Any = None, /, **unknown: Any) -> Any:
    """Declare a handler that does not answer: called by `await ref.send(Class.name, ...)`.

    Written `@send` or `@send()`; there are no settings.

    Raises:
        NotConfigured: the function is not `async def`, or settings are given.
    """
    _no_settings("send", unknown)
    return Send if function is None else Send(function)


def _no_settings(word: str, unknown: dict[str, Any]) -> None:
    if unknown:
        raise NotConfigured(
            f"@{word} takes no settings, not {', '.join(unknown)}: a deadline stands at the caller "
            "(ref.with_timeout(seconds)) or in the options (request_timeout_ms, handler_deadline_ms)"
        )


_TimerFunction = Callable[[_O, Tick], Coroutine[Any, Any, None]]


_TIMER_SETTINGS = ("every", "after", "overrun", "max_catch_up", "stop_on_error", "repeat")


@overload
def timer(function: _TimerFunction[_O], /) -> Timer[_O]: ...
@overload
def timer(
    *,
    every: float | None = None,
    after: float | None = None,
    overrun: OverrunPolicy = "skip_late",
    max_catch_up: int = DEFAULT_CATCH_UP_MAX,
    stop_on_error: bool = False,
    repeat: int | None = None,
) -> Callable[[_TimerFunction[_O]], Timer[_O]]: ...
def timer(function: Any = None, /, **settings: Any) -> Any:
    """Declare a timer callback (B4).

    Args:
        every: period in seconds, at least 0.001. With it the timer starts when the object is made, under the
            callback's name; without it only `start_timer` starts it.
        after: seconds to the first tick; one period when left out.
        overrun: what happens to ticks whose time passed while the object was busy. `skip_late` (default)
            runs only the newest, `catch_up` all of them in order but at most `max_catch_up`, `delay_next`
            counts the next period from the end of the callback.
        max_catch_up: most late ticks run by `catch_up`, 1 or more (default 16).
        stop_on_error: an exception in the callback ends the timer (default: it is logged and ticking goes on).
        repeat: number of ticks after which the timer ends; None = never.

    Raises:
        NotConfigured: not `async def`, a bad period, policy or count.
    """
    unknown = settings.keys() - set(_TIMER_SETTINGS)
    if unknown or isinstance(function, (int, float)):
        named = f"named settings, not {function!r}" if not unknown else f"no setting {min(unknown)!r}"
        raise NotConfigured(
            f"@timer takes {named}: write @timer(every=1.0); known are {', '.join(_TIMER_SETTINGS)}"
        )
    if function is not None:
        return Timer(function, **settings)
    return lambda decorated: Timer(decorated, **settings)


Kind = Literal["request", "send"]
