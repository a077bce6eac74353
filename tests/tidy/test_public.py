"""What application code touches speaks of its own objects, never of how they move (R1.3)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
import sojourn as sj

SURFACE: list[type[Any]] = [
    sj.Actor,
    sj.EntrySpot,
    sj.InstanceSpot,
    sj.UserSpot,
    sj.ActorRef,
    sj.SpotRef,
    sj.Tick,
    sj.Relocation,
    sj.HostRelocation,
    sj.StayedUnit,
]
"""What handlers and callers of a move hold in their hands."""
KNOWN = {
    *sj.__all__,
    *("Any", "Awaitable", "Callable", "ClassVar", "Concatenate", "Coroutine", "Iterator", "Mapping", "None"),
    *("TypeAlias", "bool", "bytes", "dict", "float", "int", "list", "object", "property", "str", "tuple"),
    *(
        "args",
        "kwargs",
        "Declaration",
        "NamedNode",
        "NodeName",
        "Request",
        "Self",
        "Send",
        "Timer",
        "type",
        "Literal",
        "ObjectKind",
        "OverrunPolicy",
    ),
}
"""Types of the language, of the page of the API, and of what decorators make of methods."""
WORD = re.compile(r"[A-Za-z_]\w*")
QUOTED = re.compile(r"'[^']*'")
INSIDE = re.compile(
    r"relocation_?id|generation|version|fence|lease|cutover|relay|chunk|payload_|connection", re.IGNORECASE
)
"""Words of the protocol and of the store."""
OWN = {"from_version", "application_version"}
"""Versions that the application counts itself."""


def annotated(cls: type[Any]) -> Iterator[tuple[str, str, str]]:
    """Member, parameter or field, and annotation of everything public about a class."""
    for owner in cls.__mro__[:-1]:
        for name, annotation in vars(owner).get("__annotations__", {}).items():
            if not name.startswith("_"):
                yield name, name, str(annotation)
        for name, member in vars(owner).items():
            function = member.fget if isinstance(member, property) else inspect.unwrap(member)
            if not name.startswith("_") and inspect.isfunction(function):
                for parameter, annotation in function.__annotations__.items():
                    yield name, parameter, str(annotation)


@pytest.mark.parametrize("cls", SURFACE, ids=lambda cls: cls.__name__)
def test_no_application_handles_what_moves_its_objects(cls: type[Any]) -> None:
    """R1.3: no target's inside, no store version, no control message: neither as a type nor by name."""
    wrong = []
    for member, name, annotation in annotated(cls):
        unknown = {
            word for word in WORD.findall(QUOTED.sub("", annotation)) if word not in KNOWN and len(word) > 2
        }
        if unknown:
            wrong.append(f"{member}: {name}: {annotation} ({', '.join(sorted(unknown))})")
        if name not in OWN and INSIDE.search(name):
            wrong.append(f"{member}: {name}")
    assert not wrong, wrong
