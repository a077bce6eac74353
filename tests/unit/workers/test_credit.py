"""Credit between a worker and its supervisor goes back in few messages, and none of it is kept for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sojourn.control import Control, Grant
from sojourn.workers.worker import (
    GRANT_KEPT_BACK_S,
    OUTBOUND_OCTETS_LOW,
    OUTBOUND_OCTETS_MAX,
    SupervisorPort,
)
from sojourn.workers.worker_credit import KEPT_BACK_OCTETS, KEPT_BACK_S, WorkerCreditor


class Timers:
    """An event loop's `call_later` on a clock that stands still."""

    def __init__(self) -> None:
        self.armed: list[tuple[float, Callable[[], object]]] = []

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timers:
        self.armed.append((delay_s, callback))
        return self

    def cancel(self) -> None:
        self.armed.clear()

    def fire(self) -> None:
        ((_, callback),) = self.armed
        self.armed.clear()
        callback()


class Supervisor:
    """As much of one as a creditor needs; also a pool."""

    def __init__(self) -> None:
        self.loop = Timers()
        self.pool = self
        self.sent: list[Control] = []

    def control(self, worker: int, message: Control) -> bool:
        self.sent.append(message)
        return True


class Connection:
    congested = False

    def __init__(self) -> None:
        self.sent: list[Control | bytes] = []

    def send_control(self, message: Control) -> None:
        self.sent.append(message)

    def send(self, body: bytes) -> None:
        self.sent.append(body)


def make_creditor() -> tuple[Supervisor, WorkerCreditor]:
    supervisor = Supervisor()
    stand_in: Any = supervisor
    return supervisor, WorkerCreditor(stand_in, 0)


def make_port() -> tuple[Connection, Timers, SupervisorPort]:
    connection, timers = Connection(), Timers()
    stand_in: Any = connection
    port = SupervisorPort(stand_in, asyncio.get_running_loop().create_future())
    loop: Any = timers
    port._loop = loop
    return connection, timers, port


def test_little_outbound_credit_waits_for_a_moment() -> None:
    supervisor, creditor = make_creditor()
    for _ in range(3):
        creditor.give_back(1, 100)
    assert supervisor.sent == []
    assert [delay for delay, _ in supervisor.loop.armed] == [KEPT_BACK_S]
    supervisor.loop.fire()
    assert supervisor.sent == [Grant(3, 300)]
    assert not supervisor.loop.armed


def test_much_outbound_credit_goes_back_at_once() -> None:
    supervisor, creditor = make_creditor()
    creditor.give_back(1, 100)
    creditor.give_back(1, KEPT_BACK_OCTETS)
    assert supervisor.sent == [Grant(2, KEPT_BACK_OCTETS + 100)]
    assert not supervisor.loop.armed


def test_the_credit_of_a_worker_that_ended_is_nobody_s() -> None:
    supervisor, creditor = make_creditor()
    creditor.give_back(1, 100)
    creditor.end()
    supervisor.loop.fire()
    assert supervisor.sent == []


@pytest.mark.parametrize(("permits", "together"), [(128, 32), (8, 2), (1, 1)])
async def test_a_quarter_of_the_permits_goes_back_at_once(permits: int, together: int) -> None:
    connection, timers, port = make_port()
    port.permits(permits)
    for _ in range(2 * together):
        port.grant(1, 10)
    assert connection.sent == [Grant(together, 10 * together)] * 2
    assert not timers.armed


async def test_fewer_permits_wait_for_a_moment() -> None:
    connection, timers, port = make_port()
    port.permits(128)
    port.grant(1, 10)
    port.grant(2, 20)
    assert connection.sent == []
    assert [delay for delay, _ in timers.armed] == [GRANT_KEPT_BACK_S]
    timers.fire()
    assert connection.sent == [Grant(3, 30)]


async def test_a_sender_that_had_to_wait_goes_on_when_half_has_left() -> None:
    _, _, port = make_port()
    port._loop = asyncio.get_running_loop()
    record = b"\x02" + bytes(OUTBOUND_OCTETS_MAX)
    port.submit(record)
    assert port.congested
    waiting = asyncio.ensure_future(port.wait_uncongested())
    await asyncio.sleep(0)
    port.returned(len(record) - OUTBOUND_OCTETS_LOW - 1)
    await asyncio.sleep(0)
    assert port.congested, "else others would keep it full while this one waits"
    assert not waiting.done()
    port.returned(1)
    await asyncio.wait_for(waiting, 1)
