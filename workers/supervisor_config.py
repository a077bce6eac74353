"""What a supervisor is started with, whoever reads it from a command line, a program or a test."""

from __future__ import annotations

from typing import Protocol

from sojourn.options import Options
from sojourn.workers.program import ProgramReference

__all__ = ["SupervisorConfig"]


class SupervisorConfig(Protocol):
    """What a supervisor is started with.

    Attributes:
        rid: the node's RID as text.
        host, port: where it listens for peers; port 0 = any free one.
        advertise: `host:port` that peers dial; empty = where it listens.
        options: every setting; store address and secret are among them.
        program: where its workers find the application.
        workers: worker processes, 1 to 1024.
        weight: share of placements, 0 = none (B8.1).
        wave: maintenance wave, empty = none.
    """

    @property
    def rid(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def advertise(self) -> str: ...
    @property
    def options(self) -> Options: ...
    @property
    def program(self) -> ProgramReference: ...
    @property
    def workers(self) -> int: ...
    @property
    def weight(self) -> int: ...
    @property
    def wave(self) -> str: ...
