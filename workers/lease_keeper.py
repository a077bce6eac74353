"""Keeps one run's owner lease alive (B6.4): drives `sojourn.lease.LeaseClock` against the store.

Owns the row of this run and the clock reads around it. What follows from a moved admission deadline or
from an expired lease is its node's business.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from sojourn.lease import LeaseClock, LeasePhase, PutLease, ReadLease, RenewLease, WaitUntil
from sojourn.location import Applied, Found, LocationStore, StoreUnavailable, StoreUnknown
from sojourn.ownership import put_lease, release_lease, renew_lease
from sojourn.rows import NodeDescriptor, OwnerLease, lease_row_key

__all__ = ["LeaseKeeper", "boot_ms", "boot_ns"]


def boot_ns() -> int:
    """CLOCK_BOOTTIME in ns: it goes on while the machine sleeps, as leases do."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot_ms() -> int:
    """CLOCK_BOOTTIME in ms."""
    return boot_ns() // 1_000_000


class LeaseKeeper:
    """One task that puts, renews and re-reads the lease row, with the node's descriptor beside it.

    `on_deadline(ms)` is told each new admission deadline, `recheck()` re-reads this run's objects after the
    lease had expired, `given_up(text)` is told of a call that had no answer in time.
    """

    def __init__(
        self,
        store: LocationStore,
        lease: OwnerLease,
        descriptor: Callable[[], NodeDescriptor],
        clock: LeaseClock,
        on_deadline: Callable[[int], None],
        recheck: Callable[[], Awaitable[None]],
        given_up: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._store = store
        self._lease = lease
        self._key = lease_row_key(lease.owner_id, lease.lease_generation)
        self._descriptor = descriptor
        self.clock = clock
        self._on_deadline = on_deadline
        self._recheck = recheck
        self._given_up = given_up

    async def put_first(self, timeout_s: float) -> None:
        """Put the lease for the first time.

        Raises:
            StoreUnavailable: the store did not take it within `timeout_s` seconds.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while self.clock.phase is not LeasePhase.HELD:
                    await self._step(raise_errors=True)
        except TimeoutError:
            raise StoreUnavailable(
                f"the store did not accept this node's lease within {timeout_s:g} s", applied="no"
            ) from None

    async def run(self) -> None:
        """Renew until cancelled."""
        while True:
            await self._step(raise_errors=False)

    async def _step(self, *, raise_errors: bool) -> None:
        clock = self.clock
        step = clock.next_step(boot_ms())
        if isinstance(step, WaitUntil):
            pause = 3600.0 if step.at_ms is None else max(0.0, (step.at_ms - boot_ms()) / 1000)
            await asyncio.sleep(pause)
            return
        clock.sent(boot_ms())
        try:
            async with asyncio.timeout(clock.settings.renew_timeout_ms / 1000):
                await self._carry_out(step)
        except (StoreUnavailable, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                self._given_up(
                    f"no answer to a call for the lease within {clock.settings.renew_timeout_ms} ms"
                )
            clock.failed(boot_ms(), unknown=isinstance(error, TimeoutError))
            if raise_errors and isinstance(error, StoreUnavailable):
                raise
        except StoreUnknown:
            clock.failed(boot_ms(), unknown=True)
        ticket = clock.recheck
        if ticket is not None:
            try:
                await self._recheck()
            except (StoreUnavailable, StoreUnknown):
                return
            clock.rechecked(ticket)
        self._on_deadline(clock.admission_deadline_ms)

    async def _carry_out(self, step: PutLease | RenewLease | ReadLease) -> None:
        clock = self.clock
        if isinstance(step, ReadLease):
            found = await self._store.read(self._key)
            clock.read(found.version if isinstance(found, Found) else None, boot_ms())
            return
        ttl_ms = clock.settings.ttl_ms
        if isinstance(step, RenewLease):
            write = renew_lease(self._lease, step.version, self._descriptor(), ttl_ms)
        else:
            write = put_lease(self._lease, self._descriptor(), ttl_ms)
        result = await self._store.write(write.conditions, write.mutations)
        if isinstance(result, Applied):
            clock.applied(result.versions[self._key])
        else:
            clock.conflicted(boot_ms())

    async def release(self) -> None:
        """Give the lease back by compare-and-delete; best effort, it would run out by itself."""
        version = self.clock.released()
        if version is not None:
            write = release_lease(self._lease, version)
            await self._store.write(write.conditions, write.mutations)
