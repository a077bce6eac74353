"""CT-01 to CT-11: handoff and chunks."""

from __future__ import annotations

import asyncio
import struct

import crc32c
import pytest
from sojourn.ids import ObjectKey, ObjectKind, actor_key
from sojourn.rows import MarkOutcome, Membership
from sojourn.wire import (
    MessageFollow,
    RelocationCutover,
    RelocationData,
    RelocationFailed,
    RelocationPrepare,
    RelocationReady,
    RelocationState,
    decode_envelope,
    read_record,
)
from sojourn.workers.local_node import LocalNode

from tests.contract.app import Ledger, Member
from tests.contract.hands import HandTarget, ledger_at, move_to, source, take, taken_by
from tests.contract.peer import Peer, joined
from tests.contract.stand import Stand, fresh
from tests.runtime.cluster import gate

pytestmark = pytest.mark.asyncio(loop_scope="module")
OPTIONS = {"relocation_chunk_bytes": 16 * 1024, "relocation_cutover_wait_ms": 4_000}
DATA_LOST, SPOT_STALE = 35, 33


async def member_at(stand: Stand, node: LocalNode) -> ObjectKey:
    """A new Actor on this node."""
    name = fresh("member")
    await stand.client.create(Member, name, at=node.rid)
    return actor_key(name)


@pytest.mark.parametrize("kind", ["actor", "instance spot"])
async def test_ct_01_only_the_target_writes_the_owner(stand: Stand, peer: Peer, kind: str) -> None:
    """The same boundary for every kind of object, whoever plays the source and whoever the target (R1.2, R8.1). An
    Actor of an Entry Spot goes to the one that stands on the target (R3.1)."""
    key = await (member_at(stand, stand.a) if kind == "actor" else ledger_at(peer, stand.a))
    first = await stand.row(key)
    assert first is not None
    target = HandTarget(peer, stand.a, key)
    moving = move_to(peer, stand.a, key)
    await target.prepared()
    target.ready()
    await target.cutover()
    await peer.settle(stand.a)
    assert await stand.row(key) == first  # the source has written nothing
    ours = await target.commit()
    assert (await moving)["outcome"] == "moved"
    assert ours.row.owner_generation == first.row.owner_generation + 1
    assert ours.row.object_generation == first.row.object_generation

    taken = await taken_by(target)
    move = await source(peer, stand.b, taken)
    await move.ready()
    assert await stand.row(key) == ours  # nor a target before the cutover
    move.cutover()
    final = await move.committed()
    assert final.row.owner_generation == ours.row.owner_generation + 1
    assert final.row.object_generation == first.row.object_generation
    mark = final.row.relocation
    assert mark is not None
    assert ((mark.high, mark.low), mark.outcome) == (move.relocation, MarkOutcome.COMMITTED)
    memberships = [each.row.membership for each in (first, ours, final)]
    entered = [Membership(ObjectKind.ENTRY_SPOT, name, 1) for name in (stand.a.rid, peer.name, stand.b.rid)]
    assert memberships == (entered if kind == "actor" else [None] * 3)
    assert await peer.ask(stand.b, key, "add", "there") == 1


