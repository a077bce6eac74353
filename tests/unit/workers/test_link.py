"""One link on a transport that only records: credit, order, keepalive, endings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from sojourn.errors import NotConfigured, ProtocolError, Unavailable
from sojourn.frames import (
    KIND_BULK,
    KIND_CONTROL,
    LENGTH,
    contract_frame,
    control_frame,
    record_frame,
    reply_frame,
)
from sojourn.handshake_octets import Identity, Peer, PeerRole
from sojourn.ids import NodeRun
from sojourn.mesh import Call, Credit, Goodbye, MeshControl, Ping, Pong, decode_mesh, encode_mesh
from sojourn.workers.bulk_ahead import BULK_AHEAD_OCTETS
from sojourn.workers.link import Link, LinkOptions
from sojourn.workers.stream import LARGE_FRAME, Piece

PEER = Peer(Identity(NodeRun(b"peer", 1), PeerRole.NODE, 0, 2_000_000), dialled=True)
REPLY = reply_frame(0, 1, 0, 1, b"peer", 1, b"")
CONTRACT = contract_frame([b"part"])


def record(number: int, size: int = 0) -> bytes:
    return record_frame(0, 0, 1, 1, 0, 0, number, 0, b"akey", b"", b"%d" % number + bytes(size))


class RecordingTransport(asyncio.Transport):
    """Keeps the frames written; `stuck` keeps everything in its buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.link: Link | None = None
        self.octets = bytearray()
        self.stuck = False
        self.reading = True
        self.closed = self.aborted = False

    def set_protocol(self, protocol: Any) -> None:
        self.link = protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    def write(self, data: Any) -> None:
        self.octets += bytes(data)
        if self.stuck and self.link is not None:
            self.link.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            assert self.link is not None
            asyncio.get_running_loop().call_soon(self.link.connection_lost, None)

    def abort(self) -> None:
        self.aborted = True
        self.close()

    def take(self) -> list[bytes]:
        """The frame bodies written since the last call."""
        bodies, at = [], 0
        while at < len(self.octets):
            (length,) = LENGTH.unpack_from(self.octets, at)
            bodies.append(bytes(self.octets[at + 4 : at + 4 + length]))
            at += 4 + length
        self.octets.clear()
        return bodies

    def controls(self) -> list[MeshControl]:
        return [decode_mesh(body[1:]) for body in self.take() if body[0] == KIND_CONTROL]


class Receiver:
    def __init__(self) -> None:
        self.got: list[Any] = []
        self.failure: Exception | None = None

    def on_record(self, link: Link, body: bytes) -> None:
        if self.failure is not None:
            raise self.failure
        self.got.append(body)

    def on_reply(self, link: Link, body: bytes) -> None:
        self.got.append(body)

    def on_contract(self, link: Link, parts: Sequence[Piece], deadline_ms: int) -> None:
        self.got.append((deadline_ms, list(parts)))

    def on_control(self, link: Link, message: MeshControl) -> None:
        self.got.append(message)


class Setting:
    """An open link with all its surroundings."""

    def __init__(self, **options: Any) -> None:
        self.receiver = Receiver()
        self.ends: list[str] = []
        self.transport = RecordingTransport()
        self.link = Link(
            PEER, self.receiver, LinkOptions(**options), lambda _, reason: self.ends.append(reason)
        )
        self.link.open(self.transport, b"")

    def receive(self, *bodies: bytes) -> None:
        for body in bodies:
            octets = LENGTH.pack(len(body)) + body
            while octets:
                space = self.link.get_buffer(65536)
                part, octets = octets[: len(space)], octets[len(space) :]
                space[: len(part)] = part
                del space
                self.link.buffer_updated(len(part))

    def hear(self, *messages: MeshControl) -> None:
        self.receive(*(control_frame(encode_mesh(message)) for message in messages))

    async def end(self) -> None:
        if not self.ends:
            self.link.abort("end of test")
            await self.link.wait_closed()


async def turn() -> None:
    await asyncio.sleep(0)


