"""Shows how far a run is: a live bar on a terminal, plain lines elsewhere. Never writes to stdout."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Protocol, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["Counts", "LineDisplay", "LiveDisplay", "ProgressDisplay", "open_display"]


class Counts(NamedTuple):
    """What a run has done so far."""

    answered: int
    failed: int
    moved: int
    moves_failed: int
    note: str = ""
    """What is going on beside the stream: a node being emptied, for example."""


class ProgressDisplay(Protocol):
    """Told the counts now and then; must return at once."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, counts: Counts) -> None:
        """Show these counts."""

    def say(self, text: str) -> None:
        """Show one line that stays."""


class LiveDisplay:
    """A bar with counters, for terminals."""

    def __init__(self, total: int, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("moved {task.fields[moved]}  failed {task.fields[failed]}  {task.fields[note]}"),
            console=console,
        )
        self._task = self._progress.add_task("flights", total=total, moved=0, failed=0, note="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, counts: Counts) -> None:
        """Move the bar."""
        self._progress.update(
            self._task,
            completed=counts.answered,
            moved=counts.moved,
            failed=counts.failed,
            note=counts.note,
        )

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(text, markup=False, highlight=False)


class LineDisplay:
    """One line per twentieth of the stream, and at most one in two seconds."""

    def __init__(self, total: int, out: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._out = out
        self._now = now
        self._step = max(1, total // 20)
        self._next = self._step
        self._quiet_until = now() + 2.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._out.flush()

    def show(self, counts: Counts) -> None:
        """Print a line when enough has happened."""
        if counts.answered < self._next or self._now() < self._quiet_until:
            return
        self._next = counts.answered + self._step
        self._quiet_until = self._now() + 2.0
        self.say(
            f"{counts.answered:,} of {self._total:,} flights, moved {counts.moved:,}, "
            f"failed {counts.failed:,}{'; ' if counts.note else ''}{counts.note}"
        )

    def say(self, text: str) -> None:
        """Print a line."""
        print(text, file=self._out, flush=True)


def open_display(total: int, out: TextIO) -> ProgressDisplay:
    """The display that suits `out`."""
    console = Console(file=out)
    return LiveDisplay(total, console) if console.is_terminal else LineDisplay(total, out)
