"""`TargetHandoff`: the target's half of one unit's move (relocation.md sections 4, 6, 9; B6.5, B8).

Owns the temporary queue, the relay section, the progress of the assembly, the CAS and what its outcome
means, and afterwards the memory of the identity: k for resent batches, or the failure for repeats. It must
not know bytes, clocks, connections or the store: see `sojourn.handoff.events` and `effects`.

The life of a move as the target sees it:

1. Command 40 of a new identity: the driver makes the machine, with the absolute deadline, and delivers
   `RestoreRequested` (or `RestoreRefused`, when the node may not take the object). If another identity
   holds the object here, `sojourn.handoff.rivals` says first which of the two lives.
2. `InstallTemporaryQueue`, `ReadRow`; chunks → `StoreChunk`, then `VerifyAssembly`. When the row shows the
   fence's version and the checksum is right: `RestoreObject`.
3. `ObjectRestored` → `SendRelayReady`. Relay records and the cutover, or the cutover wait, settle the
   boundary.
4. `WriteOwner` under the fence's version, until it is known to have succeeded, is known never to succeed,
   or the absolute deadline is over.
5. `OpenDispatch` with relay and temporary queue in order, or `DropTarget`.
6. The machine stays, small, until `ForgetHandoff`: keep it under its identity, and give it every repeat,
   chunk, relay record and cutover of that identity.

From `OpenDispatch` or `DropTarget` on the driver routes records of the object the ordinary way; those it
still delivers here come back as `DeliverRecords`.
"""

from __future__ import annotations

from sojourn.handoff.target_base import TargetPlan
from sojourn.handoff.target_commit import TargetCommit
from sojourn.handoff.target_table import EVENTS, IGNORED, STATES

__all__ = ["TargetHandoff", "TargetPlan"]


class TargetHandoff(TargetCommit):
    """The target's half of one handoff.

    Args:
        plan: identity, key and the absolute deadline.
        checksum: extends a CRC-32C.
        frozen: gives a record's frozen bytes.
        options: durations.
    """

    STATES = STATES
    EVENTS = EVENTS
    IGNORED = IGNORED
