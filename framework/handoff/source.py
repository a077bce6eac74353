"""`SourceHandoff`: the source's half of one unit's move (relocation.md sections 4, 6, 9; B6.7, B6.8, B8).

Owns the ingress hold, the pre-boundary batch, the backlog and their order; the irreversible boundary; the
fence; learning the commit; the follow time. It must not know bytes, clocks, connections or the store: see
`sojourn.handoff.events` and `effects` for what a driver reports and carries out.

The life of a move as the source sees it:

1. `RelocationStarted` → `SealObject`. From then on every record is `RecordArrived` and waits in the hold.
2. `ObjectCaptured` → `SendRestore`, `SendChunks`; both again, from ordinal 0, on every new connection.
3. Until relay-ready is accepted the object can come back: an explicit failure (53), a deadline, a gone
   target or a cancellation lead to `RestoreDispatch`; all but a 53 to a single request go through
   `WriteFence`, so that the target can no longer commit.
4. `RelayReadyReceived` before D is the boundary (R4.4.2): the hold becomes the batch, `SendRelay` and
   `SendCutover` go out, everything later is `SendFollow` behind them.
5. When the submit is terminal: `EndDispatch`, and the row is read until it names the target. A connection
   that breaks within the resend window gets batch and cutover again, then follow frames.
6. Commit seen: `FollowOnly` until the follow duration is over. Not seen until the target's last moment: the
   object is marked lost under the version read, so that its id is not blocked for good.

A unit that is bound to sessions first reaches a turn boundary and has them sealed (`source_sessions`).
A unit is one participant for now; the machine does not look at participants.
"""

from __future__ import annotations

from sojourn.handoff.source_base import SourcePlan
from sojourn.handoff.source_before import SourceBefore
from sojourn.handoff.source_table import EVENTS, IGNORED, STATES

__all__ = ["SourceHandoff", "SourcePlan"]


class SourceHandoff(SourceBefore):
    """The source's half of one handoff.

    Args:
        plan: identity, fences and D.
        checksum: extends a CRC-32C.
        frozen: gives a record's frozen bytes.
        options: durations.
    """

    STATES = STATES
    EVENTS = EVENTS
    IGNORED = IGNORED
