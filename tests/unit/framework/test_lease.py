"""The lease clock: B6.4 as arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sojourn.errors import InvalidOperation, NotConfigured
from sojourn.lease import LeaseClock, LeasePhase, LeaseSettings, PutLease, ReadLease, RenewLease, WaitUntil

SETTINGS = LeaseSettings()
ROOM = SETTINGS.ttl_ms - SETTINGS.margin_ms


def held(sent_ms: int = 1_000) -> LeaseClock:
    """A clock whose first put was sent at `sent_ms` and applied."""
    clock = LeaseClock(SETTINGS)
    clock.sent(sent_ms)
    clock.applied("v1")
    return clock


def expired(now_ms: int = 50_000) -> LeaseClock:
    clock = held()
    clock.sent(now_ms)
    clock.conflicted(now_ms)
    return clock


def test_nothing_runs_before_the_lease_stands() -> None:
    clock = LeaseClock(SETTINGS)
    assert clock.next_step(0) == PutLease()
    assert not clock.may_admit(0)
    clock.sent(0)
    assert clock.next_step(0) == WaitUntil(None)
    assert not clock.may_admit(0)


def test_the_deadline_counts_from_before_the_renewal_was_sent() -> None:
    clock = held(sent_ms=1_000)
    assert clock.admission_deadline_ms == 1_000 + ROOM
    assert clock.may_admit(1_000 + ROOM - 1)
    assert not clock.may_admit(1_000 + ROOM)
    assert clock.next_step(1_001) == WaitUntil(6_000)
    assert clock.next_step(6_000) == RenewLease("v1")
    clock.sent(6_000)
    clock.applied("v2")  # whenever the answer came, only the sending moment counts
    assert clock.admission_deadline_ms == 6_000 + ROOM
    assert clock.next_step(11_000) == RenewLease("v2")


def test_a_renewal_that_failed_moves_nothing_and_is_tried_again_soon() -> None:
    clock = held()
    clock.sent(6_000)
    clock.failed(9_000, unknown=False)
    assert clock.phase is LeasePhase.HELD
    assert clock.admission_deadline_ms == 1_000 + ROOM
    assert clock.next_step(9_000) == WaitUntil(9_000 + SETTINGS.retry_ms)
    assert clock.next_step(9_000 + SETTINGS.retry_ms) == RenewLease("v1")


def test_after_an_unknown_outcome_the_row_is_read_first() -> None:
    clock = held()
    clock.sent(6_000)
    clock.failed(9_000, unknown=True)
    assert clock.phase is LeasePhase.UNCERTAIN
    assert clock.may_admit(9_000), "the last applied renewal still covers this moment"
    assert clock.next_step(9_250) == ReadLease()
    clock.sent(9_250)
    clock.read("v2", 9_260)
    assert clock.phase is LeasePhase.HELD
    assert clock.admission_deadline_ms == 1_000 + ROOM, "a read moves no deadline"
    assert clock.next_step(9_260) == RenewLease("v2")


def test_a_read_that_failed_is_repeated() -> None:
    clock = held()
    clock.sent(6_000)
    clock.failed(9_000, unknown=True)
    clock.sent(9_250)
    clock.failed(9_300, unknown=False)
    assert clock.next_step(9_550) == ReadLease()


def test_past_the_deadline_a_renewal_under_the_old_version_goes_on_without_re_reading() -> None:
    """The version still holding proves that the row never expired."""
    clock = held()
    assert not clock.may_admit(14_000)
    clock.sent(14_000)
    clock.applied("v2")
    assert clock.phase is LeasePhase.HELD
    assert clock.may_admit(14_000)


def test_a_lost_lease_is_put_under_missing_and_runs_nothing_until_rows_were_re_read() -> None:
    clock = expired(20_000)
    assert clock.phase is LeasePhase.EXPIRED
    assert clock.admission_deadline_ms == 0
    assert clock.recheck is None, "re-reading before the lease stands again proves nothing"
    assert clock.next_step(20_000) == PutLease()
    clock.sent(20_000)
    clock.applied("v9")
    assert clock.phase is LeasePhase.RECHECKING
    assert not clock.may_admit(20_001)
    ticket = clock.recheck
    assert ticket is not None
    assert clock.rechecked(ticket)
    assert clock.phase is LeasePhase.HELD
    assert clock.admission_deadline_ms == 20_000 + ROOM
    assert not clock.rechecked(ticket), "a ticket is good once"


def test_renewals_go_on_while_rows_are_re_read() -> None:
    clock = expired(20_000)
    clock.sent(20_000)
    clock.applied("v9")
    ticket = clock.recheck
    clock.sent(25_000)
    clock.applied("v10")
    assert clock.recheck == ticket
    assert not clock.may_admit(25_001)
    assert ticket is not None
    assert clock.rechecked(ticket)
    assert clock.admission_deadline_ms == 25_000 + ROOM


def test_a_ticket_of_a_lease_that_was_lost_again_is_worth_nothing() -> None:
    clock = expired(20_000)
    clock.sent(20_000)
    clock.applied("v9")
    ticket = clock.recheck
    assert ticket is not None
    clock.sent(40_000)
    clock.conflicted(40_000)
    assert not clock.rechecked(ticket)
    clock.sent(40_000)
    clock.applied("v11")
    assert clock.recheck not in (None, ticket)
    assert not clock.rechecked(ticket)
    assert not clock.may_admit(40_001)


def test_re_reading_that_ends_while_a_renewal_is_unknown_keeps_what_is_covered() -> None:
    clock = expired(20_000)
    clock.sent(20_000)
    clock.applied("v9")
    ticket = clock.recheck
    assert ticket is not None
    clock.sent(25_000)
    clock.failed(28_000, unknown=True)
    assert clock.rechecked(ticket)
    assert clock.phase is LeasePhase.UNCERTAIN
    assert clock.admission_deadline_ms == 20_000 + ROOM


def test_a_renewal_that_is_unknown_twice_while_rows_are_re_read() -> None:
    clock = expired(20_000)
    clock.sent(20_000)
    clock.applied("v9")
    clock.sent(25_000)
    clock.failed(28_000, unknown=True)
    assert clock.next_step(28_250) == ReadLease()
    clock.sent(28_250)
    clock.failed(28_300, unknown=True)
    assert clock.phase is LeasePhase.RECHECKING
    assert clock.next_step(28_550) == ReadLease()
    ticket = clock.recheck
    clock.sent(28_550)
    clock.read("v10", 28_551)
    assert clock.recheck == ticket, "the lease stood all the time, so what was re-read still counts"


def test_a_renewal_that_is_unknown_while_uncertain() -> None:
    clock = held()
    clock.sent(6_000)
    clock.failed(9_000, unknown=True)
    clock.sent(9_250)
    clock.failed(9_300, unknown=True)
    assert clock.phase is LeasePhase.UNCERTAIN


def test_an_unknown_put_of_an_expired_lease_is_read_before_rows_are_re_read() -> None:
    clock = expired(20_000)
    clock.sent(20_000)
    clock.failed(23_000, unknown=True)
    assert clock.phase is LeasePhase.RECHECKING
    assert clock.recheck is None
    assert not clock.rechecked(0)
    assert clock.next_step(23_250) == ReadLease()
    clock.sent(23_250)
    clock.read("v9", 23_251)
    assert clock.recheck is not None
    assert clock.next_step(23_251) == RenewLease("v9")


def test_an_unknown_put_that_did_nothing_is_put_again() -> None:
    clock = expired(20_000)
    clock.sent(20_000)
    clock.failed(23_000, unknown=True)
    clock.sent(23_250)
    clock.read(None, 23_251)
    assert clock.phase is LeasePhase.EXPIRED
    assert clock.next_step(23_251) == PutLease()
    clock.sent(23_251)
    clock.conflicted(23_260)  # the first put came late after all
    assert clock.phase is LeasePhase.RECHECKING
    assert clock.next_step(23_260) == ReadLease()


def test_a_first_put_with_an_unknown_outcome() -> None:
    clock = LeaseClock(SETTINGS)
    clock.sent(0)
    clock.failed(3_000, unknown=True)
    assert clock.phase is LeasePhase.UNCERTAIN
    clock.sent(3_250)
    clock.read(None, 3_251)
    assert clock.phase is LeasePhase.ABSENT
    clock.sent(3_251)
    clock.conflicted(3_260)
    clock.sent(3_260)
    clock.read("v1", 3_261)
    assert clock.phase is LeasePhase.HELD
    assert not clock.may_admit(3_261)
    clock.sent(3_261)
    clock.applied("v2")
    assert clock.may_admit(3_262)


def test_a_row_found_after_the_lease_may_have_ended_proves_nothing() -> None:
    clock = held()
    clock.sent(6_000)
    clock.failed(9_000, unknown=True)
    clock.sent(16_000)
    clock.read("v2", 16_000)
    assert clock.phase is LeasePhase.RECHECKING
    assert clock.recheck is not None
    assert not clock.may_admit(16_000)


def test_release_ends_everything() -> None:
    clock = held()
    clock.sent(6_000)
    assert clock.released() == "v1"
    assert clock.phase is LeasePhase.RELEASED
    assert clock.admission_deadline_ms == 0
    assert clock.next_step(99_000) == WaitUntil(None)
    assert LeaseClock(SETTINGS).released() is None


def test_misuse_is_refused() -> None:
    clock = held()
    for report in (lambda: clock.applied("v"), lambda: clock.conflicted(1), lambda: clock.read(None, 1)):
        with pytest.raises(InvalidOperation, match="no lease attempt"):
            report()
    clock.sent(6_000)
    with pytest.raises(InvalidOperation, match="already out"):
        clock.sent(6_001)


def test_settings_without_room_for_a_late_renewal_are_refused() -> None:
    with pytest.raises(NotConfigured, match=r"B6\.4"):
        LeaseClock(LeaseSettings(ttl_ms=13_000))
    assert LeaseSettings(ttl_ms=100, renew_ms=10, renew_timeout_ms=10, margin_ms=20).retry_ms == 1


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 9_000)), max_size=60))
def test_admission_never_reaches_past_what_the_store_guarantees(actions: list[tuple[int, int]]) -> None:
    """Whatever happens, a run admits work only while a row it put stands, and after a loss only re-checked."""
    clock = LeaseClock(SETTINGS)
    now = stored_until = 0
    stored: str | None = None
    count = 0
    has_worked = lost_since_check = False
    for action, passed in actions:
        now += passed
        if stored is not None and now >= stored_until:
            stored, lost_since_check = None, has_worked
        step = clock.next_step(now)
        if not isinstance(step, WaitUntil):
            clock.sent(now)
            holds = stored is None if isinstance(step, PutLease) else stored is not None
            if isinstance(step, RenewLease):
                holds = stored == step.version
            if action in (0, 1):  # fails before the store saw it
                clock.failed(now, unknown=action == 1 and not isinstance(step, ReadLease))
            elif isinstance(step, ReadLease):
                clock.read(stored, now)
            elif not holds:
                clock.conflicted(now)
            else:
                count += 1
                stored, stored_until = f"v{count}", now + SETTINGS.ttl_ms
                if action == 2:
                    clock.failed(now, unknown=True)
                else:
                    clock.applied(stored)
        elif action == 3 and clock.recheck is not None:
            if stored is not None:
                lost_since_check = False
            clock.rechecked(clock.recheck)
        if clock.may_admit(now):
            assert stored is not None
            assert now + SETTINGS.margin_ms <= stored_until
            assert not lost_since_check
            has_worked = True