async def test_ct_02_relay_does_not_wait_for_an_empty_queue(stand: Stand, peer: Peer) -> None:
    """Messages never cease to come; batch and cutover leave all the same, and later ones are followed. Those that
    come between capture and relay-ready are held, in order (R4.2.7)."""
    key = await ledger_at(peer, stand.a)
    sent: list[str] = []
    enough = asyncio.Event()

    async def keep_sending() -> None:
        while not enough.is_set():
            sent.append(str(len(sent)))
            peer.submit(stand.a, key, "note", sent[-1], request=False)
            await peer.settle(stand.a)

    async with gate() as entrance:
        peer.submit(stand.a, key, "hold", entrance.port)
        await entrance.arrived()
        sending = asyncio.ensure_future(keep_sending())
        await stand.fact(lambda: len(sent) > 20)
        target, before = HandTarget(peer, stand.a, key), await stand.started(stand.a)
        moving = move_to(peer, stand.a, key)
        await stand.sealing(stand.a, before)
        entrance.open()
        await target.prepared()
        saved = decode_envelope(target.payload()).saved_work
        assert saved  # the queue was not empty, and nobody waited for that
        held_from = len(sent)
        await stand.fact(lambda: len(sent) > held_from + 20)
        followed_from = len(peer.records)
        target.ready()
        cutover = await target.cutover()
        assert cutover.boundary_record_count >= 20
        assert not sending.done()
        await peer.until(lambda: len(peer.records) > followed_from + 5)  # behind the boundary: followed
        enough.set()
        await sending
        await target.commit()
        assert (await moving)["outcome"] == "moved"
    await peer.settle(stand.a)
    texts = [packet_text(record) for record in [work.record for work in saved] + target.relay()]
    texts += [packet_text(frozen(body)) for body in peer.records[followed_from:]]
    assert texts == sent


def packet_text(record: bytes) -> str:
    """The argument of a `note`."""
    payload = bytes(read_record(record).payload)
    assert payload[0] == 0x91  # an array of one
    return payload[2:].decode() if payload[1] & 0xE0 == 0xA0 else payload[3:].decode()


def frozen(body: bytes) -> bytes:
    """The frozen record of a record frame."""
    at = 39 + body[38]
    return body[at + 1 + body[at] :]


async def test_ct_03_nothing_is_relayed_before_relay_ready(stand: Stand, peer: Peer) -> None:
    key = await ledger_at(peer, stand.a)
    target = HandTarget(peer, stand.a, key)
    moving = move_to(peer, stand.a, key)
    await target.prepared()
    before = len(peer.records)
    for number in range(5):
        peer.submit(stand.a, key, "note", str(number), request=False)
    await peer.settle(stand.a)
    await peer.settle(stand.a)
    assert not target.arrived(RelocationData, RelocationCutover)
    assert len(peer.records) == before
    target.ready()
    await target.cutover()
    assert [packet_text(record) for record in target.relay()] == ["0", "1", "2", "3", "4"]
    await target.commit()
    assert (await moving)["outcome"] == "moved"


async def test_ct_04_captured_work_and_timers_are_not_relayed_again(stand: Stand, peer: Peer) -> None:
    key = await ledger_at(peer, stand.a)
    await peer.ask(stand.a, key, "start_ticking", 0.02)
    async with gate() as entrance:
        peer.submit(stand.a, key, "hold", entrance.port)
        await entrance.arrived()
        for number in range(3):
            peer.submit(stand.a, key, "note", f"saved {number}", request=False)
        await peer.settle(stand.a)
        target, before = HandTarget(peer, stand.a, key), await stand.started(stand.a)
        moving = move_to(peer, stand.a, key)
        await stand.sealing(stand.a, before)
        entrance.open()
        await target.prepared()
    for number in range(2):
        peer.submit(stand.a, key, "note", f"held {number}", request=False)
    await peer.settle(stand.a)
    envelope = decode_envelope(target.payload())
    target.ready()
    await target.cutover()
    saved = [read_record(work.record) for work in envelope.saved_work]
    relayed = [read_record(record) for record in target.relay()]
    assert [record.packet_name for record in saved] == ["note"] * 3
    assert [packet_text(record) for record in target.relay()] == ["held 0", "held 1"]
    operations = {(record.operation_high, record.operation_low) for record in saved}
    assert not operations & {(record.operation_high, record.operation_low) for record in relayed}
    assert [timer.name for timer in envelope.timer_registrations] == ["tick"]
    (timer,) = envelope.timer_registrations
    for tick in envelope.pending_timer_ticks:
        assert timer.next_scheduled_at_unix_milliseconds > tick.scheduled_at_unix_milliseconds
    await target.commit()
    assert (await moving)["outcome"] == "moved"


