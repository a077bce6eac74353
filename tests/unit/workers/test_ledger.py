"""The account of a node's messages: it adds up whatever workers die and objects move (B3.5)."""

from __future__ import annotations

import random

import pytest
from sojourn.workers.ledger import ENDS, Ended, Ledger


def figures(taken: int, **ends: int) -> dict[str, int]:
    """What a worker tells that has accepted all it took."""
    return {"taken": taken, "accepted": taken, **ends}


def ended(total: dict[str, int]) -> list[int]:
    return [total[name] for name in ENDS]


def test_what_a_dead_worker_had_not_told_is_in_doubt() -> None:
    """B3.5: nine records went there; of five it had said what became of them, and one more it had."""
    ledger = Ledger()
    ledger.told(0, figures(6, handled=3, failed=1, dead=1))
    ledger.lost(0, 9, 0)
    total = ledger.total({})
    assert (total["accepted"], ended(total), total["waiting"]) == (9, [3, 1, 1, 4], 0)


def test_what_is_kept_in_a_payload_leaves_and_arrives() -> None:
    ledger = Ledger()
    ledger.told(0, figures(6, handled=3))
    ledger.lost(0, 6, 3)
    ledger.arrived(1, 3)
    assert ledger.total({})["waiting"] == 3
    ledger.told(1, figures(0, handled=3))
    total = ledger.total({})
    assert (ended(total), total["waiting"], total["arrived"], total["left"]) == ([6, 0, 0, 0], 0, 3, 3)


def test_what_ends_in_the_supervisor_was_accepted_once() -> None:
    """Records that never came to a worker; then a payload that nobody can restore: requests fail, sends are dead."""
    ledger = Ledger()
    total = ledger.total({"failed_requests": 2, "dead_letters": 1})
    assert (total["accepted"], ended(total)) == (3, [0, 2, 1, 0])
    ledger.told(0, figures(5))
    ledger.left(0, 5)
    ledger.returned(Ended(failed=3, dead=2))
    total = ledger.total({"failed_requests": 5, "dead_letters": 3})
    assert (total["accepted"], ended(total), total["waiting"]) == (8, [0, 5, 3, 0], 0)


def test_what_is_given_up_in_doubt_is_in_doubt() -> None:
    ledger = Ledger()
    ledger.told(0, figures(5))
    ledger.left(0, 5)
    ledger.returned(Ended(in_doubt=4, dead=1))
    total = ledger.total({"dead_letters": 1, "in_doubt": 4})
    assert (total["accepted"], ended(total), total["waiting"]) == (5, [0, 0, 1, 4], 0)


@pytest.mark.parametrize("seed", range(30))
def test_no_message_is_counted_twice_or_never(seed: int) -> None:
    """Messages take every way there is; each is in one place of the account all the time."""
    chance, ledger = random.Random(seed), Ledger()
    told = {worker: dict.fromkeys(("taken", "accepted", "handled", "failed", "dead"), 0) for worker in (0, 1)}
    waiting, given, accepted = {0: 0, 1: 0}, {0: 0, 1: 0}, 0
    for _ in range(300):
        worker = chance.randrange(2)
        mine = told[worker]
        match chance.randrange(5):
            case 0:
                accepted += 1
                given[worker] += 1
                waiting[worker] += 1
                mine["taken"] += 1
                mine["accepted"] += 1
            case 1 if waiting[worker]:
                waiting[worker] -= 1
                mine[chance.choice(ENDS[:3])] += 1
            case 2 if waiting[worker]:
                messages = chance.randint(1, waiting[worker])
                ledger.left(worker, messages)
                ledger.arrived(1 - worker, messages)
                waiting[worker] -= messages
                waiting[1 - worker] += messages
            case 3 if chance.random() < 0.2:
                ledger.lost(worker, given[worker], 0)
                told[worker] = dict.fromkeys(mine, 0)
                waiting[worker] = given[worker] = 0
            case 4:
                ledger.told(worker, dict(mine))
    for worker, mine in told.items():
        ledger.told(worker, mine)
    total = ledger.total({})
    assert total["waiting"] == sum(waiting.values())
    assert total["accepted"] == accepted == sum(ended(total)) + total["waiting"]
    assert min(total.values()) >= 0
