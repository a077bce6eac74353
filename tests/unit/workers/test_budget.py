"""In-flight payload budgets (R5.4)."""

from __future__ import annotations

import asyncio

import pytest
from sojourn.ids import NodeRun
from sojourn.workers.budget import Budget

A, B = NodeRun(b"a", 1), NodeRun(b"b", 1)


async def let_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_chunk_waits_until_another_has_left() -> None:
    budget = Budget(100, 0)
    assert budget.take(A, 60)
    assert not budget.take(A, 60)
    assert budget.take(B, 60)  # another connection has a budget of its own
    waiting = asyncio.create_task(budget.wait(A, 60))
    await let_run()
    assert not waiting.done()
    budget.free(A, 60)
    await waiting
    assert budget.used(A) == 60


async def test_the_node_s_budget_covers_every_connection() -> None:
    budget = Budget(0, 100)
    assert budget.take(A, 60)
    assert not budget.take(B, 60)
    budget.free(A, 60)
    assert budget.take(B, 60)


async def test_a_payload_larger_than_the_budget_starts_and_finishes() -> None:
    budget = Budget(100, 100)
    for _ in range(3):
        await budget.wait(A, 250)
        assert budget.used(A) == 250
        budget.free(A, 250)
    assert budget.used(A) == 0


async def test_a_new_unit_waits_before_its_seal_while_the_budget_is_full() -> None:
    budget = Budget(100, 0)
    assert budget.take(A, 100)
    unit = asyncio.create_task(budget.wait_room(A))
    await let_run()
    assert not unit.done()
    budget.free(A, 1)
    await unit
    assert budget.used(A) == 99  # it only waited


async def test_waiting_chunks_are_served_in_order_and_never_overtaken() -> None:
    budget = Budget(100, 0)
    assert budget.take(A, 90)
    served: list[int] = []

    async def send(octets: int) -> None:
        await budget.wait(A, octets)
        served.append(octets)

    large = asyncio.create_task(send(80))
    await let_run()
    small = asyncio.create_task(send(5))
    await let_run()
    assert served == []
    budget.free(A, 90)
    await asyncio.gather(large, small)
    assert served == [80, 5]


async def test_one_who_gave_up_does_not_hold_up_those_behind() -> None:
    budget = Budget(100, 0)
    assert budget.take(A, 90)
    impatient = asyncio.create_task(budget.wait(A, 80))
    await let_run()
    behind = asyncio.create_task(budget.wait(A, 5))
    await let_run()
    impatient.cancel()
    await behind
    assert budget.used(A) == 95


async def test_another_connection_does_not_wait_behind_a_full_one() -> None:
    budget = Budget(100, 0)
    assert budget.take(A, 100)
    waiting = asyncio.create_task(budget.wait(A, 50))
    await let_run()
    await budget.wait(B, 50)
    assert budget.take(B, 50)
    budget.free(A, 100)
    await waiting


async def test_both_budgets_off_never_wait() -> None:
    budget = Budget(0, 0)
    for _ in range(3):
        await budget.wait(A, 10**9)
    await budget.wait_room(A)
    assert budget.total == 3 * 10**9


async def test_room_is_free_while_nothing_is_in_flight() -> None:
    budget = Budget(100, 0)
    await budget.wait_room(A)
    assert budget.used(A) == 0


async def test_a_chunk_that_was_served_while_its_sender_gave_up_is_free_again() -> None:
    budget = Budget(100, 0)
    assert budget.take(A, 100)
    waiting = asyncio.create_task(budget.wait(A, 60))
    await let_run()
    budget.free(A, 100)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (budget.used(A), budget.total) == (0, 0)


async def test_a_unit_that_gave_up_waiting_for_room_is_charged_nothing() -> None:
    budget = Budget(100, 0)
    assert budget.take(A, 100)
    waiting = asyncio.create_task(budget.wait_room(A))
    await let_run()
    budget.free(A, 100)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert budget.total == 0
