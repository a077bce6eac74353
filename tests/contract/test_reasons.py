"""What a command 53 does not say: the cause, told beside it, and handed on to whoever asked for the move (B10.2)."""

from __future__ import annotations

import asyncio

import pytest
from sojourn import mesh
from sojourn.wire import RelocationFailed

from tests.contract.hands import HandSource, HandTarget, ledger_at, move_to, source, take
from tests.contract.peer import Peer, joined
from tests.contract.stand import Stand

pytestmark = pytest.mark.asyncio(loop_scope="module")


def told(peer: Peer, move: HandSource | HandTarget) -> list[tuple[str, str]]:
    """What was told of this attempt, in order."""
    relocation = move.wire.identity.relocation_id
    return [
        (message.reason, message.detail)
        for message in peer.controls
        if isinstance(message, mesh.FailureTold)
        and (message.relocation_high, message.relocation_low) == (relocation.high, relocation.low)
    ]


async def refused(move: HandSource) -> tuple[str, str]:
    """The one cause of a refused attempt; it has come before the 53."""
    answer = await move.replied()
    assert isinstance(answer, RelocationFailed)
    (cause,) = told(move.peer, move)
    return cause


async def test_a_target_says_why_it_refuses(stand: Stand, peer: Peer) -> None:
    key = await ledger_at(peer, stand.a)
    taken = await take(peer, stand.a, key)

    newer = await source(peer, stand.b, taken)
    newer.prepare(manifest=newer.manifest._replace(application_version=7))
    reason, detail = await refused(newer)
    assert reason == "TargetUnavailable"
    assert "runs application version 1, not 7" in detail

    stale = await source(peer, stand.b, taken, version="another version")
    stale.offer()
    reason, detail = await refused(stale)
    assert reason == "RelocationFailed"
    assert "the row has another version" in detail

    spoilt = await source(peer, stand.b, taken)
    spoilt.prepare(manifest=spoilt.manifest._replace(checksum=spoilt.manifest.checksum ^ 1))
    spoilt.chunk(0)
    assert await refused(spoilt) == ("RelocationFailed", "the checksum of the payload differs")

    late = await source(peer, stand.b, taken)
    late.prepare(deadline_ms=50)
    assert (await refused(late))[0] == "DeadlineExceeded"
    late.prepare()  # an ended identity answers with the same
    await late.replied(2)
    assert len(set(told(peer, late))) == 1


async def test_a_source_hands_on_what_its_target_said(stand: Stand, peer: Peer) -> None:
    """Of that very attempt and from its target only (R3.4); a word that is none of B10.2 counts as a failed move."""
    key = await ledger_at(peer, stand.a)
    async with joined(stand, "stranger") as stranger:
        for said, reason in (
            ("TargetUnavailable", "TargetUnavailable"),
            ("StateIncompatible", "StateIncompatible"),
            ("SomethingElse", "RelocationFailed"),
        ):
            target = HandTarget(peer, stand.a, key)
            moving: asyncio.Task[dict[str, str]] = move_to(peer, stand.a, key)
            await target.prepared()
            relocation = target.wire.identity.relocation_id
            high, low, attempt = (
                relocation.high,
                relocation.low,
                target.wire.identity.target_attempt_generation,
            )
            lie = mesh.FailureTold(high, low, attempt, "DeadlineExceeded", "not mine to say")
            foreign = stranger.links.get(stand.run_of(stand.a))
            assert foreign is not None
            foreign.send_control(lie)
            await stranger.settle(stand.a)
            target._link().send_control(mesh.FailureTold(high, low, attempt, said, f"said {said}"))
            target._link().send_control(mesh.FailureTold(high, low, attempt + 1, "DeadlineExceeded", "old"))
            target.failed()
            result = await moving
            assert result["outcome"] == "failed"
            assert result["reason"] == f"{reason}: said {said}"
    silent = HandTarget(peer, stand.a, key)
    moving = move_to(peer, stand.a, key)
    await silent.prepared()
    silent.failed()
    assert "code 17" in (await moving)["reason"]
    assert await peer.ask(stand.a, key, "history") == []