async def test_the_first_frame_grants_credit() -> None:
    setting = Setting(credit_records=7, credit_octets=1000)
    await turn()
    assert setting.transport.controls() == [Credit(7, 1000)]
    await setting.end()


async def test_records_wait_for_credit_and_keep_their_order() -> None:
    setting = Setting()
    await turn()
    setting.transport.take()
    records = [record(number) for number in range(6)]
    for body in records[:5]:
        setting.link.send_record(body)
    await turn()
    assert setting.transport.take() == []
    assert setting.link.outbound_records == 5
    assert setting.link.outbound_octets == sum(map(len, records[:5]))
    setting.hear(Credit(2, 10_000))
    setting.link.send_record(records[5])  # behind the ones that wait
    await turn()
    assert setting.transport.take() == records[:2]
    setting.hear(Credit(10, 0))
    await turn()
    assert setting.transport.take() == records[2:]
    assert (setting.link.outbound_records, setting.link.outbound_octets) == (0, 0)
    await setting.end()


async def test_a_large_frame_lets_other_connections_have_their_turn() -> None:
    setting = Setting()
    await turn()
    setting.receive(CONTRACT)
    assert setting.transport.reading
    large = contract_frame([bytes(LARGE_FRAME)])
    setting.receive(large)
    assert not setting.transport.reading
    await turn()
    assert setting.transport.reading
    setting.receive(large)
    setting.link.abort("broken")
    await turn()
    assert not setting.transport.reading, "a transport that closes is not asked to read"
    assert len(setting.receiver.got) == 3
    await setting.link.wait_closed()


async def test_octet_credit_lets_one_record_go_beyond_it() -> None:
    setting = Setting()
    setting.hear(Credit(10, 1))
    large, small = record(1, 5000), record(2)
    setting.link.send_record(large)
    setting.link.send_record(small)
    await turn()
    assert large in setting.transport.take()
    setting.hear(Credit(0, len(large) - 1))
    await turn()
    assert setting.transport.take() == []
    setting.hear(Credit(0, 1))
    await turn()
    assert setting.transport.take() == [small]
    await setting.end()


async def test_frames_without_credit_overtake_only_records_that_wait() -> None:
    setting = Setting()
    setting.hear(Credit(1, 10_000))
    await turn()
    setting.transport.take()
    setting.link.send_record(record(1))
    setting.link.send_contract([b"part"])
    setting.link.send_record(record(2))
    setting.link.send(REPLY)
    await turn()
    assert setting.transport.take() == [record(1), CONTRACT, REPLY]
    setting.hear(Credit(1, 10_000))
    setting.link.send_contract([b"part"])
    await turn()
    assert setting.transport.take() == [record(2), CONTRACT]
    await setting.end()


async def test_a_frame_that_overtakes_no_record_waits_in_its_place_and_takes_no_credit() -> None:
    setting = Setting()
    setting.hear(Credit(1, 10_000))
    await turn()
    setting.transport.take()
    setting.link.send_behind_records([b"part"])
    setting.link.send_record(record(1))
    setting.link.send_record(record(2))
    setting.link.send_behind_records([b"part"])
    setting.link.send_record(record(3))
    setting.link.send_behind_records([b"part"])
    setting.link.send(REPLY)
    await turn()
    assert setting.transport.take() == [CONTRACT, record(1), REPLY]
    setting.hear(Credit(1, 10_000))
    await turn()
    assert setting.transport.take() == [record(2), CONTRACT]
    assert setting.link.outbound_records == 1
    setting.link.abort("broken")
    await setting.link.wait_closed()
    assert setting.link.unsent == [record(3)]
    with pytest.raises(Unavailable):
        setting.link.send_behind_records([b"part"])


