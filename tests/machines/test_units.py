"""Units of several participants: a SpotWide User Spot with its members in one handoff; PerActor as single units."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sojourn.handoff import effects as fx
from sojourn.handoff import events as ev
from sojourn.handoff import source_states as ss
from sojourn.handoff import target_states as ts
from sojourn.handoff.machine import DeadlineReached, Effect, Log
from sojourn.handoff.source import SourceHandoff, SourcePlan
from sojourn.handoff.target import TargetHandoff, TargetPlan
from sojourn.handoff.terms import DirectDisposal, ParticipantFacts, RowFacts, same_unit
from sojourn.ids import NodeRun, ObjectKey, actor_key, spot_key

from tests.machines.samples import (
    ENDS,
    IDENTITY,
    MANIFEST,
    RELOCATION,
    A,
    B,
    C,
    D,
    Play,
    checksum,
    checksum_of,
    frozen,
)

SPOT = spot_key("room")
P1, P2 = actor_key("p1"), actor_key("p2")
ROOM = ("userSpot", "room", 1)


def member(key: ObjectKey, version: str, owner: NodeRun = A, owner_generation: int = 9) -> ParticipantFacts:
    return ParticipantFacts(key, version, owner, 2, owner_generation, ROOM)


MEMBERS = (member(P1, "a5"), member(P2, "b5"))
FIRST = RowFacts("v5", A, 1, 4, others=MEMBERS)
REWRITTEN = FIRST._replace(others=(member(P1, "a5"), member(P2, "b6")))
"""Only the binding of p2 changed: its row has another version and says what it said."""
MOVED = RowFacts("v6", B, 1, 5, RELOCATION, others=(member(P1, "a6", B, 10), member(P2, "b6", B, 10)))
FIRST_CONDITIONS = ((P1, "a5"), (P2, "b5"))
NEW_CONDITIONS = ((P1, "a5"), (P2, "b6"))


def unit_source() -> Play:
    plan = SourcePlan(IDENTITY, B, 1, 4, D, others=MEMBERS)
    return Play(SourceHandoff(plan, checksum, frozen))


def unit_target(key: ObjectKey = SPOT) -> Play:
    return Play(TargetHandoff(TargetPlan(IDENTITY, key, B, ENDS), checksum, frozen))


def quiet(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if not isinstance(effect, Log)]


def committing(row: RowFacts = FIRST, *, proof: bool = True) -> Play:
    """A target of a whole unit whose CAS is out, with or without `proof` that the source is past its boundary."""
    play = unit_target()
    for event in (
        ev.RestoreRequested(MANIFEST, 1),
        ev.RowRead(row),
        ev.ChunkArrived(0, b"01234", 1),
        ev.ChunkArrived(1, b"56789", 1),
        ev.AssemblyVerified(),
        ev.ObjectRestored(),
        *((ev.CutoverArrived(0, 0, 1),) if proof else ()),
    ):
        play(event)
    if not proof:
        play.wait()
    assert isinstance(play.state, ts.OwnerWriting)
    return play


# the target


def test_spot_and_members_change_their_owner_in_one_write() -> None:
    """R3.3, B6.5; the records of all of them keep one order (B1.6)."""
    play = unit_target()
    assert play(ev.RestoreRequested(MANIFEST, 1)) == [fx.InstallTemporaryQueue(), fx.ReadRow()]
    assert play(ev.RowRead(FIRST)) == [fx.StageParticipants((P1, P2))]
    play(ev.DirectArrived("p1: d1"))
    play(ev.ChunkArrived(0, b"01234", 1))
    play(ev.ChunkArrived(1, b"56789", 1))
    assert play(ev.AssemblyVerified()) == [fx.RestoreObject(1, 5)]
    assert play(ev.ObjectRestored()) == [fx.SendRelayReady(1)]
    for record in ("room: r1", "p2: r2", "p1: r3"):
        play(ev.RelayArrived(record, 1))
    play(ev.FollowArrived("room: f1", 1))
    total = checksum_of("room: r1", "p2: r2", "p1: r3")
    assert play(ev.CutoverArrived(3, total, 1)) == [fx.WriteOwner("v5", 5, FIRST_CONDITIONS)]
    assert play(ev.OwnerWritten()) == [
        fx.OpenDispatch(("room: r1", "p2: r2", "p1: r3"), ("p1: d1", "room: f1"))
    ]


def test_participants_are_staged_before_the_factory_runs_also_when_the_row_comes_last() -> None:
    play = unit_target()
    play(ev.RestoreRequested(MANIFEST, 1))
    play(ev.ChunkArrived(0, b"01234", 1))
    play(ev.ChunkArrived(1, b"56789", 1))
    assert play(ev.AssemblyVerified()) == []
    assert play(ev.RowRead(FIRST)) == [fx.StageParticipants((P1, P2)), fx.RestoreObject(1, 5)]


def test_a_unit_whose_member_another_attempt_keeps_is_refused() -> None:
    """B8.16: nobody of it is staged, no factory runs, and what came for the Spot goes back to the source."""
    play = unit_target()
    play(ev.RestoreRequested(MANIFEST, 1))
    play(ev.DirectArrived("room: d1"))
    effects = play(ev.RivalKept())
    assert quiet(effects)[0] == fx.SendRelocationFailed(1, 33)
    (drop,) = (effect for effect in effects if isinstance(effect, fx.DropTarget))
    assert (drop.direct, drop.disposal) == (("room: d1",), DirectDisposal.FOLLOW_TO_SOURCE)
    assert not any(isinstance(effect, fx.StageParticipants) for effect in effects)
    assert play(ev.RowRead(FIRST)) == []


@pytest.mark.parametrize(
    ("row", "movable"),
    [
        (FIRST, True),
        (FIRST._replace(version="v6"), False),
        (FIRST._replace(lost=True), False),
        (FIRST._replace(others=(MEMBERS[0], member(P2, "b5", C))), False),
        (FIRST._replace(others=(MEMBERS[0], member(P2, ""))), False),
        (FIRST._replace(others=(MEMBERS[0], MEMBERS[1]._replace(lost=True))), False),
        (FIRST._replace(others=(member(SPOT, "s1", C)._replace(moves=False),)), True),
    ],
)
def test_rivals_of_members_are_looked_at_only_where_the_unit_itself_may_go_on(
    row: RowFacts, movable: bool
) -> None:
    """Else an attempt would end for a unit that ends too."""
    assert row.movable("v5") is movable
    play = unit_target()
    play(ev.RestoreRequested(MANIFEST, 1))
    play(ev.RowRead(row))
    assert isinstance(play.state, ts.Assembling) is movable


def test_a_unit_of_one_stages_nobody_else() -> None:
    play = unit_target()
    play(ev.RestoreRequested(MANIFEST, 1))
    assert play(ev.RowRead(FIRST._replace(others=()))) == []


@pytest.mark.parametrize("tell", [ev.OwnerWriteConflicted, ev.OwnerWriteUnknown])
def test_only_another_row_changed_so_the_write_is_rebuilt(tell: Callable[[], ev.OwnerWriteUnknown]) -> None:
    """B6.5, last sentence: with that row's new version, and never another one of the own row (R4.5.1)."""
    play = committing()
    assert play(tell()) == [fx.ReadRow()]
    assert play(ev.RowRead(REWRITTEN)) == [fx.WriteOwner("v5", 5, NEW_CONDITIONS)]
    assert play(ev.OwnerWriteConflicted()) == [fx.ReadRow()]
    again = REWRITTEN._replace(others=(member(P1, "a6"), member(P2, "b6")))
    assert play(ev.RowRead(again)) == [fx.WriteOwner("v5", 5, ((P1, "a6"), (P2, "b6")))]
    assert [type(effect) for effect in play(ev.OwnerWritten())] == [fx.OpenDispatch]