async def test_ct_05_only_relay_ready_is_a_reply(stand: Stand, peer: Peer) -> None:
    """A real source needs one answer for a whole move, a real target gives one. Of sessions: CT-26."""
    key = await ledger_at(peer, stand.a)
    target = HandTarget(peer, stand.a, key)
    moving = move_to(peer, stand.a, key)
    await target.prepared()
    target.ready()
    await target.cutover()
    row = await target.commit()
    assert (await moving)["outcome"] == "moved"
    assert {type(each.command) for each in target.arrived()} == {
        RelocationPrepare,
        RelocationState,
        RelocationCutover,
    }
    taken = await taken_by(target)
    assert taken.row == row
    since = len(peer.arrivals)
    move = await source(peer, stand.b, taken, [peer.saved(key, "note", "saved")])
    await move.give(peer.saved(key, "note", "relayed"))
    assert await peer.ask(stand.b, key, "history") == ["saved", "relayed"]
    await peer.settle(stand.b)
    answers = [each.command for each in peer.arrivals[since:] if each.node == stand.run_of(stand.b)]
    assert [type(answer) for answer in answers if not isinstance(answer, MessageFollow)] == [RelocationReady]


@pytest.mark.parametrize("octets", [1024, 200 * 1024], ids=["one chunk", "many chunks"])
async def test_ct_06_one_chunk_and_many_behave_alike(stand: Stand, peer: Peer, octets: int) -> None:
    """R4.2.4: whatever the number of chunks that the manifest announces."""
    key = await ledger_at(peer, stand.a)
    await peer.ask(stand.a, key, "grow", octets)
    taken = await take(peer, stand.a, key)
    broken = await source(peer, stand.b, taken, chunk_octets=16 * 1024)
    assert len(broken.chunks) == (1 if octets < 16 * 1024 else 13)
    broken.manifest = broken.manifest._replace(checksum=broken.manifest.checksum ^ 1)
    broken.offer()
    answer = await broken.replied()
    assert isinstance(answer, RelocationFailed)
    assert answer.failure_code == DATA_LOST
    assert await stand.row(key) == taken.row
    move = await source(peer, stand.b, taken, chunk_octets=16 * 1024)
    await move.give()
    assert await peer.ask(stand.b, key, "whole", octets)
    # Message Follow of a real source: who still sends to the old address is served, and told.
    result = await stand.client.spot(Ledger, key[1:].decode()).relocate(stand.a.rid)
    assert result.outcome == "moved"
    since = len(peer.arrivals)
    assert await peer.ask(stand.b, key, "add", "by the old address") == 1
    notice = (await peer.until(lambda: peer.commands(MessageFollow, since)))[0]
    assert notice.envelope.target_route.target_node_rid == stand.a.rid.encode()
    assert await peer.ask(stand.a, key, "whole", octets)


async def test_ct_07_other_messages_travel_between_chunks(stand: Stand, peer: Peer) -> None:
    key, other = await ledger_at(peer, stand.a), await ledger_at(peer, stand.b, "other")
    await peer.ask(stand.a, key, "grow", 64 * 1024)
    taken = await take(peer, stand.a, key)
    move = await source(peer, stand.b, taken, chunk_octets=16 * 1024)
    move.prepare()
    for ordinal in range(len(move.chunks)):
        assert await peer.ask(stand.b, other, "add", f"before chunk {ordinal}") == ordinal + 1
        assert not move.replies()
        move.chunk(ordinal)
    await move.give()
    assert await peer.ask(stand.b, key, "whole", 64 * 1024)


async def test_ct_08_another_identity_is_not_attached(stand: Stand, peer: Peer) -> None:
    key = await ledger_at(peer, stand.a)
    await peer.ask(stand.a, key, "grow", 32 * 1024)
    taken = await take(peer, stand.a, key)
    move = await source(peer, stand.b, taken, chunk_octets=16 * 1024)
    stranger = await source(peer, stand.b, taken, chunk_octets=16 * 1024, version="another version")
    move.prepare()
    move.chunk(0)
    stranger.chunk(1, b"\xff" * len(move.chunks[1]))  # of an identity that nobody asked for
    stranger.prepare()
    refused = await stranger.replied()
    assert isinstance(refused, RelocationFailed)
    assert refused.failure_code == SPOT_STALE
    stranger.chunk(1, b"\xff" * len(move.chunks[1]))  # of an ended identity
    assert not move.replies()
    for ordinal in range(1, len(move.chunks)):
        move.chunk(ordinal)
    await move.give()
    assert await peer.ask(stand.b, key, "whole", 32 * 1024)
    assert len(stranger.replies()) == 1


