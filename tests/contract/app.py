"""The application of the contract tests; every worker process imports it.

Objects write what they do into a file each, so that a test can tell that something did NOT run.
"""

from __future__ import annotations

import os
from pathlib import Path

import sojourn as sj

from tests.runtime.fleet import pass_gate

TRACE_VARIABLE = "SOJOURN_CONTRACT_TRACE"
app = sj.App("contract", version=1)


def trace(name: str, text: str) -> None:
    """Add a line to the file of an object."""
    with Path(os.environ[TRACE_VARIABLE], name).open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")


class Rooted:
    """Something that can be restored only in the process that captured it."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return rooted_in, (os.getpid(),)


def rooted_in(pid: int) -> Rooted:
    """What a `Rooted` is restored by."""
    if pid != os.getpid():
        raise RuntimeError(f"it has its roots in process {pid}")
    return Rooted()


class Written:
    """What both kinds of object do: write lines down, in state and in their file."""

    lines: list[str]
    blob: bytes

    def _note(self, name: str, text: str) -> int:
        self.lines.append(text)
        trace(name, f"ran {text}")
        return len(self.lines)


@app.spot
class Ledger(sj.InstanceSpot, Written):
    """Keeps what it is told, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.ticks: list[tuple[int, int]] = []
        self.blob = b""

    async def on_initialize(self) -> None:
        trace(self.id, "made")

    @sj.send
    async def note(self, text: str) -> None:
        self._note(self.id, text)

    @sj.request
    async def add(self, text: str) -> int:
        return self._note(self.id, text)

    @sj.request
    async def history(self) -> list[str]:
        return self.lines

    @sj.request
    async def hold(self, port: int) -> int:
        await pass_gate(port)
        return self._note(self.id, "held")

    @sj.send
    async def hold_note(self, port: int) -> None:
        await pass_gate(port)
        self._note(self.id, "noted")

    @sj.request
    async def grow(self, size: int) -> int:
        self.blob = bytes(range(256)) * (size // 256)
        return len(self.blob)

    @sj.request
    async def whole(self, size: int) -> bool:
        return self.blob == bytes(range(256)) * (size // 256)

    @sj.timer
    async def tick(self, tick: sj.Tick) -> None:
        self.ticks.append((tick.delivery_index, tick.scheduled_index))
        trace(self.id, f"tick {tick.delivery_index}")

    @sj.request
    async def start_ticking(self, every: float) -> str:
        self.start_timer(Ledger.tick, every=every)
        return self.id

    @sj.request
    async def ticked(self) -> list[tuple[int, int]]:
        return self.ticks

    @sj.request
    async def fail(self, text: str) -> None:
        raise ValueError(text)

    @sj.request
    async def go(self, node: str) -> str:
        """Ask for the own move."""
        self.relocate(to=node)
        return node

    @sj.request
    async def break_off(self, text: str) -> int:
        """Do the work, then end the process before the reply can leave it."""
        self._note(self.id, text)
        os._exit(3)


@app.actor
class Member(sj.Actor, Written):
    """The same as an Actor."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.place: Rooted | None = None
        self.blob = b""

    @sj.send
    async def note(self, text: str) -> None:
        self._note(self.id, text)

    @sj.request
    async def add(self, text: str) -> int:
        return self._note(self.id, text)

    @sj.request
    async def hold(self, port: int) -> int:
        await pass_gate(port)
        return self._note(self.id, "held")

    @sj.request
    async def history(self) -> list[str]:
        return self.lines

    @sj.request
    async def grow(self, size: int) -> int:
        self.blob = bytes(size)
        return len(self.blob)

    @sj.send
    async def push(self, screen: str, text: str) -> None:
        """Show its client something; the screen stands for the way to a client's socket."""
        self._note(self.id, text)
        await self.actor(Member, screen).send(Member.note, text)

    @sj.request
    async def hold_push(self, port: int, screen: str, text: str) -> None:
        """The same, in a turn that lasts until the gate opens."""
        await pass_gate(port)
        self._note(self.id, text)
        await self.actor(Member, screen).send(Member.note, text)

    @sj.request
    async def root(self, rooted: bool) -> bool:
        """Have its state refuse to be restored in any other process, or not any more."""
        self.place = Rooted() if rooted else None
        return rooted


class Guests:
    """What Spots with members and the members do: write lines into one file, in the order of running."""

    lines: list[str]

    def _enter(self, name: str, book: str, text: str) -> int:
        self.lines.append(text)
        trace(book, f"ran {name} {text}")
        return len(self.lines)


@app.spot
class Hall(sj.UserSpot, Guests):
    """A Spot that shares one turn with its members."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @sj.request
    async def add(self, book: str, text: str) -> int:
        return self._enter("hall", book, text)

    @sj.send
    async def break_off(self) -> None:
        """End the process."""
        os._exit(3)

    @sj.send
    async def break_off_at(self, port: int) -> None:
        """End the process in a turn that lasted until the gate opened."""
        await pass_gate(port)
        os._exit(3)


@app.spot(mode="PerActor", policy="recreate")
class Arena(sj.UserSpot, Guests):
    """A Spot whose members take turns of their own."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @sj.request
    async def add(self, book: str, text: str) -> int:
        return self._enter("arena", book, text)


@app.actor
class Guest(sj.Actor, Guests):
    """A member of either."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @sj.send
    async def note(self, text: str) -> None:
        """What its client tells it, in a file of its own."""
        self.lines.append(text)
        trace(self.id, f"ran {text}")

    @sj.request
    async def add(self, book: str, text: str) -> int:
        return self._enter(self.id.partition("-")[0], book, text)