def test_a_new_binding_of_a_member_is_no_conflict() -> None:
    play = committing()
    play(ev.OwnerWriteConflicted())
    bound = FIRST._replace(others=(member(P1, "a6")._replace(bound=True), member(P2, "b5")))
    assert play(ev.RowRead(bound)) == [fx.WriteOwner("v5", 5, ((P1, "a6"), (P2, "b5")))]


def test_nothing_changed_so_the_same_write_is_tried_again_after_a_pause() -> None:
    play = committing()
    play(ev.OwnerWriteUnknown())
    assert play(ev.RowRead(FIRST)) == []
    assert play.wait() == [fx.WriteOwner("v5", 5, FIRST_CONDITIONS)]


@pytest.mark.parametrize(
    "other",
    [
        member(P2, "b6", C),
        member(P2, "b6", owner_generation=10),
        member(P2, "b6")._replace(object_generation=3),
        member(P2, "b6")._replace(membership=("entrySpot", "A", 1)),
        member(P2, "b6")._replace(lost=True),
        member(P2, ""),
    ],
    ids=["owner", "owner generation", "incarnation", "membership", "lost", "missing"],
)
def test_a_participant_that_is_not_as_first_read_ends_the_attempt(other: ParticipantFacts) -> None:
    """R4.5.1 does not hold any more: nothing is changed, Spot scope and staged Actors go (R4.5.4)."""
    play = committing()
    play(ev.OwnerWriteConflicted())
    effects = quiet(play(ev.RowRead(FIRST._replace(others=(member(P1, "a5"), other)))))
    (drop,) = effects
    assert isinstance(drop, fx.DropTarget)
    assert drop.disposal is DirectDisposal.FAIL
    assert isinstance(play.state, ts.TargetRemoved)