async def test_ct_08_an_identity_belongs_to_its_own_connection(stand: Stand, peer: Peer) -> None:
    """R3.4: neither a third node's chunks, cutovers and Restore requests count, nor its answers."""
    key = await ledger_at(peer, stand.a)
    await peer.ask(stand.a, key, "grow", 32 * 1024)
    async with joined(stand, "stranger") as stranger:
        target = HandTarget(peer, stand.a, key)
        moving = move_to(peer, stand.a, key)
        await target.prepared()
        foreign = stranger.links.get(stand.run_of(stand.a))
        assert foreign is not None
        foreign.send_contract((target.wire.frames.ready,))
        foreign.send_contract(target.wire.failed(17))
        await stranger.settle(stand.a)
        await peer.settle(stand.a)
        assert not target.arrived(RelocationData, RelocationCutover)
        target.ready()
        await target.cutover()
        await target.commit()
        assert (await moving)["outcome"] == "moved"

        taken = await taken_by(target)
        move = await source(peer, stand.b, taken, chunk_octets=16 * 1024)
        echo = await source(stranger, stand.b, taken, chunk_octets=16 * 1024)
        echo.wire = move.wire
        echo.prepare()  # before its own source: refused, and not remembered against it
        assert isinstance(await echo.replied(), RelocationFailed)
        move.prepare()
        move.chunk(0)
        await peer.settle(stand.b)
        echo.chunk(1, b"\xff" * len(move.chunks[1]))
        await stranger.settle(stand.b)
        for ordinal in range(1, len(move.chunks)):
            move.chunk(ordinal)
        await move.ready()
        echo.relay(peer.saved(key, "note", "not ours"))
        echo.cutover(0, 0)
        await stranger.settle(stand.b)
        assert await stand.row(key) == taken.row
        await move.give(peer.saved(key, "note", "ours"))
        assert await peer.ask(stand.b, key, "history") == ["ours"]
        assert await peer.ask(stand.b, key, "whole", 32 * 1024)


async def test_ct_09_conflicts_end_and_repeats_change_nothing(stand: Stand, peer: Peer) -> None:
    """R4.3.3, B8.3: also of single chunks."""
    key = await ledger_at(peer, stand.a)
    await peer.ask(stand.a, key, "grow", 32 * 1024)
    taken = await take(peer, stand.a, key)
    made = stand.made(key[1:].decode())
    conflicting = await source(peer, stand.b, taken, chunk_octets=16 * 1024)
    conflicting.prepare()
    conflicting.chunk(0)
    conflicting.prepare(manifest=conflicting.manifest._replace(checksum=1))
    refused = await conflicting.replied(1)
    assert isinstance(refused, RelocationFailed)
    assert refused.failure_code == DATA_LOST
    conflicting.offer()  # the first manifest again: the identity has ended
    again = await conflicting.replied(2)
    assert again == refused
    for ordinal in range(len(conflicting.chunks)):
        conflicting.chunk(ordinal)
    await peer.settle(stand.b)
    assert len(conflicting.replies()) == 2
    assert stand.made(key[1:].decode()) == made
    assert await stand.row(key) == taken.row

    repeated = await source(peer, stand.b, taken, [peer.saved(key, "note", "saved")], chunk_octets=16 * 1024)
    repeated.prepare()
    repeated.chunk(0)
    repeated.chunk(0)
    repeated.offer()
    await repeated.ready()
    repeated.offer()
    assert isinstance(await repeated.replied(2), RelocationReady)
    await repeated.give()
    assert await peer.ask(stand.b, key, "history") == ["saved"]
    assert stand.made(key[1:].decode()) == made + 1


