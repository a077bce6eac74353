"""Who is taken in when several identities want one temporary queue: never two at a time (R11.2, B8.16)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sojourn.handoff import events as ev
from sojourn.handoff.machine import Event
from sojourn.handoff.rivals import holds_object
from sojourn.handoff.target_states import TargetRemoved
from sojourn.ids import ObjectKind
from sojourn.ownership import VersionedRow
from sojourn.rows import AuthorityRow, Owner
from sojourn.workers.intake import Intake
from sojourn.workers.local_driver import LocalDriver
from sojourn.workers.objects import LocalObject, Place
from sojourn.workers.target_driver import TargetDriver

from tests.machines.samples import IDENTITY, KEY, MANIFEST, new_target

LINK: Any = SimpleNamespace(connection_id=1, closing=False)


class Target(TargetDriver):
    """The part of a target that the intake speaks to; its machine is real."""

    def __init__(self, node: Node, version: str = "v5") -> None:
        self.machine = new_target()
        identity = IDENTITY._replace(relocation_id=(0, len(node.targets) + 1), expected_version=version)
        self.plan = self.machine.plan = replace(self.machine.plan, identity=identity)
        self.held = LocalObject(KEY, ObjectKind.ACTOR, "Player", Place.TARGET)
        self.heir = None
        self.bench = node
        node.targets.append(self)

    def begin(self, link: Any, event: Event, length: int) -> None:
        self.handle(event)
        if holds_object(self.machine):
            self.held.staging = self
            self.bench.router.objects[KEY] = self.held
        living = [each for each in self.bench.targets if holds_object(each.machine)]
        assert len(living) <= 1, "two live prepares for one temporary queue"

    def handle(self, event: Event) -> None:
        self.machine.handle(event, 0.0)


class Node:
    """What an intake needs of its node; reads of the row wait until they are let go."""

    def __init__(self) -> None:
        self.targets: list[Target] = []
        self.router = SimpleNamespace(objects={})
        self.directory = SimpleNamespace(read=self.read)
        self.gate = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []
        self.version = "v5"
        self.intake = Intake(cast(Any, self))

    async def read(self, key: bytes) -> VersionedRow:
        await self.gate.wait()
        row = AuthorityRow(
            kind=ObjectKind.ACTOR,
            object_id="p1",
            stable_type="Player",
            object_generation=1,
            owner_generation=4,
            owner=Owner(b"A", 1, "owner-a", 3),
        )
        return VersionedRow(row, self.version)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def ask(self, target: Target) -> Target:
        self.intake._admit(target, LINK, ev.RestoreRequested(MANIFEST, 1), 10)
        return target

    async def settle(self) -> None:
        self.gate.set()
        while self.tasks:
            await self.tasks.pop(0)


@pytest.fixture
async def node() -> Node:
    return Node()


async def test_of_three_identities_at_once_the_newest_lives(node: Node) -> None:
    """The second and the third are judged while the row is read for both."""
    first, second, third = (node.ask(Target(node)) for _ in range(3))
    assert holds_object(first.machine)
    await node.settle()
    assert [holds_object(each.machine) for each in (first, second, third)] == [False, False, True]
    assert isinstance(second.machine.state, TargetRemoved)
    assert (first.heir, second.heir) == (second, third)


async def test_one_that_began_with_an_older_row_ends_also_behind_others(node: Node) -> None:
    node.version = "v9"
    targets = [node.ask(Target(node, version)) for version in ("v5", "v9", "v5")]
    await node.settle()
    assert [holds_object(each.machine) for each in targets] == [False, True, False]


async def test_an_object_that_opened_while_the_row_was_read_is_not_taken_away(node: Node) -> None:
    first = node.ask(Target(node))
    second = node.ask(Target(node))
    first.handle(ev.WithdrawnReceived())
    opened = LocalObject(KEY, ObjectKind.ACTOR, "Player", Place.ACTIVE)
    node.router.objects[KEY] = opened
    await node.settle()
    assert isinstance(second.machine.state, TargetRemoved)
    assert node.router.objects[KEY] is opened


async def test_the_queue_is_free_when_the_older_ended_meanwhile(node: Node) -> None:
    first = node.ask(Target(node))
    second = node.ask(Target(node))
    first.handle(ev.WithdrawnReceived())
    await node.settle()
    assert holds_object(second.machine)


async def test_an_object_that_moves_within_this_node_is_not_taken_away(node: Node) -> None:
    """B8.7: this run owns it, whichever worker has it: what another node offers is an old attempt."""
    held = LocalObject(KEY, ObjectKind.ACTOR, "Player", Place.SOURCE)
    held.staging = LocalDriver.__new__(LocalDriver)
    node.router.objects[KEY] = held
    target = node.ask(Target(node))
    assert isinstance(target.machine.state, TargetRemoved)
    assert node.router.objects[KEY] is held
