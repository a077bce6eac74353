"""What is left of a payload when the worker that captures it ends: asked once for each participant (B6.6)."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from sojourn.errors import Unavailable
from sojourn.workers.captured_payload import CapturedPayload
from sojourn.workers.debt import Retention


def payload() -> CapturedPayload:
    return CapturedPayload(cast(Any, None), cast(Any, None), Retention(1024), asyncio.get_running_loop())


async def test_a_payload_that_is_not_whole_is_lost_for_every_participant() -> None:
    captured = payload()
    captured.take(False, memoryview(b"half"))
    assert [captured.worker_lost() for _ in range(3)] == [True, True, True]
    with pytest.raises(Unavailable):
        await captured.whole()


async def test_a_whole_payload_outlives_its_worker_for_every_participant() -> None:
    captured = payload()
    captured.take(True, memoryview(b"all"))
    assert [captured.worker_lost() for _ in range(3)] == [False, False, False]
    await captured.whole()
    assert captured.octets == 3
