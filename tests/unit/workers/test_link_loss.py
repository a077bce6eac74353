"""Which handoff takes back follow frames that a broken link never handed over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from sojourn.frames import FLAG_FOLLOW, record_frame
from sojourn.handoff.events import LinkLost
from sojourn.handoff.source import SourcePlan
from sojourn.handoff.terms import HandoffIdentity
from sojourn.ids import NodeRun, ObjectKind
from sojourn.options import Options
from sojourn.workers.coordinator import Coordinator
from sojourn.workers.link import Link
from sojourn.workers.source_driver import SourceDriver

from tests.unit.workers.fake_node import HERE, THERE

ELSEWHERE = NodeRun(b"elsewhere", 3)
KEY = b"sa"


class Source(SourceDriver):
    """A handoff that tells what it was given, without a machine."""

    def __init__(self, number: int, target: NodeRun, link: Any, *, past_boundary: bool) -> None:
        identity = HandoffIdentity((0, number), 1, "owner", 1, HERE, f"v{number}")
        self.plan = SourcePlan(identity, target, 1, number, 0.0)
        self.held = cast(Any, SimpleNamespace(key=KEY))
        self._unit = [self.held]
        self._link = link
        self._past_boundary = past_boundary
        self._relay_marks = []
        self.given: tuple[bytes, ...] | None = None

    def handle(self, event: Any) -> None:
        assert isinstance(event, LinkLost)
        self.given = event.follow_unsent


def frame(number: int) -> bytes:
    return record_frame(
        FLAG_FOLLOW, 1, ObjectKind.INSTANCE_SPOT, 1, number, 0, number, 0, KEY, b"", b"record"
    )


def broken(link: Any, *sources: Source) -> list[bytes]:
    """The link ends while the object moves in the newest of these handoffs: what belongs to none of them."""
    held = SimpleNamespace(staging=sources[-1])
    node = SimpleNamespace(
        options=Options(), router=SimpleNamespace(objects={KEY: held}), loop=None, retention=None
    )
    coordinator = Coordinator(cast(Any, node))
    coordinator.sources = {source.plan.identity: source for source in sources}
    return coordinator.link_down(cast(Link, link))


def link_to(peer: NodeRun, *unsent: bytes) -> Any:
    return SimpleNamespace(peer=peer, connection_id=5, unsent=list(unsent))


def test_two_handoffs_to_the_same_node_do_not_both_take_them() -> None:
    """The object went there, came back and is on its way there again: one message, one end (R10.1)."""
    link = link_to(THERE, frame(1), frame(2))
    older = Source(1, THERE, link, past_boundary=True)
    newer = Source(2, THERE, link, past_boundary=True)
    assert broken(link, older, newer) == []
    assert older.given == ()
    assert newer.given == (frame(1), frame(2))


def test_a_handoff_before_its_boundary_takes_none() -> None:
    link = link_to(THERE, frame(1))
    older = Source(1, THERE, link, past_boundary=True)
    newer = Source(2, THERE, link, past_boundary=False)
    assert broken(link, older, newer) == []
    assert older.given == (frame(1),)
    assert newer.given == ()


def test_what_was_followed_to_a_later_owner_is_not_forgotten() -> None:
    """No handoff goes to the node whose link broke: whoever settles unsent records gets them."""
    link = link_to(ELSEWHERE, frame(1))
    source = Source(1, THERE, None, past_boundary=True)
    assert broken(link, source) == [frame(1)]
    assert source.given is None


def test_a_connection_that_the_handoff_does_not_use_gives_it_nothing() -> None:
    link = link_to(THERE, frame(1))
    source = Source(1, THERE, SimpleNamespace(connection_id=6), past_boundary=True)
    assert broken(link, source) == [frame(1)]
    assert source.given is None