async def test_a_record_stands_behind_no_more_state_than_the_bound() -> None:
    setting = Setting()
    setting.hear(Credit(1, 10_000))
    await turn()
    setting.transport.take()
    setting.transport.stuck = True
    told: list[bool] = []
    chunk = bytes(BULK_AHEAD_OCTETS // 2 - 64)
    for _ in range(8):
        setting.link.send_bulk([[b"head", chunk]], told.append)
    setting.link.send_record(record(1))
    state = contract_frame([b"head" + chunk])
    await turn()
    assert setting.transport.take() == [state, state, record(1)]
    assert not told
    setting.link.resume_writing()
    await turn()
    assert setting.transport.take() == [state, state]
    assert told == [True, True]
    setting.link.close("done")
    setting.transport.stuck = False
    setting.link.resume_writing()
    await turn()
    goodbye = control_frame(encode_mesh(Goodbye("done")))
    assert setting.transport.take() == [*[state] * 4, goodbye]
    assert told == [True] * 8
    with pytest.raises(Unavailable):
        setting.link.send_bulk([b"late"], told.append)
    await setting.end()


async def test_state_that_waits_is_told_of_the_end_behind_what_was_handed_over() -> None:
    setting = Setting()
    await turn()
    setting.transport.stuck = True
    told: list[tuple[int, bool]] = []
    for number in range(4):
        setting.link.send_bulk(
            [bytes(BULK_AHEAD_OCTETS)], lambda written, number=number: told.append((number, written))
        )
    await turn()
    setting.link.connection_lost(None)
    assert told == [(number, False) for number in range(4)]


async def test_credit_goes_back_once_a_turn_when_half_is_used() -> None:
    setting = Setting(credit_records=8, credit_octets=100_000)
    await turn()
    setting.transport.take()
    octets = len(record(0))
    setting.receive(*(record(0) for _ in range(3)))
    for _ in range(3):
        setting.link.give_back(1, octets)
    await turn()
    assert setting.transport.take() == []  # the peer has five more
    setting.receive(record(0))
    await turn()
    assert setting.transport.controls() == [Credit(3, 3 * octets)]
    setting.receive(record(0))
    setting.link.give_back(1, octets)
    setting.link.give_back(1, octets)
    await turn()
    await turn()
    assert setting.transport.controls() == []  # six left
    await setting.end()


async def test_credit_that_is_not_given_back_is_not_granted() -> None:
    setting = Setting(credit_records=2)
    await turn()
    setting.transport.take()
    setting.receive(record(0), record(1))
    await turn()
    assert setting.transport.take() == []
    setting.link.give_back(1, len(record(0)))
    await turn()
    assert setting.transport.controls() == [Credit(1, len(record(0)))]
    await setting.end()


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (bytes((KIND_BULK,)) + bytes(9), "kind 5"),
        (bytes((99,)), "kind 99"),
        (bytes((KIND_CONTROL,)) + b"\xc1", "control frame"),
        (control_frame(b"\x91\xa7Unknown"), "control frame"),
        (control_frame(encode_mesh(Credit(-1, 0))), "Expected `int` >= 0"),
        (b"\x01\x00\x00\x00\x00\x00", "no part"),
        (b"\x01\x00\x00\x00\x00\x02\x00\x00\x00\x09xx", "truncated part"),
        (b"\x01\x00", "truncated"),
    ],
)
async def test_what_breaks_the_protocol_ends_the_link(frame: bytes, text: str) -> None:
    setting = Setting()
    await turn()
    setting.transport.take()
    setting.receive(frame)
    setting.receive(REPLY)  # not listened to any more
    await turn()
    (farewell,) = setting.transport.controls()
    assert isinstance(farewell, Goodbye)
    assert text in farewell.reason
    await setting.link.wait_closed()
    assert setting.receiver.got == []
    assert text in setting.ends[0]
    assert setting.ends[0].startswith("protocol: ")


async def test_a_record_without_credit_breaks_the_protocol() -> None:
    setting = Setting(credit_records=1)
    await turn()
    setting.receive(record(0), record(1))
    await setting.link.wait_closed()
    assert setting.receiver.got == [record(0)]
    assert "without credit" in setting.ends[0]


async def test_a_receiver_may_find_the_protocol_broken() -> None:
    setting = Setting()
    await turn()
    setting.receiver.failure = ProtocolError("no such thing")
    setting.receive(record(0))
    await setting.link.wait_closed()
    assert setting.ends == ["protocol: no such thing"]


