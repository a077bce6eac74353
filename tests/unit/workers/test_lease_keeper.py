"""Keeping a lease against a store that stalls, forgets, loses answers and goes away (B6.4), in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sojourn.lease import LeaseClock, LeasePhase, LeaseSettings
from sojourn.location import (
    Condition,
    Delete,
    Missing,
    Mutation,
    ReadResult,
    StoreUnavailable,
    StoreUnknown,
    WriteResult,
)
from sojourn.rows import NodeDescriptor, OwnerLease, lease_row_key
from sojourn.store.memory import MemoryLocationStore, MemoryRows
from sojourn.workers import lease_keeper
from sojourn.workers.lease_keeper import LeaseKeeper

LEASE = OwnerLease(b"n1", 7, "n1@7", 7)
ROW = lease_row_key(LEASE.owner_id, LEASE.lease_generation)
SETTINGS = LeaseSettings(ttl_ms=15_000, renew_ms=5_000, renew_timeout_ms=20, margin_ms=5_000)


class Ended(Exception):
    """The test has seen enough."""


class FaultyStore(MemoryLocationStore):
    """Does to its next calls what the test lists: None lets one pass."""

    def __init__(self, rows: MemoryRows) -> None:
        super().__init__(rows)
        self.faults: list[str | None] = []
        self.writes = 0

    async def _fault(self) -> str | None:
        fault = self.faults.pop(0) if self.faults else None
        if fault == "away":
            raise StoreUnavailable("the store is away", applied="no")
        if fault == "stalls":
            await asyncio.Event().wait()
        return fault

    async def write(self, conditions: list[Condition], mutations: list[Mutation]) -> WriteResult:
        self.writes += 1
        fault = await self._fault()
        result = await super().write(conditions, mutations)
        if fault == "loses the answer":
            raise StoreUnknown("no answer", applied="unknown")
        return result

    async def read(self, key: str) -> ReadResult:
        await self._fault()
        return await super().read(key)


class Stand:
    """A keeper over virtual time: its sleeps move the clock, and end the test at an instant."""

    def __init__(self, patch: pytest.MonkeyPatch, settings: LeaseSettings = SETTINGS) -> None:
        self.now_ms = 1_000_000
        self.ends_at_ms = 0
        self.store = FaultyStore(MemoryRows())
        self.clock = LeaseClock(settings)
        self.deadlines: list[int] = []
        self.given_up: list[str] = []
        self.rechecks = 0
        self.at_recheck: Callable[[], None] = lambda: None
        descriptor = NodeDescriptor(
            rid=b"n1",
            generation=7,
            owner_id="n1@7",
            lease_generation=7,
            application="app",
            application_version=1,
        )
        self.keeper = LeaseKeeper(
            self.store,
            LEASE,
            lambda: descriptor,
            self.clock,
            self.deadlines.append,
            self._recheck,
            self.given_up.append,
        )
        sleep = asyncio.sleep

        async def virtual(seconds: float, result: Any = None) -> None:
            if seconds:
                if self.now_ms + seconds * 1000 > self.ends_at_ms:
                    raise Ended
                self.now_ms += round(seconds * 1000)
            await sleep(0)

        patch.setattr(lease_keeper, "boot_ms", lambda: self.now_ms)
        patch.setattr(asyncio, "sleep", virtual)

    async def _recheck(self) -> None:
        self.rechecks += 1
        self.at_recheck()

    async def run_for(self, seconds: float) -> None:
        self.ends_at_ms = self.now_ms + int(seconds * 1000)
        with pytest.raises(Ended):
            await self.keeper.run()

    async def lose_row(self) -> None:
        await MemoryLocationStore.write(self.store, [], [Delete(ROW)])


async def test_a_lease_is_renewed_in_time_and_admission_moves_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand = Stand(monkeypatch)
    began = stand.now_ms
    await stand.keeper.put_first(5.0)
    assert stand.deadlines == [began + 10_000]
    await stand.run_for(11)
    assert stand.deadlines == [began + 10_000, began + 15_000, began + 20_000]
    assert stand.clock.may_admit(stand.now_ms)


async def test_a_store_that_is_away_at_the_start_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand(monkeypatch)
    stand.store.faults = ["away"]
    with pytest.raises(StoreUnavailable, match="the store is away"):
        await stand.keeper.put_first(5.0)


async def test_a_store_that_does_not_answer_at_the_start_is_told_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand = Stand(monkeypatch, LeaseSettings(renew_timeout_ms=3_000))
    stand.store.faults = ["stalls"] * 100
    with pytest.raises(StoreUnavailable, match=r"did not accept this node's lease within 0\.01 s"):
        await stand.keeper.put_first(0.01)


@pytest.mark.parametrize("fault", ["away", "stalls", "loses the answer"])
async def test_one_failed_renewal_does_not_end_admission(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    stand = Stand(monkeypatch)
    await stand.keeper.put_first(5.0)
    stand.store.faults = [fault]
    await stand.run_for(6)
    assert stand.clock.phase is LeasePhase.HELD
    assert stand.clock.may_admit(stand.now_ms + 9_000)
    assert stand.rechecks == 0
    # What the store itself does not report, as nobody waited for it any more.
    assert stand.given_up == (["no answer to a call for the lease within 20 ms"] if fault == "stalls" else [])


async def test_a_first_put_whose_answer_is_lost_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand(monkeypatch)
    stand.ends_at_ms = stand.now_ms + 1_000
    stand.store.faults = ["loses the answer"]
    await stand.keeper.put_first(5.0)
    assert stand.clock.phase is LeasePhase.HELD


async def test_a_store_that_stays_away_ends_admission_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand = Stand(monkeypatch)
    began = stand.now_ms
    await stand.keeper.put_first(5.0)
    stand.store.faults = ["away"] * 1000
    await stand.run_for(12)
    assert max(stand.deadlines) == began + 10_000
    assert not stand.clock.may_admit(stand.now_ms)


async def test_a_lease_that_was_lost_is_put_again_and_the_objects_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand = Stand(monkeypatch)
    await stand.keeper.put_first(5.0)
    await stand.lose_row()
    admitted: list[bool] = []
    stand.at_recheck = lambda: admitted.append(stand.clock.may_admit(stand.now_ms))
    await stand.run_for(6)
    assert stand.rechecks == 1
    assert admitted == [False]  # nothing runs before the objects' rows were read (B6.4)
    assert stand.clock.phase is LeasePhase.HELD
    assert 0 in stand.deadlines
    assert stand.deadlines[-1] > stand.now_ms


async def test_a_recheck_that_fails_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand(monkeypatch)
    await stand.keeper.put_first(5.0)
    await stand.lose_row()

    def away() -> None:
        if stand.rechecks < 3:
            assert not stand.clock.may_admit(stand.now_ms)
            raise StoreUnavailable("away", applied="no")

    stand.at_recheck = away
    await stand.run_for(30)
    assert stand.rechecks == 3
    assert stand.clock.may_admit(stand.now_ms)


async def test_a_release_deletes_the_row_of_this_very_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand(monkeypatch)
    await stand.keeper.put_first(5.0)
    await stand.keeper.release()
    assert isinstance(await stand.store.read(ROW), Missing)
    writes = stand.store.writes
    await stand.keeper.release()  # nothing is known to be there
    assert stand.store.writes == writes
    await stand.run_for(3)  # a released lease is never put again
    assert isinstance(await stand.store.read(ROW), Missing)


def test_the_clock_goes_on_while_the_machine_sleeps() -> None:
    first = lease_keeper.boot_ns()
    assert 0 < first <= lease_keeper.boot_ns()
    assert lease_keeper.boot_ms() >= first // 1_000_000
