"""The application of these tests; every worker process imports it."""

from __future__ import annotations

import asyncio
import threading

import sojourn as sj

app = sj.App("fleet", version=1)


async def pass_gate(port: int) -> None:
    """Tell the test that this handler runs, and go on when the test says so."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await reader.read(1)
    finally:
        writer.close()
        await writer.wait_closed()


@app.spot
class Sink(sj.InstanceSpot):
    """Counts what each sender sends, and notes what came twice, out of order or not at all."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self.wrong: list[str] = []
        self.count = 0

    def _take(self, sender: str, number: int) -> None:
        expected = self.last.get(sender, 0) + 1
        if number != expected and len(self.wrong) < 50:
            self.wrong.append(f"{sender}: {number} instead of {expected}")
        self.last[sender] = number
        self.count += 1

    @sj.request
    async def ask(self, sender: str, number: int) -> int:
        self._take(sender, number)
        return number

    @sj.send
    async def tell(self, sender: str, number: int) -> None:
        self._take(sender, number)

    @sj.request
    async def result(self) -> tuple[dict[str, int], list[str], int]:
        return self.last, self.wrong, self.count

    @sj.request
    async def held(self, port: int) -> int:
        await pass_gate(port)
        return self.count


@app.spot
class Sender(sj.InstanceSpot):
    """Sends numbers from 1 to a Sink: `request`, `send`, or one request in ten sends."""

    @sj.request
    async def run(self, sink: str, count: int, kind: str) -> int:
        ref = self.spot(Sink, sink)
        for number in range(1, count + 1):
            if kind == "send" or (kind == "mixed" and number % 10):
                await ref.send(Sink.tell, self.id, number)
            else:
                await ref.request(Sink.ask, self.id, number)
        return count

    @sj.request
    async def ready(self) -> str:
        return self.id


@app.spot
class Device(sj.InstanceSpot):
    """A number, some bytes, and ways to be awkward."""

    def __init__(self) -> None:
        self.total = 0
        self.blob = b""
        self.parts: list[int] = []

    @sj.request
    async def add(self, number: int) -> int:
        self.total += number
        self.parts.append(number)
        return self.total

    @sj.send
    async def note(self, number: int) -> None:
        self.total += number
        self.parts.append(number)

    @sj.send
    async def note_held(self, port: int, number: int) -> None:
        await pass_gate(port)
        self.parts.append(number)

    @sj.request
    async def history(self) -> list[int]:
        return self.parts

    @sj.request
    async def grow(self, size: int) -> int:
        self.blob = bytes(range(256)) * (size // 256)
        return len(self.blob)

    @sj.request
    async def measure(self) -> tuple[int, bool]:
        return len(self.blob), self.blob == bytes(range(256)) * (len(self.blob) // 256)

    @sj.request
    async def held(self, port: int) -> int:
        await pass_gate(port)
        return self.total

    @sj.request
    async def give(self, size: int) -> bytes:
        return bytes(size)

    @sj.request
    async def complain(self, size: int) -> None:
        raise ValueError("x" * size)

    @sj.request
    async def take_lock(self) -> bool:
        self.handle = threading.Lock()
        return True

    @sj.request
    async def drop_lock(self) -> bool:
        del self.handle
        return True

    @sj.request
    async def go(self, node: str) -> str:
        self.relocate(node)
        return self.id

    @sj.request
    async def shift(self, worker: int) -> str:
        self.relocate(worker=worker)
        return self.id


@app.spot
class Ticker(sj.InstanceSpot):
    """A timer that ticks for ever, a list of its ticks, and ticks at which it knocks at the test's gate."""

    def __init__(self) -> None:
        self.ticks: list[tuple[int, int]] = []
        self.knocks: dict[int, int] = {}

    @sj.timer(every=0.2)
    async def tick(self, tick: sj.Tick) -> None:
        self.ticks.append((tick.delivery_index, tick.scheduled_index))
        port = self.knocks.get(tick.delivery_index)
        if port is not None:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()

    @sj.request
    async def knock_at(self, tick: int, port: int) -> int:
        self.knocks[tick] = port
        return len(self.ticks)

    @sj.request
    async def seen(self) -> list[tuple[int, int]]:
        return self.ticks


@app.spot(policy="recreate")
class Forgetful(sj.InstanceSpot):
    """Its queue moves, its state does not."""

    def __init__(self) -> None:
        self.total = 0

    @sj.request
    async def add(self, number: int) -> int:
        self.total += number
        return self.total

    @sj.request
    async def held(self, port: int) -> int:
        await pass_gate(port)
        return self.total


@app.spot(policy="disabled")
class Rooted(sj.InstanceSpot):
    """Never moves."""

    @sj.request
    async def ping(self) -> str:
        return "pong"


@app.spot
class Brittle(sj.InstanceSpot):
    """Can be captured and not restored."""

    @sj.request
    async def ping(self) -> str:
        return "pong"

    def capture(self) -> bytes:
        return b"ledger 7"

    def restore(self, state: bytes) -> None:
        raise ValueError(f"no such {state.decode()}")


@app.spot
class Stillborn(sj.InstanceSpot):
    """`on_initialize` fails."""

    async def on_initialize(self) -> None:
        raise ValueError("no such thing")

    @sj.request
    async def ping(self) -> str:
        return "pong"


@app.spot
class Broken(sj.InstanceSpot):
    """`__init__` fails."""

    def __init__(self) -> None:
        raise ValueError("cannot be built")

    @sj.request
    async def ping(self) -> str:
        return "pong"


@app.actor
class Player(sj.Actor):
    """An Actor with a score."""

    def __init__(self, score: int = 0) -> None:
        if score < 0:
            raise ValueError("scores are not negative")
        self.score = score

    @sj.request
    async def hit(self, points: int) -> int:
        self.score += points
        return self.score


@app.spot
class Lobby(sj.EntrySpot):
    """Admits every Actor that is not banned."""

    async def on_create_actor(self, actor_id: str, actor_type: str) -> bool:
        return not actor_id.startswith("banned")
