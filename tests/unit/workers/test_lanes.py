"""The way of records into a worker: credit, order, a seal, the loss of the worker."""

from __future__ import annotations

from sojourn.control import SavedRequest
from sojourn.frames import FLAG_COMPLETE, FLAG_REQUEST, RecordHeader, parse_record_header, record_frame
from sojourn.ids import NodeRun, ObjectKind
from sojourn.wire import fast_record
from sojourn.wire.record import NodeSource
from sojourn.workers.debt import Debt, Retention
from sojourn.workers.lanes import RunningRequest, WorkerLane

CALLER = NodeRun(b"caller", 5)


def make_record(key: bytes, number: int, *, request: bool = False) -> tuple[bytes, RecordHeader]:
    prefix = fast_record.encode_source_prefix(NodeSource(*CALLER, "caller@5", 5))
    route = number if request else 0
    head = fast_record.encode_record_head(prefix, None, 1, number, 6 if request else 5, route)
    flags = FLAG_COMPLETE | (FLAG_REQUEST if request else 0)
    kind = ObjectKind.INSTANCE_SPOT
    body = record_frame(flags, 0, kind, 1, route, 1, number, len(head), key, b"", head)
    return body, parse_record_header(body)


class Bank:
    """A creditor that counts what it gets back."""

    def __init__(self) -> None:
        self.records = 0
        self.octets = 0

    def give_back(self, records: int, octets: int) -> None:
        self.records += records
        self.octets += octets


class Wire:
    """A lane whose worker only takes notes."""

    def __init__(self, credit: int, retained_max: int = 2**20) -> None:
        self.sent: list[bytes] = []
        self.bank = Bank()
        self.retention = Retention(retained_max)
        self.lane = WorkerLane(self.sent.append, credit, self.retention)

    def deliver(self, key: bytes, number: int, *, request: bool = False) -> bytes:
        body, header = make_record(key, number, request=request)
        self.lane.deliver(body, header, Debt(self.bank, len(body)))
        return body


def test_records_go_while_there_is_credit_and_wait_in_order_without() -> None:
    wire = Wire(credit=2)
    bodies = [wire.deliver(b"sa", number) for number in range(1, 6)]
    assert wire.sent == bodies[:2]
    wire.lane.grant(1)
    wire.lane.grant(2)
    assert wire.sent == bodies
    assert wire.lane.credit == 0
    assert wire.retention.octets == 0
    assert wire.bank.records == 5


def test_nothing_passes_what_waits() -> None:
    wire = Wire(credit=0)
    first = wire.deliver(b"sa", 1)
    wire.lane.deliver_ordered(b"control")
    second = wire.deliver(b"sb", 2)
    assert wire.sent == []
    wire.lane.grant(1)
    assert wire.sent == [first, b"control"]  # control needs no credit, only its place
    wire.lane.grant(1)
    assert wire.sent == [first, b"control", second]


def test_a_seal_takes_what_waits_for_its_object_and_leaves_the_rest() -> None:
    wire = Wire(credit=0)
    mine = [wire.deliver(b"sa", 1), wire.deliver(b"sa", 3)]
    other = wire.deliver(b"sb", 2)
    wire.lane.flush_objects({b"sa"})
    assert wire.sent == mine
    assert wire.lane.credit == -2  # comes back with the captured records
    wire.lane.grant(2)
    assert wire.sent == mine
    wire.lane.grant(1)
    assert wire.sent == [*mine, other]


def test_above_the_retained_limit_credit_stays_with_the_record() -> None:
    """B5.3: nothing is dropped; no new credit is given for it either."""
    wire = Wire(credit=0, retained_max=1)
    wire.deliver(b"sa", 1)
    assert wire.bank.records == 0
    wire.lane.grant(1)
    assert wire.bank.records == 1


def test_a_lost_worker_names_what_never_reached_it_and_what_it_did_not_answer() -> None:
    wire = Wire(credit=2)
    wire.deliver(b"sa", 1, request=True)
    wire.deliver(b"sa", 2, request=True)
    waits = wire.deliver(b"sa", 3, request=True)
    wire.lane.answered(CALLER.rid, CALLER.generation, 1)
    waiting, running = wire.lane.close()
    assert [body for body, _, _ in waiting] == [waits]
    assert running == [(CALLER, 2, RunningRequest(b"sa", 1, 2))]
    assert wire.lane.close() == ([], [])
    assert wire.retention.octets == 0


