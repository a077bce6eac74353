"""`TargetHandoff` up to relay-ready: Restore request, chunks, row check, restore (R4.3, B6.5, B8.3, B8.6).

Owns the temporary queue and the progress of the assembly; the bytes themselves are the driver's.
"""

from __future__ import annotations

from sojourn.handoff.effects import (
    CompareChunk,
    InstallTemporaryQueue,
    ReadRow,
    RestoreObject,
    SendRelayReady,
    SendRelocationFailed,
    StageParticipants,
    StoreChunk,
    VerifyAssembly,
)
from sojourn.handoff.events import (
    AssemblyMismatched,
    AssemblyVerified,
    ChunkArrived,
    ChunkDiffered,
    CutoverArrived,
    DirectArrived,
    FollowArrived,
    LinkLost,
    ObjectRestored,
    RelayArrived,
    RestoreFailed,
    RestoreRefused,
    RestoreRequested,
    RivalKept,
    RivalPreferred,
    RowRead,
    RowReadFailed,
    WithdrawnReceived,
)
from sojourn.handoff.machine import DeadlineReached, Same, on
from sojourn.handoff.target_doubt import TargetDoubt
from sojourn.handoff.target_states import (
    Announced,
    Assembling,
    Committing,
    ObjectStaged,
    OwnerChecking,
    OwnerPausing,
    OwnerWriting,
    RelayReady,
    RestoringObject,
    Staged,
    TargetRemoved,
)
from sojourn.handoff.terms import (
    FAILURE_DATA_LOST,
    FAILURE_REQUEST,
    DirectDisposal,
    stale_failure,
)

__all__ = ["TargetStaging"]

_UNREADY = (Assembling, RestoringObject, ObjectStaged)
_COMMITTING = (OwnerWriting, OwnerChecking, OwnerPausing)