async def test_unsent_records_are_told_apart_from_those_handed_over() -> None:
    setting = Setting()
    setting.hear(Credit(3, 100_000))
    setting.transport.stuck = True
    setting.link.send_record(record(1))
    await turn()
    told: list[bool] = []
    setting.link.send_record(record(2))
    setting.link.send(REPLY)
    setting.link.send_contract([b"part"], on_written=told.append)
    setting.link.send_record(record(3))
    setting.link.send_record(record(4))
    await turn()
    assert record(1) in setting.transport.take()
    setting.link.connection_lost(ConnectionResetError("reset"))
    assert setting.link.unsent == [record(2), record(3), record(4)]
    assert setting.link.unsent_replies == [REPLY]
    assert told == [False]
    assert setting.ends == ["connection broken: reset"]
    assert (setting.link.outbound_records, setting.link.outbound_octets) == (0, 0)
    with pytest.raises(Unavailable, match="connection broken"):
        setting.link.send(REPLY)


async def test_a_silent_peer_is_asked_and_then_given_up() -> None:
    setting = Setting(ping_interval_s=3600, silence_limit_s=3 * 3600)
    await turn()
    setting.transport.take()
    setting.link._tick()  # the hour in which the link was opened
    setting.link._tick()
    setting.link._tick()
    await turn()
    assert setting.transport.controls() == [Ping(1), Ping(2)]
    setting.hear(Pong(2))
    for _ in range(3):
        setting.link._tick()
    assert not setting.link.closing
    setting.link._tick()
    assert setting.transport.aborted
    await setting.link.wait_closed()
    assert setting.ends == ["silent for 10800 s"]


async def test_a_ping_is_answered_and_a_probe_learns_of_it() -> None:
    setting = Setting()
    await turn()
    setting.transport.take()
    setting.hear(Ping(77))
    alive, other = setting.link.probe(), setting.link.probe()
    await turn()
    assert setting.transport.controls() == [Pong(77), Ping(1), Ping(2)]
    setting.hear(Pong(1), Pong(99))
    assert await alive
    assert not other.done()
    await setting.end()
    assert not await other
    assert not await setting.link.probe()


async def test_closing_writes_first_and_waits_for_the_other_goodbye() -> None:
    setting = Setting()
    setting.transport.stuck = True
    await turn()
    setting.transport.take()
    setting.link.send(REPLY)
    setting.link.close("done here")
    setting.link.close("again")
    setting.hear(Call(1, "late", b""), Goodbye("done there"))
    await turn()
    assert not setting.transport.closed  # its own goodbye is not written yet
    assert setting.receiver.got == [Call(1, "late", b"")]
    setting.transport.stuck = False
    setting.link.resume_writing()
    assert setting.transport.take() == [REPLY, control_frame(encode_mesh(Goodbye("done here")))]
    assert setting.transport.closed
    await setting.link.wait_closed()
    assert setting.ends == ["done here"]


async def test_a_goodbye_is_answered_behind_what_was_handed_over() -> None:
    setting = Setting()
    await turn()
    setting.transport.take()
    setting.link.send(REPLY)
    setting.link.send_record(record(1))  # no credit: unsent
    setting.hear(Goodbye("leaving"))
    assert setting.link.closing
    await turn()
    assert setting.transport.take() == [REPLY, control_frame(encode_mesh(Goodbye("goodbye: leaving")))]
    await setting.link.wait_closed()
    assert setting.link.unsent == [record(1)]
    assert setting.ends == ["goodbye: leaving"]


async def test_an_unanswered_goodbye_is_not_waited_for_long() -> None:
    setting = Setting(goodbye_timeout_s=0.01)
    setting.link.close("bye")
    await setting.link.wait_closed()
    assert setting.transport.aborted
    assert setting.ends == ["bye"]


@pytest.mark.parametrize(
    "options",
    [
        {"receive_chunk_limit": 64 * 1024 * 1024 + 1},
        {"max_frame_bytes": 10},
        {"credit_records": 0},
        {"credit_octets": 0},
        {"silence_limit_s": 1.0, "ping_interval_s": 2.0},
    ],
)
def test_wrong_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(NotConfigured, match=next(iter(options))):
        LinkOptions(**options)
