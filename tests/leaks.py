"""What a process holds: open descriptors, children, threads. Used to see what a test left behind."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import select
import signal
import sys
import threading
import warnings
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from types import TracebackType

import uvloop

__all__ = ["CheckedLoop", "LoopErrors", "Possessions", "adopt_orphans", "what_is_left", "what_is_there"]

PR_SET_CHILD_SUBREAPER = 36
END_S = 2.0
"""How long a thread or process that was told to stop may take to end."""


@dataclass(frozen=True)
class Possessions:
    """What the process holds at one moment."""

    descriptors: dict[int, str]
    children: dict[int, str]
    threads: frozenset[threading.Thread]


def adopt_orphans() -> None:
    """Make processes whose parent dies children of this one, so that a test cannot lose sight of them."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def what_is_there() -> Possessions:
    return Possessions(_descriptors(), _children(), frozenset(threading.enumerate()))


def what_is_left(before: Possessions) -> list[str]:
    """One line for each thing that is here now and was not before; children are ended and reaped."""
    complaints = [f"running process {child}" for child in _end_new_children(before)]
    for thread in frozenset(threading.enumerate()) - before.threads:
        thread.join(END_S)
        if thread.is_alive():
            complaints.append(f"running thread {thread.name}")
    if _new_descriptors(before):
        gc.collect()
    complaints += [f"open descriptor {number} ({name})" for number, name in _new_descriptors(before).items()]
    return complaints


def _new_descriptors(before: Possessions) -> dict[int, str]:
    tracker = getattr(resource_tracker._resource_tracker, "_fd", None)
    return {
        number: name
        for number, name in _descriptors().items()
        if before.descriptors.get(number) != name and number != tracker
    }


def _descriptors() -> dict[int, str]:
    folder = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
    names: dict[int, str] = {}
    for entry in os.listdir(folder):
        try:
            names[int(entry)] = os.readlink(f"{folder}/{entry}") if sys.platform == "linux" else entry
        except OSError:
            continue  # the descriptor of the listing itself, closed by now
    return names


def _children() -> dict[int, str]:
    """Children by process id, dead ones that nobody has reaped included, with their command line."""
    if sys.platform != "linux":
        return {}
    numbers: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        try:
            numbers += map(int, (task / "children").read_text().split())
        except OSError:
            continue  # the thread has ended
    tracker = getattr(resource_tracker._resource_tracker, "_pid", None)
    return {number: _command(number) for number in numbers if number != tracker}


def _command(number: int) -> str:
    try:
        return Path(f"/proc/{number}/cmdline").read_text().replace("\0", " ").strip()
    except OSError:
        return ""


def _end_new_children(before: Possessions) -> list[str]:
    """Reap new children; those still running are killed and told. A dead orphan is no one's fault."""
    told = []
    for number in _children():
        if number in before.children:
            continue
        if not _ends_by_itself(number):
            told.append(f"{number} {_command(number)}")
            os.kill(number, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # reaped by its own waiter meanwhile
            os.waitpid(number, 0)
    return told


def _ends_by_itself(number: int) -> bool:
    """Whether a child is dead or dies within its time; orphans learn of their parent's death a bit later."""
    try:
        descriptor = os.pidfd_open(number)
    except ProcessLookupError:
        return True
    try:
        ended, _, _ = select.select([descriptor], [], [], END_S)
        return bool(ended)
    finally:
        os.close(descriptor)


class LoopErrors(logging.Handler):
    """Collects what asyncio can only log: exceptions nobody retrieved, callbacks that raised."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f" ({record.exc_info[1]!r})"
        self.texts.append(f"asyncio error: {text}")

    def __enter__(self) -> LoopErrors:
        logging.getLogger("asyncio").addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        logging.getLogger("asyncio").removeHandler(self)


class CheckedLoop(uvloop.Loop):
    """uvloop's event loop; closing it reports transports that were left open, as asyncio errors.

    uvloop warns of them in the middle of `close`. A warning that is an error breaks that off, and the loop then
    waits forever for a handle that nobody closes.
    """

    def close(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            super().close()
        for warning in caught:
            logging.getLogger("asyncio").error("%s", warning.message)