class TargetStaging(TargetDoubt):
    """Transitions up to relay-ready, and what every staged state does alike."""

    # the Restore request

    @on(RestoreRequested, Announced, to=(Assembling, TargetRemoved))
    def _requested(self, state: Announced, event: RestoreRequested, now: float) -> None:
        """The temporary queue comes before everything else (R4.3.1)."""
        self._do(InstallTemporaryQueue())
        assembling = Assembling(event.manifest, event.connection, self.plan.ends_at, [])
        if event.manifest.chunk_count == 0:
            self._fail(assembling, FAILURE_DATA_LOST, "a payload has at least one chunk")
            return
        self._do(ReadRow())
        self.state = assembling

    @on(RestoreRefused, Announced, to=(TargetRemoved,))
    def _refuse(self, state: Announced, event: RestoreRefused, now: float) -> None:
        self._do(SendRelocationFailed(event.connection, event.failure_code))
        relay = self._new_relay()
        relay.fall_back()
        forget_at = self.plan.ends_at + self.options.ended_memory_s
        self.state = TargetRemoved(event.failure_code, relay, forget_at, why=event.why)

    @on(RestoreRequested, Assembling, RestoringObject, to=(Same, TargetRemoved))
    def _requested_again(self, state: Staged, event: RestoreRequested, now: float) -> None:
        """Keep queue and progress (R4.3.3); another manifest ends the attempt."""
        if event.manifest != state.manifest:
            state.connection = event.connection
            self._conflict(state)
        else:
            state.connection = event.connection

    @on(RestoreRequested, ObjectStaged, to=(RelayReady, TargetRemoved))
    def _reconnected(self, state: ObjectStaged, event: RestoreRequested, now: float) -> None:
        state.connection = event.connection
        if event.manifest != state.manifest:
            self._conflict(state)
        else:
            self._say_ready(state, event.connection, now)

    def _conflict(self, state: Staged) -> None:
        self._fail(state, FAILURE_DATA_LOST, "the same identity came with another length, count or checksum")

    # chunks

    @on(ChunkArrived, Assembling, to=(Assembling, TargetRemoved))
    def _chunk(self, state: Assembling, event: ChunkArrived, now: float) -> None:
        offsets, manifest, size = state.offsets, state.manifest, len(event.data)
        expected = len(offsets) - 1
        if event.ordinal < expected:
            offset = offsets[event.ordinal]
            if offsets[event.ordinal + 1] - offset != size:
                self._fail(state, FAILURE_DATA_LOST, "a repeated chunk has another length")
            else:
                self._do(CompareChunk(offset, event.data))
            return
        end = offsets[-1] + size
        last = expected + 1 == manifest.chunk_count
        if event.ordinal > expected or event.ordinal >= manifest.chunk_count:
            self._fail(state, FAILURE_DATA_LOST, f"chunk {event.ordinal} came where {expected} was expected")
        elif end > manifest.total_length or (last and end != manifest.total_length):
            self._fail(state, FAILURE_DATA_LOST, "the chunks do not add up to the announced length")
        else:
            self._do(StoreChunk(offsets[-1], event.data))
            offsets.append(end)
            if last:
                self._do(VerifyAssembly(manifest.checksum))

    @on(ChunkDiffered, Assembling, to=(TargetRemoved,))
    def _chunk_differed(self, state: Assembling, event: ChunkDiffered, now: float) -> None:
        self._fail(state, FAILURE_DATA_LOST, "a repeated chunk has other bytes")

    @on(AssemblyMismatched, Assembling, to=(TargetRemoved,))
    def _mismatched(self, state: Assembling, event: AssemblyMismatched, now: float) -> None:
        self._fail(state, FAILURE_DATA_LOST, "the checksum of the payload differs")

    @on(AssemblyVerified, Assembling, to=(Assembling, RestoringObject))
    def _verified(self, state: Assembling, event: AssemblyVerified, now: float) -> None:
        state.verified = True
        self._restore_when_both(state)

    # the row

    @on(RowRead, Assembling, to=(Assembling, RestoringObject, TargetRemoved))
    def _row_read(self, state: Assembling, event: RowRead, now: float) -> None:
        row = event.row
        if row is None or row.lost or row.version != self.plan.identity.expected_version:
            self._fail(state, stale_failure(self.plan.key), "the row has another version (B6.5)")
        elif not row.whole:
            self._fail(state, stale_failure(self.plan.key), "a participant is not the source's (R4.5.1)")
        else:
            state.row = self.first = row
            members = tuple(each.key for each in row.others if each.moves)
            if members:  # before the factory runs (R4.3.1)
                self._do(StageParticipants(members))
            self._restore_when_both(state)

    @on(RivalKept, Assembling, to=(TargetRemoved,))
    def _rival_kept(self, state: Assembling, event: RivalKept, now: float) -> None:
        """Two identities for one object never live: here it is the unit that ends (B8.16)."""
        self._fail(state, stale_failure(self.plan.key), "another attempt holds one of its members here")

    @on(RowReadFailed, Assembling)
    def _row_unread(self, state: Assembling, event: RowReadFailed, now: float) -> None:
        state.read_at = now + self._pause(state.reads)
        state.reads += 1

    @on(DeadlineReached, Assembling, to=(Assembling, TargetRemoved))
    def _time_to_assemble(self, state: Assembling, event: DeadlineReached, now: float) -> None:
        if now >= state.ends_at:
            self._fail(state, FAILURE_REQUEST, "the Restore deadline passed while the payload was assembled")
        elif state.read_at is not None and now >= state.read_at:
            state.read_at = None
            self._do(ReadRow())

    # restore

    def _restore_when_both(self, state: Assembling) -> None:
        if state.row is not None and state.verified:
            owner_generation = state.row.owner_generation + 1
            self._do(RestoreObject(state.row.object_generation, owner_generation))
            self.state = state.into(
                RestoringObject,
                owner_generation=owner_generation,
                bound=state.row.bound or any(each.bound for each in state.row.others),
                others=state.row.others,
            )

    @on(ObjectRestored, RestoringObject, to=(ObjectStaged, RelayReady))
    def _restored(self, state: RestoringObject, event: ObjectRestored, now: float) -> None:
        if state.connection is None:
            self.state = state.into(ObjectStaged)
        else:
            self._say_ready(state, state.connection, now)

    @on(RestoreFailed, RestoringObject, ObjectStaged, to=(TargetRemoved,))
    def _restore_failed(self, state: Staged, event: RestoreFailed, now: float) -> None:
        reason = f"the object could not be restored: {event.error}"
        self._fail(state, FAILURE_REQUEST, reason, event.error)

    @on(DeadlineReached, RestoringObject, ObjectStaged, to=(Same, TargetRemoved))
    def _time_to_restore(self, state: Staged, event: DeadlineReached, now: float) -> None:
        if now >= state.ends_at:
            self._fail(state, FAILURE_REQUEST, "the Restore deadline passed before relay-ready")

    def _say_ready(self, state: RestoringObject | ObjectStaged, connection: int, now: float) -> None:
        self._do(SendRelayReady(connection))
        wait_until = min(now + self.options.cutover_wait_s, state.ends_at)
        self.state = state.into(RelayReady, relay=self._new_relay(), wait_until=wait_until)

    # staged states alike

    @on(DirectArrived, *_UNREADY, RelayReady, *_COMMITTING)
    @on(FollowArrived, *_UNREADY, RelayReady, *_COMMITTING)
    def _staged(self, state: Staged, event: DirectArrived | FollowArrived, now: float) -> None:
        self._queue(state, event.record)

    @on(RelayArrived, *_UNREADY)
    def _relay_too_early(self, state: Staged, event: RelayArrived, now: float) -> None:
        """The peer broke the protocol; its record is kept all the same."""
        self._log("relay_before_ready", "error", relocation_id=self.plan.identity.relocation_id)
        self._queue(state, event.record)

    @on(CutoverArrived, *_UNREADY)
    def _cutover_too_early(self, state: Staged, event: CutoverArrived, now: float) -> None:
        self._log("cutover_before_ready", "error", relocation_id=self.plan.identity.relocation_id)

    @on(LinkLost, *_UNREADY, RelayReady, *_COMMITTING)
    def _cut(self, state: Staged, event: LinkLost, now: float) -> None:
        if event.connection == state.connection:
            state.connection = None

    @on(WithdrawnReceived, *_UNREADY, RelayReady, *_COMMITTING, to=(TargetRemoved,))
    def _withdrawn(self, state: Staged, event: WithdrawnReceived, now: float) -> None:
        """The fence stands in the row: what a re-read would find (B6.7)."""
        self._remove(
            state, "withdrawn by the source", None, DirectDisposal.FOLLOW_TO_SOURCE, work_is_sources=True
        )

    @on(RivalPreferred, *_UNREADY, RelayReady, *_COMMITTING, to=(TargetRemoved,))
    def _rival(self, state: Staged, event: RivalPreferred, now: float) -> None:
        """The newcomer takes the place here; a 53 only if no CAS was issued (B8.16)."""
        failure_code = None if isinstance(state, Committing) else stale_failure(self.plan.key)
        if failure_code is not None and state.connection is not None:
            self._do(SendRelocationFailed(state.connection, failure_code))
        self._remove(
            state,
            "another identity took its place",
            failure_code,
            DirectDisposal.HAND_OVER,
            work_is_sources=True,
        )
