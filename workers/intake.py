"""Whether this node takes in an object that another node offers: the checks before a target's machine starts.

Owns refusals for what this node is (B8.1), for an object it already owns, and the choice between two
identities for one object (B8.16). It keeps nothing; which attempts there are is the coordinator's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.errors import SojournError
from sojourn.handoff import events
from sojourn.handoff.rivals import holds_object, judge_rivals
from sojourn.handoff.terms import FAILURE_REQUEST, RowFacts, TargetFailure, stale_failure
from sojourn.ids import NodeRun, ObjectKey, describe_key
from sojourn.wire import RelocationPrepare
from sojourn.workers.handoff_wire import manifest_of
from sojourn.workers.link import Link
from sojourn.workers.local_driver import LocalDriver
from sojourn.workers.objects import Place
from sojourn.workers.target_driver import TargetDriver
from sojourn.workers.unit_rows import row_facts

if TYPE_CHECKING:
    from sojourn.workers.supervisor import Supervisor

__all__ = ["Intake"]


class Intake:
    """See the module text."""

    def __init__(self, node: Supervisor) -> None:
        self._node = node

    def begin(self, driver: TargetDriver, link: Link, command: RelocationPrepare, deadline_ms: int) -> None:
        """Give a new identity's driver its first event: to restore the object, or to refuse it."""
        node, key, length = self._node, driver.plan.key, command.payload_total_length
        event = events.RestoreRequested(manifest_of(command), link.connection_id)
        refusal = self._refusal(command, deadline_ms)
        if refusal is not None:
            node.log("restore_refused", "info", object_id=describe_key(key), reason=refusal.detail)
            driver.begin(link, events.RestoreRefused(FAILURE_REQUEST, link.connection_id, refusal), length)
            return
        self._admit(driver, link, event, length)

    def _admit(self, driver: TargetDriver, link: Link, event: events.RestoreRequested, length: int) -> None:
        """Begin, refuse, or find out first which of two identities lives. No two hold one temporary queue (R11.2)."""
        node, key = self._node, driver.plan.key
        older = self._rival(key, driver)
        if older is not None:
            node.start(self._settle_rivals(older, driver, link, event, length))
            return
        current = node.router.objects.get(key)
        if current is not None and (
            current.place is Place.ACTIVE or isinstance(current.staging, LocalDriver)
        ):
            why = "the target has the object already"
            driver.begin(link, events.RestoreRefused(stale_failure(key), link.connection_id, why), length)
            return
        driver.begin(link, event, length)

    def _refusal(self, command: RelocationPrepare, deadline_ms: int) -> TargetFailure | None:
        """Version and run are checked again at Restore (B8.1). Without a ready worker the object would be held for as
        long as one takes to start."""
        node = self._node
        name = f"node {node.run}"
        if NodeRun(command.target.node_rid, command.target.node_generation) != node.run:
            return TargetFailure("TargetUnavailable", f"{name} is another run than the one that was asked")
        if not deadline_ms:
            return TargetFailure("RelocationFailed", "the request carries no deadline")
        text = None
        if not node.admission_open():
            text = f"the lease of {name} is not confirmed"
        elif not node.takes_new_objects:
            text = f"{name} is {node.state.value}"
        elif command.application_version != node.application_version:
            text = (
                f"{name} runs application version {node.application_version}, "
                f"not {command.application_version}"
            )
        elif not node.object_counts:
            text = f"no worker of {name} is ready"
        return None if text is None else TargetFailure("TargetUnavailable", text)

    def _rival(self, key: ObjectKey, newcomer: TargetDriver) -> TargetDriver | None:
        """The attempt that has its temporary queue for this object registered here (B8.16)."""
        held = self._node.router.objects.get(key)
        staging = None if held is None else held.staging
        if isinstance(staging, TargetDriver) and staging is not newcomer and holds_object(staging.machine):
            return staging
        return None

    async def _settle_rivals(
        self,
        older: TargetDriver,
        newcomer: TargetDriver,
        link: Link,
        event: events.RestoreRequested,
        length: int,
    ) -> None:
        """Two identities for one object here: the row says which lives (B8.16)."""
        key = newcomer.plan.key
        try:
            row = row_facts(await self._node.directory.read(older.plan.key))
            own = row
            if key != older.plan.key:
                own = row_facts(await self._node.directory.read(key))
        except SojournError:
            why = "the store could not say which of two attempts is the newer one"
            newcomer.begin(link, events.RestoreRefused(FAILURE_REQUEST, link.connection_id, why), length)
            return
        if self._rival(key, newcomer) is not older:
            # While the row was read the older one ended, opened, or was itself replaced: by a third identity, that is.
            self._admit(newcomer, link, event, length)
            return
        verdict = judge_rivals(row, older.machine, newcomer.plan.identity, own)
        if not verdict.older_lives:  # first, so that there is one at a time
            older.heir = newcomer if verdict.newcomer_lives else None
            older.handle(events.RivalPreferred())
        if verdict.newcomer_lives:
            newcomer.begin(link, event, length)
        else:
            why = "another attempt for the same object is under way"
            newcomer.begin(link, events.RestoreRefused(stale_failure(key), link.connection_id, why), length)

    async def members_free(self, unit: TargetDriver, row: RowFacts) -> bool:
        """Whether a unit whose own row stands may stage its members: attempts that have one of them here and give way
        to it end now, and it takes their place (B8.16). False: one of them lives, so the unit does not.

        Each attempt is judged by its own row; those of the members were read with the unit's. Nothing comes between
        the last look and what the unit's machine does with the answer.

        Raises:
            StoreUnavailable: the row of a rival cannot be read.
        """
        known = {each.key: RowFacts(each.version, each.owner, 0, 0) for each in row.others}
        while True:
            rivals = self._rivals_of_members(unit, row)
            unread = [each.plan.key for each in rivals if each.plan.key not in known]
            if not unread:
                break
            for key, found in (await self._node.directory.read_many(unread)).items():
                facts = row_facts(found)
                known[key] = facts or RowFacts("", unit.plan.target, 0, 0)
        judged = [
            judge_rivals(known[each.plan.key], each.machine, unit.plan.identity, row) for each in rivals
        ]
        if not all(verdict.newcomer_lives for verdict in judged):
            return False
        for rival in rivals:
            rival.heir = unit
            rival.handle(events.RivalPreferred())
        return True

    def _rivals_of_members(self, unit: TargetDriver, row: RowFacts) -> list[TargetDriver]:
        rivals: list[TargetDriver] = []
        for each in row.others:
            rival = self._rival(each.key, unit) if each.moves else None
            if rival is not None and rival not in rivals:
                rivals.append(rival)
        return rivals
