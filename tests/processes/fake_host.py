"""An object host that does what a record tells it to: the process around it is what is tested."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Any

from sojourn.control import Control, Created, CreateObject, ErrorBody, Stop, Stopped, Welcome
from sojourn.frames import KIND_RECORD
from sojourn.spots.app import App
from sojourn.spots.ports import Port

__all__ = ["FakeHost", "make_host", "order"]


def order(text: str) -> bytes:
    """A record frame that makes the host do something."""
    return bytes((KIND_RECORD,)) + text.encode()


def make_host(app: App, port: Port, welcome: Welcome) -> FakeHost:
    return FakeHost(app, port, welcome)


class FakeHost:
    def __init__(self, app: App, port: Port, welcome: Welcome) -> None:
        self.app = app
        self.port = port
        self.welcome = welcome
        self.bulk: list[bytes] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.stopped = asyncio.Event()

    def receive_record(self, body: bytes) -> None:
        word, _, rest = body[1:].decode().partition(" ")
        getattr(self, f"do_{word}")(rest)

    def figures(self) -> dict[str, int]:
        return {}

    def receive_reply(self, body: bytes) -> None:
        self.port.submit(body)

    def receive_control(self, message: Control) -> None:
        if isinstance(message, CreateObject):
            if message.key == b"shang":
                return
            error = ErrorBody("Rejected", {"message": "no"}) if message.key == b"sno" else None
            self.port.submit_control(Created(message.call, error))
        elif isinstance(message, Stop):
            logging.getLogger("arena").warning("closing because of %s", message.reason)
            if message.reason != "never":
                self.port.submit_control(Stopped(self.welcome.worker))
                self.stopped.set()

    def receive_bulk(self, handoff: int, last: bool, chunk: memoryview) -> None:
        self.bulk.append(bytes(chunk))
        if last:
            self.port.submit_bulk(handoff, True, memoryview(b"".join(self.bulk)))  # type: ignore[attr-defined]
            self.bulk.clear()

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()

    # orders

    def do_echo(self, text: str) -> None:
        self.port.submit(order(text))

    def do_identity(self, _: str) -> None:
        self.port.submit(order(f"{self.welcome.rid.decode()}/{self.welcome.worker} {self.app.name}"))

    def do_argv(self, _: str) -> None:
        main: Any = sys.modules["__main__"]
        self.port.submit(order(f"{sys.argv} {getattr(main, 'MARK', None)}"))

    def do_spin(self, _: str) -> None:
        self.port.submit(order("spinning"))
        asyncio.get_running_loop().call_later(0.02, self._spin)

    def _spin(self) -> None:
        while True:
            pass

    def do_compute(self, _: str) -> None:
        """A C call that neither ends nor lets another thread run."""
        self.port.submit(order("computing"))
        asyncio.get_running_loop().call_later(0.02, sum, range(10**15))

    def do_exit(self, code: str) -> None:
        os._exit(int(code))

    def do_leave(self, code: str) -> None:
        self.port.fatal(SystemExit(int(code)))

    def do_babble(self, _: str) -> None:
        self.port.submit(b"\x09what")

    def do_raise(self, text: str) -> None:
        raise RuntimeError(text)

    def do_log(self, text: str) -> None:
        logging.getLogger("arena").warning(text, extra={"sojourn": {"relocation": "r1"}})
        try:
            raise ValueError("inner")
        except ValueError:
            logging.getLogger("arena").exception("it went wrong")

    def do_ask(self, operation: str) -> None:
        task = asyncio.ensure_future(self._ask(operation))
        self.tasks.add(task)

    async def _ask(self, operation: str) -> None:
        try:
            answer = await self.port.call_node(operation, {"to": "n2"})
        except Exception as error:
            answer = repr(error)
        self.port.submit(order(str(answer)))

    def do_grant(self, _: str) -> None:
        self.port.grant(1, 10)
        self.port.grant(2, 20)
