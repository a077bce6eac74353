"""What a record owes while it is held, and what a node keeps before it asks its senders to wait (B5.2, B5.3)."""

from __future__ import annotations

import asyncio

from sojourn.ids import NodeRun, ObjectKind, spot_key
from sojourn.workers.debt import STAGED_OCTETS_MAX, Debt, Retention
from sojourn.workers.objects import LocalObject, Place

from tests.unit.workers.fake_node import Credits


def held() -> LocalObject:
    return LocalObject(spot_key("d"), ObjectKind.INSTANCE_SPOT, "Device", Place.SOURCE)


def test_a_debt_gives_back_what_its_record_came_with() -> None:
    credits = Credits()
    Debt(credits, 40).settle()
    assert (credits.records, credits.octets) == (1, 40)


def test_a_moving_object_gives_credit_at_once_while_it_holds_little() -> None:
    moving, retention, credits = held(), Retention(10**9), Credits()
    moving.owe(Debt(credits, 10), 10, retention)
    moving.owe(None, 5, retention)
    assert (credits.records, retention.octets) == (1, 15)
    moving.settle_debts(retention)
    assert (credits.records, retention.octets) == (1, 0)


def test_a_moving_object_that_holds_much_owes_until_its_move_lets_go() -> None:
    moving, retention, credits = held(), Retention(10**9), Credits()
    moving.owe(Debt(credits, 10), STAGED_OCTETS_MAX, retention)
    for _ in range(2):
        moving.owe(Debt(credits, 10), 1, retention)
    assert credits.records == 1
    moving.settle_debts(retention)
    assert (credits.records, retention.octets) == (3, 0)
    moving.owe(Debt(credits, 10), 1, retention)  # the next move starts from nothing
    assert credits.records == 4


def test_a_node_that_keeps_too_much_gives_no_credit_early() -> None:
    moving, retention, credits = held(), Retention(100), Credits()
    retention.keep(101)
    moving.owe(Debt(credits, 1), 1, retention)
    assert credits.records == 0
    moving.settle_debts(retention)
    assert credits.records == 1


async def test_room_comes_when_the_node_keeps_no_more_than_its_limit() -> None:
    retention = Retention(100)
    await retention.room()
    retention.keep(150)
    waiting = [asyncio.ensure_future(retention.room()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    retention.free(20)
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting[1:])
    retention.free(30)
    await asyncio.gather(*waiting[1:])


async def test_who_waits_for_room_looks_again_before_it_goes_on() -> None:
    """B5.3: a move begins when the node keeps no more than its limit, not when it did for a moment."""
    retention = Retention(100)
    retention.keep(150)
    waiting = asyncio.ensure_future(retention.room())
    await asyncio.sleep(0)
    retention.free(100)
    retention.keep(100)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    retention.free(150)
    await waiting


def test_each_sender_is_told_once_about_a_route() -> None:
    one, two = NodeRun(b"one", 1), NodeRun(b"two", 1)
    noticed = held()
    assert [noticed.notice_once(run) for run in (one, two, one, two)] == [True, True, False, False]
