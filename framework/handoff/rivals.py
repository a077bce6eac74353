"""Two identities for one object at one target: which lives (B8.16).

Owns that one judgement. It is the one of a join too: what a target holds for a Join from its Restore request to
relay-ready is such an attempt, and of two for one temporary queue one ends (R11.2). The driver reads the row when a Restore request of a second identity arrives, asks
here, and then delivers `RivalPreferred` to the older machine or `RestoreRefused` to the newcomer's, or both. The
rivals of its members a unit meets when its row has told who they are; what ends it then is `RivalKept`.
Nobody is chosen by arrival order or recency alone (R3.4).
"""

from __future__ import annotations

from typing import NamedTuple

from sojourn.handoff.target import TargetHandoff
from sojourn.handoff.target_states import Assembling, Committing, ObjectStaged, RelayReady, RestoringObject
from sojourn.handoff.terms import HandoffIdentity, RowFacts

__all__ = ["RivalVerdict", "holds_object", "judge_rivals"]


class RivalVerdict(NamedTuple):
    """Who goes on. Both may end; both never live."""

    older_lives: bool
    newcomer_lives: bool


def holds_object(handoff: TargetHandoff) -> bool:
    """Whether this attempt has its temporary queue registered: a second identity is its rival."""
    return isinstance(handoff.state, Assembling | RestoringObject | ObjectStaged | RelayReady | Committing)


def judge_rivals(
    row: RowFacts | None,
    older: TargetHandoff,
    newcomer: HandoffIdentity,
    newcomer_row: RowFacts | None = None,
) -> RivalVerdict:
    """The identity whose expected version stands in the row lives (B8.16).

    `row` is the older attempt's own. `newcomer_row` is given where the newcomer's own row is another one: one of the
    two is for an Actor, the other for the Spot it is a member of, so that both want one temporary queue. Where both
    name it the newcomer lives, unless the older sent relay-ready. An older attempt that has issued its CAS is ended
    only when the newcomer's version stands: otherwise its own re-read decides.
    """
    version = None if row is None else row.version
    older_named = version is not None and version == older.plan.identity.expected_version
    stands = version if newcomer_row is None else newcomer_row.version
    newcomer_named = stands is not None and stands == newcomer.expected_version
    state = older.state
    if older_named and newcomer_named:
        keep = isinstance(state, RelayReady | Committing)
        return RivalVerdict(older_lives=keep, newcomer_lives=not keep)
    if newcomer_named:
        return RivalVerdict(older_lives=False, newcomer_lives=True)
    return RivalVerdict(older_lives=older_named or isinstance(state, Committing), newcomer_lives=False)