def test_a_unit_with_fewer_participants_is_another_unit() -> None:
    assert same_unit(MEMBERS, REWRITTEN.others)
    assert not same_unit(MEMBERS, MEMBERS[:1])
    assert not same_unit(MEMBERS, tuple(reversed(MEMBERS)))


@pytest.mark.parametrize(
    "other",
    [member(P2, ""), member(P2, "b5", C), member(P2, "b5")._replace(lost=True)],
    ids=["missing", "elsewhere", "lost"],
)
def test_a_restore_request_is_refused_when_a_participant_is_not_the_sources(other: ParticipantFacts) -> None:
    play = unit_target()
    play(ev.RestoreRequested(MANIFEST, 1))
    effects = quiet(play(ev.RowRead(FIRST._replace(others=(member(P1, "a5"), other)))))
    assert effects[0] == fx.SendRelocationFailed(1, 33)
    assert isinstance(effects[1], fx.DropTarget)


def test_the_unit_is_bound_when_any_participant_is() -> None:
    """R4.6.4: the session owner of a member is told once dispatch is open."""
    play = committing(FIRST._replace(others=(member(P1, "a5"), member(P2, "b5")._replace(bound=True))))
    play(ev.OwnerWritten())
    assert play(ev.DispatchOpened()) == [fx.CommitSessions()]


def test_an_unknown_outcome_is_judged_by_the_own_row_alone() -> None:
    play = committing()
    play(ev.OwnerWriteUnknown())
    assert [type(effect) for effect in play(ev.RowRead(MOVED))] == [fx.OpenDispatch]


# the source


def restoring() -> Play:
    play = unit_source()
    play(ev.RelocationStarted(1))
    play(ev.RecordArrived("p1: h1"))
    play(ev.RecordArrived("room: h2"))
    play(ev.ObjectCaptured(MANIFEST))
    return play


def test_the_hold_of_a_unit_has_one_order() -> None:
    play = restoring()
    effects = play(ev.RelayReadyReceived(1))
    assert effects[0] == fx.SendRelay(1, ("p1: h1", "room: h2"))
    assert effects[1] == fx.SendCutover(1, 2, checksum_of("p1: h1", "room: h2"))


def test_a_fence_covers_every_row_of_the_unit() -> None:
    """B6.7: one write; a row that only got another version is taken under the new one."""
    play = restoring()
    assert play(ev.CancelRequested()) == [fx.WriteFence(FIRST_CONDITIONS)]
    assert play(ev.FenceConflicted()) == [fx.ReadRow()]
    assert play(ev.RowRead(REWRITTEN)) == [fx.WriteFence(NEW_CONDITIONS)]
    effects = quiet(play(ev.FenceApplied()))
    assert effects[0] == fx.RestoreDispatch(("p1: h1", "room: h2"), captured=True)


def test_a_fence_that_was_not_carried_out_is_tried_again_after_a_pause() -> None:
    play = restoring()
    play(ev.CancelRequested())
    play(ev.FenceUnknown())
    assert play(ev.RowRead(FIRST)) == []
    assert isinstance(play.state, ss.FencePausing)
    assert play.wait() == [fx.WriteFence(FIRST_CONDITIONS)]


def test_a_row_that_is_another_runs_is_left_out_of_the_fence() -> None:
    """R2.2: a source writes only rows of the unit, and those are its own."""
    play = restoring()
    play(ev.CancelRequested())
    play(ev.FenceConflicted())
    others = (member(P1, "a5"), member(P2, "b6", C))
    assert play(ev.RowRead(FIRST._replace(others=others))) == [fx.WriteFence(((P1, "a5"),))]


def test_a_unit_in_doubt_is_marked_lost_as_a_whole_or_not_yet() -> None:
    """The members were read before the late write, the own row behind it: what they said then tells nothing."""
    play = committing(proof=False)
    assert fx.ReadRow() in play(DeadlineReached(), at=ENDS)
    assert isinstance(play.state, ts.TargetDoubting)
    torn = MOVED._replace(others=(member(P1, "a5"), member(P2, "b6", B, 10)))
    assert quiet(play(ev.RowRead(torn))) == [fx.EndWork("DataLost", "no")]
    assert play.wait() == [fx.ReadRow()]
    assert play(ev.RowRead(MOVED)) == [fx.MarkLost("v6", ((P1, "a6"), (P2, "b6")))]


def test_a_member_made_anew_is_left_out_of_the_lost_mark_of_a_unit_in_doubt() -> None:
    play = committing(proof=False)
    play(DeadlineReached(), at=ENDS)
    anew = member(P1, "a9")._replace(object_generation=3)
    row = MOVED._replace(others=(anew, member(P2, "b6", B, 10)))
    assert fx.MarkLost("v6", ((P2, "b6"),)) in play(ev.RowRead(row))


