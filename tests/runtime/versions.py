"""Two versions of one application, side by side; every worker process imports them."""

from __future__ import annotations

from typing import Any

import sojourn as sj

old = sj.App("versions", version=1)
new = sj.App("versions", version=2)


@old.actor(type="Book")
class Book(sj.Actor):
    """What it says at version 1."""

    pages: int = 0

    @sj.request
    async def write(self, pages: int) -> tuple[int, int]:
        self.pages += pages
        return 1, self.pages


@new.actor(type="Book")
class NewBook(sj.Actor):
    """What it says at version 2, whose state has another name."""

    leaves: int = 0

    @sj.request
    async def write(self, pages: int) -> tuple[int, int]:
        self.leaves += pages // 2
        return 2, self.leaves

    def upgrade(self, old_version: int, state: dict[str, Any]) -> dict[str, Any]:
        return {"leaves": state.get("pages", 0) // 2}  # not in it while it is what the class says


class _Note(sj.Actor):
    """The same class at both versions: nothing says how its state becomes that of version 2."""

    lines: int = 0

    @sj.request
    async def write(self, lines: int) -> int:
        self.lines += lines
        return self.lines


@old.actor(type="Note")
class Note(_Note):
    """At version 1."""


@new.actor(type="Note")
class NewNote(_Note):
    """At version 2."""
