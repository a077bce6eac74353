"""Everybody who waits is woken once, and who was cancelled is passed over."""

from __future__ import annotations

import asyncio

import pytest
from sojourn.workers.waiters import Waiters


async def test_a_wake_up_is_for_those_who_wait_now() -> None:
    waiters = Waiters()
    assert not waiters
    waiters.wake()
    first, gone = asyncio.ensure_future(waiters.wait()), asyncio.ensure_future(waiters.wait())
    await asyncio.sleep(0)
    assert waiters
    gone.cancel()
    waiters.wake()
    assert not waiters
    later = asyncio.ensure_future(waiters.wait())
    await first
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert not later.done()
    waiters.wake()
    await later
