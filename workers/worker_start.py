"""What a supervisor names when it starts a worker: functions that find the worker's code in the worker.

A supervisor runs no object and needs nothing of what runs them; importing that for the names alone would cost
every node a tenth of its start.
"""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sojourn.control import Welcome
    from sojourn.spots.app import App
    from sojourn.spots.ports import Port
    from sojourn.workers.program import ProgramReference
    from sojourn.workers.worker import Host, HostFactory, Prepared

__all__ = ["STACK_SIGNAL", "object_host", "prepare_worker", "run_worker"]

STACK_SIGNAL = signal.SIGRTMIN + 5 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR1
"""Makes a worker write the stacks of all its threads, even inside a long C call."""


def object_host(app: App, port: Port, welcome: Welcome) -> Host:
    """The host of a real node."""
    from sojourn.spots.host import ObjectHost

    return ObjectHost(app, port, welcome)


def prepare_worker(stacks: socket.socket, program: ProgramReference, log_level: str) -> Prepared:
    """See `sojourn.workers.worker.prepare_worker`."""
    from sojourn.workers import worker

    return worker.prepare_worker(stacks, program, log_level)


async def run_worker(
    lifeline: socket.socket, prepared: Prepared, index: int, host_factory: HostFactory
) -> None:
    """See `sojourn.workers.worker.run_worker`."""
    from sojourn.workers import worker

    await worker.run_worker(lifeline, prepared, index, host_factory)