def test_requests_of_an_object_that_moved_are_answered_elsewhere() -> None:
    wire = Wire(credit=2)
    wire.deliver(b"sa", 1, request=True)
    wire.deliver(b"sb", 2, request=True)
    wire.lane.forget_object(b"sa")
    assert [route for _, route, _ in wire.lane.close()[1]] == [2]


def make_open_record(key: bytes, number: int) -> bytes:
    """A request of this node's own worker, without route fence."""
    body, header = make_record(key, number, request=True)
    return body[:1] + bytes((header.flags & ~FLAG_COMPLETE,)) + body[2:]


def test_a_record_of_an_own_worker_goes_as_it_is_and_counts_as_its_node_s() -> None:
    own = CALLER
    sent: list[bytes] = []
    bank = Bank()
    lane = WorkerLane(sent.append, 1, Retention(2**20), own)
    first, second = make_open_record(b"sa", 1), make_open_record(b"sa", 2)
    lane.pass_on(first, b"sa", bank)
    lane.pass_on(second, b"sa", bank)
    assert sent == [first]
    assert bank.records == 2, "what waits below the limit holds nobody back"
    assert bank.octets == len(first) + len(second)
    lane.grant(1)
    assert sent == [first, second]
    lane.answered(own.rid, own.generation, 1)
    assert lane.close()[1] == [(own, 2, RunningRequest(b"sa", 1, 2))]


def test_above_the_retained_limit_an_own_worker_waits_too() -> None:
    bank = Bank()
    lane = WorkerLane(lambda _: None, 0, Retention(1))
    lane.pass_on(make_open_record(b"sa", 1), b"sa", bank)
    assert bank.records == 0
    lane.grant(1)
    assert bank.records == 1


def test_requests_of_another_worker_stay_what_they_were() -> None:
    """B7.1, B8.7: one that came with a move keeps its order there, whichever worker answers it."""
    former, present = Wire(4), Wire(4)
    route = (CALLER.rid, CALLER.generation, 7)
    moved = RunningRequest(b"sdesk", 1, 7, True, 5)
    former.lane.running[route] = moved
    former.lane.running[CALLER.rid, CALLER.generation, 8] = RunningRequest(b"sother", 1, 8)
    known = former.lane.requests_of({b"sdesk"})
    assert known == {route: moved}
    saved = [
        SavedRequest(b"sdesk", *CALLER, number, 1, number, order) for order, number in enumerate((7, 9), 1)
    ]
    present.lane.adopt(saved, False, known)
    assert list(present.lane.running.values()) == [moved, RunningRequest(b"sdesk", 1, 9, False, 2)]
    former.lane.adopt(saved[1:], True)
    assert former.lane.running[CALLER.rid, CALLER.generation, 9].moved


def test_a_lane_that_is_shut_refuses_what_waits_and_what_comes() -> None:
    """The worker is about to stop: what it was given before it answers, the rest ends here, and nothing stays owed."""
    wire, refused = Wire(credit=1), list[bytes]()

    def refuse(body: bytes, header: RecordHeader, debt: Debt | None) -> None:
        assert parse_record_header(body) == header
        refused.append(body)
        if debt is not None:
            debt.settle()

    given, *waiting = [wire.deliver(b"sa", number) for number in range(1, 4)]
    wire.lane.deliver_ordered(b"control")
    wire.lane.shut(refuse)
    assert wire.sent == [given, b"control"]
    assert refused == waiting
    wire.lane.grant(8)
    late = wire.deliver(b"sa", 4, request=True)
    body, _ = make_record(b"sa", 5, request=True)
    wire.lane.pass_on(body, b"sa", wire.bank)
    assert refused == [*waiting, late, body]
    assert wire.sent == [given, b"control"]
    assert (wire.bank.records, wire.retention.octets, wire.lane.running) == (5, 0, {})