async def test_ct_10_a_wrong_checksum_restores_nothing(stand: Stand, peer: Peer) -> None:
    """R4.3.2: not a part of it either, and no factory runs."""
    key = await ledger_at(peer, stand.a)
    taken = await take(peer, stand.a, key)
    made = stand.made(key[1:].decode())
    move = await source(peer, stand.b, taken, [peer.saved(key, "note", "saved")])
    spoilt = bytearray(move.chunks[0])
    spoilt[-1] ^= 1
    move.chunks[0] = bytes(spoilt)
    move.offer()
    answer = await move.replied()
    assert isinstance(answer, RelocationFailed)
    assert answer.failure_code == DATA_LOST
    move.cutover(0, 0)  # whatever comes now changes nothing
    await peer.settle(stand.b)
    assert await stand.row(key) == taken.row
    assert stand.made(key[1:].decode()) == made
    assert stand.ran(key[1:].decode()) == []


async def test_ct_11_bytes_on_the_wire_read_without_the_codec(stand: Stand, peer: Peer) -> None:
    """Chunk header, manifest checksum and cutover values of a real source, read as `wire.md` lays them out (R4.2.4).
    The fixtures of tests/golden hold the same layouts; a runtime in another language is in tests/foreign."""
    key = await ledger_at(peer, stand.a)
    await peer.ask(stand.a, key, "grow", 64 * 1024)
    target = HandTarget(peer, stand.a, key)
    moving = move_to(peer, stand.a, key)
    await target.prepared()
    for number in range(3):
        peer.submit(stand.a, key, "note", str(number), request=False)
    await peer.settle(stand.a)
    target.ready()
    await target.cutover()
    await target.commit()
    assert (await moving)["outcome"] == "moved"
    taken = await taken_by(target)

    name, generation = key[1:], taken.row.row.object_generation
    case = b"\x06Ledger" + bytes((len(name),)) + name + struct.pack(">Q", generation)
    named = b"\x03" + struct.pack(">H", len(case)) + case
    identity = _identity_octets(target.arrived(RelocationPrepare)[0].octets)

    def after_identity(octets: bytes, command: int) -> bytes:
        assert octets[:5] == bytes((0x5A, 0x4D, 1, command, 0))
        assert octets[5 : 5 + len(identity)] == identity
        return octets[5 + len(identity) :]

    payload = b""
    for ordinal, arrival in enumerate(target.arrived(RelocationState)):
        rest = after_identity(arrival.octets, 52)
        assert rest[: 1 + len(named)] == b"\x01" + named
        number, length = struct.unpack_from(">II", rest, 1 + len(named))
        chunk = rest[9 + len(named) :]
        assert (number, length) == (ordinal, len(chunk))
        assert length <= 16 * 1024
        payload += chunk
    manifest = target.arrived(RelocationPrepare)[0].octets
    length, count, checksum, version = struct.unpack(">QIIq", manifest[-24:])
    assert (length, count, version) == (len(payload), len(target.arrived(RelocationState)), 1)
    assert checksum == crc32c.crc32c(payload)
    relay = b""
    for arrival in target.arrived(RelocationData):
        rest = after_identity(arrival.octets, 31)
        assert rest[: 1 + len(named)] == b"\x01" + named
        relay += rest[1 + len(named) :]
    (cutover,) = target.arrived(RelocationCutover)
    rest = after_identity(cutover.octets, 34)
    assert rest == b"\x01" + named + struct.pack(">QI", 3, crc32c.crc32c(relay))


def _identity_octets(prepare: bytes) -> bytes:
    """The relocation identity of a command 40, by its lengths alone."""
    at = 5 + 16 + 8
    at += 1 + prepare[at] + 8  # owner id, lease generation
    at += 1 + prepare[at] + 8  # node RID, node generation
    return prepare[5 : at + 2 + int.from_bytes(prepare[at : at + 2], "big")]