def test_a_unit_is_lost_as_a_whole() -> None:
    """B6.8 over all rows."""
    play = restoring()
    play(ev.RelayReadyReceived(1))
    play(ev.CutoverSubmitted(1))
    while not isinstance(play.state, ss.Reconciling):
        for effect in play.wait():
            if isinstance(effect, fx.ReadRow):
                play(ev.RowReadFailed())
    while isinstance(play.state, ss.Reconciling) and play.state.read_at is not None:
        play.wait()
    assert play(ev.RowRead(REWRITTEN)) == [fx.MarkLost("v5", NEW_CONDITIONS)]
    assert play(ev.LostConflicted()) == [fx.ReadRow()]
    assert play(ev.RowRead(FIRST)) == [fx.MarkLost("v5", FIRST_CONDITIONS)]
    effects = quiet(play(ev.LostMarked()))
    assert fx.DropObject("") in effects


# PerActor: the authority and each member are units of their own (R3.2)


@pytest.mark.parametrize(("key", "stale"), [(SPOT, 33), (P1, 21)], ids=["authority", "member"])
def test_per_actor_units_move_each_on_its_own(key: ObjectKey, stale: int) -> None:
    row = FIRST._replace(others=())
    play = unit_target(key)
    assert play(ev.RestoreRequested(MANIFEST, 1)) == [fx.InstallTemporaryQueue(), fx.ReadRow()]
    assert play(ev.RowRead(row)) == []
    play(ev.ChunkArrived(0, b"01234", 1))
    play(ev.ChunkArrived(1, b"56789", 1))
    assert play(ev.AssemblyVerified()) == [fx.RestoreObject(1, 5)]
    play(ev.ObjectRestored())
    assert play(ev.CutoverArrived(0, 0, 1)) == [fx.WriteOwner("v5", 5)]
    refused = unit_target(key)
    refused(ev.RestoreRequested(MANIFEST, 1))
    assert fx.SendRelocationFailed(1, stale) in refused(ev.RowRead(row._replace(version="v6")))


# a cross-node join: Spots whose lists of members the same write changes (section 8 of the contract)


LEFT = ParticipantFacts(spot_key("left"), "l1", A, 5, 1, moves=False)
JOINED = ParticipantFacts(spot_key("room"), "j1", B, 6, 1, moves=False)
JOIN = FIRST._replace(others=(LEFT, JOINED))


def test_the_spots_of_a_join_are_written_with_the_actor_and_not_staged() -> None:
    play = unit_target(P1)
    play(ev.RestoreRequested(MANIFEST, 1))
    assert play(ev.RowRead(JOIN)) == []
    play(ev.ChunkArrived(0, b"01234", 1))
    play(ev.ChunkArrived(1, b"56789", 1))
    play(ev.AssemblyVerified())
    play(ev.ObjectRestored())
    conditions = ((spot_key("left"), "l1"), (spot_key("room"), "j1"))
    assert play(ev.CutoverArrived(0, 0, 1)) == [fx.WriteOwner("v5", 5, conditions)]
    play(ev.OwnerWriteConflicted())
    others = (LEFT, JOINED._replace(version="j2"))  # somebody else joined meanwhile
    rebuilt = ((spot_key("left"), "l1"), (spot_key("room"), "j2"))
    assert play(ev.RowRead(JOIN._replace(others=others))) == [fx.WriteOwner("v5", 5, rebuilt)]
    play(ev.OwnerWriteConflicted())
    others = (LEFT, JOINED._replace(version="j3", owner=C, owner_generation=2))  # the Spot itself moved
    effects = quiet(play(ev.RowRead(JOIN._replace(others=others))))
    assert [type(effect) for effect in effects] == [fx.DropTarget]


@pytest.mark.parametrize(
    "gone", [JOINED._replace(version=""), JOINED._replace(lost=True)], ids=["closed", "lost"]
)
def test_a_join_into_a_spot_that_is_gone_is_refused(gone: ParticipantFacts) -> None:
    play = unit_target(P1)
    play(ev.RestoreRequested(MANIFEST, 1))
    assert fx.SendRelocationFailed(1, 21) in play(ev.RowRead(JOIN._replace(others=(LEFT, gone))))


def test_the_spots_of_a_join_are_neither_fenced_nor_lost_with_the_actor() -> None:
    play = Play(SourceHandoff(SourcePlan(IDENTITY, B, 1, 4, D, others=(LEFT, JOINED)), checksum, frozen))
    for event in (ev.RelocationStarted(1), ev.ObjectCaptured(MANIFEST)):
        play(event)
    assert play(ev.CancelRequested()) == [fx.WriteFence()]
