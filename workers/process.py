"""Worker processes: the one module that knows aiomultiprocess and multiprocessing.

Owns how a worker process is started (a fresh interpreter, never fork), how it learns that its parent is gone,
and how it is ended. It must not know what a worker does: that is the coroutine it is given.
"""

from __future__ import annotations

import asyncio
import ctypes
import io
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from multiprocessing import context, popen_spawn_posix, reduction, spawn, util
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias

import aiomultiprocess
import uvloop
from aiomultiprocess.types import Unit
from sojourn.errors import InvalidOperation, NotConfigured
from sojourn.workers.exits import ExitWatch

__all__ = [
    "WorkerProcess",
    "check_platform",
    "die_with_parent",
    "end_process",
    "exit_on_hang_up",
    "interpreter_arguments",
]

Target: TypeAlias = Callable[..., Coroutine[Any, Any, None]]

_PR_SET_PDEATHSIG = 1
_POLL_HANG_UP = getattr(select, "POLLRDHUP", 0) | select.POLLHUP
ORPHANED = 113
"""Exit code of a process that ended because its parent is gone."""
REAPED_ELSEWHERE = 255
"""Exit code reported when other code of this process has waited for a child before us."""


def check_platform() -> None:
    """Refuse systems without what worker processes rest on (B13.4).

    Raises:
        NotConfigured: Windows.
    """
    if sys.platform == "win32":
        raise NotConfigured("Sojourn runs on Linux, and on macOS as best effort; on Windows use WSL 2")


class _Launch(popen_spawn_posix.Popen):
    """Starts the fresh interpreter without what multiprocessing adds and a worker must not have.

    No resource tracker (a second hidden process that outlives a killed parent), and no import of the parent's
    main module before our own code runs: a worker imports the user's program itself, where it can tell what
    went wrong with it.
    """

    _fds: list[int]

    def _launch(self, process: BaseProcess) -> None:
        preparation = spawn.get_preparation_data(process.name)
        for name in ("init_main_from_name", "init_main_from_path"):
            preparation.pop(name, None)
        pickled = io.BytesIO()
        context.set_spawning_popen(self)
        try:
            reduction.dump(preparation, pickled)
            reduction.dump(process, pickled)
        finally:
            context.set_spawning_popen(None)
        sentinel, sentinel_of_child = os.pipe()
        input_of_child, output = os.pipe()
        self.sentinel = sentinel
        self.finalizer = util.Finalize(self, _close_all, (sentinel, output))
        try:
            command = spawn.get_command_line(tracker_fd=None, pipe_handle=input_of_child)
            inherited = [*self._fds, input_of_child, sentinel_of_child]
            self.pid = util.spawnv_passfds(os.fsencode(sys.executable), command, inherited)
        finally:
            os.close(input_of_child)
            os.close(sentinel_of_child)
        try:
            with open(output, "wb", closefd=False) as stream:
                stream.write(pickled.getbuffer())
        except BrokenPipeError:
            return  # died at once: its exit says so


def _close_all(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class _SpawnProcess(context.SpawnProcess):
    @staticmethod
    def _Popen(process: BaseProcess) -> Any:
        return _Launch(process)


class WorkerProcess(aiomultiprocess.Process):  # type: ignore[misc]
    """A process that runs one coroutine in an event loop of its own, and dies with its parent.

    The stock constructor is skipped on purpose: it starts a manager process and blocks for 200 ms.

    Args:
        target: module-level coroutine function; runs in the child as `target(lifeline, prepared, *args)`.
        args: pickled; sockets among them are handed over as descriptors.
        lifeline: one end of a socketpair whose other end this process keeps. When the other end goes, the child
            ends at once.
        prepare: module-level function that runs in the child before the event loop starts; its result is
            `prepared`.
        prepare_args: its arguments.
        name: shown in process lists of Python tools.
    """

    def __init__(
        self,
        target: Target,
        args: Sequence[Any],
        *,
        lifeline: socket.socket,
        prepare: Callable[..., Any],
        prepare_args: Sequence[Any],
        name: str,
    ) -> None:
        self.unit = Unit(
            target=target,
            args=(lifeline, *args),
            kwargs={},
            namespace=None,
            initializer=prepare,
            initargs=prepare_args,
        )
        self.aio_process = _SpawnProcess(target=_run_child, args=(self.unit, os.getpid()), name=name)

    def start(self) -> ExitWatch:
        """Start the child; the running event loop watches for its end.

        Raises:
            InvalidOperation: not in the main thread: the child would die with the thread, not the process.
        """
        if threading.current_thread() is not threading.main_thread():
            raise InvalidOperation("worker processes are started from the main thread only")
        # A Ctrl-C now would end the half-started interpreter with a traceback; it inherits the mask.
        previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.aio_process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        pid = self.aio_process.pid
        assert pid is not None
        return ExitWatch(pid, self._reap)

    def _reap(self) -> int:
        code = self.aio_process.exitcode
        if code is None:
            return REAPED_ELSEWHERE
        self.aio_process.close()
        return code


async def end_process(
    watch: ExitWatch,
    *,
    ask: Callable[[], object] | None,
    ask_s: float,
    terminate_s: float,
    kill_s: float = 5.0,
) -> int | None:
    """End a child: ask it, then SIGTERM, then SIGKILL, each with its limit in seconds.

    Returns:
        The exit code, or None when even SIGKILL did not end it in time (stuck in the kernel).
    """
    if ask is not None and watch.exit_code is None:
        ask()
        await watch.wait(ask_s)
    for number, limit_s in ((signal.SIGTERM, terminate_s), (signal.SIGKILL, kill_s)):
        if watch.exit_code is not None:
            break
        watch.send_signal(number)
        await watch.wait(limit_s)
    return watch.exit_code


def interpreter_arguments() -> list[str]:
    """Options with which this interpreter was started (`-W`, `-X`, ...), for one that shall behave alike."""
    return list(util._args_from_interpreter_flags())  # type: ignore[attr-defined]


# in the child


def _run_child(unit: Unit, parent: int) -> None:
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides when a worker ends
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    lifeline, *args = unit.args
    exit_on_hang_up(lifeline)
    assert unit.initializer is not None
    prepared = unit.initializer(*unit.initargs)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(unit.target(lifeline, prepared, *args))


def die_with_parent(
    parent: int, number: int = signal.SIGKILL, last_words: Callable[[], object] | None = None
) -> None:
    """Have the kernel send this process a signal when its parent dies (Linux); end now if it is dead already.

    Seen even inside a long C call, unlike the end of a connection. `last_words` runs before an end now.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        try:
            if last_words is not None:
                last_words()
        finally:
            os._exit(ORPHANED)


def exit_on_hang_up(lifeline: socket.socket, last_words: Callable[[], object] | None = None) -> None:
    """End this process when the other end of `lifeline` goes away, even while the main thread is busy.

    A thread waits for the hang-up alone, so it neither takes bytes away nor wakes for them. `last_words` runs
    in that thread before the exit and must be short.
    """
    descriptor = os.dup(lifeline.fileno())

    def wait() -> None:
        waiting = select.poll()
        waiting.register(descriptor, _POLL_HANG_UP)
        waiting.poll()
        try:
            if last_words is not None:
                last_words()
        finally:
            os._exit(ORPHANED)

    threading.Thread(target=wait, name="parent watchdog", daemon=True).start()
